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

/// Describes the result of a rotation in one sentence.
pub(super) fn describe_result(nodes: &[&NodeReport], took: &str) -> String {
    let mut counts: BTreeMap<Result, usize> = BTreeMap::new();
    for node in nodes {
        *counts.entry(Result::of(node)).or_default() += 1;
    }
    if counts.is_empty() {
        return format!("No node was recycled. The rotation took {took}.");
    }
    let counted: Vec<String> = counts
        .iter()
        .map(|(result, nodes)| result.describe(*nodes))
        .collect();
    format!("{}. The rotation took {took}.", counted.join(", "))
}

pub(super) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use recycle::report::parts::SentNotification;
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
            describe_result(&nodes, "2h"),
            "2 nodes were replaced, 1 node is under way, 1 node was left as it is, 1 node was restored after a failure, 1 node needs an \
             operator. The rotation took 2h."
        );
        assert_eq!(
            describe_result(&[], "2h"),
            "No node was recycled. The rotation took 2h."
        );
    }
}
