//! The view of a rotation: its own history, together with the histories of its groups' executions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::base::error::Error;
use crate::base::times::moment;
use crate::history::group::{Counts, GroupHistory, Passes, Wait};
use crate::history::node::History;
use crate::history::rotation_end::describe_rotation_end;
use crate::history::started_by::Starter;

/// The maximum number of wait reasons that the view names for a group.
const MOST_REASONS: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct RotationHistory {
    pub arn: String,
    /// The rotation's own history.
    pub history: History,
    /// The groups, by the ARNs of their executions.
    pub groups: BTreeMap<String, GroupHistory>,
    /// A sentence that says why the rotation or its groups could not be read at the last check. None if they could be read.
    pub unread: Option<String>,
    pub checks: u32,
}

impl RotationHistory {
    pub(crate) fn new(arn: &str) -> Self {
        Self {
            arn: arn.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the group of a node, and the criteria by which the node was selected. Only a dry run has the criteria.
    pub(crate) fn find_criteria(&self, node: &str) -> Option<(&str, Vec<&str>)> {
        let mut groups = self.groups.values();
        let group = groups.find(|group| group.nodes.iter().any(|other| other == node))?;
        Some((&group.group, group.list_criteria(node)))
    }

    /// Whether it is a plan, which changes nothing.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.history.input["dry_run"] == true
    }

    /// The trigger in its input, with which the names of its nodes' executions begin.
    pub(crate) fn starter(&self) -> Starter {
        Starter::new(self.arn.clone(), &self.history.input)
    }

    fn groups(&self) -> Vec<Passes<'_>> {
        Passes::list(self.groups.values())
    }

    /// Describes in a sentence what the rotation does, or how it has ended.
    pub(crate) fn describe(&self) -> String {
        match (&self.history.end, self.history.reason()) {
            (Some(end), _) => describe_rotation_end(end),
            (None, "") => "is under way".to_owned(),
            (None, reason) => reason.to_owned(),
        }
    }

    /// Describes the progress of the rotation, or why it cannot be read. None before the nodes are known, and after the end.
    pub(crate) fn describe_progress(&self) -> Option<String> {
        if self.history.end.is_some() {
            return None;
        }
        if let Some(unread) = &self.unread {
            return Some(unread.clone());
        }
        let counts = Counts::default();
        let counts = self
            .groups()
            .iter()
            .fold(counts, |counts, group| group.count_on(counts));
        (counts.nodes > 0).then(|| describe_counts(counts))
    }

    /// Lists the groups that have not ended: the name, the share of nodes whose iterations have ended (from 0 to 1), and a sentence.
    pub(crate) fn list_groups(&self) -> Vec<(String, f64, String)> {
        let groups = self.groups().into_iter();
        let running = groups.filter(|group| !group.has_ended());
        running.map(|group| describe_group(&group)).collect()
    }

    pub(crate) fn document(&self) -> Value {
        let groups = self.groups().into_iter().map(|group| {
            let counts = group.count();
            let waits = group.list_waits().map(|(node, wait)| {
                json!({"instance_id": node, "since": wait.since, "until": wait.until, "reason": wait.reason})
            });
            json!({"group": group.group, "nodes": counts.nodes, "done": counts.done, "failed": counts.failed, "left": counts.left,
                "under_way": counts.under_way, "passes": group.begun(), "has_ended": group.has_ended(),
                "waits": waits.collect::<Vec<_>>()})
        });
        json!({"execution_arn": self.arn, "started": self.history.started, "trigger": self.starter().trigger,
            "groups": groups.collect::<Vec<_>>(), "unread": self.unread})
    }
}

fn describe_group(group: &Passes<'_>) -> (String, f64, String) {
    let counts = group.count();
    let share = (counts.done + counts.failed + counts.left) as f64 / counts.nodes as f64;
    let mut parts = vec![describe_counts(counts)];
    if group.count_next() > 0 {
        parts.push(format!(
            "pass {} begins when the other groups have ended theirs",
            group.begun() + 1
        ));
    }
    let left_out = Some(group.left_out().to_owned()).filter(|text| !text.is_empty());
    parts.extend(left_out);
    parts.extend(describe_waits(group));
    (group.group.to_owned(), share, parts.join("; "))
}

pub(crate) fn describe_unread(what: &str, error: &Error) -> String {
    if error.is_outage() {
        format!("{what} cannot be read at the moment: {error}")
    } else {
        format!("{what} cannot be read: {error}")
    }
}

fn describe_counts(counts: Counts) -> String {
    let mut text = format!("{} of {} done", counts.done, counts.nodes);
    for (count, what) in [
        (counts.failed, "failed"),
        (counts.left, "skipped"),
        (counts.under_way, "under way"),
    ] {
        if count > 0 {
            text = format!("{text}, {count} {what}");
        }
    }
    text
}

/// Describes the waits of a group. Nodes that wait for the same reason share a sentence.
fn describe_waits(group: &Passes<'_>) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<(&str, &Wait)>)> = Vec::new();
    for (node, wait) in group.list_waits() {
        match reasons.iter_mut().find(|(reason, _)| *reason == wait.reason) {
            Some((_, waits)) => waits.push((node, wait)),
            None => reasons.push((&wait.reason, vec![(node, wait)])),
        }
    }
    let texts = reasons.into_iter().take(MOST_REASONS).map(|(reason, waits)| {
        let since = waits.iter().map(|(_, wait)| wait.since).min();
        let next = waits.iter().map(|(_, wait)| wait.until).min();
        let (since, next) = (
            since.map_or_else(String::new, moment),
            next.map_or_else(String::new, moment),
        );
        // The reason is that of the last check, and may be over.
        let why = format!("since {since}: {reason} (next check {next})");
        match waits.as_slice() {
            [(node, _)] => format!("{node} waits {why}"),
            several => format!("{} nodes wait {why}", several.len()),
        }
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use recycle::report::event::{Event, EventKind};
    use scripted_aws::ScriptedAws;

    use super::*;
    use crate::aws::step_functions::StepFunctions;
    use crate::history::cursor::View as _;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_798_761_600 + seconds).unwrap()
    }

    /// Three nodes, one at a time: the first took an hour, the second waits.
    fn rotation(second: EventKind) -> RotationHistory {
        let mut group = GroupHistory::default();
        let reason = "3 nodes; executions already work on 1 more";
        let nodes = json!({"nodes": ["i-1", "i-2", "i-3"], "at_once": 1, "reason": reason});
        for (id, (previous, seconds, what)) in (1..).zip([
            (0, 0, EventKind::Started(json!({"group": "workers"}))),
            (1, 0, EventKind::Answered(nodes)),
            (2, 0, EventKind::NodeAsked(0)),
            (3, 3_600, EventKind::NodeDone(json!({"end": "recycled"}))),
            (2, 3_600, EventKind::NodeAsked(1)),
            (5, 3_600, second),
        ]) {
            group.read(Event {
                id,
                previous,
                at: at(seconds),
                what,
            });
        }
        let mut rotation = RotationHistory::new("arn:aws:states:eu-west-1:1:execution:m:weekly");
        rotation.groups.insert("child".to_owned(), group);
        rotation
    }

    fn paused() -> EventKind {
        EventKind::Answered(
            json!({"verdict": "wait", "reason": "group workers has the tag recycle-eks:paused", "wait_seconds": 60}),
        )
    }

    #[test]
    fn a_group_shows_its_counts_and_its_waits() {
        let rotation = rotation(paused());
        assert_eq!(
            rotation.list_groups(),
            [(
                "workers".to_owned(),
                1.0 / 3.0,
                "1 of 3 done; executions already work on 1 more; i-2 waits since 2027-01-01 01:00Z: group workers has the tag recycle-eks:paused (next check 2027-01-01 01:01Z)"
                    .to_owned()
            )]
        );
        assert_eq!(rotation.describe_progress().as_deref(), Some("1 of 3 done"));
        let group = &rotation.document()["groups"][0];
        assert_eq!(
            (group["done"].as_u64(), group["waits"][0]["instance_id"].as_str()),
            (Some(1), Some("i-2"))
        );
    }

    #[test]
    fn nodes_under_way_are_counted() {
        let start = EventKind::Answered(json!({"verdict": "start", "reason": "i-2 may start"}));
        assert_eq!(
            rotation(start).describe_progress().as_deref(),
            Some("1 of 3 done, 1 under way")
        );
    }

    #[test]
    fn a_rotation_without_known_groups_is_under_way_and_shows_the_read_error() {
        let mut rotation = RotationHistory::new("arn");
        assert_eq!(
            (rotation.describe().as_str(), rotation.describe_progress()),
            ("is under way", None)
        );
        let error = Error::Refused("no".to_owned());
        rotation.unread = Some(describe_unread("its groups", &error));
        assert_eq!(
            rotation.describe_progress().as_deref(),
            Some("its groups cannot be read: no")
        );
    }

    const LISTED: &str = r#"{"executions": [{"executionArn": "child", "stateMachineArn": "m", "name": "child", "status": "RUNNING",
        "startDate": 1798761600}]}"#;
    const ROTATION: &str = r#"{"events": [{"id": 1, "previousEventId": 0, "timestamp": 1798761600, "type": "MapRunStarted",
        "mapRunStartedEventDetails": {"mapRunArn": "run"}}]}"#;
    const GROUP: &str = r#"{"events": [{"id": 1, "previousEventId": 0, "timestamp": 1798761600, "type": "TaskSucceeded",
        "taskSucceededEventDetails": {"resourceType": "lambda", "resource": "invoke",
        "output": "{\"Payload\": {\"nodes\": [\"i-1\"], \"at_once\": 1}}"}}]}"#;

    #[tokio::test]
    async fn a_throttle_hides_the_progress_but_not_the_rotation() {
        let throttled = |aws: ScriptedAws| {
            aws.refuses("GetExecutionHistory", 400, "ThrottlingException", "rate exceeded")
        };
        let aws = throttled(ScriptedAws::new())
            .on("GetExecutionHistory", ROTATION)
            .on("ListExecutions", LISTED);
        let aws = throttled(aws)
            .on("GetExecutionHistory", r#"{"events": []}"#)
            .on("ListExecutions", LISTED)
            .on("GetExecutionHistory", GROUP);
        let (states, mut rotation) = (StepFunctions::new(&aws.config()), RotationHistory::new("arn"));
        for expected in [
            "its history cannot be read at the moment: ",
            "its groups cannot be read at the moment: ",
            "0 of 1 done",
        ] {
            rotation.read_all(&states).await.unwrap();
            let progress = rotation.describe_progress().unwrap();
            assert!(progress.starts_with(expected), "{progress}");
        }
        assert_eq!((aws.exchanges_left(), &rotation.unread), (0, &None));
    }

    #[tokio::test]
    async fn the_status_of_the_execution_decides_whether_a_group_has_ended() {
        for (status, has_ended) in [
            ("RUNNING", false),
            ("PENDING_REDRIVE", false),
            ("FAILED", true),
            ("TIMED_OUT", true),
            ("ABORTED", true),
        ] {
            let aws = ScriptedAws::new()
                .on("GetExecutionHistory", ROTATION)
                .on("ListExecutions", &LISTED.replace("RUNNING", status))
                .on("GetExecutionHistory", GROUP);
            let mut rotation = RotationHistory::new("arn");
            rotation
                .read_all(&StepFunctions::new(&aws.config()))
                .await
                .unwrap();
            assert_eq!(rotation.groups["child"].has_ended, has_ended, "{status}");
            assert_eq!(aws.exchanges_left(), 0);
        }
    }
}
