//! The marks of rotations, with a scripted API server.

use kubernetes::{mark_nodes, unmark_nodes};
use recycle::rotation::terms::{Marking, Unmarking};
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

const ME: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:me";
const OTHER: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:other";

/// Builds the Node of the instance whose id ends in this digit.
fn node(digit: u8, marked_by: Option<&str>) -> Value {
    let mut taints = vec![json!({"key": "dedicated", "effect": "NoSchedule"})];
    taints.extend(marked_by.map(|_| json!({"key": "recycle-eks/outdated", "effect": "PreferNoSchedule"})));
    json!({
        "metadata": {
            "name": format!("n{digit}"),
            "resourceVersion": "7",
            "annotations": marked_by.map(|arn| json!({"recycle-eks/outdated": arn})),
        },
        "spec": {"providerID": format!("aws:///eu-west-1a/i-0000000000000000{digit}"), "taints": taints},
    })
}

fn kube(nodes: &[Value]) -> ScriptedKube {
    let list = json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": nodes});
    ScriptedKube::new().on("GET", "/nodes?", 200, list)
}

fn ids(digits: &[u8]) -> Value {
    json!(
        digits
            .iter()
            .map(|digit| format!("i-0000000000000000{digit}"))
            .collect::<Vec<_>>()
    )
}

#[tokio::test]
async fn the_selected_nodes_are_marked_and_keep_their_other_taints() {
    let kube = kube(&[node(1, None), node(2, None), node(3, Some(OTHER))]).on(
        "PATCH",
        "/nodes/n1",
        200,
        node(1, Some(ME)),
    );
    let marking: Marking = serde_json::from_value(
        json!({"cluster_name": "world", "rotation": ME, "began_at": "2027-01-01T00:00:00Z", "mark": "soft", "nodes": ids(&[1, 3])}),
    )
    .unwrap();
    // The third Node keeps the mark of the other rotation, but is counted.
    assert_eq!(mark_nodes(&kube.client(), &marking).await.unwrap(), 2);
    let calls = kube.calls();
    assert_eq!(calls.len(), 2);
    let body = &calls[1].body;
    assert_eq!(
        body["metadata"]["annotations"]["recycle-eks/outdated"],
        format!("{ME} 2027-01-01T00:00:00Z")
    );
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    assert_eq!(body["spec"]["taints"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn only_the_marks_of_the_named_rotations_and_nodes_are_removed() {
    for (nodes, changed) in [(Value::Null, 2), (ids(&[1]), 1)] {
        let kube = kube(&[
            node(1, Some(ME)),
            node(2, Some(ME)),
            node(3, Some(OTHER)),
            node(4, None),
        ])
        .on("PATCH", "/nodes/n1", 200, node(1, None))
        .on("PATCH", "/nodes/n2", 200, node(2, None));
        let unmarking: Unmarking =
            serde_json::from_value(json!({"cluster_name": "world", "rotations": [ME], "nodes": nodes}))
                .unwrap();
        assert_eq!(unmark_nodes(&kube.client(), &unmarking).await.unwrap(), changed);
        let calls = kube.calls();
        assert_eq!(calls.len(), 1 + changed);
        let body = &calls[1].body;
        assert_eq!(
            body["metadata"]["annotations"]["recycle-eks/outdated"],
            Value::Null
        );
        assert_eq!(
            body["spec"]["taints"],
            json!([{"key": "dedicated", "effect": "NoSchedule"}])
        );
    }
}

#[tokio::test]
async fn a_missing_node_needs_no_change_and_a_refusal_is_an_error() {
    let unmarking: Unmarking =
        serde_json::from_value(json!({"cluster_name": "world", "rotations": [ME]})).unwrap();
    let gone = kube(&[node(1, Some(ME))]).refuses("PATCH", "/nodes/n1", 404, "NotFound", "it is not there");
    assert_eq!(unmark_nodes(&gone.client(), &unmarking).await.unwrap(), 0);
    let refused = kube(&[node(1, Some(ME))]).refuses("PATCH", "/nodes/n1", 403, "Forbidden", "no");
    assert!(unmark_nodes(&refused.client(), &unmarking).await.is_err());
}
