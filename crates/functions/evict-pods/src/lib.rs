//! The Lambda `evict-pods`: requests, through the Eviction API, the eviction of the pods that the drain does not wait for.
//!
//! No other function evicts pods. Each pod has its own request, so a refusal for one pod does not affect the others. The eviction of a pod
//! that is refused now is requested again after the next check of `check-pods`, which also decides how long to wait.

#[cfg(test)]
mod laws;
mod requests;

use eks_auth::Access;
use futures::future::join;
use kubernetes::{
    NodeChange, NodeSurvey, Occasion, amend_node, check_phase, list_replacements, open, read_progress,
    record_event, write_progress,
};
use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::names::EVICTED_ANNOTATION;
use recycle::cluster::node::NodeFacts;
use recycle::cluster::pod::PodFacts;
use recycle::contract::context::Context;
use recycle::contract::requests::StepRequest;
use recycle::contract::run::Run;
use recycle::contract::verdicts::EvictVerdict;
use recycle::drain::blocked::{describe_update, find_blockers};
use recycle::drain::evicted::{MOST, MOST_CARRIED, note_evicted};
use recycle::drain::progress::add_blockers;
use recycle::drain::survey::PodSurvey;
use recycle::input::path::RecyclePath;
use recycle::records::blocker::Blocker;
use recycle::records::claim::Phase;

pub use kubernetes::StepError as Error;

/// Evicts the pods that may be evicted. If the cluster cannot be read or the Node is gone, the answer is to wait, because the next check of
/// `check-pods` handles that.
pub async fn evict_pods(access: &Access, request: StepRequest) -> Result<Answer<EvictVerdict>, Error> {
    let StepRequest { context, mut run } = request;
    let evicted = match open(access, &run).await {
        Ok((client, node)) => evict(&client, node, &context, &mut run).await,
        Err(error) => Err(error.into()),
    };
    let answer = match evicted {
        Err(error) if matches!(error.failure(), Failure::ServiceUnavailable | Failure::NodeLost) => {
            let reason = format!("cannot read the cluster: {}", with_causes(&error));
            Answer::new(EvictVerdict::Wait, reason)
        }
        evicted => evicted?,
    };
    Ok(answer.carrying(run))
}

async fn evict(
    client: &kube::Client,
    node: Option<NodeFacts>,
    context: &Context,
    run: &mut Run,
) -> Result<Answer<EvictVerdict>, Error> {
    let node = node.ok_or_else(|| kubernetes::Error::NodeGone {
        node: run.node.to_string(),
    })?;
    let now = context.now();
    check_phase(&node, &context.fence(), run.input.urgency, Phase::Draining)?;
    let drain = run.clone();
    let (survey, replacement) = join(
        NodeSurvey::of_node::<Error>(client, &node, (&drain).into(), now),
        find_replacement(client, &drain),
    )
    .await;
    let survey = survey?;
    let leaving = survey.pods.to_evict();
    note(client, run, replacement, &leaving).await?;
    let requests = requests::send_all(client, leaving, &survey.terms).await;
    let before = read_progress(&node).map_or_else(Vec::new, |progress| progress.blocked);
    let blockers = find_blockers(&requests.refusals, &before, now);
    let update = describe_update(&blockers, now);
    write_blockers(client, &node, &survey.pods, blockers, context).await?;
    Ok(requests.into_answer(update))
}

/// Notes the controllers of these pods before their eviction is requested, because a rotation looks for them later.
/// The notes go to the replacement's Node, or into the run if the replacement comes afterwards (the `after` path).
/// On the hook path nothing is noted, because that replacement belongs to no rotation.
async fn note(
    client: &kube::Client,
    run: &mut Run,
    replacement: Result<Option<NodeFacts>, Error>,
    pods: &[PodFacts],
) -> Result<(), Error> {
    if note_evicted(None, pods, MOST).is_none() {
        return Ok(());
    }
    match run.path {
        RecyclePath::Hook => {}
        RecyclePath::After => {
            if let Some(noted) = note_evicted(run.evicted.as_deref(), pods, MOST_CARRIED) {
                run.evicted = Some(noted);
            }
        }
        RecyclePath::Before | RecyclePath::Surge => {
            if let Some(node) = replacement? {
                note_on(client, node, pods).await?;
            }
        }
    }
    Ok(())
}

/// Finds the Node of a replacement that came before the evictions.
async fn find_replacement(client: &kube::Client, run: &Run) -> Result<Option<NodeFacts>, Error> {
    match run.path {
        RecyclePath::Hook | RecyclePath::After => Ok(None),
        RecyclePath::Before | RecyclePath::Surge => {
            let ids = std::slice::from_ref(&run.input.instance_id);
            Ok(list_replacements(client, ids).await?.into_iter().next())
        }
    }
}

async fn note_on(client: &kube::Client, replacement: NodeFacts, pods: &[PodFacts]) -> Result<(), Error> {
    let noted = amend_node(client, replacement, |node| {
        let before = node.annotations.get(EVICTED_ANNOTATION);
        let noted = note_evicted(before.map(String::as_str), pods, MOST);
        Ok::<_, kubernetes::Error>(noted.map(|noted| NodeChange::new().annotate(EVICTED_ANNOTATION, noted)))
    });
    match noted.await {
        Ok(_) | Err(kubernetes::Error::NodeGone { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes the blockers into the progress. `check-pods` writes the rest of it, but only this function knows what blocks evictions.
/// A blocker that has lasted for five minutes also gets an Event.
async fn write_blockers(
    client: &kube::Client,
    node: &NodeFacts,
    survey: &PodSurvey,
    mut blockers: Vec<Blocker>,
    context: &Context,
) -> Result<(), Error> {
    let (now, me) = (context.now(), context.fence());
    let is_due = |blocker: &&mut Blocker| blocker.is_long_enough(now) && !blocker.reported;
    for blocker in blockers.iter_mut().filter(is_due) {
        let (occasion, text) = (Occasion::Blocked(&blocker.what), blocker.describe());
        record_event(client, &node.name, occasion, &text, now, &me).await;
        blocker.reported = true;
    }
    if let Some(progress) = read_progress(node) {
        write_progress(client, node, &add_blockers(progress, survey, blockers)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
