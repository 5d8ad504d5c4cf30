//! The verdicts, answers and writes of the function, call by call.

use std::time::Duration;

use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::base::poll::POLL_BUDGET;
use recycle::cluster::group::{Group, Member};
use recycle::cluster::hook::HeldByHook;
use recycle::cluster::refresh::{Refresh, StandbyInstances};
use recycle::records::progress::Progress;
use scripted_kube::{Call, ScriptedKube};
use serde_json::{Value, json};

use super::*;
use crate::disruption::FoundGroup;

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
                "replacement_timeout": 840, "node_lost_after": 1_800,
                "drain_timeout": DAY,
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

pub(crate) fn claim(phase: &str) -> String {
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

/// Returns a tainted node of recycle-eks that only waits for pods, with more annotations.
pub(crate) fn node(more: &[(&str, &str)]) -> Value {
    let record = json!({"schema": 1, "tainted_at": "2027-01-01T05:45:00Z"}).to_string();
    let mut annotations = json!({"recycle-eks/claim": claim("waiting"), "recycle-eks/record": record});
    for (key, value) in more {
        annotations[*key] = json!(value);
    }
    let taint = json!({"key": "recycle-eks/draining", "value": INSTANCE, "effect": "NoSchedule"});
    json!({
        "metadata": {"name": "a", "resourceVersion": "7", "annotations": annotations},
        "spec": {"providerID": format!("aws:///eu-west-1a/{INSTANCE}"), "taints": [taint], "unschedulable": true},
    })
}

pub(crate) fn pod(name: &str, app: &str, created: &str) -> Value {
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

pub(crate) fn awaited() -> Value {
    pod("train", "train", "2027-01-01T00:00:00Z")
}

fn evictable() -> Value {
    let mut web = pod("web", "web", "2027-01-01T00:00:00Z");
    web["spec"]["restartPolicy"] = json!("Always");
    web["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
    web
}

pub(crate) fn list(pods: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods})
}

fn kube(node: Value, pods: &[Value]) -> ScriptedKube {
    ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node.clone())
        .on("GET", "/pods?", 200, list(pods))
        .on("PATCH", "/nodes/a", 200, node)
}

/// Returns clients of an AWS that is never called.
fn outside() -> Outside {
    let aws = scripted_aws::ScriptedAws::new().config();
    Outside::new(&aws, Access::new(&aws, &"world".parse().unwrap()), false)
}

/// Returns the reading of a group whose member is in a state.
fn reading(state: &str, refresh: Option<Refresh>) -> GroupReading {
    let member = Member {
        instance: INSTANCE.parse().unwrap(),
        lifecycle_state: state.to_owned(),
        protected_from_scale_in: false,
    };
    let group = Group {
        name: "workers".parse().unwrap(),
        min: 1,
        desired: 1,
        max: 2,
        members: vec![member],
        suspended: Vec::new(),
        protects_new_members: false,
        zones: 1,
        rebalances_capacity: false,
        retains: false,
    };
    GroupReading {
        answer: Ok(Some(FoundGroup {
            group,
            tags: BTreeMap::new(),
            refresh,
            hook: None,
        })),
        left: Duration::from_secs(10),
    }
}

fn refresh(standby: StandbyInstances) -> Refresh {
    Refresh {
        status: "InProgress".to_owned(),
        standby,
    }
}

fn quiet() -> GroupReading {
    reading("Standby", None)
}

/// Reads the Node of the run, and checks it.
async fn check_once(
    kube: &ScriptedKube,
    context: &Context,
    run: Run,
    polls: u32,
    group: &GroupReading,
) -> Answered {
    let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id).await;
    let node = node.unwrap();
    check(&kube.client(), node, context, run, polls, &outside(), group).await
}

async fn run_at(kube: &ScriptedKube, now: &str, polls: u32) -> Result<Answer<CheckVerdict>, Error> {
    let StepRequest { context, run } = request(now);
    check_once(kube, &context, run, polls, &quiet()).await
}

async fn run(kube: &ScriptedKube) -> Result<Answer<CheckVerdict>, Error> {
    run_at(kube, "2027-01-01T07:00:00Z", 0).await
}

fn written(kube: &ScriptedKube) -> Option<Progress> {
    let is_of_node = |call: &Call| call.method == "PATCH" && call.path.contains("/nodes/");
    let call = kube.calls().into_iter().rfind(is_of_node)?;
    let annotations = call.body["metadata"]["annotations"].clone();
    assert_eq!(
        annotations.as_object().unwrap().len(),
        1,
        "only the progress is written"
    );
    serde_json::from_str(annotations["recycle-eks/progress"].as_str()?).ok()
}

#[tokio::test]
async fn an_awaited_pod_is_checked_again_by_the_patient_rule() {
    let kube = kube(node(&[]), &[awaited()]);
    let answer = run(&kube).await.unwrap();
    assert_eq!((answer.verdict, answer.wait_seconds), (CheckVerdict::Wait, 120));
    assert_eq!(answer.counts, [("awaited".to_owned(), 1)].into());
    assert_eq!(
        answer.names,
        [("awaited".to_owned(), vec!["jobs/train".to_owned()])].into()
    );
    let progress = written(&kube).unwrap();
    assert_eq!(progress.names["awaited"], ["jobs/train"]);
    assert_eq!(progress.then, "the node is restored");
    assert_eq!(progress.since.to_string(), SINCE);
    assert_eq!(progress.until.to_string(), "2027-01-02T06:00:00Z");
}

#[tokio::test]
async fn another_pod_is_to_be_evicted_and_an_empty_node_is_disposed_of() {
    let answer = run(&kube(node(&[]), &[awaited(), evictable()])).await.unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Evict);
    assert_eq!(answer.run.unwrap().drain.last_eviction, None);
    let answer = run(&kube(node(&[]), &[])).await.unwrap();
    assert_eq!((answer.verdict, answer.wait_seconds), (CheckVerdict::Dispose, 0));
    assert_eq!(answer.reason, "no pod holds the node");
}

/// Returns the phases that are written on a draining node while it has these pods.
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
async fn a_node_only_waits_once_no_pod_is_evictable_or_leaving() {
    let mut leaving = evictable();
    leaving["metadata"]["deletionTimestamp"] = json!("2027-01-01T06:59:00Z");
    assert_eq!(phases_written(&[awaited()]).await, ["waiting"]);
    for pods in [vec![awaited(), evictable()], vec![awaited(), leaving], vec![]] {
        assert!(phases_written(&pods).await.is_empty(), "{pods:?}");
    }
}

#[tokio::test]
async fn a_claim_that_is_lost_during_the_write_is_not_written() {
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
    assert_eq!(kube.exchanges_left(), 0);
}

#[tokio::test]
async fn a_pod_is_late_only_if_it_came_after_the_first_check_and_tolerates_the_taint() {
    let tolerant = |name: &str, created: &str| {
        let mut pod = pod(name, "web", created);
        pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        pod
    };
    let before = tolerant("before", "2027-01-01T05:59:59Z");
    let after = tolerant("after", "2027-01-01T06:00:01Z");
    let stale = pod("stale", "web", "2027-01-01T06:00:01Z");
    let answer = run(&kube(node(&[]), &[before, after.clone(), stale]))
        .await
        .unwrap();
    assert_eq!(answer.names["awaited"], ["jobs/before", "jobs/stale"]);
    assert_eq!(answer.names["tolerates_taint"], ["jobs/after"]);
    assert_eq!(answer.run.unwrap().drain.emptied_at, None);

    let answer = run(&kube(node(&[]), std::slice::from_ref(&after))).await.unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Evict);
    let emptied_at = answer.run.unwrap().drain.emptied_at;
    assert_eq!(emptied_at.unwrap().to_string(), "2027-01-01T07:00:00Z");
    let StepRequest { context, mut run } = request("2027-01-01T07:05:00Z");
    let kube = kube(node(&[]), &[after]);
    run.drain.emptied_at = emptied_at;
    let answer = check_once(&kube, &context, run, 1, &quiet()).await;
    assert_eq!(answer.unwrap().verdict, CheckVerdict::Dispose);
}

#[tokio::test]
async fn without_the_taint_every_pod_counts_and_the_reason_mentions_it() {
    let mut untainted = node(&[]);
    untainted["spec"]["taints"] = json!([]);
    let answer = run(&kube(untainted, &[pod("after", "train", "2027-01-01T06:30:00Z")]))
        .await
        .unwrap();
    assert_eq!(answer.names["awaited"], ["jobs/after"]);
    assert!(
        answer
            .reason
            .ends_with("; an operator or another tool removed the taint recycle-eks/draining"),
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
async fn a_blocker_stays_in_the_progress_while_there_is_a_pod_to_evict() {
    let progress = progress_with(&["awaited", "evictable"]);
    let annotations = [("recycle-eks/progress", progress.as_str())];
    let blocked = kube(node(&annotations), &[evictable()]);
    let answer = run(&blocked).await.unwrap();
    assert_eq!(written(&blocked).unwrap().blocked[0].what, "budget jobs/web");
    assert!(
        answer.reason.ends_with(
            "; budget jobs/web has blocked 1 pod since 2027-01-01T06:30:00Z: it needs 2 (jobs/web)"
        ),
        "{}",
        answer.reason
    );
    let gone = kube(node(&annotations), &[awaited()]);
    let answer = run(&gone).await.unwrap();
    assert!(written(&gone).unwrap().blocked.is_empty());
    assert!(!answer.reason.contains("budget"), "{}", answer.reason);
}

/// Returns a progress with one pod of each of these classes, and with a budget that has blocked evictions since half past six.
fn progress_with(classes: &[&str]) -> String {
    let counts: serde_json::Map<String, Value> = classes
        .iter()
        .map(|class| ((*class).to_owned(), json!(1)))
        .collect();
    let budget = json!({
        "what": "budget jobs/web",
        "says": "it needs 2",
        "since": "2027-01-01T06:30:00Z",
        "count": 1,
        "names": ["jobs/web"],
    });
    json!({"summary": "", "blocked": [budget], "counts": counts, "since": SINCE, "until": SINCE}).to_string()
}

/// Returns the messages of the Events that were written, each with its reason.
fn events(kube: &ScriptedKube) -> Vec<String> {
    let posts = kube.calls().into_iter().filter(|call| call.method == "POST");
    let text = |call: Call| {
        let part = |name: &str| call.body[name].as_str().unwrap().to_owned();
        format!("{}: {}", part("reason"), part("message"))
    };
    posts.map(text).collect()
}

#[tokio::test]
async fn a_class_that_had_no_pods_before_gets_an_event() {
    let first = kube(node(&[]), &[awaited(), evictable()]);
    run(&first).await.unwrap();
    assert_eq!(
        events(&first),
        ["RecyclePods: Pods until 2027-01-02T06:00:00Z: awaited 1 (jobs/train); evictable 1 (jobs/web)"]
    );
    let progress = progress_with(&["awaited", "evictable"]);
    let known = [("recycle-eks/progress", progress.as_str())];
    let same = kube(node(&known), &[awaited(), evictable()]);
    run(&same).await.unwrap();
    assert!(events(&same).is_empty());
    let mut stuck = evictable();
    stuck["metadata"]["deletionTimestamp"] = json!("2027-01-01T06:54:59Z");
    let more = kube(node(&known), &[awaited(), stuck]);
    let answer = run(&more).await.unwrap();
    assert_eq!(answer.names["stuck"], ["jobs/web"]);
    assert_eq!(
        events(&more),
        ["RecyclePods: Pods until 2027-01-02T06:00:00Z: awaited 1 (jobs/train); stuck 1 (jobs/web)"]
    );
}

/// Makes a check at this moment, for this value of `on_drain_timeout`, and after the last eviction if there was one.
async fn run_out_of_time(
    now: &str,
    on_drain_timeout: &str,
    last_eviction: Option<&str>,
    pods: &[Value],
) -> Result<Answer<CheckVerdict>, Error> {
    let kube = kube(node(&[]), pods);
    let StepRequest { context, mut run } = request(now);
    run.input.on_drain_timeout = serde_json::from_value(json!(on_drain_timeout)).unwrap();
    run.drain.last_eviction = last_eviction.map(|moment| moment.parse().unwrap());
    check_once(&kube, &context, run, 9, &quiet()).await
}

#[tokio::test]
async fn awaited_pods_are_evicted_in_time_if_the_input_says_so() {
    let mut slow = awaited();
    slow["spec"]["terminationGracePeriodSeconds"] = json!(7_200);
    let run = |now| run_out_of_time(now, "evict", None, std::slice::from_ref(&slow));
    let early = run("2027-01-02T03:50:00Z").await.unwrap();
    assert_eq!((early.verdict, early.wait_seconds), (CheckVerdict::Wait, 540));
    let due = run("2027-01-02T03:59:00Z").await.unwrap();
    assert_eq!(due.verdict, CheckVerdict::Evict);
    assert_eq!(due.names["out_of_time"], ["jobs/train"]);
    assert_eq!(
        due.run.unwrap().drain.last_eviction,
        None,
        "the eviction may be requested again"
    );
}

#[tokio::test]
async fn after_the_deadline_the_node_is_disposed_of_with_its_pods_if_the_input_says_so() {
    let over = "2027-01-02T06:00:00Z";
    let last = run_out_of_time(over, "terminate", None, &[awaited()])
        .await
        .unwrap();
    assert_eq!((last.verdict, last.wait_seconds), (CheckVerdict::Evict, 60));
    let carried = last.run.unwrap();
    assert_eq!(
        (carried.drain.last_eviction, carried.drain.ended_pods),
        (Some(over.parse().unwrap()), None)
    );

    let mut leaving = awaited();
    leaving["metadata"]["deletionTimestamp"] = json!("2027-01-02T08:00:00Z");
    let later = "2027-01-02T06:01:00Z";
    let end = run_out_of_time(later, "terminate", Some(over), std::slice::from_ref(&leaving))
        .await
        .unwrap();
    assert_eq!((end.verdict, end.wait_seconds), (CheckVerdict::Dispose, 0));
    let ended = end.run.unwrap().drain.ended_pods.unwrap();
    assert_eq!((ended.count, ended.names), (1, vec!["jobs/train".to_owned()]));

    for on_drain_timeout in ["restore", "evict"] {
        let error = run_out_of_time(
            later,
            on_drain_timeout,
            Some(over),
            std::slice::from_ref(&leaving),
        )
        .await
        .unwrap_err();
        assert_eq!(error.failure(), Failure::DrainTimedOut, "{on_drain_timeout}");
    }
}

#[tokio::test]
async fn a_time_out_names_the_blockers() {
    let progress = progress_with(&["evictable"]);
    let blocked = kube(node(&[("recycle-eks/progress", &progress)]), &[evictable()]);
    let StepRequest { context, mut run } = request("2027-01-02T06:00:30Z");
    run.drain.last_eviction = Some("2027-01-02T06:00:00Z".parse().unwrap());
    let error = check_once(&blocked, &context, run, 10, &quiet())
        .await
        .unwrap_err();
    assert!(
        error.to_string().ends_with(
            "it still has to evict 1 pod (jobs/web); budget jobs/web has blocked 1 pod since 2027-01-01T06:30:00Z: it needs 2 (jobs/web)"
        ),
        "{error}"
    );
}

/// Adds the answers for a pod with a volume in zone a, whose nodes are these.
fn with_volume(kube: ScriptedKube, nodes: &[Value]) -> ScriptedKube {
    let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}});
    let metadata = json!({"name": "data"});
    kube.on(
        "GET",
        "/namespaces/jobs/persistentvolumeclaims/data",
        200,
        json!({"metadata": metadata, "spec": {"volumeName": "pv-1"}}),
    )
    .on(
        "GET",
        "/persistentvolumes/pv-1",
        200,
        json!({"metadata": metadata, "spec": {"nodeAffinity": affinity}}),
    )
    .on("GET", "/nodes?", 200, list(nodes))
}

#[tokio::test]
async fn a_pod_whose_volume_has_no_other_node_is_held_and_reported() {
    let mut database = evictable();
    database["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let held = with_volume(kube(node(&[]), &[database.clone()]), &[node(&[])]);
    let answer = run(&held).await.unwrap();
    assert_eq!((answer.verdict, answer.wait_seconds), (CheckVerdict::Wait, 36));
    assert_eq!(answer.counts, [("zone_mismatch".to_owned(), 1)].into());
    assert_eq!(answer.names["zone_mismatch"], ["jobs/web"]);
    let because =
        "jobs/web is not evicted: its volume pv-1 needs a node with topology.kubernetes.io/zone in (a)";
    assert!(answer.reason.contains(because), "{}", answer.reason);
    assert!(written(&held).unwrap().held[0].starts_with(because));

    let late = with_volume(kube(node(&[]), &[database.clone()]), &[]);
    let error = run_at(&late, "2027-01-02T06:00:00Z", 9).await.unwrap_err();
    assert_eq!(error.failure(), Failure::DrainTimedOut);
    let text = error.to_string();
    assert!(text.contains("zone_mismatch") && text.contains(because), "{text}");

    let mut other = node(&[]);
    other["metadata"]["name"] = json!("b");
    other["spec"] = json!({});
    other["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let free = with_volume(kube(node(&[]), &[database]), &[other]);
    assert_eq!(run(&free).await.unwrap().verdict, CheckVerdict::Evict);
}

#[tokio::test]
async fn a_simultaneous_change_by_another_client_costs_only_the_progress() {
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
    assert_eq!(kube.exchanges_left(), 0);
}

#[tokio::test]
async fn an_operator_moves_the_end_and_an_invalid_time_is_reported() {
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
async fn after_the_deadline_one_last_eviction_is_requested() {
    let over = "2027-01-02T06:00:00Z";
    let answer = run_at(&kube(node(&[]), &[awaited(), evictable()]), over, 9)
        .await
        .unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Evict);
    assert_eq!(
        answer.run.unwrap().drain.last_eviction,
        Some(over.parse().unwrap())
    );

    let kube = kube(node(&[]), &[awaited(), evictable()]);
    let StepRequest { context, mut run } = request("2027-01-02T06:00:30Z");
    run.drain.last_eviction = Some(over.parse().unwrap());
    let error = check_once(&kube, &context, run, 10, &quiet()).await.unwrap_err();
    assert_eq!(error.failure(), Failure::DrainTimedOut);
    assert!(error.to_string().contains("jobs/train"), "{error}");
    assert!(written(&kube).is_some(), "the last state is also written");
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
async fn without_the_claim_nothing_else_is_read_or_written() {
    let unclaimed = kube(
        json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}}),
        &[],
    );
    assert_eq!(run(&unclaimed).await.unwrap_err().failure(), Failure::ClaimLost);
    assert_eq!(unclaimed.requests(), ["GET /api/v1/nodes/a"]);
}

fn unready(since: &str) -> Value {
    let mut node = node(&[]);
    node["status"]["conditions"] =
        json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]);
    node
}

#[tokio::test]
async fn a_node_that_is_not_ready_for_half_an_hour_is_lost_with_its_pods() {
    let silent = |others: Value| {
        kube(unready("2027-01-01T06:30:00Z"), &[awaited(), evictable()]).on(
            "GET",
            "/api/v1/nodes?",
            200,
            json!({"metadata": {}, "items": others}),
        )
    };
    let mut other = node(&[]);
    other["metadata"]["name"] = json!("b");
    other["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let answer = run(&silent(json!([unready("2027-01-01T06:30:00Z"), other])))
        .await
        .unwrap();
    assert_eq!((answer.verdict, answer.wait_seconds), (CheckVerdict::Lost, 0));
    let run = answer.run.unwrap();
    assert_eq!(
        run.lost.unwrap().why,
        "it has not been Ready since 2027-01-01T06:30:00Z"
    );
    assert_eq!(run.drain.holders.unwrap().names, ["jobs/train", "jobs/web"]);
}

#[tokio::test]
async fn no_node_is_given_up_while_none_is_ready() {
    let silent = unready("2027-01-01T06:30:00Z");
    let kube = kube(silent.clone(), &[awaited()]).on(
        "GET",
        "/api/v1/nodes?",
        200,
        json!({"metadata": {}, "items": [silent]}),
    );
    let answer = run(&kube).await.unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Wait);
    assert!(
        answer.reason.contains("no node of the cluster is Ready"),
        "{}",
        answer.reason
    );
}

#[tokio::test]
async fn a_node_that_is_not_ready_for_less_time_or_already_drained_is_not_lost() {
    let shortly = run(&kube(unready("2027-01-01T06:30:01Z"), &[awaited()]))
        .await
        .unwrap();
    assert_eq!(shortly.verdict, CheckVerdict::Wait);
    assert_eq!(shortly.run.unwrap().lost, None);
    let drained = run(&kube(unready("2027-01-01T00:00:00Z"), &[])).await.unwrap();
    assert_eq!(drained.verdict, CheckVerdict::Dispose);
}

#[tokio::test]
async fn a_node_that_is_gone_or_replaced_is_lost_with_the_pods_of_the_last_check() {
    let StepRequest { context, mut run } = request("2027-01-01T07:00:00Z");
    let holders = recycle::drain::lost::Holders {
        count: 3,
        names: vec!["jobs/before".to_owned()],
        seen_at: context.now(),
    };
    run.drain.holders = Some(holders);
    let mut others = node(&[]);
    others["spec"]["providerID"] = json!("aws:///eu-west-1a/i-0bbbbbbbbbbbbbbbb");
    for (found, pods, names) in [
        (None, vec![], ["jobs/before"]),
        (None, vec![awaited()], ["jobs/train"]),
        (Some(others), vec![], ["jobs/before"]),
    ] {
        let kube = ScriptedKube::new();
        let kube = match found {
            None => kube.refuses("GET", "/nodes/a", 404, "NotFound", "nodes \"a\" not found"),
            Some(node) => kube.on("GET", "/nodes/a", 200, node),
        };
        let kube = kube.on("GET", "/pods?", 200, list(&pods));
        let answer = check_once(&kube, &context, run.clone(), 0, &quiet())
            .await
            .unwrap();
        assert_eq!(answer.verdict, CheckVerdict::Lost);
        let run = answer.run.unwrap();
        assert_eq!(run.lost.unwrap().why, "its Node object is gone");
        assert_eq!(run.drain.holders.unwrap().names, names);
    }
}

#[tokio::test]
async fn a_node_that_vanishes_between_two_calls_is_checked_again() {
    let StepRequest { context, run } = request("2027-01-01T07:00:00Z");
    let gone = kubernetes::Error::NodeGone { node: "a".to_owned() };
    let answer = outage::wait_out(gone.into(), run, &context).unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Wait);
}

/// Returns the result of an error that the API server caused, at this time and after this number of checks.
async fn outage(status: u16, now: &str, polls: u32) -> Result<Answer<CheckVerdict>, Error> {
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node(&[]))
        .refuses("GET", "/pods?", status, "", "no");
    let error = run_at(&kube, now, polls).await.unwrap_err();
    let StepRequest { context, mut run } = request(now);
    run.drain.polls = polls + 1;
    outage::wait_out(error, run, &context)
}

#[tokio::test]
async fn an_outage_of_the_api_server_is_waited_out_while_there_is_time() {
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
                .starts_with("cannot read the cluster: failed to check"),
            "{}",
            answer.reason
        );
        assert_eq!(answer.run.unwrap().drain.polls, 101);
    }
    let shortly_before = outage(503, "2027-01-02T05:59:20Z", 100).await.unwrap();
    assert_eq!(shortly_before.wait_seconds, 40);
    let over = outage(503, "2027-01-02T06:00:00Z", 100).await.unwrap_err();
    assert_eq!(over.failure(), Failure::ServiceUnavailable);
    let spent = outage(503, "2027-01-01T16:00:00Z", POLL_BUDGET)
        .await
        .unwrap_err();
    assert_eq!(spent.failure(), Failure::ServiceUnavailable);
    let StepRequest { context, mut run } = request("2027-01-02T06:00:00Z");
    run.drain.drain_until = Some("2027-01-03T06:00:00Z".parse().unwrap());
    let error = kubernetes::Error::Unreachable {
        call: "get nodes a".to_owned(),
        source: "connection refused".into(),
    };
    let moved = outage::wait_out(error.into(), run, &context).unwrap();
    assert_eq!(moved.wait_seconds, 864, "an operator had moved the end");
    let refused = outage(403, "2027-01-01T16:00:00Z", 100).await.unwrap_err();
    assert_eq!(refused.failure(), Failure::ServiceRefused);
}

#[tokio::test]
async fn a_blockage_is_notified_after_five_minutes_and_again_only_after_a_day() {
    let mut carried = request("2027-01-01T07:00:00Z").run;
    carried.input.drain_timeout = 3 * DAY;
    let mut notification_at = async |now: &str| {
        let kube = ScriptedKube::new()
            .on("GET", "/nodes/a", 200, node(&[]))
            .refuses("GET", "/pods?", 503, "", "no");
        let error = run_at(&kube, now, 0).await.unwrap_err();
        let StepRequest { context, .. } = request(now);
        let answer = outage::wait_out(error, carried.clone(), &context).unwrap();
        carried = answer.run.unwrap();
        answer
            .notification
            .map(|notification| serde_json::to_value(notification).unwrap())
    };
    assert_eq!(notification_at("2027-01-01T07:00:00Z").await, None);
    assert_eq!(notification_at("2027-01-01T07:04:59Z").await, None);
    let notification = notification_at("2027-01-01T07:05:00Z").await.unwrap();
    assert_eq!(
        (&notification["event"], &notification["since"]),
        (&json!("blocked"), &json!("2027-01-01T07:00:00Z"))
    );
    assert!(
        notification["blocks"][0]
            .as_str()
            .unwrap()
            .starts_with("cannot read the cluster"),
        "{notification}"
    );
    assert_eq!(notification_at("2027-01-01T16:00:00Z").await, None);
    assert_eq!(notification_at("2027-01-02T07:04:59Z").await, None);
    assert!(notification_at("2027-01-02T07:05:00Z").await.is_some());
}

#[tokio::test]
async fn a_remark_from_outside_is_in_answer_and_progress_and_gets_one_event() {
    let group = reading("Standby", Some(refresh(StandbyInstances::Ignore)));
    let text = "instance_refresh: an instance refresh of group workers is InProgress; it leaves members in Standby alone (StandbyInstances)";
    let written_before =
        json!({"summary": "", "since": SINCE, "until": SINCE, "disruptions": [text]}).to_string();
    for (annotations, expected) in [
        (vec![], 1),
        (vec![("recycle-eks/progress", written_before.as_str())], 0),
    ] {
        let kube = kube(node(&annotations), &[awaited()]).on("POST", "/events", 201, json!({}));
        let StepRequest { context, run } = request("2027-01-01T07:00:00Z");
        let answer = check_once(&kube, &context, run, 1, &group).await.unwrap();
        assert!(answer.reason.ends_with(text), "{}", answer.reason);
        assert_eq!(written(&kube).unwrap().disruptions, [text]);
        let events = events(&kube);
        let disturbed = events
            .iter()
            .filter(|event| event.starts_with("RecycleDisturbed"));
        assert_eq!(disturbed.count(), expected, "{events:?}");
    }
}

#[tokio::test]
async fn a_refresh_that_ends_members_in_standby_is_reported_at_once_and_then_daily() {
    let group = reading("Standby", Some(refresh(StandbyInstances::Terminate)));
    let mut run = request("2027-01-01T07:00:00Z").run;
    run.input.drain_timeout = 3 * 86_400;
    for (now, is_reported) in [
        ("2027-01-01T07:00:00Z", true),
        ("2027-01-01T07:00:30Z", false),
        ("2027-01-02T06:59:59Z", false),
        ("2027-01-02T07:00:00Z", true),
    ] {
        let kube = kube(node(&[]), &[awaited()]);
        let context = request(now).context;
        let answer = check_once(&kube, &context, run, 1, &group).await.unwrap();
        run = answer.run.unwrap();
        let notification = answer
            .notification
            .map(|sent| serde_json::to_value(sent).unwrap());
        assert_eq!(notification.is_some(), is_reported, "{now}");
        if let Some(notification) = notification {
            assert_eq!(
                (&notification["event"], &notification["severity"]),
                (&json!("blocked"), &json!("critical"))
            );
            let command = notification["what_to_do"][1].as_str().unwrap();
            assert!(
                command.ends_with("cancel-instance-refresh --auto-scaling-group-name workers"),
                "{command}"
            );
        }
    }
}

#[tokio::test]
async fn a_refresh_is_cancelled_only_while_pods_hold_a_node_with_the_own_claim() {
    let group = reading("Standby", Some(refresh(StandbyInstances::Terminate)));
    let theirs = claim("waiting").replace(":one#0", ":two#0");
    for (name, stored, pods, is_cancelled) in [
        ("pods hold the node", node(&[]), vec![awaited()], true),
        ("the node is empty", node(&[]), vec![], false),
        (
            "another execution has claimed it",
            node(&[("recycle-eks/claim", &theirs)]),
            vec![awaited()],
            false,
        ),
    ] {
        let call = "CancelInstanceRefresh";
        let aws = scripted_aws::ScriptedAws::new().on(call, "<InstanceRefreshId>1</InstanceRefreshId>");
        let access = Access::new(&aws.config(), &"world".parse().unwrap());
        let outside = Outside::new(&aws.config(), access, true);
        let kube = kube(stored, &pods);
        let StepRequest { context, run } = request("2027-01-01T07:00:00Z");
        let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id)
            .await
            .unwrap();
        let answer = check(&kube.client(), node, &context, run, 1, &outside, &group).await;
        assert_eq!(aws.actions().contains(&call.to_owned()), is_cancelled, "{name}");
        let notification = answer.ok().and_then(|answer| answer.notification);
        let sent = notification.map(|sent| serde_json::to_value(sent).unwrap()["severity"].clone());
        assert_eq!(sent, is_cancelled.then(|| json!("warning")), "{name}");
    }
}

#[tokio::test]
async fn a_node_that_was_put_to_use_again_is_not_drained_any_more() {
    let kube = kube(node(&[]), &[awaited()]);
    let StepRequest { context, run } = request("2027-01-01T07:00:00Z");
    let error = check_once(&kube, &context, run, 1, &reading("InService", None))
        .await
        .unwrap_err();
    assert_eq!(error.failure(), Failure::ServiceRefused);
    assert_eq!(kube.requests(), ["GET /api/v1/nodes/a"]);
}

#[tokio::test]
async fn a_heartbeat_is_due_before_anything_is_read() {
    let aws = scripted_aws::ScriptedAws::new();
    let mut given = request("2027-01-01T07:00:00Z");
    given.run.hook = Some(HeldByHook::new(3_600, "2027-01-01T06:40:00Z".parse().ok(), true));
    let outside = Outside::new(
        &aws.config(),
        Access::new(&aws.config(), &"world".parse().unwrap()),
        false,
    );
    let answer = check_pods(
        &Access::new(&aws.config(), &"world".parse().unwrap()),
        &outside,
        given,
    )
    .await
    .unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Heartbeat);
    let run = answer.run.unwrap();
    assert_eq!(
        run.drain.polls,
        request("2027-01-01T07:00:00Z").run.drain.polls,
        "it was no check of the pods"
    );
    assert_eq!(
        run.hook.unwrap().heartbeat_at,
        "2027-01-01T07:00:00Z".parse().ok()
    );
    assert!(aws.calls().is_empty());
}

#[tokio::test]
async fn the_first_wait_on_the_hook_path_is_spread() {
    for (polls, more) in [
        (0, spread(&request("2027-01-01T06:00:00Z").run.input.instance_id)),
        (1, 0),
    ] {
        let kube = kube(node(&[]), &[awaited()]).on("POST", "/events", 201, json!({}));
        let StepRequest { context, mut run } = request("2027-01-01T06:00:00Z");
        run.hook = Some(HeldByHook::new(3_600, None, true));
        let answer = check_once(&kube, &context, run, polls, &quiet()).await.unwrap();
        assert_eq!(answer.wait_seconds, 30 + more, "{polls}");
    }
}

#[tokio::test]
async fn an_execution_that_has_lost_its_claim_notifies_no_pod() {
    let mine = node(&[("recycle-eks/claim", &claim("draining"))]);
    let theirs = node(&[(
        "recycle-eks/claim",
        &claim("draining").replace(":one#0", ":two#0"),
    )]);
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, mine)
        .on("GET", "/pods?", 200, list(&[awaited()]))
        .on("POST", "/events", 201, json!({}))
        .refuses("PATCH", "/nodes/a", 409, "Conflict", "changed")
        .on("GET", "/nodes/a", 200, theirs);
    let error = run(&kube).await.unwrap_err();
    assert!(matches!(error, Error::ClaimLost(_)), "{error:?}");
    let is_notice = |call: &Call| call.method == "PATCH" && call.path.contains("/pods/");
    assert!(!kube.calls().iter().any(is_notice));
}
