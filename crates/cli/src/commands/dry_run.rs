//! Waits for the end of a dry run, and shows its plan: first a table, and the details on demand.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use recycle::report::event::End;
use serde_json::{Value, json};

use crate::aws::step_functions::StepFunctions;
use crate::base::error::Result;
use crate::base::exit::Exit;
use crate::base::times::shortly;
use crate::history::end::{describe_end, describe_flags, exit_of};
use crate::views::output::Output;
use crate::views::table::Form;
use crate::views::watch;

/// The names of pods in a line of the table. The details name all of them.
const NAMED: usize = 3;
/// The table of the classes of one node's pods.
const CLASSES: Form = Form {
    head: &["class", "pods", "why", "names"],
    node: None,
    names: &[],
    layouts: &[(false, &[])],
};
/// The table of one node's pods.
const PODS: Form = Form {
    head: &["pod", "class", "why"],
    node: None,
    names: &[0],
    layouts: &[(false, &[])],
};
/// The table of the nodes of a selection.
const NODES: Form = Form {
    head: &["group", "node", "selected by", "pods", "longest wait", "blocked"],
    node: Some(1),
    names: &[0, 1],
    layouts: &[
        (false, &[]),
        (true, &[]),
        (true, &[SELECTED_BY]),
        (true, &[SELECTED_BY, LONGEST_WAIT]),
    ],
};
const SELECTED_BY: usize = 2;
const LONGEST_WAIT: usize = 4;
const BLOCKED: usize = 5;

/// The plan of one node of a selection.
pub(crate) struct PlannedNode {
    pub instance: String,
    pub group: String,
    pub criteria: Vec<String>,
    /// The ARN and the end of the dry run.
    pub execution: String,
    pub end: End,
}

impl PlannedNode {
    fn plan(&self) -> &Value {
        &self.end.output["plan"]
    }

    /// The name of the Node, or the instance id if the node was refused.
    fn name(&self) -> &str {
        self.plan()["node"].as_str().unwrap_or(&self.instance)
    }
}

/// Waits for the end of a dry run. The end comes within seconds, because a dry run waits for nothing.
pub(super) async fn wait_for_end(states: &StepFunctions, arn: &str) -> Result<End> {
    loop {
        if let Some(end) = states.find(arn).await?.and_then(|execution| execution.end) {
            return Ok(end);
        }
        watch::pause(1).await;
    }
}

/// Prints the plan of one node: its pods by class, the longest wait, and what blocks them.
/// With `has_details` also each step, each pod, and how the node would be restored.
pub(super) fn show(output: &Output, arn: &str, end: &End, has_details: bool) -> Result<()> {
    let document = json!({"execution_arn": arn, "outcome": end.outcome(), "reason": end.reason(), "output": end.output,
        "exit": exit_of(end).code()});
    output.document(&document)?;
    output.say(describe_end(end))?;
    describe_flags(end).map_or(Ok(()), |flags| output.say(flags))?;
    if exit_of(end) != Exit::Done {
        return Ok(());
    }
    let plan = &end.output["plan"];
    if has_details {
        for (number, step) in (1..).zip(texts(&plan["steps"])) {
            output.say(format!("  {number}. {step}"))?;
        }
        print(output, draw_pods(&plan["pods"], output.width_of_terminal()))?;
        for cell in texts(&plan["restore"]) {
            output.say(format!("if it fails: {cell}"))?;
        }
    } else {
        print(output, draw_classes(&plan["pods"], output.width_of_terminal()))?;
    }
    output.say(format!("longest wait: {}", describe_wait(plan)))?;
    for text in texts(&plan["blocked"]) {
        output.say(format!("blocked: {text}"))?;
    }
    for note in texts(&plan["notes"]) {
        output.say(format!("note: {note}"))?;
    }
    if !has_details {
        output.say("--details adds the steps, each pod, and how the node would be restored")?;
    }
    Ok(())
}

/// Prints a line for each node of a selection, and the notes of their plans, each once.
pub(super) fn show_nodes(output: &Output, nodes: &[PlannedNode]) -> Result<()> {
    print(output, draw_nodes(nodes, output.width_of_terminal()))
}

fn print(output: &Output, lines: Vec<String>) -> Result<()> {
    lines.into_iter().try_for_each(|line| output.say(line))
}

pub(crate) fn draw_nodes(nodes: &[PlannedNode], width: Option<u16>) -> Vec<String> {
    let rows: Vec<Vec<String>> = nodes.iter().map(to_row).collect();
    let mut lines = NODES.draw(&rows, width);
    lines.extend(list_notes(nodes, &rows, width));
    lines
}

pub(crate) fn draw_classes(planned: &Value, width: Option<u16>) -> Vec<String> {
    CLASSES.draw(&list_classes(planned), width)
}

pub(crate) fn draw_pods(planned: &Value, width: Option<u16>) -> Vec<String> {
    PODS.draw(&list_pods(planned), width)
}

/// Lists the notes of the plans, each once, and what blocks a node if the table had no room for it.
fn list_notes(nodes: &[PlannedNode], rows: &[Vec<String>], width: Option<u16>) -> Vec<String> {
    let mut noted: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let cut = NODES.list_cut(rows, width);
    for (number, node) in nodes.iter().enumerate() {
        if cut.contains(&number) {
            let blocked = rows[number][BLOCKED].as_str();
            noted.entry(("blocked", blocked)).or_default().push(node.name());
        }
        for note in texts(&node.plan()["notes"]) {
            noted.entry(("note", note)).or_default().push(node.name());
        }
    }
    let lines = noted.into_iter().map(|((kind, text), of)| {
        let of = match of.as_slice() {
            [one] => (*one).to_owned(),
            several => format!("{} nodes", several.len()),
        };
        format!("{kind} on {of}: {text}")
    });
    lines.collect()
}

fn to_row(node: &PlannedNode) -> Vec<String> {
    let plan = node.plan();
    let criteria = match node.criteria.join(", ") {
        none if none.is_empty() => "unknown".to_owned(),
        criteria => criteria,
    };
    let (group, name) = (node.group.clone(), node.name().to_owned());
    if exit_of(&node.end) != Exit::Done || plan.is_null() {
        let none = "-".to_owned();
        return vec![group, name, criteria, none.clone(), none, describe_end(&node.end)];
    }
    let mut counts: Vec<(&str, u64)> = Vec::new();
    for pods in plan["pods"].as_array().into_iter().flatten() {
        let (class, count) = (pods["class"].as_str().unwrap_or_default(), count_of(pods));
        match counts.iter_mut().find(|(known, _)| *known == class) {
            Some((_, sum)) => *sum += count,
            None => counts.push((class, count)),
        }
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(class, count)| format!("{count} {class}"))
        .collect();
    let blocked: Vec<&str> = texts(&plan["blocked"]).collect();
    let wait = &plan["longest_wait"];
    let wait = match wait["seconds"].as_i64() {
        Some(0) | None => "-".to_owned(),
        Some(seconds) => shortly(SignedDuration::from_secs(seconds)),
    };
    vec![group, name, criteria, counts.join(", "), wait, blocked.join("; ")]
}

fn describe_wait(plan: &Value) -> String {
    let wait = &plan["longest_wait"];
    let (seconds, pods) = (
        wait["seconds"].as_i64().unwrap_or(0),
        wait["pods"].as_u64().unwrap_or(0),
    );
    let plural = if pods == 1 { "" } else { "s" };
    let time = shortly(SignedDuration::from_secs(seconds));
    match wait["limit"].as_str() {
        Some("drain_timeout") => {
            format!("up to {time} (drain_timeout), for {pods} pod{plural} whose end is not known")
        }
        Some("grace_period") => format!("about {time} (grace_period), for {pods} pod{plural} to leave"),
        Some(_) | None => "none, because no pod holds the node".to_owned(),
    }
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn count_of(pods: &Value) -> u64 {
    pods["count"].as_u64().unwrap_or(0)
}

/// Returns a row for each class and reason, with the first names.
fn list_classes(planned: &Value) -> Vec<Vec<String>> {
    let rows = planned.as_array().into_iter().flatten().map(|pods| {
        let text = |field: &str| pods[field].as_str().unwrap_or_default().to_owned();
        let count = count_of(pods);
        let mut names: Vec<&str> = texts(&pods["pods"]).take(NAMED).collect();
        if (names.len() as u64) < count {
            names.push("…");
        }
        vec![text("class"), count.to_string(), text("reason"), names.join(", ")]
    });
    rows.collect()
}

/// Returns a row for each named pod, and one for the unnamed pods of the same class and reason.
fn list_pods(planned: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for group in planned.as_array().into_iter().flatten() {
        let text = |field: &str| group[field].as_str().unwrap_or_default().to_owned();
        let row = |name: String| vec![name, text("class"), text("reason")];
        let named = texts(&group["pods"]).count() as u64;
        let left = count_of(group).saturating_sub(named);
        rows.extend(texts(&group["pods"]).map(|name| row(name.to_owned())));
        rows.extend((left > 0).then(|| row(format!("and {left} more"))));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Value {
        json!([
            {"class": "awaited", "reason": "label_selector", "count": 1, "pods": ["a/job"]},
            {"class": "evictable", "reason": "other", "count": 5, "pods": ["a/1", "a/2", "a/3", "a/4"]},
            {"class": "evictable", "reason": "its budget", "count": 2, "pods": ["a/5", "a/6"]},
        ])
    }

    #[test]
    fn unnamed_pods_are_counted() {
        let names: Vec<String> = list_pods(&pods())
            .into_iter()
            .map(|row| format!("{} {}", row[0], row[1]))
            .collect();
        assert_eq!(names[0], "a/job awaited");
        assert_eq!(names[5], "and 1 more evictable");
        let classes = list_classes(&pods());
        assert_eq!(classes[0], ["awaited", "1", "label_selector", "a/job"]);
        assert_eq!(classes[1], ["evictable", "5", "other", "a/1, a/2, a/3, …"]);
    }

    #[test]
    fn a_row_has_the_pods_by_class_the_longest_wait_and_what_blocks() {
        let plan = json!({"node": "ip-1", "pods": pods(), "blocked": ["budget a/b allows no eviction now of 2 pods"],
            "longest_wait": {"seconds": 172_800, "pods": 3, "limit": "drain_timeout"}});
        let mut node = PlannedNode {
            instance: "i-1".to_owned(),
            group: "workers".to_owned(),
            criteria: vec!["all".to_owned()],
            execution: String::new(),
            end: End {
                status: "SUCCEEDED".to_owned(),
                output: json!({"outcome": "planned", "plan": plan}),
                ..End::default()
            },
        };
        assert_eq!(
            to_row(&node),
            [
                "workers",
                "ip-1",
                "all",
                "1 awaited, 7 evictable",
                "2d",
                "budget a/b allows no eviction now of 2 pods"
            ]
        );
        assert_eq!(
            describe_wait(&plan),
            "up to 2d (drain_timeout), for 3 pods whose end is not known"
        );
        node.end = End {
            status: "FAILED".to_owned(),
            error: "PreflightRefused".to_owned(),
            cause: "no tag".to_owned(),
            ..End::default()
        };
        assert_eq!(
            to_row(&node),
            ["workers", "i-1", "all", "-", "-", "PreflightRefused: no tag"]
        );
    }
}
