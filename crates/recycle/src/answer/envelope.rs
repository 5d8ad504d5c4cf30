//! The answer of every function.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::base::ids::{ExecutionArn, GroupName, InstanceId};
use crate::contract::run::Run;
use crate::contract::verdicts::{
    CheckVerdict, ClaimVerdict, DisposeVerdict, EvictVerdict, RestoreVerdict, SelectVerdict, StandbyVerdict,
    StartVerdict, TaintVerdict,
};
use crate::input::start::Start;
use crate::notify::metrics::{Metric, measure_drain};
use crate::notify::notification::{About, Notification, tell_finished};
use crate::plan::dry_run::Plan;
use crate::records::schema::SCHEMA;
use crate::rotation::admission::{Ended, Waited};
use crate::rotation::outdated::Criterion;
use crate::rotation::terms::Mark;

/// The one envelope of all answers. `V` is the function's verdict, which names the machine's next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer<V: Verdict> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What comes next.
    pub verdict: V,
    /// Seconds that a Wait state waits if it comes next; 0 otherwise.
    pub wait_seconds: u32,
    /// Why, in one sentence for people.
    pub reason: String,
    /// How many pods of each class ([`crate::drain::classify`]).
    pub counts: BTreeMap<String, u32>,
    /// The first five names of each class, `namespace/name`.
    pub names: BTreeMap<String, Vec<String>>,
    /// The notification that the state machine publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tell: Option<Box<Notification>>,
    /// What is counted. It goes into the log and not to the state machine.
    #[serde(skip)]
    pub metrics: Vec<Metric>,
    /// What to carry; absent where nothing was fetched.
    #[serde(serialize_with = "none_is_empty_object")]
    pub run: Option<Run>,
    /// The fields of this function alone, beside the others on the wire.
    #[serde(flatten)]
    pub body: V::Body,
}

/// A function's verdict, with the fields that only this function answers.
pub trait Verdict {
    /// Beside the fields of the envelope.
    type Body: Debug + Clone + PartialEq + Eq + Serialize + Default;
}

/// The body of a function that answers the envelope alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Nothing {}

impl Verdict for StandbyVerdict {
    type Body = Nothing;
}

impl Verdict for TaintVerdict {
    type Body = Nothing;
}

impl Verdict for CheckVerdict {
    type Body = Nothing;
}

impl Verdict for EvictVerdict {
    type Body = Nothing;
}

impl Verdict for DisposeVerdict {
    type Body = Nothing;
}

impl Verdict for StartVerdict {
    type Body = Nothing;
}

impl Verdict for ClaimVerdict {
    type Body = ClaimBody;
}

impl Verdict for RestoreVerdict {
    type Body = RestoreBody;
}

impl Verdict for SelectVerdict {
    type Body = SelectBody;
}

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
        /// The executions to start.
        starts: Vec<Start>,
        /// The fields of their input beside the node.
        recycle: serde_json::Map<String, Value>,
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
    /// The mark that the nodes get.
    pub mark: Mark,
    /// The fields of their input beside the node.
    pub recycle: serde_json::Map<String, Value>,
    /// The rotations whose marks this one takes over.
    pub ended_rotations: BTreeSet<ExecutionArn>,
}

impl<V: Verdict> Answer<V> {
    /// An answer without counts, names or anything to carry.
    pub fn new(verdict: V, reason: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA,
            verdict,
            wait_seconds: 0,
            reason: reason.into(),
            counts: BTreeMap::new(),
            names: BTreeMap::new(),
            tell: None,
            metrics: Vec::new(),
            run: None,
            body: V::Body::default(),
        }
    }

    /// The same with the fields of this function alone.
    #[must_use]
    pub fn with(mut self, body: V::Body) -> Self {
        self.body = body;
        self
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
        for (class, ended) in [
            ("ended", &run.drain.ended_pods),
            ("tolerates_taint", &run.drain.late_pods),
        ] {
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

/// Why the owner of a claim is asked about.
#[must_use]
pub fn explain_question(owner: &ExecutionArn) -> String {
    format!("{owner} holds the claim; whether it still runs is asked")
}

fn none_is_empty_object<S: serde::Serializer>(run: &Option<Run>, serializer: S) -> Result<S::Ok, S::Error> {
    match run {
        Some(run) => run.serialize(serializer),
        None => serde_json::Map::new().serialize(serializer),
    }
}
