//! Decides how a drain goes on: dispose, evict, wait, or time out.
//!
//! It does not decide how the node is restored after a time-out.

use crate::base::names::DRAIN_UNTIL_ANNOTATION;
use crate::base::poll::{SHORTEST_WAIT, next_wait, patient_wait};
use crate::cluster::hook::HeldByHook;
use crate::drain::progress::{describe_pods, only_waits};
use crate::drain::survey::PodSurvey;
use crate::drain::terms::Terms;
use crate::input::model::{LONGEST_DRAIN, OnDrainTimeout};

/// The maximum number of seconds that pods have after the last eviction, if `on_drain_timeout` evicts awaited pods.
/// Pods with longer grace periods were evicted earlier, unless an operator moved the deadline.
const LAST_GRACE: u32 = 300;

/// Seconds between two checks of a node that EC2 takes away. Such a node has two minutes in total.
const INTERRUPTION_WAIT: u32 = 10;

/// The next action of `check-pods`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainVerdict {
    /// No pod holds the node.
    Dispose,
    /// There are pods to evict. After that, wait this many seconds.
    Evict(u32),
    /// Wait this many seconds.
    Wait(u32),
    /// The time is over, and the input asks to dispose of the instance even if pods still run on it.
    EndPods,
    /// The time or the poll budget is used up. The text says which, and names the pods that still hold the node.
    TimedOut(String),
}

/// Decides how a drain goes on. `polls` counts the checks so far.
/// `last_eviction_tried` is true if the one eviction that is due at the end has been asked for.
/// `check-pods` records that when it asks for an eviction after the deadline, or after the poll budget is spent.
pub fn judge_drain(
    survey: &PodSurvey,
    terms: &Terms<'_>,
    polls: u32,
    last_eviction_tried: bool,
) -> DrainVerdict {
    let is_over = terms.is_time_over() || terms.is_budget_spent(polls);
    if survey.is_clear() {
        let patience = terms.late_patience();
        let is_empty = survey.tolerates_taint.is_empty() || patience == 0 || is_over;
        return match (is_empty, survey.to_evict().is_empty()) {
            (true, _) => DrainVerdict::Dispose,
            (false, true) => DrainVerdict::Wait(SHORTEST_WAIT.min(patience)),
            (false, false) => DrainVerdict::Evict(SHORTEST_WAIT.min(patience)),
        };
    }
    let is_something_to_evict = !survey.to_evict().is_empty();
    if is_over && is_something_to_evict && !last_eviction_tried {
        return DrainVerdict::Evict(last_wait(survey, terms));
    }
    // A spent poll budget alone ends no pod: pods are ended at the announced time, not before.
    if terms.is_time_over() && terms.on_timeout == OnDrainTimeout::Terminate {
        return DrainVerdict::EndPods;
    }
    if is_over {
        let pods = describe_pods(survey);
        return DrainVerdict::TimedOut(format!("{}; {pods}", describe_over(terms, polls)));
    }
    let wait = pace(survey, terms, polls);
    if is_something_to_evict {
        DrainVerdict::Evict(wait)
    } else {
        DrainVerdict::Wait(wait)
    }
}

/// Returns the seconds to wait after the last eviction, so that pods that were awaited so far can end.
fn last_wait(survey: &PodSurvey, terms: &Terms<'_>) -> u32 {
    let evicted = survey.to_evict();
    let longest = evicted.iter().map(|pod| terms.grace_of(pod)).max();
    match terms.on_timeout {
        OnDrainTimeout::Restore => SHORTEST_WAIT,
        OnDrainTimeout::Evict | OnDrainTimeout::Terminate => longest
            .unwrap_or_default()
            .saturating_add(SHORTEST_WAIT)
            .min(LAST_GRACE),
    }
}

/// Returns the seconds until the next check, by the poll rule: [`patient_wait`] if nothing but the end of awaited pods brings the drain on,
/// else [`next_wait`].
/// An operator may have moved the deadline so far that the rule would spend the poll budget before it.
/// In that case the rest of the budget is spread over the rest of the time.
/// The wait never goes past the time at which a pod has to be evicted.
fn pace(survey: &PodSurvey, terms: &Terms<'_>, polls: u32) -> u32 {
    let (since, now, deadline) = (terms.since, terms.now, terms.deadline);
    if terms.interrupted_at.is_some() {
        return INTERRUPTION_WAIT;
    }
    let waited = now.duration_since(since).as_secs();
    let left = deadline.at.duration_since(now).as_secs();
    let length = deadline.at.duration_since(since).as_secs();
    let length = length.clamp(i64::from(terms.drain_timeout), i64::from(LONGEST_DRAIN));
    let length = u32::try_from(length).unwrap_or(LONGEST_DRAIN);
    let heartbeat_timeout = terms.hook.and_then(HeldByHook::heartbeat_timeout);
    let only_time_helps =
        only_waits(survey) && survey.zone_mismatch.is_empty() && survey.unreadable.is_empty();
    let rule = if only_time_helps { patient_wait } else { next_wait };
    let mut wait = rule(waited, left, length, heartbeat_timeout);
    // A hook that is kept alive ends long before the budget does.
    if deadline.by_person && heartbeat_timeout.is_none() {
        let polls_left = i64::from(terms.poll_budget().saturating_sub(polls).max(1));
        wait = wait.max(u32::try_from(left / polls_left).unwrap_or(wait));
    }
    terms.next_end_of_patience(survey).map_or(wait, |due| {
        let until_due = due.duration_since(now).as_secs().max(1);
        wait.min(u32::try_from(until_due).unwrap_or(wait))
    })
}

fn describe_over(terms: &Terms<'_>, polls: u32) -> String {
    let (since, end) = (terms.since, terms.deadline.at);
    if !terms.is_time_over() {
        format!("the pods were checked {polls} times, which is the most for one execution")
    } else if terms.deadline.by_person {
        format!("the annotation {DRAIN_UNTIL_ANNOTATION} ended the drain at {end}")
    } else {
        format!("the drain began at {since} and timed out at {end}")
    }
}

#[cfg(test)]
mod tests {
    use crate::base::poll::POLL_BUDGET;
    use crate::cluster::pod::PodFacts;
    use crate::drain::progress::add_blockers;
    use crate::drain::progress::build_progress;
    use crate::drain::progress::describe_waiting;
    use crate::drain::progress::name_end;
    use crate::drain::progress::summarize_pods;
    use crate::drain::terms::EVICTION_MARGIN;
    use crate::drain::terms::{Deadline, find_deadline};
    use crate::input::model::Evict;
    use crate::records::blocker::Blocker;
    use crate::records::progress::Progress;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::drain::blocked::{Refusal, RefusalKind, find_blockers};
    use crate::drain::survey::{PodRemarks, survey_pods};
    use crate::fixtures::{at, blanket, input, job_pod, node, pod, strings, terms, with_tolerations};

    fn until(seconds: i64) -> Deadline {
        Deadline {
            at: at(seconds),
            by_person: false,
        }
    }

    /// A drain of one day, this many seconds after its start.
    pub(crate) fn after(seconds: i64) -> Terms<'static> {
        Terms {
            now: at(seconds),
            ..terms()
        }
    }

    /// A drain of one day that evicts awaited pods in time for their grace periods.
    fn evicting_in_time(seconds: i64) -> Terms<'static> {
        Terms {
            on_timeout: OnDrainTimeout::Evict,
            ..after(seconds)
        }
    }

    fn ending(seconds: i64) -> Terms<'static> {
        Terms {
            on_timeout: OnDrainTimeout::Terminate,
            ..after(seconds)
        }
    }

    /// An hourly CronJob that tolerates every taint is an example: it does not keep a node indefinitely.
    #[test]
    fn late_pods_are_evicted_for_five_minutes_once_nothing_else_holds_the_node() {
        use DrainVerdict::{Dispose, Evict, Wait};
        let late = PodFacts {
            created_at: Some(at(20)),
            scheduling: with_tolerations(blanket()),
            ..job_pod("late")
        };
        let leaving = PodFacts {
            deletion_at: Some(at(100)),
            ..late.clone()
        };
        let (holding, late, leaving) = (
            vec![late.clone(), patient("train", 30)],
            vec![late],
            vec![leaving],
        );
        for (name, pods, emptied_at, now, expected) in [
            ("others hold the node", &holding, None, 100, Wait(30)),
            ("nothing else does", &late, Some(100), 100, Evict(30)),
            ("it is leaving", &leaving, Some(100), 130, Wait(30)),
            ("just before the limit", &late, Some(100), 390, Evict(10)),
            ("the limit", &late, Some(100), 400, Dispose),
            ("the deadline", &late, Some(86_390), 86_400, Dispose),
        ] {
            let terms = Terms {
                tainted_since: Some(at(10)),
                emptied_at: emptied_at.map(at),
                ..after(now)
            };
            let survey = survey_pods(pods, &terms);
            assert_eq!(judge_drain(&survey, &terms, 1, false), expected, "{name}");
        }
        let interrupted = after(0).interrupted(at(120));
        let terms = Terms {
            tainted_since: Some(at(10)),
            ..interrupted
        };
        assert_eq!(
            judge_drain(&survey_pods(&late, &terms), &terms, 1, false),
            Dispose
        );
    }

    /// An awaited pod of a Job, with a grace period of this many seconds.
    fn patient(name: &str, grace_seconds: u32) -> PodFacts {
        PodFacts {
            annotations: strings([("recycle-eks/drain", "wait")]),
            grace_seconds,
            ..job_pod(name)
        }
    }

    #[test]
    fn if_ec2_takes_the_instance_away_all_pods_are_evicted_at_once_with_the_remaining_time() {
        let input = input(json!({"urgency": "spot", "interrupted_at": at(120), "evict": "none"}));
        let facts = node("old");
        let terms = |now| Terms::find(&input, Some(&facts), None, Some(at(0)), at(now)).0;
        let survey = survey_pods(&[patient("train", 9_999), pod("web")], &terms(5));
        assert_eq!(survey.evictable.len(), 2);
        assert_eq!(judge_drain(&survey, &terms(5), 1, false), DrainVerdict::Evict(10));
        assert_eq!(
            (
                terms(5).asked_grace(&patient("train", 9_999)),
                terms(200).asked_grace(&pod("web"))
            ),
            (Some(115), Some(1))
        );
        assert_eq!(
            terms(5).asked_grace(&pod("web")),
            None,
            "its grace period is shorter than the remaining time"
        );
        assert_eq!(after(0).asked_grace(&patient("train", 9_999)), None);
        let still_there = judge_drain(&survey, &terms(720), 99, true);
        assert!(
            matches!(still_there, DrainVerdict::TimedOut(_)),
            "{still_there:?}"
        );
    }

    #[test]
    fn the_grace_period_of_the_input_overrides_that_of_the_pod() {
        let input = input(json!({"grace_period": 600, "on_drain_timeout": "evict", "drain_timeout": 3_600}));
        let facts = node("old");
        let terms = Terms::find(&input, Some(&facts), None, Some(at(0)), at(0)).0;
        for own in [30, 9_999] {
            assert_eq!(terms.asked_grace(&patient("train", own)), Some(600), "{own}");
            let patience = terms.end_of_patience(&patient("train", own));
            assert_eq!(
                patience,
                Some(at(3_600 - 600 - i64::from(EVICTION_MARGIN))),
                "{own}"
            );
        }
        assert_eq!(terms.asked_grace(&patient("train", 600)), None);
    }

    #[test]
    fn only_a_pod_that_came_after_the_taint_and_tolerates_it_is_late() {
        let tolerant = |created: i64| PodFacts {
            created_at: Some(at(created)),
            scheduling: with_tolerations(blanket()),
            ..pod("web")
        };
        let terms = Terms {
            tainted_since: Some(at(10)),
            ..after(20)
        };
        for (created, is_late) in [(9, false), (10, false), (11, true)] {
            assert_eq!(terms.is_late(&tolerant(created)), is_late, "{created}");
        }
    }

    #[test]
    fn terms_carry_the_time_since_which_only_late_pods_are_left() {
        assert_eq!(after(0).emptied_at(Some(at(5))).emptied_at, Some(at(5)));
    }

    #[test]
    fn the_progress_describes_the_end_of_a_hook() {
        let hook = HeldByHook::new(900, Some(at(0)), false);
        let held = Terms {
            deadline: until(100_000),
            ..after(0).held_by(Some(&hook))
        };
        let progress = build_progress(&waiting(), Vec::new(), &held);
        assert_eq!(progress.hook_until, Some(at(90_000)));
        let then = progress.then;
        assert!(
            then.contains("within 900 seconds") && then.contains("the hook ends at 2027-01-02T01:00:00Z"),
            "{then}"
        );
        assert_eq!(
            judge_drain(
                &waiting(),
                &Terms {
                    now: at(80_000),
                    ..held
                },
                9,
                false
            ),
            DrainVerdict::Wait(300)
        );
    }

    fn waiting() -> PodSurvey {
        PodSurvey {
            awaited: vec![job_pod("job")],
            ..PodSurvey::default()
        }
    }

    fn evicting() -> PodSurvey {
        PodSurvey {
            evictable: vec![pod("web")],
            ..waiting()
        }
    }

    #[test]
    fn the_verdict_follows_from_pods_time_and_budget() {
        let clear = PodSurvey::default;
        let wait = |seconds| DrainVerdict::Wait(seconds);
        let evict = |seconds| DrainVerdict::Evict(seconds);
        let cases = [
            (
                "a clear node is disposed of",
                clear(),
                0,
                1,
                false,
                DrainVerdict::Dispose,
            ),
            (
                "a clear node is disposed of although the time is over",
                clear(),
                86_400,
                1,
                false,
                DrainVerdict::Dispose,
            ),
            (
                "a clear node is disposed of although the budget is spent",
                clear(),
                9,
                POLL_BUDGET,
                false,
                DrainVerdict::Dispose,
            ),
            ("awaited pods are waited for", waiting(), 0, 1, false, wait(30)),
            (
                "the wait grows with the time",
                waiting(),
                20_000,
                1,
                false,
                wait(200),
            ),
            (
                "the wait ends at the deadline",
                waiting(),
                86_390,
                1,
                false,
                wait(10),
            ),
            (
                "evictable pods are evicted",
                evicting(),
                20_000,
                1,
                false,
                evict(200),
            ),
            (
                "at the deadline one last eviction is tried",
                evicting(),
                86_400,
                1,
                false,
                evict(SHORTEST_WAIT),
            ),
            (
                "also at the end of the budget",
                evicting(),
                9,
                POLL_BUDGET,
                false,
                evict(SHORTEST_WAIT),
            ),
        ];
        for (name, survey, now, polls, tried, expected) in cases {
            let verdict = judge_drain(&survey, &after(now), polls, tried);
            assert_eq!(verdict, expected, "{name}");
        }
    }

    #[test]
    fn a_drain_that_times_out_names_its_end_and_the_remaining_pods() {
        let ended_by_operator = Terms {
            deadline: Deadline {
                at: at(50),
                by_person: true,
            },
            ..after(60)
        };
        let leaving = PodSurvey {
            terminating: vec![pod("slow")],
            ..PodSurvey::default()
        };
        let many = PodSurvey {
            awaited: ["f", "e", "d", "c", "b", "a"].map(job_pod).to_vec(),
            ..PodSurvey::default()
        };
        let cases = [
            (
                "nothing can be evicted",
                judge_drain(&waiting(), &after(86_400), 9, false),
                "the drain began at 2027-01-01T00:00:00Z and timed out at 2027-01-02T00:00:00Z; it waits for 1 pod \
                 (default/job)",
            ),
            (
                "the last eviction was tried",
                judge_drain(&evicting(), &after(86_430), 9, true),
                "and timed out at 2027-01-02T00:00:00Z; it waits for 1 pod (default/job), still has to evict 1 pod \
                 (default/web)",
            ),
            (
                "an operator ended it",
                judge_drain(&leaving, &ended_by_operator, 9, false),
                "the annotation recycle-eks/drain-until ended the drain at 2027-01-01T00:00:50Z; it finds 1 pod (default/slow) still leaving",
            ),
            (
                "the budget is spent",
                judge_drain(&waiting(), &after(60), POLL_BUDGET, false),
                "the pods were checked 1206 times, which is the most for one execution; it waits for",
            ),
            (
                "many pods",
                judge_drain(&many, &after(86_400), 9, false),
                "6 pods (default/a, default/b, default/c, default/d, default/e, …)",
            ),
        ];
        for (name, verdict, expected) in cases {
            let DrainVerdict::TimedOut(text) = verdict else {
                panic!("{name}: {verdict:?}")
            };
            assert!(text.contains(expected), "{name}: {text}");
        }
    }

    #[test]
    fn pods_that_are_held_back_hold_the_node_and_are_reported() {
        let held = PodSurvey {
            zone_mismatch: vec![pod("db-0")],
            held_because: vec!["default/db-0 is not evicted: why".to_owned()],
            ..PodSurvey::default()
        };
        assert!(!held.is_clear());
        assert!(only_waits(&held), "no pod can be evicted now");
        assert_eq!(
            describe_waiting(&held),
            "Only waits, and holds back 1 pod (default/db-0) until another node can use their volumes (zone_mismatch); another \
             node of its group may be admitted"
        );
        assert!(
            describe_waiting(&waiting()).starts_with("Only waits for pods that end by themselves; another")
        );
        let verdict = |survey: &PodSurvey, now| judge_drain(survey, &after(now), 1, false);
        assert_eq!(verdict(&held, 0), DrainVerdict::Wait(30));
        let DrainVerdict::TimedOut(text) = verdict(&held, 86_400) else {
            panic!("the pod is not evicted at the end either")
        };
        assert!(
            text.ends_with("it holds back 1 pod (default/db-0) because of zone_mismatch"),
            "{text}"
        );
        let progress = build_progress(&held, Vec::new(), &after(0));
        assert_eq!(progress.held, ["default/db-0 is not evicted: why"]);
        assert_eq!(progress.summary, "pods: 1 zone_mismatch");
        let others_leave = PodSurvey {
            evictable: vec![pod("web")],
            ..held
        };
        assert!(!only_waits(&others_leave));
        assert_eq!(verdict(&others_leave, 0), DrainVerdict::Evict(30));
        assert_eq!(others_leave.counts()["zone_mismatch"], 1);
        assert_eq!(others_leave.names()["zone_mismatch"], ["default/db-0"]);
    }

    #[test]
    fn pods_that_cannot_be_read_hold_the_node_until_the_time_is_over_and_are_named() {
        let broken = PodFacts::unreadable("shop".to_owned(), "odd".to_owned(), "u".to_owned(), "why");
        let survey = survey_pods(&[broken], &terms());
        assert!(only_waits(&survey), "no pod can be evicted now");
        assert_eq!(
            describe_waiting(&survey),
            "Only waits, because 1 pod (shop/odd) cannot be read; another node of its group may be admitted"
        );
        let verdict = |now| judge_drain(&survey, &after(now), 1, false);
        assert_eq!(verdict(0), DrainVerdict::Wait(30));
        let DrainVerdict::TimedOut(text) = verdict(86_400) else {
            panic!("the drain ends without an eviction")
        };
        assert!(text.ends_with("it cannot read 1 pod (shop/odd)"), "{text}");
        let progress = build_progress(&survey, Vec::new(), &after(0));
        assert_eq!(progress.summary, "pods: 1 unreadable");
        assert_eq!(progress.held, ["cannot read pod shop/odd: why"]);
        let terminating = Terms {
            on_timeout: OnDrainTimeout::Terminate,
            ..after(86_400)
        };
        assert_eq!(
            judge_drain(&survey, &terminating, 1, false),
            DrainVerdict::EndPods
        );
    }

    #[test]
    fn an_operator_moves_the_deadline_and_a_bad_annotation_is_reported() {
        let planned = until(3_600);
        let by_operator = |seconds| Deadline {
            at: at(seconds),
            by_person: true,
        };
        let cases: [(Option<&str>, Deadline, Option<&str>); 9] = [
            (None, planned, None),
            (Some("now"), by_operator(1_000), None),
            (Some(" now "), by_operator(1_000), None),
            (Some("2027-01-01T12:00:00Z"), by_operator(43_200), None),
            (Some("2027-01-01T12:00:00+01:00"), by_operator(39_600), None),
            (Some("2026-12-31T00:00:00Z"), by_operator(-86_400), None),
            (
                Some("2028-01-01T00:00:00Z"),
                by_operator(30 * 86_400),
                Some("at most 30 days; this drain ends at 2027-01-31T00:00:00Z"),
            ),
            (
                Some("tomorrow"),
                planned,
                Some("must be a time such as 2027-01-31T18:00:00Z, or now, but is \"tomorrow\""),
            ),
            (Some("2027-01-01"), planned, Some("it is ignored")),
        ];
        for (annotation, deadline, reported) in cases {
            let (found, report) = find_deadline(at(0), at(1_000), 3_600, annotation);
            assert_eq!(found, deadline, "{annotation:?}");
            match reported {
                None => assert_eq!(report, None, "{annotation:?}"),
                Some(text) => assert!(
                    report.clone().unwrap().contains(text),
                    "{annotation:?}: {report:?}"
                ),
            }
        }
    }

    #[test]
    fn a_drain_only_waits_when_all_evicted_pods_are_gone() {
        let leaving = PodSurvey {
            terminating: vec![pod("web")],
            ..waiting()
        };
        let ends = PodSurvey {
            terminating: vec![job_pod("job")],
            ..waiting()
        };
        for (name, survey, expected) in [
            ("an awaited pod", waiting(), true),
            ("an awaited pod that is leaving", ends, true),
            ("another is to be evicted", evicting(), false),
            ("another was evicted and is still leaving", leaving, false),
            ("no pod", PodSurvey::default(), false),
        ] {
            assert_eq!(only_waits(&survey), expected, "{name}");
        }
    }

    #[test]
    fn now_ends_a_drain_at_once() {
        let mut node = node("old");
        node.annotations = strings([("recycle-eks/drain-until", "now")]);
        let input = input(json!({}));
        let (terms, remark) = Terms::find(&input, Some(&node), None, Some(at(0)), at(1_000));
        assert_eq!((terms.since, terms.is_time_over(), remark), (at(0), true, None));
        assert!(matches!(
            judge_drain(&waiting(), &terms, 1, false),
            DrainVerdict::TimedOut(_)
        ));
    }

    #[test]
    fn terms_come_from_the_input_and_the_drain_begins_with_the_first_check() {
        let input = input(json!({"drain_timeout": 60, "evict": "none", "on_drain_timeout": "evict"}));
        let (terms, remark) = Terms::find(&input, None, Some(at(5)), None, at(1_000));
        assert_eq!(remark, None);
        assert_eq!((terms.since, terms.deadline), (at(1_000), until(1_060)));
        assert_eq!(
            (terms.evict, terms.on_timeout),
            (Evict::None, OnDrainTimeout::Evict)
        );
        assert_eq!((terms.tainted_since, terms.drain_timeout), (Some(at(5)), 60));
    }

    #[test]
    fn checks_are_rarer_while_only_awaited_pods_are_left() {
        let awaited = vec![patient("train", 30)];
        let also_evictable = vec![patient("train", 30), pod("web")];
        let also_leaving = vec![
            patient("train", 30),
            PodFacts {
                deletion_at: Some(at(1_199)),
                ..pod("web")
            },
        ];
        for (name, pods, expected) in [
            ("only awaited", awaited, DrainVerdict::Wait(120)),
            ("one to evict", also_evictable, DrainVerdict::Evict(30)),
            ("one is leaving", also_leaving, DrainVerdict::Wait(30)),
        ] {
            let terms = after(1_200);
            let survey = survey_pods(&pods, &terms);
            assert_eq!(judge_drain(&survey, &terms, 9, false), expected, "{name}");
        }
    }

    #[test]
    fn the_next_check_is_when_an_awaited_pod_has_to_be_evicted() {
        let survey = |terms: &Terms<'_>| survey_pods(&[patient("long", 3_600), patient("short", 30)], terms);
        let cases = [
            (
                "long before, the poll rule decides",
                evicting_in_time(40_000),
                DrainVerdict::Wait(400),
            ),
            (
                "the longest grace period comes first",
                evicting_in_time(82_500),
                DrainVerdict::Wait(240),
            ),
            (
                "it is due, the other one next",
                evicting_in_time(82_740),
                DrainVerdict::Evict(827),
            ),
            (
                "then the other",
                evicting_in_time(86_000),
                DrainVerdict::Evict(310),
            ),
            ("then the end", evicting_in_time(86_310), DrainVerdict::Evict(90)),
            (
                "terminate evicts at the end only",
                ending(82_740),
                DrainVerdict::Wait(827),
            ),
            (
                "restore evicts no awaited pod",
                after(82_740),
                DrainVerdict::Wait(827),
            ),
        ];
        for (name, terms, expected) in cases {
            assert_eq!(judge_drain(&survey(&terms), &terms, 9, false), expected, "{name}");
        }
    }

    #[test]
    fn the_last_eviction_has_up_to_five_minutes_if_it_evicts_awaited_pods() {
        for (grace, terms, expected) in [
            (30, evicting_in_time(86_400), 60),
            (30, ending(86_400), 60),
            (7_200, ending(86_400), 300),
            (u32::MAX, ending(86_400), 300),
        ] {
            let survey = survey_pods(&[patient("job", grace)], &terms);
            let verdict = judge_drain(&survey, &terms, 9, false);
            assert_eq!(verdict, DrainVerdict::Evict(expected), "{grace}");
        }
        let restore = judge_drain(&evicting(), &after(86_400), 9, false);
        assert_eq!(restore, DrainVerdict::Evict(SHORTEST_WAIT));
    }

    #[test]
    fn pods_are_ended_only_at_the_deadline_and_only_if_the_input_says_so() {
        let leaving = || PodSurvey {
            terminating: vec![pod("slow")],
            ..PodSurvey::default()
        };
        let is_timed_out = |verdict: &DrainVerdict| matches!(verdict, DrainVerdict::TimedOut(_));
        assert_eq!(
            judge_drain(&leaving(), &ending(86_400), 9, true),
            DrainVerdict::EndPods
        );
        assert_eq!(
            judge_drain(&waiting(), &ending(86_400), 9, false),
            DrainVerdict::EndPods
        );
        assert_eq!(
            judge_drain(&evicting(), &ending(86_460), 9, true),
            DrainVerdict::EndPods
        );
        for (name, verdict) in [
            (
                "evict restores the node",
                judge_drain(&leaving(), &evicting_in_time(86_400), 9, true),
            ),
            (
                "restore does too",
                judge_drain(&leaving(), &after(86_400), 9, true),
            ),
            (
                "the poll budget ends no pod",
                judge_drain(&waiting(), &ending(60), POLL_BUDGET, false),
            ),
        ] {
            assert!(is_timed_out(&verdict), "{name}: {verdict:?}");
        }
    }

    proptest! {
        /// Checks a node whose pods end exactly with their grace periods, until the node is clear or the drain is over.
        #[test]
        fn every_pod_has_its_grace_period_and_is_gone_at_the_deadline(
            drain_timeout in 600_u32..=604_800,
            shares in prop::collection::vec(0.0..0.8_f64, 1..6),
        ) {
            let deadline = i64::from(drain_timeout);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the time")]
            let mut pods: Vec<PodFacts> = (0..)
                .zip(&shares)
                .map(|(number, share)| patient(&format!("{number}"), (f64::from(drain_timeout) * share) as u32))
                .collect();
            let mut now = 0;
            let mut asked = 0;
            loop {
                pods.retain(|pod| pod.deletion_at.is_none_or(|end| end > at(now)));
                let terms = Terms { drain_timeout, deadline: until(deadline), ..evicting_in_time(now) };
                let survey = survey_pods(&pods, &terms);
                let wait = match judge_drain(&survey, &terms, 1, false) {
                    DrainVerdict::Dispose => break,
                    DrainVerdict::Wait(wait) => wait,
                    DrainVerdict::Evict(wait) => {
                        for pod in pods.iter_mut().filter(|pod| survey.evictable.contains(pod)) {
                            let end = now + i64::from(pod.grace_seconds);
                            let early = deadline - end;
                            prop_assert!((30..=90).contains(&early), "{} s before the deadline", early);
                            pod.deletion_at = Some(at(end));
                            asked += 1;
                        }
                        wait
                    }
                    verdict @ (DrainVerdict::EndPods | DrainVerdict::TimedOut(_)) => {
                        panic!("{verdict:?} after {now} of {deadline}")
                    }
                };
                now += i64::from(wait);
            }
            prop_assert_eq!(asked, shares.len());
            prop_assert!(now <= deadline);
        }
    }

    fn blocked(now: i64) -> Vec<Blocker> {
        let refusal = Refusal {
            kind: RefusalKind::BudgetFull,
            namespace: "default".to_owned(),
            pod: "default/web".to_owned(),
            says: "The disruption budget web needs 2 healthy pods and has 2 currently".to_owned(),
        };
        find_blockers(&[refusal], &[], at(now))
    }

    #[test]
    fn the_progress_names_pods_blockers_start_and_end() {
        let survey = PodSurvey {
            terminating: vec![pod("old")],
            stuck: vec![pod("older")],
            ..evicting()
        };
        let progress = build_progress(&survey, blocked(0), &after(600));
        assert_eq!(
            progress,
            build_progress(&survey, blocked(0), &after(900)),
            "time alone changes nothing"
        );
        assert_eq!(
            progress.summary,
            "pods: 1 awaited, 1 evictable, 1 blocked, 1 terminating, 1 stuck"
        );
        assert_eq!((progress.since, progress.until), (at(0), at(86_400)));
        assert_eq!(progress.then, "the node is restored");
        assert_eq!(progress.blocked[0].what, "budget default/web");
        assert_eq!(progress.counts["awaited"], 1);
        assert_eq!(progress.names["stuck"], ["default/older"]);
        let clear = build_progress(&PodSurvey::default(), Vec::new(), &after(600));
        assert_eq!(clear.summary, "no pod holds the node");
        let unblocked = add_blockers(progress, &survey, Vec::new());
        assert_eq!(
            unblocked.summary,
            "pods: 1 awaited, 1 evictable, 1 terminating, 1 stuck"
        );
        assert!(unblocked.blocked.is_empty() && unblocked.held.is_empty());
        let held = PodSurvey {
            held_because: vec!["default/db-0 is not evicted: why".to_owned()],
            ..survey
        };
        assert_eq!(add_blockers(unblocked, &held, Vec::new()).held, held.held_because);
    }

    #[test]
    fn the_progress_describes_the_end_of_the_drain() {
        let pods = [patient("long", 3_600), patient("short", 30)];
        for (terms, expected) in [
            (after(0), "the node is restored"),
            (
                evicting_in_time(0),
                "awaited pods are evicted, the first at 2027-01-01T22:59:00Z",
            ),
            (
                evicting_in_time(86_399),
                "remaining pods keep running, and the node is restored",
            ),
            (
                ending(0),
                "the instance is disposed of, even if pods still run on it",
            ),
        ] {
            let survey = survey_pods(&pods, &terms);
            assert_eq!(build_progress(&survey, Vec::new(), &terms).then, expected);
        }
    }

    #[test]
    fn every_end_has_a_name_and_other_texts_have_none() {
        let (gone, retained) = (
            HeldByHook::new(900, None, false),
            HeldByHook::new(900, None, true),
        );
        for (terms, word) in [
            (after(0), "restore"),
            (after(0).held_by(Some(&gone)), "group terminates"),
            (after(0).held_by(Some(&retained)), "kept"),
            (evicting_in_time(0), "evict"),
            (evicting_in_time(86_399), "restore"),
            (evicting_in_time(86_399).held_by(Some(&gone)), "group terminates"),
            (evicting_in_time(86_399).held_by(Some(&retained)), "kept"),
            (ending(0), "terminate"),
            (after(0).interrupted(at(120)), "EC2 takes it"),
        ] {
            let survey = survey_pods(&[patient("long", 3_600), patient("short", 30)], &terms);
            let then = build_progress(&survey, Vec::new(), &terms).then;
            assert_eq!(name_end(&then), word, "{then}");
        }
        assert_eq!(name_end("\u{1b}[2Jrestore"), "?");
    }

    #[test]
    fn the_first_140_characters_name_the_awaited_pods_and_the_end() {
        let many = |count: usize| {
            (0..count)
                .map(|number| pod(&format!("{number}")))
                .collect::<Vec<_>>()
        };
        let survey = PodSurvey {
            awaited: many(58),
            evictable: many(20),
            stuck: many(1),
            ..PodSurvey::default()
        };
        let text = serde_json::to_string(&build_progress(&survey, blocked(0), &after(600))).unwrap();
        let first: String = text.chars().take(140).collect();
        assert_eq!(
            first,
            r#"{"summary":"pods: 58 awaited, 20 evictable, 1 blocked, 1 stuck","since":"2027-01-01T00:00:00Z","until":"2027-01-02T00:00:00Z","then":"the no"#
        );
    }

    #[test]
    fn a_class_that_had_no_pods_at_the_last_check_of_the_same_drain_is_an_update() {
        let progress = |survey: &PodSurvey| build_progress(survey, Vec::new(), &after(0));
        let before = progress(&waiting());
        assert!(before.has_update(None));
        assert!(!progress(&waiting()).has_update(Some(&before)));
        assert!(progress(&evicting()).has_update(Some(&before)));
        assert!(
            !before.has_update(Some(&progress(&evicting()))),
            "fewer classes are no update"
        );
        let another = Progress {
            since: at(-9),
            ..progress(&waiting())
        };
        assert!(before.has_update(Some(&another)), "another drain");
        let only_ignored = PodSurvey {
            ignored: 3,
            ..PodSurvey::default()
        };
        assert!(!progress(&only_ignored).has_update(None));
    }

    #[test]
    fn an_event_names_every_class_with_its_pods() {
        let survey = PodSurvey {
            remarks: PodRemarks {
                never_ends: vec![job_pod("job")],
                ..PodRemarks::default()
            },
            ignored: 4,
            ..evicting()
        };
        assert_eq!(
            summarize_pods(&survey, &after(0)),
            "Pods until 2027-01-02T00:00:00Z: awaited 1 (default/job); evictable 1 (default/web); never_ends 1 (default/job)"
        );
    }

    #[test]
    fn a_progress_is_read_as_it_was_written() {
        let progress = build_progress(&evicting(), blocked(0), &after(0));
        let text = serde_json::to_string(&progress).unwrap();
        assert_eq!(serde_json::from_str::<Progress>(&text).unwrap(), progress);
        let bare = serde_json::to_string(&Progress::new("hello".to_owned(), at(0), at(1))).unwrap();
        assert_eq!(
            bare,
            r#"{"summary":"hello","since":"2027-01-01T00:00:00Z","until":"2027-01-01T00:00:01Z"}"#
        );
    }
}
