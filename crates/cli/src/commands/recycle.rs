//! `recycle`: starts an execution for one node, and watches it.

use serde_json::json;

use crate::args::flags::Recycle;
use crate::aws::installation::Installation;
use crate::base::error::Result;
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::commands::start::{node_input, start};
use crate::views::output::Output;

pub(crate) async fn run(installation: &Installation, output: &Output, wanted: &Recycle) -> Result<Exit> {
    let input = node_input(installation, &wanted.node, &wanted.fields.0).await?;
    let (arn, mut watch) = start(installation, output, &installation.live(), &input).await?;
    if wanted.no_wait {
        let instance = input["instance_id"].as_str().unwrap_or_default();
        let watch = recycle_eks(format_args!("status --watch {instance}"));
        output.say(format!("to watch it: {watch}"))?;
        output.document(&json!({"execution_arn": arn, "instance_id": instance}))?;
        return Ok(Exit::Done);
    }
    watch.watch_node(&arn).await
}
