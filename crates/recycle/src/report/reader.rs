//! Reads the history of an execution event by event.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::report::event::{Event, Execution, Happened, Stage};
use crate::report::parts::{
    Look, MOST_PODS, MOST_TROUBLES, NodeReport, SeenPod, Span, Told, Trouble, summarize, thin,
};

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

/// Reads a history, one event after the other.
pub(crate) struct Reader<'a> {
    execution: &'a Execution,
    state: &'a str,
    report: NodeReport,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(execution: &'a Execution) -> Self {
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

    pub(crate) fn read(&mut self, event: &'a Event) {
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

    pub(crate) fn finish(mut self) -> NodeReport {
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
