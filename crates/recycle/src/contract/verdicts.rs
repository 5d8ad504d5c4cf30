//! The verdicts of the functions: what each of them may answer, and where an execution goes first.
//!
//! The ASL knows these names, too (`state-machine/recycle-node.asl.json`); `tests/contract` holds the two together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::ids::{ExecutionArn, GroupName, InstanceId};
use crate::input::model::Replacement;
use crate::input::start::Start;
use crate::input::way_in::WayIn;
use crate::plan::dry_run::Plan;
use crate::rotation::admission::{Ended, Waited};
use crate::rotation::outdated::Criterion;
use crate::rotation::terms::Mark;

/// A function's verdict, with the fields that only this function answers.
pub trait Verdict {
    type Body: Debug + Clone + PartialEq + Eq + Serialize + Default;
}

/// The body of a function that answers the envelope alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Nothing {}

macro_rules! verdict {
    ($(#[$doc:meta])* $name:ident with $body:ident { $($(#[$variant_doc:meta])* $variant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Every verdict, for the tests that hold the ASL to them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        impl Verdict for $name {
            type Body = $body;
        }
    };
}

verdict!(
    /// What `claim-node` answers.
    ClaimVerdict with ClaimBody {
        /// The claim is ours: on to `standby-node`.
        Standby,
        /// The claim is ours: on to `taint-node` (ways in `after` and `hook`).
        Taint,
        /// It is not the node's turn yet: wait, then call again.
        Wait,
        /// Another execution holds the claim: ask Step Functions whether it still runs, then call again.
        AskOwner,
        /// Another execution works on this node.
        Duplicate,
        AlreadyGone,
        /// Our hook holds what has no pods to wait for: it was completed.
        Released,
        /// Dry run: the plan is in the answer.
        Planned,
    }
);

impl ClaimVerdict {
    /// Where an execution goes that has its turn: into Standby only one that came in by it, and whom the input does not send after.
    #[must_use]
    pub fn first_step(way_in: WayIn, replacement: Replacement) -> Self {
        match (way_in, replacement) {
            (WayIn::Before, Replacement::Before) => Self::Standby,
            (WayIn::Before, Replacement::After) | (WayIn::After | WayIn::Hook, _) => Self::Taint,
        }
    }
}

verdict!(
    /// What `standby-node` answers.
    StandbyVerdict with Nothing {
        /// The replacement is usable: on to `taint-node`.
        Taint,
        Wait,
        /// The node that is gone has its replacement (way in `after`).
        Recycled,
    }
);

verdict!(
    /// What `taint-node` answers.
    TaintVerdict with Nothing {
        CheckPods,
        /// A rotation only: its nodes are marked.
        Marked,
    }
);

verdict!(
    /// What `check-pods` answers.
    CheckVerdict with Nothing {
        /// Nothing that matters is left: on to `detach-terminate`.
        Dispose,
        /// The Node is gone, or not Ready for too long: `detach-terminate` asks EC2, and disposes of it.
        Lost,
        /// The hook has to be kept alive first; then call again.
        Heartbeat,
        /// There are pods to evict: on to `evict-pods`, then wait.
        Evict,
        Wait,
    }
);

verdict!(
    /// What `evict-pods` answers; `check-pods` said how long to wait.
    EvictVerdict with Nothing {
        /// Wait for the pods to go.
        Wait,
    }
);

verdict!(
    /// What `detach-terminate` answers.
    DisposeVerdict with Nothing {
        /// The instance is out of its group, or stopped as asked.
        Recycled,
        /// The instance is gone: `standby-node` waits for its replacement (way in `after`).
        AwaitReplacement,
        Wait,
        /// Pods that matter are on the node again, or it is not lost after all: back to `check-pods`.
        CheckPods,
    }
);

verdict!(
    /// What `restore-node` answers.
    RestoreVerdict with RestoreBody {
        /// Nothing of ours is on the node: it is as it was found.
        Untouched,
        /// Something was, and it is as it was found again.
        Restored,
        /// The next step of the put-back comes after a wait.
        Wait,
        /// The group allows no way back from Standby; the reason has the commands for a person.
        StandbyLeftBehind,
        /// It is lost, or cannot be seen: the reason says what is left, and what a person may do.
        Kept,
        /// A sweep only: our hook holds the member, or a person asks for the node by a taint, and nobody works on it: `recycle-node`
        /// is to be started.
        Start,
        /// A sweep only: another execution holds the claim. Ask Step Functions whether it still runs, then call again.
        AskOwner,
        /// The marks of rotations are gone.
        Unmarked,
    }
);

verdict!(
    /// What `select-nodes` answers.
    SelectVerdict with SelectBody {
        EachNode,
        /// A rotation only: on to each of the groups.
        EachGroup,
        /// A group of a rotation only: its nodes are marked first.
        MarkNodes,
        /// A rotation only: there is none; the reason says why.
        NothingSelected,
        /// A node of a rotation only: it may start.
        Start,
        /// A node of a rotation only: not yet.
        Wait,
        /// A node of a rotation only: not yet, as the input says. This is no waiting for others.
        Pause,
        /// A node of a rotation only: it does not start.
        Skip,
        /// A node of a rotation only: neither it nor those after it start.
        Stop,
    }
);

verdict!(
    /// What `start-rotation` answers, to whom it tells: SNS, or Terraform.
    StartVerdict with Nothing {
        /// Rotations were started, or found as they had been.
        Started,
        /// There is none to start; the reason says why.
        NothingToStart,
    }
);

/// What only `claim-node` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimBody {
    /// With the verdict `ask_owner`: the execution to ask about.
    Owner(ExecutionArn),
    /// With the verdict `planned`.
    Plan(Plan),
    #[default]
    #[serde(untagged)]
    Nothing,
}

/// What only `restore-node` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RestoreBody {
    /// With the verdict `ask_owner`: the execution to ask about.
    Owner(ExecutionArn),
    /// With the verdict `start`: the execution to start.
    Start(Start),
    /// After a step.
    #[serde(untagged)]
    Step {
        /// When the restore began.
        since: Timestamp,
        /// How many steps it has taken, with this one.
        steps: u32,
    },
    #[default]
    #[serde(untagged)]
    Nothing,
}

/// What only `select-nodes` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectBody {
    /// The groups that a rotation goes through.
    Groups(Vec<GroupName>),
    /// The execution that a node of a rotation begins with.
    Start(Start),
    /// What a node of a rotation passes after its wait.
    AfterWait(Waited),
    /// How a node or a group ends that is not begun.
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
        /// The fields of their input beside the node.
        recycle: Map<String, Value>,
    },
    /// For a group of a rotation.
    #[serde(untagged)]
    Group(Box<GroupBody>),
    #[default]
    #[serde(untagged)]
    Nothing,
}

/// How a rotation goes through a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupBody {
    /// In the order in which they are recycled.
    pub nodes: Vec<InstanceId>,
    /// Which of the nodes, by their places, meet which criterion; of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criteria: Option<BTreeMap<Criterion, Vec<usize>>>,
    /// How many nodes at once.
    pub at_once: u32,
    /// What the group launches from now.
    pub aim: String,
    pub mark: Mark,
    /// The fields of their input beside the node.
    pub recycle: Map<String, Value>,
    /// The rotations whose marks this one takes over.
    pub ended_rotations: BTreeSet<ExecutionArn>,
}
