//! The row of a node: its step, since when, the latest end and what happens then, the pods that hold it, and who started its execution.

use std::collections::BTreeMap;

use jiff::Timestamp;
use recycle::drain::holding::{EVICTABLE, HOLDING, HoldingPod, count_unnamed, list_holding};
use recycle::drain::progress::name_end;
use recycle::notify::status::NodeStatus;
use recycle::records::blocker::count_all;
use recycle::records::claim::Phase;
use recycle::records::progress::Progress;
use serde::Serialize;

use crate::history::started_by::{StartedBy, Starter, is_sweep};
use crate::views::viewer::Style;

/// The step of a node that carries no mark of recycle-eks.
const QUIET: &str = "-";

/// The row of a node in the table.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The name of the group, or a dash if the group is unknown.
    pub group: String,
    #[serde(rename = "instance_id")]
    pub instance: String,
    /// The name of the Node, or the instance id if the name is unknown.
    pub node: String,
    pub step: String,
    pub since: Option<Timestamp>,
    /// The time at which the current wait ends at the latest.
    pub until: Option<Timestamp>,
    /// The consequence of the end of the drain, as the execution has written it on the Node. None if the node does not drain.
    pub then: Option<String>,
    /// The same in a word or two.
    pub end: Option<&'static str>,
    /// A few words about what the node waits for, what blocks its drain, or how its execution ended.
    pub what: String,
    #[serde(flatten)]
    pub holding: Holding,
    /// Events from outside, such as an instance refresh.
    pub disruptions: Vec<String>,
    /// The execution that claims the node, or that a rotation has begun for it.
    #[serde(rename = "execution_arn")]
    pub execution: Option<String>,
    pub started_by: Option<StartedBy>,
    /// The commands by which an operator restores a node that cannot be restored automatically.
    pub commands: Vec<String>,
    #[serde(skip)]
    pub style: Style,
}

/// The pods that hold the node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Holding {
    /// The first five of each class.
    pub pods: Vec<HoldingPod>,
    /// The number of further pods in each state.
    pub unnamed_pods: BTreeMap<&'static str, u32>,
}

impl Row {
    /// Whether the node carries no mark of recycle-eks.
    pub(crate) fn is_quiet(&self) -> bool {
        self.step == QUIET
    }

    /// The node and its instance.
    pub(crate) fn describe_node(&self) -> String {
        if self.node == self.instance {
            return self.instance.clone();
        }
        format!("{} ({})", self.node, self.instance)
    }
}

/// Returns the row of a node. `runs` says whether the execution that claims the node still runs.
pub(crate) fn row_of(node: &NodeStatus, rotations: &[Starter], runs: impl Fn(&str) -> bool) -> Row {
    let execution = node.claim.as_ref().map(|claim| claim.fence.execution.to_string());
    let is_alive = execution.as_deref().is_some_and(runs);
    let restores = execution.as_deref().is_some_and(is_sweep) || node.restoring_since.is_some();
    let is_restoring = is_alive && restores;
    let (step, style) = judge(node, is_alive, is_restoring);
    let progress = node.progress.as_ref();
    let phase = node.claim.as_ref().map(|claim| claim.phase);
    let name = node.node.as_ref().map(ToString::to_string);
    let claimed_at = node.claim.as_ref().map(|claim| claim.claimed_at);
    let restoring_since = node.restoring_since.or(claimed_at).filter(|_| is_restoring);
    let waits = is_alive && !is_restoring;
    let drains = waits && matches!(phase, Some(Phase::Draining | Phase::Waiting));
    let then = progress.map(|progress| progress.then.clone());
    let then = then.filter(|then| drains && !then.is_empty());
    let held = progress.filter(|_| drains);
    Row {
        group: node.group.clone().unwrap_or_else(|| "-".to_owned()),
        instance: node.instance_id.to_string(),
        node: name.unwrap_or_else(|| node.instance_id.to_string()),
        step: step.to_owned(),
        since: restoring_since
            .or(progress.map(|progress| progress.since))
            .or(claimed_at)
            .or(node.gave_up_at),
        until: progress
            .map(|progress| progress.hook_until.unwrap_or(progress.until))
            // The drain of a node that is being disposed of is over, and the progress has no other end.
            .filter(|_| waits && phase != Some(Phase::Disposing)),
        end: then.as_deref().map(name_end),
        then,
        what: describe_node(node, is_alive, is_restoring),
        holding: Holding {
            pods: held.map(list_holding).unwrap_or_default(),
            unnamed_pods: held.into_iter().flat_map(count_unnamed).collect(),
        },
        disruptions: progress
            .map(|progress| progress.disruptions.clone())
            .unwrap_or_default(),
        started_by: node.claim.as_ref().map(|claim| {
            StartedBy::read(&claim.fence.execution.to_string(), rotations).or_hook(claim.urgency)
        }),
        execution,
        commands: node
            .manual
            .as_ref()
            .filter(|_| !is_alive)
            .map(|manual| manual.commands.clone())
            .unwrap_or_default(),
        style,
    }
}

fn judge(node: &NodeStatus, is_alive: bool, is_restoring: bool) -> (&'static str, Style) {
    let is_blocked = node
        .progress
        .as_ref()
        .is_some_and(|progress| !progress.blocked.is_empty());
    match (&node.claim, is_alive) {
        // An execution that works on the node again finishes the work.
        (_, false) if node.gave_up_at.is_some() => ("manual", Style::Bad),
        (Some(_), true) if is_restoring => ("restoring", Style::Bad),
        (Some(claim), true) => judge_phase(claim.phase, is_blocked),
        (Some(_), false) => ("to restore", Style::Bad),
        (None, _) if node.strange_claim.is_some() => ("claimed", Style::Bad),
        (None, _) if node.is_requested => ("requested", Style::Plain),
        (None, _) if node.is_marked => ("to restore", Style::Bad),
        (None, _) => (QUIET, Style::Dim),
    }
}

fn judge_phase(phase: Phase, is_blocked: bool) -> (&'static str, Style) {
    match phase {
        Phase::Claimed | Phase::Admitted => ("queued", Style::Dim),
        Phase::Standby => ("replacing", Style::Busy),
        Phase::Draining if is_blocked => ("draining", Style::Bad),
        Phase::Draining => ("draining", Style::Busy),
        Phase::Waiting => ("waiting", Style::Waits),
        Phase::Disposing => ("disposing", Style::Busy),
    }
}

fn describe_node(node: &NodeStatus, is_alive: bool, is_restoring: bool) -> String {
    let mut parts = Vec::new();
    if let Some(strange) = &node.strange_claim {
        parts.push(format!("the claim is {strange}"));
    }
    if is_restoring {
        parts.push("it is being restored".to_owned());
    } else if let Some(progress) = &node.progress {
        parts.push(describe_progress(progress));
        parts.extend(progress.disruptions.iter().cloned());
    }
    if node.claim.is_some() && !is_alive {
        parts.push("its execution no longer runs: the sweep restores the node".to_owned());
    }
    if node.is_requested && node.claim.is_none() {
        parts.push(
            "requested by the taint recycle-eks/request: the next sweep starts its execution".to_owned(),
        );
    }
    if node.gave_up_at.is_some() && !is_alive {
        parts.push(match &node.manual {
            Some(manual) => format!("an operator must act: {}", manual.state),
            None => "an operator must act: run the manual commands of the notification".to_owned(),
        });
    }
    parts.join("; ")
}

/// Describes in a few words which pods hold the node, the blocked ones first. Without pods, the summary says what the node waits for.
fn describe_progress(progress: &Progress) -> String {
    let blockers = progress.blocked.iter();
    let mut parts: Vec<String> = blockers
        .map(|blocker| format!("{} blocked by {}", blocker.count, blocker.what))
        .collect();
    for class in HOLDING {
        let mut count = progress.counts.get(class).copied().unwrap_or(0);
        if class == EVICTABLE {
            count = count.saturating_sub(count_all(&progress.blocked));
        }
        if count > 0 {
            parts.push(format!("{count} {class}"));
        }
    }
    match parts.join(", ") {
        none if none.is_empty() => progress.summary.clone(),
        parts => format!("pods: {parts}"),
    }
}

/// Sorts the rows: nodes under way, then nodes where something went wrong, then queued and requested nodes, and last the others.
pub(crate) fn sort_rows(rows: &mut [Row]) {
    rows.sort_by_key(|row| match (row.step.as_str(), row.style) {
        ("queued", _) => 2,
        ("draining", _) | (_, Style::Busy | Style::Waits) => 0,
        (_, Style::Bad) => 1,
        (_, Style::Plain | Style::Bold) => 3,
        (_, Style::Good | Style::Dim) => 4,
    });
}

#[cfg(test)]
mod tests {
    use recycle::notify::status::Status;
    use serde_json::{Value, json};

    use super::*;

    const ARN: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:one";

    fn status(more: Value) -> NodeStatus {
        let mut node = json!({"instance_id": "i-0123456789abcdef0", "node": "ip-1", "is_marked": true});
        node.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let status: Status = serde_json::from_value(json!({"nodes": [node]})).unwrap();
        status.nodes.into_iter().next().unwrap()
    }

    fn claim(phase: &str) -> Value {
        json!({"schema": 1, "fence": format!("{ARN}#0"), "group": "workers", "phase": phase, "urgency": "planned",
            "claimed_at": "2027-01-01T00:00:00Z"})
    }

    fn progress(more: &Value) -> Value {
        let mut text = json!({"summary": "waits for 1 pod", "since": "2027-01-01T00:00:00Z", "until": "2027-01-03T00:00:00Z"});
        text.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        text
    }

    #[test]
    fn a_row_shows_the_step_of_a_node_and_what_it_waits_for() {
        let progress = progress(&json!({}));
        for (name, node, runs, step, words) in [
            (
                "draining",
                json!({"claim": claim("draining"), "progress": progress}),
                true,
                "draining",
                "waits for 1 pod",
            ),
            ("queued", json!({"claim": claim("admitted")}), true, "queued", ""),
            (
                "dead",
                json!({"claim": claim("standby")}),
                false,
                "to restore",
                "no longer runs",
            ),
            (
                "restoring",
                json!({"claim": claim("waiting"), "progress": progress, "restoring_since": "2027-01-02T00:00:00Z"}),
                true,
                "restoring",
                "is being restored",
            ),
            (
                "dead while it restored",
                json!({"claim": claim("waiting"), "restoring_since": "2027-01-02T00:00:00Z"}),
                false,
                "to restore",
                "no longer runs",
            ),
            (
                "asked",
                json!({"is_requested": true}),
                false,
                "requested",
                "recycle-eks/request",
            ),
            (
                "given up",
                json!({"gave_up_at": "2027-01-01T00:00:00Z"}),
                false,
                "manual",
                "an operator must act",
            ),
            (
                "strange",
                json!({"strange_claim": "unreadable: x"}),
                false,
                "claimed",
                "unreadable: x",
            ),
            ("marked", json!({}), false, "to restore", ""),
            ("nothing", json!({"is_marked": false}), false, "-", ""),
        ] {
            let row = row_of(&status(node), &[], |_| runs);
            assert_eq!(row.step, step, "{name}");
            assert!(row.what.contains(words), "{name}: {}", row.what);
        }
    }

    #[test]
    fn a_node_that_is_being_restored_waits_for_nothing() {
        let progress = progress(&json!({"then": "the node is restored", "counts": {"awaited": 3}}));
        let node = json!({"claim": claim("waiting"), "progress": progress, "restoring_since": "2027-01-02T00:00:00Z"});
        let row = row_of(&status(node), &[], |_| true);
        assert_eq!(row.since, "2027-01-02T00:00:00Z".parse().ok());
        assert_eq!(
            (row.until, row.end, row.holding.unnamed_pods.len()),
            (None, None, 0)
        );
    }

    #[test]
    fn a_hook_that_ends_before_the_drain_ends_the_wait() {
        let hook_until = "2027-01-02T00:00:00Z";
        for (more, until) in [
            (json!({"hook_until": hook_until}), hook_until),
            (json!({}), "2027-01-03T00:00:00Z"),
        ] {
            let node = json!({"claim": claim("waiting"), "progress": progress(&more)});
            assert_eq!(row_of(&status(node), &[], |_| true).until, until.parse().ok());
        }
    }

    #[test]
    fn a_row_names_the_pods_that_hold_the_node_and_counts_the_others() {
        let says = "The disruption budget web needs 2 healthy pods and has 2 currently";
        let blocked = json!({"what": "budget shop/web", "says": says, "since": "2027-01-01T01:00:00Z", "count": 2, "names": ["shop/web-1"]});
        let progress = progress(&json!({
            "then": "the node is restored", "blocked": [blocked], "counts": {"awaited": 3, "evictable": 3},
            "names": {"awaited": ["jobs/train"], "evictable": ["shop/web-1", "shop/web-2"], "to_completion": ["jobs/train"]},
        }));
        let row = |phase: &str, runs: bool| {
            row_of(
                &status(json!({"claim": claim(phase), "progress": progress})),
                &[],
                |_| runs,
            )
        };
        let draining = row("draining", true);
        assert_eq!(
            draining.what,
            "pods: 2 blocked by budget shop/web, 3 awaited, 1 evictable"
        );
        assert_eq!(draining.end, Some("restore"));
        let pods: Vec<(&str, &str)> = draining
            .holding
            .pods
            .iter()
            .map(|pod| (pod.name.as_str(), pod.state))
            .collect();
        assert_eq!(
            pods,
            [
                ("shop/web-1", "blocked"),
                ("jobs/train", "awaited"),
                ("shop/web-2", "evictable")
            ]
        );
        assert_eq!(
            draining.holding.unnamed_pods.into_iter().collect::<Vec<_>>(),
            [("awaited", 2), ("blocked", 1)]
        );
        for (phase, runs) in [("admitted", true), ("disposing", true), ("draining", false)] {
            let other = row(phase, runs);
            assert_eq!((other.holding.pods.len(), other.end), (0, None), "{phase}");
        }
    }

    #[test]
    fn colours_have_a_meaning_and_rows_under_way_come_first() {
        let blocked = json!({"blocked": [{"what": "budget shop/web", "says": "no", "since": "2027-01-01T01:00:00Z", "count": 1, "names": []}]});
        let node = |phase: &str, more: &Value| {
            row_of(
                &status(json!({"claim": claim(phase), "progress": progress(more)})),
                &[],
                |_| true,
            )
        };
        let done = Row {
            step: "done".to_owned(),
            style: Style::Good,
            ..Row::default()
        };
        let plain = json!({});
        let mut rows = [
            done,
            node("claimed", &plain),
            row_of(&status(json!({})), &[], |_| false),
            node("waiting", &plain),
            node("draining", &blocked),
            node("draining", &plain),
        ];
        sort_rows(&mut rows);
        let shown: Vec<(&str, Style)> = rows.iter().map(|row| (row.step.as_str(), row.style)).collect();
        assert_eq!(
            shown,
            [
                ("waiting", Style::Waits),
                ("draining", Style::Bad),
                ("draining", Style::Busy),
                ("to restore", Style::Bad),
                ("queued", Style::Dim),
                ("done", Style::Good),
            ]
        );
    }
}
