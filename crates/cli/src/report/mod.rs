//! `report`: the whole story of an execution, as one page or as JSON. What the story is, `recycle::report::history` decides.

mod history;
mod page;

use recycle::report::history::{Report, report_node, report_rotation};
use serde_json::json;

use crate::args::flags::Report as Wanted;
use crate::aws::installation::Installation;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::exit::Exit;
use crate::views::output::Output;

/// Reads the execution, and writes its report.
pub(crate) async fn run(
    installation: &Installation,
    output: &Output,
    wanted: &Wanted,
) -> Result<Exit, Error> {
    let histories = history::Histories::new(&installation.aws);
    let arn = find_execution(installation, &histories, &wanted.execution).await?;
    let execution = histories.read(&arn).await?;
    let report = if is_of_machine(&arn, "rotate-nodes") {
        let nodes = histories.report_started(&execution).await?;
        Report::Rotation(report_rotation(&execution, nodes))
    } else {
        Report::Node(Box::new(report_node(&execution)))
    };
    let text = if output.is_json() {
        json!(report).to_string()
    } else {
        page::render(&report, clock::now())
    };
    match &wanted.file {
        None => output.write_as_it_is(&text)?,
        Some(file) => std::fs::write(file, text).map_err(|error| {
            Error::Refused(format!(
                "--file must be a file that can be written, but {} cannot: {error}",
                file.display()
            ))
        })?,
    }
    Ok(Exit::Done)
}

/// An ARN, or the name of an execution of either machine.
async fn find_execution(
    installation: &Installation,
    histories: &history::Histories,
    wanted: &str,
) -> Result<String, Error> {
    if wanted.starts_with("arn:") {
        if is_of_machine(wanted, "recycle-node") || is_of_machine(wanted, "rotate-nodes") {
            return Ok(wanted.to_owned());
        }
        return Err(Error::Refused(format!(
            "EXECUTION must be an execution of recycle-node or rotate-nodes, but is {wanted:?}"
        )));
    }
    for machine in ["recycle-node", "rotate-nodes"] {
        let arn = installation.execution(machine, wanted);
        if histories.is_there(&arn).await? {
            return Ok(arn);
        }
    }
    Err(Error::Refused(format!(
        "EXECUTION must be the ARN or the name of an execution of recycle-node or rotate-nodes, but there is none that is called {wanted:?}"
    )))
}

fn is_of_machine(arn: &str, machine: &str) -> bool {
    let parts: Vec<&str> = arn.split(':').collect();
    parts.len() == 8 && parts[5] == "execution" && parts[6].ends_with(&format!("-{machine}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_of_an_execution_is_in_its_arn() {
        let arn = "arn:aws:states:eu-west-1:123456789012:execution:r-rotate-nodes:one";
        assert!(is_of_machine(arn, "rotate-nodes"));
        assert!(!is_of_machine(arn, "recycle-node"));
        assert!(!is_of_machine(
            "arn:aws:states:eu-west-1:123456789012:stateMachine:r-rotate-nodes",
            "rotate-nodes"
        ));
    }
}
