//! The answer of every function.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::base::ids::{ExecutionArn, GroupName, InstanceId};
use crate::contract::run::Run;
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
pub struct Answer<V> {
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

fn none_is_empty_object<S: serde::Serializer>(run: &Option<Run>, serializer: S) -> Result<S::Ok, S::Error> {
    match run {
        Some(run) => run.serialize(serializer),
        None => serde_json::Map::new().serialize(serializer),
    }
}
