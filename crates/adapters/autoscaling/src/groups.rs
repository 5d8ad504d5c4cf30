//! EC2 Auto Scaling: groups and their members, Standby and back, leaving for good, and the changes of a group's size by which a
//! put-back undoes what Standby began.

use std::collections::{BTreeMap, BTreeSet};

use aws_config::SdkConfig;
use aws_sdk_autoscaling::types::{Filter, LaunchTemplateSpecification, TagDescription};
use recycle::balancers::Attachments;
use recycle::cluster_tag::{CLUSTER_TAG_VALUES, cluster_tag};
use recycle::hook::is_held;
use recycle::ids::{ClusterName, GroupName, InstanceId};
use recycle::names::LIFECYCLE_HOOK;
use recycle::node::{Group, MOST_PROTECTED, Member};
use recycle::select::{Fleet, FleetMember, Template};

use crate::Error;
use crate::whole::Whole;

const DESCRIBE_INSTANCES: &str = "autoscaling:DescribeAutoScalingInstances";
const DESCRIBE_GROUPS: &str = "autoscaling:DescribeAutoScalingGroups";
const DESCRIBE_REFRESHES: &str = "autoscaling:DescribeInstanceRefreshes";
const ENTER_STANDBY: &str = "autoscaling:EnterStandby";
const EXIT_STANDBY: &str = "autoscaling:ExitStandby";
const DETACH: &str = "autoscaling:DetachInstances";
const SET_DESIRED: &str = "autoscaling:SetDesiredCapacity";
const SET_PROTECTION: &str = "autoscaling:SetInstanceProtection";
const DESCRIBE_HOOKS: &str = "autoscaling:DescribeLifecycleHooks";
const COMPLETE_HOOK: &str = "autoscaling:CompleteLifecycleAction";
const TERMINATE: &str = "autoscaling:TerminateInstanceInAutoScalingGroup";

/// An instance in its group, with what is to be known before it is taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// `LifecycleState`; beginning with `Warmed` for one in the warm pool, which is not among the group's members.
    pub lifecycle_state: String,
    /// The group.
    pub group: Group,
    /// The group's tags.
    pub tags: BTreeMap<String, String>,
    /// Keys of those that it sets on the instances that it launches.
    pub propagates: Vec<String>,
    /// What the group is attached to.
    pub attachments: Attachments,
    /// The desired capacity counts weights, processors or memory, and not instances.
    pub is_weighted: bool,
    /// An instance whose termination hook was abandoned is kept (`InstanceLifecyclePolicy`).
    pub retains: bool,
}

/// Auto Scaling's groups.
#[derive(Debug, Clone)]
pub struct Groups {
    client: aws_sdk_autoscaling::Client,
}

impl Groups {
    /// A client as `config` says.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        Self {
            client: aws_sdk_autoscaling::Client::from_conf(
                aws_sdk_autoscaling::config::Builder::from(config)
                    .interceptor(Whole)
                    .build(),
            ),
        }
    }

    /// The name of the group that the instance belongs to, and its lifecycle state there, whichever it is.
    async fn find_name(&self, member: &InstanceId) -> Result<Option<(GroupName, String)>, Error> {
        let answer = self
            .client
            .describe_auto_scaling_instances()
            .instance_ids(member.as_str())
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_INSTANCES, error))?;
        answer
            .auto_scaling_instances()
            .iter()
            .find_map(|instance| Some((instance.auto_scaling_group_name()?, instance.lifecycle_state())))
            .map(|(name, state)| {
                let state = state.unwrap_or_default().to_owned();
                Ok((parse(DESCRIBE_INSTANCES, name)?, state))
            })
            .transpose()
    }

    /// The group as it is now, or none if there is none of that name.
    pub async fn fetch(&self, name: &GroupName) -> Result<Option<Group>, Error> {
        self.describe(name).await?.as_ref().map(to_group).transpose()
    }

    async fn describe(
        &self,
        name: &GroupName,
    ) -> Result<Option<aws_sdk_autoscaling::types::AutoScalingGroup>, Error> {
        let answer = self
            .client
            .describe_auto_scaling_groups()
            .auto_scaling_group_names(name.as_str())
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_GROUPS, error))?;
        Ok(answer.auto_scaling_groups.unwrap_or_default().into_iter().next())
    }

    /// Every group with the cluster's tag.
    pub async fn fetch_fleets(&self, cluster: &ClusterName) -> Result<Vec<Fleet>, Error> {
        let belongs = Filter::builder()
            .name(format!("tag:{}", cluster_tag(cluster.as_str())))
            .set_values(Some(CLUSTER_TAG_VALUES.map(str::to_owned).to_vec()))
            .build();
        let mut pages = self
            .client
            .describe_auto_scaling_groups()
            .filters(belongs)
            .into_paginator()
            .items()
            .send();
        let mut fleets = Vec::new();
        while let Some(group) = pages.next().await {
            let group = group.map_err(|error| Error::from_sdk(DESCRIBE_GROUPS, error))?;
            fleets.push(to_fleet(&group)?);
        }
        Ok(fleets)
    }

    /// The group as rotations look at it; none if there is no such group.
    pub async fn fetch_fleet(&self, name: &GroupName) -> Result<Option<Fleet>, Error> {
        self.describe(name).await?.as_ref().map(to_fleet).transpose()
    }

    /// The group that the instance is a member of, as it is now.
    pub async fn find(&self, member: &InstanceId) -> Result<Option<Group>, Error> {
        match self.find_name(member).await? {
            Some((name, _)) => self.fetch(&name).await,
            None => Ok(None),
        }
    }

    /// The same with all that pre-flight asks.
    pub async fn find_membership(&self, member: &InstanceId) -> Result<Option<Membership>, Error> {
        let Some((name, lifecycle_state)) = self.find_name(member).await? else {
            return Ok(None);
        };
        let Some(group) = self.describe(&name).await? else {
            return Ok(None);
        };
        Ok(Some(Membership {
            lifecycle_state,
            group: to_group(&group)?,
            tags: to_tags(&group),
            propagates: list_propagated(&group),
            attachments: to_attachments(&group),
            is_weighted: is_weighted(&group),
            retains: retains(&group),
        }))
    }

    /// The status of the group's instance refresh that is under way, if one is: the newest comes first.
    pub async fn find_refresh(&self, group: &GroupName) -> Result<Option<String>, Error> {
        let answer = self
            .client
            .describe_instance_refreshes()
            .auto_scaling_group_name(group.as_str())
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_REFRESHES, error))?;
        for refresh in answer.instance_refreshes() {
            let status = refresh.status().ok_or_else(|| Error::Unintelligible {
                call: DESCRIBE_REFRESHES,
                what: "an instance refresh without Status".to_owned(),
            })?;
            if REFRESHING.contains(&status.as_str()) {
                return Ok(Some(status.as_str().to_owned()));
            }
        }
        Ok(None)
    }

    /// EnterStandby without decrement: the group launches a replacement.
    pub async fn enter_standby(&self, group: &GroupName, member: &InstanceId) -> Result<(), Error> {
        self.client
            .enter_standby()
            .auto_scaling_group_name(group.as_str())
            .instance_ids(member.as_str())
            .should_decrement_desired_capacity(false)
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(ENTER_STANDBY, error))
    }

    /// ExitStandby, which makes the desired capacity one larger.
    pub async fn exit_standby(&self, group: &GroupName, member: &InstanceId) -> Result<(), Error> {
        self.client
            .exit_standby()
            .auto_scaling_group_name(group.as_str())
            .instance_ids(member.as_str())
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(EXIT_STANDBY, error))
    }

    /// DetachInstances without decrement: a member in Standby does not count towards the desired capacity.
    pub async fn detach(&self, group: &GroupName, member: &InstanceId) -> Result<(), Error> {
        self.client
            .detach_instances()
            .auto_scaling_group_name(group.as_str())
            .instance_ids(member.as_str())
            .should_decrement_desired_capacity(false)
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(DETACH, error))
    }

    /// SetDesiredCapacity at once, whatever cooldown runs.
    pub async fn set_desired_capacity(&self, group: &GroupName, desired: u32) -> Result<(), Error> {
        self.client
            .set_desired_capacity()
            .auto_scaling_group_name(group.as_str())
            .desired_capacity(i32::try_from(desired).unwrap_or(i32::MAX))
            .honor_cooldown(false)
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(SET_DESIRED, error))
    }

    /// Protects members from scale-in, or no longer.
    pub async fn protect(
        &self,
        group: &GroupName,
        members: &[InstanceId],
        protected: bool,
    ) -> Result<(), Error> {
        for page in members.chunks(MOST_PROTECTED) {
            self.client
                .set_instance_protection()
                .auto_scaling_group_name(group.as_str())
                .set_instance_ids(Some(page.iter().map(ToString::to_string).collect()))
                .protected_from_scale_in(protected)
                .send()
                .await
                .map_err(|error| Error::from_sdk(SET_PROTECTION, error))?;
        }
        Ok(())
    }

    /// TerminateInstanceInAutoScalingGroup without decrement: the place of a member in service is filled again; one in Standby does not count,
    /// so nothing is launched for it.
    pub async fn terminate(&self, member: &InstanceId) -> Result<(), Error> {
        self.terminate_member(member, false).await
    }

    /// TerminateInstanceInAutoScalingGroup with decrement: nothing is launched for it.
    pub async fn remove(&self, member: &InstanceId) -> Result<(), Error> {
        self.terminate_member(member, true).await
    }

    /// Seconds for which our hook waits for a heartbeat; none if the group has no hook of ours.
    pub async fn find_hook(&self, group: &GroupName) -> Result<Option<u32>, Error> {
        let answer = self
            .client
            .describe_lifecycle_hooks()
            .auto_scaling_group_name(group.as_str())
            .lifecycle_hook_names(LIFECYCLE_HOOK)
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_HOOKS, error))?;
        let hook = answer.lifecycle_hooks().iter().find(|hook| {
            hook.lifecycle_hook_name() == Some(LIFECYCLE_HOOK)
                && hook.lifecycle_transition() == Some("autoscaling:EC2_INSTANCE_TERMINATING")
        });
        hook.map(|hook| size(DESCRIBE_HOOKS, "HeartbeatTimeout", hook.heartbeat_timeout()))
            .transpose()
    }

    /// CompleteLifecycleAction of our hook with CONTINUE. A member that does not wait for it, or not any more, needs none.
    pub async fn complete_hook(&self, group: &GroupName, member: &InstanceId) -> Result<(), Error> {
        let called = self
            .client
            .complete_lifecycle_action()
            .auto_scaling_group_name(group.as_str())
            .lifecycle_hook_name(LIFECYCLE_HOOK)
            .instance_id(member.as_str())
            .lifecycle_action_result("CONTINUE")
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(COMPLETE_HOOK, error));
        match called {
            Err(Error::WrongState { .. }) => Ok(()),
            called => called,
        }
    }

    /// The members that groups of the cluster are terminating and wait with, in groups that have our hook.
    pub async fn find_held(&self, cluster: &ClusterName) -> Result<BTreeSet<InstanceId>, Error> {
        let tag = cluster_tag(cluster.as_str());
        let filter = Filter::builder().name("tag-key").values(tag).build();
        let mut pages = self
            .client
            .describe_auto_scaling_groups()
            .filters(filter)
            .into_paginator()
            .items()
            .send();
        let mut found = BTreeSet::new();
        while let Some(group) = pages.next().await {
            let group = group.map_err(|error| Error::from_sdk(DESCRIBE_GROUPS, error))?;
            let group = to_group(&group)?;
            let held: Vec<InstanceId> = group
                .members
                .iter()
                .filter(|member| is_held(Some(&member.lifecycle_state)))
                .map(|member| member.instance.clone())
                .collect();
            if !held.is_empty() && self.find_hook(&group.name).await?.is_some() {
                found.extend(held);
            }
        }
        Ok(found)
    }

    async fn terminate_member(&self, member: &InstanceId, decrement: bool) -> Result<(), Error> {
        self.client
            .terminate_instance_in_auto_scaling_group()
            .instance_id(member.as_str())
            .should_decrement_desired_capacity(decrement)
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(TERMINATE, error))
    }
}

/// `InstanceRefreshStatus` of one that replaces instances, or is about to (API reference, InstanceRefresh).
const REFRESHING: [&str; 5] = [
    "Pending",
    "InProgress",
    "Cancelling",
    "RollbackInProgress",
    "Baking",
];

/// Target groups of Elastic Load Balancing stand in `TargetGroupARNs`, or among the sources of traffic under that type.
fn to_attachments(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Attachments {
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

fn is_weighted(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> bool {
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

fn retains(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> bool {
    let triggers = group
        .instance_lifecycle_policy()
        .and_then(|policy| policy.retention_triggers());
    triggers.and_then(|triggers| triggers.terminate_hook_abandon())
        == Some(&aws_sdk_autoscaling::types::RetentionAction::Retain)
}

/// A group launches from its template, or from that of a mixed-instances policy.
fn to_fleet(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Result<Fleet, Error> {
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

fn to_tags(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> BTreeMap<String, String> {
    let named =
        |tag: &TagDescription| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned()));
    group.tags().iter().filter_map(named).collect()
}

fn list_propagated(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Vec<String> {
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

fn to_group(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Result<Group, Error> {
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

fn parse<T: std::str::FromStr<Err = recycle::ids::InvalidId>>(
    call: &'static str,
    text: &str,
) -> Result<T, Error> {
    text.parse()
        .map_err(|error: recycle::ids::InvalidId| Error::Unintelligible {
            call,
            what: error.to_string(),
        })
}

fn size(call: &'static str, field: &str, value: Option<i32>) -> Result<u32, Error> {
    value
        .and_then(|value| u32::try_from(value).ok())
        .ok_or_else(|| Error::Unintelligible {
            call,
            what: format!("{field} is {value:?}"),
        })
}
