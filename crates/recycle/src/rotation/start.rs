//! Decides which rotations `start-rotation` starts: for alarms that arrive through an SNS topic, or for a `terraform apply`.
//!
//! [`crate::rotation::selection`] chooses the nodes of a rotation. The rotation's input is checked here only for `terraform apply`,
//! because its author sees the error there.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::base::ids::short_hash;
use crate::base::strict::{read_text, read_value};
use crate::base::text::cut_given;
use crate::input::model::InvalidInput;
use crate::rotation::alarm::AlarmMessage;
use crate::rotation::request::parse_rotation;

/// Characters of a reason, so that an answer stays under 8 KB, however long an alarm's name is.
pub(crate) const LONGEST_REASON: usize = 1_000;

/// The request to `start-rotation`.
#[derive(Debug, Clone, PartialEq)]
pub enum StartRequest {
    /// Messages from SNS (developer guide, "Fanout to Lambda functions").
    Deliveries(Vec<Delivery>),
    /// An invocation by Terraform.
    Apply(Change),
}

impl<'de> Deserialize<'de> for StartRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let request = Value::deserialize(deserializer)?;
        match request.get("Records") {
            Some(records) => read_value(records).map(Self::Deliveries),
            None => read_value(&request).map(Self::Apply),
        }
        .map_err(serde::de::Error::custom)
    }
}

/// A record that SNS delivers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Delivery {
    #[serde(rename = "Sns")]
    pub sns: Message,
}

/// A message that was published to the topic.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Message {
    #[serde(rename = "Message")]
    pub message: String,
    /// The ARN of the topic, which SNS sets.
    #[serde(rename = "TopicArn")]
    pub topic: String,
}

/// The input that the module's `aws_lambda_invocation` passes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Change {
    /// The value whose change begins a rotation.
    pub value: Value,
    /// The input of that rotation.
    pub rotation: Value,
    pub tf: Lifecycle,
}

/// The fields that Terraform adds to an invocation (AWS provider, `aws_lambda_invocation`, `lifecycle_scope = "CRUD"`).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Lifecycle {
    pub action: Action,
    /// The previous input of the resource. Null if the resource is new.
    #[serde(default)]
    pub prev_input: Value,
}

/// The action of Terraform on the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Creates the resource. No value has changed yet.
    Create,
    Update,
    Delete,
}

/// An entry of the module's `alarm_triggers`, with the fields for alarms that publish to a topic.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlarmTrigger {
    pub alarm_names: Vec<String>,
    /// The input of the rotation that each of these alarms begins, without its `event`.
    pub rotation: Value,
}

pub type AlarmTriggers = BTreeMap<String, AlarmTrigger>;

/// An execution of `rotate-nodes` to start.
#[derive(Debug, Clone, PartialEq)]
pub struct RotationStart {
    /// Name of the execution, so that a repeated start finds the execution that exists.
    /// None if the trigger has no unique name.
    pub name: Option<String>,
    pub input: Value,
}

/// The rotations to start, with the reasons for starting them or for starting none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Starts {
    pub starts: Vec<RotationStart>,
    pub(crate) reasons: Vec<String>,
}

impl Starts {
    fn nothing(why: impl Into<String>) -> Self {
        Self {
            starts: Vec::new(),
            reasons: vec![why.into()],
        }
    }
}

pub fn decide_starts(request: &StartRequest, triggers: &AlarmTriggers) -> Result<Starts, InvalidInput> {
    match request {
        StartRequest::Deliveries(deliveries) => {
            let mut all = Starts::default();
            for delivery in deliveries {
                let found = read_message(&delivery.sns, triggers);
                all.starts.extend(found.starts);
                all.reasons.extend(found.reasons);
            }
            Ok(all)
        }
        StartRequest::Apply(change) => apply(change),
    }
}

/// Starts rotations if the message says that an alarm in `alarm_triggers` enters ALARM.
/// Other messages start nothing, because a topic has other subscribers and other senders.
fn read_message(delivered: &Message, triggers: &AlarmTriggers) -> Starts {
    let alarm: AlarmMessage = match read_text(&delivered.message) {
        Ok(alarm) => alarm,
        Err(error) => return Starts::nothing(format!("the message is not from a CloudWatch alarm: {error}")),
    };
    let name = &alarm.alarm_name;
    if !alarm.is_of_topic(&delivered.topic) {
        return Starts::nothing(format!(
            "alarm {} is not of the account and region of topic {}",
            cut_given(&alarm.alarm_arn),
            delivered.topic
        ));
    }
    let (before, now) = (&alarm.old_state_value, &alarm.new_state_value);
    if now != "ALARM" || before == "ALARM" {
        return Starts::nothing(format!(
            "alarm {name} changed from {before} to {now} and did not enter ALARM"
        ));
    }
    let meant = triggers
        .iter()
        .filter(|(_, trigger)| trigger.alarm_names.contains(name));
    let mut found = Starts::default();
    for (key, trigger) in meant {
        let why = format!("alarm {name} entered ALARM: a rotation is started for {key}");
        found.starts.push(alarm.start(key, trigger));
        found.reasons.push(why);
    }
    if found.starts.is_empty() {
        return Starts::nothing(format!("no entry of alarm_triggers names alarm {name}"));
    }
    found
}

impl AlarmMessage {
    /// Names the rotation after the alarm and the moment, so that a message that is delivered again starts nothing new.
    fn start(&self, key: &str, trigger: &AlarmTrigger) -> RotationStart {
        let digits = self.state_change_time.chars().filter(char::is_ascii_digit);
        let moment: String = digits.collect();
        let mut input = trigger.rotation.clone();
        if let Some(fields) = input.as_object_mut() {
            fields.insert("event".to_owned(), self.as_event());
        }
        RotationStart {
            name: Some(format!("alarm-{key}-{moment}-{}", short_hash(&self.alarm_arn))),
            input,
        }
    }
}

/// Refuses an invalid rotation at the apply that writes it, not later when the value changes.
/// On `delete` the input is not checked.
fn apply(change: &Change) -> Result<Starts, InvalidInput> {
    let Change { value, rotation, tf } = change;
    if tf.action != Action::Delete {
        parse_rotation(rotation)?;
    }
    let is_same = tf.prev_input.get("value") == Some(value);
    Ok(match tf.action {
        Action::Create => Starts::nothing("the value is new: a rotation begins when it changes"),
        Action::Delete => Starts::nothing("the trigger is removed: no rotation starts for this value"),
        Action::Update if is_same => {
            Starts::nothing("the value is the same: only the rotation's input has changed")
        }
        // No name: an earlier value may return, and then has to start a rotation again.
        Action::Update => Starts {
            starts: vec![RotationStart {
                name: None,
                input: rotation.clone(),
            }],
            reasons: vec![format!("the value is {value} now: a rotation is started")],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::verdicts::StartVerdict;
    use crate::fixtures::OLD;
    use crate::rotation::alarm::{Alarmed, read_alarm};
    use crate::rotation::request::AlarmTerms;
    use serde_json::json;

    const ALARM: &str = "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:cpu";
    const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:operators";
    const TIME: &str = "2027-01-01T00:00:01.250+0000";

    fn triggers() -> AlarmTriggers {
        let rotation = |pick: Value| json!({"trigger": "alarm", "selection": {"alarm": pick}, "recycle": {}});
        serde_json::from_value(json!({
            "busy": {"alarm_names": ["cpu", "load"], "rotation": rotation(json!({"pick": "oldest"}))},
            "too": {"alarm_names": ["load"], "rotation": rotation(json!({}))},
        }))
        .unwrap()
    }

    fn message(change: &Value) -> Value {
        let mut message = json!({
            "AlarmName": "cpu",
            "AlarmDescription": null,
            "AWSAccountId": "123456789012",
            "NewStateValue": "ALARM",
            "NewStateReason": "Threshold Crossed",
            "StateChangeTime": TIME,
            "Region": "EU (Ireland)",
            "AlarmArn": ALARM,
            "OldStateValue": "OK",
            "Trigger": {"MetricName": "CPUUtilization", "Dimensions": [{"value": OLD, "name": "InstanceId"}], "Period": 60},
        });
        let fields = message.as_object_mut().unwrap();
        fields.extend(change.as_object().unwrap().clone());
        message
    }

    fn delivered(messages: &[String]) -> Starts {
        let records: Vec<Value> = messages
            .iter()
            .map(|message| json!({"EventSource": "aws:sns", "Sns": {"Type": "Notification", "TopicArn": TOPIC, "Message": message}}))
            .collect();
        let request = serde_json::from_value(json!({"Records": records})).unwrap();
        decide_starts(&request, &triggers()).unwrap()
    }

    fn starts_for(change: &Value) -> Starts {
        delivered(&[message(change).to_string()])
    }

    #[test]
    fn only_a_listed_alarm_that_enters_alarm_starts_a_rotation() {
        for (name, change, words) in [
            (
                "over",
                json!({"NewStateValue": "OK", "OldStateValue": "ALARM"}),
                "from ALARM to OK",
            ),
            (
                "no data",
                json!({"NewStateValue": "INSUFFICIENT_DATA"}),
                "to INSUFFICIENT_DATA",
            ),
            ("still", json!({"OldStateValue": "ALARM"}), "from ALARM to ALARM"),
            (
                "another's",
                json!({"AlarmName": "disk", "AlarmArn": ALARM.replace("cpu", "disk")}),
                "no entry of alarm_triggers names alarm disk",
            ),
            (
                "no alarm",
                json!({"AlarmArn": null}),
                "is not from a CloudWatch alarm",
            ),
        ] {
            let starts = starts_for(&change);
            assert!(starts.starts.is_empty(), "{name}");
            let answer = starts.answer();
            assert_eq!(answer.verdict, StartVerdict::NothingToStart, "{name}");
            assert!(answer.reason.contains(words), "{name}: {}", answer.reason);
        }
        for text in ["", "hello", "{}", "[1]"] {
            let answer = delivered(&[text.to_owned()]).answer();
            assert!(answer.reason.contains("is not from a CloudWatch alarm"), "{text}");
        }
        for before in ["OK", "INSUFFICIENT_DATA"] {
            let starts = starts_for(&json!({"OldStateValue": before}));
            assert_eq!(starts.starts.len(), 1);
            assert_eq!(starts.answer().verdict, StartVerdict::Started);
        }
    }

    #[test]
    fn an_alarm_of_another_account_or_region_than_its_topic_starts_nothing() {
        for change in [
            json!({"AWSAccountId": "210987654321"}),
            json!({"AlarmArn": ALARM.replace("123456789012", "210987654321")}),
            json!({"AWSAccountId": "210987654321", "AlarmArn": ALARM.replace("123456789012", "210987654321")}),
            json!({"AlarmArn": ALARM.replace("eu-west-1", "eu-west-2")}),
            json!({"AlarmArn": ALARM.replace("arn:aws:", "arn:aws-cn:")}),
            json!({"AlarmArn": ALARM.replace("cpu", "disk")}),
            json!({"AlarmArn": "x".repeat(100_000)}),
        ] {
            let answer = starts_for(&change).answer();
            assert_eq!(answer.verdict, StartVerdict::NothingToStart, "{change}");
            assert!(
                answer.reason.contains("is not of the account and region"),
                "{change}"
            );
        }
        let forged = serde_json::from_value(
            json!([{"Sns": {"TopicArn": "operators", "Message": message(&json!({})).to_string()}}]),
        );
        let starts = decide_starts(&StartRequest::Deliveries(forged.unwrap()), &triggers()).unwrap();
        assert!(starts.starts.is_empty());
    }

    #[test]
    fn a_rotation_is_named_after_the_alarm_and_its_time_and_not_after_the_delivery() {
        let name = |change: &Value| starts_for(change).starts[0].name.clone().unwrap();
        let first = name(&json!({}));
        assert_eq!(
            first,
            format!("alarm-busy-202701010000012500000-{}", short_hash(ALARM))
        );
        assert_eq!(first, name(&json!({"NewStateReason": "another text"})));
        assert_ne!(
            first,
            name(&json!({"StateChangeTime": "2027-01-01T00:05:01.250+0000"}))
        );
        let load = name(&json!({"AlarmName": "load", "AlarmArn": ALARM.replace("cpu", "load")}));
        assert_ne!(first, load);
    }

    #[test]
    fn an_alarm_starts_a_rotation_for_each_trigger_that_names_it() {
        let both = starts_for(&json!({"AlarmName": "load", "AlarmArn": ALARM.replace("cpu", "load")}));
        let names: Vec<&str> = both
            .starts
            .iter()
            .filter_map(|start| start.name.as_deref())
            .collect();
        assert!(
            names[0].starts_with("alarm-busy-") && names[1].starts_with("alarm-too-"),
            "{names:?}"
        );
        let answer = delivered(&[message(&json!({})).to_string(), "hello".to_owned()]).answer();
        assert_eq!(answer.verdict, StartVerdict::Started);
        assert!(
            answer.reason.contains("for busy; the message is not from"),
            "{}",
            answer.reason
        );
    }

    #[test]
    fn the_input_of_a_rotation_has_the_event_that_eventbridge_would_deliver() {
        let starts = starts_for(&json!({}));
        assert_eq!(
            starts.starts[0].input,
            json!({
                "trigger": "alarm",
                "selection": {"alarm": {"pick": "oldest"}},
                "recycle": {},
                "event": {
                    "source": "aws.cloudwatch",
                    "detail-type": "CloudWatch Alarm State Change",
                    "resources": [ALARM],
                    "detail": {
                        "alarmName": "cpu",
                        "previousState": {"value": "OK"},
                        "state": {"value": "ALARM", "timestamp": TIME},
                        "configuration": {"metrics": [{"metricStat": {"metric": {"dimensions": {"InstanceId": OLD}}}}]},
                    },
                },
            })
        );
        assert!(parse_rotation(&starts.starts[0].input).is_ok());
    }

    #[test]
    fn select_nodes_reads_every_kind_of_alarm_from_the_event() {
        let of_group = json!([{"name": "AutoScalingGroupName", "value": "workers"}]);
        let query = |dimensions: &Value| json!({"Id": "m", "MetricStat": {"Metric": {"Dimensions": dimensions}, "Stat": "Average"}});
        let math = json!({"Metrics": [query(&of_group), {"Id": "e", "Expression": "m * 2"}]});
        let several =
            json!({"Metrics": [query(&of_group), query(&json!([{"name": "InstanceId", "value": OLD}]))]});
        let oldest = Ok(Alarmed::OldestOf("workers".parse().unwrap()));
        let refused = |dimensions: &str| {
            Err(InvalidInput(format!(
                "the alarm names neither one instance nor one group (it has {dimensions}): write group and pick = \"oldest\""
            )))
        };
        for (name, trigger, expected) in [
            ("one metric", json!({"Dimensions": of_group}), oldest.clone()),
            ("metric math", math, oldest),
            (
                "several metrics",
                several,
                refused(&format!(
                    "2 metrics: AutoScalingGroupName=workers / InstanceId={OLD}"
                )),
            ),
            ("no dimension", json!({"Dimensions": []}), refused("no dimension")),
            ("a composite alarm", Value::Null, refused("no metric of its own")),
        ] {
            let terms: AlarmTerms = serde_json::from_value(json!({"pick": "oldest"})).unwrap();
            let event = &starts_for(&json!({"Trigger": trigger})).starts[0].input["event"];
            assert_eq!(read_alarm(event, &terms), expected, "{name}");
        }
    }

    fn applied(action: &str, before: &Value, rotation: &Value) -> Result<Starts, InvalidInput> {
        let request =
            json!({"value": "2", "rotation": rotation, "tf": {"action": action, "prev_input": before}});
        decide_starts(&serde_json::from_value(request).unwrap(), &triggers())
    }

    #[test]
    fn only_a_changed_value_starts_a_rotation() {
        let rotation = json!({"trigger": "apply", "selection": {"outdated": {"ami": true}}, "recycle": {}});
        for (name, action, before, expected) in [
            ("the first apply", "create", Value::Null, 0),
            ("another value", "update", json!({"value": "1"}), 1),
            (
                "the same value for another selection",
                "update",
                json!({"value": "2", "rotation": {}}),
                0,
            ),
            ("the earlier value is unknown", "update", Value::Null, 1),
            ("destroy", "delete", json!({"value": "1"}), 0),
        ] {
            let starts = applied(action, &before, &rotation).unwrap().starts;
            assert_eq!(starts.len(), expected, "{name}");
            for start in starts {
                assert_eq!((start.name, start.input), (None, rotation.clone()), "{name}");
            }
        }
    }

    #[test]
    fn an_invalid_rotation_is_refused_on_create_and_update_but_not_on_delete() {
        let wrong = json!({"trigger": "apply", "selection": {"outdated": {}}});
        for action in ["create", "update"] {
            let error = applied(action, &Value::Null, &wrong).unwrap_err().to_string();
            assert!(
                error.contains("outdated needs at least one of launch_template"),
                "{error}"
            );
        }
        assert!(applied("delete", &Value::Null, &wrong).is_ok());
    }
}
