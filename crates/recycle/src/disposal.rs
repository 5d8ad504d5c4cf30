//! The steps by which a drained node leaves: balancers, volumes, then terminate or stop.
//!
//! Each step looks at what is there and not at what was done before, so that it may be repeated after a crash at any point.
//! Whether pods are still on the node is not asked here.

use jiff::Timestamp;

use crate::input::Dispose;
use crate::names::{EXCLUDE_FROM_BALANCERS_LABEL, STOPPED_TAG};
use crate::node::{Instance, NodeFacts};
use crate::pods::{NAMES_PER_CLASS, cut_text};
use crate::poll::next_wait;

/// Seconds to wait for volumes to detach before disposing anyway: a detach that takes longer than five minutes hangs.
pub const VOLUME_GRACE: u32 = 300;
/// To how many characters a volume's name is cut: EBS's have 21.
const LONGEST_VOLUME: usize = 60;
/// Seconds between two looks at an instance that is going.
pub const DISPOSAL_WAIT: u32 = 30;
/// Seconds that an instance may take to go once nothing holds it any more: half an hour, several times what EC2 needs. Longer waits
/// are another tool's lifecycle hook, up to 48 h, which an execution's history has no room for.
pub const DISPOSAL_PATIENCE: u32 = 1_800;

/// The next step of a disposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisposalStep {
    /// Set the label that takes the node out of load balancers; then wait so many seconds.
    LeaveBalancers(u32),
    /// Wait so many seconds; why.
    Wait(u32, String),
    /// Call TerminateInstanceInAutoScalingGroup without decrement; then wait so many seconds.
    Terminate(u32),
    /// Call StopInstances on the Standby member; then wait so many seconds.
    Stop(u32),
    /// Stopped: tag it, remove its Node and our claim.
    Retire,
    /// All is done.
    Done,
    /// It does not go; the text says what it is instead.
    GiveUp(String),
}

/// Decides the next step. `instance` is none if EC2 no longer knows it; `lifecycle_state` is none if it is in no group;
/// `since` is when this execution began to dispose; `balancer_grace` is in seconds.
#[must_use]
pub fn next_disposal_step(
    dispose: Dispose,
    node: Option<&NodeFacts>,
    instance: Option<&Instance>,
    lifecycle_state: Option<&str>,
    since: Timestamp,
    now: Timestamp,
    balancer_grace: u32,
) -> DisposalStep {
    let timing = Timing {
        waited: now.duration_since(since).as_secs(),
        balancer_grace: i64::from(balancer_grace),
    };
    let Some(lifecycle_state) = lifecycle_state else {
        return DisposalStep::Done;
    };
    if is_terminating(lifecycle_state) {
        // The group does the rest, whatever another tool's hook makes it wait for.
        return if timing.left() > 0 {
            DisposalStep::Wait(timing.wait(), format!("the instance is {lifecycle_state}"))
        } else {
            DisposalStep::Done
        };
    }
    let Some(instance) = instance.filter(|instance| !instance.is_gone()) else {
        // The group checks no health in Standby: it lists a dead member until it is told.
        return terminate(lifecycle_state, &timing);
    };
    match dispose {
        Dispose::Terminate => {
            find_what_holds(node, &timing).unwrap_or_else(|| terminate(lifecycle_state, &timing))
        }
        Dispose::Stop => stop(node, instance, lifecycle_state, &timing),
        Dispose::Detach => DisposalStep::GiveUp(
            "dispose \"detach\" has no disposal: the input's check refuses it".to_owned(),
        ),
    }
}

/// Seconds to wait before asking again what could not be asked now; none if patience is at an end.
#[must_use]
pub fn wait_for_answer(since: Timestamp, now: Timestamp, balancer_grace: u32) -> Option<u32> {
    let timing = Timing {
        waited: now.duration_since(since).as_secs(),
        balancer_grace: i64::from(balancer_grace),
    };
    (timing.left() > 0).then(|| timing.wait())
}

struct Timing {
    /// Seconds since the disposal began.
    waited: i64,
    balancer_grace: i64,
}

impl Timing {
    /// Seconds until patience is at an end.
    fn left(&self) -> i64 {
        self.balancer_grace + i64::from(VOLUME_GRACE) + i64::from(DISPOSAL_PATIENCE) - self.waited
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

/// Balancers first, then volumes; none if neither holds the instance any more.
fn find_what_holds(node: Option<&NodeFacts>, timing: &Timing) -> Option<DisposalStep> {
    let node = node?;
    if !node.labels.contains_key(EXCLUDE_FROM_BALANCERS_LABEL) {
        return Some(DisposalStep::LeaveBalancers(whole_seconds(
            timing.balancer_grace.max(1),
        )));
    }
    let was_out_before_us = node.record().is_ok_and(|record| record.excluded_before.is_some());
    let grace_left = timing.balancer_grace - timing.waited;
    if !was_out_before_us && grace_left > 0 {
        return Some(DisposalStep::Wait(
            whole_seconds(grace_left),
            "the load balancers are given time to forget the node".to_owned(),
        ));
    }
    let volumes_left = timing.balancer_grace + i64::from(VOLUME_GRACE) - timing.waited;
    if !node.volumes.is_empty() && volumes_left > 0 {
        return Some(DisposalStep::Wait(
            next_wait(timing.waited, volumes_left, 0, None),
            format!("volumes are still attached ({})", name_volumes(node)),
        ));
    }
    None
}

/// The volumes with which the instance goes although they were given their time; none if there are none.
#[must_use]
pub fn describe_volumes_left(node: Option<&NodeFacts>) -> Option<String> {
    let node = node.filter(|node| !node.volumes.is_empty())?;
    Some(format!(
        "with volumes that have not been detached in {VOLUME_GRACE} seconds ({}): a pod that needs one may have to wait until EC2 has \
         taken it off",
        name_volumes(node)
    ))
}

/// The first five, by the name that the cloud gives them: `kubernetes.io/csi/ebs.csi.aws.com^vol-1`.
fn name_volumes(node: &NodeFacts) -> String {
    let names = node.volumes.iter().take(NAMES_PER_CLASS);
    let short = |name: &String| {
        let mut name = name.rsplit(['^', '/']).next().unwrap_or(name).to_owned();
        cut_text(&mut name, LONGEST_VOLUME);
        name
    };
    let more = if node.volumes.len() > NAMES_PER_CLASS {
        ", …"
    } else {
        ""
    };
    format!("{}{more}", names.map(short).collect::<Vec<_>>().join(", "))
}

fn terminate(lifecycle_state: &str, timing: &Timing) -> DisposalStep {
    match lifecycle_state {
        // Retained: the group keeps it after a hook was abandoned, until this very call.
        "Standby" | "InService" | "Terminating:Retained" => DisposalStep::Terminate(DISPOSAL_WAIT),
        _ => timing.wait_or_give_up(format!("the instance is {lifecycle_state}")),
    }
}

fn stop(
    node: Option<&NodeFacts>,
    instance: &Instance,
    lifecycle_state: &str,
    timing: &Timing,
) -> DisposalStep {
    match instance.state.as_str() {
        "stopped" if instance.tags.contains_key(STOPPED_TAG) && node.is_none() => DisposalStep::Done,
        "stopped" => DisposalStep::Retire,
        "running" if lifecycle_state == "Standby" => {
            find_what_holds(node, timing).unwrap_or(DisposalStep::Stop(DISPOSAL_WAIT))
        }
        // Stopping a member in service would only make the group replace it once more.
        "running" => timing.wait_or_give_up(format!(
            "the instance is {lifecycle_state} and no longer in Standby"
        )),
        state => timing.wait_or_give_up(format!("the instance is {state}")),
    }
}

fn is_terminating(lifecycle_state: &str) -> bool {
    lifecycle_state.starts_with("Terminat") && lifecycle_state != "Terminating:Retained"
}

fn whole_seconds(seconds: i64) -> u32 {
    u32::try_from(seconds).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Phase;
    use crate::fixtures::{at, claimed, instance, node, strings};
    use crate::node::Record;

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
    fn the_volumes_with_which_an_instance_goes_are_named() {
        assert_eq!(describe_volumes_left(None), None);
        assert_eq!(describe_volumes_left(Some(&node("old"))), None);
        let six = (0..6).map(|number| format!("kubernetes.io/csi/ebs.csi.aws.com^vol-{number}"));
        let node = NodeFacts {
            volumes: six.collect(),
            ..node("old")
        };
        let text = describe_volumes_left(Some(&node)).unwrap();
        assert!(
            text.starts_with(
                "with volumes that have not been detached in 300 seconds (vol-0, vol-1, vol-2, vol-3, vol-4, …): "
            ),
            "{text}"
        );
        let endless = NodeFacts {
            volumes: vec!["x".repeat(5_000)],
            ..node
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

    /// The step with the default grace of a minute.
    fn step(
        dispose: Dispose,
        node: Option<&NodeFacts>,
        instance: Option<&Instance>,
        lifecycle_state: Option<&str>,
        now: i64,
    ) -> DisposalStep {
        next_disposal_step(dispose, node, instance, lifecycle_state, at(0), at(now), 60)
    }

    #[test]
    fn a_node_leaves_balancers_and_volumes_before_it_goes() {
        let running = instance();
        let before_us = claimed(
            with_volume(),
            Phase::Disposing,
            &Record {
                excluded_before: Some("true".to_owned()),
                ..Record::default()
            },
        );
        let not_held = NodeFacts {
            volumes: Vec::new(),
            ..before_us.clone()
        };
        for (dispose, goes) in [
            (Dispose::Terminate, DisposalStep::Terminate(DISPOSAL_WAIT)),
            (Dispose::Stop, DisposalStep::Stop(DISPOSAL_WAIT)),
        ] {
            let cases = [
                (
                    "first the label",
                    Some(node("old")),
                    0,
                    DisposalStep::LeaveBalancers(60),
                ),
                (
                    "the label even late",
                    Some(node("old")),
                    9_999,
                    DisposalStep::LeaveBalancers(60),
                ),
                (
                    "then the grace",
                    Some(out_of_balancers()),
                    20,
                    DisposalStep::Wait(
                        40,
                        "the load balancers are given time to forget the node".to_owned(),
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
                    "who was out of balancers before needs no grace",
                    Some(not_held.clone()),
                    0,
                    goes.clone(),
                ),
                (
                    "where the Node is gone there is nothing to leave",
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
                    step(dispose, Some(&before_us), Some(&running), Some("Standby"), 0),
                    DisposalStep::Wait(30, _)
                ),
                "{dispose:?}: volumes count for it, too"
            );
        }
    }

    #[test]
    fn no_grace_still_sets_the_label() {
        let set = next_disposal_step(
            Dispose::Terminate,
            Some(&node("old")),
            Some(&instance()),
            Some("Standby"),
            at(0),
            at(0),
            0,
        );
        assert_eq!(set, DisposalStep::LeaveBalancers(1));
    }

    #[test]
    fn an_instance_goes_from_wherever_it_is() {
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
                "from service, if a person put it back",
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
        let half = step(
            Stopping,
            Some(&out_of_balancers()),
            Some(&retired()),
            Some("Standby"),
            400,
        );
        assert_eq!(half, Retire, "tagged, but the Node is still there");
    }

    #[test]
    fn waits_say_for_what_and_are_bounded() {
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
                "a foreign hook",
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
                "put back",
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
}
