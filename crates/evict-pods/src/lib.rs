//! The only function that can hurt a pod: asks, through the Eviction API, for those to go that nobody waits for.
//!
//! Every pod is asked for by itself: no answer to one keeps the others. A pod that may not go now is asked for again after
//! the next look of `check-pods`, which also says how long to wait.

mod error;

use std::collections::BTreeMap;

use eks_auth::Access;
use futures::StreamExt as _;
use node_record::{
    Eviction, NodeChange, change_node, check_claim, evict_pod, list_pods, open, tainted_since,
};
use recycle::contract::{Answer, Context, EvictVerdict, Run, StepRequest};
use recycle::drain::Progress;
use recycle::failure::{Failure, NamedFailure as _, with_causes};
use recycle::names::PROGRESS_ANNOTATION;
use recycle::node::NodeFacts;
use recycle::pods::{NAMES_PER_CLASS, PodFacts, first_names, survey_pods};

pub use error::Error;

/// How many evictions are under way at once. One takes the API server about 100 ms, 10 at once 0.4 s (measured): 110 pods, as
/// many as a node usually has, are asked for within seconds, and the API server's fair share for one client is not used up.
const AT_ONCE: usize = 10;

/// One invocation. If the cluster cannot be asked, the next look of `check-pods` sees to it.
pub async fn evict_pods(access: &Access, request: StepRequest) -> Result<Answer<EvictVerdict>, Error> {
    let StepRequest { context, mut run } = request;
    let opened = open(access, &mut run.cluster, &run.node).await;
    let evicted = match opened {
        Ok((client, node)) => evict(&client, node, &context, &run).await,
        Err(error) => Err(error.into()),
    };
    let answer = match evicted {
        Err(error) if error.failure() == Failure::ServiceUnavailable => Answer::new(
            EvictVerdict::Wait,
            format!("no pod was evicted: {}", with_causes(&error)),
        ),
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
    check_claim(&node, &context.fence())?;
    let pods = list_pods(client, &node.name).await?;
    let survey = survey_pods(&pods, &run.input.awaited, run.input.evict, tainted_since(&node)?);
    let asked = ask_all(client, survey.evictable).await;
    write_down(client, &node, &asked.obstacles).await?;
    Ok(asked.into_answer())
}

/// The pods by what became of them.
#[derive(Default)]
struct Asked {
    by_outcome: BTreeMap<&'static str, Vec<PodFacts>>,
    /// What stands in the way of which pod, one sentence each.
    obstacles: Vec<String>,
}

async fn ask_all(client: &kube::Client, pods: Vec<PodFacts>) -> Asked {
    let mut asked = Asked::default();
    let mut answers = futures::stream::iter(pods)
        .map(|pod| async move {
            let eviction = evict_pod(client, &pod).await;
            (pod, eviction)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((pod, eviction)) = answers.next().await {
        asked.add(pod, eviction);
    }
    asked.obstacles.sort();
    asked.obstacles.truncate(NAMES_PER_CLASS);
    asked
}

impl Asked {
    fn add(&mut self, pod: PodFacts, eviction: Result<Eviction, node_record::Error>) {
        let (outcome, obstacle) = match eviction {
            Ok(Eviction::Accepted) => ("evicted", None),
            Ok(Eviction::Gone) => ("gone", None),
            Ok(Eviction::Blocked { by, .. }) => ("blocked", Some(by)),
            Err(error) => ("failed", Some(with_causes(&error))),
        };
        if let Some(obstacle) = obstacle {
            self.obstacles.push(format!("{}: {obstacle}", pod.full_name()));
        }
        self.by_outcome.entry(outcome).or_default().push(pod);
    }

    fn into_answer(self) -> Answer<EvictVerdict> {
        let count = |pods: &Vec<PodFacts>| u32::try_from(pods.len()).unwrap_or(u32::MAX);
        let parts: Vec<String> = self
            .by_outcome
            .iter()
            .map(|(outcome, pods)| format!("{} {outcome}", pods.len()))
            .collect();
        let reason = if parts.is_empty() {
            "there is no pod to evict".to_owned()
        } else {
            format!("pods: {}", parts.join(", "))
        };
        let mut answer = Answer::new(EvictVerdict::Wait, reason);
        for (outcome, pods) in &self.by_outcome {
            answer.counts.insert((*outcome).to_owned(), count(pods));
            answer.names.insert((*outcome).to_owned(), first_names(pods));
        }
        answer
    }
}

/// Writes what stands in the way into the story that `check-pods` tells; if somebody else changed the Node meanwhile, the
/// next eviction writes it.
async fn write_down(client: &kube::Client, node: &NodeFacts, obstacles: &[String]) -> Result<(), Error> {
    let Some(progress) = read_progress(node).filter(|progress| progress.blocked_by != obstacles) else {
        return Ok(());
    };
    let change = NodeChange::new().progress(&Progress {
        blocked_by: obstacles.to_vec(),
        ..progress
    })?;
    match change_node(client, node, change).await {
        Ok(_) | Err(node_record::Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn read_progress(node: &NodeFacts) -> Option<Progress> {
    serde_json::from_str(node.annotations.get(PROGRESS_ANNOTATION)?).ok()
}
