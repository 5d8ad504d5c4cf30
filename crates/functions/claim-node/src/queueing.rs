//! Admits the node to work on its group: lists the claims, writes the phase `admitted`, and lists again.
//! [`recycle::claim::queue`] decides each step and explains why.

use kubernetes::NodeChange;
use recycle::base::names::PROGRESS_ANNOTATION;
use recycle::claim::facts::GroupState;
use recycle::claim::queue::{
    QueueStep, Rival, decide_queue_step, describe_queue, find_rivals, find_shortage, waits_in_queue,
};
use recycle::input::limits::Limits;
use recycle::input::model::Input;
use recycle::records::claim::{Claim, Phase};

use crate::Error;
use crate::facts::ClaimFacts;

impl ClaimFacts {
    /// Admits the node, whose claim is written. If another node goes first, returns the text that describes the queue.
    pub(crate) async fn wait_in_queue(
        &mut self,
        claim: &Claim,
        limits: Limits,
        input: &Input,
        group_state: &GroupState,
    ) -> Result<Option<String>, Error> {
        let mut claim = claim.clone();
        let limits = limits.of(input.replacement);
        if let Some(shortage) = find_shortage(&claim, &self.group, input, group_state) {
            // It may have to wait for hours, and others may go on meanwhile. Its order in the queue stays.
            if claim.phase == Phase::Admitted {
                claim.phase = Phase::Claimed;
                self.swap(&claim).await?;
            }
            return Ok(Some(shortage));
        }
        loop {
            let rivals = self.fetch_rivals(&claim).await?;
            let queue = || describe_queue(&claim, &self.instance.id, &rivals, limits);
            match decide_queue_step(&claim, &self.instance.id, &rivals, limits) {
                QueueStep::Go => return Ok(None),
                QueueStep::Wait => return Ok(Some(queue())),
                QueueStep::StepBack => {
                    let queue = queue();
                    claim.phase = Phase::Claimed;
                    self.swap(&claim).await?;
                    return Ok(Some(queue));
                }
                QueueStep::Swap => {
                    claim.phase = Phase::Admitted;
                    self.swap(&claim).await?;
                }
            }
        }
    }

    /// Fetches the other claims of the group. A claim that does not queue, or was admitted before, needs none.
    async fn fetch_rivals(&self, claim: &Claim) -> Result<Vec<Rival>, Error> {
        if !waits_in_queue(claim.urgency) || claim.phase > Phase::Admitted {
            return Ok(Vec::new());
        }
        let leases = kubernetes::list_group(&self.client, &claim.group).await?;
        Ok(find_rivals(&leases, &self.instance.id, claim))
    }

    /// Writes the claim and removes the progress annotation, because its text about the queue no longer holds.
    /// If the node still has to wait, the caller writes the progress again.
    async fn swap(&mut self, claim: &Claim) -> Result<(), Error> {
        let change = NodeChange::new()
            .claim(claim)?
            .remove_annotation(PROGRESS_ANNOTATION);
        self.node = kubernetes::change_node(&self.client, &self.node, change).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use recycle::base::failure::{Failure, NamedFailure as _};
    use recycle::input::parse::parse_input;
    use scripted_kube::ScriptedKube;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{LIST, NODE, claim, claim_of, facts, input, list, node, settings};

    fn input_with(replacement: &str) -> Input {
        let mut given = input();
        given["replacement"] = json!(replacement);
        parse_input(&given, &settings()).unwrap()
    }

    async fn queue(kube: &ScriptedKube, phase: Phase) -> Result<Option<String>, Error> {
        let claim = claim(phase);
        facts(kube, &node(Some(&claim)))
            .await
            .wait_in_queue(
                &claim,
                Limits::default(),
                &input_with("before"),
                &GroupState::default(),
            )
            .await
    }

    fn rival(phase: Phase, seconds: i64) -> Value {
        list(&[node(Some(&claim_of("two", phase, seconds)))])
    }

    fn swaps(kube: &ScriptedKube) -> Vec<String> {
        let patches = kube.calls().into_iter().filter(|call| call.method == "PATCH");
        patches
            .map(|call| {
                let annotations = &call.body["metadata"]["annotations"];
                assert_eq!(annotations[PROGRESS_ANNOTATION], Value::Null);
                assert_eq!(call.body["metadata"]["resourceVersion"], "7");
                let claim: Value = serde_json::from_str(
                    annotations[recycle::base::names::CLAIM_ANNOTATION]
                        .as_str()
                        .unwrap(),
                )
                .unwrap();
                claim["phase"].as_str().unwrap().to_owned()
            })
            .collect()
    }

    #[tokio::test]
    async fn the_later_of_two_simultaneous_nodes_steps_back() {
        for (seconds, expected) in [(-1, vec!["admitted", "claimed"]), (1, vec!["admitted"])] {
            let kube = ScriptedKube::new()
                .on("GET", LIST, 200, list(&[]))
                .on("PATCH", NODE, 200, node(Some(&claim(Phase::Admitted))))
                .on("GET", LIST, 200, rival(Phase::Admitted, seconds))
                .on("PATCH", NODE, 200, node(Some(&claim(Phase::Claimed))));
            let queue = queue(&kube, Phase::Claimed).await.unwrap().unwrap();
            assert_eq!(swaps(&kube), expected, "{seconds}");
            assert!(queue.starts_with("node two "), "{queue}");
        }
    }

    #[tokio::test]
    async fn an_execution_that_crashed_after_its_swap_lists_the_nodes_again() {
        let kube = ScriptedKube::new().on("GET", LIST, 200, list(&[]));
        assert_eq!(queue(&kube, Phase::Admitted).await.unwrap(), None);
        let list = "GET /apis/coordination.k8s.io/v1/namespaces/recycle-eks/leases";
        assert_eq!(kube.requests(), [list]);
    }

    #[tokio::test]
    async fn a_node_that_was_admitted_before_lists_no_nodes() {
        let kube = ScriptedKube::new();
        for phase in [Phase::Standby, Phase::Draining, Phase::Waiting, Phase::Disposing] {
            assert_eq!(queue(&kube, phase).await.unwrap(), None);
        }
        assert!(kube.calls().is_empty());
    }

    #[tokio::test]
    async fn with_replacement_after_a_node_waits_for_a_group_that_is_short_of_members() {
        let kube = ScriptedKube::new();
        let claim = claim(Phase::Claimed);
        let mut facts = facts(&kube, &node(Some(&claim))).await;
        facts.group.desired += 1;
        let queue = facts
            .wait_in_queue(
                &claim,
                Limits::default(),
                &input_with("after"),
                &GroupState::default(),
            )
            .await
            .unwrap()
            .unwrap();
        assert!(queue.contains("members are in service"), "{queue}");
        assert!(kube.calls().is_empty());
    }

    #[tokio::test]
    async fn a_node_is_not_admitted_if_the_list_or_the_swap_fails() {
        let unlisted = ScriptedKube::new().refuses("GET", LIST, 503, "", "no");
        let error = queue(&unlisted, Phase::Claimed).await.unwrap_err();
        assert_eq!(error.failure(), Failure::ServiceUnavailable);
        let unswapped = ScriptedKube::new().on("GET", LIST, 200, list(&[])).refuses(
            "PATCH",
            NODE,
            409,
            "Conflict",
            "the object has been modified",
        );
        let error = queue(&unswapped, Phase::Claimed).await.unwrap_err();
        assert!(
            matches!(error, Error::Node(kubernetes::Error::Conflict { .. })),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn an_admitted_node_for_which_the_group_has_no_room_steps_back() {
        let kube = ScriptedKube::new().on("PATCH", NODE, 200, node(Some(&claim(Phase::Claimed))));
        let claim = claim(Phase::Admitted);
        let mut facts = facts(&kube, &node(Some(&claim))).await;
        facts.group.desired = facts.group.max;
        let full = GroupState {
            added_places: 1,
            ..GroupState::default()
        };
        let input = input_with("surge");
        let queue = facts
            .wait_in_queue(&claim, Limits::default(), &input, &full)
            .await;
        let queue = queue.unwrap().unwrap();
        assert!(queue.contains("has its maximum of"), "{queue}");
        assert_eq!(swaps(&kube), ["claimed"]);
    }
}
