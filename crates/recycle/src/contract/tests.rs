//! Tests the requests, verdicts and answers.

use crate::answer::envelope::Answer;
use crate::base::strict::read_value;
use crate::cluster::instance::describe_instance;
use crate::contract::requests::{ClaimRequest, OperatorRequest, RestoreCall, SelectRequest, TaintRequest};
use crate::contract::run::EndedPods;
use crate::input::model::Replacement;
use crate::input::path::RecyclePath;
use serde_json::Value;
use serde_json::json;

use crate::contract::run::*;
use crate::contract::verdicts::*;
use crate::fixtures::{ARN, OLD, at, fence, id, input};

fn context(more: &Value) -> Value {
    let mut context = json!({
        "Execution": {"Id": ARN, "Input": {"instance_id": OLD}, "Name": "run-1", "StartTime": "2027-01-01T00:00:00Z"},
        "State": {"Name": "ClaimNode", "EnteredTime": "2027-01-01T00:00:05.250Z", "RetryCount": 0},
        "StateMachine": {"Id": "x", "Name": "y"},
    });
    if let (Some(execution), Some(more)) = (context["Execution"].as_object_mut(), more.as_object()) {
        execution.extend(more.clone());
    }
    context
}

#[test]
fn a_request_is_read_from_the_message_of_step_functions() {
    let request: ClaimRequest =
        serde_json::from_value(json!({"context": context(&json!({})), "run": {}})).unwrap();
    assert_eq!(request.run, None);
    assert_eq!(request.context.fence(), fence(0));
    assert_eq!(
        request.context.now(),
        at(5) + jiff::SignedDuration::from_millis(250)
    );

    let redriven: ClaimRequest = serde_json::from_value(json!({
        "context": context(&json!({"RedriveCount": 2})),
    }))
    .unwrap();
    assert_eq!(redriven.context.fence(), fence(2));
}

#[test]
fn only_the_end_of_a_node_has_a_notification() {
    let run: Run = serde_json::from_value(json!({
        "input": input(json!({})), "path": "before", "group": "workers", "node": "ip-10-0-0-1.ec2.internal",
        "claimed_at": "2027-01-01T00:00:00Z",
    }))
    .unwrap();
    for (verdict, expected) in [
        (DisposeVerdict::Recycled, json!("recycled")),
        (DisposeVerdict::Wait, Value::Null),
    ] {
        let answer = Answer::new(verdict, "it has left").carrying(run.clone());
        let answer = answer.with_end_notification(&ARN.parse().unwrap(), DisposeVerdict::Recycled);
        assert_eq!(
            serde_json::to_value(&answer).unwrap()["notification"]["outcome"],
            expected
        );
    }
}

#[test]
fn pods_that_ended_with_the_node_are_named_if_there_are_any() {
    let ended = |count| EndedPods {
        count,
        names: vec!["default/a".to_owned()],
    };
    let mut run: Run = serde_json::from_value(json!({
        "input": input(json!({})), "path": "before", "group": "workers", "node": "ip-10-0-0-1.ec2.internal",
        "claimed_at": "2027-01-01T00:00:00Z",
    }))
    .unwrap();
    for (over, late, counts, text) in [
        (None, None, json!({}), ""),
        (Some(0), None, json!({}), ""),
        (
            Some(1),
            None,
            json!({"ended": 1}),
            "; 1 pod still ran on it when its drain timed out (default/a)",
        ),
        (
            None,
            Some(2),
            json!({"tolerates_taint": 2}),
            "; 2 pods tolerated its taint, came after it, and ended with it (default/a)",
        ),
    ] {
        (run.drain.ended_pods, run.drain.late_pods) = (over.map(ended), late.map(ended));
        let answer = Answer::new(DisposeVerdict::Recycled, "it has left").naming_ended(&run);
        assert_eq!(serde_json::to_value(&answer).unwrap()["counts"], counts);
        assert_eq!(
            (answer.names.len(), run.describe_ended().as_str()),
            (answer.counts.len(), text)
        );
    }
}

#[test]
fn an_answer_has_the_envelope_that_the_asl_reads() {
    let answer = Answer::new(ClaimVerdict::AlreadyGone, "gone").waiting(30);
    assert_eq!(
        serde_json::to_value(answer).unwrap(),
        json!({"schema": 1, "verdict": "already_gone", "wait_seconds": 30, "reason": "gone", "counts": {}, "names": {},
            "run": {}})
    );
}

#[test]
fn an_instance_is_described_with_its_node_if_that_is_known() {
    assert_eq!(
        describe_instance(&id(OLD), Some(&"a".parse().unwrap())),
        "node a (i-0aaaaaaaaaaaaaaaa)"
    );
    assert_eq!(describe_instance(&id(OLD), None), "instance i-0aaaaaaaaaaaaaaaa");
}

#[test]
fn a_node_enters_standby_only_if_its_replacement_comes_first() {
    for (path, replacement, expected) in [
        (RecyclePath::Before, Replacement::Before, ClaimVerdict::Standby),
        (RecyclePath::Before, Replacement::After, ClaimVerdict::Taint),
        (RecyclePath::After, Replacement::After, ClaimVerdict::Taint),
        (RecyclePath::Surge, Replacement::Surge, ClaimVerdict::Standby),
        (RecyclePath::Surge, Replacement::After, ClaimVerdict::Taint),
        (RecyclePath::Hook, Replacement::Before, ClaimVerdict::Taint),
        (RecyclePath::Hook, Replacement::After, ClaimVerdict::Taint),
    ] {
        assert_eq!(
            ClaimVerdict::first_step(path, replacement),
            expected,
            "{path:?} {replacement:?}"
        );
    }
}

/// Requests of other functions, of operators, and of no function, with the words of each refusal.
#[test]
fn a_request_of_an_unknown_shape_is_refused_by_name() {
    fn refusal<T: serde::de::DeserializeOwned>(request: &Value) -> String {
        match read_value::<T>(request) {
            Ok(_) => format!("{request} was read"),
            Err(error) => error.to_string(),
        }
    }
    let status = json!({"ask": "status", "cluster_name": "prod"});
    let drain_until = json!({"drain_until": {"instance_id": OLD, "cluster_name": "prod", "until": "now"}});
    let bare = json!({"context": context(&json!({}))});
    let mut both = bare.clone();
    both["run"] = json!({});
    both["marking"] = json!({});
    let mut restore = bare.clone();
    restore["leftover"] = json!({"instance_id": OLD, "cluster_name": "prod"});
    restore["unmarking"] = json!({"cluster_name": "prod", "rotations": [], "nodes": null});
    for (found, expected) in [
        (
            refusal::<TaintRequest>(&status),
            "needs a field `run` or `marking`",
        ),
        (
            refusal::<TaintRequest>(&drain_until),
            "needs a field `run` or `marking`",
        ),
        (refusal::<TaintRequest>(&bare), "needs a field `run` or `marking`"),
        (
            refusal::<TaintRequest>(&both),
            "a field `run` and a field `marking`",
        ),
        (
            refusal::<TaintRequest>(&json!([])),
            "needs a field `run` or `marking`",
        ),
        (
            refusal::<RestoreCall>(&bare),
            "needs a field `failure` or `leftover` or `unmarking`",
        ),
        (
            refusal::<RestoreCall>(&restore),
            "a field `leftover` and a field `unmarking`",
        ),
        (refusal::<SelectRequest>(&status), "missing field `context`"),
        (
            refusal::<SelectRequest>(&json!({"select": "status", "cluster_name": "prod"})),
            "unknown variant `status`",
        ),
        (refusal::<OperatorRequest>(&bare), "ask"),
        (refusal::<OperatorRequest>(&drain_until), "ask"),
        (
            refusal::<OperatorRequest>(&json!({"ask": "evict", "cluster_name": "prod"})),
            "unknown variant `evict`",
        ),
        (
            refusal::<OperatorRequest>(&json!({"ask": "doctor"})),
            "cluster_name",
        ),
        (
            refusal::<OperatorRequest>(&json!({"ask": "move_drain_end", "cluster_name": "prod"})),
            "instance_id",
        ),
    ] {
        assert!(found.contains(expected), "{expected}: {found}");
        assert!(!found.contains("was read"), "{found}");
    }
}
