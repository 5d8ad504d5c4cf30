//! How a rotation has ended, group by group: its output says so, or the cause of its failure.

use recycle::report::event::End;
use serde::Deserialize;
use serde_json::Value;

use crate::base::exit::Exit;
use crate::history::end::exit_of;

/// How many nodes that failed a group names at most (`state-machine/rotate-nodes.asl.json`).
const NAMED: usize = 10;
/// What is told of a group whose execution broke.
const UNKNOWN: &str = "nobody knows how many were recycled";

/// How it has ended in a group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct GroupEnd {
    group: String,
    /// None: its execution broke, and nobody has counted.
    recycled: Option<u32>,
    #[serde(default)]
    failed: Vec<FailedNode>,
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

/// A rotation's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RotationEnd {
    groups: Vec<GroupEnd>,
}

impl RotationEnd {
    /// None if the end does not tell of groups.
    pub(crate) fn read(end: &End) -> Option<Self> {
        let from_cause = || serde_json::from_str(&end.cause).unwrap_or_default();
        let told: Value = if end.output.is_null() {
            from_cause()
        } else {
            end.output.clone()
        };
        let groups = told.get("groups")?.as_array()?.iter();
        Some(Self {
            groups: groups
                .filter_map(|group| serde_json::from_value(group.clone()).ok())
                .collect(),
        })
    }

    /// Whether a group has ended with an error of its own.
    pub(crate) fn has_error(&self) -> bool {
        self.groups.iter().any(|group| !group.error.is_empty())
    }

    /// One sentence of all groups.
    pub(crate) fn summary(&self) -> String {
        let counted = self.groups.iter().filter_map(|group| group.recycled);
        let recycled = match (counted.clone().count(), counted.fold(0, u32::saturating_add)) {
            (0, _) if !self.groups.is_empty() => return UNKNOWN.to_owned(),
            (groups, recycled) if groups < self.groups.len() => format!("at least {recycled}"),
            (_, recycled) => recycled.to_string(),
        };
        let left = self
            .groups
            .iter()
            .map(|group| group.left)
            .fold(0, u32::saturating_add);
        let failed: usize = self.groups.iter().map(|group| group.failed.len()).sum();
        let at_least = |is_more: bool| if is_more { "at least " } else { "" };
        let is_broken = self.groups.iter().any(|group| group.recycled.is_none());
        let has_more = is_broken || self.groups.iter().any(GroupEnd::has_more_failures);
        let (more, others) = (at_least(has_more), at_least(is_broken));
        format!("{recycled} recycled, {more}{failed} failed, {others}{left} not begun")
    }

    /// A subject and a sentence for each group.
    pub(crate) fn list_groups(&self) -> impl Iterator<Item = (String, String)> {
        self.groups
            .iter()
            .map(|group| (format!("group {}", group.group), group.describe()))
    }

    /// The same of a dry run: nothing was recycled, and nothing left; what was selected and why.
    pub(crate) fn list_planned(&self) -> impl Iterator<Item = (String, String)> {
        self.groups.iter().map(|group| {
            let sentences = [group.reason.as_str()].into_iter();
            let whys = group
                .why
                .iter()
                .map(String::as_str)
                .filter(|why| *why != "planned");
            let errors = group.error.iter().map(String::as_str);
            let told = errors.chain(sentences).chain(whys);
            let told: Vec<&str> = told.filter(|text| !text.is_empty()).collect();
            (format!("group {}", group.group), told.join("; "))
        })
    }

    /// Whether something of it is still to be done.
    fn is_incomplete(&self) -> bool {
        self.groups
            .iter()
            .any(|group| group.left > 0 || !group.why.is_empty() || !group.failed.is_empty())
    }
}

impl GroupEnd {
    fn has_more_failures(&self) -> bool {
        self.failed.len() >= NAMED
    }

    fn describe(&self) -> String {
        let mut text = self
            .recycled
            .map_or_else(|| UNKNOWN.to_owned(), |recycled| format!("{recycled} recycled"));
        if !self.failed.is_empty() {
            let named: Vec<String> = self
                .failed
                .iter()
                .map(|failed| format!("{} {}", failed.node, failed.why))
                .collect();
            let more = if self.has_more_failures() { "at least " } else { "" };
            text = format!("{text}, {more}{} failed ({})", named.len(), named.join(", "));
        }
        if self.left > 0 {
            text = format!("{text}, {} not begun", self.left);
        }
        let whys = self.error.iter().chain(&self.why).map(String::as_str);
        let whys: Vec<&str> = whys.filter(|why| !why.is_empty()).collect();
        if whys.is_empty() {
            text
        } else {
            format!("{text}: {}", whys.join("; "))
        }
    }
}

/// One sentence, of what became of the nodes: what the rotation says of itself was written before anything began.
pub(crate) fn describe_rotation_end(end: &End) -> String {
    match RotationEnd::read(end) {
        Some(rotation) => format!("{}: {}", end.outcome(), rotation.summary()),
        None => crate::history::end::describe_end(end),
    }
}

/// What it means for a pipeline: a rotation that has left nodes has not done what was asked.
pub(crate) fn exit_of_rotation(end: &End) -> Exit {
    let is_incomplete = RotationEnd::read(end).is_some_and(|rotation| rotation.is_incomplete());
    let exit = exit_of(end);
    if exit == Exit::Done && is_incomplete {
        Exit::PutBack
    } else {
        exit
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rotated(groups: Value) -> End {
        End {
            status: "SUCCEEDED".to_owned(),
            output: json!({"outcome": "rotated", "reason": "12 nodes are to be recycled", "groups": groups}),
            ..End::default()
        }
    }

    fn failed(groups: &Value) -> End {
        End {
            status: "FAILED".to_owned(),
            error: "RotationFailed".to_owned(),
            cause: json!({"reason": "12 nodes are to be recycled", "groups": groups}).to_string(),
            ..End::default()
        }
    }

    #[test]
    fn an_end_says_what_became_of_the_nodes_and_a_rotation_that_left_some_is_not_done() {
        let all = json!([{"group": "a", "recycled": 2, "failed": [], "left": 0, "why": [], "error": []}]);
        let paused = json!([{"group": "a", "recycled": 0, "failed": [], "left": 12, "why": ["the group is paused"], "error": []}]);
        let other = json!([{"group": "a", "recycled": 0, "failed": [], "left": 0, "why": ["another rotation runs"], "error": []}]);
        let broken = json!([{"group": "a", "recycled": 1, "failed": [{"node": "i-1", "why": "NodeLost"}], "left": 3,
            "why": ["1 of its nodes has failed"], "error": []}, {"group": "b", "recycled": 4}]);
        let lost = json!([{"group": "a", "error": ["GroupBroken"], "why": ["its execution broke: see the Map Run"]}]);
        let lost_and_known = json!([{"group": "a", "error": ["KubeletTooNew"], "why": ["no"]},
            {"group": "b", "recycled": 4, "failed": [], "left": 1, "why": ["paused"], "error": []}]);
        for (end, exit, sentence, group) in [
            (
                rotated(all),
                Exit::Done,
                "rotated: 2 recycled, 0 failed, 0 not begun",
                "2 recycled",
            ),
            (
                rotated(paused),
                Exit::PutBack,
                "rotated: 0 recycled, 0 failed, 12 not begun",
                "0 recycled, 12 not begun: the group is paused",
            ),
            (
                rotated(other),
                Exit::PutBack,
                "rotated: 0 recycled, 0 failed, 0 not begun",
                "0 recycled: another rotation runs",
            ),
            (
                failed(&broken),
                Exit::PutBack,
                "RotationFailed: 5 recycled, 1 failed, 3 not begun",
                "1 recycled, 1 failed (i-1 NodeLost), 3 not begun: 1 of its nodes has failed",
            ),
            (
                failed(&lost),
                Exit::PutBack,
                "RotationFailed: nobody knows how many were recycled",
                "nobody knows how many were recycled: GroupBroken; its execution broke: see the Map Run",
            ),
            (
                failed(&lost_and_known),
                Exit::PutBack,
                "RotationFailed: at least 4 recycled, at least 0 failed, at least 1 not begun",
                "nobody knows how many were recycled: KubeletTooNew; no",
            ),
        ] {
            assert_eq!(exit_of_rotation(&end), exit, "{sentence}");
            assert_eq!(describe_rotation_end(&end), sentence);
            let groups: Vec<(String, String)> = RotationEnd::read(&end).unwrap().list_groups().collect();
            assert_eq!(groups[0], ("group a".to_owned(), group.to_owned()));
        }
    }

    #[test]
    fn a_dry_run_says_of_each_group_what_was_selected_and_what_failed() {
        let groups = json!([
            {"group": "a", "recycled": 0, "left": 2, "why": ["planned"], "error": [], "reason": "2 nodes"},
            {"group": "b", "recycled": 0, "left": 0, "why": ["its template is newer"], "error": ["KubeletTooNew"], "reason": ""},
        ]);
        let planned = RotationEnd::read(&failed(&groups)).unwrap();
        let told: Vec<String> = planned.list_planned().map(|(_, told)| told).collect();
        assert_eq!(told, ["2 nodes", "KubeletTooNew; its template is newer"]);
        assert!(planned.has_error());
    }

    #[test]
    fn an_end_without_groups_is_told_in_its_own_words_and_never_as_json() {
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
        // Step Functions takes causes of 32 KiB: a longer one is cut, and is no JSON any more.
        let cut = End {
            cause: r#"{"reason":"12 nodes","groups":[{"group":"a","#.to_owned(),
            ..failed(&json!([]))
        };
        assert_eq!(
            describe_rotation_end(&cut),
            "RotationFailed: recycle-eks report tells of it"
        );
    }
}
