//! `abort --all`: stops every rotation and every execution of a node, except those whose nodes could not be restored.

use serde_json::json;

use crate::args::flags::Abort;
use crate::aws::groups::are_all_paused;
use crate::aws::installation::Installation;
use crate::base::error::Result;
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::commands::abort::WHY;
use crate::commands::abortable::Running;
use crate::commands::confirm::confirm;
use crate::commands::room::warn_of_room;
use crate::views::output::Output;

pub(crate) async fn abort_all(installation: &Installation, output: &Output, wanted: &Abort) -> Result<Exit> {
    let mut found = Running::fetch(installation).await?;
    let known = found.kept.clone();
    for why in &known {
        output.say_first(format!("not stopped: {why}"))?;
    }
    if found.rotations.is_empty() && found.nodes.is_empty() {
        output.say("nothing runs that could be stopped")?;
        output.document(&json!({"stopped": [], "not_stopped": found.kept}))?;
        return Ok(Exit::Done);
    }
    for warning in warn_of_room(installation, &found.instances).await {
        output.say_first(warning)?;
    }
    if !wanted.yes {
        let effect = format!("{}: {}", installation.place(), found.describe());
        confirm(output, &effect, "abort all of them?")?;
        // Meanwhile a node may have come to a step after which it cannot be restored.
        found.keep_only(Running::fetch(installation).await?);
    }
    let (mut stopped, mut kept, mut refused) = (Vec::new(), found.kept, None);
    // Rotations come first, so that they start no other node.
    for arn in found.rotations.iter().chain(&found.nodes) {
        match installation.states.stop(arn, WHY).await {
            Ok(()) => stopped.push(arn),
            Err(error) => {
                kept.push(format!("{arn}: {error}"));
                refused = refused.or(Some(error));
            }
        }
    }
    for arn in &stopped {
        output.say(format!("stopped {arn}"))?;
    }
    for why in kept.iter().filter(|why| !known.contains(why)) {
        output.say(format!("not stopped: {why}"))?;
    }
    output.document(&json!({"stopped": stopped, "not_stopped": kept}))?;
    if let Some(error) = refused {
        return Err(error);
    }
    if stopped.is_empty() {
        output.say("nothing was stopped")?;
        return Ok(Exit::Done);
    }
    output.say(format!(
        "The sweep restores their nodes in about five minutes. To watch it: {}",
        recycle_eks("status --watch")
    ))?;
    output.say(if are_all_paused(installation).await {
        "All groups are paused, so rotations start no more nodes. Other triggers may still start executions.".to_owned()
    } else {
        format!(
            "Schedules, alarms and other triggers may start new executions. To keep rotations from starting more nodes: {}",
            recycle_eks("pause --all")
        )
    })?;
    Ok(Exit::Done)
}
