//! The requests for eviction of one invocation, and what became of them.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use node_record::{Eviction, evict_pod};
use recycle::contract::{Answer, EvictVerdict};
use recycle::failure::with_causes;
use recycle::pods::{NAMES_PER_CLASS, PodFacts, first_names};

/// How many evictions are under way at once. One takes the API server about 100 ms, 10 at once 0.4 s (measured): 110 pods, as
/// many as a node usually has, are asked for within seconds, and the API server's fair share for one client is not used up.
const AT_ONCE: usize = 10;
/// To how many characters a name is cut, so that five names of each outcome leave an answer under 8 KB. Most are shorter.
const LONGEST_NAME: usize = 100;

/// The pods by what became of them.
#[derive(Default)]
pub(crate) struct Requests {
    by_outcome: BTreeMap<&'static str, Vec<PodFacts>>,
    obstacles: Vec<String>,
}

/// Asks for the eviction of every one of these pods.
pub(crate) async fn send_all(client: &kube::Client, pods: Vec<PodFacts>) -> Requests {
    let mut answers = futures::stream::iter(pods)
        .map(|pod| async move {
            let eviction = evict_pod(client, &pod).await;
            (pod, eviction)
        })
        .buffer_unordered(AT_ONCE);
    let mut requests = Requests::default();
    while let Some((pod, eviction)) = answers.next().await {
        requests.add(pod, eviction);
    }
    requests
}

impl Requests {
    fn add(&mut self, pod: PodFacts, eviction: Result<Eviction, node_record::Error>) {
        let (outcome, obstacle) = match eviction {
            Ok(Eviction::Accepted) => ("evicted", None),
            Ok(Eviction::Gone) => ("gone", None),
            Ok(Eviction::Blocked { by, .. }) => ("blocked", Some(by)),
            Err(error) => ("failed", Some(with_causes(&error))),
        };
        let obstacle = obstacle.map(|obstacle| format!("{}: {obstacle}", pod.full_name()));
        self.obstacles.extend(obstacle);
        self.by_outcome.entry(outcome).or_default().push(pod);
    }

    /// What stands in the way of which pod, one sentence each: the first five, in an order that does not change with the
    /// order of the answers.
    pub(crate) fn obstacles(&self) -> Vec<String> {
        let mut obstacles = self.obstacles.clone();
        obstacles.sort();
        obstacles.truncate(NAMES_PER_CLASS);
        obstacles
    }

    pub(crate) fn into_answer(self) -> Answer<EvictVerdict> {
        let parts: Vec<String> = self
            .by_outcome
            .iter()
            .map(|(outcome, pods)| format!("{} {outcome}", pods.len()))
            .collect();
        let reason = match parts.as_slice() {
            [] => "there is no pod to evict".to_owned(),
            parts => format!("pods: {}", parts.join(", ")),
        };
        let mut answer = Answer::new(EvictVerdict::Wait, reason);
        for (outcome, pods) in self.by_outcome {
            answer
                .counts
                .insert(outcome.to_owned(), u32::try_from(pods.len()).unwrap_or(u32::MAX));
            answer.names.insert(outcome.to_owned(), short_names(&pods));
        }
        answer
    }
}

fn short_names(pods: &[PodFacts]) -> Vec<String> {
    first_names(pods)
        .into_iter()
        .map(|name| name.chars().take(LONGEST_NAME).collect())
        .collect()
}
