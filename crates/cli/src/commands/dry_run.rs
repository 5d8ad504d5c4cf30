//! Waits for the end of a dry run, and shows its plan.

use recycle::report::event::End;
use serde_json::{Value, json};

use crate::aws::step_functions::StepFunctions;
use crate::base::error::Result;
use crate::history::end::{describe_end, exit_of};
use crate::views::output::Output;
use crate::views::watch;

/// Waits for the end of a dry run. The end comes within seconds, because a dry run waits for nothing.
pub(super) async fn wait_for_end(states: &StepFunctions, arn: &str) -> Result<End> {
    loop {
        if let Some(end) = states.find(arn).await?.and_then(|execution| execution.end) {
            return Ok(end);
        }
        watch::pause(1).await;
    }
}

pub(super) fn show(output: &Output, arn: &str, end: &End) -> Result<()> {
    let document = json!({"execution_arn": arn, "outcome": end.outcome(), "reason": end.reason(), "output": end.output,
        "exit": exit_of(end).code()});
    output.document(&document)?;
    output.say(describe_end(end))?;
    let plan = &end.output["plan"];
    for (number, step) in (1..).zip(texts(&plan["steps"])) {
        output.say(format!("  {number}. {step}"))?;
    }
    let pods = list_pods(&plan["pods"]);
    if !pods.is_empty() {
        output.table(&["pod", "what", "why"], pods)?;
    }
    for cell in texts(&plan["restore"]) {
        output.say(format!("if it fails: {cell}"))?;
    }
    for note in texts(&plan["notes"]) {
        output.say(format!("note: {note}"))?;
    }
    Ok(())
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns a row for each named pod, and one for the unnamed pods of the same class and reason.
fn list_pods(planned: &Value) -> Vec<[String; 3]> {
    let mut rows = Vec::new();
    for group in planned.as_array().into_iter().flatten() {
        let text = |field: &str| group[field].as_str().unwrap_or_default().to_owned();
        let row = |name: String| [name, text("class"), text("reason")];
        let named = texts(&group["pods"]).count() as u64;
        let left = group["count"].as_u64().unwrap_or(0).saturating_sub(named);
        rows.extend(texts(&group["pods"]).map(|name| row(name.to_owned())));
        rows.extend((left > 0).then(|| row(format!("and {left} more"))));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_pods_are_counted() {
        let planned = json!([
            {"class": "wait", "reason": "label_selector", "count": 1, "pods": ["a/job"]},
            {"class": "evict", "reason": "other", "count": 3, "pods": ["a/web"]},
        ]);
        let names: Vec<String> = list_pods(&planned)
            .into_iter()
            .map(|[name, class, _]| format!("{name} {class}"))
            .collect();
        assert_eq!(names, ["a/job wait", "a/web evict", "and 2 more evict"]);
    }
}
