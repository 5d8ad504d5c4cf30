//! Requests and answers about volumes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use kubernetes::{Error, get_node, hold_back};
use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::cluster::node::NodeFacts;
use recycle::cluster::pod::{Controller, PodFacts, PodVolumes};
use recycle::drain::survey::PodSurvey;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";

fn pod(name: &str, claims: &[&str]) -> PodFacts {
    PodFacts {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        controller: Some(Controller {
            api_group: "apps".to_owned(),
            kind: "StatefulSet".to_owned(),
            name: "db".to_owned(),
            uid: "c-1".to_owned(),
        }),
        phase: "Running".to_owned(),
        volumes: PodVolumes {
            claims: claims.iter().map(|claim| (*claim).to_owned()).collect(),
            has_local_storage: false,
        },
        ..PodFacts::default()
    }
}

fn node(name: &str, unschedulable: bool) -> Value {
    json!({
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"unschedulable": unschedulable},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn page(items: &[Value], next: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1", "continue": next}, "items": items})
}

fn claim(volume: Option<&str>) -> Value {
    json!({
        "metadata": {"name": "data", "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": volume},
        "status": {"phase": "Bound"},
    })
}

fn volume(key: &str, value: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    json!({
        "metadata": {"name": "pv-1"},
        "spec": {"csi": {"driver": "ebs.csi.aws.com"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
        "status": {"phase": "Bound"},
    })
}

/// Builds an API server with a claim `data` that is bound to a volume in zone a.
fn bound() -> ScriptedKube {
    ScriptedKube::new()
        .on(
            "GET",
            "/api/v1/namespaces/shop/persistentvolumeclaims/data",
            200,
            claim(Some("pv-1")),
        )
        .on("GET", "/api/v1/persistentvolumes/pv-1", 200, volume(ZONE, "a"))
}

async fn old() -> NodeFacts {
    let kube = ScriptedKube::new().on("GET", "/nodes/old", 200, node("old", true));
    let found = get_node(
        &kube.client(),
        &"old".parse().unwrap(),
        &"i-0123456789abcdef0".parse().unwrap(),
    )
    .await;
    found.unwrap().unwrap()
}

async fn hold(kube: &ScriptedKube, pods: &[PodFacts]) -> Result<(usize, usize), Error> {
    let survey = PodSurvey {
        evictable: pods.to_vec(),
        awaited: vec![pod("awaited", &["its-own"])],
        ..PodSurvey::default()
    };
    let survey = hold_back(&kube.client(), &old().await, survey).await?;
    Ok((survey.zone_mismatch.len(), survey.evictable.len()))
}

#[tokio::test]
async fn there_is_no_call_if_no_pod_to_evict_has_a_claim() {
    let kube = ScriptedKube::new();
    assert_eq!(hold(&kube, &[pod("web", &[])]).await.unwrap(), (0, 1));
    assert!(kube.calls().is_empty());
}

#[tokio::test]
async fn the_nodes_of_a_zone_are_listed_once_and_only_to_the_first_free_one() {
    let kube = bound().on(
        "GET",
        "/api/v1/nodes?",
        200,
        page(&[node("old", false), node("new", false)], "more"),
    );
    let pods = [pod("db-0", &["data"]), pod("backup", &["data"]), pod("web", &[])];
    assert_eq!(hold(&kube, &pods).await.unwrap(), (0, 3));
    let paths: Vec<String> = kube.calls().into_iter().map(|call| call.path).collect();
    assert_eq!(
        paths,
        [
            "/api/v1/namespaces/shop/persistentvolumeclaims/data",
            "/api/v1/persistentvolumes/pv-1",
            "/api/v1/nodes?&labelSelector=topology.kubernetes.io%2Fzone+in+%28a%29&limit=20",
        ]
    );
}

#[tokio::test]
async fn a_pod_is_held_if_no_page_has_another_node_that_takes_pods() {
    let kube = bound()
        .on("GET", "/nodes?", 200, page(&[node("old", false)], "more"))
        .on(
            "GET",
            "continue=more",
            200,
            page(&[node("cordoned", true)], "last"),
        )
        .on("GET", "continue=last", 200, page(&[], ""));
    let pods = [pod("db-0", &["data"]), pod("web", &[])];
    assert_eq!(hold(&kube, &pods).await.unwrap(), (1, 1));
    assert_eq!(kube.exchanges_left(), 0);
}

#[tokio::test]
async fn an_expired_page_starts_the_list_again() {
    let kube = bound()
        .on("GET", "/nodes?", 200, page(&[], "old"))
        .refuses("GET", "continue=old", 410, "Expired", "too old")
        .on("GET", "/nodes?", 200, page(&[node("new", false)], ""));
    assert_eq!(hold(&kube, &[pod("db-0", &["data"])]).await.unwrap(), (0, 1));
}

#[tokio::test]
async fn an_unbound_claim_holds_no_pod() {
    let not_found = |kube: ScriptedKube, path| kube.refuses("GET", path, 404, "NotFound", "gone");
    let unbound = |name| ScriptedKube::new().on("GET", "/persistentvolumeclaims/data", 200, claim(name));
    let cases = [
        ("not bound yet", unbound(None)),
        ("not bound yet, by an empty name", unbound(Some(""))),
        (
            "gone",
            not_found(ScriptedKube::new(), "/persistentvolumeclaims/data"),
        ),
        (
            "its volume is gone",
            not_found(unbound(Some("pv-1")), "/persistentvolumes/pv-1"),
        ),
        (
            "its volume is reached from anywhere",
            unbound(Some("pv-1")).on(
                "GET",
                "/persistentvolumes/pv-1",
                200,
                json!({"metadata": {"name": "pv-1"}, "spec": {"nfs": {}}}),
            ),
        ),
    ];
    for (name, kube) in cases {
        assert_eq!(
            hold(&kube, &[pod("db-0", &["data"])]).await.unwrap(),
            (0, 1),
            "{name}"
        );
        assert_eq!(kube.exchanges_left(), 0, "{name}");
    }
}

#[tokio::test]
async fn an_unreadable_volume_is_an_error_and_evicts_no_pod() {
    let pods = [pod("db-0", &["data"])];
    let forbidden =
        ScriptedKube::new().refuses("GET", "/persistentvolumeclaims/data", 403, "Forbidden", "no");
    let error = hold(&forbidden, &pods).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Forbidden {
                verb: "get",
                resource: "persistentvolumeclaims",
                ..
            }
        ),
        "{error:?}"
    );
    let away = ScriptedKube::new()
        .on("GET", "/persistentvolumeclaims/data", 200, claim(Some("pv-1")))
        .breaks_on("GET", "/persistentvolumes/pv-1");
    let error = hold(&away, &pods).await.unwrap_err();
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
}
