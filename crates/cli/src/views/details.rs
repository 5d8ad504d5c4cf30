//! The details of a node below the table: who started its execution, the pods that hold it, the end of its drain, and what to type for more.

use jiff::Timestamp;

use crate::base::printed::environment;
use crate::base::times::{moment, shortly};
use crate::history::started_by::{StartedBy, name_of};
use crate::views::row::Row;

/// Lists the lines of a node. The first one names the node.
pub(crate) fn list_details(row: &Row, now: Timestamp) -> Vec<String> {
    let since = row.since.map_or_else(String::new, |since| {
        format!(" for {}", shortly(now.duration_since(since)))
    });
    let mut lines = vec![format!(
        "{} of group {}: {}{since}",
        row.describe_node(),
        row.group,
        row.step
    )];
    if let (Some(arn), Some(starter)) = (&row.execution, &row.started_by) {
        lines.push(format!(
            "  {}, execution {}",
            describe_starter(starter),
            name_of(arn)
        ));
    }
    lines.extend(list_pods(row, now));
    if row.holding.pods.is_empty() && !row.what.is_empty() {
        lines.push(format!("  {}", row.what));
    } else {
        lines.extend(row.disruptions.iter().map(|disruption| format!("  {disruption}")));
    }
    if let (Some(until), Some(then)) = (row.until, &row.then) {
        lines.push(format!("  at the end, {}: {then}", moment(until)));
    } else if let Some(until) = row.until {
        lines.push(format!("  until {} at the latest", moment(until)));
    }
    if !row.commands.is_empty() {
        lines.push("  the commands for it:".to_owned());
        lines.extend(environment().map(str::to_owned));
        lines.extend(row.commands.iter().cloned());
    }
    lines
}

fn describe_starter(starter: &StartedBy) -> String {
    format!("started by {}", starter.describe())
}

/// Lists a line for each named pod, in columns, and one for the number of the others.
fn list_pods(row: &Row, now: Timestamp) -> Vec<String> {
    let names = row.holding.pods.iter().map(|pod| pod.name.chars().count());
    let states = row.holding.pods.iter().map(|pod| pod.state.len());
    let (names, states) = (names.max().unwrap_or(0), states.max().unwrap_or(0));
    let mut lines: Vec<String> = row
        .holding
        .pods
        .iter()
        .map(|pod| {
            let why = match (&pod.blocked_by, pod.since) {
                (Some(what), Some(since)) => {
                    format!(
                        "by {what} for {}: {}",
                        shortly(now.duration_since(since)),
                        pod.why
                    )
                }
                (Some(_), None) | (None, _) => pod.why.clone(),
            };
            format!("  {:<names$}  {:<states$}  {why}", pod.name, pod.state)
        })
        .collect();
    let others = row.holding.unnamed_pods.iter();
    let others: Vec<String> = others.map(|(state, count)| format!("{count} {state}")).collect();
    if !others.is_empty() {
        lines.push(format!("  … and more pods: {}", others.join(", ")));
    }
    lines
}
