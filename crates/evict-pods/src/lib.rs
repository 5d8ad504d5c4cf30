//! The only function that can hurt a pod: asks, through the Eviction API, for those to go that nobody waits for.
//!
//! Every pod is asked for by itself: no answer to one keeps the others. A pod that may not go now is asked for again after
//! the next look of `check-pods`, which also says how long to wait.

mod error;
mod requests;

use eks_auth::Access;
use node_record::{check_claim, hold_back, list_pods, open, read_progress, tainted_since, tell_progress};
use recycle::contract::{Answer, Context, EvictVerdict, Run, StepRequest};
use recycle::drain::{Progress, first_obstacles};
use recycle::failure::{Failure, NamedFailure as _, with_causes};
use recycle::node::NodeFacts;
use recycle::pods::survey_pods;

pub use error::Error;

/// One invocation. If the cluster cannot be asked, or the Node has vanished, the next look of `check-pods` sees to it.
pub async fn evict_pods(access: &Access, request: StepRequest) -> Result<Answer<EvictVerdict>, Error> {
    let StepRequest { context, mut run } = request;
    let opened = open(access, &mut run.cluster, &run.node).await;
    let evicted = match opened {
        Ok((client, node)) => evict(&client, node, &context, &run).await,
        Err(error) => Err(error.into()),
    };
    let answer = match evicted {
        Err(error) if matches!(error.failure(), Failure::ServiceUnavailable | Failure::NodeLost) => {
            Answer::new(
                EvictVerdict::Wait,
                format!("the cluster cannot be asked: {}", with_causes(&error)),
            )
        }
        evicted => evicted?,
    };
    Ok(answer.carrying(run))
}

async fn evict(
    client: &kube::Client,
    node: Option<NodeFacts>,
    context: &Context,
    run: &Run,
) -> Result<Answer<EvictVerdict>, Error> {
    let node = node.ok_or_else(|| node_record::Error::NodeGone {
        node: run.node.to_string(),
    })?;
    check_claim(&node, &context.fence(), run.input.urgency)?;
    let pods = list_pods(client, &node.name).await?;
    let tainted_since = tainted_since(&node, run.draining_since)?;
    let survey = survey_pods(&pods, &run.input.awaited, run.input.evict, tainted_since);
    let survey = hold_back(client, &node, survey).await?;
    let requests = requests::send_all(client, survey.evictable.clone()).await;
    // The story is told by `check-pods`; what stands in the way, only we know.
    if let Some(progress) = read_progress(&node) {
        let progress = Progress {
            blocked_by: first_obstacles(&survey, &requests.obstacles()),
            ..progress
        };
        tell_progress(client, &node, &progress).await?;
    }
    Ok(requests.into_answer())
}

#[cfg(test)]
mod tests;
