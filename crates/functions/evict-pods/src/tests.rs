//! The evictions that the function requests, its answers, and its writes.

use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::records::progress::Progress;
use scripted_kube::{ScriptedKube, refusal};
use serde_json::{Value, json};

use super::*;

const INSTANCE: &str = "i-0123456789abcdef0";
const EXECUTION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one";
const SINCE: &str = "2027-01-01T06:00:00Z";

pub(crate) fn request() -> StepRequest {
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
                "replacement_timeout": 840, "node_lost_after": 1_800,
                "drain_timeout": 172_800,
                "on_drain_timeout": "restore",
                "load_balancer_grace": 60,
                "urgency": "planned",
                "dry_run": false,
                "override": [],
            },
            "path": "before",
            "group": "workers",
            "node": "a",
            "claimed_at": "2027-01-01T05:00:00Z",
            "draining_since": SINCE,
        },
    }))
    .unwrap()
}

/// Returns the Node, with the blockers of the last check in its progress.
pub(crate) fn node(blocked: &[Value]) -> Value {
    let claim = json!({
        "schema": 1,
        "fence": format!("{EXECUTION}#0"),
        "group": "workers",
        "phase": "draining",
        "urgency": "planned",
        "claimed_at": "2027-01-01T05:00:00Z",
    });
    let record = json!({"schema": 1, "tainted_at": "2027-01-01T05:45:00Z"});
    let progress =
        json!({"summary": "hello", "then": "goodbye", "blocked": blocked, "since": SINCE, "until": SINCE});
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
        "spec": {"providerID": format!("aws:///eu-west-1a/{INSTANCE}"), "taints": [{"key": "recycle-eks/draining", "value": INSTANCE, "effect": "NoSchedule"}]},
    })
}

pub(crate) fn pod(name: &str, app: &str, kind: &str, created: &str) -> Value {
    let version = if kind == "Node" { "v1" } else { "apps/v1" };
    json!({
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "labels": {"app": app},
            "creationTimestamp": created,
            "ownerReferences": [{"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": true}],
        },
        "spec": {"restartPolicy": "Always", "containers": []},
        "status": {"phase": "Running"},
    })
}

pub(crate) fn web(name: &str) -> Value {
    pod(name, "web", "ReplicaSet", "2027-01-01T00:00:00Z")
}

fn kube(node: &Value, pods: &[Value]) -> ScriptedKube {
    without_replacements(node, pods).on("GET", "/nodes?", 200, replacements(&[]))
}

fn without_replacements(node: &Value, pods: &[Value]) -> ScriptedKube {
    let list =
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods});
    ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node.clone())
        .on("GET", "/pods?", 200, list)
        .on("PATCH", "/nodes/a", 200, node.clone())
}

pub(crate) fn replacements(nodes: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": nodes})
}

pub(crate) fn success() -> Value {
    json!({"kind": "Status", "status": "Success"})
}

fn budget() -> Value {
    let mut status = refusal(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    status["details"] = json!({"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"}]});
    status
}

async fn run(kube: &ScriptedKube) -> Result<Answer<EvictVerdict>, Error> {
    let StepRequest { context, mut run } = request();
    let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id)
        .await
        .unwrap();
    evict(&kube.client(), node, &context, &mut run).await
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

/// Returns a budget as a blocker that has kept a pod since then.
fn blocker(since: &str, reported: bool) -> Value {
    json!({"what": "budget shop/web", "says": "?", "since": since, "count": 1, "names": ["shop/web"], "reported": reported})
}

/// Returns the blockers that were written; None if no progress was written.
fn blockers_written(kube: &ScriptedKube) -> Option<Vec<Blocker>> {
    progress_written(kube).map(|progress| progress.blocked)
}

fn progress_written(kube: &ScriptedKube) -> Option<Progress> {
    let call = kube.calls().into_iter().rfind(|call| call.method == "PATCH")?;
    let progress = call.body["metadata"]["annotations"]["recycle-eks/progress"]
        .as_str()?
        .to_owned();
    let progress: Progress = serde_json::from_str(&progress).ok()?;
    assert_eq!(progress.then, "goodbye", "the rest of the progress stays");
    Some(progress)
}

/// Returns the messages of the Events that were written.
fn events(kube: &ScriptedKube) -> Vec<String> {
    let calls = kube
        .calls()
        .into_iter()
        .filter(|call| call.path.contains("/events"));
    let text = |call: scripted_kube::Call| {
        assert_eq!(call.body["reason"], "RecycleBlocked");
        call.body["message"].as_str().unwrap().to_owned()
    };
    calls.map(text).collect()
}

pub(crate) fn tolerant(name: &str, created: &str) -> Value {
    let mut pod = pod(name, "web", "ReplicaSet", created);
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    pod
}

#[tokio::test]
async fn pods_that_tolerate_the_taint_are_evicted_once_no_other_pods_remain() {
    let late = tolerant("late", "2027-01-01T06:30:00Z");
    let kube = kube(&node(&[]), &[late]).on("POST", "/pods/late/eviction", 201, success());
    run(&kube).await.unwrap();
    assert_eq!(evicted(&kube), ["late"]);
}

#[tokio::test]
async fn only_pods_that_are_not_awaited_and_do_not_tolerate_the_taint_are_evicted() {
    let pods = [
        web("web"),
        pod("train", "train", "ReplicaSet", "2027-01-01T00:00:00Z"),
        pod("log-agent", "agent", "DaemonSet", "2027-01-01T00:00:00Z"),
        pod("came-with-the-taint", "web", "ReplicaSet", "2027-01-01T05:50:00Z"),
        tolerant("tolerates-it", "2027-01-01T06:30:00Z"),
    ];
    let kube = kube(&node(&[]), &pods)
        .on("POST", "/pods/web/eviction", 201, success())
        .on("POST", "/pods/came-with-the-taint/eviction", 201, success());
    let answer = run(&kube).await.unwrap();
    assert_eq!(evicted(&kube), ["came-with-the-taint", "web"]);
    assert_eq!(answer.counts, [("evicted".to_owned(), 2)].into());
    assert_eq!(answer.reason, "pods: 2 evicted");
    assert_eq!(blockers_written(&kube).unwrap(), []);
}

#[tokio::test]
async fn a_pod_whose_volume_has_no_other_node_is_not_evicted() {
    let mut database = pod("db-0", "db", "StatefulSet", "2027-01-01T00:00:00Z");
    database["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}});
    let kube = without_replacements(&node(&[]), &[database, web("web")])
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
        .on("GET", "labelSelector=recycle-eks", 200, replacements(&[]))
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
    assert_eq!(
        progress_written(&kube).unwrap().held,
        [
            "shop/db-0 is not evicted: its volume local needs a node with kubernetes.io/hostname in (a), and no other such \
             node takes pods"
        ]
    );
}

#[tokio::test]
async fn the_answer_for_one_pod_does_not_affect_the_others() {
    let names = [
        "accepted",
        "gone",
        "blocked",
        "not-ready",
        "two-budgets",
        "throttled",
        "forbidden",
        "cut-off",
        "also-accepted",
    ];
    let mut not_ready = budget();
    not_ready["details"]["retryAfterSeconds"] = json!(10);
    not_ready["details"]["causes"][0]["message"] =
        json!("The disruption budget new is still being processed by the server.");
    let several =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
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
        .on("POST", "/pods/not-ready/eviction", 429, not_ready)
        .refuses("POST", "/pods/two-budgets/eviction", 500, "", several)
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
    assert_eq!(names("budget_not_ready"), ["shop/not-ready"]);
    assert_eq!(names("several_budgets"), ["shop/two-budgets"]);
    assert_eq!(names("failed"), ["shop/cut-off"]);
    assert_eq!(names("forbidden"), ["shop/forbidden"]);
    assert_eq!(names("throttled"), ["shop/throttled"]);
    let blockers = blockers_written(&kube).unwrap();
    let what: Vec<&str> = blockers.iter().map(|blocker| blocker.what.as_str()).collect();
    assert_eq!(
        what,
        [
            "a missing permission",
            "an error",
            "budget shop/new",
            "budget shop/web",
            "more than one budget in shop",
            "the API server's limit of requests",
        ]
    );
    assert_eq!(
        (blockers[1].count, &blockers[1].names[0]),
        (1, &"shop/cut-off".to_owned())
    );
    assert!(
        blockers
            .iter()
            .all(|blocker| !blocker.reported && blocker.since == "2027-01-01T07:00:00Z".parse().unwrap())
    );
    assert!(events(&kube).is_empty(), "the blockers are too recent");
    assert_eq!(
        answer.reason,
        "pods: 1 blocked, 1 budget_not_ready, 2 evicted, 1 failed, 1 forbidden, 1 gone, 1 several_budgets, 1 throttled"
    );
}

#[tokio::test]
async fn a_blocker_that_lasts_five_minutes_gets_one_event_and_is_in_the_answer() {
    for (since, was_reported, expected) in [
        ("2027-01-01T06:55:01Z", false, 0),
        ("2027-01-01T06:55:00Z", false, 1),
        ("2027-01-01T06:30:00Z", true, 0),
    ] {
        let kube = kube(&node(&[blocker(since, was_reported)]), &[web("web")])
            .on("POST", "/eviction", 429, budget())
            .on(
                "POST",
                "/events",
                201,
                json!({"metadata": {}, "involvedObject": {}}),
            );
        let answer = run(&kube).await.unwrap();
        let sentence = format!(
            "budget shop/web has blocked 1 pod since {since}: The disruption budget web needs 2 healthy pods and has 2 currently (shop/web)"
        );
        assert_eq!(events(&kube), vec![sentence.clone(); expected], "{since}");
        let is_long_enough = expected == 1 || was_reported;
        assert_eq!(
            answer.reason.ends_with(&sentence),
            is_long_enough,
            "{}",
            answer.reason
        );
        let blockers = blockers_written(&kube).unwrap();
        assert_eq!(
            (blockers[0].reported, blockers[0].since),
            (is_long_enough, since.parse().unwrap())
        );
    }
}

#[tokio::test]
async fn awaited_pods_are_evicted_in_time_if_the_input_says_so() {
    let train = pod("train", "train", "ReplicaSet", "2027-01-01T00:00:00Z");
    for (on_drain_timeout, until, expected) in [
        ("evict", "2027-01-01T07:02:00Z", vec!["train"]),
        ("evict", "2027-01-01T07:03:00Z", vec![]),
        ("restore", "now", vec![]),
        ("terminate", "2027-01-01T07:00:01Z", vec![]),
        ("terminate", "now", vec!["train"]),
    ] {
        let mut moved = node(&[]);
        moved["metadata"]["annotations"]["recycle-eks/drain-until"] = json!(until);
        let kube = kube(&moved, std::slice::from_ref(&train)).on("POST", "/eviction", 201, success());
        let StepRequest { context, mut run } = request();
        run.input.on_drain_timeout = serde_json::from_value(json!(on_drain_timeout)).unwrap();
        let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id)
            .await
            .unwrap();
        evict(&kube.client(), node, &context, &mut run).await.unwrap();
        assert_eq!(evicted(&kube), expected, "{on_drain_timeout} {until}");
    }
}

#[tokio::test]
async fn all_pods_of_a_full_node_are_evicted() {
    let names: Vec<String> = (0..110).map(|number| format!("web-{number}")).collect();
    let pods: Vec<Value> = names.iter().map(|name| web(name)).collect();
    let mut kube = kube(&node(&[]), &pods);
    for name in &names {
        kube = kube.on("POST", &format!("/pods/{name}/eviction"), 429, budget());
    }
    let answer = run(&kube).await.unwrap();
    assert_eq!(answer.counts["blocked"], 110);
    let blockers = blockers_written(&kube).unwrap();
    assert_eq!(
        (blockers.len(), blockers[0].count, blockers[0].names.len()),
        (1, 110, 5)
    );
    let answer = serde_json::to_string(&answer.carrying(request().run)).unwrap();
    assert!(answer.len() < 8_192, "{}", answer.len());
}

#[tokio::test]
async fn a_blocker_that_is_gone_is_removed_from_the_progress() {
    let before = blocker("2027-01-01T06:30:00Z", true);
    let kube = kube(&node(&[before]), &[web("web")]).on("POST", "/eviction", 201, success());
    run(&kube).await.unwrap();
    assert_eq!(blockers_written(&kube).unwrap(), []);
    assert!(events(&kube).is_empty());
}

#[tokio::test]
async fn a_simultaneous_change_by_another_client_costs_only_the_progress() {
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [web("web")]});
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node(&[]))
        .on("GET", "/pods?", 200, list)
        .on("GET", "/nodes?", 200, replacements(&[]))
        .on("POST", "/eviction", 429, budget())
        .refuses(
            "PATCH",
            "/nodes/a",
            409,
            "Conflict",
            "the object has been modified",
        );
    assert_eq!(run(&kube).await.unwrap().counts["blocked"], 1);
    assert_eq!(kube.exchanges_left(), 0);
}

#[tokio::test]
async fn without_the_claim_no_pod_is_touched() {
    let unclaimed = kube(
        &json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}}),
        &[web("web")],
    );
    assert_eq!(run(&unclaimed).await.unwrap_err().failure(), Failure::ClaimLost);
    assert_eq!(unclaimed.requests(), ["GET /api/v1/nodes/a"]);
    let gone = ScriptedKube::new().refuses("GET", "/nodes/a", 404, "NotFound", "nodes \"a\" not found");
    assert_eq!(run(&gone).await.unwrap_err().failure(), Failure::NodeLost);
}

#[tokio::test]
async fn the_controllers_of_evicted_pods_are_noted_on_the_replacement_first() {
    let replacement = json!({"metadata": {"name": "new", "resourceVersion": "9"}, "spec": {}});
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node(&[]))
        .on(
            "GET",
            "/pods?",
            200,
            json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [web("one"), web("two")]}),
        )
        .on(
            "GET",
            "/nodes?",
            200,
            replacements(std::slice::from_ref(&replacement)),
        )
        .on("PATCH", "/nodes/new", 200, replacement)
        .on("POST", "/eviction", 201, success())
        .on("POST", "/eviction", 201, success())
        .on("PATCH", "/nodes/a", 200, node(&[]));
    run(&kube).await.unwrap();
    let calls = kube.calls();
    let at = |part: &str| calls.iter().position(|call| call.path.contains(part)).unwrap();
    assert!(at("/nodes/new") < at("/eviction"));
    assert!(calls[at("/nodes?")].path.contains(INSTANCE));
    let noted = recycle::base::ids::short_hash("o");
    assert_eq!(
        calls[at("/nodes/new")].body["metadata"]["annotations"]["recycle-eks/evicted"],
        noted
    );
}

#[tokio::test]
async fn without_a_replacement_the_note_is_carried_in_the_run() {
    let kube = kube(&node(&[]), &[web("one")]).on("POST", "/eviction", 201, success());
    let StepRequest { context, mut run } = request();
    run.path = RecyclePath::After;
    let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id)
        .await
        .unwrap();
    evict(&kube.client(), node, &context, &mut run).await.unwrap();
    assert_eq!(run.evicted, Some(recycle::base::ids::short_hash("o")));
}
