//! The lifecycle hook of recycle-eks: which members it holds, how long it can be kept alive, and how a member ends whose time is over.
//!
//! Pods are drained in the same way on every path, so this module does not decide that.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::names::LIFECYCLE_HOOK;
use crate::base::poll::{is_heartbeat_due, patient_wait};
use crate::cluster::cluster_tag::find_other_cluster;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::input::model::{Hook, Input, Replacement, TO_EC2};
use crate::input::path::RecyclePath;

/// "The maximum is 172800 seconds (48 hours) or 100 times HeartbeatTimeout, whichever is smaller" (API reference, PutLifecycleHook).
const LONGEST: i64 = 172_800;
const MOST_HEARTBEATS: i64 = 100;
/// The shortest heartbeat time-out, in seconds, that the module accepts. Up to 15 minutes pass between two checks of the pods.
pub const SHORTEST_HEARTBEAT: u32 = 900;

/// The lifecycle state of a member that waits for a hook.
pub const WAITING: &str = "Terminating:Wait";
/// The lifecycle state of a member whose hooks are over. It then ends, or is retained if a hook was abandoned in a group that retains
/// instances (user guide, manage-retained-instances).
pub const PROCEEDING: &str = "Terminating:Proceed";
/// The lifecycle state of a member whose hook was abandoned in a group that retains instances.
/// The member stays until it is terminated in its group.
pub const RETAINED: &str = "Terminating:Retained";

/// Returns the longest time in seconds for which a hook with this heartbeat time-out can hold a member.
pub fn longest_hold(heartbeat_timeout: u32) -> i64 {
    LONGEST.min(MOST_HEARTBEATS * i64::from(heartbeat_timeout))
}

/// Checks whether the group is terminating the member, but still keeps it.
pub fn is_held(lifecycle_state: Option<&str>) -> bool {
    matches!(lifecycle_state, Some(WAITING | RETAINED))
}

/// The lifecycle hook of recycle-eks while it holds a member. It is carried in [`crate::contract::run::Run`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldByHook {
    /// The hook's name, always [`LIFECYCLE_HOOK`].
    pub name: String,
    /// Seconds for which the hook waits for a heartbeat.
    pub heartbeat_timeout: u32,
    /// The time at which the hook fired or was last kept alive; none if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_at: Option<Timestamp>,
    /// The time at which the hook ends even if it is kept alive; none if it is unknown when the hook fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// Whether the group retains an instance whose hook was not completed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retain: bool,
    /// Whether the member no longer waits for the hook.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_over: bool,
    /// Whether a heartbeat was recorded, or tried, since the last check of the pods. The next step is then a check.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_tried: bool,
}

impl HeldByHook {
    /// Creates the hook as its group has it.
    pub fn new(heartbeat_timeout: u32, fired_at: Option<Timestamp>, retain: bool) -> Self {
        let longest = SignedDuration::from_secs(longest_hold(heartbeat_timeout));
        let ends_at = fired_at.and_then(|at| at.checked_add(longest).ok());
        Self {
            name: LIFECYCLE_HOOK.to_owned(),
            heartbeat_timeout,
            heartbeat_at: fired_at,
            ends_at,
            retain,
            is_over: false,
            was_tried: false,
        }
    }

    /// Returns the seconds for which the hook waits for a heartbeat. None if the hook can no longer be kept alive.
    pub fn heartbeat_timeout(&self) -> Option<u32> {
        (!self.is_over).then_some(self.heartbeat_timeout)
    }

    /// Checks whether a heartbeat is due before the next wait of a drain that began at `since`. If it is due, it counts as tried.
    /// A heartbeat that is refused also counts, because the check that follows shows the state of the member.
    pub fn try_heartbeat(&mut self, since: Timestamp, now: Timestamp, drain_timeout: u32) -> bool {
        let Some(timeout) = self.heartbeat_timeout() else {
            return false;
        };
        if std::mem::take(&mut self.was_tried) {
            return false;
        }
        let waited = now.duration_since(since).as_secs();
        let wait = patient_wait(waited, i64::MAX, drain_timeout, Some(timeout));
        let is_due = self
            .heartbeat_at
            .is_none_or(|last| is_heartbeat_due(now.duration_since(last).as_secs(), wait, timeout));
        if is_due {
            self.heartbeat_at = Some(now);
            self.was_tried = true;
        }
        is_due
    }

    /// Records whether the member waits for the hook, and whether the group retains instances now. A member that is retained or gone
    /// does not wait.
    pub fn see(&mut self, is_waiting: bool, retain: bool) {
        self.is_over = !is_waiting;
        self.retain = retain;
    }

    /// Describes what happens when the drain's time is over and pods are left.
    pub fn describe_end(&self) -> String {
        if self.retain {
            format!(
                "the instance is kept ({RETAINED}) with its taint, until an operator terminates it in its group"
            )
        } else {
            format!(
                "the hook is no longer kept alive, and its group terminates the instance within {} seconds",
                self.heartbeat_timeout
            )
        }
    }

    /// Returns the end of the hook if it is before `until`. None if the group retains the instance.
    pub fn ends_before(&self, until: Timestamp) -> Option<Timestamp> {
        self.ends_at.filter(|at| !self.retain && *at < until)
    }

    /// Warns an operator that the hook ends more than a heartbeat before the drain may end. None if the group retains the instance.
    /// The heartbeat is allowed for because a drain begins a little after its hook.
    pub fn warn(&self, until: Timestamp) -> Option<String> {
        let is_short = |at: Timestamp| until.duration_since(at).as_secs() > i64::from(self.heartbeat_timeout);
        let ends_at = self.ends_at.filter(|at| !self.retain && is_short(*at))?;
        Some(format!(
            "the hook ends at {ends_at} even if it is kept alive; pods that still run then end with the instance, because the group's \
             instance lifecycle policy does not retain it"
        ))
    }
}

/// Warns an operator if the group does not retain instances although the module's variable declares it.
pub fn check_retain(hook: &Hook, retain: bool) -> Option<String> {
    (hook.retain == Some(true) && !retain).then(|| {
        format!(
            "lifecycle_hooks declares that group {} retains instances, but its instance lifecycle policy has no TerminateHookAbandon = \
             retain",
            hook.auto_scaling_group_name
        )
    })
}

/// Describes why nothing has to be waited for on this member, so that its hook is completed at once. None if its pods are drained first.
/// `node` is the Node of the instance in the cluster, which was read before.
pub fn find_release(
    hook: &Hook,
    input: &Input,
    instance: &Instance,
    node: Option<&NodeFacts>,
) -> Option<String> {
    let (id, cluster) = (&instance.id, input.cluster_name.as_str());
    let group = &hook.auto_scaling_group_name;
    if hook.destination != TO_EC2 {
        return Some(format!(
            "{id} goes to the {} of group {group} and is not terminated",
            hook.destination
        ));
    }
    if node.is_some() {
        return None;
    }
    Some(match find_other_cluster(instance, cluster) {
        Some(other) => {
            format!("{id} has the tags of cluster {other}, and is not a node of cluster {cluster}")
        }
        None => format!("{id} has no Node in cluster {cluster}: it never registered, or its Node is gone"),
    })
}

pub fn find_path(input: &Input, lifecycle_state: Option<&str>) -> RecyclePath {
    if input.hook.is_some() || is_held(lifecycle_state) {
        return RecyclePath::Hook;
    }
    let is_standby = lifecycle_state.is_some_and(|state| state.ends_with("Standby"));
    match input.replacement {
        // An instance that EC2 takes away is not put into Standby. If it is there already, it stays there.
        Replacement::After if input.interrupted_at.is_some() && is_standby => RecyclePath::Before,
        Replacement::After => RecyclePath::After,
        Replacement::Before => RecyclePath::Before,
        Replacement::Surge => RecyclePath::Surge,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{at, input, instance, node, strings};

    fn hook() -> HeldByHook {
        HeldByHook::new(3_600, Some(at(0)), false)
    }

    #[test]
    fn a_hook_ends_after_100_heartbeats_or_two_days() {
        let ends = |timeout| HeldByHook::new(timeout, Some(at(0)), false).ends_at;
        assert_eq!(ends(900), Some(at(90_000)));
        assert_eq!(ends(1_728), Some(at(172_800)));
        assert_eq!(ends(7_200), Some(at(172_800)));
        assert_eq!(HeldByHook::new(900, None, false).ends_at, None);
    }

    #[test]
    fn heartbeats_are_due_in_thirds_and_at_once_if_the_last_is_unknown() {
        let due = |mut hook: HeldByHook, now| hook.try_heartbeat(at(0), at(now), 172_800);
        assert!(!due(hook(), 1_091));
        assert!(
            due(hook(), 1_092),
            "the next wait of 109 seconds would pass the third"
        );
        let unknown = HeldByHook {
            heartbeat_at: None,
            ..hook()
        };
        assert!(due(unknown, 0));
    }

    #[test]
    fn a_check_follows_each_heartbeat() {
        let mut hook = HeldByHook::new(900, Some(at(0)), true);
        let tried: Vec<bool> = [80_000, 80_170, 80_470, 80_480, 80_770]
            .map(|now| hook.try_heartbeat(at(0), at(now), 172_800))
            .into();
        assert_eq!(tried, [true, false, true, false, true]);
    }

    #[test]
    fn a_member_that_no_longer_waits_for_the_hook_is_not_kept_alive() {
        for (state, expected) in [
            (Some(WAITING), Some(3_600)),
            (Some(RETAINED), None),
            (Some("Terminating:Proceed"), None),
            (None, None),
        ] {
            let mut hook = hook();
            hook.see(state == Some(WAITING), false);
            assert_eq!(hook.heartbeat_timeout(), expected, "{state:?}");
            assert_eq!(hook.try_heartbeat(at(0), at(9_999), 172_800), expected.is_some());
        }
    }

    #[test]
    fn a_hook_ends_before_the_drain_unless_its_end_is_unknown_or_the_group_retains_the_instance() {
        for (fired_at, retain, until, expected) in [
            (Some(at(0)), false, 864_000, Some(at(172_800))),
            (Some(at(0)), false, 3_600, None),
            (Some(at(0)), false, 172_800, None),
            (Some(at(0)), true, 864_000, None),
            (None, false, 864_000, None),
        ] {
            let hook = HeldByHook::new(3_600, fired_at, retain);
            assert_eq!(
                hook.ends_before(at(until)),
                expected,
                "{fired_at:?} {retain} {until}"
            );
        }
    }

    #[test]
    fn operators_are_warned_of_a_hook_that_ends_before_the_drain() {
        let retained = HeldByHook {
            retain: true,
            ..hook()
        };
        let late = 172_800 + 3_601;
        assert_eq!(
            hook().warn(at(late - 1)),
            None,
            "it began within a heartbeat of its hook"
        );
        assert!(hook().warn(at(late)).unwrap().contains("2027-01-03T00:00:00Z"));
        assert_eq!(retained.warn(at(late)), None);
        assert!(retained.describe_end().contains(RETAINED));
        assert!(hook().describe_end().contains("within 3600 seconds"));
    }

    fn fired(more: &[(&str, serde_json::Value)]) -> Input {
        let mut hook =
            json!({"name": LIFECYCLE_HOOK, "auto_scaling_group_name": "workers", "destination": "EC2"});
        for (key, value) in more {
            hook[*key] = value.clone();
        }
        input(json!({"hook": hook}))
    }

    #[test]
    fn an_instance_without_pods_of_this_cluster_is_released_at_once() {
        let foreign = Instance {
            tags: strings([("kubernetes.io/cluster/other", "owned")]),
            ..instance()
        };
        let to_pool = fired(&[("destination", json!("WarmPool"))]);
        let to_ec2 = fired(&[]);
        let here = node("old");
        let cases = [
            ("a node", &to_ec2, instance(), Some(&here), None),
            (
                "no Node",
                &to_ec2,
                instance(),
                None,
                Some("has no Node in cluster prod"),
            ),
            (
                "an instance of another cluster",
                &to_ec2,
                foreign,
                None,
                Some("has the tags of cluster other"),
            ),
            (
                "a warm pool",
                &to_pool,
                instance(),
                Some(&here),
                Some("goes to the WarmPool of group workers"),
            ),
        ];
        for (name, input, instance, node, expected) in cases {
            let release = find_release(input.hook.as_ref().unwrap(), input, &instance, node);
            assert_eq!(release.is_some(), expected.is_some(), "{name}");
            assert!(
                release.unwrap_or_default().contains(expected.unwrap_or_default()),
                "{name}"
            );
        }
    }

    #[test]
    fn a_group_that_does_not_retain_although_it_should_is_reported() {
        let declared = |retain: serde_json::Value| fired(&[("retain", retain)]).hook.unwrap();
        assert!(
            check_retain(&declared(json!(true)), false)
                .unwrap()
                .contains("group workers")
        );
        assert_eq!(check_retain(&declared(json!(true)), true), None);
        assert_eq!(check_retain(&declared(json!(false)), false), None);
    }

    #[test]
    fn the_path_is_that_of_the_input_unless_the_group_already_terminates_the_member() {
        let planned = input(json!({}));
        let after = input(json!({"replacement": "after"}));
        let surge = input(json!({"replacement": "surge"}));
        let interrupted = input(json!({"urgency": "spot", "interrupted_at": at(120)}));
        let recommended = input(json!({"urgency": "spot"}));
        let hook = fired(&[]);
        let cases = [
            (&planned, "InService", RecyclePath::Before),
            (&planned, WAITING, RecyclePath::Hook),
            (&after, "InService", RecyclePath::After),
            (&surge, "InService", RecyclePath::Surge),
            (&surge, WAITING, RecyclePath::Hook),
            (&hook, WAITING, RecyclePath::Hook),
            (&hook, "Terminating", RecyclePath::Hook),
            (&recommended, "InService", RecyclePath::Before),
            (&recommended, RETAINED, RecyclePath::Hook),
            (&interrupted, "InService", RecyclePath::After),
            (&interrupted, "Standby", RecyclePath::Before),
            (&interrupted, WAITING, RecyclePath::Hook),
        ];
        for (input, state, path) in cases {
            assert_eq!(find_path(input, Some(state)), path, "{state} {:?}", input.urgency);
        }
    }
}
