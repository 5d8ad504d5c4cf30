//! Holds back pods whose volumes no other node can use now, such as an EBS volume in a zone that has no other node.
//!
//! If such a pod were evicted, it would stay Pending. The pod is evicted once another node can use its volumes.
//! The scheduler decides whether a node has room for a pod, and whether the pod's own rules allow that node.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::base::selector::{Expression, Selector};
use crate::base::text::cut_text;
use crate::cluster::node::NodeFacts;
use crate::cluster::pod::PodFacts;
use crate::drain::survey::PodSurvey;
use crate::replacement::defect::is_in_the_way;

/// The number of characters to which the nodes that a volume needs are cut in a sentence. One zone takes about 45.
const LONGEST_NODES: usize = 120;

/// A PersistentVolumeClaim: its namespace and name.
pub type VolumeClaim = (String, String);

/// One term of a volume's node affinity (`spec.nodeAffinity.required.nodeSelectorTerms` of a PersistentVolume).
/// A node can use the volume if it meets all requirements of one term.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// Requirements for a node's labels.
    pub match_expressions: Vec<Expression>,
    /// Requirements for a node's fields, such as `metadata.name`.
    pub match_fields: Vec<Expression>,
}

/// The nodes on which a volume can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Any node: the volume has no node affinity, or one that label selectors cannot express.
    Anywhere,
    /// Nodes that match one of these label selectors.
    Nodes(Vec<String>),
}

/// A PersistentVolume that is bound to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// `metadata.name`.
    pub name: String,
    pub reach: Reach,
}

impl Volume {
    /// Returns the label selectors of the nodes that can use the volume; empty if all can.
    fn selectors(&self) -> &[String] {
        match &self.reach {
            Reach::Anywhere => &[],
            Reach::Nodes(selectors) => selectors,
        }
    }
}

/// Reads where a volume can be used. If a label selector cannot express one of the terms, the volume counts as usable anywhere:
/// a pod is held back only for a reason that is certain.
pub fn read_reach(terms: &[NodeSelectorTerm]) -> Reach {
    // An empty term matches no node (Kubernetes API reference of NodeSelectorTerm).
    let selectors: Option<Vec<String>> = terms
        .iter()
        .filter(|term| !term.match_expressions.is_empty() || !term.match_fields.is_empty())
        .map(write_selector)
        .collect();
    let selectors = selectors.filter(|selectors| !selectors.is_empty());
    selectors.map_or(Reach::Anywhere, Reach::Nodes)
}

/// Writes the term as a label selector.
/// None if it has `Gt`, `Lt` or fields, which label selectors do not have, or if a name or value is not valid in one.
fn write_selector(term: &NodeSelectorTerm) -> Option<String> {
    if !term.match_fields.is_empty() {
        return None;
    }
    let parts: Option<Vec<String>> = term.match_expressions.iter().map(Expression::write).collect();
    // The API server rejects a list request with an invalid selector, which would leave all pods without an answer.
    parts
        .map(|parts| parts.join(","))
        .filter(|selector| selector.parse::<Selector>().is_ok())
}

/// Returns the claims whose volumes decide whether these pods may be evicted.
pub fn claims_to_ask_for(evictable: &[PodFacts]) -> BTreeSet<VolumeClaim> {
    evictable.iter().flat_map(claims_of).collect()
}

/// Returns the claims of a pod. A pod that is annotated `evict` has none here, because it is evicted in any case.
fn claims_of(pod: &PodFacts) -> impl Iterator<Item = VolumeClaim> {
    let claims = pod.volumes.claims.iter().filter(|_| !pod.is_marked_evict());
    claims.map(|claim| (pod.namespace.clone(), claim.clone()))
}

/// Returns the label selectors of all nodes that these volumes need, each once. The caller looks for nodes by them.
pub fn selectors_of(volumes: &BTreeMap<VolumeClaim, Volume>) -> BTreeSet<String> {
    let selectors = volumes.values().flat_map(Volume::selectors);
    selectors.cloned().collect()
}

/// Checks whether this node could take pods of `old`, as far as the node itself decides that.
/// It is another node, Ready, not cordoned, and has no taint that keeps pods of `old` away.
pub fn could_take_pods_of(old: &NodeFacts, node: &NodeFacts) -> bool {
    node.name != old.name
        && node.ready
        && !node.unschedulable
        && !node.taints.iter().any(|taint| is_in_the_way(taint, old))
}

/// Moves pods from `evictable` to `zone_mismatch` if no other node can use one of their volumes now.
/// A claim without an entry in `volumes` is not bound, and the scheduler finds a place for it.
/// `places` are the selectors for which there is a node that could take the pods.
pub fn hold_back(
    mut survey: PodSurvey,
    volumes: &BTreeMap<VolumeClaim, Volume>,
    places: &BTreeSet<String>,
) -> PodSurvey {
    let has_place = |volume: &Volume| {
        let selectors = volume.selectors();
        selectors.is_empty() || selectors.iter().any(|selector| places.contains(selector))
    };
    for pod in std::mem::take(&mut survey.evictable) {
        let bond = claims_of(&pod)
            .filter_map(|claim| volumes.get(&claim))
            .find(|volume| !has_place(volume));
        match bond {
            Some(volume) => {
                survey.held_because.push(describe_bond(&pod, volume));
                survey.zone_mismatch.push(pod);
            }
            None => survey.evictable.push(pod),
        }
    }
    survey
}

fn describe_bond(pod: &PodFacts, volume: &Volume) -> String {
    let mut nodes = volume.selectors().join(" or ");
    cut_text(&mut nodes, LONGEST_NODES);
    format!(
        "{} is not evicted: its volume {} needs a node with {nodes}, and no other such node takes pods",
        pod.full_name(),
        volume.name
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::pod::PodVolumes;
    use crate::fixtures::{node, pod, strings, taint};

    fn terms(value: Value) -> Vec<NodeSelectorTerm> {
        serde_json::from_value(value).unwrap()
    }

    fn zone(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn a_volumes_reach_is_read_as_the_scheduler_reads_it() {
        let standard = "topology.kubernetes.io/zone";
        let field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]});
        let two = json!({"matchExpressions": [
            {"key": standard, "operator": "In", "values": ["a"]},
            {"key": "arch", "operator": "NotIn", "values": ["arm64", "s390x"]},
        ]});
        let cases: [(&str, Value, Option<&[&str]>); 11] = [
            ("no affinity", json!([]), None),
            (
                "a zone",
                json!([zone(standard, "In", &["eu-west-1a"])]),
                Some(&["topology.kubernetes.io/zone in (eu-west-1a)"]),
            ),
            (
                "the EBS driver's own label",
                json!([zone("topology.ebs.csi.aws.com/zone", "In", &["eu-west-1a"])]),
                Some(&["topology.ebs.csi.aws.com/zone in (eu-west-1a)"]),
            ),
            (
                "a disk of two zones",
                json!([zone(standard, "In", &["a", "b"])]),
                Some(&["topology.kubernetes.io/zone in (a,b)"]),
            ),
            (
                "a local disk",
                json!([zone("kubernetes.io/hostname", "In", &["ip-10-0-0-1"])]),
                Some(&["kubernetes.io/hostname in (ip-10-0-0-1)"]),
            ),
            (
                "one term or another",
                json!([zone(standard, "In", &["a"]), zone("ssd", "Exists", &[])]),
                Some(&["topology.kubernetes.io/zone in (a)", "ssd"]),
            ),
            (
                "all of a term",
                json!([two]),
                Some(&["topology.kubernetes.io/zone in (a),arch notin (arm64,s390x)"]),
            ),
            (
                "a label that must not be there",
                json!([zone("spot", "DoesNotExist", &[])]),
                Some(&["!spot"]),
            ),
            (
                "an operator that label selectors do not have",
                json!([zone("generation", "Gt", &["3"])]),
                None,
            ),
            ("a field", json!([zone(standard, "In", &["a"]), field]), None),
            (
                "an empty term, which matches nothing",
                json!([{}, zone(standard, "In", &["a"])]),
                Some(&["topology.kubernetes.io/zone in (a)"]),
            ),
        ];
        for (name, given, expected) in cases {
            let expected = expected.map_or(Reach::Anywhere, |selectors| {
                Reach::Nodes(selectors.iter().map(|selector| (*selector).to_owned()).collect())
            });
            assert_eq!(read_reach(&terms(given)), expected, "{name}");
        }
    }

    #[test]
    fn only_another_free_node_could_take_pods_of_the_old_one() {
        let draining = taint("recycle-eks/draining", "NoSchedule");
        let old = NodeFacts {
            unschedulable: true,
            taints: vec![draining.clone(), taint("team", "NoSchedule")],
            ..node("old")
        };
        let with = |taint| NodeFacts {
            taints: vec![taint],
            ..node("new")
        };
        let cases = [
            ("a free node", node("new"), true),
            ("the old node itself", node("old"), false),
            (
                "a node that is not Ready",
                NodeFacts {
                    ready: false,
                    ..node("new")
                },
                false,
            ),
            (
                "a cordoned node",
                NodeFacts {
                    unschedulable: true,
                    ..node("new")
                },
                false,
            ),
            ("a node of the same kind", with(taint("team", "NoSchedule")), true),
            ("a node of another kind", with(taint("gpu", "NoSchedule")), false),
            (
                "a node with another NoExecute taint",
                with(taint("gpu", "NoExecute")),
                false,
            ),
            (
                "a node with a PreferNoSchedule taint",
                with(taint("gpu", "PreferNoSchedule")),
                true,
            ),
            ("a node that is being drained itself", with(draining), false),
        ];
        for (name, candidate, expected) in cases {
            assert_eq!(could_take_pods_of(&old, &candidate), expected, "{name}");
        }
    }

    fn database(name: &str, claims: &[&str]) -> PodFacts {
        PodFacts {
            volumes: PodVolumes {
                claims: claims.iter().map(|claim| (*claim).to_owned()).collect(),
                has_local_storage: false,
            },
            ..pod(name)
        }
    }

    fn volumes() -> BTreeMap<VolumeClaim, Volume> {
        let volume = |claim: &str, selectors: &[&str]| {
            let reach = if selectors.is_empty() {
                Reach::Anywhere
            } else {
                Reach::Nodes(selectors.iter().map(|selector| (*selector).to_owned()).collect())
            };
            let name = format!("pv-{claim}");
            (("default".to_owned(), claim.to_owned()), Volume { name, reach })
        };
        BTreeMap::from([
            volume("nfs", &[]),
            volume("zone-a", &["zone in (a)"]),
            volume("zone-b", &["zone in (b)"]),
            volume("either", &["zone in (a)", "zone in (b)"]),
        ])
    }

    #[test]
    fn only_a_pod_whose_volume_no_other_node_can_use_is_held() {
        let annotated_evict = PodFacts {
            annotations: strings([("recycle-eks/drain", "evict")]),
            ..database("annotated", &["zone-a"])
        };
        let elsewhere = PodFacts {
            namespace: "other".to_owned(),
            ..database("namesake", &["zone-a"])
        };
        let cases: [(&str, PodFacts, bool); 9] = [
            ("no claim", pod("web"), false),
            (
                "a volume that is reached from anywhere",
                database("x", &["nfs"]),
                false,
            ),
            ("a zone without a node", database("x", &["zone-a"]), true),
            ("a zone with a node", database("x", &["zone-b"]), false),
            ("one zone of two has a node", database("x", &["either"]), false),
            (
                "one volume of two cannot be reached",
                database("x", &["zone-b", "zone-a"]),
                true,
            ),
            (
                "a claim that is not bound, or gone",
                database("x", &["unbound"]),
                false,
            ),
            ("the pod is annotated evict", annotated_evict, false),
            ("a claim of the same name in another namespace", elsewhere, false),
        ];
        let places = BTreeSet::from(["zone in (b)".to_owned()]);
        for (name, pod, is_held) in cases {
            let survey = PodSurvey {
                evictable: vec![pod.clone()],
                awaited: vec![database("job", &["zone-a"])],
                ..PodSurvey::default()
            };
            let survey = hold_back(survey, &volumes(), &places);
            let (held, free) = if is_held {
                (vec![pod], vec![])
            } else {
                (vec![], vec![pod])
            };
            assert_eq!(
                (&survey.zone_mismatch, &survey.evictable),
                (&held, &free),
                "{name}"
            );
            assert_eq!(survey.awaited.len(), 1, "{name}");
            assert_eq!(survey.held_because.len(), held.len(), "{name}");
        }
    }

    #[test]
    fn the_sentence_names_the_volume_and_the_nodes_that_it_needs() {
        let survey = PodSurvey {
            evictable: vec![database("db-0", &["either"])],
            held_because: vec!["another reason".to_owned()],
            ..PodSurvey::default()
        };
        let survey = hold_back(survey, &volumes(), &BTreeSet::new());
        assert_eq!(
            survey.held_because,
            [
                "another reason",
                "default/db-0 is not evicted: its volume pv-either needs a node with zone in (a) or zone in (b), and no \
                 other such node takes pods"
            ]
        );
    }

    #[test]
    fn no_volume_is_read_for_pods_without_claims_or_annotated_evict() {
        let annotated_evict = PodFacts {
            annotations: strings([("recycle-eks/drain", "evict")]),
            ..database("annotated", &["zone-a"])
        };
        assert!(claims_to_ask_for(&[pod("web"), annotated_evict]).is_empty());
        let asked = claims_to_ask_for(&[database("a", &["one", "two"]), database("b", &["one"])]);
        let claim = |name: &str| ("default".to_owned(), name.to_owned());
        assert_eq!(asked, BTreeSet::from([claim("one"), claim("two")]));
        let selectors = selectors_of(&volumes());
        assert_eq!(
            selectors,
            BTreeSet::from(["zone in (a)".to_owned(), "zone in (b)".to_owned()])
        );
    }
}
