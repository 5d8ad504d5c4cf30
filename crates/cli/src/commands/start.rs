//! Starts executions, and builds the input for a node.

use recycle::base::ids::InstanceId;
use serde_json::{Map, Value};

use crate::aws::installation::Installation;
use crate::aws::nodes::find_node;
use crate::base::error::Result;
use crate::views::output::Output;
use crate::views::watch::Watch;

/// Starts an execution of a state machine and prints its ARN.
/// Returns the ARN, and a watch that catches Ctrl-C from then on.
pub(super) async fn start<'a>(
    installation: &'a Installation,
    output: &'a Output,
    machine: &str,
    input: &Value,
) -> Result<(String, Watch<'a>)> {
    let arn = installation.states.start(machine, input).await?;
    let watch = Watch::begin(installation, output)?;
    output.say(format!("started {arn}\n{}", installation.place()))?;
    Ok((arn, watch))
}

/// Returns the input of an execution of `recycle-node`: these fields, the instance and the cluster.
pub(super) async fn node_input(
    installation: &Installation,
    node: &str,
    fields: &Map<String, Value>,
) -> Result<Value> {
    // An instance id is used as it is, because the pre-flight of the execution checks whether the instance exists. A name is looked up.
    let instance: InstanceId = match node.parse() {
        Ok(id) => id,
        Err(_) => find_node(installation, node).await?.instance_id,
    };
    let mut input = Value::Object(fields.clone());
    input["instance_id"] = instance.as_str().into();
    input["cluster_name"] = installation.cluster.as_str().into();
    Ok(input)
}
