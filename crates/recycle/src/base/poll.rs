//! The poll rule: how long to wait until the next check, and when a heartbeat of the hook is due. Its callers set the limits.
//!
//! As long as the end of a drain is not moved, the rule alone limits its history. If an operator moves the end, [`POLL_BUDGET`] limits it.

use crate::base::ids::InstanceId;

/// The shortest wait in seconds. With a shorter one, a drain of minutes would cost more history than it is worth.
pub const SHORTEST_WAIT: u32 = 30;
/// The longest of the first waits in seconds, while only time brings the drain on ([`patient_wait`]).
const LONGEST_FIRST_WAIT: i64 = 120;
/// The longest wait in seconds for time-outs up to 7.5 days. A failure is noticed within 15 minutes.
pub const LONGEST_WAIT: u32 = 900;
/// The number of times that one execution may check its pods.
/// A drain of 30 days takes 1,203 checks by the law below. The rest is for a drain whose end an operator moved.
/// The budget leaves 1,700 of Step Functions' 25,000 history events for retries (the tests below count them).
/// The count includes an eviction in every check, a day in the queue, two hours of waiting for replacements, a slow disposal, a restore,
/// the three events for other teams, and a notification each day.
pub const POLL_BUDGET: u32 = 1_206;

/// The number of checks for a member that the lifecycle hook of recycle-eks holds. Such a member waits for no queue and no replacement.
/// Checks are more frequent while the hook can be kept alive: a drain of 30 days takes 1,293 checks with the shortest time-out that the
/// module allows.
pub const HOOK_POLL_BUDGET: u32 = 1_300;
/// The range, in seconds, by which first waits under a hook and in a rotation are longer.
/// Fifty nodes that begin at once, for example because a group terminates them together, then do not all check at the same moment.
const SPREAD: u64 = 30;

/// Returns the seconds by which the first wait of this node is longer. They depend only on the instance id.
pub fn spread(instance: &InstanceId) -> u32 {
    let sum = instance.as_str().bytes().fold(0_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    u32::try_from(sum % SPREAD).unwrap_or_default()
}

/// Returns the seconds to wait: 1 % of the time waited so far, between the bounds, and never past the next deadline.
///
/// `waited` and `left` are in seconds; `left` is the time to the next deadline, which may be past.
/// `drain_timeout` is that of the input, or 0 outside a drain. `heartbeat_timeout` is that of the hook, as long as the hook can be kept
/// alive.
pub fn next_wait(waited: i64, left: i64, drain_timeout: u32, heartbeat_timeout: Option<u32>) -> u32 {
    wait_at_least(
        i64::from(SHORTEST_WAIT),
        waited,
        left,
        drain_timeout,
        heartbeat_timeout,
    )
}

/// Returns the seconds to wait while only time brings the drain on: in the beginning 10 % of the time waited so far, at most two minutes.
/// From 3 hours and 20 minutes on it is [`next_wait`], whose arguments it has.
pub fn patient_wait(waited: i64, left: i64, drain_timeout: u32, heartbeat_timeout: Option<u32>) -> u32 {
    let least = (waited / 10).clamp(i64::from(SHORTEST_WAIT), LONGEST_FIRST_WAIT);
    wait_at_least(least, waited, left, drain_timeout, heartbeat_timeout)
}

fn wait_at_least(
    least: i64,
    waited: i64,
    left: i64,
    drain_timeout: u32,
    heartbeat_timeout: Option<u32>,
) -> u32 {
    let longest = i64::from(LONGEST_WAIT.max(drain_timeout / 720));
    let heartbeat = heartbeat_timeout.map_or(i64::MAX, |timeout| i64::from(timeout / 3));
    let wait = (waited / 100).max(least);
    let wait = wait.min(longest).min(left).min(heartbeat).max(1);
    u32::try_from(wait).unwrap_or(LONGEST_WAIT)
}

/// Checks whether a hook's heartbeat has to be recorded before a wait of `wait` more seconds.
/// `since_last` is the time since the last heartbeat, in seconds.
pub fn is_heartbeat_due(since_last: i64, wait: u32, heartbeat_timeout: u32) -> bool {
    since_last + i64::from(wait) > i64::from(heartbeat_timeout / 3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::names::EXCLUDE_FROM_BALANCERS_LABEL;
    use crate::claim::queue::{LONGEST_QUEUE_WAIT, pace_queue};
    use crate::drain::survey::PodSurvey;
    use crate::drain::terms::{Terms, find_deadline};
    use crate::drain::verdict::{DrainVerdict, judge_drain};
    use crate::fixtures::{OLD, at, group, id, input, instance, node, pod, terms};
    use crate::input::model::{Dispose, LONGEST_DRAIN};
    use crate::notify::blockage::REMINDER;
    use crate::replacement::usable::{LOOKS_OF_DRAINED, Patience, ReplacementVerdict, judge_replacement};
    use crate::restore::step::MOST_STEPS;

    // The history events that the states of the machine cost, as counted on the real ASL.
    // A Task that succeeds at once is scheduled, started, succeeded, entered and exited.
    const TASK: u32 = 5;
    const CHOICE: u32 = 2;
    const WAIT: u32 = 2;
    /// Task, Choice, Wait.
    const POLL: u32 = TASK + CHOICE + WAIT;
    /// A check with an eviction in it.
    const EVICTING_POLL: u32 = POLL + TASK;
    /// A heartbeat in a check: another Task, and the Task and the Choice of the check once more.
    const HEARTBEAT: u32 = TASK + TASK + CHOICE;
    /// A notification in a check: another Task, and the Choice of the check once more.
    const NOTIFICATION: u32 = TASK + CHOICE;
    /// The start and end of the execution, the Parallel around all, Begin, one request about the owner of a claim, the last state.
    const FRAME: u32 = 2 + 4 + 2 + (TASK + TASK + CHOICE) + 2;
    /// A restore that takes as long as it may, and then the cleanup.
    const LONGEST_RESTORE: u32 = (MOST_STEPS + 4) * POLL;
    /// The number of events at which Step Functions ends an execution.
    const LIMIT: u32 = 25_000;
    /// The number of events that have to be left for retries, each of which costs three.
    const RETRIES: u32 = 1_700;

    #[test]
    fn the_costs_of_states_are_as_counted() {
        assert_eq!((POLL, EVICTING_POLL, HEARTBEAT, NOTIFICATION), (9, 14, 12, 7));
    }

    #[test]
    fn the_wait_is_a_percentage_between_its_bounds() {
        let cases = [
            ("never less than half a minute", 0, 9_999, 172_800, None, 30),
            (
                "one percent of the time waited",
                20_000,
                99_999,
                172_800,
                None,
                200,
            ),
            ("at most 15 minutes", 95_000, 99_999, 172_800, None, 900),
            (
                "at most 15 minutes up to 7.5 days",
                600_000,
                99_999,
                648_000,
                None,
                900,
            ),
            (
                "at most an hour at 30 days",
                2_000_000,
                99_999,
                LONGEST_DRAIN,
                None,
                3_600,
            ),
            ("not past the deadline", 95_000, 17, 172_800, None, 17),
            ("at least a second at the deadline", 95_000, 0, 172_800, None, 1),
            (
                "at least a second past the deadline",
                95_000,
                -5,
                172_800,
                None,
                1,
            ),
            (
                "a third of the heartbeat",
                95_000,
                99_999,
                172_800,
                Some(900),
                300,
            ),
            (
                "a third of the heartbeat only if it is less",
                0,
                9_999,
                172_800,
                Some(3_600),
                30,
            ),
            (
                "a clock that went back does not shorten the wait",
                -5,
                9_999,
                172_800,
                None,
                30,
            ),
            (
                "outside a drain at most 15 minutes",
                999_999,
                99_999,
                0,
                None,
                900,
            ),
        ];
        for (name, waited, left, drain_timeout, heartbeat, expected) in cases {
            assert_eq!(
                next_wait(waited, left, drain_timeout, heartbeat),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn while_only_time_helps_the_first_waits_grow_to_two_minutes() {
        for (waited, left, heartbeat, expected) in [
            (0, 99_999, None, 30),
            (300, 99_999, None, 30),
            (600, 99_999, None, 60),
            (1_200, 99_999, None, 120),
            (12_000, 99_999, None, 120),
            (20_000, 99_999, None, 200),
            (1_200, 50, None, 50),
            (1_200, 99_999, Some(300), 100),
            (-5, 99_999, None, 30),
        ] {
            assert_eq!(
                patient_wait(waited, left, 172_800, heartbeat),
                expected,
                "{waited} {left}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_patient_wait_is_never_shorter_and_never_over_two_minutes_unless_the_law_says_so(
            waited in -100_i64..3_000_000,
            left in -100_i64..3_000_000,
            drain_timeout in 0_u32..=LONGEST_DRAIN,
            heartbeat_timeout in prop::option::of(30_u32..172_800),
        ) {
            let law = next_wait(waited, left, drain_timeout, heartbeat_timeout);
            let patient = patient_wait(waited, left, drain_timeout, heartbeat_timeout);
            prop_assert!(patient >= law);
            prop_assert!(patient <= law.max(120));
            prop_assert!(i64::from(patient) <= left.max(1));
            prop_assert!(heartbeat_timeout.is_none_or(|timeout| patient <= (timeout / 3).max(1)));
        }
    }

    #[test]
    fn a_heartbeat_is_due_when_the_next_wait_would_pass_a_third() {
        assert!(!is_heartbeat_due(900, 300, 3_600));
        assert!(is_heartbeat_due(901, 300, 3_600));
    }

    /// Counts the checks of a wait of `length` seconds in which nothing happens, by the law alone.
    fn count_polls(length: i64, mut wait: impl FnMut(i64) -> u32) -> u32 {
        let (mut now, mut polls) = (0, 0);
        while now < length {
            now += i64::from(wait(now));
            polls += 1;
        }
        polls
    }

    /// Counts the checks of the queue by a node that is admitted after `queued` seconds, or that times out.
    fn count_queue_polls(queued: i64) -> u32 {
        count_polls(queued, |now| {
            pace_queue(at(0), at(now)).expect("its time is not over")
        })
    }

    fn busy_survey() -> PodSurvey {
        PodSurvey {
            evictable: vec![pod("web")],
            ..PodSurvey::default()
        }
    }

    /// Drains a node whose eviction is refused for ever. `moved` is the time at which an operator writes a deadline, and the deadline.
    /// Returns the number of checks and the time of the end.
    fn drain(drain_timeout: u32, moved: Option<(i64, i64)>) -> (u32, i64) {
        let (mut now, mut polls, mut last_eviction_tried) = (0, 0, false);
        loop {
            let until = moved
                .filter(|(when, _)| *when <= now)
                .map(|(_, until)| at(until).to_string());
            let (deadline, _) = find_deadline(at(0), at(now), drain_timeout, until.as_deref());
            let terms = Terms {
                drain_timeout,
                now: at(now),
                deadline,
                ..terms()
            };
            let verdict = judge_drain(&busy_survey(), &terms, polls, last_eviction_tried);
            last_eviction_tried |= deadline.is_past(at(now)) || polls >= POLL_BUDGET;
            polls += 1;
            match verdict {
                DrainVerdict::Evict(wait) => now += i64::from(wait),
                DrainVerdict::TimedOut(_) => return (polls, now),
                DrainVerdict::Wait(_) | DrainVerdict::Dispose | DrainVerdict::EndPods => {
                    panic!("there is a pod to evict")
                }
            }
        }
    }

    fn count_replacement_polls(timeout: u32) -> u32 {
        let (mut now, mut polls) = (0, 0);
        loop {
            polls += 1;
            match judge_replacement(
                &id(OLD),
                &node("old"),
                None,
                &[],
                None,
                Patience {
                    since: at(0),
                    now: at(now),
                    timeout,
                },
            ) {
                ReplacementVerdict::Wait { wait_seconds, .. } => now += i64::from(wait_seconds),
                ReplacementVerdict::TimedOut(_) => return polls,
                ReplacementVerdict::Ready(_) | ReplacementVerdict::Reserve(_) => {
                    panic!("there is no candidate")
                }
            }
        }
    }

    /// Counts the checks of a disposal in which everything takes as long as it may: balancers, volumes, and an instance that does not go.
    fn count_disposal_polls(dispose: Dispose, grace: u32) -> u32 {
        use crate::disposal::next_step::{DisposalFacts, DisposalStep, next_disposal_step};
        let old = id(OLD);
        let (mut now, mut polls, mut state) = (0, 0, "Standby");
        let mut others_are_protected = false;
        let mut node = node("old");
        node.volumes.push("vol-1".to_owned());
        let mut instance = instance();
        loop {
            polls += 1;
            let mut group = group();
            state.clone_into(&mut group.members[0].lifecycle_state);
            group.members[1].protected_from_scale_in = others_are_protected;
            let step = next_disposal_step(&DisposalFacts {
                id: &old,
                dispose,
                path: crate::input::path::RecyclePath::Before,
                waits_for_recycle_eks_hook: false,
                was_retired: false,
                is_lost: false,
                node: Some(&node),
                instance: Some(&instance),
                group: Some(&group),
                protected: &[],
                raised_from: None,
                since: at(0),
                now: at(now),
                balancer_grace: grace,
            });
            now += match step {
                DisposalStep::LeaveBalancers(wait) => {
                    node.labels
                        .insert(EXCLUDE_FROM_BALANCERS_LABEL.to_owned(), String::new());
                    i64::from(wait)
                }
                DisposalStep::Wait(wait, _) => i64::from(wait),
                DisposalStep::Terminate(wait) | DisposalStep::Remove(wait) => {
                    state = "Terminating:Wait";
                    i64::from(wait)
                }
                DisposalStep::Stop(wait) => {
                    "stopping".clone_into(&mut instance.state);
                    i64::from(wait)
                }
                DisposalStep::Protect(_) => {
                    others_are_protected = true;
                    1
                }
                DisposalStep::Detach(wait) => {
                    state = "Detaching";
                    i64::from(wait)
                }
                DisposalStep::Retire
                | DisposalStep::Unprotect(_)
                | DisposalStep::MarkOutOfService
                | DisposalStep::CompleteHook(_) => {
                    panic!("it never gets there")
                }
                DisposalStep::Done | DisposalStep::GiveUp(_) => return polls,
            };
        }
    }

    fn count_events(
        queued: i64,
        replacement_timeout: u32,
        drain_polls: u32,
        dispose: Dispose,
        grace: u32,
    ) -> u32 {
        let queue_polls = count_queue_polls(queued);
        FRAME
            + TASK // TaintNode
            + TASK * 3 // the events before and after the drain, and after the disposal
            // Once after EnterStandby, and once more if the replacement has gone when the node is drained.
            + (queue_polls + count_replacement_polls(replacement_timeout) + LOOKS_OF_DRAINED) * POLL
            + drain_polls * EVICTING_POLL
            + count_disposal_polls(dispose, grace) * POLL
            + LONGEST_RESTORE
            + NOTIFICATION * (2 + count_reminders()) // its start and its end
    }

    /// Counts the notifications about a drain that blocks all the time: one after five minutes, and then one a day.
    fn count_reminders() -> u32 {
        1 + u32::try_from(i64::from(LONGEST_DRAIN) / REMINDER).unwrap()
    }

    #[test]
    fn the_longest_execution_leaves_room_for_retries() {
        let disposals = [Dispose::Terminate, Dispose::Stop, Dispose::Detach];
        // After a long grace period the checks are less frequent.
        for (dispose, grace) in disposals
            .into_iter()
            .flat_map(|dispose| [(dispose, 0), (dispose, 3_600)])
        {
            let events = count_events(
                i64::from(LONGEST_QUEUE_WAIT),
                3_600,
                POLL_BUDGET + 2,
                dispose,
                grace,
            );
            assert!(
                events + RETRIES <= LIMIT,
                "{events} events leave {}",
                LIMIT - events.min(LIMIT)
            );
        }
    }

    /// Counts the events of a hook's drain with an eviction in every check. Such a drain skips the queue and waits for no replacement.
    fn count_hook_events(drain_timeout: u32, heartbeat_timeout: u32) -> u32 {
        let hook_lives = i64::from(heartbeat_timeout * 100).min(48 * 3_600);
        let (mut now, mut last_heartbeat, mut events) = (0, 0, FRAME + TASK * 4);
        while now < i64::from(drain_timeout) {
            let heartbeat = (now < hook_lives).then_some(heartbeat_timeout);
            let wait = next_wait(now, i64::from(drain_timeout) - now, drain_timeout, heartbeat);
            // The hook expects the longer wait ([`crate::cluster::hook::HeldByHook::try_heartbeat`]).
            let expected = patient_wait(now, i64::MAX, drain_timeout, heartbeat);
            if heartbeat.is_some() && is_heartbeat_due(now - last_heartbeat, expected, heartbeat_timeout) {
                last_heartbeat = now;
                events += HEARTBEAT;
            }
            events += EVICTING_POLL;
            now += i64::from(wait);
        }
        events + count_disposal_polls(Dispose::Terminate, 3_600) * POLL
    }

    #[test]
    fn the_longest_drain_under_a_hook_leaves_room_for_retries() {
        // The module refuses a time-out of a hook under 900 seconds. Auto Scaling allows 7,200 at most.
        for heartbeat_timeout in (900..=7_200).step_by(300) {
            let events = count_hook_events(LONGEST_DRAIN, heartbeat_timeout);
            assert!(
                events + RETRIES <= LIMIT,
                "{events} events with {heartbeat_timeout}"
            );
        }
    }

    #[test]
    fn a_drain_of_30_days_is_within_the_poll_budget() {
        let (polls, ended) = drain(LONGEST_DRAIN, None);
        assert!(polls < POLL_BUDGET, "{polls} polls");
        assert!(ended >= i64::from(LONGEST_DRAIN));
    }

    #[test]
    fn a_drain_of_30_days_under_a_hook_is_within_its_own_budget() {
        for heartbeat_timeout in [900, 3_600, 7_200] {
            let mut hook = crate::cluster::hook::HeldByHook::new(heartbeat_timeout, Some(at(0)), true);
            let (mut now, mut polls) = (0, 0);
            while now < i64::from(LONGEST_DRAIN) {
                if now >= i64::from(heartbeat_timeout * 100).min(48 * 3_600) {
                    hook.see(false, true);
                }
                let terms = Terms {
                    drain_timeout: LONGEST_DRAIN,
                    now: at(now),
                    deadline: find_deadline(at(0), at(now), LONGEST_DRAIN, None).0,
                    ..terms()
                };
                let verdict = judge_drain(&busy_survey(), &terms.held_by(Some(&hook)), polls, false);
                let DrainVerdict::Evict(wait) = verdict else {
                    panic!("after {polls} polls {verdict:?}");
                };
                now += i64::from(wait);
                polls += 1;
            }
            assert!(polls < HOOK_POLL_BUDGET, "{polls}");
        }
    }

    #[test]
    fn the_first_waits_of_nodes_are_spread_over_half_a_minute() {
        let ids = (0..50).map(|number| id(&format!("i-{number:017x}")));
        let waits: std::collections::BTreeSet<u32> = ids.map(|id| spread(&id)).collect();
        assert!(
            waits.len() > 15 && waits.iter().all(|wait| *wait < 30),
            "{waits:?}"
        );
        assert_eq!(spread(&id(OLD)), spread(&id(OLD)));
    }

    #[test]
    fn the_input_allows_the_longest_timeouts() {
        input(
            serde_json::json!({"replacement_timeout": 3_600, "load_balancer_grace": 3_600,
            "drain_timeout": LONGEST_DRAIN}),
        );
    }

    #[test]
    fn the_budget_stretches_no_wait_if_the_end_is_not_moved() {
        let verdict = judge_drain(&busy_survey(), &terms(), POLL_BUDGET - 1, false);
        assert_eq!(verdict, DrainVerdict::Evict(SHORTEST_WAIT));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_whole_execution_fits_into_the_history(
            queued in 0..=i64::from(LONGEST_QUEUE_WAIT),
            replacement_timeout in 60_u32..=3_600,
            drain_timeout in 60..=LONGEST_DRAIN,
            grace in 0_u32..=3_600,
        ) {
            let (polls, ended) = drain(drain_timeout, None);
            prop_assert!(ended >= i64::from(drain_timeout) && ended <= i64::from(drain_timeout + SHORTEST_WAIT));
            let events = count_events(queued, replacement_timeout, polls, Dispose::Terminate, grace);
            prop_assert!(events + RETRIES <= LIMIT, "{} events", events);
        }

        #[test]
        fn a_moved_deadline_is_kept_whenever_it_is_moved(
            drain_timeout in 60_u32..=604_800,
            moved in 0.0..1.0_f64,
            until in 0..=i64::from(LONGEST_DRAIN),
        ) {
            #[expect(clippy::cast_possible_truncation, reason = "a moment within the drain")]
            let when = (f64::from(drain_timeout) * moved) as i64;
            let (polls, ended) = drain(drain_timeout, Some((when, until)));
            prop_assert!(polls <= POLL_BUDGET + 2, "{} polls", polls);
            // The next check notices the change after at most 15 minutes, and the last eviction takes half a minute.
            prop_assert!(ended >= until && ended <= until.max(when) + 900 + 30, "ended at {}", ended);
        }

        #[test]
        fn a_wait_is_at_most_one_percent_and_15_minutes(
            drain_timeout in 60_u32..=648_000,
            waited in 0_i64..648_000,
        ) {
            let wait = i64::from(next_wait(waited, i64::MAX, drain_timeout, None));
            prop_assert!(wait <= 30.max(waited / 100));
            prop_assert!(wait <= 900);
        }

        #[test]
        fn a_wait_is_at_least_a_second_and_ends_at_the_deadline(
            waited in any::<i64>(),
            left in any::<i64>(),
            drain_timeout in any::<u32>(),
            heartbeat in prop::option::of(900_u32..=7_200),
        ) {
            let wait = i64::from(next_wait(waited, left, drain_timeout, heartbeat));
            prop_assert!(wait >= 1 && wait <= left.max(1));
        }
    }
}
