//! The facts about an installation.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::InstanceId;
use crate::cluster::node::NodeList;

/// What was asked for, or why it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen<T> {
    Found(T),
    /// The caller is not allowed to ask; the text names the permission.
    Denied(String),
    /// The call was throttled, or not answered; the text says why.
    Unanswered(String),
    /// What was answered is wrong, or nothing can answer; the text says why.
    Failed(String),
}

impl<T> Seen<T> {
    /// The answer, or else why there is none.
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

/// What `select-nodes` sees, with its own role, from its own network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    pub version: String,
    /// The version of the API server, asked with a token.
    pub api_server: Seen<String>,
    /// What our ClusterRole should allow and the API server does not.
    pub missing_permissions: Seen<Vec<String>>,
    /// The names of the cluster's groups, from Auto Scaling.
    pub groups: Seen<Vec<String>>,
    /// How many members these groups have that EC2 knows.
    pub instances: Seen<u32>,
    pub nodes: Seen<Nodes>,
    /// The members of these groups without the cluster's tag; none if the function is of a version that does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untagged: Option<Seen<Vec<InstanceId>>>,
    /// Whether Step Functions answers; none if the function is of a version that does not ask it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_functions: Option<Seen<()>>,
}

/// The Nodes of a cluster, as far as they look odd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    pub count: u32,
    /// Those that name no EC2 instance.
    pub without_instance: Vec<String>,
    /// Those whose instance EC2 does not know, or has terminated.
    pub instance_gone: Vec<String>,
    /// Those whose instance is a member of no group of the cluster.
    pub without_group: Vec<String>,
    /// Those that cannot be read, each with the field and what is wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Which Nodes look odd: `members` are those of the cluster's groups, `there` the instances that EC2 knows and that have not ended.
#[must_use]
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

/// What the command line sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The module's `name`.
    pub name: String,
    pub cluster: String,
    pub now: Timestamp,
    /// The version of the command line.
    pub version: String,
    /// The state machines, by what they are called without the module's name.
    pub machines: BTreeMap<String, Seen<Option<Machine>>>,
    /// The functions, by step.
    pub functions: BTreeMap<String, Seen<Option<Function>>>,
    /// The cluster's `authenticationMode`.
    pub authentication: Seen<String>,
    /// By step: the Kubernetes groups of the access entry of the function's role; none if it has no entry.
    pub entries: BTreeMap<String, Seen<Option<Vec<String>>>>,
    pub groups: Seen<Vec<Group>>,
    /// The module's rules, not all of the account.
    pub rules: Seen<Vec<Rule>>,
    /// The topic that people are told by.
    pub topic: Seen<Topic>,
    /// How many messages lie in the dead-letter queue; none if there is no queue.
    pub dead_letters: Seen<Option<u32>>,
    /// The log groups of functions and machines, with the days that they keep; none: for ever.
    pub logs: Seen<BTreeMap<String, Option<u32>>>,
    /// The last executions of the sweep, the newest first.
    pub sweeps: Seen<Vec<Sweep>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub status: String,
    /// The version behind the alias `live`; none without the alias.
    pub live: Option<String>,
    pub newest: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub state: String,
    pub last_update: String,
    /// The module's version, which its description begins with.
    pub version: Option<String>,
    /// `ApplicationLogLevel`, if it is set.
    pub log_level: Option<String>,
    /// `drain_timeout_seconds` that executions have by default.
    pub drain_timeout: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    /// Minimum, desired capacity, maximum.
    pub sizes: (u32, u32, u32),
    pub suspended: Vec<String>,
    /// `MaxInstanceLifetime` in seconds.
    pub max_lifetime: Option<u32>,
    /// It keeps instances whose hook was abandoned.
    pub retains: bool,
    /// The status of an instance refresh that is under way.
    pub refresh: Seen<Option<String>>,
    pub hooks: Seen<Vec<Hook>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub name: String,
    /// It holds members that are terminated.
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
    /// How many subscriptions are confirmed.
    pub confirmed: usize,
    pub pending: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    pub execution: String,
    pub status: String,
    pub started_at: Timestamp,
}
