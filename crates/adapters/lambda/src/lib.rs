//! The runtime of every Lambda function: AWS configuration, log lines, and answers or named failures for the state machine.

#[cfg(panic = "abort")]
compile_error!("a panic must be caught and reported as InternalError: build with panic = \"unwind\"");

mod decision;
mod environment;
mod log;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use futures::FutureExt as _;
use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use recycle::answer::envelope::{Answer, Verdict};
use recycle::base::failure::{Failure, NamedFailure, with_causes};
use recycle::base::strict::read_value;
use recycle::contract::run::Run;
use recycle::notify::metrics::{Metric, measure_failure, measure_verdict};
use recycle::records::claim::Phase;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::decision::{LogFields, Scope};

pub use environment::{
    EnvironmentError, MAX_SURGE, parse_variable, read_cluster_name, read_count, read_input_defaults,
    read_object, variable,
};
pub use lambda_runtime::Error;

/// The time limit for a connection to AWS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for one attempt of a call. AWS answers these calls within two seconds.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for a call with all its attempts. Two calls that hang still fit into a function's 60 seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of attempts of one call. The SDK immediately repeats a call that was throttled or lost.
/// The state machine repeats failures that last longer.
const ATTEMPTS: u32 = 3;

/// Starts logging as the function's logging configuration says, and loads the AWS configuration from the environment.
pub async fn configure() -> SdkConfig {
    log::start(&variable);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build();
    // The SDK's default, aws-lc, is twice the size, takes a minute to build, and costs 25 ms of processor time at its first use.
    let https = aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(CryptoMode::Ring))
        .build_https();
    aws_config::defaults(BehaviorVersion::latest())
        .http_client(https)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
        .load()
        .await
}

/// An answer of a function: the next step for a state machine, or the report for the command line.
pub trait Reply: Serialize {
    /// Returns the phase of the node, if the answer carries a run, and the metrics, which it removes from the answer.
    fn take_notes(&mut self) -> (Option<Phase>, Vec<Metric>);
}

impl<V: Verdict + Serialize> Reply for Answer<V> {
    fn take_notes(&mut self) -> (Option<Phase>, Vec<Metric>) {
        let phase = self.run.as_ref().map(Run::phase);
        (phase, std::mem::take(&mut self.metrics))
    }
}

/// An answer to the command line. It does not pass through a state machine, so it may be larger than 8 KB.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Report(pub Value);

impl Reply for Report {
    fn take_notes(&mut self) -> (Option<Phase>, Vec<Metric>) {
        (None, Vec::new())
    }
}

/// Answers invocations one after the other until Lambda ends the process.
pub async fn serve<Request, Replied, Failed, Answering>(
    handler: impl Fn(Request) -> Answering,
) -> Result<(), Error>
where
    Request: DeserializeOwned,
    Replied: Reply,
    Failed: NamedFailure,
    Answering: Future<Output = Result<Replied, Failed>>,
{
    let handler = &handler;
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| {
        respond(handler, event.payload)
    }))
    .await
}

/// Handles one invocation: parses the payload, calls the handler, returns the answer. Every failure, even a panic, has a public name.
async fn respond<Request, Replied, Failed, Answering>(
    handler: &impl Fn(Request) -> Answering,
    payload: Value,
) -> Result<Value, Diagnostic>
where
    Request: DeserializeOwned,
    Replied: Reply,
    Failed: NamedFailure,
    Answering: Future<Output = Result<Replied, Failed>>,
{
    let answered = async {
        let request = read_value(&payload)
            .map_err(|error| internal_error(format!("failed to read the request: {error}")))?;
        // The future is boxed. The nested futures of AWS and Kubernetes calls are too deep for the compiler otherwise.
        let mut reply = AssertUnwindSafe(async { Box::pin(handler(request)).await })
            .catch_unwind()
            .await
            .map_err(|panic| {
                internal_error(format!("failed with a panic: {}", describe_panic(panic.as_ref())))
            })?
            .map_err(|error| diagnostic(error.failure(), with_causes(&error)))?;
        let (phase, metrics) = reply.take_notes();
        let answer = serde_json::to_value(reply)
            .map_err(|error| internal_error(format!("failed to write the answer: {error}")))?;
        Ok((answer, phase, metrics))
    };
    conclude(&payload, answered.await)
}

/// Writes the log lines of an invocation: its decision and its metrics. A verdict that is an outcome ends the execution and adds a metric.
fn conclude(
    payload: &Value,
    answered: Result<(Value, Option<Phase>, Vec<Metric>), Diagnostic>,
) -> Result<Value, Diagnostic> {
    let subject = LogFields::of(payload);
    let (line, ended) = match &answered {
        Ok((answer, phase, _)) => {
            let ended = answer["verdict"].as_str().and_then(measure_verdict);
            (subject.describe_answer(answer, *phase), ended)
        }
        Err(failed) => {
            let line = subject.describe_failure(&failed.error_type, &failed.error_message);
            (line, measure_failure(&failed.error_type))
        }
    };
    log::decision(&line);
    let scope = Scope::of(payload);
    let others = answered.iter().flat_map(|(.., metrics)| metrics);
    for metric in ended.iter().chain(others) {
        log::metric(&scope.render(metric));
    }
    answered.map(|(answer, ..)| answer)
}

fn internal_error(message: String) -> Diagnostic {
    diagnostic(Failure::InternalError, message)
}

/// Builds the failure that Lambda reports and the runtime logs. `ErrorEquals` in the state machine matches its `error_type`.
fn diagnostic(failure: Failure, error_message: String) -> Diagnostic {
    Diagnostic {
        error_type: failure.name().to_owned(),
        error_message,
    }
}

fn describe_panic(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message")
}

#[cfg(test)]
mod tests {
    use recycle::contract::verdicts::CheckVerdict;
    use serde_json::json;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to check")]
    struct CheckFailed(#[source] std::io::Error);

    impl NamedFailure for CheckFailed {
        fn failure(&self) -> Failure {
            Failure::NodeLost
        }
    }

    async fn check(request: bool) -> Result<Answer<CheckVerdict>, CheckFailed> {
        if request {
            Ok(Answer::new(CheckVerdict::Wait, "soon").waiting(30))
        } else {
            Err(CheckFailed(std::io::Error::other("dark")))
        }
    }

    async fn fail_with_panic(_: bool) -> Result<Answer<CheckVerdict>, CheckFailed> {
        tokio::task::yield_now().await;
        panic!("step {}", 7)
    }

    #[tokio::test]
    async fn an_answer_has_the_fields_of_the_envelope() {
        let answer = respond(&check, json!(true)).await.unwrap();
        assert_eq!(answer["verdict"], "wait");
        assert_eq!(answer["wait_seconds"], 30);
    }

    #[tokio::test]
    async fn each_failure_has_a_public_name_and_every_cause() {
        let failed = |name: &str, message: &str| Diagnostic {
            error_type: name.to_owned(),
            error_message: message.to_owned(),
        };
        assert_eq!(
            respond(&check, json!(false)).await.unwrap_err(),
            failed("NodeLost", "failed to check: dark")
        );
        assert_eq!(
            respond(&check, json!("yes")).await.unwrap_err(),
            failed(
                "InternalError",
                "failed to read the request: invalid type: string \"yes\", expected a boolean"
            )
        );
        assert_eq!(
            respond(&fail_with_panic, json!(true)).await.unwrap_err(),
            failed("InternalError", "failed with a panic: step 7")
        );
    }
}
