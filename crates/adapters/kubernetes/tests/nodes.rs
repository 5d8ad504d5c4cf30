//! Requests and answers about Nodes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::LazyLock;

use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::{Fence, InstanceId, NodeName};
use recycle::cluster::node::{NodeFacts, Taint};
use recycle::input::urgency::Urgency;
use recycle::records::claim::{Claim, Phase};
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use kubernetes::{
    Error, NodeChange, Wanted, amend_node, change_node, check_claim, find_node, find_nodes, get_node,
    list_nodes, tainted_since,
};

const INSTANCE: &str = "i-0123456789abcdef0";

fn name() -> NodeName {
    "a".parse().unwrap()
}

fn instance() -> InstanceId {
    INSTANCE.parse().unwrap()
}

fn node(resource_version: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "resourceVersion": resource_version},
        "spec": {"providerID": format!("aws:///eu-west-1a/{INSTANCE}")},
    })
}

fn node_of(name: &str, provider_id: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"providerID": provider_id}})
}

fn page(items: &[Value], next: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1", "continue": next}, "items": items})
}

async fn read(kube: &ScriptedKube) -> NodeFacts {
    get_node(&kube.client(), &name(), &instance())
        .await
        .unwrap()
        .unwrap()
}

fn fence(redrive_count: u32) -> Fence {
    let execution = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one"
        .parse()
        .unwrap();
    Fence {
        execution,
        redrive_count,
    }
}

#[tokio::test]
async fn a_node_is_read_as_the_decisions_see_it() {
    let answer = json!({
        "metadata": {
            "name": "a",
            "resourceVersion": "7",
            "labels": {"zone": "eu-west-1a"},
            "annotations": {"note": "hello", "recycle-eks/outdated": "a"},
            "managedFields": [
                {"manager": "kubelet", "fieldsV1": {"f:spec": {"f:providerID": {}}}},
                {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
            ],
        },
        "spec": {
            "providerID": format!("aws:///eu-west-1a/{INSTANCE}"),
            "unschedulable": true,
            "taints": [
                {"key": "team", "value": "blue", "effect": "NoSchedule"},
                {"key": "late", "effect": "NoExecute", "timeAdded": "2027-01-01T00:00:00Z"},
            ],
        },
        "status": {
            "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "4", "nvidia.com/gpu": "1", "aws.amazon.com/efa": "0"},
            "volumesInUse": ["csi^vol-1"],
            "volumesAttached": [{"name": "csi^vol-1", "devicePath": ""}, {"name": "csi^vol-2", "devicePath": ""}],
        },
    });
    let facts = read(&ScriptedKube::new().on("GET", "/api/v1/nodes/a", 200, answer)).await;
    let taint = |key: &str, value: Option<&str>, effect: &str, time: Option<&str>| Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: effect.to_owned(),
        time_added: time.map(|time| time.parse().unwrap()),
    };
    let expected = NodeFacts {
        name: name(),
        resource_version: "7".to_owned(),
        instance: Some(instance()),
        ready: true,
        not_ready_since: None,
        unschedulable: true,
        cordoned_by: Some("kubectl-cordon".to_owned()),
        taints: vec![
            taint("team", Some("blue"), "NoSchedule", None),
            taint("late", None, "NoExecute", Some("2027-01-01T00:00:00Z")),
        ],
        labels: [("zone".to_owned(), "eu-west-1a".to_owned())].into(),
        annotations: [("recycle-eks/outdated".to_owned(), "a".to_owned())].into(),
        extended_resources: vec!["nvidia.com/gpu".to_owned()],
        volumes: vec!["csi^vol-1".to_owned(), "csi^vol-2".to_owned()],
        kubelet: String::new(),
        lease: None,
    };
    assert_eq!(facts, expected);
}

#[tokio::test]
async fn a_node_with_only_a_name_is_not_ready_and_has_no_instance() {
    let facts = read(&ScriptedKube::new().on(
        "GET",
        "/api/v1/nodes/a",
        200,
        json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {}}),
    ))
    .await;
    assert!(!facts.ready && !facts.unschedulable);
    assert_eq!(facts.instance, None);
}

#[tokio::test]
async fn an_incomplete_answer_is_an_error() {
    let whole = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {}, "status": {}});
    let without = |place: &str, value: Value| {
        let mut answer = whole.clone();
        *answer.pointer_mut(place).unwrap() = value;
        answer
    };
    let gone = |object: &str, field: &str| {
        let mut answer = whole.clone();
        let object = answer.pointer_mut(object).unwrap();
        object.as_object_mut().unwrap().remove(field);
        answer
    };
    for (answer, expected) in [
        (
            gone("/metadata", "resourceVersion"),
            "cannot read Node a: metadata.resourceVersion is missing",
        ),
        (
            without("/metadata/resourceVersion", json!("")),
            "cannot read Node a: metadata.resourceVersion is missing",
        ),
        (gone("/metadata", "name"), "metadata.name is missing"),
        (
            without("/metadata/name", json!("A b")),
            "metadata.name must be a Node name",
        ),
        (gone("", "spec"), "missing field `spec`"),
        (
            without("/spec", Value::Null),
            "invalid type: null, expected struct Spec",
        ),
        (
            without("/spec", json!([])),
            "invalid type: sequence, expected struct Spec",
        ),
        (
            without("/spec", json!({"taints": [[]]})),
            "spec.taints.0: invalid type: sequence, expected struct Taint",
        ),
        (
            without("/spec", json!({"taints": [{"key": "a"}]})),
            "spec.taints.0: missing field `effect`",
        ),
        (
            without("/status", json!([])),
            "invalid type: sequence, expected struct Status",
        ),
    ] {
        let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, answer.clone()).on(
            "GET",
            "/nodes?",
            200,
            page(&[node("7"), answer.clone()], ""),
        );
        let error = get_node(&kube.client(), &name(), &instance()).await.unwrap_err();
        let text = with_causes(&error);
        assert!(text.contains(expected), "{answer}: {text}");
        assert_eq!(error.failure(), Failure::InternalError);
        let nodes = list_nodes(&kube.client()).await.unwrap();
        assert_eq!(nodes.readable.len(), 1);
        let text = nodes.unreadable[0].to_string();
        assert!(text.contains(expected), "{answer}: {text}");
    }
}

#[tokio::test]
async fn a_missing_node_is_no_error() {
    let kube =
        ScriptedKube::new().refuses("GET", "/api/v1/nodes/a", 404, "NotFound", "nodes \"a\" not found");
    assert_eq!(
        get_node(&kube.client(), &name(), &instance()).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn each_failure_of_the_api_server_has_a_name_and_a_cause() {
    let cases = [
        (
            401,
            "Unauthorized",
            Failure::ServiceUnavailable,
            "does not accept the token of this function",
        ),
        (
            403,
            "Forbidden",
            Failure::ServiceRefused,
            "does not allow get on nodes",
        ),
        (
            429,
            "TooManyRequests",
            Failure::ServiceUnavailable,
            "not available",
        ),
        (500, "InternalError", Failure::ServiceUnavailable, "not available"),
        (503, "", Failure::ServiceUnavailable, "not available"),
        (410, "Expired", Failure::ServiceUnavailable, "changed faster"),
        (422, "Invalid", Failure::InternalError, "not understood"),
    ];
    for (status, reason, failure, text) in cases {
        let kube = ScriptedKube::new().refuses("GET", "/nodes/a", status, reason, "what it says");
        let error = get_node(&kube.client(), &name(), &instance()).await.unwrap_err();
        assert_eq!(error.failure(), failure, "{status}");
        let full = with_causes(&error);
        assert!(
            full.starts_with("failed to get nodes a: ") && full.contains(text),
            "{status}: {full}"
        );
        assert!(full.contains("what it says"), "{status}: {full}");
        assert_eq!(kube.calls().len(), 1, "{status}: nothing is repeated here");
    }
}

#[tokio::test]
async fn a_broken_connection_is_an_api_server_that_cannot_be_reached() {
    let kube = ScriptedKube::new().breaks_on("GET", "/nodes/a");
    let error = get_node(&kube.client(), &name(), &instance()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
    assert!(
        with_causes(&error).contains("connection reset"),
        "{}",
        with_causes(&error)
    );
}

#[tokio::test]
async fn the_long_answer_of_a_proxy_is_cut() {
    let kube = ScriptedKube::new().refuses("GET", "/nodes/a", 502, "", &"x".repeat(100_000));
    let error = get_node(&kube.client(), &name(), &instance()).await.unwrap_err();
    assert!(with_causes(&error).len() < 1_000);
}

#[tokio::test]
async fn a_change_is_one_merge_patch_against_the_version_that_was_read() {
    let kube =
        ScriptedKube::new()
            .on("GET", "/nodes/a", 200, node("7"))
            .on("PATCH", "/nodes/a", 200, node("8"));
    let facts = read(&kube).await;
    let change = NodeChange::new()
        .annotate("note", "hello")
        .remove_annotation("old")
        .label("blue", "yes")
        .remove_label("green")
        .taints(facts.taints.clone())
        .unschedulable(true);
    let changed = change_node(&kube.client(), &facts, change).await.unwrap();
    assert_eq!(changed.resource_version, "8");
    let call = kube.calls().pop().unwrap();
    assert_eq!(call.content_type, "application/merge-patch+json");
    assert_eq!(call.path, "/api/v1/nodes/a?&fieldManager=recycle-eks");
    let patch = json!({
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"note": "hello", "old": null},
            "labels": {"blue": "yes", "green": null},
        },
        "spec": {"taints": [], "unschedulable": true},
    });
    assert_eq!(call.body, patch);
}

#[tokio::test]
async fn unchanged_fields_are_not_in_the_patch() {
    let kube =
        ScriptedKube::new()
            .on("GET", "/nodes/a", 200, node("7"))
            .on("PATCH", "/nodes/a", 200, node("8"));
    let facts = read(&kube).await;
    change_node(&kube.client(), &facts, NodeChange::new().label("a", "b"))
        .await
        .unwrap();
    let patch = json!({"metadata": {"resourceVersion": "7", "labels": {"a": "b"}}});
    assert_eq!(kube.calls().pop().unwrap().body, patch);
}

#[tokio::test]
async fn a_change_against_an_old_version_is_a_conflict() {
    let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, node("7")).refuses(
        "PATCH",
        "/nodes/a",
        409,
        "Conflict",
        "the object has been modified",
    );
    let facts = read(&kube).await;
    let error = change_node(&kube.client(), &facts, NodeChange::new().label("a", "b"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
}

#[tokio::test]
async fn a_node_that_vanishes_before_it_is_changed_is_lost() {
    let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, node("7")).refuses(
        "PATCH",
        "/nodes/a",
        404,
        "NotFound",
        "nodes \"a\" not found",
    );
    let facts = read(&kube).await;
    let error = change_node(&kube.client(), &facts, NodeChange::new().label("a", "b"))
        .await
        .unwrap_err();
    assert_eq!(error.failure(), Failure::NodeLost);
    assert_eq!(error.to_string(), "failed to find the Node object a: it is gone");
}

fn relabel(node: &NodeFacts) -> Result<Option<NodeChange>, Error> {
    Ok(Some(
        NodeChange::new().label("seen", node.resource_version.clone()),
    ))
}

#[tokio::test]
async fn an_amendment_reads_again_after_a_conflict() {
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node("7"))
        .refuses(
            "PATCH",
            "/nodes/a",
            409,
            "Conflict",
            "the object has been modified",
        )
        .on("GET", "/nodes/a", 200, node("8"))
        .on("PATCH", "/nodes/a", 200, node("9"));
    let facts = read(&kube).await;
    let amended = amend_node(&kube.client(), facts, relabel).await.unwrap();
    assert_eq!(amended.resource_version, "9");
    assert_eq!(
        kube.calls().pop().unwrap().body["metadata"]["labels"]["seen"],
        "8"
    );
}

#[tokio::test]
async fn an_amendment_gives_up_after_three_conflicts() {
    let mut kube = ScriptedKube::new();
    for version in ["7", "8", "9"] {
        kube = kube
            .on("GET", "/nodes/a", 200, node(version))
            .refuses("PATCH", "/nodes/a", 409, "Conflict", "modified");
    }
    let facts = read(&kube).await;
    let error = amend_node(&kube.client(), facts, relabel).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    assert_eq!(kube.exchanges_left(), 0);
}

#[tokio::test]
async fn an_amendment_without_a_change_writes_nothing() {
    let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, node("7"));
    let facts = read(&kube).await;
    let same = amend_node(&kube.client(), facts.clone(), |_| Ok::<_, Error>(None))
        .await
        .unwrap();
    assert_eq!(same, facts);
    assert_eq!(kube.requests(), ["GET /api/v1/nodes/a"]);
}

#[tokio::test]
async fn a_node_is_found_by_its_hint_only_if_the_provider_id_agrees() {
    let mine = format!("aws:///eu-west-1a/{INSTANCE}");
    let kube = ScriptedKube::new()
        .on(
            "GET",
            "/nodes/ip-10-0-0-1.internal",
            200,
            node_of("ip-10-0-0-1.internal", "aws:///eu-west-1a/i-00000000"),
        )
        .on("GET", "/nodes/i-0123456789abcdef0", 200, node_of(INSTANCE, &mine));
    let found = find_node(&kube.client(), &instance(), Some("ip-10-0-0-1.internal"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.name.as_str(), INSTANCE);
}

#[tokio::test]
async fn a_node_with_any_name_is_found_in_the_pages_of_one_list() {
    let mine = format!("aws:///eu-west-1a/{INSTANCE}");
    let kube = ScriptedKube::new()
        .refuses("GET", "/nodes/i-0123456789abcdef0", 404, "NotFound", "not found")
        .on(
            "GET",
            "/nodes?",
            200,
            page(&[node_of("b", "aws:///eu-west-1a/i-00000000")], "more"),
        )
        .on(
            "GET",
            "continue=more",
            200,
            page(&[node_of("worker-7", &mine)], ""),
        );
    let found = find_node(&kube.client(), &instance(), Some("Not a Node's name"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.name.as_str(), "worker-7");
    let paths: Vec<String> = kube.calls().into_iter().map(|call| call.path).collect();
    assert_eq!(
        paths,
        [
            format!("/api/v1/nodes/{INSTANCE}"),
            "/api/v1/nodes?&limit=500".to_owned(),
            "/api/v1/nodes?&limit=500&continue=more".to_owned(),
        ]
    );
}

#[tokio::test]
async fn a_node_is_guessed_without_reading_the_cluster() {
    let mine = format!("aws:///eu-west-1a/{INSTANCE}");
    let kube = ScriptedKube::new()
        .refuses("GET", "/nodes/i-0123456789abcdef0", 404, "NotFound", "not found")
        .on("GET", "/nodes/ip-10-0-0-1", 200, node_of("ip-10-0-0-1", &mine));
    let guessed = find_nodes(&kube.client(), &[wanted(Some("ip-10-0-0-1"), false)])
        .await
        .unwrap();
    assert_eq!(guessed[0].as_ref().unwrap().name.as_str(), "ip-10-0-0-1");
    let guessed = find_nodes(&kube.client(), &[wanted(None, false)]).await.unwrap();
    assert_eq!(guessed, [None]);
}

fn wanted(hint: Option<&str>, in_list: bool) -> Wanted<'_> {
    static INSTANCE_ID: LazyLock<InstanceId> = LazyLock::new(instance);
    Wanted {
        instance: &INSTANCE_ID,
        hint,
        in_list,
    }
}

#[tokio::test]
async fn all_nodes_are_listed_once_for_all_that_are_missing() {
    let mine = format!("aws:///eu-west-1a/{INSTANCE}");
    let not_found =
        |kube: ScriptedKube| kube.refuses("GET", "/nodes/i-0123456789abcdef0", 404, "NotFound", "not found");
    let kube = (0..3).fold(ScriptedKube::new(), |kube, _| not_found(kube));
    let kube = kube.on("GET", "/nodes?", 200, page(&[node_of("other", &mine)], ""));
    let wanted = [wanted(None, true), wanted(None, false), wanted(None, true)];
    let found = find_nodes(&kube.client(), &wanted).await.unwrap();
    let names = found
        .iter()
        .map(|node| node.as_ref().map(|node| node.name.as_str()));
    assert_eq!(names.collect::<Vec<_>>(), [Some("other"), None, Some("other")]);
    let lists = kube
        .calls()
        .into_iter()
        .filter(|call| call.path.contains("/nodes?"));
    assert_eq!(lists.count(), 1);
}

#[tokio::test]
async fn a_missing_node_that_the_list_has_unreadable_is_an_error() {
    let mine = format!("aws:///eu-west-1a/{INSTANCE}");
    let unreadable = json!({"metadata": {"name": "other"}, "spec": {"providerID": mine}});
    let kube = ScriptedKube::new()
        .refuses("GET", "/nodes/i-0123456789abcdef0", 404, "NotFound", "not found")
        .on("GET", "/nodes?", 200, page(&[unreadable], ""));
    let error = find_nodes(&kube.client(), &[wanted(None, true)])
        .await
        .unwrap_err();
    assert!(
        with_causes(&error).contains("metadata.resourceVersion"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_node_without_a_provider_id_of_aws_is_not_found() {
    let nodes = [
        node_of("b", "gce://project/zone/i-0123456789abcdef0"),
        node_of("c", ""),
        json!({"metadata": {"name": "d", "resourceVersion": "1"}, "spec": {}}),
    ];
    let kube = ScriptedKube::new()
        .refuses("GET", "/nodes/i-0123456789abcdef0", 404, "NotFound", "not found")
        .on("GET", "/nodes?", 200, page(&nodes, ""));
    assert_eq!(find_node(&kube.client(), &instance(), None).await.unwrap(), None);
}

#[tokio::test]
async fn an_expired_list_is_started_again_once() {
    let mine = format!("aws:///eu-west-1a/{INSTANCE}");
    let kube = ScriptedKube::new()
        .refuses("GET", "/nodes/i-0123456789abcdef0", 404, "NotFound", "not found")
        .on("GET", "/nodes?", 200, page(&[node_of("b", "")], "old"))
        .refuses(
            "GET",
            "continue=old",
            410,
            "Expired",
            "The provided continue parameter is too old",
        )
        .on("GET", "/nodes?", 200, page(&[node_of("a", &mine)], ""));
    let found = find_node(&kube.client(), &instance(), None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.name, name());

    let kube = ScriptedKube::new()
        .refuses("GET", "/nodes/i-0123456789abcdef0", 404, "NotFound", "not found")
        .refuses("GET", "/nodes?", 410, "Expired", "too old")
        .refuses("GET", "/nodes?", 410, "Expired", "too old");
    let error = find_node(&kube.client(), &instance(), None).await.unwrap_err();
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
}

async fn with_annotations(annotations: Value) -> NodeFacts {
    let taint = json!({"key": "recycle-eks/draining", "value": INSTANCE, "effect": "NoSchedule"});
    let answer = json!({"metadata": {"name": "a", "resourceVersion": "1", "annotations": annotations},
        "spec": {"providerID": format!("aws:///eu-west-1a/{INSTANCE}"), "taints": [taint]}});
    read(&ScriptedKube::new().on("GET", "/nodes/a", 200, answer)).await
}

#[tokio::test]
async fn only_the_holder_of_the_claim_may_act() {
    let mut claim = Claim::new(
        fence(0),
        "workers".parse().unwrap(),
        Urgency::Planned,
        "2027-01-01T00:00:00Z".parse().unwrap(),
    );
    claim.phase = Phase::Standby;
    let text = serde_json::to_string(&claim).unwrap();
    let claimed = with_annotations(json!({"recycle-eks/claim": text})).await;
    assert_eq!(check_claim(&claimed, &fence(0), Urgency::Planned).unwrap(), claim);

    let cases = [
        (
            json!({"recycle-eks/claim": text}),
            "execution:recycle-node:one#0 holds the claim",
        ),
        (
            json!({}),
            "there is no claim; the next sweep restores the node, or reports what an operator has to do",
        ),
    ];
    for (annotations, holder) in cases {
        let node = with_annotations(annotations).await;
        let lost = check_claim(&node, &fence(1), Urgency::Planned).unwrap_err();
        assert_eq!(lost.failure(), Failure::ClaimLost);
        assert!(
            lost.to_string()
                .starts_with("this execution no longer holds the claim on node a: "),
            "{lost}"
        );
        assert!(lost.to_string().ends_with(holder), "{lost}");
    }
}

#[tokio::test]
async fn pods_tolerate_the_taint_from_the_first_check_while_it_is_set() {
    let at = |hour: u8| Some(format!("2027-01-01T{hour:02}:00:00Z").parse().unwrap());
    let record = "{\"schema\": 1, \"tainted_at\": \"2027-01-01T05:00:00Z\"}";
    let tainted = with_annotations(json!({"recycle-eks/record": record})).await;
    for (draining_since, expected) in [(None, at(5)), (at(4), at(5)), (at(6), at(6))] {
        assert_eq!(tainted_since(&tainted, draining_since).unwrap(), expected);
    }
    let unrecorded = with_annotations(json!({})).await;
    assert_eq!(tainted_since(&unrecorded, at(6)).unwrap(), None);
    let untainted = NodeFacts {
        taints: Vec::new(),
        ..tainted
    };
    assert_eq!(tainted_since(&untainted, at(6)).unwrap(), None);
    let edited = with_annotations(json!({"recycle-eks/record": "?"})).await;
    assert!(tainted_since(&edited, None).is_err());
}

#[tokio::test]
async fn a_node_that_names_another_instance_is_not_the_node_of_this_one() {
    let other = node_of("a", "aws:///eu-west-1a/i-0fedcba9876543210");
    let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, other);
    let found = get_node(&kube.client(), &name(), &instance()).await.unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn of_two_nodes_that_name_one_instance_neither_counts_as_its_node() {
    let id = "aws:///eu-west-1a/i-0fedcba9876543210";
    let nodes = [
        node_of("a", id),
        node_of("b", id),
        node_of("c", "aws:///eu-west-1a/i-0123456789abcdef0"),
    ];
    let kube = ScriptedKube::new().on("GET", "/nodes?", 200, page(&nodes, ""));
    let found = list_nodes(&kube.client()).await.unwrap();
    let names = |nodes: Vec<String>| nodes.join(" ");
    assert_eq!(
        names(found.readable.iter().map(|node| node.name.to_string()).collect()),
        "c"
    );
    assert_eq!(
        names(found.unreadable.iter().map(|node| node.name.clone()).collect()),
        "a b"
    );
}
