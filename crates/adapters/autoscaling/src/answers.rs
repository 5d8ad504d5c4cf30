//! Auto Scaling's answers as the decisions see them.

use std::collections::BTreeMap;

use aws_sdk_autoscaling::types::{LaunchTemplateSpecification, TagDescription};
use recycle::cluster::balancers::Attachments;
use recycle::cluster::group::{Group, Member};
use recycle::rotation::fleet::{Fleet, FleetMember, Template};

use crate::Error;
use crate::groups::DESCRIBE_GROUPS;

/// Target groups of Elastic Load Balancing stand in `TargetGroupARNs`, or among the sources of traffic under that type.
pub(crate) fn to_attachments(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Attachments {
    let mut found = Attachments {
        target_groups: group.target_group_arns().to_vec(),
        classic: group.load_balancer_names().to_vec(),
        others: Vec::new(),
    };
    for source in group.traffic_sources() {
        let identifier = source.identifier().unwrap_or_default().to_owned();
        let list = match source.r#type() {
            Some("elbv2") => &mut found.target_groups,
            Some("elb") => &mut found.classic,
            _ => &mut found.others,
        };
        if !list.contains(&identifier) {
            list.push(identifier);
        }
    }
    found
}

pub(crate) fn is_weighted(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> bool {
    let template = group
        .mixed_instances_policy()
        .and_then(|policy| policy.launch_template());
    let has_weights = template.is_some_and(|template| {
        let weights = template.overrides().iter();
        weights
            .filter_map(|choice| choice.weighted_capacity())
            .next()
            .is_some()
    });
    has_weights || group.desired_capacity_type().is_some_and(|unit| unit != "units")
}

pub(crate) fn retains(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> bool {
    let triggers = group
        .instance_lifecycle_policy()
        .and_then(|policy| policy.retention_triggers());
    triggers.and_then(|triggers| triggers.terminate_hook_abandon())
        == Some(&aws_sdk_autoscaling::types::RetentionAction::Retain)
}

/// A group launches from its template, or from that of a mixed-instances policy.
pub(crate) fn to_fleet(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Result<Fleet, Error> {
    let mixed = group
        .mixed_instances_policy()
        .and_then(|policy| policy.launch_template());
    let named = group
        .launch_template()
        .or(mixed.and_then(|mixed| mixed.launch_template_specification()));
    let overrides = mixed.map(|mixed| mixed.overrides()).unwrap_or_default().iter();
    Ok(Fleet {
        name: parse(
            DESCRIBE_GROUPS,
            group.auto_scaling_group_name().unwrap_or_default(),
        )?,
        tags: to_tags(group),
        template: named.and_then(to_template),
        overrides: overrides
            .filter_map(|choice| {
                let template = choice.launch_template_specification().and_then(to_template)?;
                Some((choice.instance_type()?.to_owned(), template))
            })
            .collect::<BTreeMap<_, _>>(),
        members: group
            .instances()
            .iter()
            .map(|instance| {
                let member = to_member(instance)?;
                Ok(FleetMember {
                    instance: member.instance,
                    lifecycle_state: member.lifecycle_state,
                    instance_type: instance.instance_type().unwrap_or_default().to_owned(),
                    zone: instance.availability_zone().unwrap_or_default().to_owned(),
                    template: instance.launch_template().map(to_launched).transpose()?,
                })
            })
            .collect::<Result<_, Error>>()?,
    })
}

pub(crate) fn to_tags(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> BTreeMap<String, String> {
    let named =
        |tag: &TagDescription| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned()));
    group.tags().iter().filter_map(named).collect()
}

pub(crate) fn list_propagated(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Vec<String> {
    let propagated = group
        .tags()
        .iter()
        .filter(|tag| tag.propagate_at_launch() == Some(true));
    propagated
        .filter_map(|tag| tag.key().map(str::to_owned))
        .collect()
}

/// A group that names no version launches the default one (API reference, LaunchTemplateSpecification).
fn to_template(named: &LaunchTemplateSpecification) -> Option<Template> {
    Some(Template {
        id: named.launch_template_id()?.to_owned(),
        version: named.version().unwrap_or("$Default").to_owned(),
    })
}

/// What a member was launched from: a version that had a number. With half of it the member would look outdated.
fn to_launched(named: &LaunchTemplateSpecification) -> Result<Template, Error> {
    let given = |field: &str, value: Option<&str>| match value {
        Some(value) if !value.is_empty() => Ok(value.to_owned()),
        Some(_) | None => Err(Error::Unintelligible {
            call: DESCRIBE_GROUPS,
            what: format!("a member's LaunchTemplate without {field}"),
        }),
    };
    Ok(Template {
        id: given("LaunchTemplateId", named.launch_template_id())?,
        version: given("Version", named.version())?,
    })
}

pub(crate) fn to_group(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Result<Group, Error> {
    Ok(Group {
        name: parse(
            DESCRIBE_GROUPS,
            group.auto_scaling_group_name().unwrap_or_default(),
        )?,
        min: size(DESCRIBE_GROUPS, "MinSize", group.min_size())?,
        desired: size(DESCRIBE_GROUPS, "DesiredCapacity", group.desired_capacity())?,
        max: size(DESCRIBE_GROUPS, "MaxSize", group.max_size())?,
        members: group
            .instances()
            .iter()
            .map(to_member)
            .collect::<Result<_, _>>()?,
        suspended: group
            .suspended_processes()
            .iter()
            .map(|process| process.process_name().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| Error::Unintelligible {
                call: DESCRIBE_GROUPS,
                what: "a suspended process without ProcessName".to_owned(),
            })?,
    })
}

fn to_member(instance: &aws_sdk_autoscaling::types::Instance) -> Result<Member, Error> {
    let state = instance.lifecycle_state().ok_or_else(|| Error::Unintelligible {
        call: DESCRIBE_GROUPS,
        what: "a member without LifecycleState".to_owned(),
    })?;
    Ok(Member {
        instance: parse(DESCRIBE_GROUPS, instance.instance_id().unwrap_or_default())?,
        lifecycle_state: state.as_str().to_owned(),
        protected_from_scale_in: instance.protected_from_scale_in().unwrap_or(false),
    })
}

pub(crate) fn parse<T: std::str::FromStr<Err = recycle::base::ids::InvalidId>>(
    call: &'static str,
    text: &str,
) -> Result<T, Error> {
    text.parse()
        .map_err(|error: recycle::base::ids::InvalidId| Error::Unintelligible {
            call,
            what: error.to_string(),
        })
}

pub(crate) fn size(call: &'static str, field: &str, value: Option<i32>) -> Result<u32, Error> {
    value
        .and_then(|value| u32::try_from(value).ok())
        .ok_or_else(|| Error::Unintelligible {
            call,
            what: format!("{field} is {value:?}"),
        })
}
