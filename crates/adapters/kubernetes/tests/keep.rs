//! The requests that keep Cluster Autoscaler from removing a new member.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use kubernetes::{keep_new_member, let_go_of_all};
use recycle::base::ids::InstanceId;
use recycle::cluster::node::NodeFacts;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

const OLD: &str = "i-0123456789abcdef0";
const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
const NODE: &str = "/api/v1/nodes/new";
const LIST: &str = "/api/v1/nodes?";

fn old() -> InstanceId {
    OLD.parse().unwrap()
}

fn stored(labels: Value, annotations: Value) -> Value {
    json!({"metadata": {"name": "new", "resourceVersion": "3", "labels": labels, "annotations": annotations}, "spec": {}})
}

async fn facts(stored: Value) -> NodeFacts {
    let kube = ScriptedKube::new().on("GET", NODE, 200, stored);
    kubernetes::get_node(
        &kube.client(),
        &"new".parse().unwrap(),
        &"i-0123456789abcdef0".parse().unwrap(),
    )
    .await
    .unwrap()
    .unwrap()
}

#[tokio::test]
async fn a_new_member_is_kept_and_its_earlier_annotation_is_recorded() {
    for (before, remembered) in [
        (json!({}), Value::Null),
        (json!({DISABLED: "false"}), json!("false")),
    ] {
        let new_member = stored(json!({}), before);
        let kube = ScriptedKube::new().on("PATCH", NODE, 200, new_member.clone());
        keep_new_member(&kube.client(), facts(new_member).await, &old())
            .await
            .unwrap();
        let written = &kube.calls()[0].body["metadata"];
        assert_eq!(written["resourceVersion"], "3");
        assert_eq!(written["labels"], json!({"recycle-eks/kept-for": OLD}));
        assert_eq!(written["annotations"][DISABLED], "true");
        assert_eq!(written["annotations"]["recycle-eks/kept-before"], remembered);
    }
}

#[tokio::test]
async fn a_member_that_is_already_kept_is_left_alone() {
    for new_member in [
        stored(json!({}), json!({DISABLED: "true"})),
        stored(json!({"recycle-eks/kept-for": "i-0fedcba9876543210"}), json!({})),
    ] {
        let kube = ScriptedKube::new();
        keep_new_member(&kube.client(), facts(new_member).await, &old())
            .await
            .unwrap();
        assert!(kube.calls().is_empty());
    }
}

#[tokio::test]
async fn all_members_kept_for_an_instance_are_released_and_a_missing_one_is_no_error() {
    let kept = json!({"recycle-eks/kept-for": OLD});
    let items = json!([
        stored(
            kept.clone(),
            json!({DISABLED: "true", "recycle-eks/kept-before": "false"})
        ),
        stored(kept, json!({DISABLED: "no"})),
    ]);
    let kube = ScriptedKube::new()
        .on("GET", LIST, 200, json!({"metadata": {}, "items": items}))
        .on("PATCH", NODE, 200, stored(json!({}), json!({})))
        .refuses("PATCH", NODE, 404, "NotFound", "no such node");
    let_go_of_all(&kube.client(), &old()).await.unwrap();
    let calls = kube.calls();
    assert_eq!(calls[1].body["metadata"]["annotations"][DISABLED], "false");
    let second = calls[2].body["metadata"]["annotations"].as_object().unwrap();
    assert!(!second.contains_key(DISABLED), "another client has changed it");
    assert_eq!(
        calls[2].body["metadata"]["labels"],
        json!({"recycle-eks/kept-for": null})
    );
}

#[tokio::test]
async fn a_failed_list_is_an_error() {
    let kube = ScriptedKube::new().refuses("GET", LIST, 503, "", "no");
    assert!(let_go_of_all(&kube.client(), &old()).await.is_err());
}
