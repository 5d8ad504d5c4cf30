//! Describes the selection and the result of a rotation in words.

use std::collections::BTreeMap;

use recycle::report::history::RotationReport;
use recycle::report::parts::NodeReport;
use serde_json::Value;

/// The criteria of a selection, in the words of a rotation's input, and their descriptions.
const CRITERIA: [(&str, &str); 4] = [
    ("all", "all nodes"),
    ("launch_template", "nodes with an old launch template"),
    ("ami", "nodes with an old image"),
    ("kubelet", "nodes with an old kubelet"),
];

/// Describes the field `selection` of a rotation's input.
pub(super) fn describe_selection(selection: &Value) -> String {
    if let Some(instances) = selection["instance_ids"].as_array() {
        return count(instances.len(), "chosen node");
    }
    if selection["alarm"].is_object() {
        return "the node that an alarm points to".to_owned();
    }
    let outdated = &selection["outdated"];
    let criteria = CRITERIA.iter().filter(|(name, _)| outdated[name] == true);
    let mut criteria: Vec<String> = criteria.map(|(_, text)| (*text).to_owned()).collect();
    if let Some(age) = outdated["older_than"].as_str() {
        criteria.push(format!("nodes older than {age}"));
    }
    if let Some(time) = outdated["launched_before"].as_str() {
        criteria.push(format!("nodes launched before {time}"));
    }
    let mut text = if criteria.is_empty() {
        selection.to_string()
    } else {
        criteria.join(", ")
    };
    let groups = outdated["groups"].as_array().into_iter().flatten();
    let groups: Vec<&str> = groups.filter_map(Value::as_str).collect();
    if !groups.is_empty() {
        text = format!("{text}, in the groups {}", groups.join(", "));
    }
    let tag = &outdated["group_tag"];
    if let (Some(key), Some(value)) = (tag["key"].as_str(), tag["value"].as_str()) {
        text = format!("{text}, in the groups with the tag {key}={value}");
    }
    if let Some(labels) = outdated["node_labels"].as_str() {
        text = format!("{text}, with the labels {labels}");
    }
    text
}

/// The result for a node, as a manager asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Result {
    Replaced,
    Running,
    /// Nothing was changed, or another execution works on the node.
    Untouched,
    /// The execution was stopped or timed out. The sweep restores the node in an execution of its own.
    Stopped,
    Restored,
    NeedsOperator,
}

impl Result {
    pub(super) fn of(node: &NodeReport) -> Self {
        let last = node.notifications.last();
        match (
            node.summary.outcome.as_str(),
            last.map(|sent| (sent.event.as_str(), sent.severity.as_str())),
        ) {
            ("running", _) => Self::Running,
            ("recycled" | "released" | "already_gone", _) => Self::Replaced,
            (_, Some(("restored", _))) => Self::Restored,
            (_, Some((_, "critical"))) => Self::NeedsOperator,
            ("LeftInStandby" | "NodeLost", _) => Self::NeedsOperator,
            ("ABORTED" | "TIMED_OUT", _) => Self::Stopped,
            (_, Some(_) | None) => Self::Untouched,
        }
    }

    /// Describes the result for so many nodes.
    fn describe(self, nodes: usize) -> String {
        let (one, many) = match self {
            Self::Replaced => ("was replaced", "were replaced"),
            Self::Running => ("is under way", "are under way"),
            Self::Untouched => ("was left as it is", "were left as they are"),
            Self::Stopped => (
                "was stopped, and is restored by the sweep",
                "were stopped, and are restored by the sweep",
            ),
            Self::Restored => ("was restored after a failure", "were restored after a failure"),
            Self::NeedsOperator => ("needs an operator", "need an operator"),
        };
        format!("{} {}", count(nodes, "node"), if nodes == 1 { one } else { many })
    }
}

/// Returns the last report of each instance. A node has several if the rotation has tried it again.
pub(super) fn last_attempts(rotation: &RotationReport) -> Vec<&NodeReport> {
    let mut last: BTreeMap<Option<&str>, &NodeReport> = BTreeMap::new();
    for node in &rotation.nodes {
        last.insert(node.instance.as_deref(), node);
    }
    let mut nodes: Vec<&NodeReport> = last.into_values().collect();
    nodes.sort_by_key(|node| node.summary.started_at);
    nodes
}

/// Returns the instance that replaces a node. None if the node was restored, because its group then has its old size again.
pub(super) fn replacement(node: &NodeReport) -> Option<&str> {
    let replacement = node.replacement.as_deref();
    replacement.filter(|_| Result::of(node) != Result::Restored)
}

/// Returns the number of skipped nodes without an execution. 0 before the end of the rotation.
fn count_skipped(rotation: &RotationReport, nodes: &[&NodeReport]) -> usize {
    // The state machine counts a duplicate as a failure, and every other execution that has succeeded without recycling as skipped.
    let is_skipped = |node: &&&NodeReport| {
        node.summary.is_well
            && !matches!(
                node.summary.outcome.as_str(),
                "recycled" | "duplicate" | "running"
            )
    };
    let skipped = rotation.skipped.unwrap_or_default() as usize;
    skipped.saturating_sub(nodes.iter().filter(is_skipped).count())
}

/// Describes the result of a rotation in one sentence. `nodes` are the last attempts.
pub(super) fn describe_result(rotation: &RotationReport, nodes: &[&NodeReport], took: &str) -> String {
    let mut counts: BTreeMap<Result, usize> = BTreeMap::new();
    for node in nodes {
        *counts.entry(Result::of(node)).or_default() += 1;
    }
    let counts = counts.iter().map(|(result, nodes)| result.describe(*nodes));
    let mut counted: Vec<String> = counts.collect();
    match count_skipped(rotation, nodes) {
        0 => {}
        1 => counted.push("1 node was skipped".to_owned()),
        skipped => counted.push(format!("{skipped} nodes were skipped")),
    }
    if counted.is_empty() {
        return format!("No node was recycled. The rotation took {took}.");
    }
    format!("{}. The rotation took {took}.", counted.join(", "))
}

/// Says how the nodes are recycled that a rotation has skipped or restored. None if there are none, and before the end of the rotation.
pub(super) fn describe_next(rotation: &RotationReport, nodes: &[&NodeReport]) -> Option<String> {
    rotation.skipped?;
    let skipped = count_skipped(rotation, nodes);
    let others = nodes.iter().filter(|node| {
        matches!(
            Result::of(node),
            Result::Untouched | Result::Restored | Result::Stopped
        )
    });
    let others: Vec<&str> = others.filter_map(|node| node.instance.as_deref()).collect();
    if skipped == 0 && others.is_empty() {
        return None;
    }
    let selection = &rotation.selection;
    let how = if selection["outdated"]["all"] == true {
        let began = rotation.summary.started_at;
        format!(
            "start a rotation with --launched-before {began} instead of --all, which also selects the new nodes"
        )
    } else if selection["outdated"].is_object() {
        "start the rotation again: it selects only nodes that are still outdated".to_owned()
    } else if skipped > 0 {
        "start a rotation with their instances".to_owned()
    } else {
        let flags: Vec<String> = others.iter().map(|id| format!("--instance {id}")).collect();
        format!("run recycle-eks rotate {}", flags.join(" "))
    };
    Some(format!("To recycle the other nodes, {how}."))
}

pub(super) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use recycle::report::parts::{SentNotification, Summary};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selection_is_described_in_words() {
        let cases = [
            (json!({"outdated": {"all": true}}), "all nodes"),
            (json!({"instance_ids": ["i-1"]}), "1 chosen node"),
            (json!({"instance_ids": ["i-1", "i-2"]}), "2 chosen nodes"),
            (json!({"alarm": {}}), "the node that an alarm points to"),
            (
                json!({"outdated": {"ami": true, "older_than": "14d", "groups": ["a", "b"], "node_labels": "gpu"}}),
                "nodes with an old image, nodes older than 14d, in the groups a, b, with the labels gpu",
            ),
            (
                json!({"outdated": {"launched_before": "2027-01-01T00:00:00Z", "group_tag": {"key": "team", "value": "ml"}}}),
                "nodes launched before 2027-01-01T00:00:00Z, in the groups with the tag team=ml",
            ),
        ];
        for (selection, text) in cases {
            assert_eq!(describe_selection(&selection), text);
        }
    }

    fn node(outcome: &str, sent: Option<(&str, &str)>) -> NodeReport {
        let mut node = NodeReport::default();
        node.summary.outcome = outcome.to_owned();
        node.notifications = sent
            .map(|(event, severity)| SentNotification {
                at: node.summary.started_at,
                event: event.to_owned(),
                severity: severity.to_owned(),
                subject: String::new(),
            })
            .into_iter()
            .collect();
        node
    }

    #[test]
    fn the_result_of_a_rotation_is_one_sentence() {
        let nodes = [
            node("recycled", Some(("finished", "info"))),
            node("recycled", None),
            node("running", Some(("blocked", "warning"))),
            node("DrainTimedOut", Some(("restored", "warning"))),
            node("LeftInStandby", Some(("left_in_standby", "critical"))),
            node("PreflightRefused", Some(("failed", "warning"))),
        ];
        let nodes: Vec<&NodeReport> = nodes.iter().collect();
        assert_eq!(
            describe_result(&rotation(None), &nodes, "2h"),
            "2 nodes were replaced, 1 node is under way, 1 node was left as it is, 1 node was restored after a failure, 1 node needs an \
             operator. The rotation took 2h."
        );
    }

    fn rotation(skipped: Option<u32>) -> RotationReport {
        RotationReport {
            summary: Summary::default(),
            selection: json!({"outdated": {"ami": true}}),
            groups: vec![],
            skipped,
            waits: vec![],
            nodes: vec![],
        }
    }

    #[test]
    fn a_skipped_node_is_counted_once_whether_it_has_an_execution_or_not() {
        let succeeded = |outcome: &&str| {
            let mut node = node(outcome, None);
            node.summary.is_well = true;
            node
        };
        for (outcomes, skipped, text) in [
            (&[][..], None, "No node was recycled"),
            (&[], Some(0), "No node was recycled"),
            (
                &["recycled"],
                Some(3),
                "1 node was replaced, 3 nodes were skipped",
            ),
            (&["already_gone"], Some(1), "1 node was replaced"),
            (
                &["superseded"],
                Some(2),
                "1 node was left as it is, 1 node was skipped",
            ),
            (&["duplicate"], Some(0), "1 node was left as it is"),
        ] {
            let nodes: Vec<NodeReport> = outcomes.iter().map(succeeded).collect();
            let nodes: Vec<&NodeReport> = nodes.iter().collect();
            let result = describe_result(&rotation(skipped), &nodes, "2h");
            assert_eq!(
                result,
                format!("{text}. The rotation took 2h."),
                "{outcomes:?} {skipped:?}"
            );
        }
    }

    #[test]
    fn an_ended_rotation_says_how_the_other_nodes_are_recycled() {
        let of = |name: &str, outcome: &str, sent| NodeReport {
            instance: Some(name.to_owned()),
            ..node(outcome, sent)
        };
        let nodes = [
            of("i-1", "recycled", None),
            of("i-2", "running", None),
            of("i-3", "LeftInStandby", None),
            of("i-4", "DrainTimedOut", Some(("restored", "warning"))),
            of("i-5", "QueueTimedOut", None),
        ];
        let (all, ami) = (
            json!({"outdated": {"all": true}}),
            json!({"outdated": {"ami": true}}),
        );
        for (selection, skipped, nodes, words) in [
            (
                all,
                0,
                &nodes[..],
                Some("--launched-before 1970-01-01T00:00:00Z instead"),
            ),
            (ami.clone(), 0, &nodes, Some("start the rotation again: it")),
            (
                json!({"instance_ids": []}),
                0,
                &nodes,
                Some("rotate --instance i-4 --instance i-5."),
            ),
            (
                json!({"instance_ids": []}),
                1,
                &nodes,
                Some("with their instances"),
            ),
            (ami, 0, &nodes[..3], None),
        ] {
            let nodes: Vec<&NodeReport> = nodes.iter().collect();
            let ended = RotationReport {
                selection,
                ..rotation(Some(skipped))
            };
            let running = RotationReport {
                skipped: None,
                ..ended.clone()
            };
            assert_eq!(describe_next(&running, &nodes), None);
            let text = describe_next(&ended, &nodes);
            assert_eq!(text.is_some(), words.is_some(), "{words:?} {text:?}");
            assert!(
                text.unwrap_or_default().contains(words.unwrap_or_default()),
                "{words:?}"
            );
        }
    }

    #[test]
    fn a_restored_node_has_no_replacement() {
        for (outcome, sent, expected) in [
            ("recycled", None, Some("i-2")),
            ("DrainTimedOut", Some(("restored", "warning")), None),
        ] {
            let mut node = node(outcome, sent);
            node.replacement = Some("i-2".to_owned());
            assert_eq!(replacement(&node), expected, "{outcome}");
        }
    }
}
