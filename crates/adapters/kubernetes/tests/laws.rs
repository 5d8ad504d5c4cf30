//! Property tests: an answer of the API server is read as it is, or is an error.
//! Missing values are never invented, and nothing is written on a guess.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use bad_input::{any_json, few_cases, spoiled};
use kubernetes::{
    NodeChange, amend_node, check_claim, evict_pod, find_node, get_node, hold_back, list_pods, read_progress,
    tainted_since,
};
use proptest::prelude::*;
use recycle::base::failure::{NamedFailure as _, with_causes};
use recycle::base::ids::Fence;
use recycle::drain::lost::find_loss;
use recycle::drain::survey::PodSurvey;
use recycle::input::urgency::Urgency;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

const INSTANCE: &str = "i-0123456789abcdef0";
const ARN: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one";

fn whole_node() -> Value {
    let claim = json!({"schema": 1, "fence": format!("{ARN}#0"), "group": "workers", "phase": "draining", "urgency": "planned",
        "claimed_at": "2027-01-01T00:00:00Z"});
    let record = json!({"schema": 1, "tainted_at": "2027-01-01T00:00:00Z", "desired_before": 3});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "a", "uid": "uid-1", "resourceVersion": "7", "labels": {"zone": "a"},
            "annotations": {"recycle-eks/claim": claim.to_string(), "recycle-eks/record": record.to_string()},
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}],
        },
        "spec": {
            "providerID": format!("aws:///eu-west-1a/{INSTANCE}"),
            "unschedulable": true,
            "taints": [{"key": "team", "value": "blue", "effect": "NoExecute", "timeAdded": "2027-01-01T00:00:00Z"}],
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2027-01-01T00:00:00Z"}],
            "allocatable": {"cpu": "8", "nvidia.com/gpu": "1"},
            "volumesAttached": [{"name": "v", "devicePath": ""}],
            "volumesInUse": ["v"],
            "nodeInfo": {"kubeletVersion": "v1.33.4-eks-1a2b3c4"},
        },
    })
}

fn whole_pod() -> Value {
    json!({
        "metadata": {
            "name": "train", "namespace": "jobs", "uid": "uid-2", "labels": {"app": "train"}, "annotations": {"a": "b"},
            "creationTimestamp": "2027-01-01T00:00:00Z", "deletionTimestamp": "2027-01-01T01:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-3", "controller": true}],
        },
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "emptyDir": {}}],
        },
        "status": {"phase": "Running", "ephemeralContainerStatuses": [{"name": "x", "state": {"running": {}}}]},
    })
}

fn list(items: &Value) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [items]})
}

fn run(work: impl Future<Output = Result<(), TestCaseError>>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(work)
}

fn or_anything(good: Value) -> impl Strategy<Value = Value> {
    prop_oneof![6 => spoiled(vec![good]), 1 => any_json()]
}

fn check_error(error: &kubernetes::Error) -> Result<(), TestCaseError> {
    let text = with_causes(error);
    prop_assert!(
        text.starts_with("failed to ") && text.chars().count() < 1_300,
        "{}",
        text
    );
    let _ = error.failure();
    Ok(())
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn a_node_is_changed_as_it_was_read_or_not_at_all(answer in or_anything(whole_node())) {
        run(async move {
        let kube = ScriptedKube::new()
            .on("GET", "/nodes/a", 200, answer.clone())
            .on("PATCH", "/nodes/", 200, whole_node());
        let client = kube.client();
        let found = match get_node(&client, &"a".parse().unwrap(), &"i-0123456789abcdef0".parse().unwrap()).await {
            Ok(found) => found.unwrap(),
            Err(error) => return check_error(&error),
        };
        let me = Fence { execution: ARN.parse().unwrap(), redrive_count: 0 };
        let _ = check_claim(&found, &me, Urgency::Planned);
        let _ = (tainted_since(&found, None), read_progress(&found));
        let _ = find_loss(Some(&found), 1_800, "9999-12-30T22:00:00Z".parse().unwrap());
        let change = |node: &recycle::cluster::node::NodeFacts| {
            Ok::<_, kubernetes::Error>(Some(NodeChange::new().taints(node.taints.clone()).annotate("a", "b")))
        };
        amend_node(&client, found, change).await.unwrap();
        let calls = kube.calls();
        let written = &calls.last().unwrap().body;
        prop_assert_eq!(&written["metadata"]["resourceVersion"], &answer["metadata"]["resourceVersion"]);
        let answered = answer["spec"]["taints"].as_array().map_or(0, Vec::len);
        prop_assert_eq!(written["spec"]["taints"].as_array().map_or(0, Vec::len), answered);
            Ok(())
        })?;
    }

    #[test]
    fn a_node_is_found_or_missing_only_if_the_answer_shows_it(answer in or_anything(list(&whole_node()))) {
        run(async move {
        let kube = ScriptedKube::new()
            .refuses("GET", "/nodes/", 404, "NotFound", "no")
            .on("GET", "/nodes?", 200, answer.clone());
        match find_node(&kube.client(), &INSTANCE.parse().unwrap(), None).await {
            Ok(Some(found)) => prop_assert!(!found.resource_version.is_empty()),
            Ok(None) => {
                // No object of the list is the Node of the instance.
                let says_so = |node: &Value| {
                    let provider = node["spec"]["providerID"].as_str().unwrap_or_default();
                    !provider.ends_with(&format!("/{INSTANCE}")) || !provider.starts_with("aws://")
                };
                let items = answer["items"].as_array();
                prop_assert!(answer.get("items").is_some_and(Value::is_null) || items.unwrap().iter().all(says_so), "{}", answer);
            }
            Err(error) => check_error(&error)?,
        }
            Ok(())
        })?;
    }

    #[test]
    fn all_answered_pods_are_listed_and_unreadable_ones_are_not_evicted(answer in or_anything(list(&whole_pod()))) {
        run(async move {
        let kube = ScriptedKube::new()
            .on("GET", "/pods?", 200, answer.clone())
            .on("POST", "/eviction", 201, json!({"kind": "Status", "status": "Success"}));
        let client = kube.client();
        match list_pods(&client, &"a".parse().unwrap()).await {
            Ok(pods) => {
                prop_assert_eq!(pods.len(), answer["items"].as_array().map_or(0, Vec::len));
                for pod in pods.into_iter().filter(|pod| pod.unreadable.is_none()) {
                    if evict_pod(&client, &pod, None).await.is_ok() {
                        let calls = kube.calls();
                        let asked = &calls.last().unwrap().body["deleteOptions"]["preconditions"]["uid"];
                        prop_assert!(asked.as_str().is_some_and(|uid| !uid.is_empty()), "{}", asked);
                        break;
                    }
                }
            }
            Err(error) => check_error(&error)?,
        }
            Ok(())
        })?;
    }

    #[test]
    fn the_pod_of_an_unreadable_volume_stays(
        claim in or_anything(json!({"metadata": {"name": "data", "namespace": "jobs"}, "spec": {"volumeName": "pv-1"}})),
        volume in or_anything(json!({"metadata": {"name": "pv-1"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-west-1a"]}]}]}}}})),
    ) {
        run(async move {
        let kube = ScriptedKube::new()
            .on("GET", "/nodes/a", 200, whole_node())
            .on("GET", "/pods?", 200, list(&whole_pod()))
            .on("GET", "/persistentvolumeclaims/data", 200, claim)
            .on("GET", "/persistentvolumes/", 200, volume)
            .on("GET", "/nodes?", 200, list(&whole_node()));
        let client = kube.client();
        let node = get_node(&client, &"a".parse().unwrap(), &"i-0123456789abcdef0".parse().unwrap()).await.unwrap().unwrap();
        let pods = list_pods(&client, &node.name).await.unwrap();
        let survey = PodSurvey { evictable: pods, ..PodSurvey::default() };
        if let Err(error) = hold_back(&client, &node, survey).await {
            check_error(&error)?;
        }
            Ok(())
        })?;
    }

    #[test]
    fn a_refusal_to_evict_is_an_answer_or_an_error(
        status in select_status(),
        body in or_anything(json!({"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": "Cannot evict pod", "details": {"retryAfterSeconds": 10, "causes": [{"reason": "DisruptionBudget",
                "message": "The disruption budget web needs 1 healthy pods"}]}})),
    ) {
        run(async move {
        let kube = ScriptedKube::new()
            .on("GET", "/pods?", 200, list(&whole_pod()))
            .on("POST", "/eviction", status, body);
        let client = kube.client();
        let pods = list_pods(&client, &"a".parse().unwrap()).await.unwrap();
        if let Err(error) = evict_pod(&client, &pods[0], None).await {
            check_error(&error)?;
        }
            Ok(())
        })?;
    }
}

fn select_status() -> impl Strategy<Value = u16> {
    proptest::sample::select(vec![429, 500, 404, 409, 403])
}
