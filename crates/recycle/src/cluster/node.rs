//! The facts about a Node, and its taints.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::{InstanceId, NodeName};
use crate::base::names::{
    CLAIM_ANNOTATION, DETACHED_TAINT, DRAIN_UNTIL_ANNOTATION, DRAINING_TAINT, FIELD_MANAGER,
    OUT_OF_SERVICE_TAINT, PROGRESS_ANNOTATION, REQUEST_TAINT, STANDBY_TAG, STOPPED_TAINT,
};
use crate::base::printable::printable_document;
use crate::base::strict::read_value;
use crate::base::text::{cut_given, list_names};
use crate::cluster::instance::Instance;
use crate::records::claim::StoredClaim;
use crate::records::lease::{Lease, UnreadableRecord};
use crate::records::node_record::Record;
use crate::records::progress::Progress;

/// A taint, as Kubernetes writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Set by Kubernetes on NoExecute taints; kept as it was.
    #[serde(default, rename = "timeAdded", skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Timestamp>,
}

impl Taint {
    pub fn new(key: &str, value: Option<&str>, effect: &str) -> Self {
        Self {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect: effect.to_owned(),
            time_added: None,
        }
    }
}

/// The effect of the draining, stopped and detached taints. Never `NoExecute`, which would bypass disruption budgets.
const DRAINING_EFFECT: &str = "NoSchedule";

/// Returns the draining taint that recycle-eks sets. Its value is the id of the instance.
pub fn draining_taint(instance: &InstanceId) -> Taint {
    taint_for(DRAINING_TAINT, instance)
}

/// Checks whether a taint has the key and effect of the draining taint. A node can have only one taint with both.
pub fn is_draining_taint(taint: &Taint) -> bool {
    taint.key == DRAINING_TAINT && taint.effect == DRAINING_EFFECT
}

/// Checks whether the taint is an operator's request to recycle the node.
pub fn is_request_taint(taint: &Taint) -> bool {
    taint.key == REQUEST_TAINT
}

/// Returns the taint of a Node whose instance is stopped, and stays in its group.
pub fn stopped_taint(instance: &InstanceId) -> Taint {
    taint_for(STOPPED_TAINT, instance)
}

/// Returns the taint of a Node whose instance has left its group, and runs on for an investigation.
pub fn detached_taint(instance: &InstanceId) -> Taint {
    taint_for(DETACHED_TAINT, instance)
}

fn taint_for(key: &str, instance: &InstanceId) -> Taint {
    Taint::new(key, Some(instance.as_str()), DRAINING_EFFECT)
}

/// Returns the taint that makes Kubernetes release a machine that is off.
/// The machine's pods are deleted by force and its volumes detached at once (Kubernetes documentation, "Non-graceful node shutdown").
/// This is the only taint of recycle-eks that ends pods, and they have already ended.
pub fn out_of_service_taint() -> Taint {
    Taint::new(OUT_OF_SERVICE_TAINT, Some(OUT_OF_SERVICE_BY_US), "NoExecute")
}

/// Checks whether a taint is the out-of-service taint, set by recycle-eks.
pub fn is_out_of_service_taint(taint: &Taint) -> bool {
    taint.key == OUT_OF_SERVICE_TAINT && taint.value.as_deref() == Some(OUT_OF_SERVICE_BY_US)
}

/// The value of the out-of-service taint, which means nothing to Kubernetes. A taint that an operator set has another value.
const OUT_OF_SERVICE_BY_US: &str = "recycle-eks";

/// Checks whether recycle-eks put the instance into Standby, by the record in its Lease.
/// The tag, which other principals can write, decides only if there is no Node, or if the record was edited and cannot be read.
pub fn has_entered_standby(node: Option<&NodeFacts>, instance: Option<&Instance>) -> bool {
    match node.map(NodeFacts::record) {
        Some(Ok(record)) => record.desired_before.is_some(),
        Some(Err(_)) | None => instance.is_some_and(|instance| instance.tags.contains_key(STANDBY_TAG)),
    }
}

/// The facts about a Node that the decisions need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: NodeName,
    /// `metadata.resourceVersion`, which every write of recycle-eks carries.
    pub resource_version: String,
    /// The instance id at the end of `spec.providerID`.
    pub instance: Option<InstanceId>,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// The time since which the condition Ready is False or Unknown: its `lastTransitionTime`.
    pub not_ready_since: Option<Timestamp>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// The client that wrote `spec.unschedulable` last, according to `metadata.managedFields`.
    pub cordoned_by: Option<String>,
    /// `spec.taints`, all of them.
    pub taints: Vec<Taint>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The annotations that recycle-eks reads ([`crate::base::names::is_read_annotation`]).
    pub annotations: BTreeMap<String, String>,
    /// `status.allocatable` of extended resources (names with a `/`, such as `nvidia.com/gpu`) that are not zero. For a comparison of
    /// devices, [`NodeFacts::with_drivers`] adds the drivers that offer some on the node (names without a `/`, such as `gpu.nvidia.com`).
    pub extended_resources: Vec<String>,
    /// `status.volumesInUse` and the names in `status.volumesAttached`, each once.
    pub volumes: Vec<String>,
    /// `status.nodeInfo.kubeletVersion`, such as `v1.33.4-eks-1a2b3c4`; empty if the kubelet has not reported it yet.
    pub kubelet: String,
    /// The Lease of the instance; None if there is none, or if the Node was listed without Leases.
    pub lease: Option<Lease>,
}

impl NodeFacts {
    pub fn claim(&self) -> Option<StoredClaim> {
        self.lease.as_ref()?.claim()
    }

    /// Adds drivers of dynamic resource allocation to the resources, so that a replacement is compared by them too.
    pub fn with_drivers(mut self, drivers: Vec<String>) -> Self {
        self.extended_resources.extend(drivers);
        self
    }

    /// Checks whether drivers of dynamic resource allocation are among the resources. Only their names have no `/`.
    pub fn has_drivers(&self) -> bool {
        self.extended_resources.iter().any(|name| !name.contains('/'))
    }

    /// Checks whether the copy of the claim on the Node is the claim of the Lease.
    pub fn shows_claim(&self) -> bool {
        let lease = self.lease.as_ref();
        self.annotations.get(CLAIM_ANNOTATION)
            == lease.and_then(|lease| lease.annotations.get(CLAIM_ANNOTATION))
    }

    /// Returns the progress in the annotation. None if there is none, or if it was edited and cannot be read.
    pub fn progress(&self) -> Option<Progress> {
        let text = self.annotations.get(PROGRESS_ANNOTATION)?;
        let document = serde_json::from_str(text).ok()?;
        read_value(&printable_document(document)).ok()
    }

    /// Whether the node is cordoned, and recycle-eks wrote `spec.unschedulable` last.
    /// If the last writer is unknown, recycle-eks counts as the writer.
    pub fn is_cordoned_by_recycle_eks(&self) -> bool {
        let is_recycle_eks = |manager: &str| manager == FIELD_MANAGER;
        self.unschedulable && self.cordoned_by.as_deref().is_none_or(is_recycle_eks)
    }

    pub fn is_requested(&self) -> bool {
        self.taints.iter().any(is_request_taint)
    }

    /// Returns the time since which the node is being restored.
    pub fn restoring_since(&self) -> Option<Timestamp> {
        self.lease.as_ref()?.restoring_since()
    }

    /// Returns the end of the drain that an operator asks for, as it was written. The annotation of the Lease, which the command line sets,
    /// wins over that of the Node, which the node itself could have written.
    pub fn drain_until(&self) -> Option<&str> {
        let on_node = || self.annotations.get(DRAIN_UNTIL_ANNOTATION).map(String::as_str);
        self.lease.as_ref().and_then(Lease::drain_until).or_else(on_node)
    }

    /// Returns the record of the Lease; an empty one if there is none. An unreadable record is an error that names the Lease.
    pub fn record(&self) -> Result<Record, UnreadableRecord> {
        self.lease
            .as_ref()
            .map_or_else(|| Ok(Record::default()), Lease::record)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read Node {name}: {why}")]
pub struct UnreadableNode {
    /// `metadata.name`, if it is a text.
    pub name: String,
    pub instance: Option<InstanceId>,
    /// The field that cannot be read, and what is wrong with it.
    pub why: String,
}

/// Nodes, with those among them that cannot be read.
/// A kubelet writes most of its own Node, so one unreadable Node must not hide the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeList {
    pub readable: Vec<NodeFacts>,
    pub unreadable: Vec<UnreadableNode>,
}

/// The maximum number of unreadable Nodes that one sentence names.
const MOST_UNREADABLE_NAMED: usize = 3;

impl NodeList {
    /// Returns the Node of an instance, if it cannot be read.
    pub fn find_unreadable(&self, instance: &InstanceId) -> Option<&UnreadableNode> {
        let mut unreadable = self.unreadable.iter();
        unreadable.find(|node| node.instance.as_ref() == Some(instance))
    }

    /// Describes, in one short sentence, which Nodes cannot be read, and why. None if all can be read.
    pub fn describe_unreadable(&self) -> Option<String> {
        let count = self.unreadable.len();
        let named = self.unreadable.iter().take(MOST_UNREADABLE_NAMED);
        let named = named.map(|node| cut_given(&format!("{} ({})", node.name, node.why)));
        let named = list_names(&named.collect::<Vec<_>>(), count);
        let noun = if count == 1 { "Node" } else { "Nodes" };
        (count > 0).then(|| format!("cannot read {count} {noun}: {named}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::failure::with_causes;
    use crate::base::names::{
        CLAIM_TAG, DETACHED_TAG, GROUP_TAG, PROGRESS_ANNOTATION, RECORD_ANNOTATION, RESTORING_ANNOTATION,
        STANDBY_TAG, STOPPED_TAG,
    };
    use crate::cluster::instance::Instance;
    use crate::fixtures::{NEW, at, claim, claimed, id, instance, leased, node, strings};
    use crate::records::claim::Phase;
    use serde_json::json;

    #[test]
    fn only_a_time_is_read_from_the_annotation_of_a_restore() {
        for (text, since) in [
            (Some("2027-01-01T00:01:00Z"), Some(at(60))),
            (Some("now"), None),
            (None, None),
        ] {
            let node = match text {
                Some(text) => leased(node("a"), [(RESTORING_ANNOTATION, text)]),
                None => node("a"),
            };
            assert_eq!(node.restoring_since(), since, "{text:?}");
        }
    }

    /// A kubelet can write these annotations on its own Node.
    #[test]
    fn the_annotations_of_a_node_are_no_records() {
        let text = serde_json::to_string(&claim(Phase::Draining)).unwrap();
        let forged = NodeFacts {
            annotations: strings([
                (CLAIM_ANNOTATION, &text),
                (RECORD_ANNOTATION, r#"{"desired_before": 9}"#),
                (RESTORING_ANNOTATION, "2027-01-01T00:01:00Z"),
            ]),
            ..node("a")
        };
        assert_eq!(forged.claim(), None);
        assert_eq!(forged.record().unwrap(), Record::default());
        assert_eq!(forged.restoring_since(), None);
        assert!(!forged.shows_claim());
        let shown = NodeFacts {
            annotations: strings([(CLAIM_ANNOTATION, &text)]),
            ..leased(forged, [(CLAIM_ANNOTATION, &text)])
        };
        assert!(shown.shows_claim());
    }

    #[test]
    fn the_end_of_a_drain_in_the_lease_wins_over_that_on_the_node() {
        let on_node = NodeFacts {
            annotations: strings([(DRAIN_UNTIL_ANNOTATION, "now")]),
            ..node("a")
        };
        assert_eq!(on_node.drain_until(), Some("now"));
        let in_lease = leased(on_node, [(DRAIN_UNTIL_ANNOTATION, "2027-01-31T18:00:00Z")]);
        assert_eq!(in_lease.drain_until(), Some("2027-01-31T18:00:00Z"));
    }

    /// A kubelet writes any annotation on its own Node, and its text reaches terminals and notifications.
    #[test]
    fn the_texts_of_a_progress_have_no_control_characters() {
        let written = json!({
            "summary": "drains\u{1b}]52;c;eA==\u{7}", "since": "2027-01-01T00:00:00Z", "until": "2027-01-02T00:00:00Z",
            "blocked": [{"what": "budget a/\u{202e}b", "says": "\u{9b}2J", "since": "2027-01-01T00:00:00Z", "count": 1, "names": ["\u{1b}"]}],
        });
        let node = NodeFacts {
            annotations: [(PROGRESS_ANNOTATION.to_owned(), written.to_string())].into(),
            ..node("a")
        };
        let text = format!("{:?}", node.progress().unwrap());
        assert!(
            text.contains("drains\u{fffd}]52") && text.contains("budget a/\u{fffd}b"),
            "{text}"
        );
        assert!(
            !text.contains("\\u{1b}") && !text.contains("\\u{9b}") && !text.contains("\\u{202e}"),
            "{text}"
        );
    }

    #[test]
    fn a_stopped_instance_has_not_been_put_into_standby_since_then() {
        let (early, late) = ("2027-01-01T00:00:00Z", "2027-01-01T00:03:00Z");
        let cases: [(&[(&str, &str)], bool); 6] = [
            (&[], false),
            (&[(STANDBY_TAG, early)], false),
            (&[(STOPPED_TAG, early)], true),
            (&[(STANDBY_TAG, early), (STOPPED_TAG, late)], true),
            (&[(STANDBY_TAG, late), (STOPPED_TAG, early)], false),
            (&[(STANDBY_TAG, early), (STOPPED_TAG, "yesterday")], false),
        ];
        for (tags, expected) in cases {
            let tags = tags
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let instance = Instance {
                tags: tags.collect(),
                ..instance()
            };
            assert_eq!(instance.was_stopped(), expected, "{:?}", instance.tags);
            let stopped_at = instance.tags.get(STOPPED_TAG).cloned();
            let mut detached = instance;
            detached
                .tags
                .extend(stopped_at.map(|time| (DETACHED_TAG.to_owned(), time)));
            assert_eq!(detached.was_detached(), expected, "{:?}", detached.tags);
        }
    }

    #[test]
    fn taints_with_another_effect_or_value_are_not_of_recycle_eks() {
        let draining = draining_taint(&id(NEW));
        let of_effect = |effect: &str| Taint {
            effect: effect.to_owned(),
            ..draining.clone()
        };
        assert!(is_draining_taint(&draining) && !is_draining_taint(&of_effect("PreferNoSchedule")));
        let of_value = |value: &str| Taint {
            value: Some(value.to_owned()),
            ..out_of_service_taint()
        };
        assert!(is_out_of_service_taint(&out_of_service_taint()));
        assert!(!is_out_of_service_taint(&of_value("nodeshutdown")));
        let elsewhere = Taint {
            key: "example.com/a".to_owned(),
            ..out_of_service_taint()
        };
        assert!(!is_out_of_service_taint(&elsewhere));
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_none_is_empty() {
        let record = Record {
            schema: 1,
            members_before: vec![id(NEW)],
            usable_before: Some(3),
            drivers: vec!["gpu.example.com".to_owned()],
            replacement: Some(id(NEW)),
            tainted_at: Some(at(0)),
            lost_after: Some(1_800),
            was_unschedulable: true,
            excluded_at: Some(at(60)),
            excluded_before: Some(String::new()),
            desired_before: Some(3),
            raised_from: Some(3),
            kept: true,
            kept_before: Some("false".to_owned()),
            protected: vec![id(NEW)],
        };
        assert_eq!(
            claimed(node("a"), Phase::Draining, &record).record().unwrap(),
            record
        );
        assert_eq!(node("a").record().unwrap(), Record::default());
    }

    #[test]
    fn an_edited_record_is_an_error_that_names_lease_and_annotation() {
        let edited = leased(node("a"), [(RECORD_ANNOTATION, "{")]);
        let text = with_causes(&edited.record().unwrap_err());
        assert!(
            text.starts_with(
                "failed to read the annotation recycle-eks/record of lease i-0aaaaaaaaaaaaaaaa in namespace recycle-eks: EOF"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_record_that_is_no_object_is_an_error_that_names_the_place() {
        for (text, expected) in [
            ("[]", "invalid type: sequence, expected struct Record"),
            ("[1]", "invalid type: sequence, expected struct Record"),
            ("null", "invalid type: null, expected struct Record"),
            (
                r#"{"desired_before": -1}"#,
                "desired_before: invalid value: integer `-1`, expected u32",
            ),
            (r#"{"replacement": "new"}"#, "replacement: must be an instance id"),
            (r#"{"tainted_at": "9999-12-31T23:59:59Z"}"#, "tainted_at: "),
        ] {
            let edited = leased(node("a"), [(RECORD_ANNOTATION, text)]);
            let error = with_causes(&edited.record().unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_claim_is_found_in_the_lease_and_in_the_tags() {
        let claim = claim(Phase::Draining);
        assert_eq!(
            claimed(node("a"), Phase::Draining, &Record::default()).claim(),
            Some(StoredClaim::Known(claim.clone()))
        );
        assert_eq!(node("a").claim(), None);
        let tag = claim.to_tag();
        let tagged = Instance {
            tags: strings([(CLAIM_TAG, &tag), (GROUP_TAG, "workers")]),
            ..instance()
        };
        assert_eq!(tagged.claim(), Some(StoredClaim::Known(claim)));
        let without_group = Instance {
            tags: strings([(CLAIM_TAG, &tag)]),
            ..instance()
        };
        assert_eq!(without_group.claim(), Some(StoredClaim::Unreadable(tag)));
        assert_eq!(instance().claim(), None);
    }

    #[test]
    fn nodes_that_cannot_be_read_are_named_and_the_sentence_stays_short() {
        let unreadable = |name: &str, why: &str| UnreadableNode {
            name: name.to_owned(),
            instance: Some(id(NEW)),
            why: why.to_owned(),
        };
        let list = |unreadable| NodeList {
            readable: vec![node("a")],
            unreadable,
        };
        assert_eq!(list(vec![]).describe_unreadable(), None);
        let one = list(vec![unreadable("b", "spec.taints.0.timeAdded: no time")]);
        assert_eq!(
            one.describe_unreadable().unwrap(),
            "cannot read 1 Node: b (spec.taints.0.timeAdded: no time)"
        );
        assert!(one.find_unreadable(&id(NEW)).is_some() && one.find_unreadable(&id("i-00000000")).is_none());
        let many = list(vec![unreadable("b", &"x".repeat(500)); 100]);
        let text = many.describe_unreadable().unwrap();
        assert!(
            text.starts_with("cannot read 100 Nodes: b (xxx") && text.ends_with(", …"),
            "{text}"
        );
        assert!(text.chars().count() < 420, "{text}");
    }

    #[test]
    fn an_instance_is_gone_from_shutting_down_on() {
        for (state, gone) in [
            ("running", false),
            ("stopped", false),
            ("shutting-down", true),
            ("terminated", true),
        ] {
            assert_eq!(
                Instance {
                    state: state.to_owned(),
                    ..instance()
                }
                .is_gone(),
                gone,
                "{state}"
            );
        }
    }
}
