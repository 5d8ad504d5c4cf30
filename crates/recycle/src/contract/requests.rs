//! The request of each function.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

use crate::base::ids::{ClusterName, ExecutionArn, InstanceId};
use crate::base::strict::read_value;
use crate::contract::context::Context;
use crate::contract::run::Run;
use crate::drain::end::DrainUntil;
use crate::records::owner::Owner;
use crate::rotation::admission::Turn;
use crate::rotation::terms::{Marking, Part, Unmarking};

/// What `claim-node` is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ClaimRequest {
    pub context: Context,
    /// What DescribeExecution said of a claim's owner, if it was asked; `{}` before that.
    #[serde(default, deserialize_with = "empty_object_is_none")]
    pub owner: Option<Owner>,
    /// What the answer carried with which this execution has waited for its turn: it had claimed the node then. `{}` before that.
    #[serde(default, deserialize_with = "empty_object_is_none")]
    pub run: Option<Run>,
}

/// What every function after `claim-node` is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StepRequest {
    pub context: Context,
    /// What `claim-node` fetched once, and the moments since.
    pub run: Run,
}

/// What `restore-node` is given: no variables of the machine's branch, so it works from the records.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RestoreRequest {
    pub context: Context,
    /// The error that led here; none in a sweep.
    #[serde(default)]
    pub failure: Option<CaughtError>,
    /// What a sweep has found; none in an execution of `recycle-node`, whose input names its node.
    #[serde(default)]
    pub leftover: Option<Leftover>,
    /// What DescribeExecution said of a claim's owner, if a sweep asked; `{}` before that.
    #[serde(default, deserialize_with = "empty_object_is_none")]
    pub owner: Option<Owner>,
    /// What the last step of the put-back answered; `{}` before the first.
    #[serde(default)]
    pub put_back: PutBack,
}

/// An instance for which something of ours is on a Node, on an instance or on a member of its group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Leftover {
    pub instance_id: InstanceId,
    pub cluster_name: ClusterName,
}

/// What `select-nodes` is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SelectRequest {
    pub context: Context,
    pub select: Selection,
    pub cluster_name: ClusterName,
    /// Of which group, in which rotation; none outside a group's own execution.
    #[serde(default)]
    pub rotation: Option<Part>,
    /// What [`Selection::Group`] answered, for [`Selection::MayStart`].
    #[serde(default)]
    pub members: Option<Members>,
    /// Which node asks, for [`Selection::MayStart`].
    #[serde(default)]
    pub turn: Option<Turn>,
}

/// The nodes of a group as they travel through its execution.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Members {
    /// In the order in which they are recycled.
    pub nodes: Vec<InstanceId>,
    /// How many of them at once.
    pub at_once: u32,
    /// What the group launched from when it was begun.
    pub aim: String,
}

/// Which nodes `select-nodes` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Those for which something of ours is left, whether somebody works on them or not: for the sweep.
    Leftovers,
    /// Those that the execution's input asks for ([`crate::rotation::selection`]), or their groups: for `rotate-nodes`.
    Rotation,
    /// Those of one group, in order ([`crate::rotation::outdated`]).
    Group,
    /// One of them: may it start ([`crate::rotation::admission`])?
    MayStart,
}

/// What `select-nodes` is given, by whomever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    ByMachine(Box<SelectRequest>),
    /// A person's command line, which invokes it directly.
    ByPerson(Question),
}

impl Asked {
    #[must_use]
    pub fn cluster_name(&self) -> &ClusterName {
        match self {
            Self::ByMachine(request) => &request.cluster_name,
            Self::ByPerson(Question::Status { cluster_name, .. } | Question::Doctor { cluster_name, .. }) => {
                cluster_name
            }
        }
    }
}

/// What a person wants to know. The answer travels through no state machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "WrittenQuestion")]
pub enum Question {
    /// Which nodes are worked on, and how far that is ([`crate::notify::status`]).
    Status {
        cluster_name: ClusterName,
        /// Of this node only, worked on or not: an instance id, or the name of a Node.
        node: Option<String>,
    },
    /// Whether the cluster and AWS are reached from here ([`crate::doctor::checks`]).
    Doctor {
        cluster_name: ClusterName,
        /// An execution of `recycle-node` that Step Functions is asked about, whether there is one or not.
        execution: Option<ExecutionArn>,
    },
}

#[derive(Deserialize)]
struct WrittenQuestion {
    select: Asks,
    cluster_name: ClusterName,
    #[serde(default)]
    node: Option<String>,
    #[serde(default)]
    execution: Option<ExecutionArn>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Asks {
    Status,
    Doctor,
}

impl From<WrittenQuestion> for Question {
    fn from(written: WrittenQuestion) -> Self {
        let cluster_name = written.cluster_name;
        match written.select {
            Asks::Status => Self::Status {
                cluster_name,
                node: written.node,
            },
            Asks::Doctor => Self::Doctor {
                cluster_name,
                execution: written.execution,
            },
        }
    }
}

/// What `taint-node` is given: a node of `recycle-node`, the nodes that a rotation marks, or what a person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaintRequest {
    /// A rotation's.
    Mark { marking: Marking },
    /// A step of `recycle-node`.
    Step(Box<StepRequest>),
    /// A person's command line, which invokes the function directly.
    ByPerson {
        /// To move the end of a drain.
        drain_until: DrainUntil,
    },
}

/// What `restore-node` is given: a node, or the rotations whose marks go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreCall {
    /// A rotation's, or the sweep's.
    Unmark { unmarking: Unmarking },
    /// A node to put back.
    Node(Box<RestoreRequest>),
}

/// What a put-back carries from step to step. Whatever it did is in the records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct PutBack {
    /// When it began; none before the first step.
    #[serde(default)]
    pub since: Option<Timestamp>,
    #[serde(default)]
    pub steps: u32,
    /// Why the last step waited.
    #[serde(default)]
    pub reason: String,
}

/// `$states.errorOutput`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CaughtError {
    /// The error's public name.
    pub error: String,
    /// The error's text; a JSON document if a Lambda raised it.
    #[serde(default)]
    pub cause: String,
}

// Not `#[serde(untagged)]`: that says of what it cannot read no more than that, and takes a list for a record.

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        if request.get("context").is_some() {
            read(&request).map(Self::ByMachine)
        } else {
            read(&request).map(Self::ByPerson)
        }
    }
}

impl<'de> Deserialize<'de> for TaintRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        if let Some(marking) = request.get("marking") {
            read(marking).map(|marking| Self::Mark { marking })
        } else if let Some(drain_until) = request.get("drain_until") {
            read(drain_until).map(|drain_until| Self::ByPerson { drain_until })
        } else {
            read(&request).map(Self::Step)
        }
    }
}

impl<'de> Deserialize<'de> for RestoreCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        if let Some(unmarking) = request.get("unmarking") {
            read(unmarking).map(|unmarking| Self::Unmark { unmarking })
        } else {
            read(&request).map(Self::Node)
        }
    }
}

fn read<T: DeserializeOwned, E: serde::de::Error>(value: &Value) -> Result<T, E> {
    read_value(value).map_err(E::custom)
}

fn empty_object_is_none<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(None);
    }
    read(&value).map(Some)
}
