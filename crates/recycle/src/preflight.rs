//! Pre-flight: may this node be recycled as asked? Nothing has been touched yet.
//!
//! A refusal is one sentence: what was found, and what a person may do. Load balancers are not asked here.

use crate::input::{Dispose, Force, Input, Replacement};
use crate::names::{PROTECTED_FOR_TAG, STANDBY_TAG, STOPPED_TAG};
use crate::node::{Group, Instance, NodeFacts};

/// What pre-flight found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preflight {
    /// Go on.
    Go {
        /// Things that a person should know, one sentence each.
        notes: Vec<String>,
    },
    /// The instance is gone: nothing to do.
    AlreadyGone(String),
    /// Refused; one sentence that says why and what may be done.
    Refused(String),
}

/// Everything that pre-flight reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings<'a> {
    /// The input.
    pub input: &'a Input,
    /// The instance, if EC2 knows it.
    pub instance: Option<&'a Instance>,
    /// Its group, if it is in one.
    pub group: Option<&'a Group>,
    /// Its Node, if it has one.
    pub node: Option<&'a NodeFacts>,
    /// What we may not do in the cluster, `verb resource`, as SelfSubjectAccessReview said.
    pub missing_permissions: &'a [String],
    /// We, or a dead owner of the claim, have touched the node: what was already done is no reason to refuse.
    pub resuming: bool,
}

/// Decides whether to go on. The first refusal counts; they are ordered from what nobody can change to what `force` overrides.
#[must_use]
pub fn check_preflight(surroundings: &Surroundings<'_>) -> Preflight {
    match find_obstacle(surroundings) {
        Some(obstacle) => obstacle,
        None => Preflight::Go {
            notes: write_notes(surroundings),
        },
    }
}

fn find_obstacle(surroundings: &Surroundings<'_>) -> Option<Preflight> {
    let input = surroundings.input;
    let id = &input.instance_id;
    let Some(instance) = surroundings.instance else {
        return refused(format!(
            "EC2 knows no instance {id} in this account and region; check the id, and that the cluster is here"
        ));
    };
    if let Some(gone) = describe_gone(instance) {
        return Some(Preflight::AlreadyGone(gone));
    }
    // Before all that needs the Node: without permissions nobody can have read it.
    if !surroundings.missing_permissions.is_empty() {
        return refused(format!(
            "recycle-eks may not {} in cluster {}; apply the manifest of the module's output rbac_manifest, and check that the \
             access entry of this function's role names the group recycle-eks",
            surroundings.missing_permissions.join(", "),
            input.cluster_name
        ));
    }
    if let Some(advice) = surroundings.node.and_then(advise_owner) {
        return refused(format!("{id} {advice}"));
    }
    let Some(group) = surroundings.group else {
        return refused(format!(
            "{id} is in no Auto Scaling group, so that nothing would replace it; attach it to a group or drain it by hand"
        ));
    };
    if let Some(text) = check_lifecycle(surroundings, instance, group) {
        return refused(text);
    }
    if surroundings.node.is_none() {
        return refused(describe_missing_node(input, instance));
    }
    if surroundings.resuming {
        // What follows asks whether to begin. This node was begun: stopping here would leave it half done.
        return None;
    }
    check_what_force_overrides(input, instance, group).or_else(|| check_stop(input, instance))
}

fn refused(text: String) -> Option<Preflight> {
    Some(Preflight::Refused(text))
}

fn describe_gone(instance: &Instance) -> Option<String> {
    let id = &instance.id;
    if instance.is_gone() {
        return Some(format!("{id} is {} already", instance.state));
    }
    let stopped_at = instance
        .tags
        .get(STOPPED_TAG)
        .filter(|_| instance.state == "stopped")?;
    Some(format!("{id} was stopped by recycle-eks at {stopped_at} already"))
}

/// Who else replaces this node, and what to do there.
fn advise_owner(node: &NodeFacts) -> Option<String> {
    let is = |label: &str, value: &str| node.labels.get(label).is_some_and(|given| given == value);
    if let Some(pool) = node.labels.get("karpenter.sh/nodepool") {
        return Some(if is("eks.amazonaws.com/compute-type", "auto") {
            format!(
                "belongs to EKS Auto Mode (node pool {pool}), which replaces its nodes itself; delete its NodeClaim, or set \
                 the pool's expireAfter and disruption budgets"
            )
        } else {
            format!(
                "belongs to Karpenter (node pool {pool}), which replaces its nodes itself; delete its NodeClaim, or set the \
                 pool's expireAfter and disruption budgets"
            )
        });
    }
    if is("eks.amazonaws.com/compute-type", "auto") {
        return Some(
            "belongs to EKS Auto Mode, which replaces its nodes itself; delete its NodeClaim".to_owned(),
        );
    }
    if is("eks.amazonaws.com/compute-type", "fargate") {
        return Some(
            "runs on Fargate, where every pod has a node of its own; restart the pod instead".to_owned(),
        );
    }
    None
}

/// The member has to be in service, or where an earlier execution of ours left it.
fn check_lifecycle(surroundings: &Surroundings<'_>, instance: &Instance, group: &Group) -> Option<String> {
    let id = &instance.id;
    let name = &group.name;
    let Some(member) = group.member(id) else {
        return Some(format!(
            "{id} is no longer a member of group {name}; nothing would replace it"
        ));
    };
    let state = member.lifecycle_state.as_str();
    let ours = instance.tags.contains_key(STANDBY_TAG);
    match state {
        "InService" => None,
        "Standby" | "EnteringStandby" if ours => None,
        "Standby" | "EnteringStandby" => Some(format!(
            "{id} is {state} in group {name}, but not by recycle-eks (it has no tag {STANDBY_TAG}): somebody else works on \
             it; take it out of Standby first"
        )),
        _ if state.starts_with("Terminating") && surroundings.resuming => None,
        _ if state.starts_with("Terminating") => {
            Some(format!("{id} is {state}: group {name} is terminating it already"))
        }
        _ => Some(format!(
            "{id} is {state} in group {name}; only a member that is InService can be recycled"
        )),
    }
}

fn describe_missing_node(input: &Input, instance: &Instance) -> String {
    let id = &instance.id;
    let cluster = input.cluster_name.as_str();
    match find_other_cluster(instance, cluster) {
        Some(other) => format!(
            "{id} belongs to cluster {other} by its tags and is no node of cluster {cluster}; start the execution of that \
             cluster's module"
        ),
        None => format!(
            "{id} is no node of cluster {cluster}: no Node there has its providerID; if it never joined, terminate it in its group"
        ),
    }
}

/// The cluster that an instance's tags name, if they name another one only.
fn find_other_cluster<'a>(instance: &'a Instance, cluster: &str) -> Option<&'a str> {
    let named = ["aws:eks:cluster-name", "eks:cluster-name"]
        .iter()
        .filter_map(|key| instance.tags.get(*key))
        .map(String::as_str);
    let owned = instance
        .tags
        .keys()
        .filter_map(|key| key.strip_prefix("kubernetes.io/cluster/"));
    let clusters: Vec<&str> = named.chain(owned).collect();
    if clusters.contains(&cluster) {
        return None;
    }
    clusters.first().copied()
}

fn check_what_force_overrides(input: &Input, instance: &Instance, group: &Group) -> Option<Preflight> {
    let id = &input.instance_id;
    let name = &group.name;
    // The put-back of another node protects all others, for minutes, and says so by a tag.
    let is_protected = group
        .member(id)
        .is_some_and(|member| member.protected_from_scale_in)
        && !instance.tags.contains_key(PROTECTED_FOR_TAG);
    if is_protected && !input.force.contains(&Force::ScaleInProtection) {
        return refused(format!(
            "{id} is protected from scale-in, so somebody wants it kept; remove the protection, or write force \
             [\"scale_in_protection\"]"
        ));
    }
    let suspended: Vec<&str> = needed_processes(input)
        .iter()
        .copied()
        .filter(|process| group.suspended.iter().any(|suspended| suspended == process))
        .collect();
    if !suspended.is_empty() && !input.force.contains(&Force::SuspendedProcess) {
        return refused(format!(
            "group {name} has {} suspended, without which no node can be replaced; resume it, or write force \
             [\"suspended_process\"]",
            suspended.join(" and ")
        ));
    }
    None
}

/// The group's processes without which a recycling cannot end.
fn needed_processes(input: &Input) -> &'static [&'static str] {
    match input.dispose {
        Dispose::Terminate => &["Launch", "Terminate"],
        Dispose::Stop | Dispose::Detach => &["Launch"],
    }
}

fn check_stop(input: &Input, instance: &Instance) -> Option<Preflight> {
    match input.dispose {
        Dispose::Stop if instance.is_spot => refused(format!(
            "{} is a one-time Spot instance, which EC2 cannot stop; write dispose \"terminate\"",
            instance.id
        )),
        Dispose::Stop | Dispose::Terminate | Dispose::Detach => None,
    }
}

fn write_notes(surroundings: &Surroundings<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let (Some(group), Replacement::After) = (surroundings.group, surroundings.input.replacement) {
        notes.push(format!(
            "from its taint until its replacement is usable group {} has one node less",
            group.name
        ));
    }
    if let (Some(group), Replacement::Before) = (surroundings.group, surroundings.input.replacement) {
        note_limits(group, &mut notes);
        if group.members.len() == 1 {
            notes.push(format!(
                "it is the only member of group {}: from Standby until the replacement is in service the group's own load \
                 balancers have no target there",
                group.name
            ));
        }
    }
    if let Some(name) = surroundings
        .node
        .filter(|_| surroundings.input.replacement == Replacement::Before)
        .and_then(|node| node.labels.get("eks.amazonaws.com/nodegroup"))
    {
        notes.push(format!(
            "it belongs to the EKS managed node group {name}: Standby in managed groups is untested on AWS"
        ));
    }
    if surroundings.resuming {
        notes.push(
            "an earlier execution began with this node: this one goes on from where it came".to_owned(),
        );
    }
    notes
}

/// What the group's limits mean for the way back.
fn note_limits(group: &Group, notes: &mut Vec<String>) {
    let Group {
        name,
        min,
        desired,
        max,
        ..
    } = group;
    if min == max {
        notes.push(format!(
            "group {name} is at min = desired = max = {max}: if the replacement fails there is no legal way back from Standby"
        ));
    } else if desired >= max {
        notes.push(format!(
            "group {name} is at its maximum of {max}: if the replacement fails, the way back from Standby first has to take \
             the replacement away"
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{OTHER, group, id, input, instance, member, node, strings};

    /// A pre-flight in which all is well; each test changes what it is about.
    struct World {
        input: Input,
        instance: Option<Instance>,
        group: Option<Group>,
        node: Option<NodeFacts>,
        missing_permissions: Vec<String>,
        resuming: bool,
    }

    fn world() -> World {
        World {
            input: input(json!({})),
            instance: Some(instance()),
            group: Some(group()),
            node: Some(node("old")),
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
            let instance = self.instance.map(|instance| Instance {
                tags: strings(tags),
                ..instance
            });
            Self { instance, ..self }
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
            check_preflight(&Surroundings {
                input: &self.input,
                instance: self.instance.as_ref(),
                group: self.group.as_ref(),
                node: self.node.as_ref(),
                missing_permissions: &self.missing_permissions,
                resuming: self.resuming,
            })
        }
    }

    #[test]
    fn what_cannot_be_recycled_is_refused_with_advice() {
        let cases = [
            (
                "an unknown instance",
                World {
                    instance: None,
                    group: None,
                    node: None,
                    ..world()
                },
                "EC2 knows no instance i-0aaaaaaaaaaaaaaaa in this account and region",
            ),
            (
                "Karpenter's",
                World {
                    group: None,
                    ..World::with_labels([("karpenter.sh/nodepool", "spot")])
                },
                "belongs to Karpenter (node pool spot)",
            ),
            (
                "Auto Mode's",
                World::with_labels([
                    ("karpenter.sh/nodepool", "system"),
                    ("eks.amazonaws.com/compute-type", "auto"),
                ]),
                "belongs to EKS Auto Mode (node pool system)",
            ),
            (
                "Auto Mode's without a pool",
                World::with_labels([("eks.amazonaws.com/compute-type", "auto")]),
                "belongs to EKS Auto Mode, which replaces its nodes itself",
            ),
            (
                "Fargate",
                World::with_labels([("eks.amazonaws.com/compute-type", "fargate")]),
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
                "somebody else's Standby",
                World::with_member("Standby"),
                "is Standby in group workers, but not by recycle-eks (it has no tag recycle-eks:standby)",
            ),
            (
                "entering it",
                World::with_member("EnteringStandby"),
                "is EnteringStandby in group workers, but not by",
            ),
            (
                "launching",
                World::with_member("Pending:Wait"),
                "only a member that is InService can be recycled",
            ),
            (
                "terminating",
                World::with_member("Terminating:Wait"),
                "group workers is terminating it already",
            ),
            (
                "no Node",
                world().without_node(),
                "is no node of cluster prod: no Node there has its providerID",
            ),
            (
                "no Node, by the cluster's tag this cluster",
                world()
                    .without_node()
                    .tagged([("kubernetes.io/cluster/prod", "owned")]),
                "is no node of cluster prod: no Node there has its providerID",
            ),
            (
                "another cluster's by tag",
                world()
                    .without_node()
                    .tagged([("kubernetes.io/cluster/test", "owned")]),
                "belongs to cluster test by its tags and is no node of cluster prod",
            ),
            (
                "another cluster's managed node",
                world().without_node().tagged([("aws:eks:cluster-name", "test")]),
                "belongs to cluster test by its tags",
            ),
            (
                "missing permissions",
                World {
                    missing_permissions: vec!["patch nodes".to_owned(), "create pods/eviction".to_owned()],
                    ..world()
                },
                "may not patch nodes, create pods/eviction in cluster prod; apply the manifest of the module's output \
                 rbac_manifest",
            ),
            (
                "protected",
                world().protected(),
                "write force [\"scale_in_protection\"]",
            ),
            (
                "Launch suspended",
                world().suspending(&["Launch"]),
                "group workers has Launch suspended",
            ),
            (
                "both suspended",
                world().suspending(&["Terminate", "AZRebalance", "Launch"]),
                "has Launch and Terminate suspended",
            ),
            (
                "stop with Launch suspended",
                World::asked(json!({"dispose": "stop"})).suspending(&["Launch"]),
                "Launch suspended",
            ),
            (
                "Spot cannot be stopped",
                World::asked(json!({"dispose": "stop"})).on_spot(),
                "is a one-time Spot instance, which EC2 cannot stop; write dispose \"terminate\"",
            ),
        ];
        for (name, world, expected) in cases {
            let Preflight::Refused(text) = world.check() else {
                panic!("{name}: {:?}", world.check())
            };
            assert!(text.contains(expected), "{name}: {text}");
            assert!(text.len() < 400, "{name}: {text}");
        }
    }

    #[test]
    fn the_first_of_several_refusals_is_the_one_that_nobody_can_override() {
        let world = World {
            missing_permissions: vec!["list pods".to_owned()],
            ..world().protected()
        };
        let Preflight::Refused(text) = world.check() else {
            panic!()
        };
        assert!(text.contains("may not list pods"), "{text}");
    }

    #[test]
    fn what_is_gone_is_nothing_to_do() {
        let stopped = World::in_state("stopped").tagged([(STOPPED_TAG, "2027-01-01T00:00:00Z")]);
        let cases = [
            (World::in_state("terminated"), "is terminated already"),
            (
                World {
                    group: None,
                    ..World::in_state("shutting-down").without_node()
                },
                "is shutting-down already",
            ),
            (
                stopped.without_node(),
                "was stopped by recycle-eks at 2027-01-01T00:00:00Z already",
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
    fn force_and_what_an_earlier_execution_did_are_no_reason_to_refuse() {
        let ours = [(STANDBY_TAG, "2027-01-01T00:00:00Z")];
        let cases = [
            ("all is well", world()),
            (
                "protection is overridden",
                World::asked(json!({"force": ["scale_in_protection"]})).protected(),
            ),
            (
                "it is we who protect it, while another node is put back",
                world().protected().tagged([("recycle-eks:protected-for", OTHER)]),
            ),
            (
                "suspended processes are overridden",
                World::asked(json!({"force": ["suspended_process"]})).suspending(&["Launch", "Terminate"]),
            ),
            (
                "another process may be suspended",
                world().suspending(&["AZRebalance", "ReplaceUnhealthy"]),
            ),
            (
                "stopping needs no Terminate",
                World::asked(json!({"dispose": "stop"})).suspending(&["Terminate"]),
            ),
            ("Spot is terminated", world().on_spot()),
            ("our own Standby", World::with_member("Standby").tagged(ours)),
            (
                "our own way there",
                World::with_member("EnteringStandby").tagged(ours).resuming(),
            ),
            (
                "our own termination",
                World::with_member("Terminating:Wait").tagged(ours).resuming(),
            ),
            ("protected since we began", world().protected().resuming()),
            (
                "suspended since we began",
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
    fn notes_tell_what_a_person_should_know() {
        let sized = |min, desired, max| World {
            group: Some(Group {
                min,
                desired,
                max,
                ..group()
            }),
            ..world()
        };
        let alone = World {
            group: Some(Group {
                members: vec![member(crate::fixtures::OLD, "InService")],
                ..group()
            }),
            ..world()
        };
        let cases = [
            ("room enough", world(), vec![]),
            (
                "min = desired = max",
                sized(2, 2, 2),
                vec!["no legal way back from Standby"],
            ),
            (
                "at max",
                sized(1, 4, 4),
                vec!["group workers is at its maximum of 4"],
            ),
            (
                "the only member",
                alone,
                vec!["it is the only member of group workers"],
            ),
            (
                "a managed group",
                World::with_labels([("eks.amazonaws.com/nodegroup", "blue")]),
                vec!["managed node group blue: Standby in managed groups is untested on AWS"],
            ),
            (
                "resumed",
                world().resuming(),
                vec!["this one goes on from where it came"],
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

    #[test]
    fn a_cluster_is_told_apart_from_one_whose_name_it_begins_with() {
        let tagged = Instance {
            tags: strings([("kubernetes.io/cluster/prod-2", "owned")]),
            ..instance()
        };
        assert_eq!(find_other_cluster(&tagged, "prod"), Some("prod-2"));
        assert_eq!(
            find_other_cluster(
                &Instance {
                    id: id(OTHER),
                    ..instance()
                },
                "prod"
            ),
            None
        );
    }
}
