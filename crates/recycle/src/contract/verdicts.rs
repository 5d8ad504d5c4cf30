//! The verdicts of the functions: what each of them may answer, and where an execution goes first.
//!
//! The ASL knows these names, too (`state-machine/recycle-node.asl.json`); `tests/contract` holds the two together.

use crate::input::model::Replacement;
use crate::input::way_in::WayIn;
use jiff::Timestamp;
use serde::Serialize;

use crate::base::ids::Fence;
use crate::contract::context::Context;
use crate::contract::run::Run;
use crate::records::claim::Phase;

impl Context {
    /// The moment for which decisions are made: when the calling state was entered.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.state.entered_time
    }

    /// The fence that the execution's claims carry.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence {
            execution: self.execution.id.clone(),
            redrive_count: self.execution.redrive_count,
        }
    }
}

impl Run {
    /// The pods that end with the instance, for people; empty if there are none.
    #[must_use]
    pub fn describe_ended(&self) -> String {
        let over = self
            .drain
            .ended_pods
            .iter()
            .map(|ended| (ended, "ran on it when its time was over"));
        let late = self
            .drain
            .late_pods
            .iter()
            .map(|late| (late, "that tolerate its taint came after it, and go with it"));
        let all = over.chain(late).filter(|(ended, _)| ended.count > 0);
        all.map(|(ended, what)| format!("; {}", ended.describe(what)))
            .collect()
    }

    /// How far this execution has come, as its claim says it; `draining` also while the node only waits.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match (
            self.disposing_since,
            self.drain.draining_since,
            self.replacement_since,
        ) {
            (Some(_), _, _) => Phase::Disposing,
            (None, Some(_), _) => Phase::Draining,
            (None, None, Some(_)) => Phase::Standby,
            (None, None, None) => Phase::Claimed,
        }
    }
}

macro_rules! verdict {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)+ }) => {
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
    };
}

verdict!(
    /// What `claim-node` answers.
    ClaimVerdict {
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
        /// The instance is gone.
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
    StandbyVerdict {
        /// The replacement is usable: on to `taint-node`.
        Taint,
        /// Not yet.
        Wait,
        /// The node that is gone has its replacement (way in `after`).
        Recycled,
    }
);

verdict!(
    /// What `taint-node` answers.
    TaintVerdict {
        /// On to `check-pods`.
        CheckPods,
        /// A rotation only: its nodes are marked.
        Marked,
    }
);

verdict!(
    /// What `check-pods` answers.
    CheckVerdict {
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
    EvictVerdict {
        /// Wait for the pods to go.
        Wait,
    }
);

verdict!(
    /// What `detach-terminate` answers.
    DisposeVerdict {
        /// The instance is out of its group, or stopped as asked.
        Recycled,
        /// The instance is gone: `standby-node` waits for its replacement (way in `after`).
        AwaitReplacement,
        /// Not yet.
        Wait,
        /// Pods that matter are on the node again, or it is not lost after all: back to `check-pods`.
        CheckPods,
    }
);

verdict!(
    /// What `restore-node` answers.
    RestoreVerdict {
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
    SelectVerdict {
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
    StartVerdict {
        /// Rotations were started, or found as they had been.
        Started,
        /// There is none to start; the reason says why.
        NothingToStart,
    }
);
