//! The one observer: reads the node, its claim and its pods, and says what comes next. Tells people, too.
//!
//! Touches no pod. All it writes is on the Node: the progress, and in its claim, once, that the node only waits from now on.

mod error;
mod outage;
mod view;

use eks_auth::Access;
use node_record::{NodeChange, amend_node, check_claim, list_pods, open, tell};
use recycle::claim::{Claim, Phase};
use recycle::contract::{Answer, CheckVerdict, Context, EndedPods, Run, StepRequest};
use recycle::drain::{DrainVerdict, judge_drain, only_waits};
use recycle::node::NodeFacts;
use recycle::poll::POLL_BUDGET;

use crate::view::View;

pub use error::Error;

/// One invocation. A cluster that cannot be asked is a reason to wait, as long as there is time.
pub async fn check_pods(access: &Access, request: StepRequest) -> Result<Answer<CheckVerdict>, Error> {
    let StepRequest { context, mut run } = request;
    let polls = run.polls;
    run.polls += 1;
    run.draining_since.get_or_insert(context.now());
    let opened = open(access, &mut run.cluster, &run.node).await;
    let checked = match opened {
        Ok((client, node)) => check(&client, node, &context, run.clone(), polls).await,
        Err(error) => Err(error.into()),
    };
    checked.or_else(|error| outage::wait_out(error, run, context.now()))
}

async fn check(
    client: &kube::Client,
    node: Option<NodeFacts>,
    context: &Context,
    mut run: Run,
    polls: u32,
) -> Result<Answer<CheckVerdict>, Error> {
    let node = node.ok_or_else(|| node_record::Error::NodeGone {
        node: run.node.to_string(),
    })?;
    let (me, now) = (context.fence(), context.now());
    let claim = check_claim(&node, &me, run.input.urgency)?;
    let pods = list_pods(client, &node.name).await?;
    let asked = run.clone();
    let view = View::new(&node, &pods, &asked, now)?;
    let verdict = judge_drain(&view.survey, &view.terms, polls, run.last_eviction.is_some());
    let node = if claim.phase == Phase::Draining && only_waits(&view.survey) {
        begin_to_wait(client, node, context, &run).await?
    } else {
        node
    };
    view.tell(client, &node, &me).await?;

    let deadline = view.terms.deadline;
    run.drain_until = deadline.by_person.then_some(deadline.at);
    let is_over = view.terms.is_time_over() || polls >= POLL_BUDGET;
    let (verdict, wait_seconds) = match verdict {
        DrainVerdict::Dispose => (CheckVerdict::Dispose, 0),
        DrainVerdict::Wait(seconds) => (CheckVerdict::Wait, seconds),
        DrainVerdict::Evict(seconds) => {
            run.last_eviction = run.last_eviction.or_else(|| is_over.then_some(now));
            (CheckVerdict::Evict, seconds)
        }
        DrainVerdict::EndPods => {
            run.ended_pods = Some(EndedPods::of(&view.survey));
            (CheckVerdict::Dispose, 0)
        }
        DrainVerdict::TimedOut(reason) => return Err(Error::TimedOut(view.describe_failure(reason))),
    };
    Ok(Answer {
        counts: view.survey.counts(),
        names: view.survey.names(),
        ..Answer::new(verdict, view.reason())
            .waiting(wait_seconds)
            .carrying(run)
    })
}

/// Nothing moves any more, so that another node of the group may have its turn. It stays like that: what may be evicted later was not
/// to be foreseen, and is not worth a second turn.
async fn begin_to_wait(
    client: &kube::Client,
    node: NodeFacts,
    context: &Context,
    run: &Run,
) -> Result<NodeFacts, Error> {
    let fence = context.fence();
    let node = amend_node(client, node, |node| {
        let claim = check_claim(node, &fence, run.input.urgency)?;
        if claim.phase >= Phase::Waiting {
            return Ok(None);
        }
        let waiting = Claim {
            phase: Phase::Waiting,
            ..claim
        };
        Ok::<_, Error>(Some(NodeChange::new().claim(&waiting)?))
    })
    .await?;
    let story = "Only waits for pods that end by themselves; another node of its group may have its turn";
    tell(client, &node.name, Phase::Waiting, story, context.now(), &fence).await;
    Ok(node)
}

#[cfg(test)]
mod tests;
