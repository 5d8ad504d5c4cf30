//! Lists the devices that drivers of dynamic resource allocation offer on a node.

use std::collections::BTreeSet;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::ListParams;
use recycle::base::ids::NodeName;
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

/// The number of drivers that count. A node has one to three, and the record of an old node has room for few.
const MOST: usize = 8;

/// Lists the drivers that offer devices on a node.
/// Kubernetes serves ResourceSlices as `resource.k8s.io/v1` since 1.34. An older API server answers 404, which means none.
pub async fn list_drivers(client: &kube::Client, node: &NodeName) -> Result<Vec<String>, Error> {
    let slices = Objects::of::<ResourceSlice>(client, None);
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let call = Call::new("list", "resourceslices", node.as_str());
    let listed: Vec<Driver> = match call::list(&slices, params, call).await {
        Err(Error::NodeGone { .. }) => return Ok(Vec::new()),
        listed => listed?,
    };
    let drivers: BTreeSet<String> = listed.into_iter().filter_map(|Driver(name)| name).collect();
    Ok(drivers.into_iter().take(MOST).collect())
}

/// Adds the drivers that offer devices on a node to its extended resources.
pub async fn add_drivers(client: &kube::Client, node: NodeFacts) -> Result<NodeFacts, Error> {
    let drivers = list_drivers(client, &node.name).await?;
    Ok(node.with_drivers(drivers))
}
