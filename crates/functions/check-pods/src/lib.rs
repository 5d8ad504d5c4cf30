//! The Lambda `check-pods`: checks the node, its claim, its pods and the deadline, and decides what comes next.
//!
//! It does not touch pods. It writes the progress, Events and, once in a drain, the phase `waiting` in the claim. If the module allows it,
//! it cancels an instance refresh that would end the node with its pods. Its answer may carry a notification.

mod config;
mod disruption;
mod error;
mod facts;
#[cfg(test)]
mod laws;
mod outage;

use std::collections::BTreeMap;

use eks_auth::Access;
use futures::future::join;
use jiff::Timestamp;
use kubernetes::{
    NodeChange, NodeSurvey, amend_node, check_claim, is_another_ready, notify_pods, open_beside,
    record_event, write_progress,
};
use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::base::poll::spread;
use recycle::cluster::node::NodeFacts;
use recycle::cluster::silence::describe_silence;
use recycle::contract::context::Context;
use recycle::contract::requests::StepRequest;
use recycle::contract::run::{EndedPods, Run};
use recycle::contract::verdicts::CheckVerdict;
use recycle::drain::disruption::DrainValidity;
use recycle::drain::lost::{Lost, find_loss, find_patience, note_holders};
use recycle::drain::progress::{describe_waiting, only_waits};
use recycle::drain::verdict::{DrainVerdict, judge_drain};
use recycle::input::model::Dispose;
use recycle::notify::blockage::{list_blocks, report_refresh, update_blockage};
use recycle::notify::metrics::Metric;
use recycle::records::blocker::count_all;
use recycle::records::claim::{Claim, Phase};

use crate::disruption::{GroupReading, read_group};
use crate::facts::{ALL_SILENT, CheckFacts};

pub use config::read_cancels_refreshes;
pub use disruption::Outside;
pub use error::Error;

type Answered = Result<Answer<CheckVerdict>, Error>;

/// Checks the pods of a node once, and decides what comes next.
/// If the cluster cannot be read, the answer is to wait, as long as there is time.
pub async fn check_pods(
    access: &Access,
    outside: &Outside,
    request: StepRequest,
) -> Result<Answer<CheckVerdict>, Error> {
    let StepRequest { context, mut run } = request;
    if let Some(answer) = keep_alive(&mut run, context.now()) {
        return Ok(answer);
    }
    let polls = run.drain.polls;
    run.drain.polls = run.drain.polls.saturating_add(1);
    run.drain.draining_since.get_or_insert(context.now());
    let checked = match open_beside(access, &run, async || read_group(outside, &run).await).await {
        Ok((client, node, group)) => {
            if node.is_some() {
                group.note_hook(&mut run);
            }
            check(&client, node, &context, run.clone(), polls, outside, &group).await
        }
        Err(error) => Err(error.into()),
    };
    checked.or_else(|error| outage::wait_out(error, run, &context))
}

/// Answers that a heartbeat is due; None if it is not. Called before anything is read, so that an outage of the cluster cannot cost the
/// hook its heartbeat.
fn keep_alive(run: &mut Run, now: Timestamp) -> Option<Answer<CheckVerdict>> {
    let since = run.drain.draining_since.unwrap_or(now);
    let hook = run.hook.as_mut()?;
    if !hook.try_heartbeat(since, now, run.input.drain_timeout) {
        return None;
    }
    let reason = format!("the hook of group {} is kept alive", run.group);
    Some(Answer::new(CheckVerdict::Heartbeat, reason).carrying(run.clone()))
}

async fn check(
    client: &kube::Client,
    node: Option<NodeFacts>,
    context: &Context,
    mut run: Run,
    polls: u32,
    outside: &Outside,
    group: &GroupReading,
) -> Answered {
    let (me, now) = (context.fence(), context.now());
    let given = run.clone();
    // Node names are reused: a Node that names another instance is another Node.
    let instance = &given.input.instance_id;
    let is_same = |node: &NodeFacts| node.instance.as_ref().is_none_or(|id| id == instance);
    let Some(node) = node.filter(is_same) else {
        let survey = NodeSurvey::fetch::<Error>(client, &run.node, None, (&given).into(), now).await?;
        run.drain.holders = note_holders(&survey.pods, run.drain.holders, now);
        return Ok(lose(run, Lost::of_gone_node(now)));
    };
    let claim = check_claim(&node, &me, run.input.urgency)?;
    if let DrainValidity::TakenAway(text) = group.judge_validity(&node, &given) {
        return Err(Error::TakenAway(text));
    }
    let (survey, disruptions) = join(
        NodeSurvey::fetch::<Error>(client, &node.name, Some(&node), (&given).into(), now),
        group.find_disruptions(client, outside, &node, &given),
    )
    .await;
    let survey = survey?;
    run.drain.holders = note_holders(&survey.pods, None, now);
    let patience = find_patience(run.input.node_lost_after, &survey.pods.holding());
    let loss = find_loss(Some(&node), patience, now).filter(|_| !survey.pods.is_clear());
    let silence = match loss {
        Some(loss) if is_another_ready(client, &node.name).await? => return Ok(lose(run, loss)),
        Some(_) => Some(ALL_SILENT.to_owned()),
        None => describe_silence(&node, patience),
    };
    let survey = survey.hold_back(client, &node).await?;
    let only_late = survey.pods.is_clear() && !survey.pods.tolerates_taint.is_empty();
    run.drain.emptied_at = only_late.then(|| run.drain.emptied_at.unwrap_or(now));
    let facts = CheckFacts::new(&node, survey, run.drain.emptied_at, silence, disruptions);
    let has_asked_last = run.drain.last_eviction.is_some();
    let verdict = judge_drain(&facts.survey, &facts.terms, polls, has_asked_last);
    // The next check takes a remark in the progress for one that has its Event, so the Events come first.
    facts.record_events(client, &node.name, &me).await;
    let (listed, survey, terms) = (&facts.listed, &facts.survey, &facts.terms);
    let notices = notify_pods(client, &node.name, listed, survey, terms, &me);
    let removed = if claim.phase == Phase::Draining && only_waits(survey) {
        begin_to_wait(client, &node, context, &run, &facts).await?;
        let text = describe_waiting(survey);
        let event = record_event(client, &node.name, Phase::Waiting, &text, now, &me);
        join(notices, event).await.0
    } else {
        let (written, removed) = join(write_progress(client, &node, &facts.progress), notices).await;
        written?;
        removed
    };
    // No later call changes the pods of a node that stays, so this check is made again. After the deadline that would end in a restore.
    let can_wait = run.input.dispose != Dispose::Terminate && !facts.terms.is_time_over();
    if let Err(error) = removed
        && verdict == DrainVerdict::Dispose
        && can_wait
        && error.failure() == Failure::ServiceUnavailable
    {
        return Err(error.into());
    }

    let (deadline, reason) = (facts.terms.deadline, facts.reason());
    let blocks = list_blocks(&facts.survey, &facts.progress);
    let holds = matches!(verdict, DrainVerdict::Wait(_) | DrainVerdict::Evict(_));
    let refresh = if facts.is_ended_by_refresh && holds {
        let cancellation = outside.cancel_refresh(&run.group).await;
        report_refresh(&mut run, &cancellation, &me.execution, now, deadline.at)
    } else {
        None
    };
    let notification =
        refresh.or_else(|| update_blockage(&mut run, &blocks, &me.execution, now, deadline.at, &reason));
    run.drain.drain_until = deadline.by_person.then_some(deadline.at);
    let is_over = facts.terms.is_time_over() || facts.terms.is_budget_spent(polls);
    let more = match (&run.hook, polls) {
        (Some(_), 0) => spread(&run.input.instance_id),
        (Some(_) | None, _) => 0,
    };
    let (verdict, wait_seconds) = match verdict {
        DrainVerdict::Dispose => (CheckVerdict::Dispose, 0),
        DrainVerdict::Wait(seconds) => (CheckVerdict::Wait, seconds + more),
        DrainVerdict::Evict(seconds) => {
            run.drain.last_eviction = run.drain.last_eviction.or_else(|| is_over.then_some(now));
            (CheckVerdict::Evict, seconds + more)
        }
        DrainVerdict::EndPods => {
            run.drain.ended_pods = Some(EndedPods::of(&facts.survey));
            (CheckVerdict::Dispose, 0)
        }
        DrainVerdict::TimedOut(reason) => return Err(Error::TimedOut(facts.describe_failure(reason))),
    };
    // With a notification, the names and the whole reason would be more than 8 KB.
    let (reason, names) = match &notification {
        Some(notification) => (notification.reason().to_owned(), BTreeMap::new()),
        None => (reason, facts.survey.names()),
    };
    Ok(Answer {
        counts: facts.survey.counts(),
        names,
        ..Answer::new(verdict, reason)
            .waiting(wait_seconds)
            .with_notification(notification)
            // Pods that a budget, or another refusal of the API server, keeps from going now.
            .counting([Metric::BlockedPods(count_all(&facts.progress.blocked))])
            .carrying(run)
    })
}

/// Hands a node that counts as lost to `detach-terminate`, which asks EC2.
fn lose(mut run: Run, lost: Lost) -> Answer<CheckVerdict> {
    let reason = format!("{} may be lost: {}", run.describe_node(), lost.why);
    run.lost = Some(lost);
    Answer::new(CheckVerdict::Lost, reason).carrying(run)
}

/// Sets the phase Waiting, because no pod is being moved now: another node of the group may then be admitted. The same request writes the
/// progress. The phase stays, even if pods can be evicted later. They cannot be foreseen, and are not worth a second admission.
async fn begin_to_wait(
    client: &kube::Client,
    node: &NodeFacts,
    context: &Context,
    run: &Run,
    facts: &CheckFacts<'_>,
) -> Result<(), Error> {
    let (phase, me) = (Phase::Waiting, context.fence());
    amend_node(client, node.clone(), |node| {
        let claim = check_claim(node, &me, run.input.urgency)?;
        let change = NodeChange::new().progress(&facts.progress)?;
        if claim.phase >= phase {
            // An attempt has written the claim, but not the progress.
            let is_written = node.progress().as_ref() == Some(&facts.progress);
            return Ok((!is_written).then_some(change));
        }
        Ok::<_, Error>(Some(change.claim(&Claim { phase, ..claim })?))
    })
    .await
    .map(|_| ())
}

#[cfg(test)]
mod tests;
