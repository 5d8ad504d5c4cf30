//! `abort --all`: stops every rotation and every execution of a node, except those whose nodes could not be restored.

use serde_json::json;

use crate::args::flags::Abort;
use crate::aws::groups::are_all_paused;
use crate::aws::installation::Installation;
use crate::base::error::{Error, Result};
use crate::base::exit::Exit;
use crate::commands::abortable::Running;
use crate::commands::confirm::confirm;
use crate::commands::restore::WHY;
use crate::commands::room::warn_of_room;
use crate::views::output::Output;

pub(crate) async fn abort_all(installation: &Installation, output: &Output, wanted: &Abort) -> Result<Exit> {
    let found = Running::fetch(installation).await?;
    for why in &found.kept {
        output.say(format!("not stopped: {why}"))?;
    }
    if found.rotations.is_empty() && found.nodes.is_empty() {
        output.say("nothing runs that could be stopped")?;
        output.document(&json!({"stopped": [], "not_stopped": found.kept}))?;
        return Ok(Exit::Done);
    }
    for warning in warn_of_room(installation, &found.instances).await {
        output.say(warning)?;
    }
    if !wanted.yes {
        let effect = format!("{}: {}", installation.place(), found.describe());
        confirm(output, &effect, "abort all of them?")?;
    }
    let mut stopped = Vec::new();
    // Rotations come first, so that they start no other node.
    for arn in found.rotations.iter().chain(&found.nodes) {
        match installation.states.stop(arn, WHY).await {
            Ok(()) => stopped.push(arn),
            // The stopped executions are printed even if the rest is refused.
            Err(error) => {
                print(output, &stopped, &found.kept)?;
                return Err(error);
            }
        }
    }
    print(output, &stopped, &found.kept)?;
    output.say(
        "The sweep restores their nodes in about five minutes. To watch it: recycle-eks status --watch",
    )?;
    output.say(if are_all_paused(installation).await {
        "All groups are paused, so rotations start no more nodes. Other triggers may still start executions."
    } else {
        "Schedules, alarms and other triggers may start new executions. To keep rotations from starting more nodes: \
         recycle-eks pause --all"
    })?;
    Ok(Exit::Done)
}

fn print(output: &Output, stopped: &[&String], kept: &[String]) -> Result<(), Error> {
    for arn in stopped {
        output.say(format!("stopped {arn}"))?;
    }
    output.document(&json!({"stopped": stopped, "not_stopped": kept}))
}
