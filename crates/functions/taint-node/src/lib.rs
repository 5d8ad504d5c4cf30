//! The Lambda `taint-node`: records what was there before, then taints and cordons the node.
//!
//! It also removes a request taint. For a rotation, this function marks the nodes that will be recycled.
//!
//! It evicts nothing and waits for nothing. `check-pods` sets the start of the drain, because the attempts to set the taint may take a
//! quarter of an hour.

use eks_auth::Access;
use jiff::Timestamp;
use kubernetes::{
    NodeChange, amend_node, check_phase, keep_old_node, list_drivers, mark_nodes, open, record_event,
};
use recycle::answer::envelope::Answer;
use recycle::base::names::EXCLUDE_FROM_BALANCERS_LABEL;
use recycle::cluster::node::{NodeFacts, draining_taint, is_draining_taint, is_request_taint};
use recycle::contract::context::Context;
use recycle::contract::requests::{StepRequest, TaintRequest};
use recycle::contract::run::Run;
use recycle::contract::verdicts::TaintVerdict;
use recycle::input::model::Input;
use recycle::input::path::RecyclePath;
use recycle::records::claim::{Claim, Phase};
use recycle::records::schema::SCHEMA;
use recycle::rotation::terms::Marking;

pub use kubernetes::StepError as Error;

type Answered = Result<Answer<TaintVerdict>, Error>;

/// Handles a step of the state machine, or a rotation's request for marks.
pub async fn handle(access: &Access, request: TaintRequest) -> Result<Answer<TaintVerdict>, Error> {
    match request {
        TaintRequest::Step(request) => taint_node(access, *request).await,
        TaintRequest::Mark { marking } => mark(access, &marking).await,
    }
}

/// Marks the nodes that a rotation is about to recycle. A node that could not be marked is recycled all the same.
async fn mark(access: &Access, marking: &Marking) -> Answered {
    let cluster = &marking.cluster_name;
    access.check(cluster).map_err(kubernetes::Error::from)?;
    let client = access.connect_anew().await.map_err(kubernetes::Error::from)?;
    let marked = mark_nodes(&client, marking).await?;
    let reason = format!("{marked} of {} nodes are marked", marking.nodes.len());
    Ok(Answer::new(TaintVerdict::Marked, reason))
}

/// Taints the node of a run, as a step of the state machine.
async fn taint_node(access: &Access, request: StepRequest) -> Answered {
    let StepRequest { context, run } = request;
    let (client, node) = open(access, &run).await?;
    pass_on(taint(&client, node, &context, run.clone()).await, run)
}

/// Passes a node without a Node object on to `check-pods`, which handles that.
fn pass_on(tainted: Answered, run: Run) -> Answered {
    match tainted {
        Err(Error::Node(gone @ kubernetes::Error::NodeGone { .. })) => {
            Ok(Answer::new(TaintVerdict::CheckPods, gone.to_string()).carrying(run))
        }
        tainted => tainted,
    }
}

async fn taint(client: &kube::Client, node: Option<NodeFacts>, context: &Context, run: Run) -> Answered {
    let node = node.ok_or_else(|| kubernetes::Error::NodeGone {
        node: run.node.to_string(),
    })?;
    let (now, fence) = (context.now(), context.fence());
    // If the replacement came first, they are recorded already.
    let drivers = match run.path {
        RecyclePath::After => list_drivers(client, &node.name).await?,
        RecyclePath::Before | RecyclePath::Surge | RecyclePath::Hook => Vec::new(),
    };
    let node = amend_node(client, node, |node| {
        let claim = check_phase(node, &fence, run.input.urgency, Phase::Admitted)?;
        change_for(node, claim, &run.input, &drivers, now)
    })
    .await?;
    let message = "Tainted and cordoned; its pods are leaving";
    record_event(client, &node.name, Phase::Draining, message, now, &fence).await;
    let reason = format!("node {} takes no new pods", node.name);
    Ok(Answer::new(TaintVerdict::CheckPods, reason).carrying(run))
}

/// Returns the change that is still to make; None if an earlier call has made it.
fn change_for(
    node: &NodeFacts,
    claim: Claim,
    input: &Input,
    drivers: &[String],
    now: Timestamp,
) -> Result<Option<NodeChange>, Error> {
    let taint = draining_taint(&input.instance_id);
    let is_tainted = node.taints.contains(&taint);
    if is_tainted && node.unschedulable && claim.phase >= Phase::Draining {
        return Ok(None);
    }
    let mut record = node.record()?;
    // Once recycle-eks has tainted the node, a cordon on it is its own.
    if !is_tainted && record.tainted_at.is_none() {
        record.was_unschedulable = node.unschedulable;
        record.excluded_before = node.labels.get(EXCLUDE_FROM_BALANCERS_LABEL).cloned();
    }
    record.schema = SCHEMA;
    if record.drivers.is_empty() {
        record.drivers = drivers.to_vec();
    }
    record.tainted_at.get_or_insert(now);
    record.lost_after = Some(input.node_lost_after);
    let others = node.taints.iter();
    let others = others.filter(|other| !is_draining_taint(other) && !is_request_taint(other));
    let phase = claim.phase.max(Phase::Draining);
    let change = NodeChange::new()
        .taints(others.cloned().chain([taint]).collect())
        .unschedulable(true)
        .claim(&Claim { phase, ..claim })?;
    // Without EnterStandby, nothing has kept Cluster Autoscaler from the node yet.
    Ok(Some(keep_old_node(change, node, &record)?))
}

#[cfg(test)]
mod tests;
