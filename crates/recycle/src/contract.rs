//! What crosses the state machine: what a function is given, what it answers, what the ASL carries between them.
//!
//! The ASL knows these names too (`state-machine/recycle-node.asl.json`); `tests/contract` holds the two together.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::claim::Phase;
use crate::drain_end::DrainUntil;
use crate::gate::{Ended, Turn, Waited};
use crate::hook::HeldByHook;
use crate::ids::{ClusterName, ExecutionArn, Fence, GroupName, InstanceId, NodeName};
use crate::input::{Hook, Input};
use crate::lost::{Holders, Lost};
use crate::metrics::{Metric, measure_drain};
use crate::notification::{About, Blockage, Notification, tell_finished};
use crate::old_node::OldNode;
use crate::outdated::Criterion;
use crate::plan::Plan;
use crate::pods::{PodFacts, PodSurvey, first_names, fit_names};
use crate::rotation::{Mark, Marking, Part, Unmarking};
use crate::strict::read_value;

/// The version of everything in this module and of the records; a reader of a newer schema than its own stops.
pub const SCHEMA: u32 = 1;

/// The part of the Step Functions context object that we read (Step Functions guide, "Context object").
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Context {
    /// The execution.
    pub execution: ExecutionContext,
    /// The state that called us.
    pub state: StateContext,
}

/// `$states.context.Execution`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExecutionContext {
    /// The execution's ARN.
    pub id: ExecutionArn,
    /// The execution's input, as it was given.
    pub input: Value,
    /// When the execution started; Step Functions always gives it.
    #[serde(default)]
    pub start_time: Option<Timestamp>,
    /// How often the execution was redriven; absent in the context of one that never was.
    #[serde(default)]
    pub redrive_count: u32,
}

/// `$states.context.State`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StateContext {
    /// When the state was entered: the "now" of every decision.
    pub entered_time: Timestamp,
    /// How often the state has been tried again since then.
    #[serde(default)]
    pub retry_count: u32,
}

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

/// What `claim-node` is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ClaimRequest {
    /// The context object.
    pub context: Context,
    /// What DescribeExecution said of a claim's owner, if it was asked; `{}` before that.
    #[serde(default, deserialize_with = "empty_object_is_none")]
    pub owner: Option<Owner>,
    /// What the answer carried with which this execution has waited for its turn: it had claimed the node then. `{}` before that.
    #[serde(default, deserialize_with = "empty_object_is_none")]
    pub run: Option<Run>,
}

/// What Step Functions said about the execution that holds a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Who was asked for.
    pub execution: ExecutionArn,
    /// The execution's status, or the name of the error that the question met.
    pub status: String,
    /// When it ended; `None` if it has not, or if the time that Step Functions gave is missing or unreadable. How an SDK integration
    /// writes a time is not documented.
    #[serde(
        default,
        deserialize_with = "unreadable_is_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ended_at: Option<Timestamp>,
}

/// What every function after `claim-node` is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StepRequest {
    /// The context object.
    pub context: Context,
    /// What `claim-node` fetched once, and the moments since.
    pub run: Run,
}

/// What `restore-node` is given: no variables of the machine's branch, so it works from the records.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RestoreRequest {
    /// The context object.
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
    /// The instance.
    pub instance_id: InstanceId,
    /// Its cluster.
    pub cluster_name: ClusterName,
}

/// What `select-nodes` is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SelectRequest {
    /// The context object.
    pub context: Context,
    /// Which nodes.
    pub select: Selection,
    /// Of which cluster.
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
    /// Those that the execution's input asks for ([`crate::select`]), or their groups: for `rotate-nodes`.
    Rotation,
    /// Those of one group, in order ([`crate::outdated`]).
    Group,
    /// One of them: may it start ([`crate::gate`])?
    MayStart,
}

/// What `select-nodes` is given, by whomever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A state machine.
    ByMachine(Box<SelectRequest>),
    /// A person's command line, which invokes it directly.
    ByPerson(Question),
}

impl Asked {
    /// The cluster that it is about.
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
    /// Which nodes are worked on, and how far that is ([`crate::status`]).
    Status {
        /// Of which cluster.
        cluster_name: ClusterName,
        /// Of this node only, worked on or not: an instance id, or the name of a Node.
        #[serde(default)]
        node: Option<String>,
    },
    /// Whether the cluster and AWS are reached from here ([`crate::doctor`]).
    Doctor {
        /// Which cluster.
        cluster_name: ClusterName,
        /// An execution of `recycle-node` that Step Functions is asked about, whether there is one or not.
        #[serde(default)]
        execution: Option<ExecutionArn>,
    },
}

/// A question as it is written.
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
        let WrittenQuestion {
            select,
            cluster_name,
            node,
            execution,
        } = written;
        match select {
            Asks::Status => Self::Status { cluster_name, node },
            Asks::Doctor => Self::Doctor {
                cluster_name,
                execution,
            },
        }
    }
}

/// An execution of `recycle-node` to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Start {
    /// Its name: who starts it again finds it there.
    pub name: String,
    /// Its node.
    pub instance_id: InstanceId,
    /// The hook that holds it, if that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
}

/// What `taint-node` is given: a node of `recycle-node`, the nodes that a rotation marks, or what a person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaintRequest {
    /// A rotation's.
    Mark {
        /// What is to be marked.
        marking: Marking,
    },
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
    Unmark {
        /// What is to be unmarked.
        unmarking: Unmarking,
    },
    /// A node to put back.
    Node(Box<RestoreRequest>),
}

/// What a put-back carries from step to step. Whatever it did is in the records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct PutBack {
    /// When it began; none before the first step.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// How many steps it has taken.
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

/// The three ways in: how the replacement comes, and how the instance goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WayIn {
    /// Standby: the replacement first.
    Before,
    /// No Standby: the replacement after the instance has gone.
    After,
    /// The group is already terminating the instance.
    Hook,
}

/// What travels in the state machine's variable `run`: fetched once, a convenience. The records on Node and instance decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The input with every default filled in.
    pub input: Input,
    /// How this execution came in.
    pub way_in: WayIn,
    /// The group of the instance.
    pub group: GroupName,
    /// The instance's Node.
    pub node: NodeName,
    /// When this execution took the claim.
    pub claimed_at: Timestamp,
    /// When this execution began to wait for the replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_since: Option<Timestamp>,
    /// Since when the drained node has waited for its group to have enough usable members ([`crate::shortage`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_since: Option<Timestamp>,
    /// When this execution began to drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining_since: Option<Timestamp>,
    /// The end of the drain that a person had set when the Node could be read last: it counts while the Node cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_until: Option<Timestamp>,
    /// How many times the pods have been checked, for the poll budget.
    #[serde(default)]
    pub polls: u32,
    /// When the one last eviction at the drain's deadline was asked for, if it was ([`crate::drain::judge_drain`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_eviction: Option<Timestamp>,
    /// The pods that the end of the instance ends, because the drain's time was over and the input says so; none: pods that matter
    /// hold the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_pods: Option<EndedPods>,
    /// Since when no pod holds the node but those that came after our taint and tolerate it ([`crate::pods::LATE_PATIENCE`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emptied_at: Option<Timestamp>,
    /// Those of them that the end of the instance ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_pods: Option<EndedPods>,
    /// What keeps the drain from going on, and what people were told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blockage: Option<Blockage>,
    /// When this execution began to dispose of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disposing_since: Option<Timestamp>,
    /// The pods that held the node when they were seen last: whom to name if it is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<Holders>,
    /// That the node is lost: it is disposed of, whatever is on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// What its replacement is judged by, for the way in `after`: the node is gone when that comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<OldNode>,
    /// The hook that holds the member, if one of ours does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<HeldByHook>,
    /// Whose pods were evicted while there was no replacement to note it on ([`crate::evicted`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<String>,
}

impl Run {
    /// The pods that end with the instance, for people; empty if there are none.
    #[must_use]
    pub fn describe_ended(&self) -> String {
        let over = self
            .ended_pods
            .iter()
            .map(|ended| (ended, "ran on it when its time was over"));
        let late = self
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
        match (self.disposing_since, self.draining_since, self.replacement_since) {
            (Some(_), _, _) => Phase::Disposing,
            (None, Some(_), _) => Phase::Draining,
            (None, None, Some(_)) => Phase::Standby,
            (None, None, None) => Phase::Claimed,
        }
    }
}

/// Pods that ran when the instance was ended ([`crate::input::OnDrainTimeout::Terminate`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedPods {
    /// How many, as seen last.
    pub count: u32,
    /// The first five of them.
    pub names: Vec<String>,
}

impl EndedPods {
    /// Those that hold the node now.
    #[must_use]
    pub fn of(survey: &PodSurvey) -> Self {
        Self::list(&survey.holding())
    }

    /// Those that do not hold it because they tolerate our taint and came after it, if there are any.
    #[must_use]
    pub fn late(survey: &PodSurvey) -> Option<Self> {
        (!survey.tolerates_taint.is_empty()).then(|| Self::list(&survey.tolerates_taint))
    }

    fn list(pods: &[PodFacts]) -> Self {
        let mut names = first_names(pods);
        fit_names(&mut names.iter_mut().collect::<Vec<_>>(), ENDED_BUDGET);
        Self {
            count: u32::try_from(pods.len()).unwrap_or(u32::MAX),
            names,
        }
    }

    /// In a few words.
    #[must_use]
    fn describe(&self, what: &str) -> String {
        let noun = if self.count == 1 { "pod" } else { "pods" };
        format!("{} {noun} {what} ({})", self.count, self.names.join(", "))
    }
}

/// How many bytes the names of ended pods may have together: they travel in every answer from then on.
const ENDED_BUDGET: usize = 200;
/// The one envelope of all answers. `V` is the function's verdict, which names the machine's next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer<V> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What comes next.
    pub verdict: V,
    /// Seconds that a Wait state waits if it comes next; 0 otherwise.
    pub wait_seconds: u32,
    /// Why, in one sentence for people.
    pub reason: String,
    /// How many pods of each class ([`crate::pods`]).
    pub counts: BTreeMap<String, u32>,
    /// The first five names of each class, `namespace/name`.
    pub names: BTreeMap<String, Vec<String>>,
    /// Whom to ask about, if the verdict is `ask_owner`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<ExecutionArn>,
    /// The plan, if the verdict is `planned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The execution to start, if the verdict is `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Which nodes, if this is an answer of `select-nodes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<InstanceId>>,
    /// Which executions to start, if this is an answer of `select-nodes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<Vec<Start>>,
    /// The fields that each of them has beside its node, if this is an answer of `select-nodes` to a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recycle: Option<serde_json::Map<String, Value>>,
    /// The groups that a rotation goes through, if this is an answer of `select-nodes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupName>>,
    /// How many nodes of a group at once, if this is an answer of `select-nodes` about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// What the group launches from now, if this is an answer of `select-nodes` about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<String>,
    /// Which of its nodes, by their places, meet which criterion: of a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criteria: Option<BTreeMap<Criterion, Vec<usize>>>,
    /// What its turn has to say after the wait, if a node may not start yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_wait: Option<Waited>,
    /// The mark that its nodes get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// How a node or a group ends that is not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The rotations that have ended and left marks, for the sweep; or that a group's marks are taken over from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_rotations: Option<BTreeSet<ExecutionArn>>,
    /// When the put-back began, if this is one of its steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How many steps it has taken, with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// What people are to be told; the state machine publishes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tell: Option<Box<Notification>>,
    /// What is counted. It goes into the log and not to the state machine.
    #[serde(skip)]
    pub metrics: Vec<Metric>,
    /// What to carry; absent where nothing was fetched.
    #[serde(serialize_with = "none_is_empty_object")]
    pub run: Option<Run>,
}

impl<V> Answer<V> {
    /// An answer without counts, names or anything to carry.
    pub fn new(verdict: V, reason: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA,
            verdict,
            wait_seconds: 0,
            reason: reason.into(),
            counts: BTreeMap::new(),
            names: BTreeMap::new(),
            owner: None,
            plan: None,
            start: None,
            nodes: None,
            starts: None,
            recycle: None,
            groups: None,
            at_once: None,
            aim: None,
            criteria: None,
            after_wait: None,
            mark: None,
            ended: None,
            ended_rotations: None,
            since: None,
            steps: None,
            tell: None,
            metrics: Vec::new(),
            run: None,
        }
    }

    /// The answer of one who has to know first whether the owner of a claim still runs.
    pub fn asking(verdict: V, owner: ExecutionArn) -> Self {
        let reason = format!("{owner} holds the claim; whether it still runs is asked");
        Self {
            owner: Some(owner),
            ..Self::new(verdict, reason)
        }
    }

    /// The same with what to carry.
    #[must_use]
    pub fn carrying(mut self, run: Run) -> Self {
        self.run = Some(run);
        self
    }

    /// The same with the pods that ended with the node, if there are any.
    #[must_use]
    pub fn naming_ended(mut self, run: &Run) -> Self {
        for (class, ended) in [("ended", &run.ended_pods), ("tolerates_taint", &run.late_pods)] {
            if let Some(ended) = ended.as_ref().filter(|ended| ended.count > 0) {
                self.counts.insert(class.to_owned(), ended.count);
                self.names.insert(class.to_owned(), ended.names.clone());
            }
        }
        self
    }

    /// The same with what people are to be told, if anything.
    #[must_use]
    pub fn telling(mut self, tell: Option<Notification>) -> Self {
        self.tell = tell.map(Box::new);
        self
    }

    /// The same, if its verdict is `end`, with what people are told of a recycled node, and how long its drain took.
    #[must_use]
    pub fn telling_end(self, execution: &ExecutionArn, end: V) -> Self
    where
        V: PartialEq,
    {
        let Some(run) = self.run.as_ref().filter(|_| self.verdict == end) else {
            return self;
        };
        let told = tell_finished(About::run(execution, run), run, &self.reason);
        let drain = measure_drain(run);
        self.telling(Some(told)).counting(drain)
    }

    /// The same with what is counted.
    #[must_use]
    pub fn counting(mut self, metrics: impl IntoIterator<Item = Metric>) -> Self {
        self.metrics.extend(metrics);
        self
    }

    /// The same with seconds to wait.
    #[must_use]
    pub fn waiting(mut self, seconds: u32) -> Self {
        self.wait_seconds = seconds;
        self
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
        /// Wait.
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
        /// On to each of the nodes.
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

// Not `#[serde(untagged)]`: that says of what it cannot read no more than that, and takes a list for a record.

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        if has(&request, "context") {
            read(&request).map(Self::ByMachine)
        } else {
            read(&request).map(Self::ByPerson)
        }
    }
}

impl<'de> Deserialize<'de> for TaintRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        if has(&request, "marking") {
            read(&request["marking"]).map(|marking| Self::Mark { marking })
        } else if has(&request, "drain_until") {
            read(&request["drain_until"]).map(|drain_until| Self::ByPerson { drain_until })
        } else {
            read(&request).map(Self::Step)
        }
    }
}

impl<'de> Deserialize<'de> for RestoreCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        if has(&request, "unmarking") {
            read(&request["unmarking"]).map(|unmarking| Self::Unmark { unmarking })
        } else {
            read(&request).map(Self::Node)
        }
    }
}

fn has(request: &Value, field: &str) -> bool {
    request.get(field).is_some()
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
    read_value(&value).map(Some).map_err(serde::de::Error::custom)
}

fn unreadable_is_none<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(read_value(&value).ok())
}

fn none_is_empty_object<S: serde::Serializer>(run: &Option<Run>, serializer: S) -> Result<S::Ok, S::Error> {
    match run {
        Some(run) => run.serialize(serializer),
        None => serde_json::Map::new().serialize(serializer),
    }
}

/// The instance as the functions speak of it: one sentence's subject.
#[must_use]
pub fn describe_instance(instance: &InstanceId, node: Option<&NodeName>) -> String {
    match node {
        Some(node) => format!("node {node} ({instance})"),
        None => format!("instance {instance}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{ARN, OLD, at, fence, id, input};

    fn context(more: &Value) -> Value {
        let mut context = json!({
            "Execution": {"Id": ARN, "Input": {"instance_id": OLD}, "Name": "run-1", "StartTime": "2027-01-01T00:00:00Z"},
            "State": {"Name": "ClaimNode", "EnteredTime": "2027-01-01T00:00:05.250Z", "RetryCount": 0},
            "StateMachine": {"Id": "x", "Name": "y"},
        });
        if let (Some(execution), Some(more)) = (context["Execution"].as_object_mut(), more.as_object()) {
            execution.extend(more.clone());
        }
        context
    }

    #[test]
    fn a_request_is_read_from_what_step_functions_sends() {
        let request: ClaimRequest =
            serde_json::from_value(json!({"context": context(&json!({})), "owner": {}, "run": {}})).unwrap();
        assert_eq!((request.owner, request.run), (None, None));
        assert_eq!(request.context.fence(), fence(0));
        assert_eq!(
            request.context.now(),
            at(5) + jiff::SignedDuration::from_millis(250)
        );

        let redriven: ClaimRequest = serde_json::from_value(json!({
            "context": context(&json!({"RedriveCount": 2})),
            "owner": {"execution": ARN, "status": "RUNNING"},
        }))
        .unwrap();
        assert_eq!(redriven.context.fence(), fence(2));
        assert_eq!(redriven.owner.unwrap().status, "RUNNING");
    }

    #[test]
    fn people_are_told_of_the_end_and_of_nothing_before() {
        let run: Run = serde_json::from_value(json!({
            "input": input(json!({})), "way_in": "before", "group": "workers", "node": "ip-10-0-0-1.ec2.internal",
            "claimed_at": "2027-01-01T00:00:00Z",
        }))
        .unwrap();
        for (verdict, expected) in [
            (DisposeVerdict::Recycled, json!("recycled")),
            (DisposeVerdict::Wait, Value::Null),
        ] {
            let answer = Answer::new(verdict, "it has left").carrying(run.clone());
            let told = answer.telling_end(&ARN.parse().unwrap(), DisposeVerdict::Recycled);
            assert_eq!(serde_json::to_value(&told).unwrap()["tell"]["outcome"], expected);
        }
    }

    #[test]
    fn pods_that_ended_with_the_node_are_named_if_there_are_any() {
        let ended = |count| EndedPods {
            count,
            names: vec!["default/a".to_owned()],
        };
        let mut run: Run = serde_json::from_value(json!({
            "input": input(json!({})), "way_in": "before", "group": "workers", "node": "ip-10-0-0-1.ec2.internal",
            "claimed_at": "2027-01-01T00:00:00Z",
        }))
        .unwrap();
        for (over, late, counts, text) in [
            (None, None, json!({}), ""),
            (Some(0), None, json!({}), ""),
            (
                Some(1),
                None,
                json!({"ended": 1}),
                "; 1 pod ran on it when its time was over (default/a)",
            ),
            (
                None,
                Some(2),
                json!({"tolerates_taint": 2}),
                "; 2 pods that tolerate its taint came after it, and go with it (default/a)",
            ),
        ] {
            (run.ended_pods, run.late_pods) = (over.map(ended), late.map(ended));
            let answer = Answer::new(DisposeVerdict::Recycled, "it has left").naming_ended(&run);
            assert_eq!(serde_json::to_value(&answer).unwrap()["counts"], counts);
            assert_eq!(
                (answer.names.len(), run.describe_ended().as_str()),
                (answer.counts.len(), text)
            );
        }
    }

    #[test]
    fn an_owner_that_is_half_there_is_an_error() {
        let request = json!({"context": context(&json!({})), "owner": {"execution": ARN}});
        assert!(serde_json::from_value::<ClaimRequest>(request).is_err());
    }

    #[test]
    fn a_time_of_an_owners_end_that_cannot_be_read_is_none() {
        for (time, is_read) in [
            (json!("2027-01-01T00:00:00Z"), true),
            (json!("2027-01-01T00:00:00.123Z"), true),
            (json!(1_798_761_600_000_i64), false),
            (json!("soon"), false),
            (json!(null), false),
        ] {
            let owner = json!({"execution": ARN, "status": "ABORTED", "ended_at": time.clone()});
            let owner: Owner = serde_json::from_value(owner).unwrap();
            assert_eq!(owner.ended_at.is_some(), is_read, "{time}");
        }
    }

    #[test]
    fn whose_claim_it_is_is_asked_by_name() {
        let owner: ExecutionArn = ARN.parse().unwrap();
        let answer = Answer::asking(ClaimVerdict::AskOwner, owner.clone());
        assert!(answer.reason.starts_with(ARN), "{}", answer.reason);
        assert_eq!(answer.owner, Some(owner));
    }

    #[test]
    fn an_answer_is_the_envelope_that_the_asl_reads() {
        let answer = Answer::new(ClaimVerdict::AlreadyGone, "gone").waiting(30);
        assert_eq!(
            serde_json::to_value(answer).unwrap(),
            json!({"schema": 1, "verdict": "already_gone", "wait_seconds": 30, "reason": "gone", "counts": {}, "names": {},
                "run": {}})
        );
    }

    #[test]
    fn an_instance_is_spoken_of_with_its_node_if_that_is_known() {
        assert_eq!(
            describe_instance(&id(OLD), Some(&"a".parse().unwrap())),
            "node a (i-0aaaaaaaaaaaaaaaa)"
        );
        assert_eq!(describe_instance(&id(OLD), None), "instance i-0aaaaaaaaaaaaaaaa");
    }
}
