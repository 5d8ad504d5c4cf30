//! Events and access reviews on the wire.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use kubernetes::{Occasion, missing_permissions, record_event};
use recycle::base::ids::{Fence, NodeName};
use recycle::base::permissions::PERMISSIONS;
use recycle::records::claim::Phase;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

fn fence(redrive_count: u32) -> Fence {
    let execution = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one"
        .parse()
        .unwrap();
    Fence {
        execution,
        redrive_count,
    }
}

async fn record_it(kube: &ScriptedKube, occasion: impl Into<Occasion<'_>>, fence: &Fence, message: &str) {
    let node: NodeName = "ip-10-0-0-1.internal".parse().unwrap();
    record_event(
        &kube.client(),
        &node,
        occasion,
        message,
        "2027-01-01T00:00:00Z".parse().unwrap(),
        fence,
    )
    .await;
}

async fn event_of(occasion: impl Into<Occasion<'_>>, fence: &Fence) -> Value {
    let kube = ScriptedKube::new();
    record_it(&kube, occasion, fence, "hello").await;
    kube.calls().pop().unwrap().body
}

async fn name_of(occasion: impl Into<Occasion<'_>>, fence: &Fence) -> Value {
    event_of(occasion, fence).await["metadata"]["name"].clone()
}

#[tokio::test]
async fn an_event_has_the_fields_that_kubectl_describe_node_needs() {
    let kube = ScriptedKube::new().on(
        "POST",
        "/events",
        201,
        json!({"metadata": {}, "involvedObject": {}}),
    );
    record_it(&kube, Phase::Draining, &fence(0), "hello").await;
    let call = kube.calls().pop().unwrap();
    assert_eq!(
        call.path,
        "/api/v1/namespaces/default/events?&fieldManager=recycle-eks"
    );
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "ip-10-0-0-1.internal.recycledraining.db03bd83", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "ip-10-0-0-1.internal",
            "uid": "ip-10-0-0-1.internal",
        },
        "type": "Normal",
        "reason": "RecycleDraining",
        "action": "RecycleDraining",
        "message": "hello",
        "count": 1,
        "firstTimestamp": "2027-01-01T00:00:00Z",
        "lastTimestamp": "2027-01-01T00:00:00Z",
        "eventTime": "2027-01-01T00:00:00.000000Z",
        "reportingComponent": "recycle-eks",
        "reportingInstance": "one",
    });
    assert_eq!(call.body, expected);
}

#[tokio::test]
async fn an_event_has_the_same_name_only_for_the_same_phase_and_redrive() {
    let name = name_of(Phase::Draining, &fence(0)).await;
    assert_eq!(name_of(Phase::Draining, &fence(0)).await, name);
    assert_ne!(name_of(Phase::Disposing, &fence(0)).await, name);
    assert_ne!(name_of(Phase::Draining, &fence(1)).await, name);
}

#[tokio::test]
async fn each_blocker_gets_one_event_of_type_warning() {
    let blocked = event_of(Occasion::Blocked("budget shop/web"), &fence(0)).await;
    assert_eq!(
        (&blocked["type"], &blocked["reason"]),
        (&json!("Warning"), &json!("RecycleBlocked"))
    );
    let name = &blocked["metadata"]["name"];
    assert_eq!(
        name_of(Occasion::Blocked("budget shop/web"), &fence(0)).await,
        *name
    );
    assert_ne!(
        name_of(Occasion::Blocked("budget shop/api"), &fence(0)).await,
        *name
    );
    let pods = event_of(Occasion::Pods("awaited"), &fence(0)).await;
    assert_eq!(
        (&pods["type"], &pods["reason"]),
        (&json!("Normal"), &json!("RecyclePods"))
    );
    assert_ne!(
        name_of(Occasion::Pods("awaited stuck"), &fence(0)).await,
        pods["metadata"]["name"]
    );
}

#[tokio::test]
async fn a_refused_or_existing_event_is_no_error() {
    let kube = ScriptedKube::new()
        .refuses(
            "POST",
            "/events",
            409,
            "AlreadyExists",
            "events \"a\" already exists",
        )
        .refuses("POST", "/events", 403, "Forbidden", "no")
        .breaks_on("POST", "/events");
    for phase in [Phase::Claimed, Phase::Standby, Phase::Disposing] {
        record_it(&kube, phase, &fence(0), "hello").await;
    }
    assert_eq!(kube.exchanges_left(), 0);
}

#[tokio::test]
async fn a_long_message_is_cut_to_the_limit_of_the_api_server() {
    let kube = ScriptedKube::new();
    for (character, bytes) in [("x", 1_024), ("…", 1_023)] {
        record_it(&kube, Phase::Claimed, &fence(0), &character.repeat(5_000)).await;
        let message = kube.calls().pop().unwrap().body["message"].clone();
        assert_eq!(message.as_str().unwrap().len(), bytes);
    }
}

fn review(allowed: bool) -> Value {
    json!({"metadata": {}, "spec": {}, "status": {"allowed": allowed}})
}

#[tokio::test]
async fn every_permission_of_every_group_is_reviewed_and_the_missing_ones_are_named() {
    let mut kube = ScriptedKube::new();
    for permission in PERMISSIONS {
        let missing = permission.resource == "pods/eviction" || permission.verb == "patch";
        kube = kube.on(
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            201,
            review(!missing),
        );
    }
    let missing = missing_permissions(&kube.client()).await.unwrap();
    assert_eq!(
        missing,
        [
            "the group recycle-eks-write may not patch nodes, patch pods/status",
            "the group recycle-eks-lease may not patch leases.coordination.k8s.io in namespace recycle-eks",
            "the group recycle-eks-evict may not create pods/eviction",
        ]
    );
    let calls = kube.calls().into_iter();
    let asked: Vec<Value> = calls.map(|call| call.body["spec"].clone()).collect();
    assert_eq!(asked.len(), PERMISSIONS.len());
    assert!(asked.contains(&json!({
        "groups": ["recycle-eks-evict", "system:authenticated"],
        "resourceAttributes": {"group": "", "resource": "pods", "subresource": "eviction", "verb": "create"},
    })));
    assert!(asked.contains(&json!({
        "groups": ["recycle-eks-read", "system:authenticated"],
        "resourceAttributes": {"group": "", "resource": "nodes", "verb": "get"},
    })));
}

#[tokio::test]
async fn a_function_that_may_not_ask_learns_that_its_group_is_missing() {
    let kube = PERMISSIONS.iter().fold(ScriptedKube::new(), |kube, _| {
        kube.refuses("POST", "/subjectaccessreviews", 403, "Forbidden", "no")
    });
    let missing = missing_permissions(&kube.client()).await.unwrap();
    assert_eq!(
        missing,
        ["the group recycle-eks-review may not create subjectaccessreviews.authorization.k8s.io"]
    );
}

#[tokio::test]
async fn a_cluster_that_answers_no_review_is_an_error() {
    let error = missing_permissions(&ScriptedKube::new().client())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("failed to create subjectaccessreviews"),
        "{error}"
    );
}

#[tokio::test]
async fn a_disturbance_gets_one_warning_for_each_name_and_execution() {
    let kube = ScriptedKube::new();
    let node: NodeName = "a".parse().unwrap();
    for (what, redrive_count) in [
        ("instance_refresh", 0),
        ("instance_refresh", 0),
        ("karpenter", 0),
        ("karpenter", 1),
    ] {
        let now = "2027-01-01T00:00:00Z".parse().unwrap();
        let occasion = Occasion::Disturbed(what);
        record_event(
            &kube.client(),
            &node,
            occasion,
            "hello",
            now,
            &fence(redrive_count),
        )
        .await;
    }
    let events: Vec<Value> = kube.calls().into_iter().map(|call| call.body).collect();
    assert_eq!(
        (&events[0]["type"], &events[0]["reason"]),
        (&json!("Warning"), &json!("RecycleDisturbed"))
    );
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[0], names[1]);
    assert!(names[0] != names[2] && names[2] != names[3], "{names:?}");
}
