//! Requests and answers about Leases, and their order beside those about the Node.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use kubernetes::{
    Error, NodeChange, amend_node, change_node, end_lease, get_lease, get_node, list_claimed_nodes,
    list_group,
};
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::InstanceId;
use recycle::base::names::{CLAIM_ANNOTATION, PROGRESS_ANNOTATION, RECORD_ANNOTATION, RESTORING_ANNOTATION};
use recycle::cluster::node::NodeFacts;
use recycle::input::urgency::Urgency;
use recycle::records::claim::{Claim, StoredClaim};
use recycle::records::node_record::Record;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

const INSTANCE: &str = "i-0123456789abcdef0";
const LEASE: &str = "/namespaces/recycle-eks/leases/i-0123456789abcdef0";
const LEASES: &str = "/namespaces/recycle-eks/leases";
const NODE: &str = "/api/v1/nodes/a";

fn instance() -> InstanceId {
    INSTANCE.parse().unwrap()
}

fn claim(execution: &str) -> Claim {
    let fence = format!("arn:aws:states:eu-west-1:123456789012:execution:recycle:{execution}#0");
    let claimed_at = "2027-01-01T00:00:00Z".parse().unwrap();
    Claim::new(
        fence.parse().unwrap(),
        "workers".parse().unwrap(),
        Urgency::Planned,
        claimed_at,
    )
}

fn text(claim: &Claim) -> String {
    serde_json::to_string(claim).unwrap()
}

fn lease(version: &str, annotations: Value) -> Value {
    json!({"metadata": {"name": INSTANCE, "resourceVersion": version, "annotations": annotations}})
}

/// Returns a Node with the copy of a claim, or without one.
fn node(version: &str, claim: Option<&Claim>) -> Value {
    let annotations = claim.map_or_else(|| json!({}), |claim| json!({CLAIM_ANNOTATION: text(claim)}));
    json!({
        "metadata": {"name": "a", "resourceVersion": version, "annotations": annotations},
        "spec": {"providerID": format!("aws:///eu-west-1a/{INSTANCE}")},
    })
}

fn list(items: &[Value]) -> Value {
    json!({"metadata": {}, "items": items})
}

async fn read(kube: &ScriptedKube) -> NodeFacts {
    let found = get_node(&kube.client(), &"a".parse().unwrap(), &instance()).await;
    found.unwrap().unwrap()
}

/// Returns a Node and its Lease, both with this claim.
async fn claimed(claim: &Claim) -> NodeFacts {
    let kube = ScriptedKube::new()
        .on("GET", NODE, 200, node("7", Some(claim)))
        .on(
            "GET",
            LEASE,
            200,
            lease("5", json!({CLAIM_ANNOTATION: text(claim)})),
        );
    read(&kube).await
}

async fn unclaimed() -> NodeFacts {
    let kube = ScriptedKube::new()
        .on("GET", NODE, 200, node("7", None))
        .refuses("GET", LEASE, 404, "NotFound", "no Lease");
    read(&kube).await
}

#[tokio::test]
async fn the_claim_of_the_lease_counts_and_not_that_of_the_node() {
    let (ours, forged) = (claim("one"), claim("forged"));
    let read_both = |in_lease: Option<&Claim>, on_node: Option<&Claim>| {
        let answer =
            || in_lease.map(|claim| lease("5", json!({CLAIM_ANNOTATION: text(claim), "other": "x"})));
        let mut kube = ScriptedKube::new().on("GET", NODE, 200, node("7", on_node));
        for _ in 0..2 {
            kube = match answer() {
                Some(lease) => kube.on("GET", LEASE, 200, lease),
                None => kube.refuses("GET", LEASE, 404, "NotFound", "no Lease"),
            };
        }
        async move { (read(&kube).await, kube.calls().len()) }
    };
    for (name, in_lease, on_node, calls) in [
        ("both alike", Some(&ours), Some(&ours), 2),
        ("neither", None, None, 2),
        ("no copy yet", Some(&ours), None, 3),
        ("a forged copy", None, Some(&forged), 3),
        ("a forged copy beside a claim", Some(&ours), Some(&forged), 3),
    ] {
        let (found, made) = read_both(in_lease, on_node).await;
        assert_eq!(found.claim(), in_lease.cloned().map(StoredClaim::Known), "{name}");
        assert_eq!(made, calls, "{name}");
    }
}

#[tokio::test]
async fn the_lease_is_created_before_the_node_gets_the_copy() {
    let ours = claim("one");
    let kube = ScriptedKube::new()
        .on(
            "POST",
            LEASES,
            201,
            lease("1", json!({CLAIM_ANNOTATION: text(&ours)})),
        )
        .on("PATCH", NODE, 200, node("8", Some(&ours)));
    let found = unclaimed().await;
    let change = NodeChange::new().claim(&ours).unwrap();
    let changed = change_node(&kube.client(), &found, change).await.unwrap();
    assert_eq!(changed.claim(), Some(StoredClaim::Known(ours.clone())));
    let calls = kube.calls();
    let methods: Vec<&str> = calls.iter().map(|call| call.method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH"]);
    assert_eq!(calls[0].body["metadata"]["name"], INSTANCE);
    assert_eq!(calls[0].body["metadata"]["annotations"]["recycle-eks/node"], "a");
    assert_eq!(calls[0].body["spec"]["holderIdentity"], ours.fence.to_string());
    assert_eq!(
        calls[1].body["metadata"]["annotations"][CLAIM_ANNOTATION],
        text(&ours)
    );
}

#[tokio::test]
async fn the_record_is_written_to_the_lease_alone_and_before_the_node() {
    let ours = claim("one");
    let record = Record {
        desired_before: Some(3),
        ..Record::default()
    };
    let kube = ScriptedKube::new()
        .on(
            "PATCH",
            LEASE,
            200,
            lease("6", json!({CLAIM_ANNOTATION: text(&ours)})),
        )
        .on("PATCH", NODE, 200, node("8", Some(&ours)));
    let change = NodeChange::new().record(&record).unwrap().unschedulable(true);
    change_node(&kube.client(), &claimed(&ours).await, change)
        .await
        .unwrap();
    let calls = kube.calls();
    assert_eq!(kube.requests().len(), 2, "{:?}", kube.requests());
    assert_eq!(calls[0].body["metadata"]["resourceVersion"], "5");
    assert!(calls[0].body["metadata"]["annotations"][RECORD_ANNOTATION].is_string());
    assert_eq!(calls[1].body["metadata"]["annotations"], Value::Null);
}

#[tokio::test]
async fn a_change_that_undoes_something_reaches_the_lease_last() {
    let ours = claim("one");
    let there = lease(
        "5",
        json!({CLAIM_ANNOTATION: text(&ours), RECORD_ANNOTATION: "{}"}),
    );
    let found = || async {
        let kube = ScriptedKube::new()
            .on("GET", NODE, 200, node("7", Some(&ours)))
            .on("GET", LEASE, 200, there.clone());
        read(&kube).await
    };
    let undo = NodeChange::new()
        .unschedulable(false)
        .record(&Record::default())
        .unwrap()
        .annotate("x", "y")
        .undoing();
    let whole = [
        CLAIM_ANNOTATION,
        RECORD_ANNOTATION,
        RESTORING_ANNOTATION,
        PROGRESS_ANNOTATION,
    ];
    let release = whole
        .iter()
        .fold(NodeChange::new(), |change, key| change.remove_annotation(key));
    let unclaim = NodeChange::new().remove_annotation(CLAIM_ANNOTATION);
    for (name, change, method) in [
        ("an undo", undo, "PATCH"),
        ("the claim alone", unclaim, "PATCH"),
        ("everything", release, "DELETE"),
    ] {
        let kube = ScriptedKube::new().on("PATCH", NODE, 200, node("8", None)).on(
            method,
            LEASE,
            200,
            lease("6", json!({RECORD_ANNOTATION: "{}"})),
        );
        change_node(&kube.client(), &found().await, change).await.unwrap();
        let requests = kube.requests();
        assert!(requests[0].ends_with(NODE), "{name}: {requests:?}");
        assert!(requests[1].starts_with(method), "{name}: {requests:?}");
        let body = &kube.calls()[1].body;
        let version = match method {
            "DELETE" => &body["preconditions"]["resourceVersion"],
            _ => &body["metadata"]["resourceVersion"],
        };
        assert_eq!(version, "5", "{name}");
    }
}

#[tokio::test]
async fn of_two_claims_at_the_same_moment_the_second_is_a_conflict() {
    let theirs = claim("two");
    for (name, found, kube) in [
        (
            "both create",
            unclaimed().await,
            ScriptedKube::new().refuses("POST", LEASES, 409, "AlreadyExists", "there"),
        ),
        (
            "both take over",
            claimed(&theirs).await,
            ScriptedKube::new().refuses("PATCH", LEASE, 409, "Conflict", "changed"),
        ),
        (
            "the Lease was deleted",
            claimed(&theirs).await,
            ScriptedKube::new().refuses("PATCH", LEASE, 404, "NotFound", "gone"),
        ),
    ] {
        let change = NodeChange::new().claim(&claim("one")).unwrap();
        let error = change_node(&kube.client(), &found, change).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{name}: {error:?}");
        assert_eq!(kube.calls().len(), 1, "{name}: the Node is not touched");
    }
}

#[tokio::test]
async fn without_its_namespace_a_claim_is_refused_with_the_remedy() {
    let kube = ScriptedKube::new().refuses(
        "POST",
        LEASES,
        404,
        "NotFound",
        "namespaces \"recycle-eks\" not found",
    );
    let change = NodeChange::new().claim(&claim("one")).unwrap();
    let error = change_node(&kube.client(), &unclaimed().await, change)
        .await
        .unwrap_err();
    assert_eq!(error.failure(), Failure::ServiceRefused);
    let text = with_causes(&error);
    assert!(
        text.contains("there is no namespace recycle-eks; apply"),
        "{text}"
    );
    assert_eq!(kube.calls().len(), 1);
}

#[tokio::test]
async fn a_conflict_on_the_node_reads_the_lease_again() {
    let (ours, theirs) = (claim("one"), claim("two"));
    let kube = ScriptedKube::new()
        .refuses("PATCH", NODE, 409, "Conflict", "changed")
        .on("GET", NODE, 200, node("8", Some(&theirs)))
        .on(
            "GET",
            LEASE,
            200,
            lease("6", json!({CLAIM_ANNOTATION: text(&theirs)})),
        );
    let client = kube.client();
    let checked = amend_node(&client, claimed(&ours).await, |node| {
        let held = node.claim() == Some(StoredClaim::Known(ours.clone()));
        held.then(|| Some(NodeChange::new().unschedulable(true)))
            .ok_or_else(|| Error::NodeGone {
                node: "held by another".to_owned(),
            })
    });
    let error = checked.await.unwrap_err();
    assert!(error.to_string().contains("held by another"), "{error}");
    assert_eq!(kube.writes().len(), 1, "{:?}", kube.writes());
}

#[tokio::test]
async fn what_is_written_already_is_not_written_again() {
    let ours = claim("one");
    let kube = ScriptedKube::new();
    let change = NodeChange::new().claim(&ours).unwrap();
    let same = change_node(&kube.client(), &claimed(&ours).await, change)
        .await
        .unwrap();
    assert_eq!(same, claimed(&ours).await);
    assert!(kube.calls().is_empty());
}

#[tokio::test]
async fn the_leases_of_a_group_are_found_by_its_label_page_by_page() {
    let other = json!({"metadata": {"name": "not-an-instance", "resourceVersion": "1"}});
    let mut first = list(&[lease("1", json!({"recycle-eks/node": "a"})), other]);
    first["metadata"]["continue"] = json!("more");
    let kube =
        ScriptedKube::new()
            .on("GET", "/leases?", 200, first)
            .on("GET", "continue=more", 200, list(&[]));
    let found = list_group(&kube.client(), &"workers".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(found.len(), 1, "a Lease of another tool is left out");
    assert_eq!(found[0].node, "a".parse().ok());
    let calls = kube.calls();
    let is_labelled = |path: &str| path.contains("labelSelector=recycle-eks%2Fgroup%3D");
    assert!(calls.iter().all(|call| is_labelled(&call.path)), "{calls:?}");
}

#[tokio::test]
async fn the_nodes_are_listed_with_their_leases_and_the_leases_without_a_node_too() {
    let ours = claim("one");
    let mut orphan = lease("2", json!({RECORD_ANNOTATION: "{}"}));
    orphan["metadata"]["name"] = json!("i-0bbbbbbbbbbbbbbbb");
    let kube = ScriptedKube::new()
        .on("GET", "/nodes?", 200, list(&[node("7", None)]))
        .on(
            "GET",
            "/leases?",
            200,
            list(&[lease("5", json!({CLAIM_ANNOTATION: text(&ours)})), orphan]),
        );
    let (nodes, leases) = list_claimed_nodes(&kube.client()).await.unwrap();
    assert_eq!(nodes.readable[0].claim(), Some(StoredClaim::Known(ours)));
    assert_eq!(leases.len(), 2);
}

#[tokio::test]
async fn a_lease_that_is_gone_is_deleted_and_one_that_changed_is_not() {
    let ours = claim("one");
    let found = claimed(&ours).await.lease.unwrap();
    let gone = ScriptedKube::new().refuses("DELETE", LEASE, 404, "NotFound", "gone");
    end_lease(&gone.client(), &found).await.unwrap();
    let changed = ScriptedKube::new().refuses("DELETE", LEASE, 409, "Conflict", "changed");
    let error = end_lease(&changed.client(), &found).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    let missing = ScriptedKube::new().refuses("GET", LEASE, 404, "NotFound", "gone");
    assert_eq!(get_lease(&missing.client(), &instance()).await.unwrap(), None);
}

#[tokio::test]
async fn a_lease_that_names_other_protected_members_stays_with_their_names_alone() {
    let mut found = claimed(&claim("one")).await.lease.unwrap();
    let record = Record {
        desired_before: Some(2),
        ..Record::default()
    };
    let other: InstanceId = "i-0fedcba9876543210".parse().unwrap();
    let record = record.protecting(&[instance(), other.clone()]);
    let text = serde_json::to_string(&record).unwrap();
    found.annotations.insert(RECORD_ANNOTATION.to_owned(), text);
    let kube = ScriptedKube::new();
    end_lease(&kube.client(), &found).await.unwrap();
    let left = kube.lease(INSTANCE);
    assert_eq!(left.get(CLAIM_ANNOTATION), None);
    let left: Record = serde_json::from_str(left[RECORD_ANNOTATION].as_str().unwrap()).unwrap();
    assert_eq!((left.protected, left.desired_before), (vec![other], None));
}
