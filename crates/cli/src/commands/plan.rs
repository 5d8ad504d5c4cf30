//! `plan`: starts a dry run of one node or of a rotation, and shows the plan.

use crate::args::flags::Plan;
use crate::aws::installation::Installation;
use crate::base::error::Result;
use crate::base::exit::Exit;
use crate::commands::dry_run::{show, wait_for_end};
use crate::commands::start::node_input;
use crate::history::end::exit_of;
use crate::views::output::Output;

pub(crate) async fn run(installation: &Installation, output: &Output, wanted: &Plan) -> Result<Exit> {
    let Some(node) = &wanted.node else {
        return super::rotate::plan(installation, output, wanted).await;
    };
    let mut input = node_input(installation, node, &wanted.rotation.fields.0).await?;
    input["dry_run"] = true.into();
    let arn = installation.states.start(&installation.live(), &input).await?;
    let end = wait_for_end(&installation.states, &arn).await?;
    show(output, &arn, &end, wanted.details)?;
    Ok(exit_of(&end))
}
