//! `recycle`: one node.

use serde_json::{Value, json};

use crate::args::flags::Recycle;
use crate::aws::executions::Executions;
use crate::aws::installation::Installation;
use crate::aws::nodes::find_instance;
use crate::base::error::Error;
use crate::base::exit::Exit;
use crate::views::output::Output;
use crate::views::watch::{hear_interrupts, watch_node};

pub(crate) async fn run(
    installation: &Installation,
    output: &Output,
    wanted: &Recycle,
) -> Result<Exit, Error> {
    let instance = find_instance(installation, &wanted.node).await?;
    let mut input = wanted.fields.0.clone();
    input.insert("instance_id".to_owned(), instance.as_str().into());
    input.insert("cluster_name".to_owned(), installation.cluster.as_str().into());
    let executions = Executions::new(&installation.aws);
    let arn = executions
        .start(&installation.live(), &Value::Object(input))
        .await?;
    let mut interrupts = hear_interrupts()?;
    output.say(format!("started {arn}\n{}", installation.place()))?;
    if wanted.detach {
        output.say(format!("to watch it: recycle-eks status --watch {instance}"))?;
        output.document(&json!({"execution_arn": arn, "instance_id": instance.as_str()}))?;
        return Ok(Exit::Done);
    }
    watch_node(installation, output, &arn, &mut interrupts).await
}
