use crate::base::ids::InstanceId;
use crate::base::ids::NodeName;
use crate::base::names::CORDONED_FOR_ANNOTATION;
use crate::base::names::DRAIN_UNTIL_ANNOTATION;
use crate::base::names::EXCLUDE_FROM_BALANCERS_LABEL;
use crate::base::names::PROGRESS_ANNOTATION;
use crate::base::names::REPLACEMENT_FOR_ANNOTATION;
use crate::cluster::autoscaler::ScaleDown;
use crate::cluster::group::Member;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::cluster::node::Taint;
use crate::cluster::node::stopped_taint;
use crate::records::node_record::Record;
use crate::records::restore_log::GaveUp;
use crate::records::restore_log::GroupChange;
use crate::restore::facts::NewMember;
use crate::restore::step::LINE_PATIENCE;
use crate::restore::step::MOST_STEPS;
use crate::restore::step::PATIENCE;
use crate::restore::step::STEP_WAIT;
use crate::restore::undo::EXCLUDED;
use crate::restore::undo::Undo;
use crate::restore::undo::undo_kubernetes;
use proptest::prelude::*;

use super::*;
use crate::base::names::{
    DRAINING_TAINT, FIELD_MANAGER, KEPT_BEFORE_ANNOTATION, REQUEST_TAINT, SCALE_DOWN_DISABLED_ANNOTATION,
};
use crate::fixtures::{
    NEW, OLD, OTHER, at, claimed, group, id, instance, leased, member, node, strings, taint,
};
use crate::records::claim::Phase;

/// A group with its sizes, a node in it, and what surrounds them.
#[derive(Debug, Clone)]
struct World {
    group: Group,
    instance: Instance,
    new_members: Option<Vec<NewMember>>,
    protected: Vec<InstanceId>,
    group_changes: GroupChanges,
    kubernetes: KubernetesHalf,
    has_entered_standby: bool,
    raised_from: Option<u32>,
    is_lost: bool,
    restoring_since: Option<Timestamp>,
    ahead: Option<NodeName>,
    waited: i64,
    steps: u32,
}

impl World {
    /// Returns a state with the node in Standby by an execution, another member in service, m/d/M as given, and no replacement.
    pub(crate) fn new((min, desired, max): (u32, u32, u32)) -> Self {
        Self {
            group: Group {
                min,
                desired,
                max,
                members: vec![member(OLD, "Standby"), member(OTHER, "InService")],
                ..group()
            },
            instance: instance(),
            new_members: Some(Vec::new()),
            protected: Vec::new(),
            group_changes: GroupChanges::default(),
            kubernetes: KubernetesHalf::Clean,
            has_entered_standby: true,
            raised_from: None,
            is_lost: false,
            restoring_since: Some(at(0)),
            ahead: None,
            waited: 0,
            steps: 0,
        }
    }

    /// Returns a state with the node in service, for which an execution has raised the desired capacity to `desired`.
    fn surged((min, desired, max): (u32, u32, u32)) -> Self {
        let mut world = Self::new((min, desired, max));
        "InService".clone_into(&mut world.member_mut(&id(OLD)).lifecycle_state);
        Self {
            has_entered_standby: false,
            raised_from: Some(desired - 1),
            ..world
        }
    }

    fn with_replacement(mut self, lifecycle_state: &str, has_pods: bool) -> Self {
        self.group.members.push(member(NEW, lifecycle_state));
        self.new_members = Some(vec![NewMember {
            instance: id(NEW),
            lifecycle_state: lifecycle_state.to_owned(),
            node: Some(node("new")),
            has_pods,
        }]);
        self
    }

    fn suspended(mut self) -> Self {
        self.group.suspended.push("Launch".to_owned());
        self
    }

    fn next(&self) -> RestoreStep {
        self.next_with(Some(&self.instance))
    }

    fn next_with(&self, instance: Option<&Instance>) -> RestoreStep {
        next_restore_step(&RestoreFacts {
            id: &self.instance.id,
            instance,
            group: Some(&self.group),
            kubernetes: self.kubernetes,
            has_entered_standby: self.has_entered_standby,
            raised_from: self.raised_from,
            is_lost: self.is_lost,
            new_members: self.new_members.as_deref(),
            marked: &[],
            restoring_since: self.restoring_since,
            ahead: self.ahead.as_ref(),
            protected: &self.protected,
            group_changes: &self.group_changes,
            waited: self.waited,
            steps: self.steps,
        })
    }

    fn member_mut(&mut self, id: &InstanceId) -> &mut Member {
        self.group
            .members
            .iter_mut()
            .find(|member| member.instance == *id)
            .unwrap()
    }

    fn new_member_mut(&mut self) -> &mut NewMember {
        self.new_members.as_mut().unwrap().first_mut().unwrap()
    }

    /// Applies a step as AWS and Kubernetes would. Returns true if it was the last one.
    fn take(&mut self, step: &RestoreStep) -> bool {
        match step {
            RestoreStep::UndoKubernetes => self.kubernetes = KubernetesHalf::Clean,
            RestoreStep::Queue => self.restoring_since = Some(at(0)),
            RestoreStep::Protect(ids) => {
                for id in ids {
                    self.member_mut(id).protected_from_scale_in = true;
                    self.protected.push(id.clone());
                }
            }
            RestoreStep::Unprotect(ids) => {
                for id in ids {
                    self.member_mut(id).protected_from_scale_in = false;
                }
                self.protected.clear();
            }
            RestoreStep::CordonReplacement(_) => {
                let node = self.new_member_mut().node.as_mut().unwrap();
                node.unschedulable = true;
                node.annotations
                    .insert(CORDONED_FOR_ANNOTATION.to_owned(), OLD.to_owned());
            }
            RestoreStep::ReleaseReplacements { .. } => {
                let node = self.new_member_mut().node.as_mut().unwrap();
                node.unschedulable = false;
                node.annotations.clear();
            }
            RestoreStep::TerminateReplacement(id) => {
                assert!(self.group.desired > self.group.min, "AWS refuses that");
                self.group_changes = self.group_changes.with(GroupChange::Terminate(id.clone()));
                self.group.desired -= 1;
                self.group.members.retain(|member| member.instance != *id);
                self.new_members = Some(Vec::new());
            }
            RestoreStep::Lower { from } => {
                assert!(self.group.desired > self.group.min, "AWS refuses that");
                self.group_changes = self.group_changes.with(GroupChange::Lower(*from));
                self.group.desired = from - 1;
                // All other members are protected: only a member that is still on its way may be taken.
                let victims = self
                    .group
                    .members
                    .iter()
                    .filter(|member| !member.protected_from_scale_in);
                assert!(
                    victims
                        .clone()
                        .all(|member| member.lifecycle_state.starts_with("Pending"))
                );
                self.group.members.retain(|member| member.protected_from_scale_in);
            }
            RestoreStep::Raise { to } => self.group.desired = *to,
            RestoreStep::ForgetDead => self.group.members.retain(|member| member.instance != id(OLD)),
            RestoreStep::ExitStandby { from } => {
                assert!(self.group.desired < self.group.max, "AWS refuses that");
                self.group_changes = self.group_changes.with(GroupChange::Exit(*from));
                self.group.desired += 1;
                "InService".clone_into(&mut self.member_mut(&id(OLD)).lifecycle_state);
            }
            RestoreStep::Wait(..) => {
                // Members that are on their way do not come.
                self.group
                    .members
                    .retain(|member| !member.lifecycle_state.starts_with("Pending"));
                self.new_members
                    .as_mut()
                    .unwrap()
                    .retain(|new_member| !new_member.lifecycle_state.starts_with("Pending"));
            }
            RestoreStep::Done(_) | RestoreStep::LeaveInStandby(_) | RestoreStep::Report(_) => return true,
        }
        false
    }

    /// Takes every step to the end. Returns the changes of the group in order, and the last step.
    pub(crate) fn finish(&mut self) -> (Vec<&'static str>, RestoreStep) {
        let mut changes = Vec::new();
        for _ in 0..30 {
            let step = self.next();
            changes.extend(match &step {
                RestoreStep::Lower { .. } => Some("lower"),
                RestoreStep::Raise { .. } => Some("raise"),
                RestoreStep::ExitStandby { .. } => Some("exit"),
                RestoreStep::TerminateReplacement(_) => Some("drop"),
                RestoreStep::ForgetDead => Some("forget"),
                RestoreStep::UndoKubernetes
                | RestoreStep::Queue
                | RestoreStep::Protect(_)
                | RestoreStep::Unprotect(_)
                | RestoreStep::CordonReplacement(_)
                | RestoreStep::ReleaseReplacements { .. }
                | RestoreStep::Wait(..)
                | RestoreStep::Done(_)
                | RestoreStep::LeaveInStandby(_)
                | RestoreStep::Report(_) => None,
            });
            if self.take(&step) {
                return (changes, step);
            }
        }
        panic!("no end: {self:?}")
    }
}

const FREE: (u32, u32, u32) = (1, 2, 4);
const AT_MAXIMUM: (u32, u32, u32) = (1, 2, 2);
const AT_MINIMUM: (u32, u32, u32) = (2, 2, 4);
const FIXED: (u32, u32, u32) = (2, 2, 2);

#[test]
fn a_dead_member_in_standby_is_forgotten_and_nothing_else_is_done() {
    for state in ["shutting-down", "terminated"] {
        let mut world = World::new(FREE);
        state.clone_into(&mut world.instance.state);
        world.kubernetes = KubernetesHalf::Undo;
        assert_eq!(
            world.finish(),
            (vec!["forget"], RestoreStep::Report(None)),
            "{state}"
        );
    }
    let mut refused = World::new(FREE);
    "terminated".clone_into(&mut refused.instance.state);
    refused.waited = i64::from(PATIENCE);
    assert_eq!(refused.finish(), (Vec::new(), RestoreStep::Report(None)));
}

#[test]
fn a_member_in_standby_that_ec2_does_not_know_is_dead_only_without_its_node() {
    for (kubernetes, expected) in [
        (KubernetesHalf::Vanished, "forget"),
        (KubernetesHalf::Undo, "wait"),
        (KubernetesHalf::Clean, "wait"),
        (KubernetesHalf::Unseen, "other"),
    ] {
        let mut world = World::new(FREE);
        world.kubernetes = kubernetes;
        let step = world.next_with(None);
        let name = if step == RestoreStep::ForgetDead {
            "forget"
        } else if matches!(step, RestoreStep::Wait(..)) {
            "wait"
        } else {
            "other"
        };
        assert_eq!(name, expected, "{kubernetes:?}");
    }
}

#[test]
fn a_lost_node_stays_where_it_is_and_no_member_stays_protected_for_it() {
    let mut world = World::new(FREE);
    world.is_lost = true;
    world.kubernetes = KubernetesHalf::Undo;
    world.member_mut(&id(OTHER)).protected_from_scale_in = true;
    world.protected.push(id(OTHER));
    assert_eq!(world.finish(), (Vec::new(), RestoreStep::Report(None)));
    assert!(world.protected.is_empty());
    assert_eq!(world.group.member(&id(OLD)).unwrap().lifecycle_state, "Standby");
}

#[test]
fn the_protection_of_a_member_on_its_way_into_service_is_left_to_the_sweep() {
    let mut world = World::new(FREE);
    world.is_lost = true;
    world.protected = vec![id(OLD), id(OTHER)];
    "Pending".clone_into(&mut world.member_mut(&id(OTHER)).lifecycle_state);
    assert_eq!(world.next(), RestoreStep::Unprotect(vec![id(OLD)]));
    world.protected = vec![id(OTHER)];
    assert_eq!(world.next(), RestoreStep::Report(None));
}

#[test]
fn every_cell_of_the_table_reaches_its_end() {
    let done = || RestoreStep::Done(None);
    let larger = || {
        RestoreStep::Done(Some(
            "group workers is one larger than before, desired capacity 3: its replacement has pods"
                .to_owned(),
        ))
    };
    let stuck = || RestoreStep::LeaveInStandby(Stuck::AtMaximum);
    let launch = || RestoreStep::LeaveInStandby(Stuck::LaunchSuspended);
    let none = World::new;
    let pending = |sizes| World::new(sizes).with_replacement("Pending", false);
    let empty = |sizes| World::new(sizes).with_replacement("InService", false);
    let used = |sizes| World::new(sizes).with_replacement("InService", true);
    let cases = [
        (
            "m<d<M, not launched",
            none(FREE),
            vec!["lower", "exit"],
            done(),
            2,
        ),
        ("m<d<M, pending", pending(FREE), vec!["lower", "exit"], done(), 2),
        ("m<d<M, empty", empty(FREE), vec!["drop", "exit"], done(), 2),
        ("m<d<M, has pods", used(FREE), vec!["exit"], larger(), 3),
        (
            "m<d=M, not launched",
            none(AT_MAXIMUM),
            vec!["lower", "exit"],
            done(),
            2,
        ),
        (
            "m<d=M, pending",
            pending(AT_MAXIMUM),
            vec!["lower", "exit"],
            done(),
            2,
        ),
        ("m<d=M, empty", empty(AT_MAXIMUM), vec!["drop", "exit"], done(), 2),
        ("m<d=M, has pods", used(AT_MAXIMUM), vec![], stuck(), 2),
        (
            "m=d<M, not launched",
            none(AT_MINIMUM),
            vec!["exit", "lower"],
            done(),
            2,
        ),
        (
            "m=d<M, pending",
            pending(AT_MINIMUM),
            vec!["exit", "lower"],
            done(),
            2,
        ),
        ("m=d<M, empty", empty(AT_MINIMUM), vec!["exit", "drop"], done(), 2),
        ("m=d<M, has pods", used(AT_MINIMUM), vec!["exit"], larger(), 3),
        ("m=d=M, not launched", none(FIXED), vec![], stuck(), 2),
        ("m=d=M, pending", pending(FIXED), vec![], stuck(), 2),
        ("m=d=M, empty", empty(FIXED), vec![], stuck(), 2),
        ("m=d=M, has pods", used(FIXED), vec![], stuck(), 2),
        (
            "suspended, not launched",
            none(FREE).suspended(),
            vec![],
            launch(),
            2,
        ),
        ("suspended, empty", empty(FREE).suspended(), vec![], launch(), 2),
        ("suspended, has pods", used(FREE).suspended(), vec![], launch(), 2),
    ];
    for (name, mut world, changes, end, desired) in cases {
        assert_eq!(world.finish(), (changes, end), "{name}");
        assert_eq!(world.group.desired, desired, "{name}");
        let is_left_protected = world
            .group
            .members
            .iter()
            .any(|member| member.protected_from_scale_in);
        assert!(!is_left_protected, "{name}");
    }
}

#[test]
fn a_raised_capacity_is_lowered_again_unless_the_replacement_has_pods() {
    let larger = "group workers is one larger than before, desired capacity 3: its replacement has pods";
    let cases = [
        ("not launched", World::surged((2, 3, 4)), vec!["lower"], None, 2),
        (
            "pending, and does not come",
            World::surged((2, 3, 4)).with_replacement("Pending", false),
            vec!["lower"],
            None,
            2,
        ),
        (
            "empty",
            World::surged((2, 3, 4)).with_replacement("InService", false),
            vec!["drop"],
            None,
            2,
        ),
        (
            "has pods",
            World::surged((2, 3, 4)).with_replacement("InService", true),
            vec![],
            Some(larger),
            3,
        ),
        (
            "the call was not made, or someone has lowered it",
            World {
                raised_from: Some(2),
                ..World::surged((2, 2, 4))
            },
            vec![],
            None,
            2,
        ),
        (
            "someone has lowered it, and the group has not ended a member yet",
            World {
                raised_from: Some(2),
                ..World::surged((1, 2, 4)).with_replacement("InService", false)
            },
            vec![],
            None,
            2,
        ),
        (
            "at its minimum by now",
            World::surged((3, 3, 4)),
            vec![],
            Some("group workers is one larger than before, desired capacity 3: its minimum allows no fewer"),
            3,
        ),
    ];
    for (name, mut world, changes, note, desired) in cases {
        let end = RestoreStep::Done(note.map(str::to_owned));
        assert_eq!(world.finish(), (changes, end), "{name}");
        assert_eq!(world.group.desired, desired, "{name}");
        assert!(world.protected.is_empty(), "{name}");
        assert!(
            world.group.member(&id(OLD)).is_some() && world.group.member(&id(OTHER)).is_some(),
            "{name}"
        );
    }
    let mut lost = World {
        is_lost: true,
        ..World::surged((2, 3, 4))
    };
    let (changes, end) = lost.finish();
    assert!(changes.is_empty());
    let RestoreStep::Report(Some(note)) = end else {
        panic!("{end:?}");
    };
    assert!(
        note.starts_with("group workers is one larger than before, desired capacity 3;"),
        "{note}"
    );
}

#[test]
fn members_that_stay_are_protected_before_the_group_changes() {
    let steps = |mut world: World| {
        let mut steps = Vec::new();
        for _ in 0..3 {
            let step = world.next();
            world.take(&step);
            steps.push(step);
        }
        steps
    };
    let protect_both = RestoreStep::Protect(vec![id(OLD), id(OTHER)]);
    assert_eq!(
        steps(World::new(FREE)),
        [
            protect_both.clone(),
            RestoreStep::Lower { from: 2 },
            RestoreStep::ExitStandby { from: 1 }
        ]
    );
    assert_eq!(
        steps(World::new(AT_MINIMUM).with_replacement("InService", false)),
        [
            RestoreStep::CordonReplacement(id(NEW)),
            protect_both,
            RestoreStep::ExitStandby { from: 2 }
        ]
    );
    assert_eq!(
        World::new(FREE).with_replacement("InService", true).next(),
        RestoreStep::Protect(vec![id(OLD), id(OTHER), id(NEW)])
    );
}

#[test]
fn a_replacement_that_gets_pods_before_it_goes_stays_and_is_uncordoned() {
    let mut world = World::new(AT_MINIMUM).with_replacement("InService", false);
    for _ in 0..3 {
        let step = world.next();
        world.take(&step);
    }
    world.new_member_mut().has_pods = true;
    let (changes, end) = world.finish();
    assert!(changes.is_empty(), "{changes:?}");
    assert!(matches!(end, RestoreStep::Done(Some(_))), "{end:?}");
    assert!(!world.new_member_mut().node.as_ref().unwrap().unschedulable);
}

#[test]
fn a_trim_of_the_group_after_exit_standby_takes_no_member_with_pods() {
    let mut world = World::new(FREE).with_replacement("InService", true);
    for _ in 0..2 {
        let step = world.next();
        world.take(&step);
    }
    world.group.desired = 2;
    let mut full = world.clone();
    full.group.max = 2;
    assert!(matches!(full.next(), RestoreStep::Wait(LONG_WAIT, why) if why.contains("one member too many")));
    let (changes, end) = world.finish();
    assert_eq!(changes, ["raise"]);
    assert!(matches!(end, RestoreStep::Done(Some(_))), "{end:?}");
    assert_eq!(world.group.desired, 3);
}

#[test]
fn a_place_that_a_trim_of_the_group_took_with_a_member_on_its_way_is_given_back() {
    // The replacement is Pending for long, and the successor of a neighbour that died is in service.
    let mut world = World::new((1, 3, 4)).with_replacement("InService", false);
    world.group.members.push(member("i-0aaaaaaaaaaaaaaaa", "Pending"));
    let mut changes = Vec::new();
    while !changes.contains(&"exit") {
        let step = world.next();
        if matches!(step, RestoreStep::TerminateReplacement(_)) {
            changes.push("drop");
        } else if matches!(step, RestoreStep::ExitStandby { .. }) {
            changes.push("exit");
        }
        world.take(&step);
    }
    assert_eq!((changes, world.group.desired), (vec!["drop", "exit"], 3));
    world.group.desired = 2;
    world
        .group
        .members
        .retain(|member| member.lifecycle_state != "Pending");
    let (changes, end) = world.finish();
    assert_eq!(changes, ["raise"]);
    assert_eq!((end, world.group.desired), (RestoreStep::Done(None), 3));
}

#[test]
fn a_node_that_is_lost_or_in_a_foreign_standby_is_only_reported() {
    let with = |change: &dyn Fn(&mut World)| {
        let mut world = World::new(FREE);
        change(&mut world);
        world.next()
    };
    let cases = [
        (
            "terminated and about to be replaced",
            with(&|world| {
                "terminated".clone_into(&mut world.instance.state);
                "InService".clone_into(&mut world.group.members[0].lifecycle_state);
            }),
        ),
        ("out of the group", with(&|world| world.group.members.clear())),
        (
            "terminating",
            with(&|world| "Terminating:Wait".clone_into(&mut world.group.members[0].lifecycle_state)),
        ),
        (
            "without a Node",
            with(&|world| world.kubernetes = KubernetesHalf::Vanished),
        ),
        (
            "the Standby of another tool",
            with(&|world| world.has_entered_standby = false),
        ),
    ];
    for (name, step) in cases {
        assert_eq!(step, RestoreStep::Report(None), "{name}");
    }
    assert_eq!(
        with(&|world| {
            world.kubernetes = KubernetesHalf::Undo;
            world.has_entered_standby = false;
        }),
        RestoreStep::UndoKubernetes,
        "the Node is cleaned up all the same"
    );
    assert_eq!(
        with(&|world| {
            world.is_lost = true;
            world.protected = vec![id(OTHER)];
        }),
        RestoreStep::Unprotect(vec![id(OTHER)]),
        "the protection is removed whatever the state of the node"
    );
    assert_eq!(
        with(&|world| "stopped".clone_into(&mut world.instance.state)),
        RestoreStep::LeaveInStandby(Stuck::NotRunning("stopped".to_owned()))
    );
}

#[test]
fn a_trim_of_the_group_after_exit_standby_takes_the_empty_replacement() {
    let mut world = World::new(AT_MINIMUM).with_replacement("InService", false);
    for _ in 0..3 {
        let step = world.next();
        world.take(&step);
    }
    world.group.desired = 2;
    assert!(
        matches!(world.next(), RestoreStep::Wait(..)),
        "{:?}",
        world.next()
    );
    world.group.members.retain(|member| member.instance != id(NEW));
    world.new_members = Some(Vec::new());
    let (changes, end) = world.finish();
    assert!(changes.is_empty(), "{changes:?}");
    assert_eq!(end, RestoreStep::Done(None));
}

#[test]
fn a_replacement_that_leaves_is_not_released() {
    let mut world = World::new(AT_MINIMUM).with_replacement("Terminating", false);
    "InService".clone_into(&mut world.group.members[0].lifecycle_state);
    let node = world.new_member_mut().node.as_mut().unwrap();
    node.annotations
        .insert(CORDONED_FOR_ANNOTATION.to_owned(), OLD.to_owned());
    assert_eq!(world.next(), RestoreStep::Done(None));
    "InService".clone_into(&mut world.new_member_mut().lifecycle_state);
    assert!(matches!(world.next(), RestoreStep::ReleaseReplacements { .. }));
}

#[test]
fn a_replacement_stays_reserved_for_a_node_that_is_left_in_standby() {
    let world = |sizes, annotations: &[&str]| {
        let mut world = World::new(sizes).with_replacement("InService", true);
        let node = world.new_member_mut().node.as_mut().unwrap();
        node.annotations
            .extend(annotations.iter().map(|key| ((*key).to_owned(), OLD.to_owned())));
        node.unschedulable = annotations.contains(&CORDONED_FOR_ANNOTATION);
        for member in &mut world.group.members {
            member.protected_from_scale_in = true;
        }
        world
    };
    let release = |reservation| RestoreStep::ReleaseReplacements {
        new_members: vec![id(NEW)],
        reservation,
    };
    let stuck = RestoreStep::LeaveInStandby(Stuck::AtMaximum);
    let both = [CORDONED_FOR_ANNOTATION, REPLACEMENT_FOR_ANNOTATION];

    assert_eq!(world(FIXED, &[REPLACEMENT_FOR_ANNOTATION]).next(), stuck);
    assert_eq!(
        world(FIXED, &both).next(),
        release(false),
        "its cordon goes all the same"
    );

    let back = |annotations| {
        let mut world = world(FREE, annotations);
        let exit = world.next();
        assert_eq!(exit, RestoreStep::ExitStandby { from: 2 });
        world.take(&exit);
        world.next()
    };
    assert_eq!(back(&[REPLACEMENT_FOR_ANNOTATION]), release(true));
    assert_eq!(back(&both), release(true));
}

#[test]
fn if_an_operator_returns_the_node_to_service_its_group_keeps_its_size() {
    let mut world = World::new((1, 3, 4)).with_replacement("InService", false);
    "InService".clone_into(&mut world.group.members[0].lifecycle_state);
    assert_eq!(world.next(), RestoreStep::Done(None));
}

#[test]
fn if_the_cluster_stays_unreachable_the_group_is_restored_without_it() {
    let mut world = World::new(FREE);
    world.kubernetes = KubernetesHalf::Unseen;
    world.new_members = None;
    assert!(matches!(world.next(), RestoreStep::Wait(..)));
    world.waited = i64::from(CLUSTER_PATIENCE);
    for _ in 0..2 {
        let step = world.next();
        world.take(&step);
    }
    assert_eq!(world.group_changes.to_string(), "exit:2");
    world.waited = i64::from(PATIENCE);
    let note = "group workers is one larger than before, desired capacity 3: it is unknown whether its replacement has pods";
    assert_eq!(
        world.finish(),
        (vec![], RestoreStep::Report(Some(note.to_owned())))
    );
}

#[test]
fn a_restore_that_takes_too_long_ends_in_standby() {
    let mut entering = World::new(FREE);
    "EnteringStandby".clone_into(&mut entering.group.members[0].lifecycle_state);
    assert!(matches!(entering.next(), RestoreStep::Wait(..)));
    for mut world in [entering, World::new(FREE)] {
        for (waited, steps, is_over) in [
            (PATIENCE - 1, MOST_STEPS - 1, false),
            (PATIENCE, 0, true),
            (0, MOST_STEPS, true),
        ] {
            (world.waited, world.steps) = (i64::from(waited), steps);
            let is_left = world.next() == RestoreStep::LeaveInStandby(Stuck::TooLong);
            assert_eq!(is_left, is_over, "{waited} {steps}");
        }
    }
}

#[test]
fn group_changes_are_read_as_they_were_written() {
    let group_changes = GroupChanges::default()
        .with(GroupChange::Lower(3))
        .with(GroupChange::Lower(4))
        .with(GroupChange::Exit(3))
        .with(GroupChange::Terminate(id(NEW)));
    let text = group_changes.to_string();
    assert_eq!(text, format!("lower:4 exit:3 terminate:{NEW}"));
    assert_eq!(text.parse(), Ok(group_changes));
    for wrong in ["lower", "lower:x", "exit:-1", "dance:3"] {
        assert!(wrong.parse::<GroupChanges>().is_err(), "{wrong}");
    }
}

fn own() -> Taint {
    Taint {
        value: Some(OLD.to_owned()),
        ..taint(DRAINING_TAINT, "NoSchedule")
    }
}

/// A node as an execution left it: tainted, cordoned, out of the balancers.
fn drained() -> NodeFacts {
    let record = Record {
        schema: 1,
        members_before: vec![id(OLD)],
        tainted_at: Some(at(0)),
        excluded_at: Some(at(60)),
        ..Record::default()
    };
    with_record(&record)
}

fn with_record(record: &Record) -> NodeFacts {
    let mut node = claimed(node("old"), Phase::Disposing, record);
    node.taints = vec![
        taint("team", "NoSchedule"),
        own(),
        taint(REQUEST_TAINT, "NoExecute"),
    ];
    node.unschedulable = true;
    node.cordoned_by = Some(FIELD_MANAGER.to_owned());
    node.labels = strings([(EXCLUDE_FROM_BALANCERS_LABEL, EXCLUDED)]);
    node.annotations
        .insert(PROGRESS_ANNOTATION.to_owned(), "{}".to_owned());
    node
}

#[test]
fn all_changes_of_an_execution_are_undone_at_once_and_cleared_from_the_record() {
    let undo = undo_kubernetes(&drained(), &own(), false).unwrap();
    assert_eq!(
        undo,
        Undo {
            taints: Some(vec![taint("team", "NoSchedule")]),
            uncordon: true,
            annotations: vec![PROGRESS_ANNOTATION],
            remove_label: true,
            scale_down: ScaleDown::Keep,
            record: Some(Record {
                schema: 1,
                members_before: vec![id(OLD)],
                ..Record::default()
            }),
        }
    );
    let mut clean = claimed(node("old"), Phase::Standby, undo.record.as_ref().unwrap());
    clean.unschedulable = true;
    assert_eq!(
        undo_kubernetes(&clean, &own(), false),
        None,
        "a later cordon is an operator's"
    );
    for alone in [PROGRESS_ANNOTATION, DRAIN_UNTIL_ANNOTATION] {
        let mut node = clean.clone();
        node.annotations.insert(alone.to_owned(), "{}".to_owned());
        let undo = undo_kubernetes(&node, &own(), false);
        assert_eq!(undo.map(|undo| undo.annotations), Some(vec![alone]));
    }
    for (taint, is_undone) in [(own(), true), (taint("team", "NoSchedule"), false)] {
        clean.taints = vec![taint];
        assert_eq!(undo_kubernetes(&clean, &own(), false).is_some(), is_undone);
    }
}

#[test]
fn the_earlier_state_of_a_node_is_cleared_from_its_record() {
    let before = Record {
        was_unschedulable: true,
        excluded_before: Some("mine".to_owned()),
        kept: true,
        kept_before: Some("false".to_owned()),
        ..drained().record().unwrap()
    };
    assert_eq!(
        undo_kubernetes(&with_record(&before), &own(), false)
            .unwrap()
            .record,
        Some(Record {
            schema: 1,
            members_before: vec![id(OLD)],
            ..Record::default()
        })
    );
}

/// Cluster Autoscaler lists members in Standby, terminates one whose Node is gone or not needed, and makes the group smaller.
#[test]
fn a_node_is_kept_from_cluster_autoscaler_until_it_is_out_of_standby() {
    for before in [None, Some("false".to_owned())] {
        let record = Record {
            kept: true,
            kept_before: before.clone(),
            ..drained().record().unwrap()
        };
        let mut node = with_record(&record);
        node.annotations
            .insert(SCALE_DOWN_DISABLED_ANNOTATION.to_owned(), "true".to_owned());
        let undo = undo_kubernetes(&node, &own(), true).unwrap();
        let left = undo.record.unwrap();
        assert_eq!(
            (undo.scale_down, left.kept, &left.kept_before),
            (ScaleDown::Keep, true, &before)
        );
        let mut clean = claimed(node, Phase::Standby, &left);
        clean.annotations.remove(PROGRESS_ANNOTATION);
        clean.taints = Vec::new();
        clean.unschedulable = false;
        clean.labels = strings([]);
        assert_eq!(undo_kubernetes(&clean, &own(), true), None, "the rest is done");
        let undo = undo_kubernetes(&clean, &own(), false).unwrap();
        assert_eq!(
            (undo.scale_down, undo.record.unwrap().kept),
            (before.map_or(ScaleDown::Remove, ScaleDown::Set), false)
        );
    }
}

/// An operator may delete the Lease, and the record with it.
#[test]
fn without_its_record_a_node_is_released_to_cluster_autoscaler_by_the_value_beside_the_annotation() {
    let mut node = with_record(&Record::default());
    node.annotations.extend(strings([
        (SCALE_DOWN_DISABLED_ANNOTATION, "true"),
        (KEPT_BEFORE_ANNOTATION, ""),
    ]));
    let in_standby = undo_kubernetes(&node, &own(), true).unwrap();
    assert_eq!(in_standby.scale_down, ScaleDown::Keep);
    assert!(!in_standby.annotations.contains(&KEPT_BEFORE_ANNOTATION));
    let undo = undo_kubernetes(&node, &own(), false).unwrap();
    assert_eq!(undo.scale_down, ScaleDown::Remove);
    assert!(undo.annotations.contains(&KEPT_BEFORE_ANNOTATION));
    assert!(undo.uncordon, "no other field manager has cordoned it");
    let by_operator = NodeFacts {
        cordoned_by: Some("kubectl-cordon".to_owned()),
        ..node.clone()
    };
    assert!(!undo_kubernetes(&by_operator, &own(), false).unwrap().uncordon);
    let by_unknown = NodeFacts {
        cordoned_by: None,
        ..node.clone()
    };
    assert!(!undo_kubernetes(&by_unknown, &own(), false).unwrap().uncordon);
    let stopped = NodeFacts {
        taints: vec![stopped_taint(&id(OLD))],
        ..node.clone()
    };
    assert!(!undo_kubernetes(&stopped, &own(), false).unwrap().uncordon);
    node.annotations
        .extend(strings([(CORDONED_FOR_ANNOTATION, OTHER)]));
    assert!(!undo_kubernetes(&node, &own(), false).unwrap().uncordon);
}

#[test]
fn only_unchanged_values_of_an_execution_are_undone() {
    let record = || drained().record().unwrap();
    let undo = |node: &NodeFacts| undo_kubernetes(node, &own(), false).unwrap();

    let was_cordoned = with_record(&Record {
        was_unschedulable: true,
        ..record()
    });
    assert!(!undo(&was_cordoned).uncordon, "cordoned before");
    let by_operator = NodeFacts {
        cordoned_by: Some("kubectl-cordon".to_owned()),
        ..drained()
    };
    assert!(!undo(&by_operator).uncordon, "cordoned by an operator since");
    let uncordoned = NodeFacts {
        unschedulable: false,
        ..drained()
    };
    assert!(!undo(&uncordoned).uncordon, "uncordoned by an operator");
    let theirs = NodeFacts {
        taints: vec![Taint {
            value: Some("mine".to_owned()),
            ..own()
        }],
        ..drained()
    };
    assert_eq!(undo(&theirs).taints, None, "a taint of another value");
    let had_label = with_record(&Record {
        excluded_before: Some(EXCLUDED.to_owned()),
        ..record()
    });
    assert!(!undo(&had_label).remove_label, "labelled before");
    let mut relabelled = drained();
    relabelled.labels = strings([(EXCLUDE_FROM_BALANCERS_LABEL, "mine")]);
    assert!(!undo(&relabelled).remove_label, "labelled by another tool");
    let earlier = with_record(&Record {
        excluded_at: None,
        ..record()
    });
    assert!(!undo(&earlier).remove_label, "not set by the execution");
    let kept = |before: Option<&str>, now: &str| {
        let mut node = with_record(&Record {
            kept: true,
            kept_before: before.map(str::to_owned),
            ..record()
        });
        node.annotations
            .insert(SCALE_DOWN_DISABLED_ANNOTATION.to_owned(), now.to_owned());
        undo(&node)
    };
    assert_eq!(
        kept(None, "true").scale_down,
        ScaleDown::Remove,
        "nothing was there before"
    );
    assert_eq!(
        kept(Some("false"), "true").scale_down,
        ScaleDown::Set("false".to_owned())
    );
    assert_eq!(
        kept(None, "false").scale_down,
        ScaleDown::Keep,
        "changed by an operator since"
    );
    assert!(!kept(None, "true").record.unwrap().kept);

    let edited = leased(drained(), [(crate::base::names::RECORD_ANNOTATION, "mine")]);
    let undo = undo(&edited);
    assert!(undo.taints.is_some(), "the taint names its owner");
    assert_eq!(
        (undo.uncordon, undo.remove_label, undo.record),
        (false, false, None)
    );
}

#[test]
fn two_restores_of_a_group_change_its_size_one_after_the_other() {
    let mut world = World::new(FREE);
    world.restoring_since = None;
    assert_eq!(world.next(), RestoreStep::Queue);
    world.take(&RestoreStep::Queue);
    world.ahead = Some("first".parse().unwrap());
    assert!(matches!(world.next(), RestoreStep::Wait(STEP_WAIT, reason) if reason.contains("node first")));
    world.waited = i64::from(LINE_PATIENCE);
    assert!(matches!(world.next(), RestoreStep::Protect(_)), "not for ever");
    world.waited = 0;
    world.kubernetes = KubernetesHalf::Unseen;
    world.waited = i64::from(CLUSTER_PATIENCE);
    assert!(
        !matches!(world.next(), RestoreStep::Queue),
        "a restore that sees no Nodes does not wait for other restores"
    );
    let mut stuck = World::new(FIXED);
    stuck.restoring_since = None;
    stuck.ahead = Some("first".parse().unwrap());
    assert_eq!(
        stuck.next(),
        RestoreStep::LeaveInStandby(Stuck::AtMaximum),
        "a restore that changes no size does not wait for other restores"
    );
}

#[test]
fn a_restore_waits_only_for_a_member_that_an_execution_puts_into_standby() {
    let mut world = World::new(FREE);
    "EnteringStandby".clone_into(&mut world.member_mut(&id(OLD)).lifecycle_state);
    assert!(
        matches!(world.next(), RestoreStep::Wait(..)),
        "{:?}",
        world.next()
    );
    world.has_entered_standby = false;
    assert_eq!(world.next(), RestoreStep::Report(None));
}

#[test]
fn a_restore_waits_for_a_launch_before_it_lowers_the_desired_capacity() {
    let mut world = World::new(AT_MINIMUM).with_replacement("Pending", false);
    for expected in [
        RestoreStep::Protect(vec![id(OLD), id(OTHER)]),
        RestoreStep::ExitStandby { from: 2 },
    ] {
        assert_eq!(world.next(), expected);
        world.take(&expected);
    }
    assert!(
        matches!(world.next(), RestoreStep::Wait(LONG_WAIT, why) if why.contains("still being launched"))
    );
}

#[test]
fn a_group_at_its_desired_capacity_is_not_made_smaller() {
    let mut world = World::new(FREE);
    world.group.members.push(member(NEW, "InService"));
    let (changes, end) = world.finish();
    assert_eq!((changes, world.group.desired), (vec!["exit"], 3));
    assert!(matches!(end, RestoreStep::Done(Some(_))), "{end:?}");
}

#[test]
fn a_member_reserved_for_another_node_is_not_the_replacement() {
    for (owner, changes) in [(OLD, vec!["exit"]), (OTHER, vec!["lower", "exit"])] {
        let mut world = World::new(FREE).with_replacement("Pending", true);
        let reserved = strings([(REPLACEMENT_FOR_ANNOTATION, owner)]);
        world.new_member_mut().node.as_mut().unwrap().annotations = reserved;
        assert_eq!(world.finish().0, changes, "{owner}");
    }
}

#[test]
fn protection_stays_until_the_group_has_no_member_too_many() {
    let mut world = World::new(FREE).with_replacement("Pending", false);
    for member in [OLD, OTHER] {
        let member = world.member_mut(&id(member));
        "InService".clone_into(&mut member.lifecycle_state);
        member.protected_from_scale_in = true;
        let member = member.instance.clone();
        world.protected.push(member);
    }
    assert!(matches!(world.next(), RestoreStep::Wait(LONG_WAIT, why) if why.contains("one member too many")));
    world.group.desired = 3;
    assert_eq!(world.next(), RestoreStep::Unprotect(vec![id(OLD), id(OTHER)]));
}

#[test]
fn a_refused_restore_is_attempted_again_after_hours_and_a_stuck_one_as_soon_as_it_can_continue() {
    let end = RestoreStep::LeaveInStandby(Stuck::AtMaximum);
    let way = RestoreStep::ExitStandby { from: 2 };
    let gave_up = |was_refused| GaveUp {
        at: at(0),
        was_refused,
    };
    assert!(gave_up(false).is_final(&end, at(9_999_999)));
    assert!(!gave_up(false).is_final(&way, at(1)));
    assert!(gave_up(true).is_final(&way, at(6 * 3_600 - 1)));
    assert!(!gave_up(true).is_final(&way, at(6 * 3_600)));
    assert!(!gave_up(true).is_final(&way, at(-1)), "a time in the future");
    for was_refused in [false, true] {
        assert_eq!(
            gave_up(was_refused).to_string().parse::<GaveUp>().unwrap(),
            gave_up(was_refused)
        );
    }
}

proptest! {
    /// The restore ends from any sizes and any replacement, even with a crash between any two steps.
    /// AWS refuses none of its calls, and no member stays protected.
    /// The group is as large as before, or one larger if its replacement has pods.
    #[test]
    fn any_restore_ends_and_ends_no_pod(
        min in 0_u32..4,
        more in 0_u32..3,
        room in 0_u32..3,
        replacement in prop::option::of((prop::sample::select(vec!["Pending", "InService"]), any::<bool>())),
        lost_answers in prop::collection::vec(any::<bool>(), 30),
    ) {
        let desired = (min + more).max(1);
        let mut world = World::new((min, desired, desired + room));
        world.group.members.retain(|member| member.instance == id(OLD));
        for number in 1..desired {
            world.group.members.push(member(&format!("i-0{number:016x}"), "InService"));
        }
        let has_pods = replacement.is_some_and(|(_, pods)| pods);
        if let Some((state, _)) = replacement {
            world = world.with_replacement(state, has_pods);
        }
        let mut end = None;
        for is_lost in lost_answers {
            let before = world.clone();
            let step = world.next();
            if world.take(&step) {
                end = Some(step);
                break;
            }
            if is_lost && before.group_changes != world.group_changes {
                // The step is recorded and not done: the function died between the two.
                world = World { group_changes: world.group_changes, ..before };
            }
        }
        match end {
            Some(RestoreStep::Done(note)) => {
                prop_assert_eq!(note.is_some(), has_pods);
                prop_assert_eq!(world.group.desired, desired + u32::from(has_pods));
                prop_assert_eq!(&world.group.member(&id(OLD)).unwrap().lifecycle_state, "InService");
            }
            Some(RestoreStep::LeaveInStandby(Stuck::AtMaximum)) => {
                prop_assert!(room == 0 && (has_pods || desired == min));
                prop_assert_eq!(world.group.desired, desired);
            }
            None => {}
            other => prop_assert!(false, "{:?}", other),
        }
        if end_is_reached(&world) {
            prop_assert!(world.group.members.iter().all(|member| !member.protected_from_scale_in));
            prop_assert!(!has_pods || world.group.member(&id(NEW)).is_some());
        }
    }
}

fn end_is_reached(world: &World) -> bool {
    matches!(
        world.next(),
        RestoreStep::Done(_) | RestoreStep::LeaveInStandby(_) | RestoreStep::Report(_)
    )
}

#[test]
fn an_instance_that_was_stopped_is_not_touched_and_one_on_its_way_into_service_is_awaited() {
    let mut stopped = World::new(AT_MINIMUM);
    stopped.instance.state = "stopped".to_owned();
    stopped.instance.tags = strings([("recycle-eks:stopped", "2027-01-01T00:00:00Z")]);
    let foreign = stopped.next();
    stopped.kubernetes = KubernetesHalf::Vanished;
    assert_eq!(stopped.next(), foreign, "its Node was removed with it");
    let mut returning = World::new(AT_MINIMUM);
    "Pending:Wait".clone_into(&mut returning.member_mut(&id(OLD)).lifecycle_state);
    assert!(
        matches!(returning.next(), RestoreStep::Wait(..)),
        "{:?}",
        returning.next()
    );
}
