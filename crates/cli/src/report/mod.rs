//! `report`: writes the history of an execution as one HTML page or as JSON. `recycle::report::history` builds the report.

mod page;

use std::collections::BTreeSet;

use recycle::report::event::{Event, Execution};
use recycle::report::history::{Report, report_node, report_rotation};
use recycle::report::parts::NodeReport;
use recycle::report::reader::find_started;
use serde_json::json;

use crate::args::flags::Report as Wanted;
use crate::aws::installation::Installation;
use crate::aws::step_functions::StepFunctions;
use crate::base::clock;
use crate::base::error::{Error, Result, misuse};
use crate::base::exit::Exit;
use crate::views::output::Output;

pub(crate) async fn run(installation: &Installation, output: &Output, wanted: &Wanted) -> Result<Exit> {
    let states = StepFunctions::patient(&installation.aws, Output::note);
    let execution = find_execution(installation, &states, &wanted.execution).await?;
    let events = states.read_history(&execution.arn).await?;
    let report = if is_of_machine(&execution.arn, "rotate-nodes") {
        let nodes = report_started(&states, &events).await?;
        Report::Rotation(report_rotation(&execution, &events, nodes))
    } else {
        Report::Node(Box::new(report_node(&execution, &events)))
    };
    let text = if output.is_json() {
        json!(report).to_string()
    } else {
        page::render(&report, clock::now())
    };
    match &wanted.file {
        None => Output::write(&text)?,
        Some(file) => std::fs::write(file, text).map_err(|error| {
            Error::Usage(format!(
                "--file must be a file that can be written, but {} cannot: {error}",
                file.display()
            ))
        })?,
    }
    Ok(Exit::Done)
}

/// Finds an execution by its ARN, or by its name as an execution of `recycle-node` or `rotate-nodes`.
async fn find_execution(
    installation: &Installation,
    states: &StepFunctions,
    wanted: &str,
) -> Result<Execution> {
    let machines = ["recycle-node", "rotate-nodes"];
    if wanted.starts_with("arn:") {
        if !machines.iter().any(|machine| is_of_machine(wanted, machine)) {
            misuse!("EXECUTION must be an execution of recycle-node or rotate-nodes, but is {wanted:?}");
        }
        return states.describe(wanted).await;
    }
    for machine in machines {
        if let Some(execution) = states.find(&installation.execution(machine, wanted)).await? {
            return Ok(execution);
        }
    }
    misuse!(
        "EXECUTION must be the ARN or the name of an execution of recycle-node or rotate-nodes, but none is called {wanted:?}"
    )
}

/// Builds the reports of the executions that a rotation has started.
/// The rotation's own history names them, or the histories of the children of its Distributed Map.
/// Only one of the other histories is in memory at a time.
async fn report_started(states: &StepFunctions, rotation: &[Event]) -> Result<Vec<NodeReport>> {
    let (started, map_runs) = find_started(rotation);
    let mut started = BTreeSet::from_iter(started);
    for map_run in map_runs {
        for child in states.list_children(&map_run).await? {
            let (more, _) = find_started(&states.read_history(&child.arn).await?);
            started.extend(more);
        }
    }
    let mut reports = Vec::new();
    for arn in &started {
        // An execution that could not be started does not exist.
        if let Some(execution) = states.find(arn).await? {
            reports.push(report_node(&execution, &states.read_history(arn).await?));
        }
    }
    Ok(reports)
}

fn is_of_machine(arn: &str, machine: &str) -> bool {
    let parts: Vec<&str> = arn.split(':').collect();
    parts.len() == 8 && parts[5] == "execution" && parts[6].ends_with(&format!("-{machine}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arn_of_an_execution_names_its_machine() {
        let arn = "arn:aws:states:eu-west-1:123456789012:execution:r-rotate-nodes:one";
        assert!(is_of_machine(arn, "rotate-nodes"));
        assert!(!is_of_machine(arn, "recycle-node"));
        assert!(!is_of_machine(
            "arn:aws:states:eu-west-1:123456789012:stateMachine:r-rotate-nodes",
            "rotate-nodes"
        ));
    }
}
