//! The dry run: builds the plan from the facts that were read. It writes nothing, except the answer to a request taint.

use jiff::Timestamp;
use kubernetes::{DrainFacts, NodeSurvey, Occasion, add_drivers, list_budgets};
use recycle::answer::envelope::{Answer, ClaimBody};
use recycle::cluster::instance::describe_instance;
use recycle::contract::context::Context;
use recycle::contract::verdicts::ClaimVerdict;
use recycle::input::model::Input;
use recycle::plan::dry_run::{PlanFacts, write_plan};
use recycle::restore::sweep::is_by_request;

use crate::facts::ClaimFacts;
use crate::{Answered, Error};

impl ClaimFacts {
    /// Plans the steps. `added_places` are those that other executions have added to the group.
    pub(crate) async fn plan(
        &self,
        input: &Input,
        mut notes: Vec<String>,
        added_places: u32,
        now: Timestamp,
    ) -> Answered {
        let drain = DrainFacts {
            input,
            draining_since: None,
            hook: None,
        };
        let survey = NodeSurvey::of_node::<Error>(&self.client, &self.node, drain, now).await?;
        notes.extend(self.warn_of_hook(input, now));
        let subject = describe_instance(&self.instance.id, Some(&self.node.name));
        let reason = format!("{subject} can be recycled; nothing was touched");
        let budgets = list_budgets(&self.client).await?;
        let node = add_drivers(&self.client, self.node.clone()).await?;
        let facts = PlanFacts {
            input,
            group: &self.group,
            node: &node,
            pods: &survey.listed,
            survey: &survey.pods,
            terms: &survey.terms,
            budgets: &budgets,
            added_places,
        };
        let plan = write_plan(facts, notes);
        let survey = survey.pods;
        Ok(Answer {
            counts: survey.counts(),
            names: survey.names(),
            ..Answer::new(ClaimVerdict::Planned, reason).with(ClaimBody::Plan(plan))
        })
    }

    /// Answers a request taint: writes the plan in an Event on the Node, and removes the taint. Otherwise every sweep would start again.
    /// Does nothing if the taint did not start this execution.
    pub(crate) async fn record_plan(
        &self,
        answer: &Answer<ClaimVerdict>,
        context: &Context,
    ) -> Result<(), Error> {
        if !is_by_request(&context.execution.id) {
            return Ok(());
        }
        let mut lines = vec!["Dry run, nothing was touched"];
        if let ClaimBody::Plan(plan) = &answer.body {
            lines.extend(plan.steps.iter().map(String::as_str));
        }
        let (message, now, me) = (lines.join("; "), context.now(), context.fence());
        let (client, node) = (&self.client, &self.node);
        Ok(kubernetes::answer_request(client, node, Occasion::Planned, &message, now, &me).await?)
    }
}

#[cfg(test)]
mod tests {
    use recycle::base::names::{RECORD_ANNOTATION, REQUEST_TAINT};
    use recycle::input::parse::parse_input;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{NODE, facts, input, node, request, settings};

    #[tokio::test]
    async fn pods_that_came_after_an_earlier_run_removed_its_taint_count() {
        let pod = json!({
            "metadata": {"name": "train", "namespace": "jobs", "uid": "1", "creationTimestamp": "2027-01-01T05:50:00Z"},
            "spec": {"restartPolicy": "Never", "containers": []},
            "status": {"phase": "Running"},
        });
        let mut node = node(None);
        node["metadata"]["annotations"][RECORD_ANNOTATION] =
            json!(r#"{"schema": 1, "tainted_at": "2027-01-01T05:00:00Z"}"#);
        let kube = ScriptedKube::new()
            .on("GET", "/pods?", 200, json!({"metadata": {}, "items": [pod]}))
            .on(
                "GET",
                "/poddisruptionbudgets?",
                200,
                json!({"metadata": {}, "items": []}),
            );
        let answer = facts(&kube, &node)
            .await
            .plan(
                &parse_input(&input(), &settings()).unwrap(),
                Vec::new(),
                0,
                "2027-01-01T06:00:00Z".parse().unwrap(),
            )
            .await
            .unwrap();
        assert_eq!(answer.verdict, ClaimVerdict::Planned);
        assert_eq!(answer.names["awaited"], ["jobs/train"], "{answer:?}");
        assert_eq!(
            kube.requests(),
            ["GET /api/v1/pods", "GET /apis/policy/v1/poddisruptionbudgets"]
        );
    }

    /// Returns the methods of the calls that an execution of this name makes with its plan, for a node with a request taint.
    async fn written_by(name: &str) -> Vec<String> {
        let mut node = node(None);
        node["spec"]["taints"] = json!([{"key": REQUEST_TAINT, "effect": "NoSchedule"}]);
        let event = json!({"metadata": {}, "involvedObject": {}});
        let kube = ScriptedKube::new()
            .on("POST", "/events", 201, event)
            .on("PATCH", NODE, 200, node.clone());
        let mut context = request(&json!({})).context;
        context.execution.id = format!("arn:aws:states:eu-west-1:123456789012:execution:recycle:{name}")
            .parse()
            .unwrap();
        let answer = Answer::new(ClaimVerdict::Planned, "it can be recycled");
        let facts = facts(&kube, &node).await;
        facts.record_plan(&answer, &context).await.unwrap();
        let calls = kube.calls().into_iter();
        calls.map(|call| call.method).collect()
    }

    #[tokio::test]
    async fn the_plan_is_written_on_the_node_only_if_a_request_taint_started_the_execution() {
        assert_eq!(
            written_by("request-i-0123456789abcdef0-1").await,
            ["POST", "PATCH"]
        );
        assert!(written_by("by-hand").await.is_empty());
    }
}
