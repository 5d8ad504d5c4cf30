//! Reads the history of an execution, event by event.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::drain::blocked::RefusalKind;
use crate::report::event::{Event, EventKind, Execution, find_box, name_execution};
use crate::report::parts::{
    FailedAttempt, Look, MOST_FAILED_ATTEMPTS, MOST_PODS, NodeReport, SeenPod, SentNotification, Span,
    read_cause, summarize, thin,
};

/// The fields that are read from an answer, of any version. Missing fields are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    counts: BTreeMap<String, u32>,
    names: BTreeMap<String, Vec<String>>,
    reason: String,
    replacement: Option<String>,
    notification: Option<Notification>,
    run: Carried,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Notification {
    event: String,
    severity: String,
    subject: String,
    blocks: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Carried {
    node: Option<String>,
    group: Option<String>,
    blockage: Option<Blockage>,
}

#[derive(Debug, Default, Deserialize)]
struct Blockage {
    since: Option<Timestamp>,
}

/// The end of a text that was cut to fit into a notification.
const CUT: char = '…';

/// Returns the ARNs of the executions of `recycle-node` that this history has started.
/// Also returns the Distributed Maps whose children may have started more.
pub fn find_started(events: &[Event]) -> (Vec<String>, Vec<String>) {
    let (mut started, mut map_runs) = (Vec::new(), Vec::new());
    for event in events {
        if let EventKind::Scheduled(arguments) = &event.what {
            started.extend(read_start(arguments));
        } else if let EventKind::MapRun(arn) = &event.what {
            map_runs.push(arn.clone());
        }
    }
    started.dedup();
    (started, map_runs)
}

/// Returns the ARN of the execution that StartExecution begins with these arguments.
fn read_start(arguments: &Value) -> Option<String> {
    let machine = arguments["StateMachineArn"].as_str()?;
    Some(name_execution(machine, arguments["Name"].as_str()?))
}

/// A reader of a history, one event after the other.
pub(crate) struct Reader<'a> {
    state: &'a str,
    report: NodeReport,
    /// Reason of the last answer of `evict-pods`, which names the blockers in full.
    refusals: String,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(execution: &Execution, events: &[Event]) -> Self {
        let given = |name: &str| execution.input[name].as_str().map(str::to_owned);
        let output = execution.end.as_ref().map(|end| &end.output);
        let plan = output.and_then(|output| output["plan"]["steps"].as_array());
        let steps = plan.into_iter().flatten().filter_map(Value::as_str);
        Self {
            state: "",
            refusals: String::new(),
            report: NodeReport {
                summary: summarize(execution, events),
                instance: given("instance_id"),
                cluster: given("cluster_name"),
                plan: steps.map(str::to_owned).collect(),
                ..NodeReport::default()
            },
        }
    }

    pub(crate) fn read(&mut self, event: &'a Event) {
        match &event.what {
            EventKind::Entered(state) => self.enter(state, event.at),
            EventKind::Answered(answer) => self.read_answer(answer, event.at),
            EventKind::Failed { error, cause } => self.note_failure(error, cause, event.at),
            EventKind::Started(_)
            | EventKind::Scheduled(_)
            | EventKind::MapRun(_)
            | EventKind::NodeAsked(_)
            | EventKind::NodeDone(_)
            | EventKind::Ended(_)
            | EventKind::Other => {}
        }
    }

    fn enter(&mut self, state: &'a str, at: Timestamp) {
        self.state = state;
        if state == "RestoreNode" {
            // The node waits for nothing any more, whatever still runs there.
            self.end_waits(at);
        }
        let stages = &mut self.report.stages;
        if let Some((_, stage)) = find_box(state)
            && stages.last().is_none_or(|last| last.what != stage)
        {
            end_last(stages, at);
            stages.push(Span::begin(stage, at));
        }
    }

    fn read_answer(&mut self, answer: &Value, at: Timestamp) {
        let answer = Answer::deserialize(answer).unwrap_or_default();
        self.report.node = answer.run.node.clone().or_else(|| self.report.node.take());
        self.report.group = answer.run.group.clone().or_else(|| self.report.group.take());
        self.report
            .notifications
            .extend(answer.notification.as_ref().map(|sent| SentNotification {
                at,
                event: sent.event.clone(),
                severity: sent.severity.clone(),
                subject: sent.subject.clone(),
            }));
        self.report.replacement = answer
            .replacement
            .clone()
            .or_else(|| self.report.replacement.take());
        match self.state {
            "CheckPods" => self.note_check(answer, at),
            "EvictPods" => self.note_refusals(answer),
            _ => {}
        }
    }

    fn note_check(&mut self, answer: Answer, at: Timestamp) {
        self.report.polls += 1;
        self.name_pods(&answer, at);
        let since = answer.run.blockage.and_then(|blockage| blockage.since);
        let blocks = answer.notification.map(|sent| sent.blocks).unwrap_or_default();
        let blocks = blocks.iter();
        let blocks = blocks.map(|block| complete(block, [&answer.reason, &self.refusals]));
        let blocks = blocks.collect();
        self.note_blockage(since, blocks, at);
        let counts = answer.counts;
        let looks = &mut self.report.looks;
        if looks.last().is_none_or(|last| last.counts != counts) {
            looks.push(Look { at, counts });
        }
    }

    /// Records the pods that an answer names. A large answer counts pods and names none. The spans of pods in these classes then continue.
    fn name_pods(&mut self, answer: &Answer, at: Timestamp) {
        let is_away = |pod: &SeenPod| match answer.names.get(&pod.class) {
            Some(names) => !names.contains(&pod.name),
            None => !answer.counts.contains_key(&pod.class),
        };
        let pods = &mut self.report.pods;
        for span in pods.iter_mut().filter(|span| is_away(&span.what)) {
            span.until.get_or_insert(at);
        }
        for (class, names) in &answer.names {
            for name in names {
                let (class, name) = (class.clone(), name.clone());
                let pod = SeenPod { class, name };
                let is_known = pods.iter().any(|span| span.until.is_none() && span.what == pod);
                if !is_known && pods.len() < MOST_PODS {
                    pods.push(Span::begin(pod, at));
                }
            }
        }
    }

    fn note_blockage(&mut self, since: Option<Timestamp>, blocks: Vec<String>, at: Timestamp) {
        match (since, self.find_blockage()) {
            (None, _) => {
                end_last(&mut self.report.blocked, at);
                self.refusals.clear();
            }
            (Some(since), None) => {
                let refusals =
                    Some(self.refusals.clone()).filter(|text| !text.is_empty() && blocks.is_empty());
                let blocks = refusals.map_or(blocks, |text| vec![text]);
                self.report.blocked.push(Span::begin(blocks, since));
            }
            (Some(_), Some(last)) if !blocks.is_empty() => last.what = blocks,
            (Some(_), Some(_)) => {}
        }
    }

    /// Records the reason of an `evict-pods` that was refused as the blockage, until a notification lists the causes.
    fn note_refusals(&mut self, answer: Answer) {
        let is_refusal = |kind: &RefusalKind| answer.counts.contains_key(kind.name());
        if !RefusalKind::BLOCKING.iter().any(is_refusal) {
            return;
        }
        let reason = answer.reason;
        if let Some(last) = self.find_blockage().filter(|last| last.what.is_empty()) {
            last.what = vec![reason.clone()];
        }
        self.refusals = reason;
    }

    /// Returns the blockage that lasts, if there is one.
    fn find_blockage(&mut self) -> Option<&mut Span<Vec<String>>> {
        self.report.blocked.last_mut().filter(|last| last.until.is_none())
    }

    fn note_failure(&mut self, error: &str, cause: &str, at: Timestamp) {
        if self.report.failed_attempts.len() < MOST_FAILED_ATTEMPTS {
            self.report.failed_attempts.push(FailedAttempt {
                at,
                state: self.state.to_owned(),
                error: error.to_owned(),
                cause: read_cause(cause),
            });
        }
    }

    fn end_waits(&mut self, at: Timestamp) {
        end_last(&mut self.report.blocked, at);
        for span in &mut self.report.pods {
            span.until.get_or_insert(at);
        }
    }

    pub(crate) fn finish(mut self, execution: &Execution) -> NodeReport {
        if let Some(end) = execution.ended_at {
            end_last(&mut self.report.stages, end);
            self.end_waits(end);
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

/// Completes a text that was cut, from the first of these reasons that has it in full. A reason joins its parts with semicolons.
fn complete(block: &str, reasons: [&str; 2]) -> String {
    let Some(begin) = block.strip_suffix(CUT) else {
        return block.to_owned();
    };
    let mut whole = reasons.iter().filter_map(|reason| {
        let rest = reason.split_once(begin)?.1.split("; ").next()?;
        (!rest.ends_with(CUT)).then(|| format!("{begin}{rest}"))
    });
    whole.next().unwrap_or_else(|| block.to_owned())
}
