//! Whom the function asks to go, and what it says and writes about it.

use recycle::failure::{Failure, NamedFailure as _};
use scripted_kube::{ScriptedKube, refusal};
use serde_json::{Value, json};

use super::*;

const INSTANCE: &str = "i-0123456789abcdef0";
const EXECUTION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one";
const SINCE: &str = "2027-01-01T06:00:00Z";

fn request() -> StepRequest {
    serde_json::from_value(json!({
        "context": {"Execution": {"Id": EXECUTION, "Input": {}}, "State": {"EnteredTime": "2027-01-01T07:00:00Z"}},
        "run": {
            "input": {
                "instance_id": INSTANCE,
                "cluster_name": "world",
                "awaited": {"selector": "app=train"},
                "evict": "others",
                "replacement": "before",
                "dispose": "terminate",
                "replacement_timeout_seconds": 840,
                "drain_timeout_seconds": 172_800,
                "on_drain_timeout": "restore",
                "load_balancer_grace_seconds": 60,
                "urgency": "planned",
                "dry_run": false,
                "force": [],
            },
            "way_in": "before",
            "cluster": {"name": "world", "endpoint": "https://127.0.0.1:1", "certificate_authority": ""},
            "group": "workers",
            "node": "a",
            "claimed_at": "2027-01-01T05:00:00Z",
            "draining_since": SINCE,
        },
    }))
    .unwrap()
}

fn node(blocked_by: &[&str]) -> Value {
    let claim = json!({
        "schema": 1,
        "fence": format!("{EXECUTION}#0"),
        "group": "workers",
        "phase": "draining",
        "urgency": "planned",
        "claimed_at": "2027-01-01T05:00:00Z",
    });
    let record = json!({"schema": 1, "tainted_at": "2027-01-01T05:45:00Z"});
    let progress = json!({"summary": "hello", "blocked_by": blocked_by, "since": SINCE, "until": SINCE});
    json!({
        "metadata": {
            "name": "a",
            "resourceVersion": "7",
            "annotations": {
                "recycle-eks/claim": claim.to_string(),
                "recycle-eks/record": record.to_string(),
                "recycle-eks/progress": progress.to_string(),
            },
        },
        "spec": {"taints": [{"key": "recycle-eks/draining", "value": INSTANCE, "effect": "NoSchedule"}]},
    })
}

fn pod(name: &str, app: &str, kind: &str, created: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "labels": {"app": app},
            "creationTimestamp": created,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}],
        },
        "spec": {"restartPolicy": "Always", "containers": []},
        "status": {"phase": "Running"},
    })
}

fn web(name: &str) -> Value {
    pod(name, "web", "ReplicaSet", "2027-01-01T00:00:00Z")
}

fn kube(node: &Value, pods: &[Value]) -> ScriptedKube {
    let list =
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods});
    ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node.clone())
        .on("GET", "/pods?", 200, list)
        .on("PATCH", "/nodes/a", 200, node.clone())
}

fn success() -> Value {
    json!({"kind": "Status", "status": "Success"})
}

fn budget() -> Value {
    let mut status = refusal(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    status["details"] =
        json!({"causes": [{"reason": "DisruptionBudget", "message": "the budget web needs 2"}]});
    status
}

async fn run(kube: &ScriptedKube) -> Result<Answer<EvictVerdict>, Error> {
    let StepRequest { context, run } = request();
    let node = node_record::get_node(&kube.client(), &run.node).await.unwrap();
    evict(&kube.client(), node, &context, &run).await
}

fn evicted(kube: &ScriptedKube) -> Vec<String> {
    let mut names: Vec<String> = kube
        .calls()
        .into_iter()
        .filter(|call| call.path.contains("/eviction"))
        .map(|call| call.body["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

fn blocked_by(kube: &ScriptedKube) -> Option<Value> {
    let call = kube.calls().into_iter().rfind(|call| call.method == "PATCH")?;
    let progress = call.body["metadata"]["annotations"]["recycle-eks/progress"]
        .as_str()?
        .to_owned();
    let progress: Value = serde_json::from_str(&progress).ok()?;
    assert_eq!(progress["summary"], "hello", "the rest of the story stays");
    Some(progress.get("blocked_by").cloned().unwrap_or_default())
}

#[tokio::test]
async fn only_pods_that_nobody_waits_for_and_that_do_not_tolerate_the_taint_are_evicted() {
    let pods = [
        web("web"),
        pod("train", "train", "ReplicaSet", "2027-01-01T00:00:00Z"),
        pod("log-agent", "agent", "DaemonSet", "2027-01-01T00:00:00Z"),
        pod("came-with-the-taint", "web", "ReplicaSet", "2027-01-01T05:50:00Z"),
        pod("tolerates-it", "web", "ReplicaSet", "2027-01-01T06:30:00Z"),
    ];
    let kube = kube(&node(&[]), &pods)
        .on("POST", "/pods/web/eviction", 201, success())
        .on("POST", "/pods/came-with-the-taint/eviction", 201, success());
    let answer = run(&kube).await.unwrap();
    assert_eq!(evicted(&kube), ["came-with-the-taint", "web"]);
    assert_eq!(answer.counts, [("evicted".to_owned(), 2)].into());
    assert_eq!(answer.reason, "pods: 2 evicted");
    assert_eq!(blocked_by(&kube), None, "there is nothing new to tell");
}

#[tokio::test]
async fn a_pod_whose_volume_has_no_other_node_is_not_asked_to_go() {
    let mut database = pod("db-0", "db", "StatefulSet", "2027-01-01T00:00:00Z");
    database["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}});
    let kube = kube(&node(&[]), &[database, web("web")])
        .on(
            "GET",
            "/namespaces/shop/persistentvolumeclaims/data",
            200,
            json!({"metadata": {"name": "data"}, "spec": {"volumeName": "local"}}),
        )
        .on(
            "GET",
            "/persistentvolumes/local",
            200,
            json!({"metadata": {"name": "local"}, "spec": {"nodeAffinity": affinity}}),
        )
        .on(
            "GET",
            "/nodes?",
            200,
            json!({"metadata": {}, "items": [node(&[])]}),
        )
        .on("POST", "/pods/web/eviction", 201, success());
    let answer = run(&kube).await.unwrap();
    assert_eq!(evicted(&kube), ["web"]);
    assert_eq!(answer.counts, [("evicted".to_owned(), 1)].into());
    let told = blocked_by(&kube).unwrap();
    assert_eq!(
        told,
        json!([
            "shop/db-0 is not evicted: its volume local needs a node with kubernetes.io/hostname in (a), and there is no other \
             that takes pods"
        ])
    );
}

#[tokio::test]
async fn no_answer_to_one_pod_keeps_the_others() {
    let names = [
        "accepted",
        "gone",
        "blocked",
        "throttled",
        "forbidden",
        "cut-off",
        "also-accepted",
    ];
    let pods: Vec<Value> = names.iter().map(|name| web(name)).collect();
    let kube = kube(&node(&[]), &pods)
        .on("POST", "/pods/accepted/eviction", 201, success())
        .refuses(
            "POST",
            "/pods/gone/eviction",
            404,
            "NotFound",
            "pods \"gone\" not found",
        )
        .on("POST", "/pods/blocked/eviction", 429, budget())
        .refuses(
            "POST",
            "/pods/throttled/eviction",
            429,
            "TooManyRequests",
            "slow down",
        )
        .refuses(
            "POST",
            "/pods/forbidden/eviction",
            403,
            "Forbidden",
            "a policy says no",
        )
        .breaks_on("POST", "/pods/cut-off/eviction")
        .on("POST", "/pods/also-accepted/eviction", 201, success());
    let answer = run(&kube).await.unwrap();
    assert_eq!(evicted(&kube).len(), names.len());
    let names = |outcome: &str| answer.names[outcome].clone();
    assert_eq!(names("evicted"), ["shop/accepted", "shop/also-accepted"]);
    assert_eq!(names("gone"), ["shop/gone"]);
    assert_eq!(names("blocked"), ["shop/blocked"]);
    assert_eq!(
        names("failed"),
        ["shop/cut-off", "shop/forbidden", "shop/throttled"]
    );
    let told = blocked_by(&kube).unwrap();
    assert_eq!(told[0], "shop/blocked: the budget web needs 2");
    assert!(told[2].as_str().unwrap().contains("a policy says no"), "{told}");
}

#[tokio::test]
async fn a_node_full_of_pods_is_asked_for_all_of_them() {
    let names: Vec<String> = (0..110).map(|number| format!("web-{number}")).collect();
    let pods: Vec<Value> = names.iter().map(|name| web(name)).collect();
    let mut kube = kube(&node(&[]), &pods);
    for name in &names {
        kube = kube.on("POST", &format!("/pods/{name}/eviction"), 429, budget());
    }
    let answer = run(&kube).await.unwrap();
    assert_eq!(answer.counts["blocked"], 110);
    assert_eq!(blocked_by(&kube).unwrap().as_array().unwrap().len(), 5);
    let answer = serde_json::to_string(&answer.carrying(request().run)).unwrap();
    assert!(answer.len() < 8_192, "{}", answer.len());
}

#[tokio::test]
async fn what_no_longer_stands_in_the_way_is_no_longer_told() {
    let kube = kube(&node(&["shop/web: a budget"]), &[web("web")]).on("POST", "/eviction", 201, success());
    run(&kube).await.unwrap();
    assert_eq!(blocked_by(&kube), Some(Value::Null));
}

#[tokio::test]
async fn somebody_elses_change_at_the_same_moment_costs_only_the_story() {
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [web("web")]});
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node(&[]))
        .on("GET", "/pods?", 200, list)
        .on("POST", "/eviction", 429, budget())
        .refuses(
            "PATCH",
            "/nodes/a",
            409,
            "Conflict",
            "the object has been modified",
        );
    assert_eq!(run(&kube).await.unwrap().counts["blocked"], 1);
    assert_eq!(kube.scenes_left(), 0);
}

#[tokio::test]
async fn without_the_claim_no_pod_is_touched() {
    let unclaimed = kube(
        &json!({"metadata": {"name": "a", "resourceVersion": "7"}}),
        &[web("web")],
    );
    assert_eq!(run(&unclaimed).await.unwrap_err().failure(), Failure::ClaimLost);
    assert_eq!(unclaimed.requests(), ["GET /api/v1/nodes/a"]);
    let gone = ScriptedKube::new().refuses("GET", "/nodes/a", 404, "NotFound", "nodes \"a\" not found");
    assert_eq!(run(&gone).await.unwrap_err().failure(), Failure::NodeLost);
}
