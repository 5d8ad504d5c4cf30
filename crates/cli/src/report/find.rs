//! Finds the execution that a report is about.

use recycle::report::event::Execution;

use crate::args::flags::Report as Wanted;
use crate::aws::installation::{Installation, RECYCLING};
use crate::aws::nodes::fetch_status;
use crate::aws::step_functions::StepFunctions;
use crate::base::error::{Result, misuse};

/// The number of executions among which the last one of a node is searched. Step Functions forgets executions after 90 days.
/// Names of executions that a rotation or a trigger starts contain the instance. Each other one takes a call, at most ten a second.
const SEARCHED: i32 = 500;

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
            states.describe(arn).await
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

/// Finds the last rotation. If an execution of `recycle-node` began after the rotation had ended, finds that.
async fn find_last(installation: &Installation, states: &StepFunctions) -> Result<Execution> {
    let newest = async |machine| {
        let machine = installation.machine(machine);
        let listed = states.list_newest(&machine, NEWEST).await;
        listed.map(|listed| listed.into_iter().next())
    };
    let (rotation, node) = (newest("rotate-nodes").await?, newest("recycle-node").await?);
    let last = match (rotation, node) {
        (Some(rotation), Some(node)) if rotation.ended_at.is_some_and(|end| node.started_at > end) => node,
        (Some(last), _) | (None, Some(last)) => last,
        (None, None) => misuse!(
            "there is no execution of recycle-node or rotate-nodes in the last 90 days, which Step Functions keeps"
        ),
    };
    states.describe(&last.arn).await
}

/// Finds the last execution for a node. A Node that is gone is found by its name in the end of the execution.
async fn find_of_node(
    installation: &Installation,
    states: &StepFunctions,
    wanted: &str,
) -> Result<Execution> {
    let known = fetch_status(installation, Some(wanted)).await?.nodes;
    let known = known.first().map(|node| node.instance_id.to_string());
    let instance = known.as_deref().unwrap_or(wanted);
    let listed = states
        .list_newest(&installation.machine("recycle-node"), SEARCHED)
        .await?;
    let searched = listed.len();
    for execution in listed {
        let is_named = execution.name.contains(instance);
        // The name has another instance.
        if !is_named && execution.name.contains("-i-") && known.is_some() {
            continue;
        }
        let execution = states.describe(&execution.arn).await?;
        if is_named || is_about(&execution, instance) || is_about(&execution, wanted) {
            return Ok(execution);
        }
    }
    misuse!(
        "EXECUTION must be the ARN or the name of an execution of recycle-node or rotate-nodes, or a node that one of the last {searched} \
         executions was about, but none is called {wanted:?}"
    )
}

/// Checks whether the input of an execution names the node, or its end does.
fn is_about(execution: &Execution, node: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    let names = |text: &str| text.split(|letter| !is_part(letter)).any(|word| word == node);
    let end = execution.end.as_ref();
    execution.input["instance_id"].as_str() == Some(node) || end.is_some_and(|end| names(end.reason()))
}

pub(super) fn is_of_machine(arn: &str, machine: &str) -> bool {
    let parts: Vec<&str> = arn.split(':').collect();
    parts.len() == 8 && parts[5] == "execution" && parts[6].ends_with(&format!("-{machine}"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use recycle::report::event::End;
    use serde_json::json;

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

    #[test]
    fn an_execution_is_about_the_node_of_its_input_and_of_its_end() {
        let execution = Execution {
            arn: String::new(),
            input: json!({"instance_id": "i-1"}),
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: None,
            end: Some(End {
                cause: "node ip-10-0-1-2.ec2.internal (i-1) is in service".to_owned(),
                ..End::default()
            }),
        };
        for (node, expected) in [
            ("i-1", true),
            ("ip-10-0-1-2.ec2.internal", true),
            ("ip-10-0-1-2", false),
            ("i-2", false),
        ] {
            assert_eq!(is_about(&execution, node), expected, "{node}");
        }
    }
}
