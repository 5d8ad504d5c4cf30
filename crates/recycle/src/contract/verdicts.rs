//! Defines the verdicts of the functions, and the bodies of their answers.
//!
//! The ASL uses the same names (`state-machine/*.asl.json`). `tests/contract` checks that both agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::ids::{ExecutionArn, GroupName, InstanceId};
use crate::base::named::named;
use crate::input::model::Replacement;
use crate::input::path::RecyclePath;
use crate::input::start::Start;
use crate::plan::dry_run::Plan;
use crate::records::owner::Owner;
use crate::rotation::admission::{Ended, Stop, Waited};
use crate::rotation::outdated::Criterion;
use crate::rotation::terms::Mark;

/// A function's verdict, with the fields that only this function answers.
pub trait Verdict {
    type Body: Debug + Clone + PartialEq + Eq + Serialize + Default;
}

/// The body of a function whose answer is only the envelope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Nothing {}

macro_rules! verdict {
    ($(#[$doc:meta])* $name:ident with $body:ident { $($variants:tt)+ }) => {
        named! { $(#[$doc])* pub enum $name { $($variants)+ } }

        impl Verdict for $name {
            type Body = $body;
        }
    };
}

verdict!(
    /// The verdict of `claim-node`.
    ClaimVerdict with ClaimBody {
        /// This execution holds the claim: `standby-node` comes next.
        Standby = "standby",
        /// This execution holds the claim: `taint-node` comes next (the paths `after` and `hook`, and the path `before` with
        /// `replacement: after`).
        Taint = "taint",
        /// The node is not admitted yet: wait, then call again.
        Wait = "wait",
        /// Another execution works on this node.
        Duplicate = "duplicate",
        AlreadyGone = "already_gone",
        /// The hook was completed, because the member that it holds has no pods to wait for.
        Released = "released",
        /// Dry run: the plan is in the answer.
        Planned = "planned",
    }
);

impl ClaimVerdict {
    /// Returns the first step of an execution whose node is admitted.
    /// `standby-node` brings the replacement on the paths `before` and `surge`, unless the input says `replacement: after`.
    pub fn first_step(path: RecyclePath, replacement: Replacement) -> Self {
        match (path, replacement) {
            (RecyclePath::Before | RecyclePath::Surge, Replacement::Before | Replacement::Surge) => {
                Self::Standby
            }
            (RecyclePath::Before | RecyclePath::Surge, Replacement::After)
            | (RecyclePath::After | RecyclePath::Hook, _) => Self::Taint,
        }
    }
}

verdict!(
    /// The verdict of `standby-node`.
    StandbyVerdict with StandbyBody {
        /// The replacement is usable: `taint-node` comes next.
        Taint = "taint",
        Wait = "wait",
        /// The node that is gone has its replacement (the path `after`).
        Recycled = "recycled",
    }
);

verdict!(
    /// The verdict of `taint-node`.
    TaintVerdict with Nothing {
        CheckPods = "check_pods",
        /// A rotation only: its nodes are marked.
        Marked = "marked",
    }
);

verdict!(
    /// The verdict of `check-pods`.
    CheckVerdict with Nothing {
        /// No pod that matters is left: `detach-terminate` comes next.
        Dispose = "dispose",
        /// The Node is gone, or not Ready for too long: `detach-terminate` asks EC2, and disposes of it.
        Lost = "lost",
        /// The hook has to be kept alive first; then call again.
        Heartbeat = "heartbeat",
        /// There are pods to evict: `evict-pods` comes next, then a wait.
        Evict = "evict",
        Wait = "wait",
    }
);

verdict!(
    /// The verdict of `evict-pods`. `check-pods` has said how long to wait.
    EvictVerdict with Nothing {
        /// Wait for the pods to go.
        Wait = "wait",
    }
);

verdict!(
    /// The verdict of `detach-terminate`.
    DisposeVerdict with Nothing {
        /// The instance is out of its group, or stopped as asked.
        Recycled = "recycled",
        /// The instance is gone: `standby-node` waits for its replacement (the path `after`).
        AwaitReplacement = "await_replacement",
        Wait = "wait",
        /// Pods that matter are on the node again, or it is not lost after all: `check-pods` comes next.
        CheckPods = "check_pods",
    }
);

verdict!(
    /// The verdict of `restore-node`.
    RestoreVerdict with RestoreBody {
        /// The node has no marks of recycle-eks and is as it was before. A sweep also answers this for a node that it does not touch,
        /// because an execution works on it or an earlier notification reported it.
        Untouched = "untouched",
        /// The node had marks of recycle-eks, and is now restored.
        Restored = "restored",
        /// The next step of the restore comes after a wait.
        Wait = "wait",
        /// The node stays in Standby, for example because of the group's limits. The reason has the manual commands.
        LeftInStandby = "left_in_standby",
        /// The node is not restored: it is lost, cannot be seen, has an unreadable claim, or a call stays refused.
        /// The reason describes the node, and what an operator can do.
        Kept = "kept",
        /// A sweep only: start `recycle-node`.
        /// This installation's hook holds the member, or an operator requests the node by a taint, and no execution works on it.
        Start = "start",
        /// The marks of rotations are gone.
        Unmarked = "unmarked",
    }
);

verdict!(
    /// The verdict of `select-nodes`.
    SelectVerdict with SelectBody {
        EachNode = "each_node",
        /// A rotation only: each of the groups comes next.
        EachGroup = "each_group",
        /// A group of a rotation only: its nodes are marked first.
        MarkNodes = "mark_nodes",
        /// A rotation only: there is no node to recycle; the reason says why.
        NothingSelected = "nothing_selected",
        /// A node of a rotation only: it may start.
        Start = "start",
        /// A node of a rotation only: it may not start yet.
        Wait = "wait",
        /// A node of a rotation only: the states of the alarms decide. Read them from CloudWatch, then call again.
        DescribeAlarms = "describe_alarms",
        /// A node of a rotation only: it may not start yet, because of a pause in the input or between two attempts.
        /// The pause does not count as waiting for others.
        Pause = "pause",
        /// A node of a rotation only: it does not start.
        Skip = "skip",
        /// A node of a rotation only: neither it nor the nodes after it start.
        Stop = "stop",
    }
);

verdict!(
    /// The verdict of `start-rotation`, for its caller: SNS, or Terraform.
    StartVerdict with Nothing {
        /// Rotations were started, or exist already under their names.
        Started = "started",
        /// There is no rotation to start; the reason says why.
        NothingToStart = "nothing_to_start",
    }
);

/// The fields that only `claim-node` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimBody {
    /// With the verdict `planned`.
    Plan(Plan),
    #[default]
    #[serde(untagged)]
    Nothing,
}

/// The fields that only `standby-node` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StandbyBody {
    /// The instance that replaces the node, once it is usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<InstanceId>,
}

/// The fields that only `restore-node` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RestoreBody {
    /// With the verdict `start`: the execution to start.
    Start(Start),
    /// After a step.
    #[serde(untagged)]
    Step {
        /// The time at which the restore began.
        since: Timestamp,
        /// The number of steps that it has taken, with this one.
        steps: u32,
        /// The members that it has protected from scale-in, if no record names them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        protected: Vec<InstanceId>,
        /// The execution whose claim a sweep has taken over.
        #[serde(skip_serializing_if = "Option::is_none")]
        owner: Option<Owner>,
    },
    #[default]
    #[serde(untagged)]
    Nothing,
}

/// The fields that only `select-nodes` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectBody {
    /// The groups that a rotation goes through.
    Groups(Vec<GroupName>),
    /// The execution that a node of a rotation begins with.
    Start(Start),
    /// The fields that a node of a rotation passes after its wait.
    AfterWait(Waited),
    /// The end of a node or a group that is not started.
    Ended(Ended),
    /// For a sweep.
    #[serde(untagged)]
    Leftovers {
        /// The instances, in the order in which they are restored.
        nodes: Vec<InstanceId>,
        /// The rotations that have ended and left marks.
        ended_rotations: BTreeSet<ExecutionArn>,
    },
    /// For a rotation that recycles its nodes at once, without groups.
    #[serde(untagged)]
    Starts {
        starts: Vec<Start>,
        /// The fields of the executions' input, except the node.
        recycle: Map<String, Value>,
    },
    /// For a group of a rotation.
    #[serde(untagged)]
    Group(Box<GroupBody>),
    #[default]
    #[serde(untagged)]
    Nothing,
}

/// The nodes of a group, and how a rotation recycles them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupBody {
    /// The nodes in the order in which they are recycled.
    pub nodes: Vec<InstanceId>,
    /// The criteria that nodes meet, each with the places of these nodes in `nodes`; only in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criteria: Option<BTreeMap<Criterion, Vec<usize>>>,
    /// The number of nodes that are recycled at the same time.
    pub at_once: u32,
    /// The group's launch source now.
    pub launch_source: String,
    /// The marks of all members of the group now ([`crate::base::member_marks`]).
    pub members_before: String,
    pub mark: Mark,
    /// The fields of the executions' input, except the node.
    pub recycle: Map<String, Value>,
    /// The rotations whose marks this rotation takes over.
    pub ended_rotations: BTreeSet<ExecutionArn>,
    /// The number of nodes that are left for the next pass: selected nodes, and members that are undecided in this pass.
    pub more: usize,
    /// The first of them, which are marked already.
    pub later: Vec<InstanceId>,
    /// The error of the group if this is its last pass: members are undecided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Stop>,
}
