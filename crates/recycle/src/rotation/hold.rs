//! Holds the next node of a group: by CloudWatch alarms, and until the first node has been replaced for some time.

use jiff::Timestamp;

use crate::base::time::later;
use crate::rotation::admission::{Admission, AlarmAnswer, WaitReason};
use crate::rotation::terms::{OnAlarm, Terms};

/// Checks the alarms that the input names. Asks for their states if `answer` is None.
/// An alarm without enough data counts as one that is OK, because a new alarm, or one on a metric without traffic, has none.
pub fn check_alarms(terms: &Terms, answer: Option<&AlarmAnswer>) -> Option<Admission> {
    if terms.alarms.is_empty() {
        return None;
    }
    let states = match answer {
        None => return Some(Admission::DescribeAlarms),
        Some(AlarmAnswer::States(states)) => states,
        Some(AlarmAnswer::Error(error)) => {
            let reason = format!(
                "the state of the alarms {} cannot be read: {error}",
                terms.alarms.join(", ")
            );
            return Some(Admission::Wait(WaitReason::Alarm, reason));
        }
    };
    let is_missing = |name: &&String| !states.iter().any(|alarm| alarm.name == **name);
    if let Some(missing) = terms.alarms.iter().find(is_missing) {
        return Some(Admission::stop(format!("CloudWatch has no alarm {missing}")));
    }
    let alarm = states.iter().find(|alarm| alarm.state == "ALARM")?;
    let reason = format!("the alarm {} is in ALARM", alarm.name);
    Some(match terms.on_alarm {
        OnAlarm::Wait => Admission::Wait(WaitReason::Alarm, reason),
        OnAlarm::Stop => Admission::stop(reason),
    })
}

/// The last execution of the group's first node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstNode {
    Running,
    EndedAt(Timestamp),
}

/// Decides by `wait_after_first_node`. The other nodes wait until the first has ended, and then for this time.
pub fn check_first_node(terms: &Terms, first: FirstNode, now: Timestamp) -> Option<Admission> {
    if terms.wait_after_first_node == 0 {
        return None;
    }
    match first {
        FirstNode::Running => Some(Admission::Await("the first node has not ended".to_owned())),
        FirstNode::EndedAt(end) => {
            let left = later(end, terms.wait_after_first_node)
                .duration_since(now)
                .as_secs();
            let left = u32::try_from(left).ok().filter(|left| *left > 0)?;
            Some(Admission::Pause(left, "wait_after_first_node"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::at;
    use crate::rotation::admission::Ended;
    use crate::rotation::terms::read_terms;

    fn read(terms: Value) -> Terms {
        let Value::Object(fields) = terms else {
            panic!("{terms} is no object")
        };
        read_terms(fields, false).unwrap()
    }

    fn ask(terms: Value, answer: Option<Value>) -> Option<Admission> {
        let answer = answer.map(|answer| serde_json::from_value(answer).unwrap());
        check_alarms(&read(terms), answer.as_ref())
    }

    #[test]
    fn an_alarm_holds_or_stops_a_rotation() {
        let wait = |text: &str| Some(Admission::Wait(WaitReason::Alarm, text.to_owned()));
        let stop = |text: &str| Some(Admission::Stop(Ended::left(text)));
        let named = json!({"alarms": ["errors", "latency"]});
        let stopping = json!({"alarms": ["errors", "latency"], "on_alarm": "stop"});
        let states = |errors: &str, latency: &str| {
            Some(
                json!({"states": [{"name": "latency", "state": latency}, {"name": "errors", "state": errors}]}),
            )
        };
        for (name, terms, answer, expected) in [
            ("none named", &json!({}), None, None),
            ("not read yet", &named, None, Some(Admission::DescribeAlarms)),
            ("all OK", &named, states("OK", "OK"), None),
            ("no data", &named, states("INSUFFICIENT_DATA", "OK"), None),
            (
                "waits",
                &named,
                states("ALARM", "OK"),
                wait("the alarm errors is in ALARM"),
            ),
            (
                "stops",
                &stopping,
                states("OK", "ALARM"),
                stop("the alarm latency is in ALARM"),
            ),
            (
                "one is gone",
                &named,
                Some(json!({"states": [{"name": "errors", "state": "ALARM"}]})),
                stop("CloudWatch has no alarm latency"),
            ),
            (
                "unreadable",
                &stopping,
                Some(json!({"error": "CloudWatch.CloudWatchException"})),
                wait(
                    "the state of the alarms errors, latency cannot be read: CloudWatch.CloudWatchException",
                ),
            ),
        ] {
            assert_eq!(ask(terms.clone(), answer), expected, "{name}");
        }
    }

    #[test]
    fn the_others_wait_for_the_first_node_and_then_for_the_time_of_the_input() {
        let ended = FirstNode::EndedAt(at(100));
        let awaited = Some(Admission::Await("the first node has not ended".to_owned()));
        let pause = |seconds| Some(Admission::Pause(seconds, "wait_after_first_node"));
        for (given, first, seconds, expected) in [
            (json!({}), FirstNode::Running, 0, None),
            (
                json!({"wait_after_first_node": "10m"}),
                FirstNode::Running,
                0,
                awaited,
            ),
            (json!({"wait_after_first_node": "10m"}), ended, 100, pause(600)),
            (json!({"wait_after_first_node": "10m"}), ended, 699, pause(1)),
            (json!({"wait_after_first_node": "10m"}), ended, 700, None),
            (json!({"wait_after_first_node": "10m"}), ended, 9_000, None),
        ] {
            let found = check_first_node(&read(given.clone()), first, at(seconds));
            assert_eq!(found, expected, "{given} {first:?} {seconds}");
        }
    }
}
