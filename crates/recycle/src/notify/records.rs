//! Collects the records of instances as they were written, for a support bundle.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::base::ids::InstanceId;
use crate::base::names::{EXCLUDE_FROM_BALANCERS_LABEL, OUT_OF_SERVICE_TAINT};
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::records::lease::Lease;

/// Returns a document for each wanted instance: its Lease, the marks on its Node, and its tags. A thing that does not exist is null.
#[must_use]
pub fn collect_records(
    wanted: &[InstanceId],
    nodes: &[NodeFacts],
    leases: &[Lease],
    instances: &[Instance],
) -> Vec<Value> {
    let collect = |id: &InstanceId| {
        let lease = leases.iter().find(|lease| lease.instance == *id);
        let node = nodes.iter().find(|node| node.instance.as_ref() == Some(id));
        let instance = instances.iter().find(|instance| instance.id == *id);
        json!({
            "instance_id": id,
            "lease": lease.map(|lease| json!({"node": lease.node, "annotations": lease.annotations})),
            "node": node.map(describe_node),
            "instance": instance.map(|instance| json!({"state": instance.state, "tags": select_own(&instance.tags)})),
        })
    };
    wanted.iter().map(collect).collect()
}

fn describe_node(node: &NodeFacts) -> Value {
    let taints = node.taints.iter().filter(|taint| is_own(&taint.key));
    json!({
        "name": node.name,
        "ready": node.ready,
        "unschedulable": node.unschedulable,
        "annotations": node.annotations,
        "labels": select_own(&node.labels),
        "taints": taints.collect::<Vec<_>>(),
    })
}

fn select_own(marks: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let own = marks.iter().filter(|(key, _)| is_own(key));
    own.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// Whether recycle-eks writes a label, taint or tag of this name. All other names say more about the cluster than an issue needs.
fn is_own(key: &str) -> bool {
    key.starts_with("recycle-eks") || [EXCLUDE_FROM_BALANCERS_LABEL, OUT_OF_SERVICE_TAINT].contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{CLAIM_ANNOTATION, GROUP_TAG, PROGRESS_ANNOTATION};
    use crate::cluster::node::{Taint, draining_taint};
    use crate::fixtures::{NEW, OLD, id, instance, leased, leases, node, strings};

    #[test]
    fn only_marks_of_recycle_eks_are_collected_and_as_they_were_written() {
        let foreign = Taint {
            key: "team".to_owned(),
            ..draining_taint(&id(OLD))
        };
        let marked = NodeFacts {
            instance: Some(id(OLD)),
            annotations: strings([(PROGRESS_ANNOTATION, "edited")]),
            labels: strings([("recycle-eks/replaces", NEW), ("team", "payments")]),
            taints: vec![draining_taint(&id(OLD)), foreign],
            ..node("old")
        };
        let nodes = [leased(marked, [(CLAIM_ANNOTATION, "unreadable")])];
        let tagged = Instance {
            tags: strings([(GROUP_TAG, "workers"), ("Name", "a secret project")]),
            ..instance()
        };
        let found = collect_records(&[id(OLD), id(NEW)], &nodes, &leases(&nodes), &[tagged]);
        assert_eq!(
            found[0]["lease"]["annotations"],
            json!({CLAIM_ANNOTATION: "unreadable"})
        );
        assert_eq!(
            found[0]["node"]["annotations"],
            json!({PROGRESS_ANNOTATION: "edited"})
        );
        assert_eq!(found[0]["node"]["labels"], json!({"recycle-eks/replaces": NEW}));
        assert_eq!(found[0]["node"]["taints"], json!([draining_taint(&id(OLD))]));
        assert_eq!(found[0]["instance"]["tags"], json!({GROUP_TAG: "workers"}));
        assert_eq!(
            found[1],
            json!({"instance_id": NEW, "lease": null, "node": null, "instance": null})
        );
    }
}
