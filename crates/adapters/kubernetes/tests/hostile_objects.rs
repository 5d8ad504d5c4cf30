//! Hostile objects of a tenant or a kubelet. The API server stores them, and none of them makes other objects unreadable.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use kubernetes::{
    Error, find_node, get_node, hold_back, is_another_ready, list_nodes, list_pending_pods, list_pods,
};
use recycle::base::failure::with_causes;
use recycle::cluster::node::NodeFacts;
use recycle::cluster::pod::PodFacts;
use recycle::drain::lost::find_loss;
use recycle::drain::survey::PodSurvey;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

/// The last second of RFC 3339. The latest time that can be represented is a day earlier.
const END_OF_TIME: &str = "9999-12-31T23:59:59Z";
const INSTANCE: &str = "i-0123456789abcdef0";

fn page(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}"), "creationTimestamp": "2027-01-01T00:00:00Z"},
        "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        "status": {"phase": "Running", "startTime": "2027-01-01T00:00:00Z"},
    })
}

fn node(name: &str, instance: &str) -> Value {
    json!({
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"providerID": format!("aws:///eu-west-1a/{instance}"), "unschedulable": true},
        "status": {"conditions": [
            {"type": "DiskPressure", "status": "False", "lastTransitionTime": "2027-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-01T00:00:00Z"},
        ]},
    })
}

/// Returns the object with this value at this place.
fn with(mut object: Value, place: &str, value: Value) -> Value {
    let (parent, field) = place.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

/// Returns the object with a `managedFields` entry whose time no type can represent.
fn forged(object: Value) -> Value {
    let entry = json!({"manager": "x", "operation": "Update", "time": END_OF_TIME, "fieldsType": "FieldsV1", "fieldsV1": {}});
    with(object, "/metadata/managedFields", json!([entry]))
}

/// Builds a Node with a taint that cannot be read. The Node's own kubelet may register it like this.
fn unreadable_node(name: &str, instance: &str) -> Value {
    let taint = json!({"key": "x", "effect": "NoExecute", "timeAdded": END_OF_TIME});
    with(node(name, instance), "/spec/taints", json!([taint]))
}

async fn pods_of(items: &[Value]) -> Vec<PodFacts> {
    let kube = ScriptedKube::new().on("GET", "/pods?", 200, page(items));
    list_pods(&kube.client(), &"a".parse().unwrap()).await.unwrap()
}

async fn read(answer: Value) -> NodeFacts {
    let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, answer);
    get_node(
        &kube.client(),
        &"a".parse().unwrap(),
        &"i-0123456789abcdef0".parse().unwrap(),
    )
    .await
    .unwrap()
    .unwrap()
}

#[tokio::test]
async fn managed_fields_make_no_pod_unreadable() {
    let plain = pods_of(&[pod("a"), pod("b")]).await;
    assert_eq!(pods_of(&[pod("a"), forged(pod("b"))]).await, plain);
    let kube = ScriptedKube::new().on("GET", "/pods?", 200, page(&[pod("a"), forged(pod("b"))]));
    assert_eq!(list_pending_pods(&kube.client()).await.unwrap(), plain);
}

#[tokio::test]
async fn managed_fields_make_no_volume_unreadable() {
    let claim = json!({"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv-1"}});
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
    let volume = json!({
        "metadata": {"name": "pv-1"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    });
    let free = with(node("b", "i-00000000"), "/spec/unschedulable", json!(false));
    let kube = ScriptedKube::new()
        .on("GET", "/persistentvolumeclaims/data", 200, forged(claim))
        .on("GET", "/persistentvolumes/pv-1", 200, forged(volume))
        .on(
            "GET",
            "/nodes?",
            200,
            page(&[unreadable_node("c", "i-11111111"), forged(free)]),
        );
    let survey = PodSurvey {
        evictable: pods_of(&[pod("db")]).await,
        ..PodSurvey::default()
    };
    let survey = hold_back(&kube.client(), &read(node("a", INSTANCE)).await, survey)
        .await
        .unwrap();
    assert_eq!((survey.evictable.len(), survey.zone_mismatch.len()), (1, 0));
}

#[tokio::test]
async fn managed_fields_and_conditions_make_no_node_unreadable() {
    let plain = read(node("a", INSTANCE)).await;
    for answer in [
        forged(node("a", INSTANCE)),
        with(
            node("a", INSTANCE),
            "/status/conditions/0/lastTransitionTime",
            json!(END_OF_TIME),
        ),
        with(
            node("a", INSTANCE),
            "/status/conditions/1/lastTransitionTime",
            json!(END_OF_TIME),
        ),
    ] {
        assert_eq!(read(answer.clone()).await, plain);
        let kube = ScriptedKube::new().on("GET", "/nodes?", 200, page(&[answer]));
        let found = list_nodes(&kube.client()).await;
        assert_eq!(found.unwrap().readable, std::slice::from_ref(&plain));
    }
}

/// The API server stores entries that are nested deeper than a JSON parser reads by default.
#[tokio::test]
async fn deeply_nested_managed_fields_make_no_object_unreadable() {
    let nested = (0..300).fold(json!({}), |inner, _| json!({ "f:a": inner }));
    let entry = json!({"manager": "x", "time": "2027-01-01T00:00:00Z", "fieldsV1": nested});
    let deep = |object| with(object, "/metadata/managedFields", json!([entry]));
    assert_eq!(pods_of(&[deep(pod("a"))]).await, pods_of(&[pod("a")]).await);
    let plain = read(node("a", INSTANCE)).await;
    assert_eq!(read(deep(node("a", INSTANCE))).await, plain);
    let kube = ScriptedKube::new().on("GET", "/nodes?", 200, page(&[deep(node("a", INSTANCE))]));
    assert_eq!(list_nodes(&kube.client()).await.unwrap().readable, [plain]);
}

#[tokio::test]
async fn a_node_that_is_not_ready_since_an_impossible_time_is_not_lost() {
    let silent = with(
        node("a", INSTANCE),
        "/status/conditions/1/status",
        json!("Unknown"),
    );
    let forged = with(
        silent.clone(),
        "/status/conditions/1/lastTransitionTime",
        json!(END_OF_TIME),
    );
    let now = "2027-06-01T00:00:00Z".parse().unwrap();
    for (answer, is_lost) in [(silent, true), (forged, false)] {
        let node = read(answer).await;
        assert!(!node.ready);
        assert_eq!(find_loss(Some(&node), 1_800, now).is_some(), is_lost);
    }
}

#[tokio::test]
async fn a_cordon_with_a_forged_writer_is_another_clients() {
    let entry = |manager: Value, time: &str| json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}});
    let honest = "2027-01-01T00:00:00Z";
    for (entries, is_own) in [
        (vec![], true),
        (vec![entry(json!("recycle-eks"), honest)], true),
        (vec![entry(json!("kubectl-cordon"), honest)], false),
        (vec![entry(json!("recycle-eks"), END_OF_TIME)], false),
        (
            vec![
                entry(json!("recycle-eks"), honest),
                entry(json!("recycle-eks"), END_OF_TIME),
            ],
            false,
        ),
        (vec![entry(Value::Null, honest)], false),
    ] {
        let answer = with(node("a", INSTANCE), "/metadata/managedFields", json!(entries));
        assert_eq!(
            read(answer).await.is_cordoned_by_recycle_eks(),
            is_own,
            "{entries:?}"
        );
    }
}

#[tokio::test]
async fn an_unreadable_pod_does_not_affect_the_others() {
    let no_time = "failed to convert civil datetime";
    for (place, value, named, text) in [
        ("/status/startTime", json!(END_OF_TIME), "shop/b", no_time),
        (
            "/metadata/deletionTimestamp",
            json!(END_OF_TIME),
            "shop/b",
            no_time,
        ),
        ("/status/phase", json!(7), "shop/b", "invalid type: integer `7`"),
        ("/metadata/uid", Value::Null, "shop/b", "is missing"),
        ("/metadata/name", json!(7), "shop/", "invalid type: integer `7`"),
    ] {
        let pods = pods_of(&[pod("a"), with(pod("b"), place, value), pod("c")]).await;
        let names: Vec<String> = pods.iter().map(PodFacts::full_name).collect();
        assert_eq!(names, ["shop/a", named, "shop/c"], "{place}");
        let unreadable: Vec<&str> = pods.iter().filter_map(|pod| pod.unreadable.as_deref()).collect();
        assert_eq!(unreadable.len(), 1, "{place}");
        let field = place.replacen('/', "", 1).replace('/', ".");
        assert!(
            unreadable[0].starts_with(&field) && unreadable[0].contains(text),
            "{place}: {unreadable:?}"
        );
    }
}

#[tokio::test]
async fn a_node_that_cannot_be_read_is_left_out_of_lists() {
    let items = [unreadable_node("b", "i-00000000"), node("a", INSTANCE)];
    let kube = || ScriptedKube::new().on("GET", "/nodes?", 200, page(&items));
    let found = list_nodes(&kube().client()).await.unwrap();
    assert_eq!(found.readable.len(), 1);
    let text = found.describe_unreadable().unwrap();
    assert!(
        text.starts_with("cannot read 1 Node: b (spec.taints.0.timeAdded: "),
        "{text}"
    );
    assert!(
        is_another_ready(&kube().client(), &"x".parse().unwrap())
            .await
            .unwrap()
    );
    assert!(
        !is_another_ready(&kube().client(), &"a".parse().unwrap())
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn fetching_an_unreadable_node_is_an_error() {
    let text = "cannot read Node b: spec.taints.0.timeAdded: ";
    let kube = ScriptedKube::new().on("GET", "/nodes/b", 200, unreadable_node("b", INSTANCE));
    let error = get_node(
        &kube.client(),
        &"b".parse().unwrap(),
        &"i-0123456789abcdef0".parse().unwrap(),
    )
    .await
    .unwrap_err();
    assert!(with_causes(&error).contains(text), "{}", with_causes(&error));

    let named_at_length = [unreadable_node(&"x".repeat(2_000), INSTANCE)];
    let kube = ScriptedKube::new().on("GET", "/nodes?", 200, page(&named_at_length));
    let error = find_node(&kube.client(), &INSTANCE.parse().unwrap(), None)
        .await
        .unwrap_err();
    assert!(
        with_causes(&error).chars().count() < 1_300,
        "{}",
        with_causes(&error)
    );

    let items = [unreadable_node("b", INSTANCE), node("a", "i-00000000")];
    let find = async |instance: &str| {
        let kube = ScriptedKube::new()
            .refuses("GET", "/nodes/i-", 404, "NotFound", "no")
            .on("GET", "/nodes?", 200, page(&items));
        find_node(&kube.client(), &instance.parse().unwrap(), None).await
    };
    let error = find(INSTANCE).await.unwrap_err();
    assert!(matches!(error, Error::Unexpected { .. }), "{error:?}");
    assert!(with_causes(&error).contains(text), "{}", with_causes(&error));
    assert_eq!(find("i-00000000").await.unwrap().unwrap().name.as_str(), "a");
    assert_eq!(find("i-22222222").await.unwrap(), None);
}
