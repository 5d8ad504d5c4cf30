//! Requests and answers about pods.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use kubernetes::{Error, Eviction, delete_pod, evict_pod, list_pods};
use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::cluster::pod::{Controller, PodContainers, PodFacts, PodVolumes};
use recycle::drain::blocked::RefusalKind;
use scripted_kube::{ScriptedKube, refusal};
use serde_json::{Value, json};

fn page(items: &[Value], next: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1", "continue": next}, "items": items})
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "jobs", "uid": format!("uid-of-{name}"), "creationTimestamp": "2027-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "y", "controller": true}],
        },
        "spec": {},
        "status": {"phase": "Running"},
    })
}

fn some_pod() -> PodFacts {
    PodFacts {
        namespace: "jobs".to_owned(),
        name: "train".to_owned(),
        uid: "uid-of-train".to_owned(),
        phase: "Running".to_owned(),
        containers: PodContainers {
            restart_policy: "Never".to_owned(),
            ..PodContainers::default()
        },
        grace_seconds: 30,
        ..PodFacts::default()
    }
}

#[tokio::test]
async fn an_incomplete_pod_is_unreadable() {
    for field in [
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/uid",
        "/metadata/creationTimestamp",
        "/metadata/ownerReferences/0/apiVersion",
        "/metadata/ownerReferences/0/kind",
        "/metadata/ownerReferences/0/name",
        "/metadata/ownerReferences/0/uid",
        "/status/phase",
    ] {
        let mut half = pod("a");
        let (record, name) = field.rsplit_once('/').unwrap();
        half.pointer_mut(record)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(name);
        let kube = ScriptedKube::new().on("GET", "/pods?", 200, page(&[pod("b"), half], None));
        let pods = list_pods(&kube.client(), &"n".parse().unwrap()).await.unwrap();
        let path = field.replace("/0", "").replacen('/', "", 1).replace('/', ".");
        assert_eq!(pods[0].unreadable, None);
        assert_eq!(pods[1].unreadable, Some(format!("{path} is missing")));
    }
}

#[tokio::test]
async fn the_pods_of_a_node_are_read_in_pages_and_the_last_may_be_empty() {
    let kube = ScriptedKube::new()
        .on(
            "GET",
            "/api/v1/pods?",
            200,
            page(&[pod("a"), pod("b")], Some("more")),
        )
        .on("GET", "continue=more", 200, page(&[pod("c")], Some("still+more")))
        .on("GET", "continue=still%2Bmore", 200, page(&[], None));
    let pods = list_pods(&kube.client(), &"ip-10-0-0-1".parse().unwrap())
        .await
        .unwrap();
    let names: Vec<String> = pods.iter().map(PodFacts::full_name).collect();
    assert_eq!(names, ["jobs/a", "jobs/b", "jobs/c"]);
    assert_eq!(
        kube.calls()[0].path,
        "/api/v1/pods?&fieldSelector=spec.nodeName%3Dip-10-0-0-1&limit=500"
    );
}

#[tokio::test]
async fn an_expired_page_starts_the_list_again_without_counting_a_pod_twice() {
    let kube = ScriptedKube::new()
        .on("GET", "/pods?", 200, page(&[pod("a")], Some("old")))
        .refuses("GET", "continue=old", 410, "Expired", "too old")
        .on("GET", "/pods?", 200, page(&[pod("a"), pod("b")], None));
    let pods = list_pods(&kube.client(), &"a".parse().unwrap()).await.unwrap();
    assert_eq!(pods.len(), 2);
}

#[tokio::test]
async fn a_pod_is_read_as_the_decisions_see_it() {
    let answer = json!({
        "metadata": {
            "name": "train",
            "namespace": "jobs",
            "uid": "u",
            "labels": {"app": "train"},
            "annotations": {"note": "hello", "recycle-eks/drain": "wait"},
            "creationTimestamp": "2027-01-01T00:00:00Z",
            "deletionTimestamp": "2027-01-01T01:00:00Z",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "x"},
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "y", "controller": true},
            ],
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [],
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-train-0"}},
                {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            ],
        },
        "status": {"phase": "Running"},
    });
    let kube = ScriptedKube::new().on("GET", "/pods?", 200, page(&[answer], None));
    let pods = list_pods(&kube.client(), &"a".parse().unwrap()).await.unwrap();
    let expected = PodFacts {
        uid: "u".to_owned(),
        labels: [("app".to_owned(), "train".to_owned())].into(),
        annotations: [("recycle-eks/drain".to_owned(), "wait".to_owned())].into(),
        controller: Some(Controller {
            api_group: "batch".to_owned(),
            kind: "Job".to_owned(),
            name: "train".to_owned(),
            uid: "y".to_owned(),
        }),
        created_at: Some("2027-01-01T00:00:00Z".parse().unwrap()),
        deletion_at: Some("2027-01-01T01:00:00Z".parse().unwrap()),
        volumes: PodVolumes {
            claims: vec!["data-train-0".to_owned()],
            has_local_storage: true,
        },
        ..some_pod()
    };
    assert_eq!(pods, [expected]);
}

/// Reads a pod with this spec and status.
async fn read(spec: Value, status: Value) -> PodFacts {
    let mut item = pod("train");
    item["spec"] = spec;
    item["status"] = status;
    item["status"]["phase"] = json!("Running");
    let kube = ScriptedKube::new().on("GET", "/pods?", 200, page(&[item], None));
    let mut pods = list_pods(&kube.client(), &"a".parse().unwrap()).await.unwrap();
    pods.remove(0)
}

#[tokio::test]
async fn grace_period_and_local_volumes_are_read() {
    let grace = |seconds: Value| read(json!({"terminationGracePeriodSeconds": seconds}), json!({}));
    assert_eq!(grace(json!(72_000)).await.grace_seconds, 72_000);
    assert_eq!(grace(json!(0)).await.grace_seconds, 0);
    assert_eq!(grace(json!(-1)).await.grace_seconds, 0);
    assert_eq!(grace(json!(i64::MAX)).await.grace_seconds, u32::MAX);
    assert_eq!(grace(Value::Null).await.grace_seconds, 30);
    let token = json!({"name": "token", "projected": {}});
    let memory = json!({"name": "scratch", "emptyDir": {"medium": "Memory"}});
    for (volumes, expected) in [
        (json!([token]), false),
        (json!([token, memory]), true),
        (json!([{"name": "logs", "hostPath": {"path": "/var/log"}}]), true),
        (
            json!([{"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]),
            true,
        ),
        (
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]),
            false,
        ),
        (json!([]), false),
    ] {
        let pod = read(json!({"volumes": volumes}), json!({})).await;
        assert_eq!(pod.volumes.has_local_storage, expected, "{volumes}");
    }
}

#[tokio::test]
async fn priority_and_the_state_of_containers_are_read() {
    let pod = read(json!({"priorityClassName": "system-node-critical"}), json!({})).await;
    assert_eq!(pod.scheduling.priority_class, "system-node-critical");
    let running = json!({"name": "proxy", "state": {"running": {}}});
    let ended = |code: u32| json!({"name": "main", "state": {"terminated": {"exitCode": code}}});
    let looping = json!({"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
    for (containers, ready, expected) in [
        (json!([running]), "True", (false, true, false)),
        (json!([running, ended(0)]), "False", (true, false, false)),
        (json!([running, ended(1)]), "False", (false, false, false)),
        (json!([ended(0)]), "False", (false, false, false)),
        (json!([looping, running]), "False", (false, false, true)),
    ] {
        let conditions =
            json!([{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]);
        let status = json!({"containerStatuses": containers, "conditions": conditions});
        let read = read(json!({}), status).await.containers;
        let found = (read.is_half_completed, read.is_ready, read.is_crash_looping);
        assert_eq!(found, expected, "{containers}");
    }
}

#[tokio::test]
async fn a_pod_is_debugged_as_long_as_a_debug_container_runs() {
    let debugger =
        |state: Value| json!({"ephemeralContainerStatuses": [{"name": "debugger", "state": state}]});
    for (status, expected) in [
        (json!({}), false),
        (
            debugger(json!({"running": {"startedAt": "2027-01-01T00:00:00Z"}})),
            true,
        ),
        (
            debugger(json!({"waiting": {"reason": "ImagePullBackOff"}})),
            false,
        ),
        (debugger(json!({"terminated": {"exitCode": 0}})), false),
        (debugger(json!({})), false),
    ] {
        let pod = read(
            json!({"ephemeralContainers": [{"name": "debugger"}]}),
            status.clone(),
        )
        .await;
        assert_eq!(pod.containers.is_debugged, expected, "{status}");
    }
}

#[tokio::test]
async fn an_eviction_names_the_uid_of_the_pod() {
    let kube = ScriptedKube::new().on(
        "POST",
        "/eviction",
        201,
        json!({"kind": "Status", "status": "Success"}),
    );
    assert_eq!(
        evict_pod(&kube.client(), &some_pod(), None).await.unwrap(),
        Eviction::Accepted
    );
    let call = kube.calls().pop().unwrap();
    assert_eq!(
        call.path,
        "/api/v1/namespaces/jobs/pods/train/eviction?&fieldManager=recycle-eks"
    );
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "train", "namespace": "jobs"},
        "deleteOptions": {"preconditions": {"uid": "uid-of-train"}},
    });
    assert_eq!(call.body, body);
}

fn budget(message: &str, retry_after: Option<u32>) -> Value {
    let mut status = refusal(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    status["details"] = json!({"causes": [{"reason": "DisruptionBudget", "message": message}]});
    if let Some(seconds) = retry_after {
        status["details"]["retryAfterSeconds"] = json!(seconds);
    }
    status
}

#[tokio::test]
async fn refusals_that_are_answers() {
    let needs = "The disruption budget web needs 2 healthy pods and has 2 currently";
    let processed = "The disruption budget web is still being processed by the server.";
    let several =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let denied = "admission webhook \"keep.example.com\" denied the request: not now";
    let silent = "Internal error occurred: failed calling webhook \"keep.example.com\": timeout";
    let mut terminating = refusal(403, "Forbidden", "no");
    terminating["details"] =
        json!({"causes": [{"reason": "NamespaceTerminating", "message": "", "field": "metadata.namespace"}]});
    let refused = |kind, says: &str| Eviction::Refused {
        kind,
        says: says.to_owned(),
    };
    let cases = [
        (
            404,
            refusal(404, "NotFound", "pods \"train\" not found"),
            Eviction::Gone,
        ),
        (
            409,
            refusal(
                409,
                "Conflict",
                "the UID in the precondition (a) does not match the UID in record (b)",
            ),
            Eviction::Gone,
        ),
        (429, budget(needs, None), refused(RefusalKind::BudgetFull, needs)),
        (
            429,
            budget(processed, Some(10)),
            refused(RefusalKind::BudgetNotReady, processed),
        ),
        (
            500,
            json!({"kind": "Status", "status": "Failure", "code": 500, "message": several}),
            refused(RefusalKind::SeveralBudgets, several),
        ),
        (
            403,
            refusal(403, "Forbidden", denied),
            refused(RefusalKind::Admission, denied),
        ),
        (
            500,
            refusal(500, "InternalError", silent),
            refused(RefusalKind::Admission, silent),
        ),
        (403, terminating, refused(RefusalKind::NamespaceTerminating, "no")),
        (
            403,
            refusal(403, "Forbidden", "no"),
            refused(RefusalKind::Forbidden, "no"),
        ),
        (
            429,
            refusal(429, "TooManyRequests", "no"),
            refused(RefusalKind::Throttled, "no"),
        ),
        (
            400,
            refusal(400, "BadRequest", "no"),
            refused(RefusalKind::Invalid, "no"),
        ),
        (
            422,
            refusal(422, "Invalid", "no"),
            refused(RefusalKind::Invalid, "no"),
        ),
    ];
    for (status, body, expected) in cases {
        let kube = ScriptedKube::new().on("POST", "/eviction", status, body);
        assert_eq!(
            evict_pod(&kube.client(), &some_pod(), None).await.unwrap(),
            expected
        );
    }
}

#[tokio::test]
async fn refusals_that_are_errors() {
    let cases = [
        (401, "Unauthorized", Failure::ServiceUnavailable),
        (409, "Conflict", Failure::ServiceUnavailable),
        (500, "InternalError", Failure::ServiceUnavailable),
        (503, "ServiceUnavailable", Failure::ServiceUnavailable),
    ];
    for (status, reason, failure) in cases {
        let kube = ScriptedKube::new().refuses("POST", "/eviction", status, reason, "no");
        let error = evict_pod(&kube.client(), &some_pod(), None).await.unwrap_err();
        assert_eq!(error.failure(), failure, "{status}");
        assert!(
            error
                .to_string()
                .starts_with("failed to create pods/eviction jobs/train: "),
            "{error}"
        );
    }
    let kube = ScriptedKube::new().breaks_on("POST", "/eviction");
    let error = evict_pod(&kube.client(), &some_pod(), None).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_deletion_names_the_uid_and_the_version_of_the_pod() {
    let pod = PodFacts {
        containers: PodContainers {
            version: "17".to_owned(),
            ..PodContainers::default()
        },
        ..some_pod()
    };
    let kube = ScriptedKube::new()
        .on("DELETE", "/pods/train", 200, json!({"kind": "Pod"}))
        .refuses("DELETE", "/pods/train", 404, "NotFound", "no")
        .refuses("DELETE", "/pods/train", 409, "Conflict", "it has changed");
    let client = kube.client();
    let delete = async || delete_pod(&client, &pod, Some(5)).await;
    assert_eq!(delete().await.unwrap(), Eviction::Accepted);
    assert_eq!(delete().await.unwrap(), Eviction::Gone);
    let changed = delete().await.unwrap_err();
    assert!(matches!(changed, Error::Conflict { .. }), "{changed:?}");
    let body = &kube.calls()[0].body;
    assert_eq!(
        body["preconditions"],
        json!({"uid": "uid-of-train", "resourceVersion": "17"})
    );
    assert_eq!(body["gracePeriodSeconds"], 5);
}

#[tokio::test]
async fn an_eviction_has_a_grace_period_only_if_it_is_given() {
    for (most, expected) in [(None, Value::Null), (Some(1), json!(1))] {
        let kube = ScriptedKube::new().on(
            "POST",
            "/eviction",
            201,
            json!({"kind": "Status", "status": "Success"}),
        );
        evict_pod(&kube.client(), &some_pod(), most).await.unwrap();
        assert_eq!(
            kube.calls()[0].body["deleteOptions"]["gracePeriodSeconds"],
            expected,
            "{most:?}"
        );
    }
}
