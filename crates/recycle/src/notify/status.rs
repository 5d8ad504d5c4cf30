//! Builds the status: the facts about the nodes that carry marks of recycle-eks.
//!
//! The command line asks Step Functions whether the execution that holds a claim still runs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::{InstanceId, NodeName};
use crate::base::names::GROUP_TAG;
use crate::cluster::group::Group;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::records::claim::{Claim, StoredClaim};
use crate::records::lease::Lease;
use crate::records::progress::Progress;
use crate::restore::manual_commands::{ManualCommands, describe_manual_commands};
use crate::restore::sweep::{find_leftovers, find_named};

/// The tag by which Auto Scaling names the group of an instance. Only AWS can set a tag that begins with `aws:`.
const MEMBER_TAG: &str = "aws:autoscaling:groupName";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// One entry for each node. They are sorted by group, then by the time of the claim. Nodes without a readable claim come last.
    pub nodes: Vec<NodeStatus>,
    /// Reason why the cluster could not be read. The status then has only what is on instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_is_away: Option<String>,
    /// Nodes that cannot be read, if there are any. The status has what is on their instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable_nodes: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub instance_id: InstanceId,
    /// Name of the Node. None if there is no Node, or the cluster cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Name of the group, if a claim or a tag names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The claim on the node. None if the node is not claimed, or if the claim is a `strange_claim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// Description of a claim that cannot be read, or that a newer version has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strange_claim: Option<String>,
    /// Progress on the Node: the awaited pods, the blockers, the beginning and the end of the drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// End of the drain, if an operator has moved it to a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_until: Option<Timestamp>,
    /// Time since which the node is being restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring_since: Option<Timestamp>,
    /// Time since which the node needs an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up_at: Option<Timestamp>,
    /// The state of a node that needs an operator, and the commands for it. None if its group could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manual: Option<ManualCommands>,
    /// Whether an operator has requested the node by the taint, and no sweep has seen the request yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_requested: bool,
    /// Whether the instance is terminated, or about to be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
    /// Whether the Node or its instance carries a request, or something that recycle-eks has set.
    /// Something on another Node or instance that names this instance also counts.
    pub is_marked: bool,
}

impl NodeStatus {
    /// Adds the state and the commands of a node that needs an operator. `group` is its group as it is now, if there is one.
    /// Only a missing Node counts as lost: a Node that is not Ready may be Ready again soon, and a lost one is ended by its instance.
    pub fn explain(&mut self, group: Option<&Group>, instance: Option<&Instance>, node: Option<&NodeFacts>) {
        let id = &self.instance_id;
        let state = group.and_then(|group| group.state_of(id));
        let is_lost = node.is_none();
        let name = self.node.as_ref();
        self.manual = Some(describe_manual_commands(
            id, group, state, instance, name, node, is_lost,
        ));
    }
}

/// Describes every node with [`NodeStatus::is_marked`]. If a node is `wanted`, describes only that node, whether it is marked or not.
pub fn build_status(
    nodes: &[NodeFacts],
    leases: &[Lease],
    instances: &[Instance],
    wanted: Option<&str>,
) -> Status {
    let marked = find_leftovers(nodes, leases, instances, &find_named(nodes, instances));
    let by_instance: BTreeMap<&InstanceId, &NodeFacts> = nodes
        .iter()
        .filter_map(|node| Some((node.instance.as_ref()?, node)))
        .collect();
    let is_wanted = |id: &InstanceId, node: Option<&NodeFacts>| match wanted {
        None => marked.contains(id),
        Some(name) => id.as_str() == name || node.is_some_and(|node| node.name.as_str() == name),
    };
    let others = instances.iter().map(|instance| &instance.id);
    let others = others.chain(leases.iter().map(|lease| &lease.instance));
    let all: BTreeSet<&InstanceId> = by_instance.keys().copied().chain(others).collect();
    let described = all.into_iter().filter_map(|id| {
        let node = by_instance.get(id).copied();
        let instance = instances.iter().find(|instance| instance.id == *id);
        let lease = leases.iter().find(|lease| lease.instance == *id);
        is_wanted(id, node).then(|| describe(id, node, lease, instance, marked.contains(id)))
    });
    let mut nodes: Vec<NodeStatus> = described.collect();
    nodes.sort_by_key(|node| {
        let claimed_at = node.claim.as_ref().map(|claim| claim.claimed_at);
        (node.group.clone(), claimed_at.is_none(), claimed_at)
    });
    Status {
        nodes,
        ..Status::default()
    }
}

fn describe(
    id: &InstanceId,
    node: Option<&NodeFacts>,
    lease: Option<&Lease>,
    instance: Option<&Instance>,
    is_marked: bool,
) -> NodeStatus {
    // Without the cluster, the tag is all there is.
    let in_tags = || instance.and_then(Instance::claim);
    let stored = lease.map_or_else(in_tags, Lease::claim);
    let (claim, strange_claim) = match stored {
        None => (None, None),
        Some(StoredClaim::Known(claim)) => (Some(claim), None),
        Some(StoredClaim::Newer(schema)) => (None, Some(format!("of a newer version (schema {schema})"))),
        Some(StoredClaim::Unreadable(text)) => (None, Some(format!("unreadable: {text}"))),
    };
    let claimed_in = claim.as_ref().map(|claim| claim.group.to_string());
    let tagged = || {
        let tags = &instance?.tags;
        tags.get(MEMBER_TAG).or_else(|| tags.get(GROUP_TAG)).cloned()
    };
    NodeStatus {
        instance_id: id.clone(),
        node: node.map(|node| node.name.clone()),
        group: claimed_in.or_else(tagged),
        claim,
        strange_claim,
        progress: node.and_then(NodeFacts::progress),
        // None also if the annotation holds no time.
        drain_until: node.and_then(|node| node.drain_until()?.trim().parse().ok()),
        restoring_since: lease.and_then(Lease::restoring_since),
        gave_up_at: instance.and_then(Instance::gave_up).map(|gave_up| gave_up.at),
        manual: None,
        is_requested: node.is_some_and(NodeFacts::is_requested),
        is_gone: instance.is_some_and(Instance::is_gone),
        is_marked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{
        CLAIM_ANNOTATION, CLAIM_TAG, DRAIN_UNTIL_ANNOTATION, GAVE_UP_TAG, PROGRESS_ANNOTATION,
        RECORD_ANNOTATION, REQUEST_TAINT, RESTORING_ANNOTATION, STANDBY_TAG,
    };
    use crate::cluster::node::Taint;
    use crate::fixtures::{NEW, OLD, claim, group, id, instance, leased, leases, member, node, strings};
    use crate::records::claim::Phase;
    use crate::records::node_record::Record;

    fn claimed() -> NodeFacts {
        let text = serde_json::to_string(&claim(Phase::Draining)).unwrap();
        let progress =
            r#"{"summary": "waits", "since": "2027-01-01T00:00:00Z", "until": "2027-01-03T00:00:00Z"}"#;
        let old = NodeFacts {
            instance: Some(id(OLD)),
            annotations: strings([(PROGRESS_ANNOTATION, progress)]),
            ..node("old")
        };
        leased(old, [(CLAIM_ANNOTATION, &text)])
    }

    fn bystander() -> NodeFacts {
        NodeFacts {
            instance: Some(id(NEW)),
            ..node("new")
        }
    }

    fn build_status(nodes: &[NodeFacts], instances: &[Instance], wanted: Option<&str>) -> Status {
        super::build_status(nodes, &leases(nodes), instances, wanted)
    }

    #[test]
    fn only_nodes_with_marks_are_listed() {
        let listed = build_status(&[bystander(), claimed()], &[], None).nodes;
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(
            (listed[0].instance_id.clone(), listed[0].group.as_deref()),
            (id(OLD), Some("workers"))
        );
        assert_eq!(listed[0].claim, Some(claim(Phase::Draining)));
        assert_eq!(listed[0].progress.as_ref().unwrap().summary, "waits");
    }

    #[test]
    fn a_wanted_node_is_listed_by_either_name_with_or_without_marks() {
        for name in ["new", NEW] {
            let listed = build_status(&[bystander(), claimed()], &[], Some(name)).nodes;
            assert_eq!(listed.len(), 1, "{name}: {listed:?}");
            assert_eq!(
                (listed[0].instance_id.clone(), listed[0].is_marked),
                (id(NEW), false)
            );
        }
        assert_eq!(build_status(&[claimed()], &[], Some("nowhere")).nodes, []);
    }

    #[test]
    fn tags_describe_a_node_that_is_gone_or_cannot_be_seen() {
        let tag = claim(Phase::Standby).to_tag();
        let tags = strings([
            (CLAIM_TAG, &tag),
            (GROUP_TAG, "workers"),
            (GAVE_UP_TAG, "2027-01-01T00:00:00Z refused"),
        ]);
        let listed = build_status(&[], &[Instance { tags, ..instance() }], None).nodes;
        assert_eq!(listed[0].claim, Some(claim(Phase::Standby)));
        assert_eq!(listed[0].gave_up_at, "2027-01-01T00:00:00Z".parse().ok());
        assert_eq!(listed[0].node, None);
    }

    #[test]
    fn a_node_that_was_given_up_names_its_group_its_state_and_the_commands_for_it() {
        let given_up = Instance {
            tags: strings([(MEMBER_TAG, "workers"), (GAVE_UP_TAG, "2027-01-01T00:00:00Z")]),
            ..instance()
        };
        let listed = build_status(&[bystander()], std::slice::from_ref(&given_up), None).nodes;
        let [mut found] = listed.try_into().unwrap();
        assert_eq!((found.group.as_deref(), &found.manual), (Some("workers"), &None));
        let group = Group {
            members: vec![member(OLD, "Standby")],
            ..group()
        };
        let record = Record {
            desired_before: Some(2),
            ..Record::default()
        };
        let old = NodeFacts {
            instance: Some(id(OLD)),
            ..node("old")
        };
        let record = serde_json::to_string(&record).unwrap();
        let old = leased(old, [(RECORD_ANNOTATION, &record)]);
        found.explain(Some(&group), Some(&given_up), Some(&old));
        let manual = found.manual.unwrap();
        assert!(manual.state.contains("Standby"), "{manual:?}");
        assert!(
            manual
                .commands
                .iter()
                .any(|command| command.contains("aws autoscaling exit-standby")),
            "{manual:?}"
        );
    }

    #[test]
    fn a_moved_end_of_the_drain_and_a_gone_instance_are_listed() {
        for (text, until) in [
            (" 2027-01-04T00:00:00Z ", "2027-01-04T00:00:00Z".parse().ok()),
            ("now", None),
            ("soon", None),
        ] {
            let mut moved = claimed();
            moved
                .annotations
                .insert(DRAIN_UNTIL_ANNOTATION.to_owned(), text.to_owned());
            let listed = build_status(&[moved], &[], None).nodes;
            assert_eq!(listed[0].drain_until, until, "{text}");
        }
        for (state, is_gone) in [
            ("running", false),
            ("stopped", false),
            ("shutting-down", true),
            ("terminated", true),
        ] {
            let marked = Instance {
                state: state.to_owned(),
                tags: strings([(STANDBY_TAG, "2027-01-01T00:00:00Z")]),
                ..instance()
            };
            assert_eq!(
                build_status(&[], &[marked], Some(OLD)).nodes[0].is_gone,
                is_gone,
                "{state}"
            );
        }
    }

    #[test]
    fn a_node_that_is_being_restored_says_since_when() {
        let since = "2027-01-01T00:00:00Z";
        let claim = serde_json::to_string(&claim(Phase::Draining)).unwrap();
        let restored = leased(
            claimed(),
            [(CLAIM_ANNOTATION, claim.as_str()), (RESTORING_ANNOTATION, since)],
        );
        let listed = build_status(&[restored], &[], None).nodes;
        assert_eq!(listed[0].restoring_since, since.parse().ok());
    }

    #[test]
    fn nodes_without_an_execution_are_also_listed() {
        let request = Taint {
            key: REQUEST_TAINT.to_owned(),
            ..crate::cluster::node::draining_taint(&id(OLD))
        };
        let asked = NodeFacts {
            taints: vec![request],
            ..bystander()
        };
        let standby = Instance {
            tags: strings([(STANDBY_TAG, "2027-01-01T00:00:00Z")]),
            ..instance()
        };
        let listed = build_status(&[asked], &[standby], None).nodes;
        assert_eq!(listed.iter().filter(|node| node.is_requested).count(), 1);
        assert_eq!(
            listed
                .iter()
                .filter(|node| node.claim.is_none() && node.is_marked)
                .count(),
            2
        );
    }

    #[test]
    fn a_claim_that_cannot_be_read_is_described() {
        for (text, words) in [("mine", "unreadable: mine"), (r#"{"schema": 99}"#, "schema 99")] {
            let strange = leased(claimed(), [(CLAIM_ANNOTATION, text)]);
            let listed = build_status(&[strange], &[], None).nodes;
            assert!(
                listed[0].strange_claim.as_ref().unwrap().contains(words),
                "{listed:?}"
            );
        }
    }
}
