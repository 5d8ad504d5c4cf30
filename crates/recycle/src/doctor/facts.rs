//! Defines the facts about an installation.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::InstanceId;
use crate::cluster::node::NodeList;
use crate::cluster::refresh::Refresh;

/// A fact, or the reason why it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen<T> {
    Found(T),
    /// The caller is not allowed to read it. The text names the permission.
    Denied(String),
    /// The call was throttled, or got no answer. The text says why.
    Unanswered(String),
    /// The answer is wrong, or there can be no answer. The text says why.
    Failed(String),
}

impl<T> Seen<T> {
    /// Returns the fact, or else the reason why it is not known, as a [`Seen`] of any type.
    pub fn known<U>(self) -> Result<T, Seen<U>> {
        match self {
            Self::Found(found) => Ok(found),
            Self::Denied(what) => Err(Seen::Denied(what)),
            Self::Unanswered(why) => Err(Seen::Unanswered(why)),
            Self::Failed(why) => Err(Seen::Failed(why)),
        }
    }

    pub fn found(self) -> Option<T> {
        self.known::<T>().ok()
    }

    pub fn as_ref(&self) -> Seen<&T> {
        match self {
            Self::Found(found) => Seen::Found(found),
            Self::Denied(what) => Seen::Denied(what.clone()),
            Self::Unanswered(why) => Seen::Unanswered(why.clone()),
            Self::Failed(why) => Seen::Failed(why.clone()),
        }
    }

    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Seen<U> {
        self.and_then(|found| Seen::Found(make(found)))
    }

    pub fn and_then<U>(self, ask: impl FnOnce(T) -> Seen<U>) -> Seen<U> {
        self.known().map_or_else(|unknown| unknown, ask)
    }
}

/// The facts that `serve-operator` sees, with its own role, from its own network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    pub version: String,
    /// Version of the API server, which is read with a token.
    pub api_server: Seen<String>,
    /// Permissions that the groups of the functions lack in the cluster, in one text for each group.
    pub missing_permissions: Seen<Vec<String>>,
    /// Names of the cluster's groups, from Auto Scaling.
    pub groups: Seen<Vec<String>>,
    /// Number of members of these groups that EC2 knows and has not terminated.
    pub instances: Seen<u32>,
    pub nodes: Seen<Nodes>,
    /// Members of these groups without the cluster's tag. None if the function's version does not check this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untagged: Option<Seen<Vec<InstanceId>>>,
    /// Members of these groups that need an operator. None if the function's version does not check this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<Seen<Vec<InstanceId>>>,
    /// Whether Step Functions answers. None if the function's version does not check this, or the request names no execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_functions: Option<Seen<()>>,
}

/// The Nodes of a cluster that look odd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    pub count: u32,
    /// Nodes that name no EC2 instance.
    pub without_instance: Vec<String>,
    /// Nodes whose instance EC2 does not know, or has terminated.
    pub instance_gone: Vec<String>,
    /// Nodes whose instance is a member of no group of the cluster.
    pub without_group: Vec<String>,
    /// Nodes that cannot be read, each with the field and what is wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Returns the Nodes that look odd. `members` are the members of the cluster's groups.
/// `there` are the instances that EC2 knows and that are not terminated, or about to be.
pub fn find_odd_nodes(
    nodes: &NodeList,
    members: &BTreeSet<InstanceId>,
    there: &BTreeSet<InstanceId>,
) -> Nodes {
    let mut odd = Nodes {
        count: u32::try_from(nodes.readable.len() + nodes.unreadable.len()).unwrap_or(u32::MAX),
        unreadable: nodes.unreadable.iter().map(ToString::to_string).collect(),
        ..Nodes::default()
    };
    for node in &nodes.readable {
        let list = match &node.instance {
            None => &mut odd.without_instance,
            Some(instance) if !there.contains(instance) => &mut odd.instance_gone,
            Some(instance) if !members.contains(instance) => &mut odd.without_group,
            Some(_) => continue,
        };
        list.push(node.name.to_string());
    }
    odd
}

/// The facts that the command line sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The module's `name`.
    pub name: String,
    pub cluster: String,
    pub now: Timestamp,
    /// Version of the command line.
    pub version: String,
    /// State machines by name, without the module's name.
    pub machines: BTreeMap<String, Seen<Option<Machine>>>,
    /// Functions by step.
    pub functions: BTreeMap<String, Seen<Option<Function>>>,
    /// The cluster's `authenticationMode`.
    pub authentication: Seen<String>,
    /// Kubernetes groups in the access entry of each function's role, by step. None if the role has no entry.
    pub entries: BTreeMap<String, Seen<Option<Vec<String>>>>,
    pub groups: Seen<Vec<Group>>,
    /// The module's rules, not all rules of the account.
    pub rules: Seen<Vec<Rule>>,
    pub topic: Seen<Topic>,
    /// Number of messages in the dead-letter queue. None if there is no queue.
    pub dead_letters: Seen<Option<u32>>,
    /// Log groups of functions and machines, with their retention in days. None: they are never deleted.
    pub logs: Seen<BTreeMap<String, Option<u32>>>,
    /// The last executions of the sweep, the newest first.
    pub sweeps: Seen<Vec<Sweep>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub status: String,
    pub created_at: Option<Timestamp>,
    /// Version behind the alias `live`. None without the alias.
    pub live: Option<String>,
    pub newest: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub state: String,
    pub last_update: String,
    /// The module's version, with which the function's description begins.
    pub version: Option<String>,
    /// `ApplicationLogLevel`, if it is set.
    pub log_level: Option<String>,
    /// Default of `drain_timeout` for executions.
    pub drain_timeout: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    /// Minimum, desired capacity, maximum.
    pub sizes: (u32, u32, u32),
    pub suspended: Vec<String>,
    /// Number of `AvailabilityZones`.
    pub zones: usize,
    /// `CapacityRebalance`.
    pub rebalances_capacity: bool,
    /// The EKS managed node group, by the tag that EKS sets.
    pub node_group: Option<String>,
    /// Whether the group has the tag by which aws-node-termination-handler takes it for its own.
    pub is_of_termination_handler: bool,
    /// `MaxInstanceLifetime` in seconds.
    pub max_lifetime: Option<u32>,
    /// Whether the group keeps instances whose hook was abandoned.
    pub retains: bool,
    pub refresh: Seen<Option<Refresh>>,
    pub hooks: Seen<Vec<Hook>>,
}

impl Group {
    /// Whether the group may terminate a member to balance its zones.
    pub(crate) fn balances_zones(&self) -> bool {
        self.zones > 1 && !self.suspended.iter().any(|process| process == "AZRebalance")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub name: String,
    /// Whether the hook holds members that are terminated.
    pub on_termination: bool,
    pub default_result: String,
    /// `HeartbeatTimeout` in seconds.
    pub heartbeat: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub name: String,
    pub is_enabled: bool,
    pub targets: Seen<usize>,
    pub pattern: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    pub arn: String,
    /// Number of confirmed subscriptions.
    pub confirmed: usize,
    pub pending: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    pub execution: String,
    pub status: String,
    pub started_at: Timestamp,
}
