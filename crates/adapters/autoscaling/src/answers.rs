//! Converts the answers of Auto Scaling to the facts that the decisions use.

use std::collections::BTreeMap;
use std::str::FromStr;

use aws_sdk_autoscaling::types::{
    AutoScalingGroup, Instance, LaunchTemplateSpecification, RetentionAction, TagDescription,
};
use recycle::base::ids::InvalidId;
use recycle::cluster::balancers::Attachments;
use recycle::cluster::group::{Group, Member};
use recycle::rotation::fleet::{Fleet, FleetMember, Template};

use crate::Error;
use crate::groups::DESCRIBE_GROUPS;

/// Reads what a group is attached to. Target groups are in `TargetGroupARNs`, or among the traffic sources with the type `elbv2`.
pub(crate) fn to_attachments(group: &AutoScalingGroup) -> Attachments {
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

pub(crate) fn is_weighted(group: &AutoScalingGroup) -> bool {
    let template = group
        .mixed_instances_policy()
        .and_then(|policy| policy.launch_template());
    let has_weights = template.is_some_and(|template| {
        let mut overrides = template.overrides().iter();
        overrides.any(|choice| choice.weighted_capacity().is_some())
    });
    has_weights || group.desired_capacity_type().is_some_and(|unit| unit != "units")
}

fn retains(group: &AutoScalingGroup) -> bool {
    let triggers = group
        .instance_lifecycle_policy()
        .and_then(|policy| policy.retention_triggers());
    triggers.and_then(|triggers| triggers.terminate_hook_abandon()) == Some(&RetentionAction::Retain)
}

/// Reads a group as rotations need it. A group launches from its own template, or from that of its mixed-instances policy.
pub(crate) fn to_fleet(group: &AutoScalingGroup) -> Result<Fleet, Error> {
    let mixed = group
        .mixed_instances_policy()
        .and_then(|policy| policy.launch_template());
    let named = group
        .launch_template()
        .or(mixed.and_then(|mixed| mixed.launch_template_specification()));
    let overrides = mixed.map(|mixed| mixed.overrides()).unwrap_or_default().iter();
    let room = group.max_size().zip(group.desired_capacity());
    let room = room.map(|(max, desired)| max - desired);
    Ok(Fleet {
        rebalances_capacity: group.capacity_rebalance() == Some(true),
        room: u32::try_from(room.unwrap_or(0)).unwrap_or(0),
        name: parse(DESCRIBE_GROUPS, group.auto_scaling_group_name())?,
        tags: to_tags(group),
        template: named.and_then(to_template),
        overrides: overrides
            .filter_map(|choice| {
                let template = choice.launch_template_specification().and_then(to_template)?;
                Some((choice.instance_type()?.to_owned(), template))
            })
            .collect(),
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

pub(crate) fn to_tags(group: &AutoScalingGroup) -> BTreeMap<String, String> {
    let named =
        |tag: &TagDescription| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned()));
    group.tags().iter().filter_map(named).collect()
}

pub(crate) fn list_propagated(group: &AutoScalingGroup) -> Vec<String> {
    let tags = group.tags().iter();
    let propagated = tags.filter(|tag| tag.propagate_at_launch() == Some(true));
    propagated.filter_map(|tag| Some(tag.key()?.to_owned())).collect()
}

/// Reads the template that a group launches from. Without a version, the group launches the default one
/// (API reference, LaunchTemplateSpecification).
fn to_template(named: &LaunchTemplateSpecification) -> Option<Template> {
    Some(Template {
        id: named.launch_template_id()?.to_owned(),
        version: named.version().unwrap_or("$Default").to_owned(),
    })
}

/// Reads the template and the numbered version that a member was launched from. A missing id or version is an error, because with half of
/// the answer the member would look outdated.
fn to_launched(named: &LaunchTemplateSpecification) -> Result<Template, Error> {
    let given = |field: &str, value: Option<&str>| {
        let value = value.filter(|value| !value.is_empty()).map(str::to_owned);
        value.ok_or_else(|| missing(&format!("a member's LaunchTemplate without {field}")))
    };
    Ok(Template {
        id: given("LaunchTemplateId", named.launch_template_id())?,
        version: given("Version", named.version())?,
    })
}

pub(crate) fn to_group(group: &AutoScalingGroup) -> Result<Group, Error> {
    Ok(Group {
        name: parse(DESCRIBE_GROUPS, group.auto_scaling_group_name())?,
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
            .ok_or_else(|| missing("a suspended process without ProcessName"))?,
        protects_new_members: group.new_instances_protected_from_scale_in() == Some(true),
        zones: group.availability_zones().len(),
        rebalances_capacity: group.capacity_rebalance() == Some(true),
        retains: retains(group),
    })
}

fn to_member(instance: &Instance) -> Result<Member, Error> {
    let state = instance.lifecycle_state();
    let state = state.ok_or_else(|| missing("a member without LifecycleState"))?;
    Ok(Member {
        instance: parse(DESCRIBE_GROUPS, instance.instance_id())?,
        lifecycle_state: state.as_str().to_owned(),
        protected_from_scale_in: instance.protected_from_scale_in().unwrap_or(false),
    })
}

fn missing(what: &str) -> Error {
    Error::unintelligible(DESCRIBE_GROUPS, what)
}

pub(crate) fn parse<T>(call: &'static str, text: Option<&str>) -> Result<T, Error>
where
    T: FromStr<Err = InvalidId>,
{
    let parsed = text.unwrap_or_default().parse();
    parsed.map_err(|error: InvalidId| Error::unintelligible(call, error.to_string()))
}

pub(crate) fn size(call: &'static str, field: &str, value: Option<i32>) -> Result<u32, Error> {
    let size = value.and_then(|value| u32::try_from(value).ok());
    size.ok_or_else(|| Error::unintelligible(call, format!("{field} is {value:?}")))
}
