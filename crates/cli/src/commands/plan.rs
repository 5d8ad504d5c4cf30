//! `plan`: a dry run of one node, or of a rotation.

use serde_json::Value;

use crate::args::flags::Plan;
use crate::aws::executions::Executions;
use crate::aws::installation::Installation;
use crate::aws::nodes::find_instance;
use crate::base::error::Error;
use crate::base::exit::Exit;
use crate::commands::dry_run::{show, wait_for_end};
use crate::history::end::exit_of;
use crate::views::output::Output;

pub(crate) async fn run(installation: &Installation, output: &Output, wanted: &Plan) -> Result<Exit, Error> {
    match &wanted.node {
        Some(node) => plan_node(installation, output, node, &wanted.fields.0).await,
        None => super::rotate::plan(installation, output, wanted).await,
    }
}

async fn plan_node(
    installation: &Installation,
    output: &Output,
    node: &str,
    fields: &serde_json::Map<String, Value>,
) -> Result<Exit, Error> {
    let instance = find_instance(installation, node).await?;
    let mut input = fields.clone();
    input.insert("instance_id".to_owned(), instance.as_str().into());
    input.insert("cluster_name".to_owned(), installation.cluster.as_str().into());
    input.insert("dry_run".to_owned(), true.into());
    let executions = Executions::new(&installation.aws);
    let arn = executions
        .start(&installation.live(), &Value::Object(input))
        .await?;
    let end = wait_for_end(&executions, &arn).await?;
    show(output, &arn, &end)?;
    Ok(exit_of(&end))
}
