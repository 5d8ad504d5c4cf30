//! The drivers that offer devices on a node.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use kubernetes::{Error, add_drivers, get_node};
use recycle::cluster::node::NodeFacts;
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices?";

fn kube() -> ScriptedKube {
    let node = json!({
        "metadata": {"name": "a", "resourceVersion": "1"},
        "spec": {"providerID": "aws:///eu-west-1a/i-0123456789abcdef0"},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    });
    ScriptedKube::new().on("GET", "/nodes/a", 200, node)
}

fn slice(driver: &str, devices: &Value) -> Value {
    json!({"spec": {"driver": driver, "nodeName": "a", "devices": devices}})
}

async fn read(kube: &ScriptedKube) -> Result<NodeFacts, Error> {
    let client = kube.client();
    let (name, instance) = ("a".parse().unwrap(), "i-0123456789abcdef0".parse().unwrap());
    let node = get_node(&client, &name, &instance).await?.unwrap();
    add_drivers(&client, node).await
}

#[tokio::test]
async fn each_driver_with_devices_counts_once() {
    let devices = json!([{"name": "device-0"}]);
    let slices = [
        slice("gpu.example.com", &devices),
        slice("gpu.example.com", &devices),
        slice("none.example.com", &json!([])),
        json!({"spec": {"devices": devices}}),
        json!({}),
    ];
    let kube = kube().on("GET", SLICES, 200, json!({"metadata": {}, "items": slices}));
    let node = read(&kube).await.unwrap();
    assert_eq!(node.extended_resources, ["nvidia.com/gpu", "gpu.example.com"]);
    assert!(node.has_drivers());
    let calls = kube.calls();
    let listed = calls.iter().find(|call| call.path.contains(SLICES)).unwrap();
    assert!(
        listed.path.contains("fieldSelector=spec.nodeName%3Da"),
        "{}",
        listed.path
    );
}

#[tokio::test]
async fn a_cluster_without_slices_has_no_drivers_and_a_refusal_is_an_error() {
    let node = read(&kube()).await.unwrap();
    assert_eq!(node.extended_resources, ["nvidia.com/gpu"]);
    assert!(!node.has_drivers());
    let refusal = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403});
    let refused = read(&kube().on("GET", SLICES, 403, refusal)).await;
    assert!(matches!(refused, Err(Error::Forbidden { .. })), "{refused:?}");
}
