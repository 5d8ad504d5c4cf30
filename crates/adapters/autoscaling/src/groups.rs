//! Calls EC2 Auto Scaling: reads groups and their members, moves members into and out of Standby, ends members, and changes the size of a
//! group for a restore.

use std::collections::{BTreeMap, BTreeSet};

use aws_config::SdkConfig;
use aws_sdk_autoscaling::operation::cancel_instance_refresh::CancelInstanceRefreshError;
use aws_sdk_autoscaling::operation::describe_auto_scaling_groups::paginator;
use aws_sdk_autoscaling::types::{AutoScalingGroup, Filter, StandbyInstances};
use recycle::base::ids::{ClusterName, GroupName, InstanceId};
use recycle::base::names::LIFECYCLE_HOOK;
use recycle::cluster::balancers::Attachments;
use recycle::cluster::cluster_tag::{CLUSTER_TAG_VALUES, cluster_tag};
use recycle::cluster::group::{Group, MOST_PROTECTED};
use recycle::cluster::hook::is_held;
use recycle::cluster::refresh::Refresh;
use recycle::rotation::fleet::Fleet;

use crate::Error;
use crate::answers::{
    is_weighted, list_propagated, parse, size, to_attachments, to_fleet, to_group, to_tags,
};
use crate::whole::Whole;

pub(crate) const DESCRIBE_GROUPS: &str = "autoscaling:DescribeAutoScalingGroups";
const DESCRIBE_INSTANCES: &str = "autoscaling:DescribeAutoScalingInstances";
const DESCRIBE_REFRESHES: &str = "autoscaling:DescribeInstanceRefreshes";
const CANCEL_REFRESH: &str = "autoscaling:CancelInstanceRefresh";
const DESCRIBE_HOOKS: &str = "autoscaling:DescribeLifecycleHooks";

/// An instance in its group, with all facts that are needed before it is taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// `LifecycleState`. It begins with `Warmed` for an instance in the warm pool, which is not among the group's members.
    pub lifecycle_state: String,
    pub group: Group,
    pub tags: BTreeMap<String, String>,
    /// The keys of the tags that the group sets on the instances that it launches.
    pub propagates: Vec<String>,
    /// The target groups, Classic Load Balancers and other traffic sources of the group.
    pub attachments: Attachments,
    /// Whether the desired capacity counts weights, processors or memory instead of instances.
    pub is_weighted: bool,
}

#[derive(Debug, Clone)]
pub struct Groups {
    client: aws_sdk_autoscaling::Client,
}

impl Groups {
    pub fn new(config: &SdkConfig) -> Self {
        let config = aws_sdk_autoscaling::config::Builder::from(config).interceptor(Whole);
        let client = aws_sdk_autoscaling::Client::from_conf(config.build());
        Self { client }
    }

    /// Finds the group that the instance belongs to, and returns its name and the instance's lifecycle state, whatever that state is.
    async fn find_name(&self, member: &InstanceId) -> Result<Option<(GroupName, String)>, Error> {
        let answer = self
            .client
            .describe_auto_scaling_instances()
            .instance_ids(member.as_str())
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_INSTANCES, error))?;
        let mut instances = answer.auto_scaling_instances().iter();
        let found = instances.find_map(|instance| {
            let name = parse(DESCRIBE_INSTANCES, Some(instance.auto_scaling_group_name()?));
            let state = instance.lifecycle_state().unwrap_or_default().to_owned();
            Some(name.map(|name| (name, state)))
        });
        found.transpose()
    }

    /// Fetches the group as it is now. None if there is no group with the name.
    pub async fn fetch(&self, name: &GroupName) -> Result<Option<Group>, Error> {
        self.describe(name).await?.as_ref().map(to_group).transpose()
    }

    /// Fetches the group as it is now, with its tags. None if there is no group with the name.
    pub async fn fetch_with_tags(
        &self,
        name: &GroupName,
    ) -> Result<Option<(Group, BTreeMap<String, String>)>, Error> {
        let found = self.describe(name).await?;
        let read = |group| Ok((to_group(group)?, to_tags(group)));
        found.as_ref().map(read).transpose()
    }

    async fn describe(&self, name: &GroupName) -> Result<Option<AutoScalingGroup>, Error> {
        let answer = self
            .client
            .describe_auto_scaling_groups()
            .auto_scaling_group_names(name.as_str())
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_GROUPS, error))?;
        Ok(answer.auto_scaling_groups.unwrap_or_default().into_iter().next())
    }

    /// Fetches every group with the cluster's tag.
    pub async fn fetch_fleets(&self, cluster: &ClusterName) -> Result<Vec<Fleet>, Error> {
        let belongs = Filter::builder()
            .name(format!("tag:{}", cluster_tag(cluster.as_str())))
            .set_values(Some(CLUSTER_TAG_VALUES.map(str::to_owned).to_vec()))
            .build();
        let mut groups = self.select(belongs).send();
        let mut fleets = Vec::new();
        while let Some(group) = groups.next().await {
            let group = group.map_err(|error| Error::from_sdk(DESCRIBE_GROUPS, error))?;
            fleets.push(to_fleet(&group)?);
        }
        Ok(fleets)
    }

    fn select(&self, filter: Filter) -> paginator::DescribeAutoScalingGroupsPaginatorItems {
        let request = self.client.describe_auto_scaling_groups().filters(filter);
        request.into_paginator().items()
    }

    /// Fetches the group as rotations need it. None if there is no group with the name.
    pub async fn fetch_fleet(&self, name: &GroupName) -> Result<Option<Fleet>, Error> {
        self.describe(name).await?.as_ref().map(to_fleet).transpose()
    }

    /// Fetches the group that the instance is a member of, as it is now.
    pub async fn find(&self, member: &InstanceId) -> Result<Option<Group>, Error> {
        match self.find_name(member).await? {
            Some((name, _)) => self.fetch(&name).await,
            None => Ok(None),
        }
    }

    /// Fetches the group that the instance is a member of, with all facts that pre-flight needs.
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
        }))
    }

    /// Returns the group's instance refresh that is under way, if there is one. AWS lists the newest refresh first.
    pub async fn find_refresh(&self, group: &GroupName) -> Result<Option<Refresh>, Error> {
        let answer = self
            .client
            .describe_instance_refreshes()
            .auto_scaling_group_name(group.as_str())
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_REFRESHES, error))?;
        for refresh in answer.instance_refreshes() {
            let status = refresh.status().ok_or_else(|| {
                Error::unintelligible(DESCRIBE_REFRESHES, "an instance refresh without Status")
            })?;
            let preferences = refresh.preferences();
            let standby = preferences.and_then(|preferences| preferences.standby_instances());
            let found = Refresh::under_way(status.as_str(), standby.map(StandbyInstances::as_str));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Calls CancelInstanceRefresh, and returns whether there was one to cancel.
    pub async fn cancel_refresh(&self, group: &GroupName) -> Result<bool, Error> {
        let cancel = self.client.cancel_instance_refresh();
        let answer = cancel.auto_scaling_group_name(group.as_str()).send().await;
        let is_gone = CancelInstanceRefreshError::is_active_instance_refresh_not_found_fault;
        match answer {
            Ok(_) => Ok(true),
            Err(error) if error.as_service_error().is_some_and(is_gone) => Ok(false),
            Err(error) => Err(Error::from_sdk(CANCEL_REFRESH, error)),
        }
    }

    /// Calls EnterStandby without decrement, so that the group launches a replacement.
    pub async fn enter_standby(&self, group: &GroupName, member: &InstanceId) -> Result<(), Error> {
        self.client
            .enter_standby()
            .auto_scaling_group_name(group.as_str())
            .instance_ids(member.as_str())
            .should_decrement_desired_capacity(false)
            .send()
            .await
            .map(drop)
            .map_err(|error| Error::from_sdk("autoscaling:EnterStandby", error))
    }

    /// Calls ExitStandby, which increases the desired capacity by one.
    pub async fn exit_standby(&self, group: &GroupName, member: &InstanceId) -> Result<(), Error> {
        self.client
            .exit_standby()
            .auto_scaling_group_name(group.as_str())
            .instance_ids(member.as_str())
            .send()
            .await
            .map(drop)
            .map_err(|error| Error::from_sdk("autoscaling:ExitStandby", error))
    }

    /// Calls DetachInstances without decrement, because a member in Standby does not count towards the desired capacity.
    pub async fn detach(&self, group: &GroupName, member: &InstanceId) -> Result<(), Error> {
        self.client
            .detach_instances()
            .auto_scaling_group_name(group.as_str())
            .instance_ids(member.as_str())
            .should_decrement_desired_capacity(false)
            .send()
            .await
            .map(drop)
            .map_err(|error| Error::from_sdk("autoscaling:DetachInstances", error))
    }

    /// Calls SetDesiredCapacity. The change is made at once, even during a cooldown.
    pub async fn set_desired_capacity(&self, group: &GroupName, desired: u32) -> Result<(), Error> {
        self.client
            .set_desired_capacity()
            .auto_scaling_group_name(group.as_str())
            .desired_capacity(i32::try_from(desired).unwrap_or(i32::MAX))
            .honor_cooldown(false)
            .send()
            .await
            .map(drop)
            .map_err(|error| Error::from_sdk("autoscaling:SetDesiredCapacity", error))
    }

    /// Sets or removes the members' protection from scale-in.
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
                .map_err(|error| Error::from_sdk("autoscaling:SetInstanceProtection", error))?;
        }
        Ok(())
    }

    /// Calls TerminateInstanceInAutoScalingGroup without decrement. The group fills the place of a member in service again.
    /// A member in Standby does not count, so the group launches nothing for it.
    pub async fn terminate(&self, member: &InstanceId) -> Result<(), Error> {
        self.terminate_member(member, false).await
    }

    /// Calls TerminateInstanceInAutoScalingGroup with decrement, so that the group launches nothing for it.
    pub async fn remove(&self, member: &InstanceId) -> Result<(), Error> {
        self.terminate_member(member, true).await
    }

    /// Returns the heartbeat timeout of recycle-eks's termination hook, in seconds. None if the group does not have this hook.
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

    /// Calls CompleteLifecycleAction with CONTINUE for recycle-eks's hook.
    /// If the member does not wait for the hook, or no longer does, there is nothing to complete and the call succeeds.
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
            .map(drop)
            .map_err(|error| Error::from_sdk("autoscaling:CompleteLifecycleAction", error));
        match called {
            Err(Error::WrongState { .. }) => Ok(()),
            called => called,
        }
    }

    /// Finds the members in `Terminating:Wait` or `Terminating:Retained`, in groups of the cluster that have recycle-eks's hook.
    pub async fn find_held(&self, cluster: &ClusterName) -> Result<BTreeSet<InstanceId>, Error> {
        let tag = cluster_tag(cluster.as_str());
        let filter = Filter::builder().name("tag-key").values(tag).build();
        let mut groups = self.select(filter).send();
        let mut found = BTreeSet::new();
        while let Some(group) = groups.next().await {
            let group = to_group(&group.map_err(|error| Error::from_sdk(DESCRIBE_GROUPS, error))?)?;
            let mut held = group.members;
            held.retain(|member| is_held(Some(&member.lifecycle_state)));
            if !held.is_empty() && self.find_hook(&group.name).await?.is_some() {
                found.extend(held.into_iter().map(|member| member.instance));
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
            .map(drop)
            .map_err(|error| Error::from_sdk("autoscaling:TerminateInstanceInAutoScalingGroup", error))
    }
}
