//! Lists the devices that drivers of dynamic resource allocation offer on a node.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::ListParams;
use recycle::cluster::node::NodeFacts;
use serde_json::Value;

use crate::Error;
use crate::call::{self, Call};
use crate::object::{Item, Objects, text_at};

/// The driver of a ResourceSlice with devices. None if the slice has no devices, or cannot be read.
struct Driver(Option<String>);

impl Item for Driver {
    fn read(object: &Value) -> Self {
        let devices = object.pointer("/spec/devices").and_then(Value::as_array);
        let has_devices = devices.is_some_and(|devices| !devices.is_empty());
        let driver = text_at(object, "/spec/driver");
        Self((has_devices && !driver.is_empty()).then_some(driver))
    }
}

/// Adds the drivers that offer devices on a node to its extended resources, so that a replacement is compared by them too.
/// Kubernetes serves ResourceSlices as `resource.k8s.io/v1` since 1.34. An older API server answers 404, and nothing is added.
pub async fn add_drivers(client: &kube::Client, mut node: NodeFacts) -> Result<NodeFacts, Error> {
    let slices = Objects::of::<ResourceSlice>(client, None);
    let params = ListParams::default().fields(&format!("spec.nodeName={}", node.name));
    let call = Call::new("list", "resourceslices", node.name.as_str());
    let listed: Vec<Driver> = match call::list(&slices, params, call).await {
        Err(Error::NodeGone { .. }) => return Ok(node),
        listed => listed?,
    };
    let drivers: BTreeSet<String> = listed.into_iter().filter_map(|Driver(name)| name).collect();
    node.extended_resources.extend(drivers);
    Ok(node)
}
