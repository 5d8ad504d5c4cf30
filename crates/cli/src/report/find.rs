//! Finds the execution that a report is about.

use jiff::Timestamp;
use recycle::report::event::{End, Execution};

use crate::args::flags::Report as Wanted;
use crate::aws::installation::{Installation, RECYCLING};
use crate::aws::past::find_of_node;
use crate::aws::step_functions::StepFunctions;
use crate::base::error::{Result, misuse};

/// The number of executions among which the newest one is searched. They are listed by their end.
const NEWEST: i32 = 100;

pub(super) async fn find_execution(
    installation: &Installation,
    states: &StepFunctions,
    wanted: &Wanted,
) -> Result<Execution> {
    match wanted.execution.as_deref() {
        None => find_last(installation, states).await,
        Some(arn) if arn.starts_with("arn:") => {
            if !RECYCLING.iter().any(|machine| is_of_machine(arn, machine)) {
                misuse!("EXECUTION must be an execution of recycle-node or rotate-nodes, but is {arn:?}");
            }
            let Some(execution) = states.find(arn).await? else {
                misuse!("there is no execution {arn}");
            };
            Ok(execution)
        }
        Some(instance) if instance.starts_with("i-") => find_of_node(installation, states, instance).await,
        Some(name) => {
            if let Some(execution) = installation.find_execution(states, name).await? {
                return Ok(execution);
            }
            find_of_node(installation, states, name).await
        }
    }
}

/// Finds the last rotation. If an execution of `recycle-node` began after the rotation had ended, finds that. Plans do not count.
async fn find_last(installation: &Installation, states: &StepFunctions) -> Result<Execution> {
    let rotation = find_newest(installation, states, "rotate-nodes", Timestamp::MIN).await?;
    let node = match &rotation {
        None => find_newest(installation, states, "recycle-node", Timestamp::MIN).await?,
        // A running rotation has no end, and is the last one.
        Some(rotation) => match rotation.ended_at {
            Some(end) => find_newest(installation, states, "recycle-node", end).await?,
            None => None,
        },
    };
    let Some(last) = node.or(rotation) else {
        misuse!(
            "there is no execution of recycle-node or rotate-nodes, apart from plans, in the last 90 days, which Step Functions keeps"
        );
    };
    Ok(last)
}

/// Whether the execution found nothing to do, such as that of the hook of a termination by recycle-eks itself.
fn found_nothing_to_do(execution: &Execution) -> bool {
    let ended = execution.end.as_ref().map(End::outcome);
    ended.is_some_and(|outcome| ["already_gone", "duplicate", "released"].contains(&outcome))
}

/// Finds the newest execution that began after `since`, is not a plan, and found something to do.
async fn find_newest(
    installation: &Installation,
    states: &StepFunctions,
    machine: &str,
    since: Timestamp,
) -> Result<Option<Execution>> {
    let listed = states.list_newest(&installation.machine(machine), NEWEST).await?;
    for listed in listed.iter().take_while(|listed| listed.started_at > since) {
        let execution = states.describe(&listed.arn).await?;
        if !execution.is_dry_run() && !found_nothing_to_do(&execution) {
            return Ok(Some(execution));
        }
    }
    Ok(None)
}

pub(super) fn is_of_machine(arn: &str, machine: &str) -> bool {
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
