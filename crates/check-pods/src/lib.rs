//! The one observer: reads the node, its claim and its pods, and says what comes next. Tells people, too.
//!
//! Touches no pod. All it writes is on the Node: the progress, and in its claim, once, that the node only waits from now on.

mod error;
mod midway;
mod outage;
mod view;

use eks_auth::Access;
use node_record::{
    NodeChange, amend_node, check_claim, list_pods, open, read_progress, tell, tell_progress, warn,
};
use recycle::claim::{Claim, Phase};
use recycle::contract::{Answer, CheckVerdict, Context, Run, StepRequest};
use recycle::drain::{DrainVerdict, judge_drain, only_waits};
use recycle::midway::Fate;
use recycle::node::NodeFacts;
use recycle::poll::POLL_BUDGET;

use crate::midway::{Meanwhile, look};
use crate::view::View;

pub use error::Error;
pub use midway::Outside;

/// One invocation. A cluster that cannot be asked is a reason to wait, as long as there is time.
pub async fn check_pods(
    access: &Access,
    outside: &Outside,
    request: StepRequest,
) -> Result<Answer<CheckVerdict>, Error> {
    let StepRequest { context, mut run } = request;
    let polls = run.polls;
    run.polls += 1;
    run.draining_since.get_or_insert(context.now());
    let opened = open(access, &mut run.cluster, &run.node).await;
    let checked = match opened {
        Ok((client, node)) => {
            let meanwhile = look(outside, node.as_ref(), &run).await;
            check(&client, node, &context, run.clone(), polls, &meanwhile).await
        }
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
    meanwhile: &Meanwhile,
) -> Result<Answer<CheckVerdict>, Error> {
    let node = node.ok_or_else(|| node_record::Error::NodeGone {
        node: run.node.to_string(),
    })?;
    let now = context.now();
    let claim = check_claim(&node, &context.fence(), run.input.urgency)?;
    if let Fate::PutToUse(text) = &meanwhile.fate {
        return Err(Error::PutToUse(text.clone()));
    }
    let pods = list_pods(client, &node.name).await?;
    let view = View::new(&node, &pods, &run, now)?.and(meanwhile);
    let last_eviction_tried = run.last_eviction.is_some();
    let drain_timeout = run.input.drain_timeout_seconds;
    let verdict = judge_drain(
        &view.survey,
        view.since,
        now,
        view.deadline,
        drain_timeout,
        polls,
        last_eviction_tried,
    );
    let node = if claim.phase == Phase::Draining && only_waits(&view.survey) {
        begin_to_wait(client, node, context, &run).await?
    } else {
        node
    };
    let progress = view.progress(&node);
    warn_once(client, &node, meanwhile, context).await;
    tell_progress(client, &node, &progress).await?;
    run.drain_until = view.deadline.by_person.then_some(view.deadline.at);

    let is_over = view.deadline.is_past(now) || polls >= POLL_BUDGET;
    let (verdict, wait_seconds) = match verdict {
        DrainVerdict::Dispose => (CheckVerdict::Dispose, 0),
        DrainVerdict::Wait(seconds) => (CheckVerdict::Wait, seconds),
        DrainVerdict::Evict(seconds) => {
            run.last_eviction = run.last_eviction.or_else(|| is_over.then_some(now));
            (CheckVerdict::Evict, seconds)
        }
        DrainVerdict::TimedOut(reason) => {
            let sentences = std::iter::once(reason).chain(progress.blocked_by);
            return Err(Error::TimedOut(sentences.collect::<Vec<_>>().join("; ")));
        }
    };
    let mut answer = Answer::new(verdict, view.reason())
        .waiting(wait_seconds)
        .carrying(run);
    answer.counts = view.survey.counts();
    answer.names = view.survey.names();
    Ok(answer)
}

/// One Event for each thing that came up and is not in the progress yet.
async fn warn_once(client: &kube::Client, node: &NodeFacts, meanwhile: &Meanwhile, context: &Context) {
    let told = read_progress(node).map_or_else(Vec::new, |progress| progress.meanwhile);
    for remark in &meanwhile.remarks {
        if !told.contains(&remark.to_string()) {
            let (what, text) = (remark.obstacle.name(), remark.to_string());
            warn(client, &node.name, what, &text, context.now(), &context.fence()).await;
        }
    }
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
