use crate::answer::envelope::{Answer, SelectBody};
use crate::base::names::EVICTED_ANNOTATION;
use crate::base::names::REPLACES_LABEL;
use crate::cluster::node::NodeFacts;
use crate::cluster::pod::PodFacts;
use crate::contract::verdicts::SelectVerdict;
use crate::rotation::attempts::AttemptOutcome;
use crate::rotation::attempts::Begun;
use crate::rotation::attempts::check_failures;
use crate::rotation::attempts::check_outcomes;
use crate::rotation::attempts::find_begun;
use crate::rotation::attempts::find_doubtful;
use crate::rotation::attempts::find_gone;
use crate::rotation::attempts::judge_attempt;
use crate::rotation::attempts::keep_replacements;
use crate::rotation::attempts::settle_outcome;
use crate::rotation::canary::Canary;
use crate::rotation::canary::check_canary;
use crate::rotation::canary::check_displaced;
use crate::rotation::canary::check_kubelet;
use crate::rotation::canary::find_canary;
use crate::rotation::canary::find_displaced;
use crate::rotation::canary::has_evicted;
use crate::rotation::outdated::Release;
use crate::rotation::request::Rotation;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::base::names::CLAIM_ANNOTATION;
use crate::cluster::pod::Controller;
use crate::fixtures::{NEW, OLD, OTHER, at, claim, id, leased, node, pod, strings};
use crate::input::urgency::Urgency;
use crate::records::claim::{Claim, Phase};
use crate::records::lease::Lease;
use crate::rotation::fleet::FleetMember;
use crate::rotation::request::parse_rotation;
use crate::rotation::terms::EarlierPasses;

const ROTATION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:one";
const DAY: u32 = 86_400;

fn rotation(more: Value) -> Rotation {
    let mut input = json!({"trigger": "manual", "selection": {"outdated": {"all": true}}});
    input
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    parse_rotation(&input).unwrap()
}

fn terms(more: Value) -> Terms {
    rotation(more).terms.unwrap()
}

fn part() -> Part {
    Part {
        group: "workers".parse().unwrap(),
        execution: ROTATION.parse().unwrap(),
        began_at: at(0),
        input: Value::Null,
        earlier: EarlierPasses::default(),
    }
}

fn waiting_node(index: usize) -> WaitingNode {
    WaitingNode {
        instance_id: id(OLD),
        index,
        began_at: at(0),
        waited: 0,
        waits_for: None,
        waited_for_it: 0,
        attempt: 1,
        status: None,
        error: None,
        exists: false,
        alarms: None,
    }
}

fn fleet(states: &[(&str, &str)]) -> Fleet {
    Fleet {
        name: "workers".parse().unwrap(),
        tags: BTreeMap::new(),
        template: None,
        overrides: BTreeMap::new(),
        rebalances_capacity: false,
        room: 3,
        members: states
            .iter()
            .map(|(name, state)| FleetMember {
                instance: id(name),
                lifecycle_state: (*state).to_owned(),
                instance_type: "m7i.large".to_owned(),
                zone: "a".to_owned(),
                template: None,
            })
            .collect(),
    }
}

fn why(admission: Option<Admission>) -> String {
    match admission {
        None | Some(Admission::Start) => "start".to_owned(),
        Some(Admission::Wait(_, reason)) => format!("wait: {reason}"),
        Some(Admission::Await(reason)) => format!("await: {reason}"),
        Some(Admission::Pause(seconds, _)) => format!("pause: {seconds}"),
        Some(Admission::DescribeAlarms) => "describe alarms".to_owned(),
        Some(Admission::Skip(ended)) => format!("skip, {}: {}", ended.end, ended.why),
        Some(Admission::Stop(ended)) => format!("stop, {}: {}", ended.end, ended.why),
    }
}

#[test]
fn a_failed_node_is_attempted_again_as_often_as_retries_allow_unless_it_was_aborted() {
    let failed = |status: &str, attempt: u32| WaitingNode {
        status: Some(status.to_owned()),
        error: (status == "FAILED").then(|| "DrainTimedOut".to_owned()),
        attempt,
        ..waiting_node(0)
    };
    for (name, given, waiting_node, expected) in [
        ("first", json!({}), waiting_node(0), "start"),
        (
            "failed",
            json!({}),
            failed("FAILED", 2),
            "skip, failed: DrainTimedOut",
        ),
        ("failed once", json!({"retries": 1}), failed("FAILED", 2), "start"),
        (
            "failed twice",
            json!({"retries": 1}),
            failed("TIMED_OUT", 3),
            "skip, failed: TIMED_OUT",
        ),
        (
            "stopped",
            json!({"retries": 9}),
            failed("ABORTED", 2),
            "skip, failed: ABORTED",
        ),
        (
            "in time",
            json!({"start_no_new_node_after": "2h"}),
            waiting_node(0),
            "start",
        ),
        (
            "too late",
            json!({"start_no_new_node_after": "1h"}),
            waiting_node(0),
            "stop, left: start_no_new_node_after was 2027-01-01T01:00:00Z",
        ),
        (
            "a dry run",
            json!({"start_no_new_node_after": "1h", "dry_run": true}),
            waiting_node(0),
            "start",
        ),
    ] {
        assert_eq!(
            why(check_waiting_node(
                &terms(given),
                &part(),
                &waiting_node,
                at(3_600)
            )),
            expected,
            "{name}"
        );
    }
}

#[test]
fn a_node_does_not_start_in_a_missing_or_paused_group_or_during_a_pause() {
    let paused = Fleet {
        tags: strings([(PAUSED_TAG, "true")]),
        ..fleet(&[(OLD, "InService")])
    };
    let not_paused = Fleet {
        tags: strings([(PAUSED_TAG, "false")]),
        ..fleet(&[(OLD, "InService")])
    };
    let again = |index: usize| WaitingNode {
        attempt: 2,
        status: Some("FAILED".to_owned()),
        ..waiting_node(index)
    };
    for (name, fleet, waiting_node, expected) in [
        ("gone", None, waiting_node(0), "stop, left: the group is gone"),
        (
            "no member",
            Some(fleet(&[])),
            waiting_node(0),
            "skip, left: is no longer a member of its group",
        ),
        (
            "in Standby",
            Some(fleet(&[(OLD, "Standby")])),
            waiting_node(0),
            "skip, left: is Standby",
        ),
        (
            "paused, and the third",
            Some(paused.clone()),
            waiting_node(2),
            "pause: 500",
        ),
        (
            "paused",
            Some(paused),
            waiting_node(0),
            "wait: group workers has the tag recycle-eks:paused",
        ),
        ("not paused", Some(not_paused), waiting_node(0), "start"),
        (
            "the second of two at once",
            Some(fleet(&[(OLD, "InService")])),
            waiting_node(1),
            "start",
        ),
        (
            "the third",
            Some(fleet(&[(OLD, "InService")])),
            waiting_node(2),
            "pause: 500",
        ),
        (
            "the first again",
            Some(fleet(&[(OLD, "InService")])),
            again(0),
            "pause: 500",
        ),
        (
            "the third again",
            Some(fleet(&[(OLD, "InService")])),
            again(2),
            "pause: 500",
        ),
    ] {
        let terms = terms(json!({"wait_between_nodes": "10m"}));
        assert_eq!(
            why(check_group(&terms, &waiting_node, 2, fleet.as_ref(), at(100))),
            expected,
            "{name}"
        );
    }
    let there = fleet(&[(OLD, "InService")]);
    for (seconds, expected) in [(10, "pause: 50"), (60, "start")] {
        let found = check_group(&terms(json!({})), &again(0), 2, Some(&there), at(seconds));
        assert_eq!(
            why(found),
            expected,
            "without a wait, {seconds} seconds after the failure"
        );
    }
}

/// Counts the checks of a node that waits, until it is stopped or five days are over.
fn count_checks(admission: &Admission) -> (u32, WaitingNode, Answer<SelectVerdict>) {
    let (rotation, part) = (rotation(json!({})), part());
    let mut checks = 0;
    let mut asking = waiting_node(0);
    loop {
        let answer = admission.clone().answer(&rotation, &part, &asking);
        if answer.verdict != SelectVerdict::Wait || asking.waited > 5 * DAY {
            return (checks, asking, answer);
        }
        let spread = if checks == 0 { 30 } else { 0 };
        assert!(answer.wait_seconds >= 30 && answer.wait_seconds <= 30.max(asking.waited / 2) + spread);
        asking = after(&asking, &answer);
        checks += 1;
    }
}

/// Returns the node after a wait, as the state machine carries it.
fn after(waiting_node: &WaitingNode, answer: &Answer<SelectVerdict>) -> WaitingNode {
    let SelectBody::AfterWait(waited) = answer.body.clone() else {
        panic!("{answer:?}")
    };
    WaitingNode {
        waited: waited.waited,
        waits_for: Some(waited.waits_for),
        waited_for_it: waited.waited_for_it,
        ..waiting_node.clone()
    }
}

#[test]
fn the_seconds_of_waiting_count_for_one_reason_only() {
    let (rotation, part) = (rotation(json!({})), part());
    let long = WaitingNode {
        waited: 2 * DAY,
        waits_for: Some(WaitReason::Canary),
        waited_for_it: 2 * DAY,
        ..waiting_node(1)
    };
    let paused = Admission::Wait(WaitReason::Paused, "paused".to_owned());
    let answer = paused.clone().answer(&rotation, &part, &long);
    assert_eq!(answer.verdict, SelectVerdict::Wait);
    let next = after(&long, &answer);
    assert_eq!(
        (next.waited_for_it, next.waited),
        (answer.wait_seconds, 2 * DAY + answer.wait_seconds)
    );
    assert_eq!(
        paused.answer(&rotation, &part, &next).verdict,
        SelectVerdict::Stop
    );
    let displaced = ["default/web".to_owned()];
    assert!(why(check_displaced(&displaced, &long)).starts_with("wait:"));
}

#[test]
fn a_node_without_a_further_attempt_for_half_an_hour_and_the_pause_has_failed() {
    let patient = Terms {
        wait_between_nodes: 600,
        ..terms(json!({"retries": 1}))
    };
    for (waits_for, waited_for_it, expected) in [
        (WaitReason::Beginning, 2_399, AttemptOutcome::BetweenAttempts),
        (WaitReason::Beginning, 2_400, AttemptOutcome::Failed),
        (WaitReason::Canary, 9_000, AttemptOutcome::BetweenAttempts),
    ] {
        let asking = WaitingNode {
            waits_for: Some(waits_for),
            waited_for_it,
            ..waiting_node(1)
        };
        let found = settle_outcome(AttemptOutcome::BetweenAttempts, &asking, &patient);
        assert_eq!(found, expected, "{waits_for:?} {waited_for_it}");
    }
}

#[test]
fn a_waiting_node_checks_at_growing_intervals_and_is_left_after_a_day() {
    let (checks, asking, answer) = count_checks(&Admission::Wait(WaitReason::Paused, "paused".to_owned()));
    assert_eq!(checks, 20);
    assert!(asking.waited >= DAY);
    let SelectBody::Ended(ended) = answer.body else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (answer.verdict, ended.end, ended.why.as_str()),
        (SelectVerdict::Stop, "left", "waited for a day: paused")
    );
}

#[test]
fn a_pause_of_the_input_is_not_a_wait() {
    let answer =
        Admission::Pause(DAY, "wait_between_nodes").answer(&rotation(json!({})), &part(), &waiting_node(9));
    assert_eq!((answer.verdict, answer.wait_seconds), (SelectVerdict::Pause, DAY));
}

#[test]
fn a_node_that_waits_for_a_running_execution_keeps_waiting_and_checks_at_least_daily() {
    let (checks, _, answer) = count_checks(&Admission::Await("draining".to_owned()));
    assert_eq!((checks, answer.verdict), (25, SelectVerdict::Wait));
    assert_eq!(answer.wait_seconds, DAY);
}

#[test]
fn the_nodes_that_wait_from_the_beginning_check_again_at_different_moments() {
    let (rotation, part) = (rotation(json!({})), part());
    let waits: BTreeSet<u32> = (0..40)
        .map(|number| {
            let waiting_node = WaitingNode {
                instance_id: format!("i-{number:017x}").parse().unwrap(),
                ..waiting_node(1)
            };
            Admission::Wait(WaitReason::Canary, "canary".to_owned())
                .answer(&rotation, &part, &waiting_node)
                .wait_seconds
        })
        .collect();
    assert!(
        waits.len() > 10 && waits.iter().all(|wait| (30..60).contains(wait)),
        "{waits:?}"
    );
}

#[test]
fn each_attempt_has_a_name_that_can_be_computed() {
    let (rotation, part) = (rotation(json!({"retries": 1})), part());
    let name = |attempt: u32| {
        let asking = WaitingNode {
            attempt,
            ..waiting_node(0)
        };
        let SelectBody::Start(start) = Admission::Start.answer(&rotation, &part, &asking).body else {
            panic!()
        };
        let execution = find_execution(&part, rotation.trigger, &asking.instance_id, attempt).unwrap();
        let machine = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:";
        assert_eq!(execution.as_str(), format!("{machine}{}", start.name));
        start.name
    };
    assert_eq!(name(1), Start::new("manual", &id(OLD), ROTATION).name);
    assert_eq!(
        name(2),
        Start::new("manual", &id(OLD), &format!("{ROTATION} 2")).name
    );
}

#[test]
fn the_outcome_of_an_earlier_node_is_read_attempt_by_attempt() {
    for (status, attempt, retries, expected) in [
        (None, 1, 0, Some(AttemptOutcome::NotBegun)),
        (None, 2, 1, Some(AttemptOutcome::BetweenAttempts)),
        (Some("RUNNING"), 1, 0, Some(AttemptOutcome::Running)),
        (Some("PENDING_REDRIVE"), 1, 0, Some(AttemptOutcome::Running)),
        (Some("SUCCEEDED"), 1, 0, Some(AttemptOutcome::Done)),
        (Some("FAILED"), 1, 0, Some(AttemptOutcome::Failed)),
        (Some("FAILED"), 1, 1, None),
        (Some("TIMED_OUT"), 2, 1, Some(AttemptOutcome::Failed)),
        (Some("ABORTED"), 1, 9, Some(AttemptOutcome::Failed)),
    ] {
        assert_eq!(
            judge_attempt(status, attempt, retries, true),
            expected,
            "{status:?} {attempt} {retries}"
        );
    }
    assert_eq!(
        judge_attempt(None, 2, 1, false),
        Some(AttemptOutcome::Failed),
        "it is in Standby, or gone"
    );
    assert_eq!(judge_attempt(None, 1, 1, false), Some(AttemptOutcome::NotBegun));
}

fn replacement(of: &str, evicted: Option<&str>) -> NodeFacts {
    let mut found = node("new");
    found.labels.insert(REPLACES_LABEL.to_owned(), of.to_owned());
    found
        .annotations
        .extend(evicted.map(|hashes| (EVICTED_ANNOTATION.to_owned(), hashes.to_owned())));
    found
}

fn in_work(name: &str) -> Lease {
    in_work_for(name, Urgency::Planned)
}

fn in_work_for(name: &str, urgency: Urgency) -> Lease {
    let claim = Claim {
        urgency,
        ..claim(Phase::Draining)
    };
    with_claim(name, &serde_json::to_string(&claim).unwrap())
}

fn with_claim(name: &str, claim: &str) -> Lease {
    let found = NodeFacts {
        instance: Some(id(name)),
        ..node("old")
    };
    leased(found, [(CLAIM_ANNOTATION, claim)]).lease.unwrap()
}

#[test]
fn no_node_waits_for_a_claim_of_another_installation() {
    let begun = |claim: String| find_begun(&[id(NEW)], &[with_claim(NEW, &claim)], &[], &part().execution);
    let own = in_work(NEW).annotations[CLAIM_ANNOTATION].clone();
    assert_eq!(begun(own.clone()).len(), 1);
    let foreign = own.replace("recycle-eks-recycle-node", "other-recycle-node");
    for claim in [foreign, r#"{"schema": 2}"#.to_owned(), "mine!".to_owned()] {
        assert_eq!(begun(claim.clone()), [], "{claim}");
    }
}

#[test]
fn a_label_makes_only_a_new_member_the_replacement_of_a_node_that_has_begun() {
    let fleet = fleet(&[(OLD, "InService"), (NEW, "InService")]);
    let standby = Fleet {
        members: fleet
            .members
            .iter()
            .cloned()
            .map(|member| FleetMember {
                lifecycle_state: if member.instance == id(OLD) {
                    "Standby".to_owned()
                } else {
                    member.lifecycle_state
                },
                ..member
            })
            .collect(),
        ..fleet.clone()
    };
    let on = |name: &str, old: &str| NodeFacts {
        instance: Some(id(name)),
        ..replacement(old, None)
    };
    let without_instance = NodeFacts {
        instance: None,
        ..replacement(OTHER, None)
    };
    for (name, found, fleet, leases, is_new, kept) in [
        ("gone", on(NEW, OTHER), &fleet, vec![], true, true),
        ("in Standby", on(NEW, OLD), &standby, vec![], true, true),
        ("claimed", on(NEW, OLD), &fleet, vec![in_work(OLD)], true, true),
        ("neither", on(NEW, OLD), &fleet, vec![], true, false),
        (
            "claimed for a warning",
            on(NEW, OLD),
            &fleet,
            vec![in_work_for(OLD, Urgency::Spot)],
            true,
            true,
        ),
        (
            "an unreadable claim",
            on(NEW, OLD),
            &fleet,
            vec![with_claim(OLD, "mine!")],
            true,
            false,
        ),
        ("an old member", on(NEW, OTHER), &fleet, vec![], false, false),
        ("another group's", on(OTHER, OTHER), &fleet, vec![], true, false),
        ("no instance", without_instance, &fleet, vec![], true, false),
        ("no id", on(NEW, "first"), &fleet, vec![], true, false),
    ] {
        let found = keep_replacements(vec![found], fleet, &leases, &part().execution, |_| is_new);
        assert_eq!(found.len() == 1, kept, "{name}");
    }
}

#[test]
fn the_first_replacement_is_awaited_and_judged_until_a_second_node_has_begun() {
    let nodes = [NEW, OTHER, OLD].map(id);
    let begun =
        |claimed: &[Lease], replaced: &[NodeFacts]| find_begun(&nodes, claimed, replaced, &part().execution);
    for (name, index, begun, expected) in [
        ("the first itself", 0, vec![], "First"),
        ("none has begun", 2, vec![], "Ask"),
        (
            "the first waits for its replacement",
            2,
            begun(&[in_work(NEW)], &[]),
            "Await",
        ),
        (
            "the first has it",
            2,
            begun(&[in_work(NEW)], &[replacement(NEW, None)]),
            "Judge",
        ),
        (
            "the first is gone and has it",
            2,
            begun(&[], &[replacement(NEW, None)]),
            "Judge",
        ),
        (
            "two have begun",
            2,
            begun(&[in_work(OTHER)], &[replacement(NEW, None)]),
            "Passed",
        ),
        ("only this one has, before", 2, begun(&[in_work(OLD)], &[]), "Ask"),
        (
            "the first and one under a hook",
            2,
            begun(&[in_work(NEW), in_work_for(OTHER, Urgency::Hook)], &[]),
            "Await",
        ),
        (
            "one that EC2 interrupts",
            2,
            begun(&[in_work_for(OTHER, Urgency::Spot)], &[]),
            "Ask",
        ),
    ] {
        let found = format!("{:?}", find_canary(&waiting_node(index), &begun));
        assert!(found.starts_with(expected), "{name}: {found}");
    }
}

#[test]
fn before_the_first_node_has_begun_the_others_wait_for_a_node_that_may_be_the_first() {
    let (new, other) = (id(NEW), id(OTHER));
    let there = [(NEW, "InService"), (OTHER, "InService")];
    for (members, outcomes, at_once, waits) in [
        (&there[..], vec![], 2, false),
        (&there, vec![(&new, AttemptOutcome::NotBegun)], 2, true),
        // One at a time: every earlier node has ended.
        (&there, vec![(&new, AttemptOutcome::NotBegun)], 1, false),
        (
            &there,
            vec![
                (&new, AttemptOutcome::NotBegun),
                (&other, AttemptOutcome::NotBegun),
            ],
            2,
            false,
        ),
        (
            &there,
            vec![
                (&new, AttemptOutcome::NotBegun),
                (&other, AttemptOutcome::Running),
            ],
            1,
            true,
        ),
        (
            &there,
            vec![(&new, AttemptOutcome::Failed), (&other, AttemptOutcome::Running)],
            2,
            true,
        ),
        (
            &there,
            vec![(&new, AttemptOutcome::Failed), (&other, AttemptOutcome::Done)],
            2,
            false,
        ),
        (
            &there,
            vec![(&new, AttemptOutcome::NotBegun), (&other, AttemptOutcome::Done)],
            2,
            true,
        ),
        (
            &[(NEW, "Standby")],
            vec![(&new, AttemptOutcome::NotBegun)],
            2,
            false,
        ),
        (&[], vec![(&new, AttemptOutcome::NotBegun)], 2, false),
    ] {
        assert_eq!(
            check_outcomes(&outcomes, &fleet(members), &waiting_node(1), at_once).is_some(),
            waits,
            "{members:?} {outcomes:?} {at_once}"
        );
    }
}

#[test]
fn a_node_that_has_not_begun_is_awaited_for_half_an_hour_and_a_running_one_for_longer() {
    let new = id(NEW);
    let there = fleet(&[(NEW, "InService")]);
    for (waited, outcome, waits) in [
        (1_799, AttemptOutcome::NotBegun, true),
        (1_800, AttemptOutcome::NotBegun, false),
        (1_800, AttemptOutcome::Running, true),
        (1_800, AttemptOutcome::BetweenAttempts, true),
    ] {
        let outcomes = [(&new, outcome.clone())];
        let asking = WaitingNode {
            waits_for: Some(WaitReason::Beginning),
            waited_for_it: waited,
            ..waiting_node(1)
        };
        assert_eq!(
            check_outcomes(&outcomes, &there, &asking, 2).is_some(),
            waits,
            "{waited} {outcome:?}"
        );
    }
}

#[test]
fn executions_are_not_looked_up_while_the_first_node_is_claimed_or_about_to_begin() {
    let (first, new) = (id(OTHER), replacement(OTHER, None));
    let waited = |index: usize| WaitingNode {
        waited: 30,
        ..waiting_node(index)
    };
    for (name, canary, waiting_node, expected) in [
        ("it is the first", Canary::First, waiting_node(0), "start"),
        (
            "the second, at its first check",
            Canary::Ask,
            waiting_node(1),
            "wait: the group's first node is about to start",
        ),
        ("the second, at its next check", Canary::Ask, waited(1), "start"),
        (
            "the third: another node has ended",
            Canary::Ask,
            waiting_node(2),
            "start",
        ),
        (
            "the first is worked on",
            Canary::Await(&first),
            waited(2),
            "await: the group's first replacement, that of i-0cccccccccccccccc, is not known yet",
        ),
        (
            "the first has its replacement",
            Canary::Judge {
                first: &first,
                replacement: &new,
            },
            waiting_node(1),
            "start",
        ),
        ("two have begun", Canary::Passed, waiting_node(1), "start"),
    ] {
        assert_eq!(why(check_canary(&canary, &waiting_node, 2)), expected, "{name}");
    }
}

#[test]
fn a_failed_node_stays_failed_whatever_prevents_its_next_attempt() {
    let (rotation, part) = (rotation(json!({"retries": 1})), part());
    let failed = WaitingNode {
        attempt: 2,
        status: Some("FAILED".to_owned()),
        error: Some("ReplacementTimedOut".to_owned()),
        ..waiting_node(0)
    };
    let too_new = Admission::stop_with(Stop::KubeletTooNew, "too new");
    for (admission, waiting_node, expected) in [
        (
            Admission::skip("is Standby"),
            failed.clone(),
            ("failed", "ReplacementTimedOut"),
        ),
        (
            Admission::stop("the window"),
            failed.clone(),
            ("failed", "ReplacementTimedOut"),
        ),
        (
            Admission::skip("is Standby"),
            waiting_node(0),
            ("left", "is Standby"),
        ),
        (too_new, failed, ("left", "too new")),
    ] {
        let SelectBody::Ended(ended) = admission.answer(&rotation, &part, &waiting_node).body else {
            panic!()
        };
        assert_eq!((ended.end, ended.why.as_str()), expected);
    }
}

#[test]
fn executions_are_looked_up_for_earlier_nodes_that_are_members_and_not_claimed() {
    let nodes = [NEW, OTHER].map(id);
    let found = fleet(&[(NEW, "InService"), (OTHER, "Standby")]);
    let ask = |fleet: &Fleet, begun: &[Begun]| {
        let doubtful = find_doubtful(&nodes, fleet, begun);
        doubtful.into_iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(ask(&found, &[]), nodes);
    assert_eq!(
        ask(
            &found,
            &find_begun(&nodes, &[in_work(NEW)], &[], &part().execution)
        ),
        [id(OTHER)]
    );
    assert_eq!(
        ask(
            &found,
            &find_begun(&nodes, &[], &[replacement(NEW, None)], &part().execution)
        ),
        nodes,
        "it may have failed since"
    );
    let gone = fleet(&[(NEW, "Terminating:Wait")]);
    assert_eq!(ask(&gone, &[]), []);
    assert_eq!(find_gone(&nodes, &gone).len(), 2);
    assert!(find_gone(&nodes, &found).is_empty());
    assert_eq!(
        ask(
            &found,
            &find_begun(&nodes, &[in_work_for(NEW, Urgency::Hook)], &[], &part().execution)
        ),
        nodes
    );
    for (budget, failed, stops) in [(0, 0, false), (0, 1, true), (2, 2, false), (2, 3, true)] {
        assert_eq!(
            check_failures(budget, failed).is_some(),
            stops,
            "{failed} of {budget}"
        );
    }
}

#[test]
fn a_kubelet_may_be_as_new_as_the_control_plane_and_no_newer() {
    let with = |kubelet: &str| NodeFacts {
        kubelet: kubelet.to_owned(),
        ..node("a")
    };
    let plane = Release::read("1.33");
    assert_eq!(check_kubelet(&with("v1.33.9"), plane), None);
    assert_eq!(check_kubelet(&with(""), plane), None);
    let Some(Admission::Stop(ended)) = check_kubelet(&with("v1.34.0"), plane) else {
        panic!("it starts")
    };
    assert_eq!(ended.error, Some(Stop::KubeletTooNew));
    assert_eq!(
        ended.why,
        "the replacement a has kubelet 1.34, but the control plane is 1.33"
    );
}

#[test]
fn a_node_waits_for_an_hour_for_pods_that_this_rotation_evicted() {
    let of = |name: &str, uid: &str, created: i64| {
        let controller = Controller {
            api_group: "apps".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: "web".to_owned(),
            uid: uid.to_owned(),
        };
        PodFacts {
            controller: Some(controller),
            created_at: Some(at(created)),
            ..pod(name)
        }
    };
    let hash = crate::base::ids::short_hash("ours");
    let replacements = [replacement(NEW, Some(&hash))];
    assert!(has_evicted(&replacements) && !has_evicted(&[replacement(NEW, None)]));
    let leaving = PodFacts {
        deletion_at: Some(at(200)),
        ..of("leaves", "ours", 150)
    };
    let pending = [
        of("theirs", "others", 150),
        of("before", "ours", 99),
        leaving,
        of("ours", "ours", 100),
    ];
    let displaced = find_displaced(&replacements, &pending, at(100));
    assert_eq!(displaced, ["default/ours"]);
    for (waited, expected) in [
        (0, "wait: 1 pod that"),
        (3_599, "wait: 1 pod that"),
        (3_600, "stop, left: 1 pod that"),
    ] {
        let asking = WaitingNode {
            waits_for: Some(WaitReason::Pending),
            waited_for_it: waited,
            ..waiting_node(1)
        };
        let admission = check_displaced(&displaced, &asking);
        let fails =
            matches!(&admission, Some(Admission::Stop(ended)) if ended.error == Some(Stop::PodsPending));
        assert_eq!(fails, waited == 3_600);
        let found = why(admission);
        assert!(found.starts_with(expected), "{waited}: {found}");
    }
    assert_eq!(check_displaced(&[], &waiting_node(1)), None);
}

#[test]
fn the_end_of_a_node_is_short() {
    let ended = Ended::stopping(Stop::ReplacementStillOutdated, "x".repeat(9_000));
    let length = serde_json::to_string(&ended).unwrap().len();
    assert!(length < 330, "{length}");
}

#[test]
fn an_execution_that_had_ended_before_leaves_the_node_unless_it_was_a_duplicate() {
    let recycled = judge_end_before(Some(&json!({"outcome": "recycled"})));
    assert_eq!((recycled.end, judge_end_before(None).end), ("left", "left"));
    let duplicate = judge_end_before(Some(
        &json!({"outcome": "duplicate", "reason": "another one works on it"}),
    ));
    assert_eq!(
        (duplicate.end, duplicate.why.as_str()),
        ("failed", "duplicate: another one works on it")
    );
}

#[test]
fn the_machine_of_the_nodes_is_that_of_the_rotations_installation() {
    assert_eq!(
        find_machine(&part()),
        "arn:aws:states:eu-west-1:123456789012:stateMachine:recycle-eks-recycle-node"
    );
}
