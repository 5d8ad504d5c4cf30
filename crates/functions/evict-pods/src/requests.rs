//! The eviction requests of one invocation, and their outcomes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, future};
use kubernetes::{Eviction, delete_pod, evict_pod};
use recycle::answer::envelope::Answer;
use recycle::base::failure::with_causes;
use recycle::cluster::pod::PodFacts;
use recycle::contract::verdicts::EvictVerdict;
use recycle::drain::blocked::{Refusal, RefusalKind};
use recycle::drain::survey::{NAMES_BUDGET, alternate_controllers, name_lists};
use recycle::drain::terms::Terms;

/// The number of evictions that are under way at once.
/// One takes the API server about 100 ms, and 10 at once take 0.4 s (measured).
/// So 110 pods, as many as a node usually has, are requested within seconds, within the API server's fair share for one client.
const AT_ONCE: usize = 10;

/// The time for requests, in real seconds. A call that hangs takes 15, and the function has 240.
/// Pods whose eviction was not requested by then follow after the next check.
const ASKING: Duration = Duration::from_secs(150);

/// Outcomes of the requests: the pods of each outcome, and the refusals.
#[derive(Default)]
pub(crate) struct Requests {
    by_outcome: BTreeMap<&'static str, Vec<PodFacts>>,
    pub(crate) refusals: Vec<Refusal>,
}

/// Requests the eviction of every one of these pods, as long as there is time.
pub(crate) async fn send_all(client: &kube::Client, pods: Vec<PodFacts>, terms: &Terms<'_>) -> Requests {
    let end = Instant::now() + ASKING;
    let mut answers = futures::stream::iter(alternate_controllers(pods))
        .take_while(|_| future::ready(Instant::now() < end))
        .map(|pod| async move {
            let grace = terms.asked_grace(&pod);
            let eviction = evict_pod(client, &pod, grace).await;
            let eviction = match eviction {
                Ok(Eviction::Refused { kind, .. }) if terms.may_delete(&pod, kind) => {
                    delete_pod(client, &pod, grace).await
                }
                eviction => eviction,
            };
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
    fn add(&mut self, pod: PodFacts, eviction: Result<Eviction, kubernetes::Error>) {
        let outcome = match eviction {
            Ok(Eviction::Accepted) => "evicted",
            Ok(Eviction::Gone) => "gone",
            Ok(Eviction::Refused { kind, says }) => self.refuse(&pod, kind, says),
            Err(error) => self.refuse(&pod, RefusalKind::Failed, with_causes(&error)),
        };
        self.by_outcome.entry(outcome).or_default().push(pod);
    }

    fn refuse(&mut self, pod: &PodFacts, kind: RefusalKind, message: String) -> &'static str {
        self.refusals.push(Refusal {
            kind,
            namespace: pod.namespace.clone(),
            pod: pod.full_name(),
            says: message,
        });
        kind.name()
    }

    /// Builds the answer. `update` describes blockers that operators should know of.
    pub(crate) fn into_answer(self, update: Option<String>) -> Answer<EvictVerdict> {
        let count = |pods: &Vec<PodFacts>| u32::try_from(pods.len()).unwrap_or(u32::MAX);
        let counted = self.by_outcome.iter();
        let counts: BTreeMap<String, u32> = counted
            .map(|(outcome, pods)| ((*outcome).to_owned(), count(pods)))
            .collect();
        let parts = counts.iter().map(|(outcome, count)| format!("{count} {outcome}"));
        let mut reason = match parts.collect::<Vec<_>>().as_slice() {
            [] => "there is no pod to evict".to_owned(),
            parts => format!("pods: {}", parts.join(", ")),
        };
        if let Some(update) = update {
            reason = format!("{reason}; {update}");
        }
        let lists = self
            .by_outcome
            .iter()
            .map(|(outcome, pods)| (*outcome, pods.as_slice()));
        Answer {
            counts,
            names: name_lists(lists, NAMES_BUDGET),
            ..Answer::new(EvictVerdict::Wait, reason)
        }
    }
}
