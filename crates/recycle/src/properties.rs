//! Property tests of all readers in this crate. Any text that another program or an operator wrote is read, or refused in a helpful
//! sentence.
//! No reader panics, and a value that was read is written so that it is read again.
//!
//! A table test next to the reader keeps each case that a property test has found.

use bad_input::{any_json, any_text, config, spoiled, spoiled_text};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::base::failure::with_causes;
use crate::base::ids::{
    ClusterName, ExecutionArn, Fence, GroupName, InstanceId, InvalidId, NodeName, StateMachineArn,
};
use crate::base::names::{
    CLAIM_ANNOTATION, CLAIM_TAG, DRAIN_UNTIL_ANNOTATION, GAVE_UP_TAG, GROUP_TAG, PROGRESS_ANNOTATION,
    RECORD_ANNOTATION, RESTORING_ANNOTATION,
};
use crate::base::selector::Selector;
use crate::base::strict::{Unreadable, read_text, read_value};
use crate::base::time::later;
use crate::claim::queue::{pace_queue, write_queue_progress};
use crate::cluster::hook::HeldByHook;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::contract::requests::{
    ClaimRequest, OperatorRequest, RestoreCall, SelectRequest, StepRequest, TaintRequest,
};
use crate::contract::run::Run;
use crate::disposal::next_step::wait_for_answer;
use crate::drain::end::{DrainEnd, judge_drain_end};
use crate::drain::lost::find_loss;
use crate::drain::survey::survey_pods;
use crate::drain::terms::{Terms, find_deadline};
use crate::drain::verdict::judge_drain;
use crate::drain::volumes::{NodeSelectorTerm, Reach, read_reach};
use crate::fixtures::{
    ARN, NEW, OLD, OTHER, at, claim, fence, group, id, input, input_json, instance, job_pod, leased, leases,
    node, pod, settings,
};
use crate::input::fields::FIELDS;
use crate::input::model::LONGEST_DRAIN;
use crate::input::parse::parse_input;
use crate::input::urgency::Urgency;
use crate::notify::blockage::update_blockage;
use crate::notify::metrics::{measure_claims, measure_drain};
use crate::notify::notification::{About, build_finished_notification};
use crate::notify::status::build_status;
use crate::records::blocker::count_all;
use crate::records::claim::{Claim, Phase, StoredClaim, check_claim, decide_claim};
use crate::records::node_record::Record;
use crate::records::owner::Owner;
use crate::records::progress::Progress;
use crate::records::restore_log::{GaveUp, GroupChanges};
use crate::report::event::{End, Event, EventKind, Execution};
use crate::report::history::{report_node, report_rotation};
use crate::report::reader::find_started;
use crate::restore::step::RestoreStep;
use crate::restore::sweep::{choose_instances, find_cause, find_leftovers};
use crate::rotation::admission::check_waiting_node;
use crate::rotation::alarm::{Alarmed, read_alarm};
use crate::rotation::outdated::Release;
use crate::rotation::passes::PassSize;
use crate::rotation::request::{Rotation, Selection, parse_rotation};
use crate::rotation::start::{AlarmTrigger, AlarmTriggers, StartRequest, decide_starts};

/// The limit in characters of a refusal, in which long values are cut.
const LONGEST_REFUSAL: usize = 700;

/// Times from the first to the last that can be written.
fn any_time() -> impl Strategy<Value = Timestamp> {
    let ends = [
        Timestamp::MIN,
        Timestamp::UNIX_EPOCH,
        at(0),
        at(1),
        at(86_400),
        at(i64::from(LONGEST_DRAIN)),
        Timestamp::MAX,
    ];
    prop_oneof![
        3 => select(ends.to_vec()),
        1 => (Timestamp::MIN.as_second()..=Timestamp::MAX.as_second())
            .prop_map(|second| Timestamp::from_second(second).unwrap()),
    ]
}

fn any_seconds() -> impl Strategy<Value = u32> {
    prop_oneof![
        select(vec![0, 1, 60, LONGEST_DRAIN, i32::MAX as u32, u32::MAX]),
        any::<u32>()
    ]
}

/// Checks that a refusal is one readable sentence.
fn check_refusal(text: &str) -> Result<(), TestCaseError> {
    prop_assert!(!text.is_empty());
    prop_assert!(
        text.chars().count() <= LONGEST_REFUSAL,
        "{} characters: {text}",
        text.chars().count()
    );
    prop_assert!(!text.contains(['\n', '\0']), "{text:?}");
    Ok(())
}

/// Checks that a refusal of a spoiled document names the missing field or the place.
fn check_place(error: &Unreadable) -> Result<(), TestCaseError> {
    let text = error.to_string();
    check_refusal(&text)?;
    let names_a_field = text.contains("field `") || text.contains(": ");
    prop_assert!(names_a_field, "{text}");
    Ok(())
}

fn whole_input() -> Vec<Value> {
    let hook = json!({"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2",
        "fired_at": at(0), "retain": true});
    vec![
        input_json(
            json!({"label_selector": "app=web,tier in (a,b)", "namespaces": ["jobs"], "evict": "none",
            "replacement": "before", "dispose": "stop", "replacement_timeout": 840, "node_lost_after": 1_800,
            "drain_timeout": 172_800, "on_drain_timeout": "terminate", "load_balancer_grace": 60,
            "grace_period": 30, "urgency": "planned", "dry_run": true,
            "override": ["running_pods", "last_target"]}),
        ),
        input_json(json!({"urgency": "spot", "interrupted_at": at(120)})),
        input_json(json!({"hook": hook})),
    ]
}

fn whole_run() -> Value {
    let input = input(json!({"label_selector": "app=web", "namespaces": ["jobs"], "grace_period": 30}));
    json!({
        "input": input,
        "path": "before",
        "group": "workers",
        "node": "a",
        "claimed_at": at(0),
        "replacement_since": at(60),
        "draining_since": at(120),
        "drain_until": at(3_600),
        "polls": 3,
        "last_eviction": at(600),
        "ended_pods": {"count": 1, "names": ["default/a"]},
        "blockage": {"since": at(300), "reported_at": at(400)},
        "disposing_since": at(900),
        "holders": {"count": 1, "names": ["default/a"], "seen_at": at(200)},
        "lost": {"why": "its Node object is gone", "at": at(700)},
        "hook": {"name": "recycle-eks", "heartbeat_timeout": 3_600, "heartbeat_at": at(0), "ends_at": at(9), "retain": true},
        "old": {"members": "aaaabbbb", "resources": ["nvidia.com/gpu"], "taints": ["team:NoSchedule"]},
        "evicted": "a",
    })
}

fn context() -> Value {
    json!({
        "Execution": {"Id": ARN, "Input": input_json(json!({})), "RedriveCount": 1},
        "State": {"EnteredTime": at(5), "RetryCount": 2},
    })
}

fn rotation() -> Value {
    json!({
        "trigger": "manual",
        "selection": {"outdated": {"groups": ["workers"], "node_labels": "pool=batch", "launch_template": true, "ami": true,
            "kubelet": true, "older_than": "3d", "launched_before": at(0)}},
        "recycle": {"drain_timeout": 600},
        "event": null,
        "dry_run": false,
        "at_once": "25%",
        "wait_between_nodes": "60s",
        "start_no_new_node_after": "4h",
        "on_failure": "stop",
        "failure_budget": 1,
        "retries": 2,
        "wait_for_pending_pods": true,
        "mark": "soft",
    })
}

fn alarm_event() -> Value {
    json!({
        "id": "one",
        "time": at(0),
        "source": "aws.cloudwatch",
        "detail-type": "CloudWatch Alarm State Change",
        "resources": ["arn:aws:cloudwatch:eu-west-1:123456789012:alarm:cpu"],
        "detail": {
            "alarmName": "cpu",
            "state": {"value": "ALARM", "timestamp": "2027-01-01T00:00:00.000+0000"},
            "previousState": {"value": "OK"},
            "configuration": {"metrics": [{"metricStat": {"metric": {"dimensions": {"InstanceId": OLD}}}}]},
        },
    })
}

fn rotations() -> Vec<Value> {
    let spot = json!({"id": "one", "time": "2027-01-01T00:00:00Z", "detail": {"instance-id": OLD}});
    let group = json!({"group": "workers", "pick": "oldest", "cooldown_minutes": 5});
    vec![
        rotation(),
        json!({"trigger": "spot", "selection": {"instance_ids": [OLD]}, "event": spot}),
        json!({"trigger": "rebalance", "selection": {"instance_ids": [format!("arn:aws:ec2:::instance/{OLD}")]}, "event": spot}),
        json!({"trigger": "alarm", "selection": {"alarm": group}, "event": alarm_event()}),
        json!({"trigger": "manual", "selection": {"outdated": {"group_tag": {"key": "a", "value": "b"}, "all": true}},
            "at_once": 3, "start_no_new_node_after": at(0), "on_failure": "continue", "mark": "none"}),
    ]
}

fn sns_message() -> Value {
    json!({"Records": [{"Sns": {"TopicArn": "arn:aws:sns:eu-west-1:123456789012:operators", "Message": json!({
        "AlarmName": "cpu",
        "AWSAccountId": "123456789012",
        "AlarmArn": "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:cpu",
        "OldStateValue": "OK",
        "NewStateValue": "ALARM",
        "StateChangeTime": "2027-01-01T00:00:00.000+0000",
        "Trigger": {"Metrics": [{"MetricStat": {"Metric": {"Dimensions": [{"name": "InstanceId", "value": OLD}]}}}],
            "Dimensions": [{"name": "InstanceId", "value": OLD}]},
    }).to_string()}}]})
}

fn triggers() -> AlarmTriggers {
    let trigger = AlarmTrigger {
        alarm_names: vec!["cpu".to_owned()],
        rotation: json!({"trigger": "alarm", "selection": {"alarm": {}}}),
    };
    [("cpu".to_owned(), trigger)].into()
}

fn progress() -> Value {
    json!({
        "summary": "waits",
        "since": at(0),
        "until": at(3_600),
        "then": "the node is restored",
        "blocked": [{"what": "budget default/web", "says": "no", "since": at(60), "count": 2, "names": ["default/a"], "reported": true}],
        "disruptions": ["a refresh"],
        "held": ["a volume"],
        "counts": {"awaited": 1},
        "names": {"awaited": ["default/a"]},
    })
}

fn record() -> Record {
    Record {
        schema: 1,
        members_before: vec![id(NEW), id(OTHER)],
        usable_before: Some(3),
        drivers: vec!["gpu.example.com".to_owned()],
        replacement: Some(id(NEW)),
        tainted_at: Some(at(0)),
        lost_after: Some(1_800),
        was_unschedulable: true,
        excluded_at: Some(at(60)),
        excluded_before: Some("true".to_owned()),
        desired_before: Some(3),
        raised_from: Some(3),
        kept: true,
        kept_before: Some("false".to_owned()),
        protected: vec![id(OTHER)],
    }
}

fn annotated(key: &str, value: &str) -> NodeFacts {
    let mut found = node("a");
    found.annotations.insert(key.to_owned(), value.to_owned());
    found
}

fn in_lease(key: &str, value: &str) -> NodeFacts {
    leased(node("a"), [(key, value)])
}

fn tagged(key: &str, value: &str) -> Instance {
    let tags = [(GROUP_TAG, "workers"), (key, value)];
    Instance {
        tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..instance()
    }
}

/// The text of an annotation: a document, a spoiled document, or any other text.
fn annotation_of(good: Value) -> impl Strategy<Value = String> {
    let text = good.to_string();
    prop_oneof![
        4 => spoiled(vec![good]).prop_map(|value| value.to_string()),
        2 => spoiled_text(&[text.as_str()]),
        1 => any_json().prop_map(|value| value.to_string()),
        1 => any_text(),
    ]
}

fn tag_of(good: &[&str]) -> impl Strategy<Value = String> + use<> {
    prop_oneof![3 => spoiled_text(good), 1 => any_text()]
}

/// Checks that a request is read, or refused with a place.
fn check_request<T: DeserializeOwned>(request: &Value) -> Result<Option<T>, TestCaseError> {
    match read_value::<T>(request) {
        Ok(read) => Ok(Some(read)),
        Err(error) if request.is_object() => check_place(&error).map(|()| None),
        Err(error) => check_refusal(&error.to_string()).map(|()| None),
    }
}

/// Uses a claim that was read in every reader, at any time.
fn use_claim(found: &StoredClaim, now: Timestamp) -> Result<(), TestCaseError> {
    let owner = Owner {
        execution: ARN.parse().unwrap(),
        status: "FAILED".to_owned(),
        ended_at: Some(now),
    };
    let _ = decide_claim(Some(found), &fence(1), Urgency::Planned, Some(&owner), now);
    if let Err(lost) = check_claim(Some(found.clone()), &fence(9), Urgency::Planned, "node a") {
        prop_assert!(lost.to_string().chars().count() < 4_000, "{lost}");
    }
    if let StoredClaim::Known(claim) = found {
        let _ = pace_queue(claim.claimed_at, now);
        let _ = write_queue_progress("waits".to_owned(), claim.claimed_at);
        let _ = find_cause(Some(claim), now);
    }
    Ok(())
}

fn check_id<T>(text: &str) -> Result<(), TestCaseError>
where
    T: std::str::FromStr<Err = InvalidId> + ToString + PartialEq + std::fmt::Debug,
{
    match text.parse::<T>() {
        Ok(id) => {
            prop_assert_eq!(&id.to_string(), text);
            prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
        }
        Err(error) => check_refusal(&error.to_string())?,
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_input_is_read_or_refused_in_a_sentence_that_names_the_field(
        given in prop_oneof![4 => spoiled(whole_input()), 1 => any_json()],
    ) {
        match parse_input(&given, &settings()) {
            Ok(input) => {
                let carried = serde_json::to_value(&input).unwrap();
                prop_assert_eq!(read_value::<crate::input::model::Input>(&carried).unwrap(), input);
            }
            Err(error) => {
                check_refusal(&error.0)?;
                let names_one = FIELDS.iter().any(|field| error.0.contains(field.name));
                prop_assert!(!given.is_object() || names_one, "{given}: {error}");
            }
        }
    }

    #[test]
    fn a_setting_of_the_module_is_read_or_refused_in_a_sentence(defaults in spoiled(whole_input())) {
        let Value::Object(mut defaults) = defaults else { return Ok(()) };
        defaults.retain(|name, _| !["instance_id", "cluster_name", "urgency", "hook", "interrupted_at"].contains(&name.as_str()));
        let settings = crate::input::fields::Settings { defaults, ..settings() };
        if let Err(error) = parse_input(&input_json(json!({})), &settings) {
            check_refusal(&error.0)?;
        }
    }

    #[test]
    fn a_selector_is_read_again_as_it_was_written(
        text in tag_of(&["app=web,tier in (a,b),!gone", "x notin (,a), y>3,z<9", "a==b,c!=d", "*", "example.com/a"]),
        labels in proptest::collection::btree_map(any_text(), any_text(), 0..3),
    ) {
        match text.parse::<Selector>() {
            Ok(selector) => {
                let written = selector.to_string();
                prop_assert_eq!(written.parse::<Selector>(), Ok(selector.clone()), "{}", written);
                let carried = serde_json::to_value(&selector).unwrap();
                prop_assert_eq!(read_value::<Selector>(&carried).unwrap(), selector.clone());
                let _ = selector.matches(&labels);
            }
            Err(error) => check_refusal(&error.to_string())?,
        }
    }

    #[test]
    fn an_identifier_is_read_unchanged_or_refused(
        text in tag_of(&[OLD, "prod", "workers", "ip-10-0-0-1.ec2.internal", ARN, "arn:aws:states:eu-west-1:1:stateMachine:m"]),
    ) {
        check_id::<InstanceId>(&text)?;
        check_id::<ClusterName>(&text)?;
        check_id::<GroupName>(&text)?;
        check_id::<NodeName>(&text)?;
        check_id::<ExecutionArn>(&text)?;
        check_id::<StateMachineArn>(&text)?;
    }

    #[test]
    fn a_fence_is_read_unchanged_or_refused(text in tag_of(&[&format!("{ARN}#0"), &format!("{ARN}#4294967295")])) {
        match text.parse::<Fence>() {
            Ok(fence) => prop_assert_eq!(fence.to_string().parse::<Fence>(), Ok(fence)),
            Err(error) => check_refusal(&error.to_string())?,
        }
    }

    #[test]
    fn a_claim_on_a_node_is_known_or_refused(
        text in annotation_of(serde_json::to_value(claim(Phase::Draining)).unwrap()),
        now in any_time(),
    ) {
        let found = Claim::from_annotation(&text);
        if let StoredClaim::Known(claim) = &found {
            let written = serde_json::to_string(claim).unwrap();
            prop_assert_eq!(Claim::from_annotation(&written), found.clone());
        }
        use_claim(&found, now)?;
        let nodes = [in_lease(CLAIM_ANNOTATION, &text)];
        let _ = measure_claims(&nodes, &leases(&nodes), now);
        let leftovers = find_leftovers(&nodes, &leases(&nodes), &[], &std::collections::BTreeSet::new());
        let _ = choose_instances(leftovers.clone(), &leftovers, now);
        for asked in [DrainEnd::Now, DrainEnd::At(now)] {
            if let Err(refused) = judge_drain_end(&id(OLD), nodes.first(), asked) {
                check_refusal(&refused.0)?;
            }
        }
        let written = serde_json::to_value(build_status(&nodes, &leases(&nodes), &[], None)).unwrap();
        prop_assert!(read_value::<crate::notify::status::Status>(&written).is_ok());
    }

    #[test]
    fn a_claim_in_tags_is_known_or_refused(
        text in tag_of(&[&claim(Phase::Standby).to_tag(), "2 what ever"]),
        now in any_time(),
    ) {
        let instance = tagged(CLAIM_TAG, &text);
        let found = instance.claim().unwrap();
        if let StoredClaim::Known(claim) = &found {
            prop_assert_eq!(Claim::from_tag(&claim.to_tag(), &claim.group), found.clone());
        }
        use_claim(&found, now)?;
        let _ = build_status(&[], &[], &[instance], None);
    }

    #[test]
    fn a_record_is_read_or_refused_with_its_place(text in annotation_of(serde_json::to_value(record()).unwrap())) {
        match in_lease(RECORD_ANNOTATION, &text).record() {
            Ok(record) => {
                prop_assert!(serde_json::from_str::<Value>(&text).unwrap().is_object(), "{}", text);
                let written = serde_json::to_string(&record).unwrap();
                prop_assert_eq!(in_lease(RECORD_ANNOTATION, &written).record().unwrap(), record);
            }
            Err(error) => check_refusal(&with_causes(&error))?,
        }
    }

    #[test]
    fn a_progress_on_a_node_is_read_or_ignored(text in annotation_of(progress()), now in any_time()) {
        let claim = serde_json::to_string(&claim(Phase::Draining)).unwrap();
        let found = leased(annotated(PROGRESS_ANNOTATION, &text), [(CLAIM_ANNOTATION, &claim)]);
        if let Some(progress) = found.progress() {
            let written = serde_json::to_string(&progress).unwrap();
            prop_assert_eq!(read_text::<Progress>(&written).unwrap(), progress.clone());
            let _ = count_all(&progress.blocked);
            for blocker in &progress.blocked {
                let _ = (blocker.describe(), blocker.is_long_enough(now));
            }
            let _ = progress.has_update(None);
        }
        let nodes = [found];
        let _ = measure_claims(&nodes, &leases(&nodes), now);
        let _ = build_status(&nodes, &leases(&nodes), &[], None);
        let _ = judge_drain_end(&id(OLD), nodes.first(), DrainEnd::At(now));
    }

    #[test]
    fn the_group_changes_of_a_restore_are_read_again_as_they_were_written(
        text in tag_of(&["lower:3 terminate:i-0aaaaaaaaaaaaaaaa exit:2", "exit:4294967295"]),
    ) {
        match text.parse::<GroupChanges>() {
            Ok(group_changes) => prop_assert_eq!(group_changes.to_string().parse::<GroupChanges>(), Ok(group_changes)),
            Err(error) => check_refusal(&error.to_string())?,
        }
    }

    #[test]
    fn the_gave_up_tag_is_read_again_as_it_was_written(
        text in tag_of(&["2027-01-01T00:00:00Z refused", "9999-12-30T22:00:00Z"]),
        now in any_time(),
    ) {
        let instance = tagged(GAVE_UP_TAG, &text);
        if let Some(gave_up) = instance.gave_up() {
            prop_assert_eq!(gave_up.to_string().parse::<GaveUp>().ok(), Some(gave_up));
            let _ = gave_up.is_final(&RestoreStep::UndoKubernetes, now);
        }
        let _ = in_lease(RESTORING_ANNOTATION, &text).restoring_since();
        let _ = build_status(&[], &[], &[instance], None);
    }

    #[test]
    fn a_drain_ends_in_time_for_any_text_of_an_operator(
        text in tag_of(&["now", "2027-01-02T00:00:00Z", " 9999-12-30T22:00:00Z "]),
        (since, now) in (any_time(), any_time()),
        drain_timeout in any_seconds(),
        polls in any_seconds(),
        timeouts in select(vec!["restore", "evict", "terminate"]),
    ) {
        let (deadline, remark) = find_deadline(since, now, drain_timeout, Some(&text));
        if deadline.by_person {
            prop_assert!(deadline.at == now || deadline.at <= later(since, LONGEST_DRAIN));
        } else {
            prop_assert_eq!(deadline.at, later(since, drain_timeout));
            let remark = remark.clone().unwrap_or_default();
            prop_assert!(remark.contains(DRAIN_UNTIL_ANNOTATION), "{}", remark);
        }
        if let Some(remark) = remark {
            check_refusal(&remark)?;
        }
        let asked = DrainEnd::try_from(text.clone());
        if let Ok(asked) = asked {
            prop_assert_eq!(DrainEnd::try_from(asked.to_string()).ok(), Some(asked));
        }
        let overridden = input(json!({"on_drain_timeout": timeouts, "override": ["running_pods"], "label_selector": "*"}));
        let old = annotated(DRAIN_UNTIL_ANNOTATION, &text);
        let (terms, _) = Terms::find(&overridden, Some(&old), Some(since), Some(since), now);
        let mut late = job_pod("late");
        late.grace_seconds = drain_timeout;
        late.created_at = Some(now);
        late.deletion_at = Some(since);
        let survey = survey_pods(&[pod("web"), job_pod("job"), late], &terms);
        let _ = judge_drain(&survey, &terms, polls, polls % 2 == 0);
    }

    #[test]
    fn a_hook_and_a_silent_node_are_judged_at_any_time(
        (since, now, fired_at) in (any_time(), any_time(), any_time()),
        (heartbeat_timeout, drain_timeout) in (any_seconds(), any_seconds()),
    ) {
        let mut hook = HeldByHook::new(heartbeat_timeout, Some(fired_at), true);
        let _ = hook.try_heartbeat(since, now, drain_timeout);
        let _ = (hook.warn(now), hook.describe_end());
        let silent = NodeFacts { ready: false, not_ready_since: Some(since), ..node("a") };
        let _ = find_loss(Some(&silent), drain_timeout, now);
        let _ = pace_queue(since, now);
    }

    #[test]
    fn a_run_is_read_again_as_it_was_written(
        value in prop_oneof![5 => spoiled(vec![whole_run()]), 1 => any_json()],
        now in any_time(),
    ) {
        if let Some(run) = check_request::<Run>(&value)? {
            let carried = serde_json::to_value(&run).unwrap();
            prop_assert_eq!(read_value::<Run>(&carried).unwrap(), run.clone());
            let _ = (run.phase(), measure_drain(&run));
            if let Some(old) = &run.old {
                let _ = (old.knows_members(), old.new_members(&group()), old.to_facts(&run.node, &id(OLD)));
            }
            let _ = run.describe_ended();
            let execution: ExecutionArn = ARN.parse().unwrap();
            let _ = build_finished_notification(About::run(&execution, &run), &run, "it is gone");
            let mut run = run;
            let _ = update_blockage(&mut run, &["a budget".to_owned()], &execution, now, now, "it waits");
            if let Some(hook) = &mut run.hook {
                let _ = (hook.try_heartbeat(now, run.claimed_at, run.input.drain_timeout), hook.warn(now));
            }
            let _ = wait_for_answer(run.claimed_at, now, run.input.load_balancer_grace);
        }
    }

    #[test]
    fn a_request_is_read_or_refused_with_its_place(
        request in prop_oneof![
            5 => spoiled(vec![
                json!({"context": context(), "owner": {"execution": ARN, "status": "FAILED", "ended_at": at(0)}, "run": whole_run()}),
                json!({"context": context(), "run": whole_run()}),
                json!({"context": context(), "failure": {"Error": "DrainTimedOut", "Cause": "late"},
                    "restore": {"since": at(0), "steps": 1, "reason": "waits"}}),
                json!({"context": context(), "leftover": {"instance_id": OLD, "cluster_name": "prod"}, "owner": {}, "restore": {}}),
                json!({"unmarking": {"cluster_name": "prod", "rotations": [ARN], "nodes": [OLD]}}),
                json!({"marking": {"cluster_name": "prod", "rotation": ARN, "mark": "soft", "nodes": [OLD], "ended": [ARN]}}),
                json!({"ask": "move_drain_end", "instance_id": OLD, "cluster_name": "prod", "until": "now"}),
                json!({"ask": "status", "cluster_name": "prod", "node": "a"}),
                json!({"ask": "doctor", "cluster_name": "prod", "execution": ARN}),
                json!({"ask": "records", "cluster_name": "prod", "instances": [OLD]}),
                json!({"context": context(), "select": "may_start", "cluster_name": "prod",
                    "rotation": {"group": "workers", "execution": ARN, "began_at": at(0), "input": rotation()},
                    "members": {"nodes": [OLD, NEW], "at_once": 1, "launch_source": "a", "members_before": ""},
                    "waiting_node": {"instance_id": OLD, "index": 0, "began_at": at(0), "waited": 60, "waits_for": "canary",
                        "waited_for_it": 30, "attempt": 1, "status": "FAILED", "error": "DrainTimedOut", "exists": true}}),
            ]),
            1 => any_json(),
        ],
        now in any_time(),
    ) {
        check_request::<ClaimRequest>(&request)?;
        if let Some(StepRequest { context, .. }) = check_request::<StepRequest>(&request)? {
            let _ = (context.now(), context.fence());
        }
        check_request::<RestoreCall>(&request)?;
        check_request::<TaintRequest>(&request)?;
        check_request::<OperatorRequest>(&request)?;
        if let Some(asked) = check_request::<SelectRequest>(&request)?
            && let (Some(part), Some(waiting_node)) = (&asked.rotation, &asked.waiting_node)
            && let Ok(Rotation { terms: Some(terms), .. }) = parse_rotation(&part.input)
        {
            let _ = check_waiting_node(&terms, part, waiting_node, now);
        }
    }

    #[test]
    fn the_input_of_a_rotation_is_read_or_refused_in_a_sentence(
        given in prop_oneof![5 => spoiled(rotations()), 1 => any_json()],
        members in any::<usize>(),
        began_at in any_time(),
    ) {
        match parse_rotation(&given) {
            Ok(rotation) => {
                let fields = Value::Object(rotation.fields());
                prop_assert!(fields.is_object());
                let start = rotation.start(&id(OLD), "run-1");
                prop_assert!(start.name.len() <= 80, "{}", start.name);
                if let Some(terms) = &rotation.terms {
                    let _ = (terms.count_at_once(members, 5), PassSize::of(terms), terms.end(began_at));
                }
                if let Selection::Alarm(alarm) = &rotation.selection {
                    match read_alarm(&rotation.event, alarm) {
                        Ok(Alarmed::Instance(_) | Alarmed::OldestOf(_)) => {}
                        Err(error) => check_refusal(&error.0)?,
                    }
                }
            }
            Err(error) => check_refusal(&error.0)?,
        }
    }

    #[test]
    fn a_request_to_start_rotations_is_read_or_refused_with_its_place(
        request in prop_oneof![
            5 => spoiled(vec![
                sns_message(),
                json!({"value": "2", "rotation": rotation(), "tf": {"action": "update", "prev_input": {"value": "1"}}}),
                json!({"value": {"a": 1}, "rotation": rotation(), "tf": {"action": "create", "prev_input": null}}),
            ]),
            1 => any_json(),
        ],
    ) {
        if let Some(request) = check_request::<StartRequest>(&request)? {
            match decide_starts(&request, &triggers()) {
                Ok(starts) => {
                    for start in &starts.starts {
                        let name = start.name.as_deref().unwrap_or_default();
                        prop_assert!(name.len() <= 80, "{name}");
                    }
                    prop_assert!(starts.answer().reason.chars().count() <= 1_000);
                }
                Err(error) => check_refusal(&error.0)?,
            }
        }
    }

    #[test]
    fn a_version_is_read_or_is_none(
        text in tag_of(&["v1.33.4-eks-1a2b3c4", "1.33", "1.33+", "amazon-eks-node-al2023-x86_64-standard-1.33-v20260101",
            "bottlerocket-aws-k8s-1.33-x86_64-v1.40.0-abc"]),
    ) {
        if let Some(release) = Release::read(&text) {
            prop_assert_eq!(Release::read(&release.to_string()), Some(release));
        }
        let _ = Release::read_image(&text);
    }

    #[test]
    fn a_history_is_read_for_any_answer_of_a_function(
        answers in proptest::collection::vec(
            (select(vec!["CheckPods", "EvictPods", "ClaimNode", "Other"]),
            prop_oneof![
                5 => spoiled(vec![json!({
                    "verdict": "wait", "reason": "it waits", "counts": {"awaited": 1}, "names": {"awaited": ["default/a"]},
                    "notification": {"event": "blocked", "severity": "warning", "subject": "a", "blocks": ["b"]},
                    "run": whole_run(),
                }), json!({"StateMachineArn": "arn:aws:states:eu-west-1:1:stateMachine:m:live", "Name": "a"})]),
                1 => any_json(),
            ], any_time()),
            0..5,
        ),
        (input, output) in (spoiled(whole_input()), any_json()),
        (cause, ends) in (any_text(), any_time()),
    ) {
        let events = answers.iter().flat_map(|(state, answer, at)| [
            EventKind::Entered((*state).to_owned()),
            EventKind::Scheduled(answer.clone()),
            EventKind::Answered(answer.clone()),
            EventKind::Failed { error: "E".to_owned(), cause: cause.clone() },
        ].map(|what| (*at, what)));
        let events: Vec<Event> = (0..).zip(events).map(|(id, (at, what))| Event { id, previous: id, at, what }).collect();
        let execution = Execution {
            arn: ARN.to_owned(),
            input,
            started_at: ends,
            ended_at: Some(ends),
            end: Some(End { status: "FAILED".to_owned(), output, error: "E".to_owned(), cause: cause.clone() }),
        };
        let _ = find_started(&events);
        let report = report_node(&execution, &events);
        prop_assert!(serde_json::to_value(&report).is_ok());
        let _ = report_rotation(&execution, &events, vec![report]);
    }

    #[test]
    fn the_reach_of_a_volume_is_read_or_unknown(
        terms in spoiled(vec![json!([{"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-west-1a"]}]}])]),
    ) {
        if let Some(terms) = check_list::<NodeSelectorTerm>(&terms)?
            && let Reach::Nodes(selectors) = read_reach(&terms)
        {
            for selector in selectors {
                prop_assert!(selector.parse::<Selector>().is_ok(), "{}", selector);
            }
        }
    }
}

fn check_list<T: DeserializeOwned>(value: &Value) -> Result<Option<Vec<T>>, TestCaseError> {
    match read_value(value) {
        Ok(read) => Ok(Some(read)),
        Err(error) => check_refusal(&error.to_string()).map(|()| None),
    }
}
