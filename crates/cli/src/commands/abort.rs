//! `abort`: stops the execution that works on a node, or a rotation. The sweep then restores the node, and the command watches it.

use recycle::notify::status::NodeStatus;
use recycle::records::claim::Claim;
use recycle::report::event::Execution;
use serde_json::json;

use crate::args::flags::Abort;
use crate::aws::installation::Installation;
use crate::aws::nodes::find_node;
use crate::base::error::{Result, misuse, refuse};
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::commands::abortable::{check_abortable, check_own, check_readable, check_rotation, describe};
use crate::commands::confirm::confirm;
use crate::commands::restore::{Sweep, runs, watch_restore};
use crate::commands::room::warn_of_room;
use crate::history::started_by::{Starter, is_sweep};
use crate::views::output::Output;
use crate::views::watch::Watch;

/// The cause in the history of an execution that `abort` has stopped.
pub(super) const WHY: &str = "recycle-eks abort";

pub(crate) async fn abort(installation: &Installation, output: &Output, wanted: &Abort) -> Result<Exit> {
    // The parser requires a name unless `--all` is set.
    let what = wanted.what.as_deref().unwrap_or_default();
    if what.starts_with("arn:") {
        let execution = find_execution(installation, what).await?;
        return abort_execution(installation, output, execution, wanted).await;
    }
    if !what.starts_with("i-")
        && let Some(execution) = installation.find_execution(&installation.states, what).await?
    {
        return abort_execution(installation, output, execution, wanted).await;
    }
    let node = find_node(installation, what).await?;
    check_readable(&node)?;
    let named = describe(&node);
    let Some(claim) = &node.claim else {
        refuse!("no execution works on {named}: there is nothing to abort");
    };
    check_own(installation, &node, claim)?;
    if !runs(installation, claim).await? {
        refuse!(
            "the execution that worked on {named} has ended already ({}): to restore the node, use {}",
            claim.fence.execution,
            recycle_eks(format_args!("restore {}", node.instance_id))
        );
    }
    abort_claimed(installation, output, &node, claim, wanted).await
}

/// Refuses a claim of a sweep. To stop that would also stop other restores.
fn check_no_sweep(node: &NodeStatus, claim: &Claim) -> Result<()> {
    let arn = claim.fence.execution.as_str();
    if is_sweep(arn) {
        refuse!(
            "the sweep {arn} is restoring {}: there is nothing to abort. To watch it: {}",
            describe(node),
            recycle_eks(format_args!("restore {}", node.instance_id))
        );
    }
    Ok(())
}

/// Stops the execution that holds the node, and watches until the node is restored, unless `--no-wait` is set.
async fn abort_claimed(
    installation: &Installation,
    output: &Output,
    node: &NodeStatus,
    claim: &Claim,
    wanted: &Abort,
) -> Result<Exit> {
    check_no_sweep(node, claim)?;
    check_abortable(node, claim)?;
    let arn = claim.fence.execution.as_str();
    for warning in warn_of_room(installation, std::slice::from_ref(&node.instance_id)).await {
        output.say_first(warning)?;
    }
    if !wanted.yes {
        let effect = format!(
            "This stops the execution {arn}. The sweep then restores {}, which is in step {}: its remaining pods keep running.",
            describe(node),
            claim.phase
        );
        confirm(output, &effect, "abort it?")?;
        check_again(installation, node, claim).await?;
    }
    installation.states.stop(arn, WHY).await?;
    output.say(format!(
        "stopped {arn}; the sweep restores the node in about five minutes"
    ))?;
    if wanted.no_wait {
        output.document(&json!({"stopped": arn, "instance_id": node.instance_id.as_str()}))?;
        return Ok(Exit::Done);
    }
    watch_restore(&mut Watch::begin(installation, output)?, node, Sweep::Next).await
}

/// Refuses if the node has come to a step after which it cannot be restored while the operator read the question.
async fn check_again(installation: &Installation, node: &NodeStatus, before: &Claim) -> Result<()> {
    let node = find_node(installation, node.instance_id.as_str()).await?;
    check_readable(&node)?;
    match &node.claim {
        Some(claim) if claim.fence == before.fence => check_abortable(&node, claim),
        Some(_) | None => refuse!(
            "{} no longer works on {}: nothing was stopped",
            before.fence.execution,
            describe(&node)
        ),
    }
}

/// Fetches an execution by its ARN.
async fn find_execution(installation: &Installation, arn: &str) -> Result<Execution> {
    if !installation.recycles(arn) {
        misuse!(
            "EXECUTION must be an execution of recycle-node or rotate-nodes of the installation {:?} ({}), but is {arn}",
            installation.name,
            installation.place()
        );
    }
    let Some(execution) = installation.states.find(arn).await? else {
        misuse!("there is no execution {arn}");
    };
    Ok(execution)
}

/// Stops an execution that is given by its ARN or its name.
/// An execution of `recycle-node` that holds its node is stopped in the same way as if the node were given.
/// Stopping an execution of `rotate-nodes` also stops those of its nodes, because Step Functions stops the executions that it waits for.
async fn abort_execution(
    installation: &Installation,
    output: &Output,
    execution: Execution,
    wanted: &Abort,
) -> Result<Exit> {
    let arn = execution.arn.as_str();
    let is_of_node = installation.has_execution("recycle-node", arn);
    if let Some(end) = &execution.end {
        refuse!("the execution {arn} has ended already ({})", end.outcome());
    }
    let instance = execution.input["instance_id"].as_str();
    if let Some(instance) = instance.filter(|_| is_of_node) {
        let node = find_node(installation, instance).await?;
        check_readable(&node)?;
        let claim = node.claim.as_ref();
        if let Some(claim) = claim.filter(|claim| claim.fence.execution.as_str() == arn) {
            return abort_claimed(installation, output, &node, claim, wanted).await;
        }
    }
    let is_plan = execution.is_dry_run();
    if !is_of_node && !is_plan {
        check_rotation(installation, Starter::new(arn.to_owned(), &execution.input)).await?;
    }
    if !wanted.yes && !is_plan {
        let effect = if is_of_node {
            format!(
                "This stops the execution {arn}, which does not hold the claim on its node. If another execution does, that one goes on."
            )
        } else {
            format!(
                "This stops the rotation {arn}, and with it the executions of its nodes under way. The sweep then restores those nodes."
            )
        };
        confirm(output, &effect, "abort it?")?;
    }
    installation.states.stop(arn, WHY).await?;
    output.say(match (is_plan, is_of_node) {
        (true, _) => format!("stopped {arn}: a plan, which had changed nothing"),
        (false, true) => format!("stopped {arn}, which did not hold the claim on its node"),
        (false, false) => format!(
            "stopped {arn}: it starts no other node, and Step Functions also stops the executions of the nodes under way; the sweep \
             restores those nodes in about five minutes. (To let them end instead, pause the groups.)"
        ),
    })?;
    output.document(&json!({"stopped": arn}))?;
    Ok(Exit::Done)
}
