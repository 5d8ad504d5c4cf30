//! What an execution has done, read from its history: phases, pods, what blocked, what people were told.
//!
//! The history is the only source: the report of an execution is the same years after its node is gone. How it looks, it does not know.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// To how many looks the counts of pods are thinned: more than a screen has points.
const MOST_LOOKS: usize = 400;
/// How many of the pods that were seen are named.
const MOST_PODS: usize = 200;
/// How many tries that failed are told.
const MOST_TROUBLES: usize = 50;

/// An execution, as DescribeExecution tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Its ARN.
    pub arn: String,
    /// `status`.
    pub status: String,
    /// `startDate`.
    pub started_at: Timestamp,
    /// `stopDate`; none while it runs.
    pub ended_at: Option<Timestamp>,
    /// `input`.
    pub input: Value,
    /// `output`, if it succeeded; null otherwise.
    pub output: Value,
    /// `error`, if it failed.
    pub error: Option<String>,
    /// `cause`, if it failed.
    pub cause: Option<String>,
    /// Its history, from the beginning.
    pub events: Vec<Event>,
}

/// An event of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub id: i64,
    /// When it was.
    pub at: Timestamp,
    /// What happened.
    pub what: Happened,
}

/// What happened, as far as a report is interested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A state of this name was entered.
    Entered(String),
    /// A task is begun with these arguments.
    Scheduled(Value),
    /// A task has brought this result.
    Answered(Value),
    /// A task has failed; it may be tried again.
    Failed {
        /// The error's name.
        error: String,
        /// Its text.
        cause: String,
    },
    /// A Distributed Map has begun.
    MapRun(String),
    /// Something else.
    Other,
}

/// A stage on a node's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Pre-flight, claim, and waiting for its turn.
    Turn,
    /// Standby, and waiting for the replacement.
    Replacement,
    /// Moving pods, and waiting for them.
    Drain,
    /// Balancers, volumes, and the instance's way out.
    Disposal,
    /// Being put back.
    PutBack,
}

impl Stage {
    /// All, in their usual order.
    pub const ALL: [Self; 5] = [
        Self::Turn,
        Self::Replacement,
        Self::Drain,
        Self::Disposal,
        Self::PutBack,
    ];

    /// In a word, which is the class of its bars in the report's page too.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Replacement => "replacement",
            Self::Drain => "drain",
            Self::Disposal => "disposal",
            Self::PutBack => "put-back",
        }
    }

    /// The stage that a state of `recycle-node` belongs to; none: to the one that it was in.
    #[must_use]
    pub fn of_state(state: &str) -> Option<Self> {
        match state {
            "ClaimNode" | "WaitForTurn" | "DescribeClaimOwner" => Some(Self::Turn),
            "StandbyNode" | "WaitForReplacement" => Some(Self::Replacement),
            "TaintNode" | "CheckPods" | "EvictPods" | "WaitForPods" | "RecordHeartbeat" => Some(Self::Drain),
            "DetachTerminate" | "WaitForDisposal" => Some(Self::Disposal),
            "RestoreNode" | "WaitForRestore" => Some(Self::PutBack),
            _ => None,
        }
    }
}

/// Something that lasted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span<What> {
    /// What.
    pub what: What,
    /// Since when.
    pub since: Timestamp,
    /// Until when; none: it lasts.
    pub until: Option<Timestamp>,
}

/// How many pods of each class were seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    /// When.
    pub at: Timestamp,
    /// How many of each class.
    pub counts: BTreeMap<String, u32>,
}

/// A pod, and what it counted as.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SeenPod {
    /// The class ([`crate::pods::PodSurvey`]).
    pub class: String,
    /// `namespace/name`.
    pub name: String,
}

/// What people were told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// When.
    pub at: Timestamp,
    /// The notification's `event`.
    pub event: String,
    /// Its `severity`.
    pub severity: String,
    /// Its `subject`.
    pub subject: String,
}

/// A try that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// When.
    pub at: Timestamp,
    /// In which state.
    pub state: String,
    /// The error's name.
    pub error: String,
    /// Its text.
    pub cause: String,
}

/// What every report begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The execution.
    pub execution: String,
    /// The outcome or the error's name; `running` while it runs.
    pub outcome: String,
    /// Whether it came to a good end, or may still.
    pub is_well: bool,
    /// Why.
    pub reason: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; none while it runs.
    pub ended_at: Option<Timestamp>,
    /// How many events its history has.
    pub events: i64,
}

/// The report of an execution of `recycle-node`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// The summary.
    pub summary: Summary,
    /// The instance.
    pub instance: Option<String>,
    /// Its Node, if it came so far.
    pub node: Option<String>,
    /// Its group, if it came so far.
    pub group: Option<String>,
    /// Its cluster.
    pub cluster: Option<String>,
    /// Its stages, one after the other.
    pub stages: Vec<Span<Stage>>,
    /// How often the pods were looked at.
    pub polls: usize,
    /// How many pods were seen, wherever that changed.
    pub looks: Vec<Look>,
    /// The pods that answers named: of each class the first five, in the order of the alphabet.
    pub pods: Vec<Span<SeenPod>>,
    /// What kept the drain from going on.
    pub blocked: Vec<Span<Vec<String>>>,
    /// What people were told.
    pub told: Vec<Told>,
    /// Tries that failed.
    pub troubles: Vec<Trouble>,
    /// What a dry run would do.
    pub plan: Vec<String>,
}

/// The report of a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RotationReport {
    /// The summary.
    pub summary: Summary,
    /// What was to be recycled: the input's `selection`.
    pub selection: Value,
    /// One for each execution that it has started, in the order of their beginnings.
    pub nodes: Vec<NodeReport>,
}

/// A report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Of an execution of `recycle-node`.
    Node(Box<NodeReport>),
    /// Of an execution of `rotate-nodes`.
    Rotation(RotationReport),
}

/// What is read of an answer, by any version: whatever is missing is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    counts: BTreeMap<String, u32>,
    names: BTreeMap<String, Vec<String>>,
    reason: String,
    tell: Option<Tell>,
    run: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tell {
    event: String,
    severity: String,
    subject: String,
    blocks: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Carried {
    node: Option<String>,
    group: Option<String>,
    blockage: Option<Blockage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Blockage {
    since: Option<Timestamp>,
}

/// The executions of `recycle-node` that this history has started, as ARNs, and the Distributed Maps whose children may have started more.
#[must_use]
pub fn find_started(events: &[Event]) -> (Vec<String>, Vec<String>) {
    let (mut started, mut map_runs) = (Vec::new(), Vec::new());
    for event in events {
        match &event.what {
            Happened::Scheduled(arguments) => started.extend(name_execution(arguments)),
            Happened::MapRun(arn) => map_runs.push(arn.clone()),
            Happened::Entered(_) | Happened::Answered(_) | Happened::Failed { .. } | Happened::Other => {}
        }
    }
    started.dedup();
    (started, map_runs)
}

/// The ARN of the execution that StartExecution begins with these arguments. A machine's alias has no executions of its own.
fn name_execution(arguments: &Value) -> Option<String> {
    let machine = arguments.get("StateMachineArn")?.as_str()?;
    let name = arguments.get("Name")?.as_str()?;
    let parts: Vec<&str> = machine.split(':').take(7).collect();
    let whole = parts.join(":").replacen(":stateMachine:", ":execution:", 1);
    Some(format!("{whole}:{name}"))
}

/// The report of a node.
#[must_use]
pub fn report_node(execution: &Execution) -> NodeReport {
    let mut reader = Reader::new(execution);
    for event in &execution.events {
        reader.read(event);
    }
    reader.finish()
}

/// The report of a rotation with those of its nodes. Who reads them keeps the report of each, not its history: that has up to 25,000 events.
#[must_use]
pub fn report_rotation(rotation: &Execution, mut nodes: Vec<NodeReport>) -> RotationReport {
    nodes.sort_by_key(|node| (node.summary.started_at, node.summary.execution.clone()));
    RotationReport {
        summary: summarize(rotation),
        selection: rotation.input.get("selection").cloned().unwrap_or_default(),
        nodes,
    }
}

fn summarize(execution: &Execution) -> Summary {
    let text = |name: &str| {
        execution
            .output
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let failed = execution.error.clone();
    let outcome = failed.or_else(|| text("outcome"));
    Summary {
        execution: execution.arn.clone(),
        outcome: outcome.unwrap_or_else(|| execution.status.to_lowercase()),
        is_well: matches!(execution.status.as_str(), "SUCCEEDED" | "RUNNING"),
        reason: execution
            .cause
            .clone()
            .or_else(|| text("reason"))
            .unwrap_or_default(),
        started_at: execution.started_at,
        ended_at: execution.ended_at,
        events: execution.events.last().map_or(0, |event| event.id),
    }
}

/// Reads a history, one event after the other.
struct Reader<'a> {
    execution: &'a Execution,
    state: &'a str,
    report: NodeReport,
}

impl<'a> Reader<'a> {
    fn new(execution: &'a Execution) -> Self {
        let given = |name: &str| {
            execution
                .input
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let plan = execution.output.pointer("/plan/steps").and_then(Value::as_array);
        let report = NodeReport {
            summary: summarize(execution),
            instance: given("instance_id"),
            node: None,
            group: None,
            cluster: given("cluster_name"),
            stages: Vec::new(),
            polls: 0,
            looks: Vec::new(),
            pods: Vec::new(),
            blocked: Vec::new(),
            told: Vec::new(),
            troubles: Vec::new(),
            plan: plan
                .into_iter()
                .flatten()
                .filter_map(|step| Some(step.as_str()?.to_owned()))
                .collect(),
        };
        Self {
            execution,
            state: "",
            report,
        }
    }

    fn read(&mut self, event: &'a Event) {
        match &event.what {
            Happened::Entered(state) => self.enter(state, event.at),
            Happened::Answered(result) => self.hear(result, event.at),
            Happened::Failed { error, cause } => self.stumble(error, cause, event.at),
            Happened::Scheduled(_) | Happened::MapRun(_) | Happened::Other => {}
        }
    }

    fn enter(&mut self, state: &'a str, at: Timestamp) {
        self.state = state;
        let Some(stage) = Stage::of_state(state) else {
            return;
        };
        if self.report.stages.last().is_some_and(|last| last.what == stage) {
            return;
        }
        end_last(&mut self.report.stages, at);
        self.report.stages.push(Span {
            what: stage,
            since: at,
            until: None,
        });
    }

    fn hear(&mut self, result: &Value, at: Timestamp) {
        let Some(payload) = result.get("Payload") else {
            return;
        };
        let answer: Answer = serde_json::from_value(payload.clone()).unwrap_or_default();
        self.report.node = answer.run.node.clone().or_else(|| self.report.node.take());
        self.report.group = answer.run.group.clone().or_else(|| self.report.group.take());
        if let Some(tell) = &answer.tell {
            self.report.told.push(Told {
                at,
                event: tell.event.clone(),
                severity: tell.severity.clone(),
                subject: tell.subject.clone(),
            });
        }
        match self.state {
            "CheckPods" => self.look(answer, at),
            "EvictPods" => self.note_refusals(&answer.reason),
            _ => {}
        }
    }

    fn look(&mut self, answer: Answer, at: Timestamp) {
        self.report.polls += 1;
        self.name_pods(&answer, at);
        if self
            .report
            .looks
            .last()
            .is_none_or(|last| last.counts != answer.counts)
        {
            self.report.looks.push(Look {
                at,
                counts: answer.counts,
            });
        }
        self.note_blockage(
            answer.run.blockage.and_then(|blockage| blockage.since),
            answer.tell.map(|tell| tell.blocks).unwrap_or_default(),
            at,
        );
    }

    /// An answer that has much to tell counts pods and names none: then they are as they were.
    fn name_pods(&mut self, answer: &Answer, at: Timestamp) {
        let is_named = |pod: &SeenPod| {
            answer
                .names
                .get(&pod.class)
                .is_some_and(|names| names.contains(&pod.name))
        };
        let is_told =
            |pod: &SeenPod| answer.names.contains_key(&pod.class) || !answer.counts.contains_key(&pod.class);
        for span in self.report.pods.iter_mut().filter(|span| span.until.is_none()) {
            if is_told(&span.what) && !is_named(&span.what) {
                span.until = Some(at);
            }
        }
        for (class, name) in answer
            .names
            .iter()
            .flat_map(|(class, names)| names.iter().map(move |name| (class, name)))
        {
            let pod = SeenPod {
                class: class.clone(),
                name: name.clone(),
            };
            let is_known = self
                .report
                .pods
                .iter()
                .any(|span| span.until.is_none() && span.what == pod);
            if !is_known && self.report.pods.len() < MOST_PODS {
                self.report.pods.push(Span {
                    what: pod,
                    since: at,
                    until: None,
                });
            }
        }
    }

    fn note_blockage(&mut self, since: Option<Timestamp>, blocks: Vec<String>, at: Timestamp) {
        let Some(since) = since else {
            end_last(&mut self.report.blocked, at);
            return;
        };
        match self.report.blocked.last_mut().filter(|last| last.until.is_none()) {
            Some(last) if blocks.is_empty() => last.until = None,
            Some(last) => last.what = blocks,
            None => self.report.blocked.push(Span {
                what: blocks,
                since,
                until: None,
            }),
        }
    }

    /// Until people are told what blocks, the eviction's own words say it.
    fn note_refusals(&mut self, reason: &str) {
        let open = self.report.blocked.last_mut().filter(|last| last.until.is_none());
        if let Some(last) = open.filter(|last| last.what.is_empty()) {
            last.what = vec![reason.to_owned()];
        }
    }

    fn stumble(&mut self, error: &str, cause: &str, at: Timestamp) {
        if self.report.troubles.len() < MOST_TROUBLES {
            self.report.troubles.push(Trouble {
                at,
                state: self.state.to_owned(),
                error: error.to_owned(),
                cause: read_cause(cause),
            });
        }
    }

    fn finish(mut self) -> NodeReport {
        if let Some(end) = self.execution.ended_at {
            end_last(&mut self.report.stages, end);
            end_last(&mut self.report.blocked, end);
            for span in self.report.pods.iter_mut().filter(|span| span.until.is_none()) {
                span.until = Some(end);
            }
        }
        thin(&mut self.report.looks);
        self.report
    }
}

fn end_last<What>(spans: &mut [Span<What>], at: Timestamp) {
    if let Some(last) = spans.last_mut() {
        last.until.get_or_insert(at);
    }
}

/// A Lambda's cause is a JSON document with the text in it.
fn read_cause(cause: &str) -> String {
    let document: Option<Value> = serde_json::from_str(cause).ok();
    let text = document
        .as_ref()
        .and_then(|document| document.get("errorMessage")?.as_str());
    text.unwrap_or(cause).to_owned()
}

/// Evenly, the first and the last stay.
fn thin(looks: &mut Vec<Look>) {
    let every = looks.len().div_ceil(MOST_LOOKS).max(1);
    let last = looks.len().saturating_sub(1);
    let mut index = 0;
    looks.retain(|_| {
        let stays = index % every == 0 || index == last;
        index += 1;
        stays
    });
}

#[cfg(test)]
mod tests;
