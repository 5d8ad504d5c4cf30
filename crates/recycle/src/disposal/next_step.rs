//! Decides the steps by which a drained or lost node leaves its group, and how long each step may take.
//! The order is: load balancers, volumes, then terminate, stop or detach.
//!
//! Each decision reads live state, not a memory of earlier steps. A step can therefore be repeated after a crash at any point.
//! This module does not check whether pods are still on the node, or whether the node is lost.

use jiff::Timestamp;

use crate::base::ids::InstanceId;
use crate::base::names::{EXCLUDE_FROM_BALANCERS_LABEL, OUT_OF_SERVICE_TAINT};
use crate::base::poll::next_wait;
use crate::base::text::{NAMES_PER_CLASS, cut_text, list_names};
use crate::cluster::group::Group;
use crate::cluster::hook::{RETAINED, WAITING};
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::input::model::{Dispose, Input};
use crate::input::path::RecyclePath;

/// Seconds to wait for volumes to detach before the instance is disposed of anyway. A detach that takes longer than five minutes hangs.
pub const VOLUME_GRACE: u32 = 300;
/// The length to which a volume's name is cut, in characters. Names of EBS volumes have 21.
const LONGEST_VOLUME: usize = 60;
/// Seconds between two checks of an instance that is leaving.
pub const DISPOSAL_WAIT: u32 = 30;
/// Seconds that an instance may take to leave once nothing holds it: half an hour, several times what EC2 needs.
/// A longer wait is another tool's lifecycle hook, up to 48 h, for which an execution's history has no room.
pub const DISPOSAL_PATIENCE: u32 = 1_800;

#[derive(Debug, Clone, Copy)]
pub struct DisposalFacts<'a> {
    pub id: &'a InstanceId,
    pub dispose: Dispose,
    pub path: RecyclePath,
    /// Whether the instance waits for a lifecycle hook, and its group has the hook of recycle-eks.
    pub waits_for_recycle_eks_hook: bool,
    /// Whether this execution has tagged the instance as stopped or detached.
    /// After the tag only the Node is updated and the claim removed.
    pub was_retired: bool,
    /// Whether the node is lost. Nothing on it can be saved, so its volumes are not waited for.
    /// Its instance is terminated, whatever `dispose` says.
    pub is_lost: bool,
    pub node: Option<&'a NodeFacts>,
    /// The instance; none if EC2 no longer knows it.
    pub instance: Option<&'a Instance>,
    /// The group that the instance was claimed in.
    pub group: Option<&'a Group>,
    /// The instances that the execution protects from scale-in.
    pub protected: &'a [InstanceId],
    /// The desired capacity that the group has without the place that the execution has added (path `surge`); None if it has added none.
    pub raised_from: Option<u32>,
    /// The time at which this execution began to dispose.
    pub since: Timestamp,
    pub now: Timestamp,
    /// Seconds between leaving the load balancers and the end of the instance.
    pub balancer_grace: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisposalStep {
    /// Set the label that takes the node out of load balancers; then wait this many seconds.
    LeaveBalancers(u32),
    /// Wait this many seconds, for this reason.
    Wait(u32, String),
    /// Set the taint by which Kubernetes treats the machine as off and releases its volumes.
    MarkOutOfService,
    /// Call CompleteLifecycleAction for the hook of recycle-eks; then wait this many seconds.
    CompleteHook(u32),
    /// Call TerminateInstanceInAutoScalingGroup without decrement; then wait this many seconds.
    Terminate(u32),
    /// The same with decrement: the group gives up the place that the execution has added.
    Remove(u32),
    /// Call StopInstances on the Standby member; then wait this many seconds.
    Stop(u32),
    /// Protect these members from scale-in, because the group may terminate others on a detach from Standby.
    Protect(Vec<InstanceId>),
    /// Call DetachInstances without decrement; then wait this many seconds.
    Detach(u32),
    /// Remove the execution's protection from these instances.
    Unprotect(Vec<InstanceId>),
    /// The instance is stopped or detached: tag it, update its Node, remove the claim.
    Retire,
    Done,
    /// The instance does not leave; the text says in which state it is instead.
    GiveUp(String),
}

pub fn next_disposal_step(disposal_facts: &DisposalFacts<'_>) -> DisposalStep {
    let timing = Timing::new(
        disposal_facts.since,
        disposal_facts.now,
        disposal_facts.balancer_grace,
    );
    let living = disposal_facts.instance.filter(|instance| !instance.is_gone());
    if disposal_facts.is_lost && living.is_none() && disposal_facts.holds_volumes_while_off() {
        return DisposalStep::MarkOutOfService;
    }
    let Some(lifecycle_state) = disposal_facts.lifecycle_state() else {
        return match living {
            Some(_) if disposal_facts.dispose == Dispose::Detach && !disposal_facts.is_lost => {
                end_detach(disposal_facts, &timing)
            }
            Some(_) | None => unprotect(disposal_facts).unwrap_or(DisposalStep::Done),
        };
    };
    if lifecycle_state.starts_with("Terminat") && lifecycle_state != RETAINED {
        if disposal_facts.path == RecyclePath::Hook
            && matches!(lifecycle_state, "Terminating" | WAITING)
            && living.is_some()
            && let Some(step) = find_what_still_holds(disposal_facts, &timing)
        {
            return step;
        }
        // The group does the rest, even if another tool's hook makes it wait.
        return if timing.left() <= 0 {
            unprotect(disposal_facts).unwrap_or(DisposalStep::Done)
        } else if disposal_facts.waits_for_recycle_eks_hook {
            DisposalStep::CompleteHook(timing.wait())
        } else {
            DisposalStep::Wait(timing.wait(), format!("the instance is {lifecycle_state}"))
        };
    }
    let Some(instance) = living else {
        // The group does not check the health of members in Standby, and lists a dead one until it is asked to terminate it.
        return terminate(disposal_facts, lifecycle_state, &timing);
    };
    match disposal_facts.dispose {
        Dispose::Stop if !disposal_facts.is_lost => stop(disposal_facts, instance, lifecycle_state, &timing),
        Dispose::Detach if !disposal_facts.is_lost => detach(disposal_facts, lifecycle_state, &timing),
        Dispose::Terminate | Dispose::Stop | Dispose::Detach => {
            find_what_still_holds(disposal_facts, &timing).unwrap_or_else(|| {
                // The volumes of a lost node stay attached until its machine is off.
                // An operator who stopped the machine may start it again, so the taint is set only right before its end.
                if disposal_facts.is_lost && disposal_facts.holds_volumes_while_off() {
                    DisposalStep::MarkOutOfService
                } else {
                    terminate(disposal_facts, lifecycle_state, &timing)
                }
            })
        }
    }
}

/// Returns the seconds for load balancers: the input's, but at most half of the time that EC2 leaves to an interrupted instance.
/// The other half is for the group, to replace the instance before it goes.
pub fn find_balancer_grace(input: &Input, now: Timestamp) -> u32 {
    let half_of = |end: Timestamp| end.duration_since(now).as_secs().max(0) / 2;
    let left = input.interrupted_at.map(half_of);
    let left = left.map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX));
    input.load_balancer_grace.min(left)
}

/// Returns the seconds to wait before a failed read is repeated, or none if the time of the disposal is over.
pub fn wait_for_answer(since: Timestamp, now: Timestamp, balancer_grace: u32) -> Option<u32> {
    let timing = Timing::new(since, now, balancer_grace);
    (timing.left() > 0).then(|| timing.wait())
}

impl DisposalFacts<'_> {
    fn lifecycle_state(&self) -> Option<&str> {
        self.group?.state_of(self.id)
    }

    /// Whether the group still has the place that the execution has added, and may become one smaller.
    fn gives_up_a_place(&self) -> bool {
        let may_shrink = |from: u32| {
            self.group
                .is_some_and(|group| group.desired > from && group.desired > group.min)
        };
        self.raised_from.is_some_and(may_shrink)
    }

    /// Whether [`DisposalStep::Retire`] has been taken.
    fn has_retired(&self) -> bool {
        self.was_retired && self.node.is_none_or(|node| node.claim().is_none())
    }

    /// Whether EC2 says that the machine is off while Kubernetes still counts volumes as attached to it, and the taint is not set yet.
    /// While the machine runs, a pod elsewhere could write to a volume that this machine still has.
    fn holds_volumes_while_off(&self) -> bool {
        let is_off = self
            .instance
            .is_none_or(|instance| matches!(instance.state.as_str(), "stopped" | "terminated"));
        let waits_for_taint = |node: &NodeFacts| {
            !node.volumes.is_empty() && node.taints.iter().all(|taint| taint.key != OUT_OF_SERVICE_TAINT)
        };
        is_off && self.node.is_some_and(waits_for_taint)
    }
}

struct Timing {
    /// Seconds since the disposal began.
    waited: i64,
    balancer_grace: u32,
    now: Timestamp,
}

impl Timing {
    fn new(since: Timestamp, now: Timestamp, balancer_grace: u32) -> Self {
        Self {
            waited: now.duration_since(since).as_secs(),
            balancer_grace,
            now,
        }
    }

    /// Returns the seconds until the time of the disposal is over.
    fn left(&self) -> i64 {
        i64::from(self.balancer_grace) + i64::from(VOLUME_GRACE + DISPOSAL_PATIENCE) - self.waited
    }

    fn wait(&self) -> u32 {
        next_wait(self.waited, self.left().max(i64::from(DISPOSAL_WAIT)), 0, None)
    }

    fn wait_or_give_up(&self, state: String) -> DisposalStep {
        if self.left() > 0 {
            DisposalStep::Wait(self.wait(), state)
        } else {
            DisposalStep::GiveUp(format!("{state} after {} seconds", self.waited))
        }
    }
}

/// Finds what still holds an instance that is to be terminated.
/// The volumes of a lost node are left out, because they stay attached until its machine is off.
fn find_what_still_holds(disposal_facts: &DisposalFacts<'_>, timing: &Timing) -> Option<DisposalStep> {
    if disposal_facts.is_lost {
        find_balancer_step(disposal_facts.node, timing)
    } else {
        find_what_holds(disposal_facts.node, timing)
    }
}

/// Finds what holds the instance, balancers first, then volumes. None if neither holds it.
fn find_what_holds(node: Option<&NodeFacts>, timing: &Timing) -> Option<DisposalStep> {
    find_balancer_step(node, timing).or_else(|| {
        let node = node.filter(|node| !node.volumes.is_empty())?;
        let left = i64::from(timing.balancer_grace) + i64::from(VOLUME_GRACE) - timing.waited;
        let reason = format!("volumes are still attached ({})", name_volumes(node));
        (left > 0).then(|| DisposalStep::Wait(next_wait(timing.waited, left, 0, None), reason))
    })
}

/// Returns the next step for the load balancers: set the label, then wait for the grace period. None if both are done. If the node already
/// had the label before the execution, there is nothing to wait for.
fn find_balancer_step(node: Option<&NodeFacts>, timing: &Timing) -> Option<DisposalStep> {
    let node = node?;
    if !node.labels.contains_key(EXCLUDE_FROM_BALANCERS_LABEL) {
        return Some(DisposalStep::LeaveBalancers(timing.balancer_grace.max(1)));
    }
    // An unreadable record counts as none.
    let record = node.record().unwrap_or_default();
    // The grace period begins with the label. Time in which the label could not be set does not count.
    let excluded_since = |at| timing.now.duration_since(at).as_secs();
    let grace_left =
        i64::from(timing.balancer_grace) - record.excluded_at.map_or(timing.waited, excluded_since);
    (record.excluded_before.is_none() && grace_left > 0).then(|| {
        DisposalStep::Wait(
            u32::try_from(grace_left).unwrap_or(0),
            "load balancers get time to stop sending traffic to the node".to_owned(),
        )
    })
}

/// Describes the volumes that are still attached when the instance goes, although their time is over. None if there are none.
pub fn describe_volumes_left(node: Option<&NodeFacts>) -> Option<String> {
    let node = node.filter(|node| !node.volumes.is_empty())?;
    Some(format!(
        "with volumes that have not been detached in {VOLUME_GRACE} seconds ({}): a pod that needs one may have to wait until EC2 has \
         detached it",
        name_volumes(node)
    ))
}

/// Names the first five volumes by the name that the cloud gives them: `vol-1` for `kubernetes.io/csi/ebs.csi.aws.com^vol-1`.
fn name_volumes(node: &NodeFacts) -> String {
    let short = |name: &String| {
        let mut name = name.rsplit(['^', '/']).next().unwrap_or(name).to_owned();
        cut_text(&mut name, LONGEST_VOLUME);
        name
    };
    let names: Vec<String> = node.volumes.iter().take(NAMES_PER_CLASS).map(short).collect();
    list_names(&names, node.volumes.len())
}

fn terminate(disposal_facts: &DisposalFacts<'_>, lifecycle_state: &str, timing: &Timing) -> DisposalStep {
    match lifecycle_state {
        "InService" if disposal_facts.gives_up_a_place() => DisposalStep::Remove(DISPOSAL_WAIT),
        // Retained: after a hook was abandoned, the group keeps the instance until this call.
        "Standby" | "InService" | RETAINED => DisposalStep::Terminate(DISPOSAL_WAIT),
        _ => timing.wait_or_give_up(format!("the instance is {lifecycle_state}")),
    }
}

fn stop(
    disposal_facts: &DisposalFacts<'_>,
    instance: &Instance,
    lifecycle_state: &str,
    timing: &Timing,
) -> DisposalStep {
    match instance.state.as_str() {
        "stopped" if disposal_facts.has_retired() => DisposalStep::Done,
        "stopped" => DisposalStep::Retire,
        "running" if lifecycle_state == "Standby" => {
            find_what_holds(disposal_facts.node, timing).unwrap_or(DisposalStep::Stop(DISPOSAL_WAIT))
        }
        // If a member in service were stopped, the group would replace it once more.
        "running" => timing.wait_or_give_up(format!(
            "the instance is {lifecycle_state} and no longer in Standby"
        )),
        state => timing.wait_or_give_up(format!("the instance is {state}")),
    }
}

/// Returns the next step of a detach.
/// The members in service are protected before the call, so that the group cannot terminate one of them for it.
fn detach(disposal_facts: &DisposalFacts<'_>, lifecycle_state: &str, timing: &Timing) -> DisposalStep {
    match lifecycle_state {
        "Standby" => find_what_holds(disposal_facts.node, timing).unwrap_or_else(|| {
            let exposed = disposal_facts.group.map(|group| group.find_exposed(None));
            match exposed.filter(|exposed| !exposed.is_empty()) {
                Some(exposed) => DisposalStep::Protect(exposed),
                None => DisposalStep::Detach(DISPOSAL_WAIT),
            }
        }),
        "Detaching" => timing.wait_or_give_up("the instance is Detaching".to_owned()),
        _ => timing.wait_or_give_up(format!(
            "the instance is {lifecycle_state} and no longer in Standby"
        )),
    }
}

/// Ends the detach of an instance that is out of its group.
/// The protection is removed when the group has as many members as it wants, or the time is over. The claim is removed last.
fn end_detach(disposal_facts: &DisposalFacts<'_>, timing: &Timing) -> DisposalStep {
    let is_settled = disposal_facts
        .group
        .is_none_or(|group| group.pending() == 0 && group.in_service() == group.desired);
    if !disposal_facts.protected.is_empty() && !is_settled && timing.left() > 0 {
        return DisposalStep::Wait(
            timing.wait(),
            "its group does not have its desired number of members in service yet; they stay protected from scale-in until then".to_owned(),
        );
    }
    // A repeated call finds nothing that it may change: the claim is gone, and an operator investigates the instance.
    let last = if disposal_facts.has_retired() {
        DisposalStep::Done
    } else {
        DisposalStep::Retire
    };
    unprotect(disposal_facts).unwrap_or(last)
}

fn unprotect(disposal_facts: &DisposalFacts<'_>) -> Option<DisposalStep> {
    let protected = disposal_facts.group.map_or_else(
        || disposal_facts.protected.to_vec(),
        |group| group.find_unprotectable(disposal_facts.protected),
    );
    (!protected.is_empty()).then_some(DisposalStep::Unprotect(protected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{DETACHED_TAG, STOPPED_TAG};
    use crate::cluster::group::Member;
    use crate::cluster::node::out_of_service_taint;
    use crate::fixtures::{OLD, OTHER, at, claimed, group, id, instance, leased, member, node, strings};
    use crate::records::claim::Phase;
    use crate::records::node_record::Record;

    fn out_of_balancers() -> NodeFacts {
        NodeFacts {
            labels: strings([(EXCLUDE_FROM_BALANCERS_LABEL, "true")]),
            ..node("old")
        }
    }

    fn with_volume() -> NodeFacts {
        NodeFacts {
            volumes: vec!["vol-1".to_owned()],
            ..out_of_balancers()
        }
    }

    #[test]
    fn a_failed_read_is_repeated_until_the_time_of_the_disposal_is_over() {
        let patience = i64::from(60 + VOLUME_GRACE + DISPOSAL_PATIENCE);
        let wait = |seconds: i64| wait_for_answer(at(0), at(seconds), 60);
        assert!(wait(0).is_some_and(|wait| wait > 0));
        assert!(wait(patience - 1).is_some());
        assert_eq!((wait(patience), wait(patience + 1)), (None, None));
    }

    #[test]
    fn volumes_that_are_still_attached_are_named() {
        assert_eq!(describe_volumes_left(None), None);
        assert_eq!(describe_volumes_left(Some(&node("old"))), None);
        let of = |count: usize| {
            let volumes = (0..count).map(|number| format!("kubernetes.io/csi/ebs.csi.aws.com^vol-{number}"));
            NodeFacts {
                volumes: volumes.collect(),
                ..node("old")
            }
        };
        for (count, more) in [(5, ""), (6, ", …")] {
            let text = describe_volumes_left(Some(&of(count))).unwrap();
            let named = format!(
                "with volumes that have not been detached in 300 seconds (vol-0, vol-1, vol-2, vol-3, vol-4{more}): "
            );
            assert!(text.starts_with(&named), "{text}");
        }
        let endless = NodeFacts {
            volumes: vec!["x".repeat(5_000)],
            ..node("old")
        };
        assert!(describe_volumes_left(Some(&endless)).unwrap().len() < 300);
    }

    fn in_state(state: &str) -> Instance {
        Instance {
            state: state.to_owned(),
            ..instance()
        }
    }

    fn retired() -> Instance {
        Instance {
            tags: strings([(STOPPED_TAG, "2027-01-01T00:00:00Z")]),
            ..in_state("stopped")
        }
    }

    /// Returns the step with a grace of a minute.
    fn step(
        dispose: Dispose,
        node: Option<&NodeFacts>,
        instance: Option<&Instance>,
        lifecycle_state: Option<&str>,
        now: i64,
    ) -> DisposalStep {
        let group = holding(lifecycle_state);
        let old = id(OLD);
        next_disposal_step(&disposal_facts(&old, dispose, node, instance, &group, now))
    }

    /// Returns the group with the instance in this lifecycle state and all other members protected.
    fn holding(lifecycle_state: Option<&str>) -> Group {
        let protected = Member {
            protected_from_scale_in: true,
            ..member(OTHER, "InService")
        };
        let own = lifecycle_state.map(|state| member(OLD, state));
        Group {
            desired: 1,
            members: own.into_iter().chain([protected]).collect(),
            ..group()
        }
    }

    /// Returns the facts of an instance on the path `before`, with a grace of a minute.
    fn disposal_facts<'a>(
        id: &'a InstanceId,
        dispose: Dispose,
        node: Option<&'a NodeFacts>,
        instance: Option<&'a Instance>,
        group: &'a Group,
        now: i64,
    ) -> DisposalFacts<'a> {
        DisposalFacts {
            id,
            dispose,
            path: RecyclePath::Before,
            waits_for_recycle_eks_hook: false,
            was_retired: instance.is_some_and(|instance| !instance.tags.is_empty()),
            is_lost: false,
            node,
            instance,
            group: Some(group),
            protected: &[],
            raised_from: None,
            since: at(0),
            now: at(now),
            balancer_grace: 60,
        }
    }

    #[test]
    fn a_node_leaves_balancers_and_volumes_before_it_goes() {
        let running = instance();
        let excluded_before = claimed(
            with_volume(),
            Phase::Disposing,
            &Record {
                excluded_before: Some("true".to_owned()),
                ..Record::default()
            },
        );
        let not_held = NodeFacts {
            volumes: Vec::new(),
            ..excluded_before.clone()
        };
        for (dispose, goes) in [
            (Dispose::Terminate, DisposalStep::Terminate(DISPOSAL_WAIT)),
            (Dispose::Stop, DisposalStep::Stop(DISPOSAL_WAIT)),
            (Dispose::Detach, DisposalStep::Detach(DISPOSAL_WAIT)),
        ] {
            let cases = [
                (
                    "first the label",
                    Some(node("old")),
                    0,
                    DisposalStep::LeaveBalancers(60),
                ),
                (
                    "the label, even late",
                    Some(node("old")),
                    9_999,
                    DisposalStep::LeaveBalancers(60),
                ),
                (
                    "then the grace period",
                    Some(out_of_balancers()),
                    20,
                    DisposalStep::Wait(
                        40,
                        "load balancers get time to stop sending traffic to the node".to_owned(),
                    ),
                ),
                (
                    "then the volumes",
                    Some(with_volume()),
                    60,
                    DisposalStep::Wait(30, "volumes are still attached (vol-1)".to_owned()),
                ),
                (
                    "volumes for five minutes only",
                    Some(with_volume()),
                    360,
                    goes.clone(),
                ),
                (
                    "without volumes at once",
                    Some(out_of_balancers()),
                    60,
                    goes.clone(),
                ),
                (
                    "a node that was out of the balancers before needs no grace period",
                    Some(not_held.clone()),
                    0,
                    goes.clone(),
                ),
                (
                    "without a Node nothing has to be waited for",
                    None,
                    0,
                    goes.clone(),
                ),
            ];
            for (name, node, now, expected) in cases {
                assert_eq!(
                    step(dispose, node.as_ref(), Some(&running), Some("Standby"), now),
                    expected,
                    "{dispose:?}: {name}"
                );
            }
            assert!(
                matches!(
                    step(
                        dispose,
                        Some(&excluded_before),
                        Some(&running),
                        Some("Standby"),
                        0
                    ),
                    DisposalStep::Wait(30, _)
                ),
                "{dispose:?}: its volumes are still waited for"
            );
        }
    }

    #[test]
    fn a_place_that_was_added_goes_with_the_instance_unless_it_is_gone_already() {
        let (old, node, instance) = (id(OLD), out_of_balancers(), instance());
        let (remove, terminate) = (
            DisposalStep::Remove(DISPOSAL_WAIT),
            DisposalStep::Terminate(DISPOSAL_WAIT),
        );
        for (name, raised_from, desired, min, expected) in [
            ("as it was raised", Some(2), 3, 1, &remove),
            ("others have raised it, too", Some(2), 5, 1, &remove),
            ("others have lowered it", Some(2), 2, 1, &terminate),
            ("at its minimum by now", Some(2), 3, 3, &terminate),
            ("never raised", None, 3, 1, &terminate),
        ] {
            for is_lost in [false, true] {
                let group = Group {
                    desired,
                    min,
                    ..holding(Some("InService"))
                };
                let step = next_disposal_step(&DisposalFacts {
                    path: RecyclePath::Surge,
                    raised_from,
                    is_lost,
                    ..disposal_facts(
                        &old,
                        Dispose::Terminate,
                        Some(&node),
                        Some(&instance),
                        &group,
                        9_999,
                    )
                });
                assert_eq!(step, *expected, "{name}, lost: {is_lost}");
            }
        }
    }

    #[test]
    fn no_grace_still_sets_the_label() {
        let (old, node, instance, group) = (id(OLD), node("old"), instance(), holding(Some("Standby")));
        let set = next_disposal_step(&DisposalFacts {
            balancer_grace: 0,
            ..disposal_facts(&old, Dispose::Terminate, Some(&node), Some(&instance), &group, 0)
        });
        assert_eq!(set, DisposalStep::LeaveBalancers(1));
    }

    #[test]
    fn a_detached_instance_is_left_alone_once_its_claim_is_removed() {
        use DisposalStep::{Done, Retire};
        let detached = Instance {
            tags: strings([(DETACHED_TAG, "2027-01-01T00:00:00Z")]),
            ..instance()
        };
        let (free, claimed) = (
            node("old"),
            claimed(node("old"), Phase::Disposing, &Record::default()),
        );
        for (name, node, instance, expected) in [
            ("not tagged", Some(&free), instance(), Retire),
            (
                "its Node is still claimed",
                Some(&claimed),
                detached.clone(),
                Retire,
            ),
            ("all was done", Some(&free), detached.clone(), Done),
            ("without a Node", None, detached, Done),
        ] {
            assert_eq!(
                step(Dispose::Detach, node, Some(&instance), None, 400),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn an_instance_leaves_from_any_lifecycle_state() {
        use DisposalStep::{Done, Retire, Stop, Terminate};
        use Dispose::{Stop as Stopping, Terminate as Terminating};
        let running = || Some(instance());
        let cases = [
            (
                "from Standby",
                Terminating,
                running(),
                Some("Standby"),
                Terminate(30),
            ),
            (
                "from service, if an operator returned it there",
                Terminating,
                running(),
                Some("InService"),
                Terminate(30),
            ),
            (
                "a retained one",
                Terminating,
                running(),
                Some("Terminating:Retained"),
                Terminate(30),
            ),
            ("out of the group", Terminating, running(), None, Done),
            ("out of the group and unknown", Terminating, None, None, Done),
            (
                "out of the group and terminated",
                Terminating,
                Some(in_state("terminated")),
                None,
                Done,
            ),
            (
                "dead but listed in Standby",
                Terminating,
                Some(in_state("terminated")),
                Some("Standby"),
                Terminate(30),
            ),
            (
                "dead though it should be stopped",
                Stopping,
                Some(in_state("shutting-down")),
                Some("Standby"),
                Terminate(30),
            ),
            (
                "forgotten but listed in Standby",
                Stopping,
                None,
                Some("Standby"),
                Terminate(30),
            ),
            (
                "running is stopped",
                Stopping,
                running(),
                Some("Standby"),
                Stop(30),
            ),
            (
                "stopped is retired",
                Stopping,
                Some(in_state("stopped")),
                Some("Standby"),
                Retire,
            ),
            (
                "tagged without its Node is done",
                Stopping,
                Some(retired()),
                Some("Standby"),
                Done,
            ),
        ];
        for (name, dispose, instance, lifecycle_state, expected) in cases {
            assert_eq!(
                step(dispose, None, instance.as_ref(), lifecycle_state, 400),
                expected,
                "{name}"
            );
        }
        for (node, expected) in [
            (
                claimed(out_of_balancers(), Phase::Disposing, &Record::default()),
                Retire,
            ),
            (out_of_balancers(), Done),
        ] {
            let last = step(Stopping, Some(&node), Some(&retired()), Some("Standby"), 400);
            assert_eq!(last, expected, "tagged, and its Node has the claim or not");
        }
    }

    #[test]
    fn waits_have_a_reason_and_a_limit() {
        let last = i64::from(60 + VOLUME_GRACE + DISPOSAL_PATIENCE);
        let cases = [
            (
                "terminating",
                Dispose::Terminate,
                "running",
                "Terminating",
                "the instance is Terminating",
            ),
            (
                "another tool's hook",
                Dispose::Stop,
                "running",
                "Terminating:Wait",
                "the instance is Terminating:Wait",
            ),
            (
                "entering Standby",
                Dispose::Terminate,
                "running",
                "EnteringStandby",
                "the instance is EnteringStandby",
            ),
            (
                "stopping",
                Dispose::Stop,
                "stopping",
                "Standby",
                "the instance is stopping",
            ),
            (
                "returned to service",
                Dispose::Stop,
                "running",
                "InService",
                "the instance is InService and no longer in Standby",
            ),
        ];
        for (name, dispose, state, lifecycle_state, expected) in cases {
            let step = |now| step(dispose, None, Some(&in_state(state)), Some(lifecycle_state), now);
            assert_eq!(step(400), DisposalStep::Wait(30, expected.to_owned()), "{name}");
            let end = if lifecycle_state.starts_with("Terminating") {
                DisposalStep::Done
            } else {
                DisposalStep::GiveUp(format!("{expected} after {last} seconds"))
            };
            assert_eq!(step(last), end, "{name}");
        }
    }

    #[test]
    fn a_lost_node_is_terminated_for_any_disposal_without_waiting_for_its_volumes() {
        let (old, group) = (id(OLD), holding(Some("Standby")));
        let lose = |dispose, node: Option<&NodeFacts>, state: &str, now| {
            let instance = in_state(state);
            next_disposal_step(&DisposalFacts {
                is_lost: true,
                ..disposal_facts(&old, dispose, node, Some(&instance), &group, now)
            })
        };
        let marked = NodeFacts {
            taints: vec![out_of_service_taint()],
            ..with_volume()
        };
        for dispose in [Dispose::Terminate, Dispose::Stop, Dispose::Detach] {
            let terminate = DisposalStep::Terminate(DISPOSAL_WAIT);
            assert_eq!(lose(dispose, None, "running", 0), terminate);
            assert_eq!(
                lose(dispose, Some(&node("old")), "running", 0),
                DisposalStep::LeaveBalancers(60)
            );
            assert_eq!(lose(dispose, Some(&with_volume()), "running", 60), terminate);
            assert_eq!(lose(dispose, Some(&with_volume()), "stopping", 60), terminate);
            // An operator who stopped the instance may start it again, until right before its end.
            let stopped = lose(dispose, Some(&with_volume()), "stopped", 0);
            assert!(matches!(stopped, DisposalStep::Wait(60, _)), "{stopped:?}");
            for (state, waited) in [("stopped", 60), ("terminated", 0)] {
                assert_eq!(
                    lose(dispose, Some(&with_volume()), state, waited),
                    DisposalStep::MarkOutOfService,
                    "{dispose:?} {state}"
                );
            }
            assert_eq!(lose(dispose, Some(&marked), "stopped", 60), terminate);
            assert_eq!(lose(dispose, Some(&marked), "terminated", 0), terminate);
        }
    }

    #[test]
    fn the_grace_period_of_the_balancers_begins_with_the_label() {
        let record = Record {
            schema: crate::records::schema::SCHEMA,
            excluded_at: Some(at(190)),
            ..Record::default()
        };
        let text = serde_json::to_string(&record).unwrap();
        let node = leased(
            out_of_balancers(),
            [(crate::base::names::RECORD_ANNOTATION, &text)],
        );
        let step = step(
            Dispose::Terminate,
            Some(&node),
            Some(&instance()),
            Some("Standby"),
            200,
        );
        assert!(matches!(step, DisposalStep::Wait(50, _)), "{step:?}");
    }

    #[test]
    fn only_a_lost_machine_that_is_off_is_marked_out_of_service() {
        let stopped = step(
            Dispose::Stop,
            Some(&with_volume()),
            Some(&in_state("stopped")),
            Some("Standby"),
            400,
        );
        assert_eq!(stopped, DisposalStep::Retire);
    }

    #[test]
    fn the_other_members_are_protected_during_a_detach_until_the_group_is_complete() {
        let (old, instance, node) = (id(OLD), instance(), out_of_balancers());
        let protected = [id(OTHER)];
        let next = |group: &Group, protected: &[InstanceId], now| {
            next_disposal_step(&DisposalFacts {
                protected,
                ..disposal_facts(&old, Dispose::Detach, Some(&node), Some(&instance), group, now)
            })
        };
        let mut exposed = holding(Some("Standby"));
        exposed.members[1].protected_from_scale_in = false;
        assert_eq!(next(&exposed, &[], 400), DisposalStep::Protect(vec![id(OTHER)]));
        let ready = holding(Some("Standby"));
        assert_eq!(next(&ready, &protected, 400), DisposalStep::Detach(DISPOSAL_WAIT));
        let detaching = next(&holding(Some("Detaching")), &protected, 400);
        assert!(
            matches!(&detaching, DisposalStep::Wait(_, why) if why == "the instance is Detaching"),
            "{detaching:?}"
        );

        let out = holding(None);
        assert_eq!(
            next(&out, &protected, 400),
            DisposalStep::Unprotect(protected.to_vec())
        );
        assert_eq!(next(&out, &[], 400), DisposalStep::Retire);
        for state in ["InService", "Pending"] {
            let mut incomplete = out.clone();
            incomplete.members.push(member(crate::fixtures::NEW, state));
            let waits = next(&incomplete, &protected, 400);
            assert!(matches!(waits, DisposalStep::Wait(..)), "{state}: {waits:?}");
            let left = |now| {
                let detach = disposal_facts(&old, Dispose::Detach, None, None, &incomplete, now);
                Timing::new(detach.since, detach.now, detach.balancer_grace).left()
            };
            let at_last = (400..9_999).find(|now| left(*now) == 0).unwrap();
            let waits = next(&incomplete, &protected, at_last - 1);
            assert!(matches!(waits, DisposalStep::Wait(..)), "{state}: {waits:?}");
            let ends = next(&incomplete, &protected, at_last);
            assert_eq!(ends, DisposalStep::Unprotect(protected.to_vec()), "{state}");
        }
    }

    #[test]
    fn no_member_stays_protected_for_an_instance_that_is_terminated_while_it_leaves() {
        let (old, group, protected) = (id(OLD), holding(None), [id(OTHER)]);
        let dead = in_state("terminated");
        let next = |protected: &[InstanceId]| {
            next_disposal_step(&DisposalFacts {
                protected,
                ..disposal_facts(&old, Dispose::Detach, None, Some(&dead), &group, 400)
            })
        };
        assert_eq!(next(&protected), DisposalStep::Unprotect(protected.to_vec()));
        assert_eq!(next(&[]), DisposalStep::Done);
        // SetInstanceProtection would refuse this member, and with it every other member in the same call.
        let mut with_pending = group.clone();
        "Pending:Wait".clone_into(&mut with_pending.members[0].lifecycle_state);
        let pending = [with_pending.members[0].instance.clone()];
        let step = next_disposal_step(&DisposalFacts {
            protected: &pending,
            ..disposal_facts(&old, Dispose::Detach, None, Some(&dead), &with_pending, 400)
        });
        assert_eq!(step, DisposalStep::Done);
    }

    #[test]
    fn on_the_hook_path_balancers_and_volumes_come_before_the_hook_is_completed() {
        let (old, instance, mut held) = (id(OLD), instance(), group());
        WAITING.clone_into(&mut held.members[0].lifecycle_state);
        let mut out = node("old");
        out.labels
            .insert(EXCLUDE_FROM_BALANCERS_LABEL.to_owned(), "true".to_owned());
        let volume = NodeFacts {
            volumes: vec!["vol-1".to_owned()],
            ..out.clone()
        };
        let step = |path, node: &NodeFacts, is_lost, waits_for_recycle_eks_hook, now| {
            next_disposal_step(&DisposalFacts {
                path,
                is_lost,
                waits_for_recycle_eks_hook,
                ..disposal_facts(&old, Dispose::Terminate, Some(node), Some(&instance), &held, now)
            })
        };
        let complete = |step| matches!(step, DisposalStep::CompleteHook(_));
        let bare = node("old");
        assert_eq!(
            step(RecyclePath::Hook, &bare, false, true, 0),
            DisposalStep::LeaveBalancers(60)
        );
        assert!(matches!(
            step(RecyclePath::Hook, &out, false, true, 30),
            DisposalStep::Wait(30, _)
        ));
        assert!(matches!(
            step(RecyclePath::Hook, &volume, false, true, 100),
            DisposalStep::Wait(..)
        ));
        assert!(complete(step(RecyclePath::Hook, &volume, false, true, 360)));
        assert!(complete(step(RecyclePath::Hook, &out, false, true, 60)));
        assert!(
            complete(step(RecyclePath::Hook, &volume, true, true, 60)),
            "the volumes of a lost node stay attached until it is off"
        );
        // A termination by an execution of recycle-eks, which has already dealt with the pods and the balancers.
        assert!(complete(step(RecyclePath::Before, &bare, false, true, 0)));
        assert!(
            matches!(
                step(RecyclePath::Before, &bare, false, false, 0),
                DisposalStep::Wait(..)
            ),
            "another tool's hook"
        );
        let dead = in_state("terminated");
        let has_ended = next_disposal_step(&DisposalFacts {
            path: RecyclePath::Hook,
            waits_for_recycle_eks_hook: true,
            ..disposal_facts(&old, Dispose::Terminate, Some(&volume), Some(&dead), &held, 0)
        });
        assert!(
            complete(has_ended),
            "nothing on a machine that is off is waited for"
        );
    }
}
