//! EC2 Auto Scaling: groups and their members, Standby, and leaving for good. Desired capacity is never decremented here: a
//! node that goes is always replaced.

use aws_config::SdkConfig;
use recycle::ids::{GroupName, InstanceId};
use recycle::node::{Group, Member};

use crate::Error;

const DESCRIBE_INSTANCES: &str = "autoscaling:DescribeAutoScalingInstances";
const DESCRIBE_GROUPS: &str = "autoscaling:DescribeAutoScalingGroups";
const ENTER_STANDBY: &str = "autoscaling:EnterStandby";
const TERMINATE: &str = "autoscaling:TerminateInstanceInAutoScalingGroup";

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
            client: aws_sdk_autoscaling::Client::new(config),
        }
    }

    /// The name of the group that the instance is a member of, in whatever lifecycle state.
    pub async fn find_name(&self, member: &InstanceId) -> Result<Option<GroupName>, Error> {
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
            .find_map(|instance| instance.auto_scaling_group_name())
            .map(|name| parse(DESCRIBE_INSTANCES, name))
            .transpose()
    }

    /// The group as it is now, or none if there is none of that name.
    pub async fn fetch(&self, name: &GroupName) -> Result<Option<Group>, Error> {
        let answer = self
            .client
            .describe_auto_scaling_groups()
            .auto_scaling_group_names(name.as_str())
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_GROUPS, error))?;
        answer.auto_scaling_groups().first().map(to_group).transpose()
    }

    /// The group that the instance is a member of, as it is now.
    pub async fn find(&self, member: &InstanceId) -> Result<Option<Group>, Error> {
        match self.find_name(member).await? {
            Some(name) => self.fetch(&name).await,
            None => Ok(None),
        }
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

    /// TerminateInstanceInAutoScalingGroup without decrement: a member in Standby does not count, so nothing is launched for it.
    pub async fn terminate(&self, member: &InstanceId) -> Result<(), Error> {
        self.client
            .terminate_instance_in_auto_scaling_group()
            .instance_id(member.as_str())
            .should_decrement_desired_capacity(false)
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(TERMINATE, error))
    }
}

fn to_group(group: &aws_sdk_autoscaling::types::AutoScalingGroup) -> Result<Group, Error> {
    Ok(Group {
        name: parse(
            DESCRIBE_GROUPS,
            group.auto_scaling_group_name().unwrap_or_default(),
        )?,
        min: size("MinSize", group.min_size())?,
        desired: size("DesiredCapacity", group.desired_capacity())?,
        max: size("MaxSize", group.max_size())?,
        members: group
            .instances()
            .iter()
            .map(to_member)
            .collect::<Result<_, _>>()?,
        suspended: group
            .suspended_processes()
            .iter()
            .filter_map(|process| process.process_name().map(str::to_owned))
            .collect(),
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

fn size(field: &str, value: Option<i32>) -> Result<u32, Error> {
    value
        .and_then(|value| u32::try_from(value).ok())
        .ok_or_else(|| Error::Unintelligible {
            call: DESCRIBE_GROUPS,
            what: format!("{field} is {value:?}"),
        })
}
