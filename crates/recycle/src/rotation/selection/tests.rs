use crate::base::names::REPLACEMENT_FOR_ANNOTATION;
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::rotation::alarm::Alarmed;
use crate::rotation::alarm::read_alarm;
use crate::rotation::alarm::{AlarmFacts, choose_alarmed};
use crate::rotation::fleet::FleetMember;
use crate::rotation::fleet::Template;
use crate::rotation::request::AlarmTerms;
use crate::rotation::request::LONGEST_RECYCLE;
use crate::rotation::request::MOST_STARTS;
use crate::rotation::request::parse_rotation;
use serde_json::Value;
use serde_json::json;
use std::collections::BTreeMap;

use super::*;
use crate::base::names::CLAIM_ANNOTATION;
use crate::fixtures::{NEW, OLD, OTHER, at, claim, claimed, id, instance, leased, leases, node, strings};
use crate::records::claim::{Claim, Phase};
use crate::records::node_record::Record;

const HOUR: i64 = 3_600;

fn cluster() -> ClusterName {
    "world".parse().unwrap()
}

fn machine(name: &str, launched: i64) -> Machine {
    Machine {
        instance: Instance {
            id: id(name),
            ..instance()
        },
        launched_at: at(launched),
        image: "ami-1".to_owned(),
    }
}

fn tagged(mut machine: Machine, key: &str, value: &str) -> Machine {
    machine.instance.tags.insert(key.to_owned(), value.to_owned());
    machine
}

fn template(id: &str, version: &str) -> Template {
    Template {
        id: id.to_owned(),
        version: version.to_owned(),
    }
}

fn fleet(members: &[(&str, &str)]) -> Fleet {
    Fleet {
        name: "workers".parse().unwrap(),
        tags: strings([("team", "batch")]),
        template: Some(template("lt-1", "$Latest")),
        overrides: BTreeMap::new(),
        rebalances_capacity: false,
        room: 3,
        members: members
            .iter()
            .map(|(name, version)| FleetMember {
                instance: id(name),
                lifecycle_state: "InService".to_owned(),
                instance_type: "m7i.large".to_owned(),
                zone: "eu-west-1a".to_owned(),
                template: Some(template("lt-1", version)),
            })
            .collect(),
    }
}

fn terms(json: Value) -> AlarmTerms {
    serde_json::from_value(json).unwrap()
}

fn ids(choice: &Choice) -> Vec<&str> {
    choice.chosen.iter().map(InstanceId::as_str).collect()
}

/// An event of AWS Health lists all instances that EC2 retires.
#[test]
fn a_path_that_leads_to_a_list_selects_each_instance_of_the_list() {
    let arn = |id: &str| format!("arn:aws:ec2:eu-west-1:123456789012:instance/{id}");
    for (name, ids) in [
        ("a list of ids", json!([[OLD, NEW]])),
        ("a list of ARNs", json!([[arn(OLD), arn(NEW)]])),
        ("one id and a list", json!([OLD, [NEW]])),
    ] {
        let input = json!({"trigger": "event", "selection": {"instance_ids": ids}});
        let expected = Selection::InstanceIds(vec![OLD.parse().unwrap(), NEW.parse().unwrap()]);
        assert_eq!(parse_rotation(&input).unwrap().selection, expected, "{name}");
    }
}

#[test]
fn an_alarm_recycles_no_other_node_for_an_hour_by_default() {
    assert_eq!(terms(json!({})).cooldown_minutes, 60);
}

#[test]
fn a_rotation_is_read_strictly_and_refused_by_name() {
    let good = |selection: Value| json!({"trigger": "manual", "selection": selection});
    for selection in [
        json!({"instance_ids": [OLD]}),
        json!({"instance_ids": vec![OLD; MOST_STARTS]}),
        json!({"instance_ids": [format!("arn:aws:ec2:eu-west-1:123456789012:instance/{OLD}")]}),
        json!({"outdated": {"kubelet": true, "node_labels": "pool in (a, b), !gpu"}}),
        json!({"outdated": {"launched_before": "2027-01-01T00:00:00Z"}}),
        json!({"outdated": {"all": true}}),
        json!({"outdated": {"launch_template": true}}),
        json!({"outdated": {"groups": ["workers"], "older_than": "1d"}}),
    ] {
        assert!(parse_rotation(&good(selection.clone())).is_ok(), "{selection}");
    }
    let longest = json!({"label_selector": "x".repeat(LONGEST_RECYCLE - r#"{"label_selector":""}"#.len())});
    assert!(
        parse_rotation(
            &json!({"trigger": "manual", "selection": {"instance_ids": [OLD]}, "recycle": longest})
        )
        .is_ok()
    );
    for alarm in [
        json!({}),
        json!({"group": "workers", "pick": "oldest", "cooldown_minutes": 0}),
    ] {
        let urgent = json!({"trigger": "alarm", "selection": {"alarm": alarm}});
        assert_eq!(parse_rotation(&urgent).unwrap().terms, None);
    }
    let with_recycle = |recycle: Value| json!({"trigger": "manual", "selection": {"instance_ids": [OLD]}, "recycle": recycle});
    for (input, words) in [
        (json!({"selection": {}}), "missing field `trigger`"),
        (
            json!({"trigger": "whim", "selection": {}}),
            "unknown variant `whim`",
        ),
        (
            json!({"trigger": "manual", "selection": {}, "nodes": 1}),
            "unknown field `nodes`",
        ),
        (good(json!({"newest": {}})), "selection: unknown variant `newest`"),
        (
            good(json!({"instance_ids": []})),
            "selection: instance_ids is empty",
        ),
        (
            good(json!({"instance_ids": vec![OLD; MOST_STARTS + 1]})),
            "selection: instance_ids has more than 40 instances",
        ),
        (good(json!({"instance_ids": ["web-1"]})), "is \"web-1\""),
        (
            good(json!({"instance_ids": [[[OLD]]]})),
            "selection: instance_ids.0.0: invalid type: sequence",
        ),
        (
            good(json!({"instance_ids": [{"id": OLD}]})),
            "selection: instance_ids.0: invalid type: map, expected an instance id or a list of instance ids",
        ),
        (
            good(json!({"instance_ids": [[]]})),
            "selection: instance_ids is empty",
        ),
        (
            good(json!({"instance_ids": [vec![OLD; MOST_STARTS + 1]]})),
            "selection: instance_ids has more than 40 instances",
        ),
        (
            good(json!({"alarm": {"pick": "newest"}})),
            "unknown variant `newest`",
        ),
        (
            good(json!({"alarm": {}})),
            "alarm is allowed only with the trigger alarm",
        ),
        (
            json!({"trigger": "event", "selection": {"outdated": {"all": true}}}),
            "outdated is allowed only with the triggers manual, schedule and apply",
        ),
        (
            json!({"trigger": "spot", "selection": {"instance_ids": [OLD]}, "mark": "soft"}),
            "mark is not allowed with trigger spot",
        ),
        (
            json!({"trigger": "alarm", "selection": {"alarm": {}}, "dry_run": true}),
            "dry_run is not allowed with trigger alarm",
        ),
        (
            json!({"trigger": "manual", "selection": {"instance_ids": [OLD]}, "retries": 11}),
            "retries must be from 0 to 10",
        ),
        (
            good(json!({"outdated": {"all": true, "node_labels": "a in"}})),
            "selection: ",
        ),
        (good(json!({"alarm": {"gruop": "x"}})), "unknown field `gruop`"),
        (
            good(json!({"outdated": {}})),
            "needs at least one of launch_template, ami, kubelet, older_than, launched_before or all",
        ),
        (
            good(json!({"outdated": {"older_than": 336}})),
            "selection: outdated.older_than must be a duration of at least 1h, such as 20h, 10d or a number of seconds, but is 5m36s",
        ),
        (
            good(json!({"outdated": {"ami": true, "groups": [], "group_tag": {"key": "a", "value": "b"}}})),
            "write one of them",
        ),
        (
            with_recycle(json!({"urgency": "spot"})),
            "recycle: urgency is set by the trigger",
        ),
        (
            with_recycle(json!({"evcit": "none"})),
            "recycle: evcit is not a field",
        ),
        (
            with_recycle(json!({"label_selector": "x".repeat(2_000)})),
            "recycle must have at most 2000 bytes, but has 2021",
        ),
    ] {
        let refused = parse_rotation(&input).unwrap_err().to_string();
        assert!(refused.contains(words), "{input}: {refused}");
    }
}

#[test]
fn the_trigger_sets_fields_of_each_execution() {
    let parse = |trigger: &str| {
        parse_rotation(&json!({
            "trigger": trigger,
            "selection": {"instance_ids": [OLD]},
            "recycle": {"evict": "none", "dispose": null},
            "event": {"id": "e-1", "time": "2027-01-01T00:00:00Z"},
        }))
        .unwrap()
    };
    let fields = |trigger: &str| Value::Object(parse(trigger).fields());
    assert_eq!(fields("alarm"), json!({"evict": "none"}));
    assert_eq!(fields("rebalance"), json!({"evict": "none", "urgency": "spot"}));
    assert_eq!(
        fields("spot"),
        json!({"evict": "none", "urgency": "spot", "interrupted_at": "2027-01-01T00:02:00Z"})
    );
    let name = parse("alarm").start(&id(OLD), "run").name;
    assert_eq!(name, format!("alarm-{OLD}-{}", short_hash("e-1")));
    assert_eq!(name, parse("alarm").start(&id(OLD), "another run").name);
}

#[test]
fn a_warning_with_an_extreme_time_causes_no_panic() {
    let rotation = |time: &str| {
        parse_rotation(&json!({
            "trigger": "spot",
            "selection": {"instance_ids": [OLD]},
            "event": {"id": "e-1", "time": time},
        }))
    };
    for (time, interrupted_at) in [
        ("9999-12-30T22:00:00Z", json!("9999-12-30T22:00:00.999999999Z")),
        ("9999-12-31T23:59:59Z", Value::Null),
        ("soon", Value::Null),
    ] {
        let fields = Value::Object(rotation(time).unwrap().fields());
        assert_eq!(fields["interrupted_at"], interrupted_at, "{time}");
    }
}

#[test]
fn the_execution_of_an_alarm_is_named_after_the_state_change_and_not_after_the_event() {
    let start = |trigger: &str, event_id: &str, moment: &str| {
        let rotation = parse_rotation(&json!({
            "trigger": trigger,
            "selection": {"instance_ids": [OLD]},
            "event": {"id": event_id, "resources": ["arn:alarm"], "detail": {"state": {"timestamp": moment}}},
        }));
        rotation.unwrap().start(&id(OLD), "run").name
    };
    assert_eq!(start("alarm", "e-1", "now"), start("alarm", "e-2", "now"));
    assert_ne!(start("alarm", "e-1", "now"), start("alarm", "e-1", "then"));
    assert_ne!(start("event", "e-1", "now"), start("event", "e-2", "now"));
}

#[test]
fn listed_instances_of_other_clusters_and_gone_ones_are_left_out() {
    let gone = Machine {
        instance: Instance {
            state: "terminated".to_owned(),
            ..machine(OTHER, 0).instance
        },
        ..machine(OTHER, 0)
    };
    let key = "kubernetes.io/cluster/world";
    let fleets = [fleet(&[(NEW, "1")])];
    for (name, machine, words) in [
        (OLD, tagged(machine(OLD, 0), key, "owned"), None),
        (
            OLD,
            tagged(machine(OLD, 0), key, "mine"),
            Some("is not an instance of cluster world"),
        ),
        (
            OLD,
            tagged(machine(OLD, 0), "kubernetes.io/cluster/other", "owned"),
            Some("is not an instance of cluster world"),
        ),
        (NEW, machine(NEW, 0), None),
        (OTHER, tagged(gone, key, "owned"), Some("is terminated")),
    ] {
        let choice = choose_listed(
            Trigger::Event,
            &[id(name)],
            std::slice::from_ref(&machine),
            &fleets,
            &cluster(),
        );
        match words {
            None => assert_eq!(ids(&choice), [name]),
            Some(words) => assert!(choice.describe().contains(words), "{}", choice.describe()),
        }
    }
    let tagged_alone = tagged(machine(OLD, 0), key, "owned");
    for (trigger, is_chosen) in [
        (Trigger::Event, true),
        (Trigger::Manual, true),
        (Trigger::Spot, false),
        (Trigger::Rebalance, false),
    ] {
        let machines = std::slice::from_ref(&tagged_alone);
        let choice = choose_listed(trigger, &[id(OLD)], machines, &fleets, &cluster());
        assert_eq!(!choice.chosen.is_empty(), is_chosen, "{trigger:?}");
    }
    let rebalancing = [Fleet {
        rebalances_capacity: true,
        ..fleet(&[(OLD, "InService")])
    }];
    for (trigger, is_chosen) in [
        (Trigger::Rebalance, false),
        (Trigger::Spot, true),
        (Trigger::Event, true),
    ] {
        let machines = std::slice::from_ref(&tagged_alone);
        let choice = choose_listed(trigger, &[id(OLD)], machines, &rebalancing, &cluster());
        assert_eq!(!choice.chosen.is_empty(), is_chosen, "{trigger:?}");
        assert_eq!(
            choice.describe().contains("Capacity Rebalancing"),
            !is_chosen,
            "{trigger:?}"
        );
    }
    let unknown = choose_listed(Trigger::Event, &[id(OLD)], &[], &fleets, &cluster());
    assert!(
        unknown
            .describe()
            .starts_with("no node is recycled; EC2 does not know")
    );
}

fn event(metrics: &[Value]) -> Value {
    let metrics: Vec<Value> = metrics
        .iter()
        .map(|dimensions| json!({"id": "m", "metricStat": {"metric": {"dimensions": dimensions}}}))
        .collect();
    json!({"detail": {"configuration": {"metrics": metrics}}})
}

#[test]
fn an_alarm_points_to_its_instance_or_to_the_oldest_node_of_a_group() {
    let instance = json!({"InstanceId": OLD, "ClusterName": "world"});
    let group = json!({"AutoScalingGroupName": "workers"});
    let the_instance = Ok(Alarmed::Instance(id(OLD)));
    let the_oldest = Ok(Alarmed::OldestOf("workers".parse().unwrap()));
    for (name, event, given, expected) in [
        (
            "an instance",
            event(std::slice::from_ref(&instance)),
            json!({}),
            &the_instance,
        ),
        (
            "a group",
            event(std::slice::from_ref(&group)),
            json!({"pick": "oldest"}),
            &the_oldest,
        ),
        (
            "metric math of a group that is named",
            event(&[instance.clone(), group.clone()]),
            json!({"group": "workers", "pick": "oldest"}),
            &the_oldest,
        ),
    ] {
        assert_eq!(read_alarm(&event, &terms(given)), *expected, "{name}");
    }
    for (event, given, words) in [
        (
            event(&[group]),
            json!({}),
            "the alarm names group workers and no instance: write pick",
        ),
        (
            event(&[json!({"InstanceId": "web-1"})]),
            json!({}),
            "dimension InstanceId must be",
        ),
        (
            event(&[]),
            json!({"pick": "oldest"}),
            "it has no metric of its own",
        ),
        (event(&[json!({})]), json!({}), "it has no dimension"),
        (
            event(&[instance.clone(), json!({"InstanceId": NEW})]),
            json!({"pick": "oldest"}),
            "it has 2 metrics: ClusterName=world, InstanceId=i-0aaaaaaaaaaaaaaaa / InstanceId=i-0bbbbbbbbbbbbbbbb",
        ),
        (
            event(&[json!({"a": "x".repeat(2_000)}), json!({})]),
            json!({"pick": "oldest"}),
            "it has 2 metrics: a=xxx",
        ),
    ] {
        let refused = read_alarm(&event, &terms(given)).unwrap_err().to_string();
        assert!(
            refused.contains(words) && refused.len() < LONGEST_REASON,
            "{refused}"
        );
    }
}

#[test]
fn a_group_cools_down_after_a_claim_or_a_replacement_but_not_after_a_launch() {
    let fleets = [fleet(&[(OLD, "1"), (NEW, "1")])];
    let machines = [machine(OLD, 0), machine(NEW, 10 * HOUR)];
    let replacement = NodeFacts {
        instance: Some(id(NEW)),
        annotations: strings([(REPLACEMENT_FOR_ANNOTATION, OTHER)]),
        ..node("b")
    };
    let worked_on = claimed(node("a"), Phase::Draining, &Record::default());
    let elsewhere = Claim {
        group: "others".parse().unwrap(),
        ..claim(Phase::Draining)
    };
    let text = serde_json::to_string(&elsewhere).unwrap();
    let of_another_group = leased(node("a"), [(CLAIM_ANNOTATION, &text)]);
    let oldest = Alarmed::OldestOf("workers".parse().unwrap());
    for (name, nodes, minutes, hour, chosen) in [
        ("a launch alone", vec![node("a")], 60, 10, true),
        ("a replacement", vec![replacement.clone()], 60, 10, false),
        ("a replacement, later", vec![replacement.clone()], 60, 11, true),
        ("no cooldown", vec![replacement], 0, 10, true),
        ("a claim", vec![worked_on.clone()], 120, 1, false),
        ("a claim, later", vec![worked_on], 60, 1, true),
        ("another group's claim", vec![of_another_group], 120, 1, true),
    ] {
        let terms = terms(json!({"pick": "oldest", "cooldown_minutes": minutes}));
        let now = at(hour * HOUR);
        let facts = AlarmFacts {
            fleets: &fleets,
            machines: &machines,
            nodes: &nodes,
            leases: &leases(&nodes),
        };
        let choice = choose_alarmed(&oldest, &terms, &facts, &cluster(), now);
        assert_eq!(ids(&choice) == [OLD], chosen, "{name}: {}", choice.describe());
    }
}

#[test]
fn an_alarm_of_another_group_or_cluster_recycles_nothing() {
    let fleets = [fleet(&[(OLD, "1")])];
    let choose = |alarmed: Alarmed, given: Value| {
        let (machines, now) = ([machine(OLD, 0), machine(OTHER, 0)], at(HOUR));
        let facts = AlarmFacts {
            fleets: &fleets,
            machines: &machines,
            nodes: &[],
            leases: &[],
        };
        choose_alarmed(&alarmed, &terms(given), &facts, &cluster(), now).describe()
    };
    let other_group = choose(Alarmed::Instance(id(OLD)), json!({"group": "others"}));
    assert!(
        other_group.contains("is in group workers, not in others"),
        "{other_group}"
    );
    let foreign = choose(Alarmed::Instance(id(OTHER)), json!({}));
    assert!(
        foreign.contains("is not an instance of cluster world"),
        "{foreign}"
    );
    let foreign = choose(
        Alarmed::OldestOf("others".parse().unwrap()),
        json!({"pick": "oldest"}),
    );
    assert!(
        foreign.contains("others is not a group of cluster world"),
        "{foreign}"
    );
}
