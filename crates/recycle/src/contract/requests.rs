//! Defines the request of each function.

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
use crate::rotation::admission::WaitingNode;
use crate::rotation::terms::{Marking, Part, Unmarking};

/// The request to `claim-node`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ClaimRequest {
    pub context: Context,
    /// The run of the last answer, if this execution has claimed the node and waited in the queue. `{}` before that.
    #[serde(default, deserialize_with = "empty_object_is_none")]
    pub run: Option<Run>,
}

/// The request to every function after `claim-node`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StepRequest {
    #[serde(deserialize_with = "of_recycling")]
    pub context: Context,
    /// The facts that `claim-node` fetched once, and the times that later steps added.
    pub run: Run,
}

/// The request to `restore-node`. It has no variables of the machine's branch, so the function works from the records.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RestoreRequest {
    pub context: Context,
    /// The error that led to the restore. None in a sweep.
    #[serde(default)]
    pub failure: Option<CaughtError>,
    /// The instance that a sweep has found; None in an execution of `recycle-node`, whose input names its node.
    #[serde(default)]
    pub leftover: Option<Leftover>,
    /// The answer of the last step of the restore; `{}` before the first.
    #[serde(default)]
    pub restore: RestoreState,
}

/// An instance with marks of recycle-eks on its Node, on itself, or on a member of its group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Leftover {
    pub instance_id: InstanceId,
    pub cluster_name: ClusterName,
}

/// The request to `select-nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SelectRequest {
    pub context: Context,
    pub select: Selection,
    pub cluster_name: ClusterName,
    /// The group and the rotation; None outside a group's own execution.
    #[serde(default)]
    pub rotation: Option<Part>,
    /// The answer to [`Selection::Group`], for [`Selection::MayStart`].
    #[serde(default)]
    pub members: Option<Members>,
    /// The node that asks, for [`Selection::MayStart`].
    #[serde(default)]
    pub waiting_node: Option<WaitingNode>,
}

/// The nodes of a group as they travel through its execution.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Members {
    /// The nodes in the order in which they are recycled.
    pub nodes: Vec<InstanceId>,
    /// The number of nodes that are recycled at the same time.
    pub at_once: u32,
    /// The launch source of the group when the rotation began this group.
    pub launch_source: String,
    /// The marks of all members of the group at that time ([`crate::base::member_marks`]).
    pub members_before: String,
}

/// The nodes that `select-nodes` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Instances with marks of recycle-eks, with or without a running execution: for the sweep.
    Leftovers,
    /// Nodes that the execution's input asks for ([`crate::rotation::selection`]), or their groups: for `rotate-nodes`.
    Rotation,
    /// Nodes of one group, in order ([`crate::rotation::outdated`]).
    Group,
    /// Whether one node of a group may start ([`crate::rotation::admission`]).
    MayStart,
}

/// The request to `serve-operator`, from an operator's command line. Neither the request nor the answer passes through a state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorRequest {
    /// Reports the nodes with marks of recycle-eks, and their progress ([`crate::notify::status`]).
    Status(StatusQuestion),
    /// Reports whether the function reaches the cluster and AWS ([`crate::doctor::checks`]).
    Doctor(DoctorQuestion),
    /// Reports the records of instances as they were written ([`crate::notify::records`]).
    Records(RecordsQuestion),
    /// Moves the end of a drain ([`crate::drain::end`]).
    MoveDrainEnd(DrainUntil),
}

impl OperatorRequest {
    pub fn cluster_name(&self) -> &ClusterName {
        match self {
            Self::Status(question) => &question.cluster_name,
            Self::Doctor(question) => &question.cluster_name,
            Self::Records(question) => &question.cluster_name,
            Self::MoveDrainEnd(asked) => &asked.cluster_name,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StatusQuestion {
    pub cluster_name: ClusterName,
    /// The only node to report, with or without marks: an instance id, or the name of a Node. None for all nodes with marks.
    #[serde(default)]
    pub node: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DoctorQuestion {
    pub cluster_name: ClusterName,
    /// An execution of `recycle-node` that Step Functions is asked about, whether it exists or not.
    #[serde(default)]
    pub execution: Option<ExecutionArn>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RecordsQuestion {
    pub cluster_name: ClusterName,
    pub instances: Vec<InstanceId>,
}

#[derive(Deserialize)]
struct Asking {
    ask: Asks,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Asks {
    Status,
    Doctor,
    Records,
    MoveDrainEnd,
}

/// The request to `taint-node`: a node of `recycle-node`, or the nodes that a rotation marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaintRequest {
    /// The nodes that a rotation marks.
    Mark { marking: Marking },
    /// A step of `recycle-node`.
    Step(Box<StepRequest>),
}

/// The request to `restore-node`: a node, or the rotations whose marks are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreCall {
    /// The rotations whose marks are removed, from a rotation or the sweep.
    Unmark { unmarking: Unmarking },
    /// A node to restore.
    Node(Box<RestoreRequest>),
}

/// The state that a restore carries from step to step. Its changes are in the records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RestoreState {
    /// The time at which the restore began. None before the first step.
    #[serde(default)]
    pub since: Option<Timestamp>,
    #[serde(default)]
    pub steps: u32,
    /// The reason why the last step waited.
    #[serde(default)]
    pub reason: String,
    /// The members that this restore has protected from scale-in while it could not write that into the record.
    #[serde(default)]
    pub protected: Vec<InstanceId>,
    /// The execution whose claim a sweep has taken over, for the report.
    #[serde(default)]
    pub owner: Option<Owner>,
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

// Not `#[serde(untagged)]`: its error does not say what cannot be read, and it takes a list for a record.

impl<'de> Deserialize<'de> for OperatorRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        let Asking { ask } = read::<_, D::Error>(&request)?;
        match ask {
            Asks::Status => read(&request).map(Self::Status),
            Asks::Doctor => read(&request).map(Self::Doctor),
            Asks::Records => read(&request).map(Self::Records),
            Asks::MoveDrainEnd => read(&request).map(Self::MoveDrainEnd),
        }
    }
}

impl<'de> Deserialize<'de> for TaintRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        match find_kind::<D::Error>(&request, &["run", "marking"])? {
            ("marking", marking) => read(marking).map(|marking| Self::Mark { marking }),
            (_, _) => read(&request).map(Self::Step),
        }
    }
}

impl<'de> Deserialize<'de> for RestoreCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        match find_kind::<D::Error>(&request, &["failure", "leftover", "unmarking"])? {
            ("unmarking", unmarking) => read(unmarking).map(|unmarking| Self::Unmark { unmarking }),
            (_, _) => read(&request).map(Self::Node),
        }
    }
}

/// Finds the one field that says what a request is about. A request with none of these fields, or with several, is refused.
fn find_kind<'a, E: serde::de::Error>(
    request: &'a Value,
    fields: &[&'static str],
) -> Result<(&'static str, &'a Value), E> {
    let mut found = fields
        .iter()
        .filter_map(|field| Some((*field, request.get(*field)?)));
    match (found.next(), found.next()) {
        (Some(kind), None) => Ok(kind),
        (None, _) => Err(E::custom(format!("it needs a field `{}`", fields.join("` or `")))),
        (Some((one, _)), Some((other, _))) => Err(E::custom(format!(
            "it has a field `{one}` and a field `{other}`, but may have only one of them"
        ))),
    }
}

fn read<T: DeserializeOwned, E: serde::de::Error>(value: &Value) -> Result<T, E> {
    read_value(value).map_err(E::custom)
}

/// Reads the context of an execution that takes steps. A sweep holds claims too, but only to restore nodes.
fn of_recycling<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Context, D::Error> {
    let context = Context::deserialize(deserializer)?;
    let execution = &context.execution.id;
    if ["sweep", "rotate-nodes"]
        .iter()
        .any(|machine| execution.is_of(machine))
    {
        let why = format!("Execution.Id must be an execution of recycle-node, and is {execution}");
        return Err(serde::de::Error::custom(why));
    }
    Ok(context)
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
