//! Builds the log line of a decision: the execution, the node, the answer and its reason. Each invocation of each function writes one.

use jiff::Timestamp;
use recycle::notify::metrics::Metric;
use recycle::records::claim::Phase;
use serde_json::{Value, json};

/// The execution, state, instance and node of an invocation, as far as its payload names them.
#[derive(Debug)]
pub(crate) struct LogFields([Field; 4]);

/// A field of the line. A field without a value is left out.
type Field = (&'static str, Option<Value>);

impl LogFields {
    pub(crate) fn of(payload: &Value) -> Self {
        let at = |pointer: &str| payload.pointer(pointer).filter(|found| !found.is_null()).cloned();
        // A sweep passes the instance that it found. An execution has the instance in its input.
        let instance = at("/leftover/instance_id").or_else(|| at("/context/Execution/Input/instance_id"));
        Self([
            ("execution", at("/context/Execution/Id")),
            ("state", at("/context/State/Name")),
            ("instance", instance),
            ("node", at("/run/node")),
        ])
    }

    /// Builds the line of an answer. `phase` is the phase that the execution has reached with the node.
    pub(crate) fn describe_answer(self, answer: &Value, phase: Option<Phase>) -> Value {
        let names = ["verdict", "wait_seconds", "reason", "counts"];
        let answered = names.map(|name| (name, Some(answer[name].clone())));
        let more = [
            ("level", Some(json!("INFO"))),
            ("node", answer.pointer("/run/node").cloned()),
            ("phase", phase.map(|phase| json!(phase.to_string()))),
        ];
        self.line(more.into_iter().chain(answered))
    }

    /// Builds the line of a failure under its public name.
    pub(crate) fn describe_failure(self, error: &str, message: &str) -> Value {
        let more = [("level", "ERROR"), ("error", error), ("reason", message)];
        self.line(more.into_iter().map(|(name, text)| (name, Some(json!(text)))))
    }

    /// Builds the line. A field of `more` that has a value replaces the payload's field of the same name.
    fn line(self, more: impl Iterator<Item = Field>) -> Value {
        let fields = self.0.into_iter().chain(more);
        let known = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(known.collect())
    }
}

/// The cluster and the time of a metric, as far as the payload names them. Otherwise `unknown` and the Unix epoch.
#[derive(Debug)]
pub(crate) struct Scope {
    cluster: String,
    /// The time when the calling state was entered, which is also the time of the decisions.
    now: Timestamp,
}

impl Scope {
    pub(crate) fn of(payload: &Value) -> Self {
        let at = |pointer: &str| payload.pointer(pointer).and_then(Value::as_str);
        let cluster = at("/run/input/cluster_name")
            .or_else(|| at("/leftover/cluster_name"))
            .or_else(|| at("/cluster_name"))
            .or_else(|| at("/context/Execution/Input/cluster_name"));
        let now = at("/context/State/EnteredTime").and_then(|time| time.parse().ok());
        Self {
            cluster: cluster.unwrap_or("unknown").to_owned(),
            now: now.unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }

    pub(crate) fn render(&self, metric: &Metric) -> Value {
        metric.render(&self.cluster, self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one";

    fn payload(more: Value) -> Value {
        let mut payload = json!({"context": {
            "Execution": {"Id": ARN, "Input": {"instance_id": "i-1", "cluster_name": "world"}},
            "State": {"Name": "CheckPods", "EnteredTime": "2027-01-01T00:00:00Z"},
        }});
        let fields = payload.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        payload
    }

    fn answer() -> Value {
        json!({
            "schema": 1, "verdict": "wait", "wait_seconds": 30, "reason": "it waits", "counts": {"awaited": 2}, "names": {},
            "run": {"node": "a"},
        })
    }

    #[test]
    fn the_line_of_a_decision_has_the_execution_the_node_and_the_answer() {
        let subject = LogFields::of(&payload(json!({"run": {"node": "a"}})));
        assert_eq!(
            subject.describe_answer(&answer(), Some(Phase::Draining)),
            json!({
                "level": "INFO", "execution": ARN, "state": "CheckPods", "instance": "i-1", "node": "a", "phase": "draining",
                "verdict": "wait", "wait_seconds": 30, "reason": "it waits", "counts": {"awaited": 2},
            })
        );
    }

    #[test]
    fn unknown_fields_are_left_out() {
        let mut nothing_carried = answer();
        nothing_carried["run"] = json!({});
        let line = LogFields::of(&payload(json!({}))).describe_answer(&nothing_carried, None);
        assert!(
            line.get("node").is_none() && line.get("phase").is_none(),
            "{line}"
        );
        let found = LogFields::of(&payload(json!({"leftover": {"instance_id": "i-2"}})));
        assert_eq!(found.describe_answer(&answer(), None)["instance"], "i-2");
        let line = LogFields::of(&json!("nonsense")).describe_failure("InternalError", "no");
        assert_eq!(
            line,
            json!({"level": "ERROR", "error": "InternalError", "reason": "no"})
        );
    }

    #[test]
    fn the_node_comes_from_the_answer_if_the_payload_does_not_name_it() {
        assert_eq!(
            LogFields::of(&payload(json!({"run": {}}))).describe_answer(&answer(), None)["node"],
            "a"
        );
    }

    #[test]
    fn a_metric_has_the_cluster_and_the_time_of_the_state() {
        let of = |more: Value| Scope::of(&payload(more)).render(&Metric::Restore);
        let line = of(json!({}));
        assert_eq!(
            (&line["cluster"], &line["_aws"]["Timestamp"]),
            (&json!("world"), &json!(1_798_761_600_000_i64))
        );
        assert_eq!(of(json!({"cluster_name": "prod"}))["cluster"], "prod");
        assert_eq!(
            of(json!({"leftover": {"cluster_name": "test"}}))["cluster"],
            "test"
        );
    }

    #[test]
    fn the_line_of_a_failure_has_its_public_name() {
        let line = LogFields::of(&payload(json!({"run": {"node": "a"}})))
            .describe_failure("DrainTimedOut", "too late");
        assert_eq!(
            (&line["node"], &line["error"]),
            (&json!("a"), &json!("DrainTimedOut"))
        );
        assert_eq!(
            (&line["execution"], &line["reason"]),
            (&json!(ARN), &json!("too late"))
        );
    }
}
