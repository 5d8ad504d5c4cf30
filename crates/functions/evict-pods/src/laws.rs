//! Property tests: the eviction of a pod is requested only if the answer contains everything that permits it.

use bad_input::{beyond, block_on, each_gap, few_cases, spoiled};
use proptest::prelude::*;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use super::*;
use crate::tests::{node, pod, replacements, request, success, tolerant, web};

/// Returns one pod that may be evicted, and one for each reason to leave a pod alone.
fn whole_pods() -> Value {
    let mut finished = web("finished");
    finished["status"]["phase"] = json!("Failed");
    let mut bare = web("bare");
    bare["metadata"]["ownerReferences"] = json!([]);
    let before = "2027-01-01T00:00:00Z";
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [
        web("web"),
        finished,
        bare,
        pod("train", "train", "Job", before),
        pod("log-agent", "agent", "DaemonSet", before),
        pod("static", "proxy", "Node", before),
        tolerant("tolerates-the-taint", "2027-01-01T06:30:00Z"),
    ]})
}

/// Makes one call, and returns the writes: evictions that were requested, and what was noted of them.
fn evict_by(node: &Value, pods: &Value) -> Vec<String> {
    let replacement = json!({"metadata": {"name": "new", "resourceVersion": "9"}, "spec": {}});
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node.clone())
        .on("GET", "/pods?", 200, pods.clone())
        .on(
            "GET",
            "/nodes?",
            200,
            replacements(std::slice::from_ref(&replacement)),
        )
        .on("PATCH", "/nodes/new", 200, replacement)
        .on("PATCH", "/nodes/a", 200, tests::node(&[]));
    let kube = (0..9).fold(kube, |kube, _| kube.on("POST", "/eviction", 201, success()));
    let evicted = block_on(async {
        let StepRequest { context, mut run } = request();
        let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id).await?;
        evict(&kube.client(), node, &context, &mut run).await
    });
    if let Err(error) = evicted {
        let _ = error.failure();
    }
    // The progress is written on the node itself.
    let is_progress = |write: &String| write.starts_with("PATCH /api/v1/nodes/a");
    kube.writes()
        .into_iter()
        .filter(|write| !is_progress(write))
        .collect()
}

/// Checks whether an answer contains everything about a pod that permits its eviction.
fn permits_eviction(pod: &Value) -> bool {
    let metadata = &pod["metadata"];
    let given = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let owners = metadata["ownerReferences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let may_bring_back = |owner: &Value| {
        let is_named = ["apiVersion", "kind", "name", "uid"]
            .iter()
            .all(|field| given(&owner[*field]));
        let is_of_node = owner["apiVersion"] == "v1" && owner["kind"] == "Node";
        let is_of_daemon_set = owner["apiVersion"] == "apps/v1" && owner["kind"] == "DaemonSet";
        owner["controller"] == true && is_named && !is_of_node && !is_of_daemon_set
    };
    given(&pod["status"]["phase"])
        && !["Succeeded", "Failed"]
            .iter()
            .any(|phase| pod["status"]["phase"] == *phase)
        && given(&metadata["creationTimestamp"])
        && metadata["labels"]["app"] != "train"
        && owners.iter().any(may_bring_back)
}

/// Checks whether the answer has lost a label or a toleration. Both are optional: without its label a drain does not wait for a pod,
/// and without tolerations the pod tolerates nothing.
fn has_lost_what_is_optional(pods: &Value) -> bool {
    let mut pods = pods["items"].as_array().into_iter().flatten();
    pods.any(|pod| match pod["metadata"]["name"].as_str() {
        Some("train") => pod["metadata"]["labels"]["app"] != "train",
        Some("tolerates-the-taint") => pod["spec"]["tolerations"][0]["operator"] != "Exists",
        _ => false,
    })
}

#[test]
fn an_incomplete_answer_about_pods_evicts_no_other_pod() {
    let whole = evict_by(&node(&[]), &whole_pods());
    let asked = whole.iter().filter(|write| write.contains("/pods/web/eviction"));
    assert_eq!((whole.len(), asked.count()), (2, 1), "{whole:?}");
    let gaps = each_gap(&whole_pods());
    assert!(gaps.len() > 200, "{}", gaps.len());
    for (_, pods) in gaps
        .into_iter()
        .filter(|(_, pods)| !has_lost_what_is_optional(pods))
    {
        let more = beyond(evict_by(&node(&[]), &pods), &whole);
        assert!(more.is_empty(), "{pods}: {more:?}");
    }
}

#[test]
fn an_incomplete_answer_about_the_node_evicts_no_other_pod() {
    // Without the taint or its record, no pod counts as tolerating it.
    let mut pods = whole_pods();
    pods["items"].as_array_mut().unwrap().pop();
    let whole = evict_by(&node(&[]), &pods);
    for (_, node) in each_gap(&node(&[])) {
        let more = beyond(evict_by(&node, &pods), &whole);
        assert!(more.is_empty(), "{node}: {more:?}");
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn a_pod_is_evicted_only_if_the_answer_permits_it(pods in spoiled(vec![whole_pods()])) {
        let answered = pods["items"].as_array().cloned().unwrap_or_default();
        for write in evict_by(&node(&[]), &pods) {
            let Some((_, body)) = write.split_once("/eviction?").and_then(|(_, rest)| rest.split_once(' ')) else {
                continue;
            };
            let asked: Value = serde_json::from_str(body).unwrap();
            let uid = &asked["deleteOptions"]["preconditions"]["uid"];
            let mut same = answered.iter().filter(|pod| pod["metadata"]["uid"] == *uid);
            prop_assert!(same.any(permits_eviction), "{}: {}", pods, write);
        }
    }
}
