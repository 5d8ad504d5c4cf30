//! The input of `recycle-node` as a type. [`crate::input::fields`] has the table of its fields.
//!
//! This module does not call AWS or Kubernetes. The pre-flight checks whether the instance exists.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::ids::{ClusterName, GroupName, InstanceId};
use crate::base::selector::Selector;
use crate::input::urgency::Urgency;

/// The input with every default filled in, as it travels in `run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub instance_id: InstanceId,
    pub cluster_name: ClusterName,
    /// `label_selector` and `namespaces`.
    pub awaited: Awaited,
    pub evict: Evict,
    pub replacement: Replacement,
    pub dispose: Dispose,
    /// In seconds, like the other durations.
    pub node_lost_after: u32,
    pub replacement_timeout: u32,
    pub drain_timeout: u32,
    pub on_drain_timeout: OnDrainTimeout,
    pub load_balancer_grace: u32,
    /// None means that stuck pods hold the node until the drain is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_stuck_after: Option<u32>,
    /// `grace_period`. None means each pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<u32>,
    pub urgency: Urgency,
    pub dry_run: bool,
    #[serde(rename = "override")]
    pub overrides: BTreeSet<Override>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
}

/// The pods to wait for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// The labels of the pods. None means that no pod is awaited by label.
    pub selector: Option<Selector>,
    /// The namespaces of the pods. Empty means all.
    #[serde(default)]
    pub namespaces: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evict {
    /// Pods that are not awaited are evicted at once.
    Others,
    /// Like [`Evict::Others`], but pods that run to completion are also evicted, unless they are awaited for another reason.
    OthersAndJobs,
    /// Like [`Evict::OthersAndJobs`], but bare pods are also evicted. No controller starts them again.
    All,
    /// Pods that are not awaited are left alone.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replacement {
    /// Standby: the replacement comes first.
    Before,
    /// No Standby.
    After,
    /// The group gets one instance more, which is the replacement. The old node stays in service until it is drained.
    Surge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispose {
    /// The instance is terminated, and its place in the group refilled.
    Terminate,
    /// The instance is stopped in Standby.
    Stop,
    /// The instance leaves the group and keeps running.
    Detach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDrainTimeout {
    Restore,
    /// The pods that were awaited are evicted, each early enough for its grace period.
    Evict,
    /// The instance is disposed of, even if pods still run on it.
    Terminate,
}

/// `hook`: the lifecycle action that the group waits for. Its time-out is read from the hook itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// The hook's name. recycle-eks acts only on its own hook.
    pub name: String,
    pub auto_scaling_group_name: GroupName,
    /// The destination of the instance: `EC2`, or `WarmPool`, for which the action is completed at once.
    pub destination: String,
    /// The time at which the hook fired. None if a sweep has found the member, because the time is then unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired_at: Option<Timestamp>,
    /// Whether the group's instance lifecycle policy retains instances, according to the module's variable.
    /// None if the input does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<bool>,
}

/// The destination of an instance that is terminated (EC2 Auto Scaling user guide, "Example lifecycle hook events").
pub const TO_EC2: &str = "EC2";

/// A refusal that may be overridden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Override {
    ScaleInProtection,
    /// The instance is the last healthy target of a load balancer.
    LastTarget,
    /// The group belongs to an EKS managed node group, and replacement `before` uses Standby.
    StandbyInManagedGroup,
    /// Pods may still run when the drain's time is over.
    RunningPods,
    SuspendedProcess,
    /// The owner of a pod forbids to disrupt it.
    OwnerProtected,
    /// A budget refuses the eviction of a crash-looping pod.
    UnhealthyBudget,
}

/// An error in one sentence: the field, what is allowed, and what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidInput(pub String);

/// The longest drain in seconds: 30 days. A longer one would not fit into an execution's history ([`crate::base::poll`]).
pub const LONGEST_DRAIN: u32 = 30 * 86_400;

#[cfg(test)]
mod tests {
    use crate::input::fields::FIELDS;
    use crate::input::fields::Settings;
    use crate::input::fields::choices;
    use crate::input::parse::parse_input;
    use crate::input::suggest::edit_distance;
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use serde_json::Map;
    use serde_json::Value;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{OLD, at, input, input_json, settings};

    fn with_defaults(defaults: Value) -> Settings {
        let Value::Object(defaults) = defaults else {
            panic!("{defaults} is no object")
        };
        Settings {
            defaults,
            ..settings()
        }
    }

    fn refusal(more: Value) -> String {
        parse_input(&input_json(more.clone()), &settings())
            .expect_err(&more.to_string())
            .to_string()
    }

    #[test]
    fn the_three_fields_of_the_predecessor_are_enough() {
        let input = input(json!({"label_selector": "airflow_version=1.2.3,airflow-worker"}));
        assert_eq!(
            input,
            Input {
                instance_id: OLD.parse().unwrap(),
                cluster_name: "prod".parse().unwrap(),
                awaited: Awaited {
                    selector: Some("airflow_version=1.2.3,airflow-worker".parse().unwrap()),
                    namespaces: BTreeSet::new(),
                },
                evict: Evict::Others,
                replacement: Replacement::Before,
                dispose: Dispose::Terminate,
                node_lost_after: 1_800,
                replacement_timeout: 840,
                drain_timeout: 172_800,
                on_drain_timeout: OnDrainTimeout::Restore,
                load_balancer_grace: 300,
                skip_stuck_after: None,
                grace_period: None,
                urgency: Urgency::Planned,
                dry_run: false,
                overrides: BTreeSet::new(),
                interrupted_at: None,
                hook: None,
            }
        );
    }

    #[test]
    fn valid_values_are_read() {
        let input = input(json!({
            "label_selector": "*", "namespaces": ["jobs"], "evict": "none", "replacement": "before", "dispose": "stop",
            "replacement_timeout": "60s", "drain_timeout": "30d", "on_drain_timeout": "terminate",
            "load_balancer_grace": 0, "grace_period": "5", "urgency": "planned", "dry_run": true,
            "override": ["scale_in_protection", "running_pods", "suspended_process"],
        }));
        assert_eq!(input.awaited.selector, Some("*".parse().unwrap()));
        assert_eq!(input.awaited.namespaces, BTreeSet::from(["jobs".to_owned()]));
        assert_eq!(
            (input.replacement_timeout, input.drain_timeout),
            (60, LONGEST_DRAIN)
        );
        assert_eq!((input.load_balancer_grace, input.grace_period), (0, Some(5)));
        assert_eq!(
            (input.evict, input.dispose, input.dry_run),
            (Evict::None, Dispose::Stop, true)
        );
        assert_eq!(
            input.overrides,
            BTreeSet::from([
                Override::ScaleInProtection,
                Override::RunningPods,
                Override::SuspendedProcess
            ])
        );
        assert_eq!(input.on_drain_timeout, OnDrainTimeout::Terminate);
    }

    fn hook() -> Value {
        json!({"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2", "fired_at": at(0)})
    }

    #[test]
    fn module_settings_do_not_choose_how_an_instance_leaves_that_others_end() {
        let settings = with_defaults(json!({"replacement": "before", "dispose": "stop"}));
        for more in [
            json!({"hook": hook()}),
            json!({"urgency": "spot", "interrupted_at": at(0)}),
        ] {
            let input = parse_input(&input_json(more), &settings).unwrap();
            assert_eq!(
                (input.replacement, input.dispose),
                (Replacement::After, Dispose::Terminate)
            );
        }
    }

    #[test]
    fn a_trigger_sets_the_urgency() {
        assert_eq!(input(json!({"urgency": "spot"})).urgency, Urgency::Spot);
        let interrupted = input(json!({"urgency": "spot", "interrupted_at": at(120)}));
        assert_eq!(interrupted.urgency, Urgency::Interruption);
        assert_eq!(interrupted.interrupted_at, Some(at(120)));
        assert_eq!(input(json!({"hook": hook()})).urgency, Urgency::Hook);
        assert_eq!(input(json!({})).urgency, Urgency::Planned);
    }

    #[test]
    fn a_refusal_names_the_field_the_allowed_values_and_the_given_value() {
        let cases = [
            (json!({"instance_id": 1}), "instance_id must be a text, but is 1"),
            (
                json!({"instance_id": "i-1"}),
                "instance_id must be an instance id (i- and 8 or 17 hexadecimal digits), but is \"i-1\"",
            ),
            (
                json!({"instance_id": null}),
                "instance_id must be a text, but is null",
            ),
            (
                json!({"cluster_name": "test"}),
                "cluster_name must be \"prod\", the cluster of this module, but is \"test\"",
            ),
            (
                json!({"cluster_name": ["prod"]}),
                "cluster_name must be a text, but is [\"prod\"]",
            ),
            (
                json!({"cluster_name": "-"}),
                "cluster_name must be a cluster name",
            ),
            (
                json!({"label_selector": 5}),
                "label_selector must be a text, but is 5",
            ),
            (
                json!({"label_selector": "app web"}),
                "label_selector must be a Kubernetes label selector, but is \"app web\": expected one of =, ==, !=, in, notin, <, \
                 > or a comma at character 5, but found \"web\"",
            ),
            (
                json!({"label_selector": "a".repeat(513)}),
                "label_selector must have at most 512 characters, but has 513",
            ),
            (
                json!({"namespaces": "jobs"}),
                "namespaces must be a list of namespace names",
            ),
            (json!({"namespaces": ["Jobs"]}), "each), but has \"Jobs\""),
            (json!({"namespaces": [""]}), "each), but has \"\""),
            (json!({"namespaces": [7]}), "each), but has 7"),
            (
                json!({"namespaces": ["a", "a"]}),
                "namespaces must name each value once, but has \"a\" twice",
            ),
            (
                json!({"namespaces": vec!["a"; 17]}),
                "namespaces must have at most 16 names, but has 17",
            ),
            (
                json!({"evict": "every"}),
                "evict must be one of \"others\", \"others_and_jobs\", \"all\", \"none\", but is \"every\"",
            ),
            (
                json!({"evict": null}),
                "evict must be one of \"others\", \"others_and_jobs\", \"all\", \"none\", but is null",
            ),
            (
                json!({"replacement": true}),
                "replacement must be one of \"before\", \"after\", \"surge\", but is true",
            ),
            (
                json!({"dispose": "Stop"}),
                "dispose must be one of \"terminate\", \"stop\", \"detach\", but is \"Stop\"",
            ),
            (
                json!({"replacement_timeout": 59}),
                "replacement_timeout must be a duration from 60s to 1h, such as 10m or a number of seconds, but is 59",
            ),
            (
                json!({"drain_timeout": "2 days"}),
                "drain_timeout must be a duration from 60s to 30d, such as 20h, 10d or a number of seconds, but is \"2 days\"",
            ),
            (json!({"drain_timeout": 2_592_001}), "but is 2592001"),
            (json!({"drain_timeout": 3_600.5}), "but is 3600.5"),
            (json!({"drain_timeout": -1}), "but is -1"),
            (json!({"drain_timeout": u64::MAX}), "but is 18446744073709551615"),
            (json!({"drain_timeout": "31d"}), "but is \"31d\""),
            (json!({"drain_timeout": null}), "but is null"),
            (
                json!({"grace_period": 0}),
                "grace_period must be a duration from 1s to 30d, such as 20h, 10d or a number of seconds, but is 0",
            ),
            (
                json!({"load_balancer_grace": 3_601}),
                "load_balancer_grace must be a duration from 0s to 1h, such as 10m or a number of seconds, but is 3601",
            ),
            (
                json!({"on_drain_timeout": "kill"}),
                "on_drain_timeout must be one of \"restore\", \"evict\", \"terminate\", but is \"kill\"",
            ),
            (
                json!({"urgency": "very"}),
                "urgency must be one of \"planned\", \"spot\", \"hook\", but is \"very\"",
            ),
            (
                json!({"dry_run": "true"}),
                "dry_run must be true or false, but is \"true\"",
            ),
            (
                json!({"override": "scale_in_protection"}),
                "override must be a list of \"scale_in_protection\", \"last_target\", \"standby_in_managed_group\", \"running_pods\", \"suspended_process\", \"owner_protected\", \"unhealthy_budget\", but is \
                 \"scale_in_protection\"",
            ),
            (
                json!({"override": ["everything"]}),
                "\"unhealthy_budget\", but has \"everything\"",
            ),
            (
                json!({"override": ["suspended_process", "suspended_process"]}),
                "override must name each value once, but has \"suspended_process\" twice",
            ),
            (
                json!({"hook": {"name": "drain", "auto_scaling_group_name": "workers", "destination": "EC2"}}),
                "hook must be an object with name \"recycle-eks\"",
            ),
            (json!({"urgency": "interruption"}), "urgency must be one of"),
            (
                json!({"interrupted_at": "soon"}),
                "interrupted_at must be a time such as 2027-01-31T18:00:00Z, but is \"soon\"",
            ),
            (
                json!({"hook": "drain"}),
                "hook must be an object with name \"recycle-eks\", auto_scaling_group_name and destination",
            ),
        ];
        for (more, expected) in cases {
            let text = refusal(more.clone());
            assert!(text.contains(expected), "{more}: {text}");
            assert!(!text.contains('\n') && text.len() < 400, "{more}: {text}");
        }
    }

    #[test]
    fn a_field_that_is_unknown_or_missing_is_named() {
        assert_eq!(
            parse_input(&json!({"cluster_name": "prod"}), &settings())
                .unwrap_err()
                .0,
            "instance_id is required, but is missing"
        );
        assert_eq!(
            parse_input(&json!({"instance_id": OLD}), &settings())
                .unwrap_err()
                .0,
            "cluster_name is required, but is missing"
        );
        assert_eq!(
            refusal(json!({"drain_timeouts": 60})),
            "drain_timeouts is not a field of the input; did you mean drain_timeout?"
        );
        assert_eq!(
            refusal(json!({"label_selectors": ""})),
            "label_selectors is not a field of the input; did you mean label_selector?"
        );
        for (from, to, distance) in [
            ("", "", 0),
            ("evict", "", 5),
            ("abc", "abd", 1),
            ("abc", "xabc", 1),
            ("abcd", "xyzw", 4),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(
                (edit_distance(from, to), edit_distance(to, from)),
                (distance, distance),
                "{from} {to}"
            );
        }
        let long = refusal(json!({"x".repeat(20_000): 1}));
        assert!(long.len() < 600, "{long}");
        assert!(refusal(json!({"a\nb": 1})).starts_with("\"a\\nb\" is not a field of the input; "));
        let text = refusal(json!({"region": "eu-west-1"}));
        assert!(
            text.starts_with("region is not a field of the input; allowed are instance_id, cluster_name, "),
            "{text}"
        );
    }

    #[test]
    fn an_input_that_is_no_object_is_refused() {
        for (input, shown) in [
            (json!([]), "[]"),
            (json!("i-1"), "\"i-1\""),
            (Value::Null, "null"),
        ] {
            assert_eq!(
                parse_input(&input, &settings()).unwrap_err().0,
                format!("the input must be a JSON object, but is {shown}")
            );
        }
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        let hook = hook();
        let cases = [
            (
                json!({"replacement": "after", "dispose": "stop"}),
                "replacement \"after\" allows only dispose",
            ),
            (
                json!({"replacement": "after", "dispose": "detach"}),
                "replacement \"after\" allows only dispose",
            ),
            (
                json!({"replacement": "surge", "dispose": "stop"}),
                "replacement \"surge\" allows only dispose",
            ),
            (
                json!({"on_drain_timeout": "terminate"}),
                "write override [\"running_pods\"] to allow this",
            ),
            (
                json!({"hook": hook, "dispose": "stop"}),
                "hook and dispose cannot be combined, because the group is already terminating the instance; remove dispose",
            ),
            (
                json!({"hook": hook, "replacement": "before"}),
                "hook and replacement cannot be combined",
            ),
            (
                json!({"hook": hook, "urgency": "planned"}),
                "hook needs urgency \"hook\"; remove urgency",
            ),
            (
                json!({"interrupted_at": at(0)}),
                "interrupted_at needs urgency \"spot\"",
            ),
            (
                json!({"urgency": "spot", "interrupted_at": at(0), "dispose": "stop"}),
                "interrupted_at and dispose cannot be combined",
            ),
            (
                json!({"urgency": "hook"}),
                "urgency \"hook\" needs the field hook",
            ),
            (
                json!({"namespaces": ["jobs"]}),
                "write label_selector \"*\" to wait for every pod in these namespaces",
            ),
            (
                json!({"namespaces": ["jobs"], "label_selector": ""}),
                "namespaces narrows label_selector",
            ),
        ];
        for (more, expected) in cases {
            let text = refusal(more.clone());
            assert!(text.contains(expected), "{more}: {text}");
        }
    }

    #[test]
    fn the_input_overrides_a_module_setting() {
        let settings = with_defaults(
            json!({"evict": "none", "drain_timeout": 600, "label_selector": "app=batch",
            "namespaces": ["jobs"], "dispose": null}),
        );
        let by_default = parse_input(&input_json(json!({})), &settings).unwrap();
        assert_eq!((by_default.evict, by_default.drain_timeout), (Evict::None, 600));
        assert_eq!(by_default.awaited.selector, Some("app=batch".parse().unwrap()));
        assert_eq!(by_default.awaited.namespaces, BTreeSet::from(["jobs".to_owned()]));
        assert_eq!(by_default.dispose, Dispose::Terminate);

        let given = parse_input(
            &input_json(json!({"evict": "others", "label_selector": ""})),
            &settings,
        )
        .unwrap();
        assert_eq!(given.evict, Evict::Others);
        assert_eq!(
            given.awaited,
            Awaited::default(),
            "no pods are selected by label, so there is nothing to narrow"
        );

        let everywhere = parse_input(&input_json(json!({"namespaces": []})), &settings).unwrap();
        assert!(everywhere.awaited.namespaces.is_empty());
    }

    #[test]
    fn a_setting_narrows_a_selector_that_the_input_gives() {
        let settings = with_defaults(json!({"label_selector": "", "namespaces": []}));
        let input = parse_input(
            &input_json(json!({"label_selector": "*", "namespaces": ["a"]})),
            &settings,
        )
        .unwrap();
        assert_eq!(input.awaited.namespaces.len(), 1);
    }

    #[test]
    fn a_refusal_says_that_the_value_is_a_module_setting() {
        let cases = [
            (
                json!({"evict": "every"}),
                "the module setting evict must be one of \"others\", \"others_and_jobs\", \"all\", \"none\", but is \"every\"",
            ),
            (
                json!({"label_selector": "=" }),
                "the module setting label_selector must be a Kubernetes label selector",
            ),
            (
                json!({"namespaces": ["a"]}),
                "the module setting namespaces narrows label_selector, which is empty or missing",
            ),
            (
                json!({"namespaces": ["A"]}),
                "the module setting namespaces must be a list",
            ),
            (
                json!({"override": [1]}),
                "the module setting override must be a list of",
            ),
            (
                json!({"dry_run": 1}),
                "the module setting dry_run must be true or false, but is 1",
            ),
            (
                json!({"drain_timeout": "59s"}),
                "the module setting drain_timeout must be a duration from 60s to 30d, such as 20h, 10d or a number of seconds, \
                 but is \"59s\"",
            ),
            (
                json!({"drain_timeout_seconds": 60}),
                "the module has no setting drain_timeout_seconds; ",
            ),
            (
                json!({"evicts": "none"}),
                "the module has no setting evicts; did you mean evict?",
            ),
            (
                json!({"instance_id": OLD}),
                "the module has no setting instance_id; allowed are label_selector, ",
            ),
            (
                json!({"urgency": "planned"}),
                "the module has no setting urgency; ",
            ),
        ];
        for (defaults, expected) in cases {
            let text = parse_input(&input_json(json!({})), &with_defaults(defaults.clone()))
                .unwrap_err()
                .0;
            assert!(text.contains(expected), "{defaults}: {text}");
        }
    }

    /// Returns the values that a type reads, taken from serde's error about a value that it does not read.
    fn values_of<T: DeserializeOwned>() -> Vec<String> {
        let error = serde_json::from_value::<T>(json!("?")).err().unwrap().to_string();
        error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_table_and_the_types_have_the_same_values() {
        let mut compared = 0;
        for field in FIELDS.iter().filter(|field| !choices(field).is_empty()) {
            let of_type = match field.name {
                "evict" => values_of::<Evict>(),
                "replacement" => values_of::<Replacement>(),
                "dispose" => values_of::<Dispose>(),
                "on_drain_timeout" => values_of::<OnDrainTimeout>(),
                // The input expresses an interruption by its time.
                "urgency" => values_of::<Urgency>()
                    .into_iter()
                    .filter(|word| word != "interruption")
                    .collect(),
                "override" => values_of::<Override>(),
                name => panic!("{name} has a closed list that no type reads"),
            };
            let of_table: Vec<&str> = choices(field).iter().map(|choice| choice.value).collect();
            assert_eq!(of_type, of_table, "{}", field.name);
            compared += 1;
        }
        assert_eq!(compared, 6);
    }

    #[test]
    fn every_default_is_allowed() {
        for field in &FIELDS {
            if !field.default.is_empty() {
                let value: Value = serde_json::from_str(field.default).unwrap();
                parse_input(&input_json(json!({field.name: value})), &settings()).unwrap();
            }
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            prop::sample::select(vec![
                "",
                "*",
                "app=web",
                "others",
                "after",
                "surge",
                "stop",
                "last_target",
                "prod",
                "20h",
                "600",
                "Ü"
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                inner.prop_map(|value| json!({"name": value})),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_input_is_read_or_refused_in_one_sentence(
            fields in prop::collection::btree_map(
                prop::sample::select(FIELDS.iter().map(|field| field.name).chain(["unknown"]).collect::<Vec<_>>()),
                any_value(),
                0..4,
            ),
        ) {
            let more: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            match parse_input(&input_json(Value::Object(more)), &settings()) {
                Ok(input) => {
                    // The input that travels in `run` is read again as it was.
                    let carried = serde_json::to_value(&input).unwrap();
                    prop_assert_eq!(serde_json::from_value::<Input>(carried).unwrap(), input);
                }
                Err(error) => prop_assert!(!error.0.is_empty() && !error.0.contains('\n')),
            }
        }
    }
}
