//! Reads the end of a rotation, group by group, from its output or from the cause of its failure.

use recycle::report::event::End;
use serde::Deserialize;

use crate::base::exit::Exit;
use crate::history::end::{describe_end, exit_of};
use crate::history::group::find_left_out;

/// The maximum number of failed nodes that the end of a group names (`state-machine/rotate-nodes.asl.json`).
const NAMED: usize = 10;
/// The text for a group whose execution broke.
const UNKNOWN: &str = "the number of recycled nodes is unknown";

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct GroupEnd {
    group: String,
    /// The number of recycled nodes. None if the group's execution broke before it counted them.
    recycled: Option<u32>,
    #[serde(default)]
    failed: Vec<FailedNode>,
    /// The number of failed nodes in all passes. None if the group's execution broke before it counted them.
    failed_nodes: Option<u32>,
    #[serde(default)]
    left: u32,
    #[serde(default)]
    why: Vec<String>,
    #[serde(default)]
    error: Vec<String>,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct FailedNode {
    node: String,
    #[serde(default)]
    why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RotationEnd {
    groups: Vec<GroupEnd>,
}

impl RotationEnd {
    /// Reads the groups from the end of a rotation. None if the end has no groups.
    pub(crate) fn read(end: &End) -> Option<Self> {
        let mut result = end.output.clone();
        if result.is_null() {
            result = serde_json::from_str(&end.cause).unwrap_or_default();
        }
        let groups = result["groups"].as_array()?.iter();
        let groups = groups.filter_map(|group| GroupEnd::deserialize(group).ok());
        let groups = groups.collect();
        Some(Self { groups })
    }

    /// Whether any group has ended with an error of its own.
    pub(crate) fn has_error(&self) -> bool {
        self.groups.iter().any(|group| !group.error.is_empty())
    }

    fn sum(&self, count: fn(&GroupEnd) -> u32) -> u32 {
        self.groups.iter().map(count).fold(0, u32::saturating_add)
    }

    /// The number of skipped nodes. None if the execution of a group broke before it counted them.
    pub(crate) fn count_skipped(&self) -> Option<u32> {
        let is_known = self.groups.iter().all(|group| group.recycled.is_some());
        is_known.then(|| self.sum(|group| group.left))
    }

    /// Describes all groups in one sentence.
    pub(crate) fn summary(&self) -> String {
        let is_broken = self.groups.iter().any(|group| group.recycled.is_none());
        if is_broken && self.groups.iter().all(|group| group.recycled.is_none()) {
            return UNKNOWN.to_owned();
        }
        let has_more = self.groups.iter().any(GroupEnd::has_more_failures);
        let recycled = self.sum(|group| group.recycled.unwrap_or(0));
        let failed = self.sum(GroupEnd::count_failed);
        let left = self.sum(|group| group.left);
        let (others, more) = (at_least(is_broken), at_least(is_broken || has_more));
        format!("{others}{recycled} recycled, {more}{failed} failed, {others}{left} skipped")
    }

    /// Lists a subject and a sentence for each group.
    pub(crate) fn list_groups(&self) -> impl Iterator<Item = (String, String)> {
        let groups = self.groups.iter();
        groups.map(|group| (format!("group {}", group.group), group.describe()))
    }

    /// Lists a subject and a sentence for each group of a dry run. The sentence says what was selected and why, and which errors occurred.
    /// Numbers of recycled nodes and of skipped nodes mean nothing in a dry run.
    pub(crate) fn list_planned(&self) -> impl Iterator<Item = (String, String)> {
        self.groups.iter().map(|group| {
            let whys = group.why.iter().filter(|why| *why != "planned");
            let texts = group.error.iter().chain([&group.reason]).chain(whys);
            (format!("group {}", group.group), join(texts.cloned()))
        })
    }
}

impl GroupEnd {
    /// Whether more nodes may have failed than [`Self::count_failed`] counts.
    fn has_more_failures(&self) -> bool {
        self.failed_nodes.is_none() && self.failed.len() >= NAMED
    }

    /// The number of failed nodes, of which at most [`NAMED`] are named.
    fn count_failed(&self) -> u32 {
        let named = u32::try_from(self.failed.len()).unwrap_or(u32::MAX);
        self.failed_nodes.unwrap_or(0).max(named)
    }

    fn describe(&self) -> String {
        let recycled = self.recycled.map(|recycled| format!("{recycled} recycled"));
        let mut text = recycled.unwrap_or_else(|| UNKNOWN.to_owned());
        let failed = self.count_failed();
        if failed > 0 {
            let named = self.failed.iter();
            let named = named.map(|failed| format!("{} {}", failed.node, failed.why));
            let mut named = named.collect::<Vec<_>>().join(", ");
            if failed as usize > self.failed.len() {
                named += ", …";
            }
            let more = at_least(self.has_more_failures());
            text = format!("{text}, {more}{failed} failed ({named})");
        }
        if self.left > 0 {
            text = format!("{text}, {} skipped", self.left);
        }
        let left_out = find_left_out(&self.reason).to_owned();
        match join(self.error.iter().chain(&self.why).chain([&left_out]).cloned()) {
            whys if whys.is_empty() => text,
            whys => format!("{text}: {whys}"),
        }
    }
}

fn at_least(is_more: bool) -> &'static str {
    if is_more { "at least " } else { "" }
}

fn join(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    texts.join("; ")
}

/// Describes in one sentence what became of the nodes. The reason in the rotation's output is not used, because it was written before the
/// first node was started.
pub(crate) fn describe_rotation_end(end: &End) -> String {
    match RotationEnd::read(end) {
        Some(rotation) => format!("{}: {}", end.outcome(), rotation.summary()),
        None => describe_end(end),
    }
}

/// Returns the exit code for a pipeline. If a node failed or was skipped, the rotation is not done.
pub(crate) fn exit_of_rotation(end: &End) -> Exit {
    let is_left = |group: &GroupEnd| group.left > 0 || !group.why.is_empty() || group.count_failed() > 0;
    let is_incomplete = RotationEnd::read(end).is_some_and(|rotation| rotation.groups.iter().any(is_left));
    match (exit_of(end), is_incomplete) {
        (Exit::Done, true) => Exit::Restored,
        (exit, _) => exit,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rotated(groups: Value) -> End {
        End {
            status: "SUCCEEDED".to_owned(),
            output: json!({"outcome": "rotated", "reason": "12 nodes to recycle", "groups": groups}),
            ..End::default()
        }
    }

    fn failed(groups: &Value) -> End {
        End {
            status: "FAILED".to_owned(),
            error: "RotationFailed".to_owned(),
            cause: json!({"reason": "12 nodes to recycle", "groups": groups}).to_string(),
            ..End::default()
        }
    }

    #[test]
    fn an_end_counts_the_nodes_and_a_rotation_with_nodes_that_were_not_recycled_is_not_done() {
        let all = json!([{"group": "a", "recycled": 2, "failed": [], "left": 0, "why": [], "error": []}]);
        let paused = json!([{"group": "a", "recycled": 0, "failed": [], "left": 12, "why": ["the group is paused"], "error": []}]);
        let other = json!([{"group": "a", "recycled": 0, "failed": [], "left": 0, "why": ["another rotation runs"], "error": []}]);
        let broken = json!([{"group": "a", "recycled": 1, "failed": [{"node": "i-1", "why": "NodeLost"}], "left": 3,
            "why": ["1 of its nodes has failed"], "error": []}, {"group": "b", "recycled": 4}]);
        let named = vec![json!({"node": "i-1", "why": "DrainTimedOut"}); 2];
        let many = json!([{"group": "a", "recycled": 340, "failed": named, "failed_nodes": 12, "left": 0, "why": [], "error": []}]);
        let lost = json!([{"group": "a", "error": ["GroupBroken"], "why": ["its execution broke: see the Map Run"]}]);
        let lost_and_known = json!([{"group": "a", "error": ["KubeletTooNew"], "why": ["no"]},
            {"group": "b", "recycled": 4, "failed": [], "left": 1, "why": ["paused"], "error": []}]);
        for (end, exit, sentence, group) in [
            (
                rotated(all),
                Exit::Done,
                "rotated: 2 recycled, 0 failed, 0 skipped",
                "2 recycled",
            ),
            (
                rotated(paused),
                Exit::Restored,
                "rotated: 0 recycled, 0 failed, 12 skipped",
                "0 recycled, 12 skipped: the group is paused",
            ),
            (
                rotated(other),
                Exit::Restored,
                "rotated: 0 recycled, 0 failed, 0 skipped",
                "0 recycled: another rotation runs",
            ),
            (
                failed(&broken),
                Exit::Restored,
                "RotationFailed: 5 recycled, 1 failed, 3 skipped",
                "1 recycled, 1 failed (i-1 NodeLost), 3 skipped: 1 of its nodes has failed",
            ),
            (
                failed(&many),
                Exit::Restored,
                "RotationFailed: 340 recycled, 12 failed, 0 skipped",
                "340 recycled, 12 failed (i-1 DrainTimedOut, i-1 DrainTimedOut, …)",
            ),
            (
                failed(&lost),
                Exit::Restored,
                "RotationFailed: the number of recycled nodes is unknown",
                "the number of recycled nodes is unknown: GroupBroken; its execution broke: see the Map Run",
            ),
            (
                failed(&lost_and_known),
                Exit::Restored,
                "RotationFailed: at least 4 recycled, at least 0 failed, at least 1 skipped",
                "the number of recycled nodes is unknown: KubeletTooNew; no",
            ),
        ] {
            assert_eq!(exit_of_rotation(&end), exit, "{sentence}");
            assert_eq!(describe_rotation_end(&end), sentence);
            let groups: Vec<(String, String)> = RotationEnd::read(&end).unwrap().list_groups().collect();
            assert_eq!(groups[0], ("group a".to_owned(), group.to_owned()));
        }
    }

    #[test]
    fn a_dry_run_describes_the_selection_and_the_errors_of_each_group() {
        let groups = json!([
            {"group": "a", "recycled": 0, "left": 2, "why": ["planned"], "error": [], "reason": "2 nodes"},
            {"group": "b", "recycled": 0, "left": 0, "why": ["its template is newer"], "error": ["KubeletTooNew"], "reason": ""},
        ]);
        let planned = RotationEnd::read(&failed(&groups)).unwrap();
        let texts: Vec<String> = planned.list_planned().map(|(_, text)| text).collect();
        assert_eq!(texts, ["2 nodes", "KubeletTooNew; its template is newer"]);
        assert!(planned.has_error());
    }

    #[test]
    fn a_group_says_what_its_selection_has_left_out() {
        let group = json!({"group": "a", "recycled": 2, "left": 0, "why": [], "error": [],
            "reason": "2 nodes; executions already work on 1 more; the next pass recycles 3 more"});
        let end = End {
            status: "SUCCEEDED".to_owned(),
            output: json!({"outcome": "rotated", "groups": [group]}),
            ..End::default()
        };
        let listed: Vec<_> = RotationEnd::read(&end).unwrap().list_groups().collect();
        let text = "2 recycled: executions already work on 1 more";
        assert_eq!(listed, [("group a".to_owned(), text.to_owned())]);
    }

    #[test]
    fn an_end_without_groups_is_described_by_its_reason_and_never_as_json() {
        let nothing = End {
            status: "SUCCEEDED".to_owned(),
            output: json!({"outcome": "nothing_selected", "reason": "no node is outdated"}),
            ..End::default()
        };
        assert_eq!(
            describe_rotation_end(&nothing),
            "nothing_selected: no node is outdated"
        );
        assert_eq!(exit_of_rotation(&nothing), Exit::Done);
        // Step Functions accepts causes of up to 32 KiB. The state machine cuts a longer cause, which is then no longer JSON.
        let cut = End {
            cause: r#"{"reason":"12 nodes","groups":[{"group":"a","#.to_owned(),
            ..failed(&json!([]))
        };
        assert_eq!(
            describe_rotation_end(&cut),
            "RotationFailed: see recycle-eks report"
        );
    }
}
