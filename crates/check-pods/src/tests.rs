//! What the function sees, says and writes, call by call.

use recycle::drain::Progress;
use recycle::failure::{Failure, NamedFailure as _};
use recycle::preflight::Obstacle;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use super::*;

const INSTANCE: &str = "i-0123456789abcdef0";
const EXECUTION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one";
const SINCE: &str = "2027-01-01T06:00:00Z";
const DAY: u32 = 86_400;

pub(crate) fn request(now: &str) -> StepRequest {
    serde_json::from_value(json!({
        "context": {"Execution": {"Id": EXECUTION, "Input": {}}, "State": {"EnteredTime": now}},
        "run": {
            "input": {
                "instance_id": INSTANCE,
                "cluster_name": "world",
                "awaited": {"selector": "app=train"},
                "evict": "others",
                "replacement": "before",
                "dispose": "terminate",
                "replacement_timeout_seconds": 840,
                "drain_timeout_seconds": DAY,
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

fn claim(phase: &str) -> String {
    json!({
        "schema": 1,
        "fence": format!("{EXECUTION}#0"),
        "group": "workers",
        "phase": phase,
        "urgency": "planned",
        "claimed_at": "2027-01-01T05:00:00Z",
    })
    .to_string()
}

/// A tainted node of ours that only waits for pods, with more annotations.
fn node(more: &[(&str, &str)]) -> Value {
    let record = json!({"schema": 1, "tainted_at": "2027-01-01T05:45:00Z"}).to_string();
    let mut annotations = json!({"recycle-eks/claim": claim("waiting"), "recycle-eks/record": record});
    for (key, value) in more {
        annotations[*key] = json!(value);
    }
    let taint = json!({"key": "recycle-eks/draining", "value": INSTANCE, "effect": "NoSchedule"});
    json!({
        "metadata": {"name": "a", "resourceVersion": "7", "annotations": annotations},
        "spec": {"taints": [taint], "unschedulable": true},
    })
}

fn pod(name: &str, app: &str, created: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "namespace": "jobs",
            "uid": name,
            "labels": {"app": app},
            "creationTimestamp": created,
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true},
            ],
        },
        "spec": {"restartPolicy": "Never", "containers": []},
        "status": {"phase": "Running"},
    })
}

fn awaited() -> Value {
    pod("train", "train", "2027-01-01T00:00:00Z")
}

fn evictable() -> Value {
    pod("web", "web", "2027-01-01T00:00:00Z")
}

fn list(pods: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods})
}

fn kube(node: Value, pods: &[Value]) -> ScriptedKube {
    ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node.clone())
        .on("GET", "/pods?", 200, list(pods))
        .on("PATCH", "/nodes/a", 200, node)
}

async fn run_at(kube: &ScriptedKube, now: &str, polls: u32) -> Result<Answer<CheckVerdict>, Error> {
    let StepRequest { context, run } = request(now);
    let node = node_record::get_node(&kube.client(), &run.node).await.unwrap();
    check(&kube.client(), node, &context, run, polls, &Meanwhile::quiet()).await
}

async fn run(kube: &ScriptedKube) -> Result<Answer<CheckVerdict>, Error> {
    run_at(kube, "2027-01-01T07:00:00Z", 0).await
}

fn written(kube: &ScriptedKube) -> Option<Progress> {
    let call = kube.calls().into_iter().rfind(|call| call.method == "PATCH")?;
    let annotations = call.body["metadata"]["annotations"].clone();
    assert_eq!(
        annotations.as_object().unwrap().len(),
        1,
        "only the progress is written"
    );
    serde_json::from_str(annotations["recycle-eks/progress"].as_str()?).ok()
}

#[tokio::test]
async fn an_awaited_pod_is_waited_for_by_the_poll_law() {
    let kube = kube(node(&[]), &[awaited()]);
    let answer = run(&kube).await.unwrap();
    assert_eq!((answer.verdict, answer.wait_seconds), (CheckVerdict::Wait, 36));
    assert_eq!(answer.counts, [("awaited".to_owned(), 1)].into());
    assert_eq!(
        answer.names,
        [("awaited".to_owned(), vec!["jobs/train".to_owned()])].into()
    );
    let progress = written(&kube).unwrap();
    assert_eq!(progress.waits_for, ["jobs/train"]);
    assert_eq!(progress.since.to_string(), SINCE);
    assert_eq!(progress.until.to_string(), "2027-01-02T06:00:00Z");
}

#[tokio::test]
async fn another_pod_is_to_be_evicted_and_an_empty_node_is_ready_to_go() {
    let answer = run(&kube(node(&[]), &[awaited(), evictable()])).await.unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Evict);
    assert_eq!(answer.run.unwrap().last_eviction, None);
    let answer = run(&kube(node(&[]), &[])).await.unwrap();
    assert_eq!((answer.verdict, answer.wait_seconds), (CheckVerdict::Dispose, 0));
    assert_eq!(answer.reason, "no pod holds the node");
}

/// The phases that are written on a node that is draining while it has these pods.
async fn phases_written(pods: &[Value]) -> Vec<String> {
    let draining = node(&[("recycle-eks/claim", &claim("draining"))]);
    let kube = kube(draining.clone(), pods)
        .on("PATCH", "/nodes/a", 200, draining)
        .on(
            "POST",
            "/events",
            201,
            json!({"metadata": {}, "involvedObject": {}}),
        );
    run(&kube).await.unwrap();
    let claims = kube.calls().into_iter().filter_map(|call| {
        let claim = call.body["metadata"]["annotations"]["recycle-eks/claim"]
            .as_str()?
            .to_owned();
        assert_eq!(call.body["metadata"]["resourceVersion"], "7");
        serde_json::from_str::<Claim>(&claim).ok()
    });
    claims.map(|claim| claim.phase.to_string()).collect()
}

#[tokio::test]
async fn a_node_only_waits_once_nothing_is_left_to_evict_and_nothing_evicted_is_still_leaving() {
    let mut leaving = evictable();
    leaving["metadata"]["deletionTimestamp"] = json!("2027-01-01T06:59:00Z");
    assert_eq!(phases_written(&[awaited()]).await, ["waiting"]);
    for pods in [vec![awaited(), evictable()], vec![awaited(), leaving], vec![]] {
        assert!(phases_written(&pods).await.is_empty(), "{pods:?}");
    }
}

#[tokio::test]
async fn a_claim_that_is_lost_at_that_moment_is_not_written() {
    let mut taken = node(&[]);
    taken["metadata"]["annotations"] = json!({});
    let kube = ScriptedKube::new()
        .on(
            "GET",
            "/nodes/a",
            200,
            node(&[("recycle-eks/claim", &claim("draining"))]),
        )
        .on("GET", "/pods?", 200, list(&[awaited()]))
        .refuses(
            "PATCH",
            "/nodes/a",
            409,
            "Conflict",
            "the object has been modified",
        )
        .on("GET", "/nodes/a", 200, taken);
    assert_eq!(run(&kube).await.unwrap_err().failure(), Failure::ClaimLost);
    assert_eq!(kube.scenes_left(), 0);
}

#[tokio::test]
async fn a_pod_tolerates_the_taint_only_if_it_came_after_the_first_look() {
    let before = pod("before", "train", "2027-01-01T05:59:59Z");
    let after = pod("after", "train", "2027-01-01T06:00:01Z");
    let answer = run(&kube(node(&[]), &[before, after])).await.unwrap();
    assert_eq!(answer.names["awaited"], ["jobs/before"]);
    assert_eq!(answer.names["tolerates_taint"], ["jobs/after"]);
}

#[tokio::test]
async fn without_the_taint_every_pod_counts_and_the_reason_says_so() {
    let mut untainted = node(&[]);
    untainted["spec"]["taints"] = json!([]);
    let answer = run(&kube(untainted, &[pod("after", "train", "2027-01-01T06:30:00Z")]))
        .await
        .unwrap();
    assert_eq!(answer.names["awaited"], ["jobs/after"]);
    assert!(
        answer
            .reason
            .ends_with("; somebody removed the taint recycle-eks/draining"),
        "{}",
        answer.reason
    );
}

#[tokio::test]
async fn a_progress_that_is_the_same_is_not_written_again() {
    let first = kube(node(&[]), &[awaited()]);
    run(&first).await.unwrap();
    let progress = serde_json::to_string(&written(&first).unwrap()).unwrap();
    let second = kube(node(&[("recycle-eks/progress", &progress)]), &[awaited()]);
    run_at(&second, "2027-01-01T09:00:00Z", 5).await.unwrap();
    assert_eq!(written(&second), None);
}

#[tokio::test]
async fn what_blocks_evictions_stays_told_as_long_as_there_is_something_to_evict() {
    let progress =
        json!({"summary": "", "blocked_by": ["jobs/web: a budget"], "since": SINCE, "until": SINCE})
            .to_string();
    let annotations = [("recycle-eks/progress", progress.as_str())];
    let blocked = kube(node(&annotations), &[evictable()]);
    run(&blocked).await.unwrap();
    assert_eq!(written(&blocked).unwrap().blocked_by, ["jobs/web: a budget"]);
    let gone = kube(node(&annotations), &[awaited()]);
    run(&gone).await.unwrap();
    assert!(written(&gone).unwrap().blocked_by.is_empty());
}

#[tokio::test]
async fn somebody_elses_change_at_the_same_moment_costs_only_the_progress() {
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node(&[]))
        .on("GET", "/pods?", 200, list(&[awaited()]))
        .refuses(
            "PATCH",
            "/nodes/a",
            409,
            "Conflict",
            "the object has been modified",
        );
    assert_eq!(run(&kube).await.unwrap().verdict, CheckVerdict::Wait);
    assert_eq!(kube.scenes_left(), 0);
}

#[tokio::test]
async fn a_person_moves_the_end_and_a_word_that_is_no_time_is_reported() {
    let until = kube(
        node(&[("recycle-eks/drain-until", "2027-01-05T00:00:00Z")]),
        &[awaited()],
    );
    run(&until).await.unwrap();
    assert_eq!(written(&until).unwrap().until.to_string(), "2027-01-05T00:00:00Z");

    let now = run(&kube(node(&[("recycle-eks/drain-until", "now")]), &[awaited()]))
        .await
        .unwrap_err();
    assert_eq!(now.failure(), Failure::DrainTimedOut);

    let soon = run(&kube(node(&[("recycle-eks/drain-until", "soon")]), &[awaited()]))
        .await
        .unwrap();
    assert_eq!(soon.verdict, CheckVerdict::Wait);
    assert!(soon.reason.contains("recycle-eks/drain-until"), "{}", soon.reason);
}

#[tokio::test]
async fn when_the_time_is_over_one_last_eviction_is_tried() {
    let over = "2027-01-02T06:00:00Z";
    let answer = run_at(&kube(node(&[]), &[awaited(), evictable()]), over, 9)
        .await
        .unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Evict);
    assert_eq!(answer.run.unwrap().last_eviction, Some(over.parse().unwrap()));

    let kube = kube(node(&[]), &[awaited(), evictable()]);
    let StepRequest { context, mut run } = request("2027-01-02T06:00:30Z");
    run.last_eviction = Some(over.parse().unwrap());
    let node = node_record::get_node(&kube.client(), &run.node).await.unwrap();
    let error = check(&kube.client(), node, &context, run, 10, &Meanwhile::quiet())
        .await
        .unwrap_err();
    assert_eq!(error.failure(), Failure::DrainTimedOut);
    assert!(error.to_string().contains("jobs/train"), "{error}");
    assert!(written(&kube).is_some(), "the last state is told, too");
}

#[tokio::test]
async fn the_poll_budget_ends_a_drain_like_a_time_out() {
    let error = run_at(
        &kube(node(&[]), &[awaited()]),
        "2027-01-01T07:00:00Z",
        POLL_BUDGET,
    )
    .await
    .unwrap_err();
    assert_eq!(error.failure(), Failure::DrainTimedOut);
}

#[tokio::test]
async fn without_the_claim_or_the_node_nothing_is_read_or_written() {
    let unclaimed = kube(json!({"metadata": {"name": "a", "resourceVersion": "7"}}), &[]);
    assert_eq!(run(&unclaimed).await.unwrap_err().failure(), Failure::ClaimLost);
    assert_eq!(unclaimed.requests(), ["GET /api/v1/nodes/a"]);
    let gone = ScriptedKube::new().refuses("GET", "/nodes/a", 404, "NotFound", "nodes \"a\" not found");
    assert_eq!(run(&gone).await.unwrap_err().failure(), Failure::NodeLost);
}

/// What becomes of an error that the API server caused, at a moment and after so many polls.
async fn outage(status: u16, now: &str, polls: u32) -> Result<Answer<CheckVerdict>, Error> {
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node(&[]))
        .refuses("GET", "/pods?", status, "", "no");
    let error = run_at(&kube, now, polls).await.unwrap_err();
    let StepRequest { context, mut run } = request(now);
    run.polls = polls + 1;
    outage::wait_out(error, run, context.now())
}

#[tokio::test]
async fn an_api_server_that_is_away_is_waited_for_as_long_as_there_is_time() {
    for status in [401, 429, 503] {
        let answer = outage(status, "2027-01-01T16:00:00Z", 100).await.unwrap();
        assert_eq!(
            (answer.verdict, answer.wait_seconds),
            (CheckVerdict::Wait, 360),
            "{status}"
        );
        assert!(
            answer
                .reason
                .starts_with("the cluster cannot be asked: failed to check"),
            "{}",
            answer.reason
        );
        assert_eq!(answer.run.unwrap().polls, 101);
    }
    let shortly_before = outage(503, "2027-01-02T05:59:20Z", 100).await.unwrap();
    assert_eq!(shortly_before.wait_seconds, 40);
    let over = outage(503, "2027-01-02T06:00:00Z", 100).await.unwrap_err();
    assert_eq!(over.failure(), Failure::ServiceUnavailable);
    let spent = outage(503, "2027-01-01T16:00:00Z", POLL_BUDGET)
        .await
        .unwrap_err();
    assert_eq!(spent.failure(), Failure::ServiceUnavailable);
    let StepRequest { mut run, .. } = request("2027-01-02T06:00:00Z");
    run.drain_until = Some("2027-01-03T06:00:00Z".parse().unwrap());
    let error = node_record::Error::Unreachable {
        call: "get nodes a".to_owned(),
        source: "connection refused".into(),
    };
    let moved = outage::wait_out(error.into(), run, "2027-01-02T06:00:00Z".parse().unwrap()).unwrap();
    assert_eq!(moved.wait_seconds, 864, "a person had moved the end");
    let refused = outage(403, "2027-01-01T16:00:00Z", 100).await.unwrap_err();
    assert_eq!(refused.failure(), Failure::ServiceRefused);
}

#[tokio::test]
async fn what_comes_up_from_outside_is_told_in_answer_progress_and_one_event() {
    let refresh = Obstacle::InstanceRefresh.because("an instance refresh runs");
    let text = refresh.to_string();
    let meanwhile = Meanwhile {
        remarks: vec![refresh],
        ..Meanwhile::quiet()
    };
    let told = json!({"summary": "", "since": SINCE, "until": SINCE, "meanwhile": [text]}).to_string();
    for (annotations, events) in [(vec![], 1), (vec![("recycle-eks/progress", told.as_str())], 0)] {
        let kube = kube(node(&annotations), &[awaited()]).on("POST", "/events", 201, json!({}));
        let StepRequest { context, run } = request("2027-01-01T07:00:00Z");
        let node = node_record::get_node(&kube.client(), &run.node).await.unwrap();
        let answer = check(&kube.client(), node, &context, run, 1, &meanwhile)
            .await
            .unwrap();
        assert!(answer.reason.ends_with(&text), "{}", answer.reason);
        assert_eq!(written(&kube).unwrap().meanwhile, std::slice::from_ref(&text));
        let posted = kube
            .requests()
            .into_iter()
            .filter(|call| call.starts_with("POST"));
        assert_eq!(posted.count(), events);
    }
}

#[tokio::test]
async fn a_node_that_somebody_put_to_use_is_not_drained_any_more() {
    let kube = kube(node(&[]), &[awaited()]);
    let StepRequest { context, run } = request("2027-01-01T07:00:00Z");
    let node = node_record::get_node(&kube.client(), &run.node).await.unwrap();
    let meanwhile = Meanwhile {
        fate: Fate::PutToUse("node a is InService, which was not our doing".to_owned()),
        ..Meanwhile::quiet()
    };
    let error = check(&kube.client(), node, &context, run, 1, &meanwhile)
        .await
        .unwrap_err();
    assert_eq!(error.failure(), Failure::ServiceRefused);
    assert_eq!(kube.requests(), ["GET /api/v1/nodes/a"]);
}
