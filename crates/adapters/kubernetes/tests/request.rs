//! The writes that answer a request taint that starts no work.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use kubernetes::{Occasion, answer_request, get_node};
use recycle::base::ids::Fence;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/a";

/// Builds a Node with another taint in addition to the request, and perhaps with a claim.
fn node(request: Option<&str>, claim: Option<&str>) -> Value {
    let asked = request.map(|effect| json!({"key": "recycle-eks/request", "effect": effect}));
    let taints: Vec<Value> = asked.into_iter().chain([team()]).collect();
    let annotations = json!(
        claim
            .map(|claim| json!({"recycle-eks/claim": claim}))
            .unwrap_or_default()
    );
    json!({"metadata": {"name": "a", "resourceVersion": "7", "annotations": annotations},
        "spec": {"providerID": "aws:///eu-west-1a/i-0123456789abcdef0", "taints": taints}})
}

fn team() -> Value {
    json!({"key": "team", "value": "blue", "effect": "NoExecute"})
}

/// Returns the calls that `answer_request` makes for a Node that was read as `read`.
/// With `quicker`, another client changes the Node to `quicker` before the patch.
async fn sent(read: Value, quicker: Option<Value>) -> Vec<(String, Value)> {
    let found = ScriptedKube::new().on("GET", NODE, 200, read);
    let facts = get_node(
        &found.client(),
        &"a".parse().unwrap(),
        &"i-0123456789abcdef0".parse().unwrap(),
    )
    .await
    .unwrap()
    .unwrap();
    let event = json!({"metadata": {}, "involvedObject": {}});
    let kube = ScriptedKube::new().on("POST", "/events", 201, event);
    let kube = match quicker {
        Some(now) => kube
            .refuses("PATCH", NODE, 409, "Conflict", "modified")
            .on("GET", NODE, 200, now),
        None => kube.on("PATCH", NODE, 200, node(None, None)),
    };
    let fence: Fence = "arn:aws:states:eu-west-1:123456789012:execution:recycle:one#0"
        .parse()
        .unwrap();
    let at = "2027-01-01T00:00:00Z".parse().unwrap();
    let _ = answer_request(&kube.client(), &facts, Occasion::Refused, "no", at, &fence).await;
    let calls = kube.calls().into_iter();
    calls.map(|call| (call.method, call.body)).collect()
}

#[tokio::test]
async fn the_event_is_written_first_and_then_only_the_request_taint_is_removed() {
    let sent = sent(node(Some("NoSchedule"), None), None).await;
    let [(first, event), (second, patch)] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!((first.as_str(), second.as_str()), ("POST", "PATCH"));
    assert_eq!(
        (&event["reason"], &event["type"]),
        (&json!("RecycleRefused"), &json!("Warning"))
    );
    assert_eq!(
        *patch,
        json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": [team()]}})
    );
}

#[tokio::test]
async fn without_a_request_or_on_a_claimed_node_nothing_is_written() {
    let untainted = sent(node(None, None), None).await;
    let claimed = sent(node(Some("NoSchedule"), Some("theirs")), None).await;
    assert_eq!((untainted, claimed), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn the_taint_stays_if_an_execution_claims_the_node_in_between() {
    let now = node(Some("NoSchedule"), Some("theirs"));
    let sent = sent(node(Some("NoSchedule"), None), Some(now)).await;
    let methods: Vec<&str> = sent.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "GET"], "no second PATCH");
}
