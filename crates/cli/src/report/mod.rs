//! `report`: writes the history of an execution as one HTML page or as JSON, or a support bundle. `recycle::report::history` builds the report.

mod axis;
mod bundle;
mod find;
mod logs;
mod node_page;
mod page;
mod parts;
mod redact;
mod rotation_page;
mod words;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use recycle::report::event::{Event, Execution};
use recycle::report::history::{Report, RotationReport, report_node, report_rotation};
use recycle::report::parts::NodeReport;
use recycle::report::reader::find_started;
use recycle::report::waits::{GroupWait, list_waits};
use serde_json::json;

use crate::args::flags::Report as Wanted;
use crate::aws::installation::Installation;
use crate::aws::step_functions::StepFunctions;
use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::base::exit::Exit;
use crate::base::private_file;
use crate::history::rotation_end::RotationEnd;
use crate::report::bundle::{check_folder, check_new, write_bundle};
use crate::report::find::{find_execution, is_of_machine};
use crate::views::output::Output;

pub(crate) async fn run(installation: &Installation, output: &Output, wanted: &Wanted) -> Result<Exit> {
    if let Some(file) = &wanted.bundle {
        check_new(file)?;
    }
    if let Some(file) = &wanted.file {
        check_folder("--file", file)?;
    }
    let states = StepFunctions::patient(&installation.aws, Output::note);
    let execution = find_execution(installation, &states, wanted).await?;
    if let Some(file) = &wanted.bundle {
        return write_bundle(installation, &states, output, execution, file).await;
    }
    let events = states.read_history(&execution.arn).await?;
    let report = if is_of_machine(&execution.arn, "rotate-nodes") {
        let (nodes, waits) = report_started(&states, &events).await?;
        let mut report = report_rotation(&execution, &events, nodes);
        report.waits = waits;
        Report::Rotation(Box::new(explain_end(report, &execution)))
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
        Some(file) => {
            private_file::write(file, &text).map_err(|error| {
                Error::Usage(format!(
                    "--file must be a file that can be written, but {} cannot: {error}",
                    file.display()
                ))
            })?;
            output.say(format!(
                "wrote {}: the report of {}",
                file.display(),
                execution.arn
            ))?;
        }
    }
    Ok(Exit::Done)
}

/// Replaces the reason of a rotation by words. Its output, or the cause of its failure, is a JSON document with the end of each group.
fn explain_end(mut report: RotationReport, execution: &Execution) -> RotationReport {
    let end = execution.end.as_ref().and_then(RotationEnd::read);
    if let Some(end) = end {
        report.summary.reason = end.summary();
        report.skipped = end.count_skipped().filter(|_| !execution.is_dry_run());
        report.groups = end
            .list_groups()
            .map(|(group, text)| format!("{group}: {text}"))
            .collect();
    }
    report
}

/// Builds the reports of the executions that a rotation has started.
/// The rotation's own history names them, or the histories of the children of its Distributed Map.
/// Only one of the other histories is in memory at a time. Also returns the waits of the groups, the longest first.
async fn report_started(
    states: &StepFunctions,
    rotation: &[Event],
) -> Result<(Vec<NodeReport>, Vec<GroupWait>)> {
    let (started, map_runs) = find_started(rotation);
    let (mut started, mut waits) = (BTreeSet::from_iter(started), Vec::new());
    for map_run in map_runs {
        for child in states.list_children(&map_run).await? {
            let history = states.read_history(&child.arn).await?;
            started.extend(find_started(&history).0);
            waits.extend(list_waits(&history, clock::now()));
        }
    }
    let mut reports = Vec::new();
    for arn in &started {
        // An execution that could not be started does not exist.
        if let Some(execution) = states.find(arn).await? {
            reports.push(report_node(&execution, &states.read_history(arn).await?));
        }
    }
    waits.sort_by_key(|wait| Reverse(wait.seconds));
    Ok((reports, waits))
}
