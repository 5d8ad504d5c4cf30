//! Moves the end of a drain for the command line, by an annotation of the Lease.

use std::cell::Cell;

use kubernetes::{NodeChange, amend_node, find_node};
use recycle::cluster::node::NodeFacts;
use recycle::drain::end::{DrainUntil, judge_drain_end};
use serde_json::{Value, json};

use crate::{Error, ServeOperator};

impl ServeOperator {
    /// Writes the annotation that moves the end of a drain. Without a drain, that is an error.
    pub(crate) async fn move_drain_end(&self, asked: &DrainUntil) -> Result<Value, Error> {
        let client = self.access.connect_anew().await?;
        let node = find_node(&client, &asked.instance_id, None).await?;
        move_end_of(&client, node, asked).await
    }
}

/// Writes and returns the time when the drain will end. The time asked for may be later than a drain can last.
/// If the Node changes at the same moment, the drain may be ending, so the request is judged again.
async fn move_end_of(
    client: &kube::Client,
    node: Option<NodeFacts>,
    asked: &DrainUntil,
) -> Result<Value, Error> {
    let judge = |node: Option<&NodeFacts>| judge_drain_end(&asked.instance_id, node, asked.until);
    let until = Cell::new(judge(node.as_ref())?);
    if let Some(node) = node {
        amend_node(client, node, |node| {
            until.set(judge(Some(node))?);
            let written = until.get().to_string();
            Ok::<_, Error>(Some(NodeChange::new().drain_until(written)))
        })
        .await?;
    }
    let (until, asked_for) = (until.get().to_string(), asked.until.to_string());
    Ok(json!({"instance_id": asked.instance_id.as_str(), "until": until, "asked": asked_for}))
}

#[cfg(test)]
mod tests {
    use scripted_kube::ScriptedKube;

    use super::*;

    const INSTANCE: &str = "i-0123456789abcdef0";

    fn node(phase: &str) -> Value {
        let claim = json!({
            "schema": 1,
            "fence": "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one#0",
            "group": "workers",
            "phase": phase,
            "urgency": "planned",
            "claimed_at": "2027-01-01T05:00:00Z",
        });
        let annotations = json!({"recycle-eks/claim": claim.to_string()});
        json!({"metadata": {"name": "a", "resourceVersion": "1", "annotations": annotations},
            "spec": {"providerID": format!("aws:///eu-west-1a/{INSTANCE}")}})
    }

    async fn moved(kube: &ScriptedKube) -> Result<Value, String> {
        let asked =
            json!({"instance_id": INSTANCE, "cluster_name": "world", "until": "2027-02-01T00:00:00Z"});
        let asked: DrainUntil = serde_json::from_value(asked).unwrap();
        let name = "a".parse().unwrap();
        let node = kubernetes::get_node(&kube.client(), &name, &"i-0123456789abcdef0".parse().unwrap())
            .await
            .unwrap();
        let moved = move_end_of(&kube.client(), node, &asked).await;
        moved.map_err(|error| error.to_string())
    }

    const PATH: &str = "/api/v1/nodes/a";

    #[tokio::test]
    async fn the_end_is_written_once() {
        let kube =
            ScriptedKube::new()
                .on("GET", PATH, 200, node("draining"))
                .on("GET", PATH, 200, node("draining"));
        assert_eq!(moved(&kube).await.unwrap()["until"], "2027-02-01T00:00:00Z");
        assert_eq!(
            kube.lease(INSTANCE)["recycle-eks/drain-until"],
            "2027-02-01T00:00:00Z"
        );
        moved(&kube).await.unwrap();
        assert!(kube.writes().is_empty(), "the Node stays as it is");
    }

    #[tokio::test]
    async fn an_end_that_is_too_late_is_shortened() {
        let mut drains = node("draining");
        drains["metadata"]["annotations"]["recycle-eks/record"] =
            r#"{"schema": 1, "tainted_at": "2027-01-01T05:00:00Z"}"#.into();
        let kube = ScriptedKube::new().on("GET", PATH, 200, drains.clone());
        let moved = moved(&kube).await.unwrap();
        assert_eq!(
            (moved["until"].as_str(), moved["asked"].as_str()),
            (Some("2027-01-31T05:00:00Z"), Some("2027-02-01T00:00:00Z"))
        );
        assert_eq!(
            kube.lease(INSTANCE)["recycle-eks/drain-until"],
            "2027-01-31T05:00:00Z"
        );
    }

    #[tokio::test]
    async fn the_end_is_shortened_by_the_state_of_the_drain_at_the_time_of_the_write() {
        let conflict = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "changed"});
        let mut drains = node("draining");
        drains["metadata"]["annotations"]["recycle-eks/record"] =
            r#"{"schema": 1, "tainted_at": "2027-01-01T05:00:00Z"}"#.into();
        let kube = ScriptedKube::new()
            .on("GET", PATH, 200, node("standby"))
            .on("PATCH", "/leases/", 409, conflict)
            .on("GET", PATH, 200, drains.clone());
        assert_eq!(moved(&kube).await.unwrap()["until"], "2027-01-31T05:00:00Z");
        assert_eq!(
            kube.lease(INSTANCE)["recycle-eks/drain-until"],
            "2027-01-31T05:00:00Z"
        );
    }

    #[tokio::test]
    async fn a_drain_that_ends_in_between_is_judged_again() {
        let conflict = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "changed"});
        let kube = ScriptedKube::new()
            .on("GET", PATH, 200, node("draining"))
            .on("PATCH", "/leases/", 409, conflict)
            .on("GET", PATH, 200, node("disposing"));
        let refusal = moved(&kube).await.unwrap_err();
        assert!(refusal.contains("its drain is over"), "{refusal}");
    }
}
