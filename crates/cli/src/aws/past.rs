//! Finds past executions by the node that they were about.

use recycle::report::event::Execution;

use crate::aws::installation::Installation;
use crate::aws::nodes::fetch_one;
use crate::aws::step_functions::StepFunctions;
use crate::base::error::{Result, misuse};
use crate::history::started_by::find_instance;

/// The number of executions among which the last one of a node is searched. Step Functions forgets executions after 90 days.
/// Names of executions that a rotation or a trigger starts contain the instance. Each other one takes a call, at most ten a second.
const SEARCHED: i32 = 500;

/// Finds the last execution for a node, or refuses `wanted`.
pub(crate) async fn find_of_node(
    installation: &Installation,
    states: &StepFunctions,
    wanted: &str,
) -> Result<Execution> {
    let known = fetch_one(installation, wanted).await?.nodes;
    let known = known.first().map(|node| node.instance_id.to_string());
    match search(installation, states, wanted, known.as_deref()).await? {
        Ok(execution) => Ok(execution),
        Err(searched) => misuse!(
            "EXECUTION must be the ARN or the name of an execution of recycle-node or rotate-nodes, or a node that one of the last {searched} \
             executions was about, but none is called {wanted:?}"
        ),
    }
}

/// Finds the last execution for a Node that is gone, by its name in the end of the execution.
pub(crate) async fn find_of_gone(installation: &Installation, name: &str) -> Result<Option<Execution>> {
    let found = search(installation, &installation.states, name, None).await?;
    Ok(found.ok())
}

/// Returns the last execution for a node. Without one, returns the number of executions that were searched.
async fn search(
    installation: &Installation,
    states: &StepFunctions,
    wanted: &str,
    known: Option<&str>,
) -> Result<std::result::Result<Execution, usize>> {
    let instance = known.unwrap_or(wanted);
    let listed = states
        .list_newest(&installation.machine("recycle-node"), SEARCHED)
        .await?;
    let searched = listed.len();
    for execution in listed {
        let named = find_instance(&execution.name);
        let is_named = named.as_ref().is_some_and(|named| named.as_str() == instance);
        // The name has another instance.
        if !is_named && named.is_some() && known.is_some() {
            continue;
        }
        let execution = states.describe(&execution.arn).await?;
        if is_named || is_about(&execution, instance) || is_about(&execution, wanted) {
            return Ok(Ok(execution));
        }
    }
    Ok(Err(searched))
}

/// Checks whether the input of an execution names the node, or its end does.
fn is_about(execution: &Execution, node: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    let names = |text: &str| text.split(|letter| !is_part(letter)).any(|word| word == node);
    let end = execution.end.as_ref();
    execution.input["instance_id"].as_str() == Some(node) || end.is_some_and(|end| names(end.reason()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use recycle::report::event::End;
    use serde_json::json;

    use super::*;

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
