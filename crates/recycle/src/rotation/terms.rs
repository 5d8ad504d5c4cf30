//! Reads the terms of a rotation from its input: the number of nodes at once, pauses, the end, the failure budget and retries.
//!
//! [`crate::rotation::outdated`] selects the nodes, and [`crate::rotation::admission`] decides whether the next one may start.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::base::duration::{Duration, DurationRange};
use crate::base::ids::{ClusterName, ExecutionArn, GroupName, InstanceId};
use crate::base::strict::read_value;
use crate::base::text::cut_given;
use crate::base::time::later;
use crate::input::model::InvalidInput;

/// The pause between the nodes of a group: at most a day.
pub const PAUSES: DurationRange = DurationRange::new(0, 86_400);
pub(crate) const MOST_RETRIES: u32 = 10;
/// The maximum number of alarms. CloudWatch's own names have at most 255 characters.
const MOST_ALARMS: usize = 10;
const LONGEST_ALARM: usize = 255;
/// The maximum number of nodes of a group that a rotation works on at once.
/// Step Functions runs at most 40 iterations of an inline Map at once (developer guide, "Map state").
pub(crate) const MOST_AT_ONCE: u32 = 40;
/// The fields of a rotation's input that are its terms.
pub const FIELDS: [&str; 11] = [
    "at_once",
    "wait_between_nodes",
    "wait_after_first_node",
    "alarms",
    "on_alarm",
    "start_no_new_node_after",
    "on_failure",
    "failure_budget",
    "retries",
    "wait_for_pending_pods",
    "mark",
];

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// None: `max_surge_per_group` of the module.
    pub at_once: Option<AtOnce>,
    pub wait_between_nodes: u32,
    /// Seconds from the end of a group's first node to the start of the next.
    pub wait_after_first_node: u32,
    /// Names of CloudWatch alarms that hold the next node while one of them is in ALARM.
    pub alarms: Vec<String>,
    pub on_alarm: OnAlarm,
    pub start_no_new_node_after: Option<End>,
    /// `on_failure` and `failure_budget`: the group stops when more of its nodes than this have failed.
    /// None: the group continues, however many fail.
    pub failure_budget: Option<u32>,
    pub retries: u32,
    pub wait_for_pending_pods: bool,
    pub mark: Mark,
    pub dry_run: bool,
}

/// The effect of an alarm in `ALARM` on a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnAlarm {
    /// The next node waits, for a day at most.
    Wait,
    /// No other node of the group starts.
    Stop,
}

/// The number of nodes of a group that are recycled at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtOnce {
    Nodes(u32),
    /// Percentage of the group's members, at least one node.
    Percent(u32),
}

/// The time after which no new node is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    At(Timestamp),
    /// Time since the rotation began.
    After(Duration),
}

impl End {
    /// The values that [`End::read`] accepts, for an error message.
    pub const EXPECTED: &str = "a time such as 2027-01-31T05:00:00Z, or a duration of at least 1s, such as 4h or a number of seconds";

    /// Reads a time in RFC 3339, or a duration. None if the value is neither, or a duration of zero.
    pub fn read(value: &Value) -> Option<Self> {
        let moment = value.as_str().and_then(|text| text.parse().ok());
        let duration = || Duration::read(value).filter(|duration| *duration > Duration::default());
        moment.map(Self::At).or_else(|| duration().map(Self::After))
    }
}

/// The mark that a rotation sets on the nodes that it is about to recycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The taint `PreferNoSchedule`. Pods are scheduled elsewhere if possible.
    Soft,
    Hard,
    None,
}

impl Mark {
    /// Returns the effect of the mark's taint, if it has a taint.
    pub fn effect(self) -> Option<&'static str> {
        match self {
            Self::Soft => Some("PreferNoSchedule"),
            Self::Hard => Some("NoSchedule"),
            Self::None => None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    at_once: Option<Value>,
    wait_between_nodes: Option<Value>,
    wait_after_first_node: Option<Value>,
    alarms: Option<Vec<String>>,
    on_alarm: Option<OnAlarm>,
    start_no_new_node_after: Option<Value>,
    on_failure: Option<OnFailure>,
    failure_budget: Option<u32>,
    retries: Option<u32>,
    wait_for_pending_pods: Option<bool>,
    mark: Option<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    Stop,
    Continue,
}

/// Reads the terms from those fields of an input that are named in [`FIELDS`].
pub(crate) fn read_terms(fields: Map<String, Value>, dry_run: bool) -> Result<Terms, InvalidInput> {
    let given: Given = read_value(&Value::Object(fields))
        .map_err(|error| InvalidInput(format!("the input of a rotation: {error}")))?;
    let retries = read_up_to("retries", given.retries, MOST_RETRIES)?;
    let pause = |field: &str, given: &Option<Value>| {
        let pause = given.as_ref().map(|given| read_pause(field, given)).transpose()?;
        Ok(pause.unwrap_or_default().as_seconds())
    };
    let end = given.start_no_new_node_after.as_ref().map(read_end);
    Ok(Terms {
        at_once: given.at_once.as_ref().map(read_at_once).transpose()?,
        wait_between_nodes: pause("wait_between_nodes", &given.wait_between_nodes)?,
        wait_after_first_node: pause("wait_after_first_node", &given.wait_after_first_node)?,
        on_alarm: read_on_alarm(given.on_alarm, given.alarms.as_deref())?,
        alarms: given.alarms.map_or_else(|| Ok(Vec::new()), check_names)?,
        start_no_new_node_after: end.transpose()?,
        failure_budget: match (given.on_failure.unwrap_or(OnFailure::Stop), given.failure_budget) {
            (OnFailure::Stop, budget) => Some(budget.unwrap_or_default()),
            (OnFailure::Continue, None) => None,
            (OnFailure::Continue, Some(_)) => {
                return Err(InvalidInput(
                    "failure_budget is allowed only with on_failure stop, because with continue no failure stops a group; remove \
                     failure_budget"
                        .to_owned(),
                ));
            }
        },
        retries,
        wait_for_pending_pods: given.wait_for_pending_pods.unwrap_or(true),
        mark: given.mark.unwrap_or(Mark::Soft),
        dry_run,
    })
}

fn read_up_to(field: &str, given: Option<u32>, most: u32) -> Result<u32, InvalidInput> {
    let given = given.unwrap_or_default();
    if given > most {
        return Err(InvalidInput(format!(
            "{field} must be from 0 to {most}, but is {given}"
        )));
    }
    Ok(given)
}

fn read_at_once(given: &Value) -> Result<AtOnce, InvalidInput> {
    let read = || match given {
        Value::Number(number) => Some(AtOnce::Nodes(number.as_u64()?.try_into().ok()?)),
        Value::String(text) => Some(AtOnce::Percent(text.strip_suffix('%')?.parse().ok()?)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match read() {
        Some(at_once @ (AtOnce::Nodes(1..) | AtOnce::Percent(1..=100))) => Ok(at_once),
        Some(AtOnce::Nodes(_) | AtOnce::Percent(_)) | None => Err(InvalidInput(format!(
            "at_once must be a whole number of at least 1, or a text such as \"25%\" up to \"100%\", but is {}",
            cut_given(&given.to_string())
        ))),
    }
}

fn read_pause(field: &str, given: &Value) -> Result<Duration, InvalidInput> {
    PAUSES
        .read(given)
        .map_err(|error| InvalidInput(format!("{field} {error}")))
}

fn check_names(alarms: Vec<String>) -> Result<Vec<String>, InvalidInput> {
    let is_name = |name: &String| (1..=LONGEST_ALARM).contains(&name.chars().count());
    if (1..=MOST_ALARMS).contains(&alarms.len()) && alarms.iter().all(is_name) {
        return Ok(alarms);
    }
    Err(InvalidInput(format!(
        "alarms must have from 1 to {MOST_ALARMS} names of CloudWatch alarms of at most {LONGEST_ALARM} characters, but is {}",
        cut_given(&Value::from(alarms).to_string())
    )))
}

fn read_on_alarm(on_alarm: Option<OnAlarm>, alarms: Option<&[String]>) -> Result<OnAlarm, InvalidInput> {
    if on_alarm.is_some() && alarms.is_none() {
        return Err(InvalidInput(
            "on_alarm is allowed only with alarms, which names the CloudWatch alarms; add alarms, or remove on_alarm".to_owned(),
        ));
    }
    Ok(on_alarm.unwrap_or(OnAlarm::Wait))
}

fn read_end(given: &Value) -> Result<End, InvalidInput> {
    End::read(given).ok_or_else(|| {
        InvalidInput(format!(
            "start_no_new_node_after must be {}, but is {}",
            End::EXPECTED,
            cut_given(&given.to_string())
        ))
    })
}

impl Terms {
    /// Returns how many nodes of a group with `members` members are recycled at once. `most` is the module's `max_surge_per_group`.
    /// Fails if `at_once` names more nodes than `most`, or if the result is over 40.
    pub fn count_at_once(&self, members: usize, most: u32) -> Result<u32, InvalidInput> {
        let (count, field) = match self.at_once {
            None => (most, "max_surge_per_group"),
            Some(AtOnce::Nodes(nodes)) if nodes > most => {
                return Err(InvalidInput(format!(
                    "at_once must be at most {most}, the module's max_surge_per_group, but is {nodes}"
                )));
            }
            Some(AtOnce::Nodes(nodes)) => (nodes, "at_once"),
            Some(AtOnce::Percent(percent)) => {
                let members = u32::try_from(members).unwrap_or(u32::MAX);
                ((members.saturating_mul(percent) / 100).clamp(1, most), "at_once")
            }
        };
        if count > MOST_AT_ONCE {
            return Err(InvalidInput(format!(
                "{field} means {count} nodes of a group at once, but a rotation works on at most {MOST_AT_ONCE}"
            )));
        }
        Ok(count)
    }

    /// Returns the time after which a rotation that began at `began_at` starts no new node.
    pub fn end(&self, began_at: Timestamp) -> Option<Timestamp> {
        self.start_no_new_node_after.map(|end| match end {
            End::At(moment) => moment,
            End::After(duration) => later(began_at, duration.as_seconds()),
        })
    }
}

/// A group's part of a rotation, as it travels to the group's own execution.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Part {
    pub group: GroupName,
    /// ARN of the rotation's execution.
    pub execution: ExecutionArn,
    /// Time at which the rotation began.
    pub began_at: Timestamp,
    pub input: Value,
    /// The group's passes that have ended.
    #[serde(default)]
    pub earlier: EarlierPasses,
}

/// The results of a group's earlier passes ([`crate::rotation::passes`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct EarlierPasses {
    pub passes: u32,
    /// The number of nodes in them whose last execution failed.
    pub failed_executions: usize,
}

/// A rotation's request to `taint-node`: mark these nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Marking {
    pub cluster_name: ClusterName,
    pub rotation: ExecutionArn,
    /// Time at which the rotation began. The mark contains it.
    pub began_at: Option<Timestamp>,
    pub mark: Mark,
    pub nodes: Vec<InstanceId>,
    /// Rotations that have ended, whose marks are taken over.
    #[serde(default)]
    pub ended: BTreeSet<ExecutionArn>,
}

/// A request to `restore-node`, by a rotation or the sweep: remove the marks of these rotations.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Unmarking {
    pub cluster_name: ClusterName,
    pub rotations: BTreeSet<ExecutionArn>,
    /// Nodes whose marks are removed. None: all nodes of the cluster.
    pub nodes: Option<Vec<InstanceId>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::at;

    pub(crate) fn read(fields: Value) -> Result<Terms, String> {
        let Value::Object(fields) = fields else {
            panic!("{fields} is no object")
        };
        read_terms(fields, false).map_err(|error| error.to_string())
    }

    #[test]
    fn absent_terms_have_their_defaults() {
        let terms = read(json!({})).unwrap();
        assert_eq!(
            terms,
            Terms {
                at_once: None,
                wait_between_nodes: 0,
                wait_after_first_node: 0,
                alarms: Vec::new(),
                on_alarm: OnAlarm::Wait,
                start_no_new_node_after: None,
                failure_budget: Some(0),
                retries: 0,
                wait_for_pending_pods: true,
                mark: Mark::Soft,
                dry_run: false,
            }
        );
        assert_eq!(terms.count_at_once(3, 5), Ok(5));
        assert_eq!(terms.end(at(0)), None);
    }

    #[test]
    fn a_refusal_names_the_term() {
        for (given, words) in [
            (
                json!({"at_once": 0}),
                "at_once must be a whole number of at least 1",
            ),
            (json!({"at_once": "0%"}), "but is \"0%\""),
            (json!({"at_once": "101%"}), "up to \"100%\""),
            (json!({"at_once": "many"}), "but is \"many\""),
            (json!({"at_once": true}), "but is true"),
            (json!({"retries": 11}), "retries must be from 0 to 10, but is 11"),
            (
                json!({"wait_between_nodes": 86_401}),
                "wait_between_nodes must be a duration from 0s to 1d, such as 20h or a number of seconds, but is 86401",
            ),
            (json!({"wait_between_nodes": "25h"}), "but is \"25h\""),
            (json!({"wait_between_nodes": true}), "but is true"),
            (
                json!({"wait_after_first_node": "25h"}),
                "wait_after_first_node must be a duration from 0s to 1d",
            ),
            (
                json!({"alarms": []}),
                "alarms must have from 1 to 10 names of CloudWatch alarms of at most 255 characters, but is []",
            ),
            (
                json!({"alarms": vec!["a"; 11]}),
                "alarms must have from 1 to 10 names",
            ),
            (json!({"alarms": [""]}), "but is [\"\"]"),
            (json!({"alarms": ["a".repeat(256)]}), "of at most 255 characters"),
            (json!({"alarms": "a"}), "alarms"),
            (
                json!({"on_alarm": "stop"}),
                "on_alarm is allowed only with alarms",
            ),
            (
                json!({"alarms": ["a"], "on_alarm": "panic"}),
                "unknown variant `panic`",
            ),
            (
                json!({"start_no_new_node_after": "soon"}),
                "start_no_new_node_after must be a time such as 2027-01-31T05:00:00Z, or a duration of at least 1s, such as 4h \
                 or a number of seconds, but is \"soon\"",
            ),
            (json!({"start_no_new_node_after": "-1h"}), "but is \"-1h\""),
            (json!({"start_no_new_node_after": "PT4H"}), "but is \"PT4H\""),
            (json!({"start_no_new_node_after": "0s"}), "but is \"0s\""),
            (json!({"start_no_new_node_after": 0}), "but is 0"),
            (json!({"start_no_new_node_after": []}), "but is []"),
            (json!({"on_failure": "panic"}), "unknown variant `panic`"),
            (
                json!({"on_failure": "continue", "failure_budget": 1}),
                "failure_budget is allowed only with on_failure stop",
            ),
            (json!({"mark": "none at all"}), "unknown variant"),
        ] {
            let refused = read(given.clone()).unwrap_err();
            assert!(refused.contains(words), "{given}: {refused}");
        }
    }

    #[test]
    fn a_percentage_of_the_members_is_at_least_one_and_at_most_the_module_limit() {
        for (given, members, expected) in [
            (json!(2), 3, Ok(2)),
            (json!(5), 3, Ok(5)),
            (json!("25%"), 12, Ok(3)),
            (json!("25%"), 2, Ok(1)),
            (json!("50%"), 40, Ok(5)),
            (
                json!(6),
                9,
                Err("at_once must be at most 5, the module's max_surge_per_group, but is 6".to_owned()),
            ),
        ] {
            let terms = read(json!({"at_once": given})).unwrap();
            let count = terms.count_at_once(members, 5).map_err(|error| error.to_string());
            assert_eq!(count, expected, "{given} of {members}");
        }
    }

    #[test]
    fn at_once_is_limited_by_an_inline_map() {
        for (terms, members, expected) in [
            (json!({}), 200, "max_surge_per_group means 100"),
            (json!({"at_once": 41}), 200, "at_once means 41"),
            (json!({"at_once": "50%"}), 200, "at_once means 100"),
        ] {
            let error = read(terms.clone())
                .unwrap()
                .count_at_once(members, 100)
                .unwrap_err();
            let rest = " nodes of a group at once, but a rotation works on at most 40";
            assert_eq!(error.to_string(), format!("{expected}{rest}"), "{terms}");
        }
        for terms in [json!({"at_once": 40}), json!({"at_once": "20%"})] {
            assert_eq!(read(terms).unwrap().count_at_once(200, 100), Ok(40));
        }
    }

    #[test]
    fn the_end_is_a_time_or_a_duration_from_the_beginning() {
        for (given, expected) in [
            (json!("2027-01-01T01:00:00Z"), 3_600),
            (json!("2027-01-01T02:00:00+01:00"), 3_600),
            (json!("4h"), 10 + 4 * 3_600),
            (json!("1d1h"), 10 + 25 * 3_600),
            (json!("14400"), 10 + 4 * 3_600),
            (json!(14_400), 10 + 4 * 3_600),
        ] {
            let terms = read(json!({"start_no_new_node_after": given})).unwrap();
            assert_eq!(terms.end(at(10)), Some(at(expected)), "{given}");
        }
    }
}
