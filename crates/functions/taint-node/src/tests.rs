//! The writes of the function, call by call.

use bad_input::{any_json, block_on, few_cases, spoiled};
use proptest::prelude::*;
use recycle::base::failure::{Failure, NamedFailure as _};
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use super::*;

const INSTANCE: &str = "i-0123456789abcdef0";
const EXECUTION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one";
const NOW: &str = "2027-01-01T06:00:00Z";

fn request() -> StepRequest {
    serde_json::from_value(json!({
        "context": {"Execution": {"Id": EXECUTION, "Input": {}}, "State": {"EnteredTime": NOW}},
        "run": {
            "input": {
                "instance_id": INSTANCE,
                "cluster_name": "world",
                "awaited": {"selector": null},
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
        },
    }))
    .unwrap()
}

fn claim(phase: &str, redrive_count: u32) -> String {
    json!({
        "schema": 1,
        "fence": format!("{EXECUTION}#{redrive_count}"),
        "group": "workers",
        "phase": phase,
        "urgency": "planned",
        "claimed_at": "2027-01-01T05:00:00Z",
    })
    .to_string()
}

fn node(version: &str, annotations: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["providerID"] = json!(format!("aws:///eu-west-1a/{INSTANCE}"));
    json!({"metadata": {"name": "a", "resourceVersion": version, "annotations": annotations}, "spec": spec})
}

fn draining_taint_json() -> Value {
    json!({"key": "recycle-eks/draining", "value": INSTANCE, "effect": "NoSchedule"})
}

async fn run(kube: &ScriptedKube) -> Result<Answer<TaintVerdict>, Error> {
    run_on(RecyclePath::Before, kube).await
}

async fn run_on(path: RecyclePath, kube: &ScriptedKube) -> Result<Answer<TaintVerdict>, Error> {
    let StepRequest { context, mut run } = request();
    run.path = path;
    let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id)
        .await
        .unwrap();
    taint(&kube.client(), node, &context, run).await
}

/// Returns the body of the only PATCH.
fn patch(kube: &ScriptedKube) -> Value {
    let patches: Vec<_> = kube
        .calls()
        .into_iter()
        .filter(|call| call.method == "PATCH")
        .collect();
    assert_eq!(patches.len(), 1, "{patches:?}");
    patches[0].body.clone()
}

/// Reads an annotation of the Lease as it is in the end.
fn in_lease(kube: &ScriptedKube, key: &str) -> Value {
    serde_json::from_str(kube.lease(INSTANCE)[key].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn one_request_sets_taint_cordon_record_and_claim_and_keeps_the_other_taints() {
    let team =
        json!({"key": "team", "value": "blue", "effect": "NoExecute", "timeAdded": "2027-01-01T00:00:00Z"});
    let annotations = json!({
        "recycle-eks/claim": claim("standby", 0),
        "recycle-eks/record": "{\"schema\":1,\"replacement\":\"i-11111111\"}",
    });
    let before = node("7", &annotations, &json!({"taints": [team]}));
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, before.clone())
        .on("PATCH", "/nodes/a", 200, before)
        .on(
            "POST",
            "/events",
            201,
            json!({"metadata": {}, "involvedObject": {}}),
        );
    let answer = run(&kube).await.unwrap();
    assert_eq!(answer.verdict, TaintVerdict::CheckPods);
    assert_eq!(
        answer.run.unwrap().drain.draining_since,
        None,
        "check-pods sets the start of the drain"
    );
    assert_eq!(
        kube.requests(),
        [
            "GET /api/v1/nodes/a",
            "PATCH /api/v1/nodes/a",
            "POST /api/v1/namespaces/default/events"
        ]
    );
    let patch = patch(&kube);
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(
        patch["spec"],
        json!({"taints": [team, draining_taint_json()], "unschedulable": true})
    );
    assert_eq!(in_lease(&kube, "recycle-eks/claim")["phase"], "draining");
    let record = json!({"schema": 1, "replacement": "i-11111111", "tainted_at": NOW, "lost_after": 1_800, "kept": true});
    assert_eq!(in_lease(&kube, "recycle-eks/record"), record);
    let disabled = &patch["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/scale-down-disabled"];
    assert_eq!(disabled, "true");
    assert_eq!(patch["metadata"]["annotations"]["recycle-eks/kept-before"], "");
}

#[tokio::test]
async fn the_same_request_removes_the_request_taint() {
    let asked = json!({"key": "recycle-eks/request", "value": "now", "effect": "NoSchedule"});
    let annotations = json!({"recycle-eks/claim": claim("standby", 0)});
    let before = node("7", &annotations, &json!({"taints": [asked]}));
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, before.clone())
        .on("PATCH", "/nodes/a", 200, before);
    run(&kube).await.unwrap();
    assert_eq!(patch(&kube)["spec"]["taints"], json!([draining_taint_json()]));
}

#[tokio::test]
async fn drivers_of_devices_are_recorded_here_if_the_replacement_comes_after_the_drain() {
    for (path, drivers) in [
        (RecyclePath::Before, Value::Null),
        (RecyclePath::Hook, Value::Null),
        (RecyclePath::After, json!(["gpu.example.com"])),
    ] {
        let before = node(
            "7",
            &json!({"recycle-eks/claim": claim("admitted", 0)}),
            &json!({}),
        );
        let slice = json!({"spec": {"driver": "gpu.example.com", "devices": [{"name": "device-0"}]}});
        let kube = ScriptedKube::new()
            .on("GET", "/nodes/a", 200, before.clone())
            .on(
                "GET",
                "/resourceslices",
                200,
                json!({"metadata": {}, "items": [slice]}),
            )
            .on("PATCH", "/nodes/a", 200, before);
        run_on(path, &kube).await.unwrap();
        assert_eq!(
            in_lease(&kube, "recycle-eks/record")["drivers"],
            drivers,
            "{path:?}"
        );
    }
}

#[tokio::test]
async fn a_cordon_that_was_there_before_is_recorded() {
    let before = node(
        "7",
        &json!({"recycle-eks/claim": claim("standby", 0)}),
        &json!({"unschedulable": true}),
    );
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, before.clone())
        .on("PATCH", "/nodes/a", 200, before);
    run(&kube).await.unwrap();
    assert_eq!(in_lease(&kube, "recycle-eks/record")["was_unschedulable"], true);
}

#[tokio::test]
async fn a_cordon_of_recycle_eks_is_not_recorded_as_an_earlier_one() {
    let record =
        json!({"schema": 1, "tainted_at": "2027-01-01T05:30:00Z", "lost_after": 1_800, "kept": true})
            .to_string();
    let annotations = json!({
        "recycle-eks/claim": claim("draining", 0),
        "recycle-eks/record": record,
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
    });
    let untainted = node("7", &annotations, &json!({"unschedulable": true}));
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, untainted.clone())
        .on("PATCH", "/nodes/a", 200, untainted);
    run(&kube).await.unwrap();
    let patch = patch(&kube);
    assert_eq!(in_lease(&kube, "recycle-eks/record").to_string(), record);
    assert_eq!(
        patch["metadata"]["annotations"].as_object().unwrap().len(),
        1,
        "the mark is there already: {patch}"
    );
    assert_eq!(patch["spec"]["taints"], json!([draining_taint_json()]));
}

#[tokio::test]
async fn a_taint_of_the_same_key_with_another_value_is_replaced() {
    let other = json!({"key": "recycle-eks/draining", "value": "i-99999999", "effect": "NoSchedule"});
    let before = node(
        "7",
        &json!({"recycle-eks/claim": claim("standby", 0)}),
        &json!({"taints": [other]}),
    );
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, before.clone())
        .on("PATCH", "/nodes/a", 200, before);
    run(&kube).await.unwrap();
    assert_eq!(patch(&kube)["spec"]["taints"], json!([draining_taint_json()]));
}

#[tokio::test]
async fn a_change_that_was_made_earlier_is_not_repeated() {
    let spec = json!({"taints": [draining_taint_json()], "unschedulable": true});
    let after = node("8", &json!({"recycle-eks/claim": claim("draining", 0)}), &spec);
    let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, after);
    run(&kube).await.unwrap();
    assert_eq!(
        kube.requests(),
        ["GET /api/v1/nodes/a", "POST /api/v1/namespaces/default/events"]
    );
}

#[tokio::test]
async fn a_taint_that_was_added_in_between_is_kept() {
    let annotations = json!({"recycle-eks/claim": claim("standby", 0)});
    let late = json!({"key": "late", "effect": "NoSchedule"});
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node("7", &annotations, &json!({})))
        .refuses(
            "PATCH",
            "/nodes/a",
            409,
            "Conflict",
            "the object has been modified",
        )
        .on(
            "GET",
            "/nodes/a",
            200,
            node("8", &annotations, &json!({"taints": [late]})),
        )
        .on("PATCH", "/nodes/a", 200, node("9", &annotations, &json!({})));
    run(&kube).await.unwrap();
    let last = kube
        .calls()
        .into_iter()
        .rfind(|call| call.method == "PATCH")
        .unwrap();
    assert_eq!(last.body["metadata"]["resourceVersion"], "8");
    assert_eq!(last.body["spec"]["taints"], json!([late, draining_taint_json()]));
}

#[tokio::test]
async fn a_claim_that_is_lost_during_the_change_stops_the_step() {
    let kube = ScriptedKube::new()
        .on(
            "GET",
            "/nodes/a",
            200,
            node(
                "7",
                &json!({"recycle-eks/claim": claim("standby", 0)}),
                &json!({}),
            ),
        )
        .refuses(
            "PATCH",
            "/nodes/a",
            409,
            "Conflict",
            "the object has been modified",
        )
        .on(
            "GET",
            "/nodes/a",
            200,
            node(
                "8",
                &json!({"recycle-eks/claim": claim("standby", 1)}),
                &json!({}),
            ),
        );
    assert_eq!(run(&kube).await.unwrap_err().failure(), Failure::ClaimLost);
    assert_eq!(kube.exchanges_left(), 0);
}

#[tokio::test]
async fn without_the_claim_nothing_is_written() {
    let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, node("7", &json!({}), &json!({})));
    assert_eq!(run(&kube).await.unwrap_err().failure(), Failure::ClaimLost);
    assert_eq!(kube.requests(), ["GET /api/v1/nodes/a"]);
}

#[tokio::test]
async fn a_node_without_its_object_is_passed_on_to_the_next_step() {
    let StepRequest { run, .. } = request();
    let gone = kubernetes::Error::NodeGone { node: "a".to_owned() };
    let answer = pass_on(Err(gone.into()), run.clone()).unwrap();
    assert_eq!(
        (answer.verdict, answer.run),
        (TaintVerdict::CheckPods, Some(run.clone()))
    );
    let lost = recycle::records::claim::check_claim(
        None,
        &"arn:aws:states:eu-west-1:123456789012:execution:x:y#0"
            .parse()
            .unwrap(),
        recycle::input::urgency::Urgency::Planned,
        "node a",
    )
    .unwrap_err();
    assert_eq!(
        pass_on(Err(lost.into()), run).unwrap_err().failure(),
        Failure::ClaimLost
    );
}

#[tokio::test]
async fn a_node_that_is_gone_is_lost_and_an_edited_record_is_an_error() {
    let gone = ScriptedKube::new().refuses("GET", "/nodes/a", 404, "NotFound", "nodes \"a\" not found");
    let error = run(&gone).await.unwrap_err();
    assert_eq!(error.failure(), Failure::NodeLost);

    let annotations = json!({"recycle-eks/claim": claim("standby", 0), "recycle-eks/record": "?"});
    let edited = ScriptedKube::new().on("GET", "/nodes/a", 200, node("7", &annotations, &json!({})));
    assert_eq!(run(&edited).await.unwrap_err().failure(), Failure::InternalError);
    assert_eq!(edited.requests(), ["GET /api/v1/nodes/a"]);
}

/// Returns a whole Node as the API server answers it, with another tool's taint, the request taint, and annotations of recycle-eks and
/// another tool.
fn whole_node() -> Value {
    let annotations = json!({
        "recycle-eks/claim": claim("standby", 0),
        "recycle-eks/record": "{\"schema\":1,\"replacement\":\"i-11111111\",\"desired_before\":3}",
        "team": "blue",
    });
    let taints = json!([
        {"key": "team", "value": "blue", "effect": "NoExecute", "timeAdded": "2027-01-01T00:00:00Z"},
        {"key": "recycle-eks/request", "value": "now", "effect": "NoSchedule"},
    ]);
    let spec = json!({"providerID": format!("aws:///eu-west-1a/{INSTANCE}"), "taints": taints, "unschedulable": false});
    node("7", &annotations, &spec)
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn the_node_is_tainted_as_it_was_read_or_not_at_all(
        answer in prop_oneof![6 => spoiled(vec![whole_node()]), 1 => any_json()],
    ) {
        block_on(async move {
            let kube = ScriptedKube::new()
                .on("GET", "/nodes/a", 200, answer.clone())
                .on("PATCH", "/nodes/", 200, whole_node());
            let StepRequest { context, run } = request();
            let tainted = match kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id).await {
                Ok(node) => taint(&kube.client(), node, &context, run).await.map(|_| ()),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = &tainted {
                let _ = error.failure();
            }
            for call in kube.calls().iter().filter(|call| call.method == "PATCH") {
                let (metadata, read) = (&call.body["metadata"], &answer["metadata"]);
                prop_assert!(metadata["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()));
                prop_assert_eq!(&metadata["resourceVersion"], &read["resourceVersion"]);
                let claimed = read["annotations"]["recycle-eks/claim"].as_str().unwrap_or_default();
                prop_assert!(claimed.contains(EXECUTION), "{}", claimed);
                let kept = call.body["spec"]["taints"].as_array().unwrap();
                let others = answer["spec"]["taints"].as_array().into_iter().flatten().filter(|taint| {
                    taint["key"] != "recycle-eks/request" && taint["key"] != "recycle-eks/draining"
                });
                for other in others {
                    prop_assert!(kept.iter().any(|taint| taint["key"] == other["key"]), "{}: {:?}", other, kept);
                }
            }
            Ok(())
        })?;
    }
}
