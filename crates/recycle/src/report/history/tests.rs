use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::fixtures::{ARN, OLD, at};
use crate::report::event::{BOXES, End, EventKind, Stage, find_box};
use crate::report::parts::{Look, MOST_FAILED_ATTEMPTS, MOST_LOOKS, MOST_PODS, SeenPod, Span, thin};
use crate::report::reader::find_started;

/// Builds a history from pairs: seconds after the beginning, and what happened.
fn history(events: &[(i64, EventKind)]) -> Vec<Event> {
    let numbered = events.iter().enumerate();
    numbered
        .map(|(index, (seconds, what))| Event {
            id: i64::try_from(index).unwrap() + 1,
            previous: i64::try_from(index).unwrap(),
            at: at(*seconds),
            what: what.clone(),
        })
        .collect()
}

fn entered(state: &str) -> EventKind {
    EventKind::Entered(state.to_owned())
}

/// Returns an answer of a function, with the run that it carries.
fn answered(mut payload: Value) -> EventKind {
    payload["run"]["node"] = json!("a");
    payload["run"]["group"] = json!("workers");
    EventKind::Answered(payload)
}

fn counts(counts: Value, names: Value) -> EventKind {
    answered(json!({"verdict": "wait", "reason": "it waits", "counts": counts, "names": names}))
}

fn execution(ended_at: Option<i64>) -> Execution {
    Execution {
        arn: ARN.to_owned(),
        input: json!({"instance_id": OLD, "cluster_name": "prod"}),
        started_at: at(0),
        ended_at: ended_at.map(at),
        end: ended_at.map(|_| succeeded(json!({"outcome": "recycled", "reason": "it is gone"}))),
    }
}

fn succeeded(output: Value) -> End {
    End {
        status: "SUCCEEDED".to_owned(),
        output,
        ..End::default()
    }
}

/// Returns the report of an execution of `recycle-node` with these events.
fn report(events: &[(i64, EventKind)], ended_at: Option<i64>) -> NodeReport {
    report_node(&execution(ended_at), &history(events))
}

fn spans<What: Clone>(spans: &[Span<What>]) -> Vec<(What, Timestamp, Option<Timestamp>)> {
    spans
        .iter()
        .map(|span| (span.what.clone(), span.since, span.until))
        .collect()
}

#[test]
fn a_recycled_node_has_its_stages_one_after_the_other() {
    let report = report(
        &[
            (0, entered("Recycle")),
            (0, entered("Begin")),
            (1, entered("ClaimNode")),
            (2, answered(json!({"verdict": "standby", "reason": "ours"}))),
            (2, entered("NodeClaimed")),
            (2, entered("NotifyStart")),
            (3, entered("StandbyNode")),
            (4, entered("WaitForReplacement")),
            (60, entered("StandbyNode")),
            (61, entered("TaintNode")),
            (62, entered("CheckPods")),
            (63, entered("WaitForPods")),
            (100, entered("DetachTerminate")),
            (101, entered("WaitForDisposal")),
            (160, entered("NotifyEnd")),
            (161, entered("NodeRecycled")),
        ],
        Some(162),
    );
    assert_eq!(
        spans(&report.stages),
        [
            (Stage::Queue, at(1), Some(at(3))),
            (Stage::Replacement, at(3), Some(at(61))),
            (Stage::Drain, at(61), Some(at(100))),
            (Stage::Disposal, at(100), Some(at(162))),
        ]
    );
    assert_eq!(
        (report.node.as_deref(), report.group.as_deref()),
        (Some("a"), Some("workers"))
    );
    assert_eq!(
        (report.instance.as_deref(), report.cluster.as_deref()),
        (Some(OLD), Some("prod"))
    );
    assert_eq!(
        (report.summary.outcome.as_str(), report.summary.is_well),
        ("recycled", true)
    );
    assert_eq!(
        (report.summary.reason.as_str(), report.summary.events),
        ("it is gone", 16)
    );
}

#[test]
fn every_task_and_wait_of_the_machine_belongs_to_a_stage_except_notifications_and_events() {
    let machine: Value =
        serde_json::from_str(include_str!("../../../../../state-machine/recycle-node.asl.json")).unwrap();
    let top = machine["States"].as_object().unwrap();
    let branch = machine["States"]["Recycle"]["Branches"][0]["States"]
        .as_object()
        .unwrap();
    let mut seen = Vec::new();
    for (name, state) in top.iter().chain(branch) {
        let is_sent = name.starts_with("Notify") || name.starts_with("Event");
        if matches!(state["Type"].as_str().unwrap(), "Task" | "Wait") && !is_sent {
            let (_, stage) = find_box(name).unwrap_or_else(|| panic!("{name} belongs to no box"));
            seen.push((stage, name.as_str()));
        }
    }
    let states = BOXES.into_iter();
    let mut states: Vec<_> = states
        .flat_map(|(_, stage, states)| states.iter().map(move |state| (stage, *state)))
        .collect();
    seen.sort();
    states.sort();
    assert_eq!(seen, states);
    seen.dedup_by_key(|(stage, _)| *stage);
    assert_eq!(
        seen.iter().map(|(stage, _)| *stage).collect::<Vec<_>>(),
        Stage::ALL
    );
}

#[test]
fn an_execution_that_runs_has_a_last_stage_without_an_end() {
    let report = report(
        &[
            (1, entered("ClaimNode")),
            (2, entered("CheckPods")),
            (3, counts(json!({"awaited": 1}), json!({"awaited": ["a/b"]}))),
        ],
        None,
    );
    assert_eq!(
        spans(&report.stages).last().unwrap(),
        &(Stage::Drain, at(2), None)
    );
    assert_eq!(
        (report.summary.outcome.as_str(), report.summary.is_well),
        ("running", true)
    );
    assert_eq!(report.pods[0].until, None);
}

#[test]
fn a_pod_is_listed_from_its_first_check_to_the_first_check_without_it() {
    let pod = |class: &str, name: &str| SeenPod {
        class: class.to_owned(),
        name: name.to_owned(),
    };
    let report = report(
        &[
            (10, entered("CheckPods")),
            (
                10,
                counts(
                    json!({"awaited": 1, "evictable": 1}),
                    json!({"awaited": ["a/train"], "evictable": ["a/web"]}),
                ),
            ),
            (40, entered("CheckPods")),
            (
                40,
                counts(
                    json!({"awaited": 1, "terminating": 1}),
                    json!({"awaited": ["a/train"], "terminating": ["a/web"]}),
                ),
            ),
            (70, entered("CheckPods")),
            (70, counts(json!({"awaited": 1}), json!({"awaited": ["a/train"]}))),
            (90, entered("CheckPods")),
            (90, counts(json!({"awaited": 1}), json!({"awaited": ["a/train"]}))),
            (99, entered("DetachTerminate")),
        ],
        Some(100),
    );
    assert_eq!(
        spans(&report.pods),
        [
            (pod("awaited", "a/train"), at(10), Some(at(100))),
            (pod("evictable", "a/web"), at(10), Some(at(40))),
            (pod("terminating", "a/web"), at(40), Some(at(70))),
        ]
    );
    let times: Vec<Timestamp> = report.looks.iter().map(|look| look.at).collect();
    assert_eq!(
        times,
        [at(10), at(40), at(70)],
        "a check with the same counts is not listed"
    );
    assert_eq!(report.polls, 4);
}

#[test]
fn a_check_that_counts_pods_and_names_none_does_not_end_them() {
    let train = || json!({"awaited": ["a/train"]});
    let report = report(
        &[
            (10, entered("CheckPods")),
            (10, counts(json!({"awaited": 1}), train())),
            (40, counts(json!({"awaited": 1}), json!({}))),
            (70, counts(json!({"awaited": 1}), train())),
            (90, counts(json!({}), json!({}))),
        ],
        Some(100),
    );
    let times: Vec<_> = report.pods.iter().map(|span| (span.since, span.until)).collect();
    assert_eq!(times, [(at(10), Some(at(90)))]);
}

#[test]
fn blocks_come_from_the_notification_or_from_the_evictions_before_it() {
    let blocked = |since: i64, notification: Value| {
        let mut payload = json!({"verdict": "evict", "run": {"blockage": {"since": at(since).to_string()}}});
        if !notification.is_null() {
            payload["notification"] = notification;
        }
        answered(payload)
    };
    let refused = || {
        let counts = json!({"blocked": 1, "evicted": 2});
        answered(json!({"verdict": "wait", "counts": counts, "reason": "the budget a/web allows none"}))
    };
    let notification = json!({"event": "blocked", "severity": "warning", "subject": "blocked", "blocks": ["budget a/web keeps 2 pods"]});
    let report = report(
        &[
            (10, entered("CheckPods")),
            (10, blocked(5, Value::Null)),
            (11, entered("EvictPods")),
            (11, refused()),
            (40, entered("CheckPods")),
            (40, counts(json!({}), json!({}))),
            (400, entered("CheckPods")),
            (400, blocked(390, Value::Null)),
            (401, entered("EvictPods")),
            (401, refused()),
            (700, entered("CheckPods")),
            (700, blocked(390, notification)),
            (730, entered("CheckPods")),
            (730, blocked(390, Value::Null)),
        ],
        None,
    );
    assert_eq!(
        spans(&report.blocked),
        [
            (
                vec!["the budget a/web allows none".to_owned()],
                at(5),
                Some(at(40))
            ),
            (vec!["budget a/web keeps 2 pods".to_owned()], at(390), None),
        ]
    );
    assert_eq!(report.notifications.len(), 1);
    assert_eq!(
        (report.notifications[0].event.as_str(), report.notifications[0].at),
        ("blocked", at(700))
    );
}

#[test]
fn a_failure_has_its_state_and_cause_and_the_reason_is_the_cause_of_the_execution() {
    let end = End {
        status: "FAILED".to_owned(),
        error: "DrainTimedOut".to_owned(),
        cause: "its time was over".to_owned(),
        output: Value::Null,
    };
    let failed = Execution {
        end: Some(end),
        ..execution(Some(9))
    };
    let events = history(&[
        (1, entered("CheckPods")),
        (
            2,
            EventKind::Failed {
                error: "DrainTimedOut".to_owned(),
                cause: json!({"errorType": "DrainTimedOut", "errorMessage": "1 pod is left"}).to_string(),
            },
        ),
        (3, entered("RestoreNode")),
    ]);
    let report = report_node(&failed, &events);
    assert_eq!(
        (report.summary.outcome.as_str(), report.summary.is_well),
        ("DrainTimedOut", false)
    );
    assert_eq!(report.summary.reason, "its time was over");
    let failed_attempt = &report.failed_attempts[0];
    assert_eq!(
        (failed_attempt.state.as_str(), failed_attempt.cause.as_str()),
        ("CheckPods", "1 pod is left")
    );
    assert_eq!(spans(&report.stages)[1], (Stage::Restore, at(3), Some(at(9))));
}

#[test]
fn many_checks_are_thinned_and_the_first_and_last_stay() {
    let mut looks: Vec<Look> = (0..2_500)
        .map(|number| Look {
            at: at(number),
            counts: [("awaited".to_owned(), 1)].into(),
        })
        .collect();
    thin(&mut looks);
    assert!(looks.len() <= MOST_LOOKS + 1, "{}", looks.len());
    assert_eq!((looks[0].at, looks.last().unwrap().at), (at(0), at(2_499)));
}

#[test]
fn started_executions_are_found_by_their_names() {
    let start = |name: &str, machine: &str| {
        EventKind::Scheduled(json!({
            "Name": name,
            "StateMachineArn": format!("arn:aws-cn:states:cn-north-1:123456789012:stateMachine:{machine}"),
        }))
    };
    let events = history(&[
        (0, EventKind::Scheduled(json!({"FunctionName": "select-nodes"}))),
        (1, start("manual-i-1", "r-recycle-node:live")),
        (2, start("manual-i-2", "r-recycle-node")),
        (3, EventKind::MapRun("arn:map".to_owned())),
    ]);
    let arn =
        |name: &str| format!("arn:aws-cn:states:cn-north-1:123456789012:execution:r-recycle-node:{name}");
    assert_eq!(
        find_started(&events),
        (
            vec![arn("manual-i-1"), arn("manual-i-2")],
            vec!["arn:map".to_owned()]
        )
    );
}

#[test]
fn a_rotation_lists_its_nodes_in_the_order_of_their_starts() {
    let rotation = Execution {
        input: json!({"trigger": "manual", "selection": {"outdated": {"ami": true}}}),
        end: Some(succeeded(json!({"outcome": "rotated"}))),
        ..execution(Some(500))
    };
    let node = |name: &str, started: i64| Execution {
        arn: ARN.replace("run-1", name),
        started_at: at(started),
        ..execution(Some(400))
    };
    let nodes = [node("b", 200), node("a", 100)];
    let reports = nodes.iter().map(|node| report_node(node, &[])).collect();
    let report = report_rotation(&rotation, &[], reports);
    let names: Vec<&str> = report
        .nodes
        .iter()
        .map(|node| node.summary.execution.rsplit(':').next().unwrap())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        (report.summary.outcome.as_str(), &report.selection),
        ("rotated", &json!({"outdated": {"ami": true}}))
    );
}

#[test]
fn the_plan_of_a_dry_run_is_part_of_its_report() {
    let planned = Execution {
        end: Some(succeeded(
            json!({"outcome": "planned", "plan": {"steps": ["put it into Standby", "taint it"]}}),
        )),
        ..execution(Some(1))
    };
    assert_eq!(
        report_node(&planned, &[]).plan,
        ["put it into Standby", "taint it"]
    );
}

#[test]
fn evictions_that_were_allowed_are_no_blockers() {
    let checked = |since: Option<Timestamp>| answered(json!({"run": {"blockage": {"since": since}}}));
    let evicted = |counts: Value| answered(json!({"counts": counts, "reason": "2 pods"}));
    let report = report(
        &[
            (0, entered("EvictPods")),
            (1, evicted(json!({"blocked": 2}))),
            (2, entered("CheckPods")),
            (3, checked(Some(at(1)))),
            (4, entered("EvictPods")),
            (5, evicted(json!({"evicted": 2}))),
            (6, entered("CheckPods")),
            (7, checked(None)),
            (8, checked(Some(at(8)))),
            (9, entered("EvictPods")),
            (10, evicted(json!({"evicted": 2, "gone": 1}))),
        ],
        None,
    );
    let what: Vec<&[String]> = report.blocked.iter().map(|span| span.what.as_slice()).collect();
    assert_eq!(what, [&["2 pods".to_owned()][..], &[]]);
}

/// A notification has room for 120 characters of a blocker.
#[test]
fn a_blocker_that_a_notification_cut_is_reported_in_full() {
    let budget = format!(
        "budget default/web has blocked 2 pods since noon: {}",
        "it needs 2 healthy pods ".repeat(5)
    );
    let cut = format!("{}…", budget.chars().take(119).collect::<String>());
    let blocked = |reason: &str| {
        answered(json!({
            "reason": reason, "run": {"blockage": {"since": at(10)}}, "notification": {"event": "blocked", "blocks": [cut]},
        }))
    };
    let reason = format!("it waits; {budget}; and more");
    let refused = answered(json!({"verdict": "wait", "counts": {"blocked": 2}, "reason": reason}));
    let plain = counts(json!({}), json!({}));
    for (check, refusal, expected) in [
        (format!("2 to evict; {budget}"), plain.clone(), &budget),
        ("2 to evict".to_owned(), refused, &budget),
        ("2 to evict".to_owned(), plain, &cut),
    ] {
        let events = [
            (0, entered("EvictPods")),
            (1, refusal),
            (2, entered("CheckPods")),
            (300, blocked(&check)),
        ];
        let report = report(&events, None);
        assert_eq!(report.blocked[0].what, std::slice::from_ref(expected), "{check}");
    }
}

#[test]
fn the_replacement_of_a_node_is_reported() {
    let events = [
        (0, entered("StandbyNode")),
        (1, answered(json!({"reason": "it waits"}))),
        (9, answered(json!({"replacement": "i-2"}))),
        (10, entered("CheckPods")),
        (11, answered(json!({"reason": "2 to evict"}))),
    ];
    assert_eq!(report(&events, None).replacement.as_deref(), Some("i-2"));
}

#[test]
fn a_cause_that_is_a_document_is_reported_by_its_message() {
    let mut failed = execution(Some(9));
    failed.end = Some(End {
        status: "FAILED".to_owned(),
        cause: json!({"errorMessage": "it broke", "errorType": "Broken"}).to_string(),
        ..End::default()
    });
    assert_eq!(report_node(&failed, &[]).summary.reason, "it broke");
}

#[test]
fn the_settings_of_a_report_are_the_fields_that_were_set() {
    assert!(report(&[], None).summary.settings.is_empty());
    let rotation = Execution {
        input: json!({"trigger": "manual", "selection": {"outdated": {"all": true}}, "at_once": 2, "retries": null,
            "recycle": {"drain_timeout": "1h"}}),
        ..execution(None)
    };
    let settings = report_rotation(&rotation, &[], Vec::new()).summary.settings;
    assert_eq!(json!(settings), json!({"at_once": 2, "drain_timeout": "1h"}));
}

#[test]
fn a_report_lists_as_many_failed_attempts_and_pods_as_it_has_room_for() {
    let failed = EventKind::Failed {
        error: "States.Timeout".to_owned(),
        cause: String::new(),
    };
    let events: Vec<(i64, EventKind)> = (0..60).map(|second| (second, failed.clone())).collect();
    assert_eq!(report(&events, None).failed_attempts.len(), MOST_FAILED_ATTEMPTS);
    let pods: Vec<String> = (0..210).map(|number| format!("a/web-{number}")).collect();
    let seen = [
        (1, entered("CheckPods")),
        (2, counts(json!({"evictable": 210}), json!({"evictable": pods}))),
    ];
    assert_eq!(report(&seen, None).pods.len(), MOST_PODS);
}
