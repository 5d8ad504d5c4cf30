//! Step Functions: executions with their whole histories.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aws_config::SdkConfig;
use aws_sdk_sfn::Client;
use aws_sdk_sfn::operation::describe_execution::DescribeExecutionOutput;
use aws_sdk_sfn::primitives::DateTime;
use aws_sdk_sfn::types::HistoryEvent;
use jiff::Timestamp;
use recycle::report::event::{Event, Execution, Happened};
use recycle::report::history::report_node;
use recycle::report::parts::NodeReport;
use recycle::report::reader::find_started;
use serde_json::Value;

use crate::aws::executions::PACE;
use crate::base::error::Error;
use crate::views::output::Output;

const DESCRIBE: &str = "states:DescribeExecution";
const HISTORY: &str = "states:GetExecutionHistory";
const LIST: &str = "states:ListExecutions";
const NOT_THERE: &str = "ExecutionDoesNotExist";
/// Events, or executions, of a page: AWS's maximum.
const PAGE: i32 = 1_000;
/// Until a call is made again that was throttled or not answered, beside what the SDK tries by itself.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// How long an outage is waited out.
const LONGEST_OUTAGE: Duration = Duration::from_secs(30 * 60);

/// The histories of executions.
#[derive(Debug)]
pub(crate) struct Histories {
    client: Client,
    /// Whether AWS has ever answered.
    has_answered: AtomicBool,
    /// Where an outage is told of: other than standard error only in tests.
    note: fn(&str),
    /// How fast time goes: other than 1 only in tests.
    speed: f64,
}

impl Histories {
    pub(crate) fn new(aws: &SdkConfig) -> Self {
        Self {
            client: Client::new(aws),
            has_answered: AtomicBool::new(false),
            note: Output::note,
            speed: 1.0,
        }
    }

    /// Makes a call, at a pace that leaves room for others; an outage is waited out. Where nothing was ever answered it is none: there is no such
    /// place, or no way there, or there are no credentials.
    async fn ask<T>(&self, call: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
        let wait = |time: Duration| tokio::time::sleep(time.div_f64(self.speed));
        let mut began: Option<Instant> = None;
        loop {
            wait(PACE).await;
            let answer = call().await;
            if answer
                .as_ref()
                .map_or_else(|error| error.code().is_some(), |_| true)
            {
                self.has_answered.store(true, Ordering::Relaxed);
            }
            match &answer {
                Err(error) if error.is_outage() && self.has_answered.load(Ordering::Relaxed) => {
                    let since = *began.get_or_insert_with(|| {
                        (self.note)(&format!("{error}; it is tried again, for half an hour"));
                        Instant::now()
                    });
                    if since.elapsed().mul_f64(self.speed) >= LONGEST_OUTAGE {
                        return answer;
                    }
                }
                Ok(_) | Err(_) => return answer,
            }
            wait(TRY_AGAIN).await;
        }
    }

    /// Whether there is such an execution.
    pub(crate) async fn is_there(&self, arn: &str) -> Result<bool, Error> {
        match self.describe(arn).await {
            Err(error) if error.code() == Some(NOT_THERE) => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    async fn describe(&self, arn: &str) -> Result<DescribeExecutionOutput, Error> {
        self.ask(async || {
            let answer = self.client.describe_execution().execution_arn(arn).send().await;
            answer.map_err(|error| Error::aws(DESCRIBE, error))
        })
        .await
    }

    /// An execution with its history.
    pub(crate) async fn read(&self, arn: &str) -> Result<Execution, Error> {
        let described = self.describe(arn).await?;
        Ok(Execution {
            arn: arn.to_owned(),
            status: described.status().as_str().to_owned(),
            started_at: to_timestamp(described.start_date()),
            ended_at: described.stop_date().map(to_timestamp),
            input: to_json(described.input()),
            output: to_json(described.output()),
            error: described.error().map(str::to_owned),
            cause: described.cause().map(str::to_owned),
            events: self.read_events(arn).await?,
        })
    }

    async fn read_events(&self, arn: &str) -> Result<Vec<Event>, Error> {
        let (mut events, mut token) = (Vec::new(), None);
        loop {
            let page = self
                .ask(async || {
                    let answer = self
                        .client
                        .get_execution_history()
                        .execution_arn(arn)
                        .max_results(PAGE)
                        .set_next_token(token.clone())
                        .send()
                        .await;
                    answer.map_err(|error| Error::aws(HISTORY, error))
                })
                .await?;
            events.extend(page.events.iter().map(to_event));
            token = page.next_token;
            if token.is_none() {
                return Ok(events);
            }
        }
    }

    /// The reports of the executions that a rotation has started: those of its own history, or of the children of its Distributed Map. One
    /// history is in memory at a time.
    pub(crate) async fn report_started(&self, rotation: &Execution) -> Result<Vec<NodeReport>, Error> {
        let (mut started, map_runs) = find_started(&rotation.events);
        for map_run in map_runs {
            for child in self.list_children(&map_run).await? {
                let (more, _) = find_started(&self.read_events(&child).await?);
                started.extend(more);
            }
        }
        started.sort();
        started.dedup();
        let mut reports = Vec::new();
        for arn in &started {
            match self.read(arn).await {
                // One that could not be started has no history.
                Err(error) if error.code() == Some(NOT_THERE) => {}
                read => reports.push(report_node(&read?)),
            }
        }
        Ok(reports)
    }

    async fn list_children(&self, map_run: &str) -> Result<Vec<String>, Error> {
        let (mut children, mut token) = (Vec::new(), None);
        loop {
            let page = self
                .ask(async || {
                    let answer = self
                        .client
                        .list_executions()
                        .map_run_arn(map_run)
                        .max_results(PAGE)
                        .set_next_token(token.clone())
                        .send()
                        .await;
                    answer.map_err(|error| Error::aws(LIST, error))
                })
                .await?;
            children.extend(page.executions.into_iter().map(|child| child.execution_arn));
            token = page.next_token;
            if token.is_none() {
                return Ok(children);
            }
        }
    }
}

fn to_event(event: &HistoryEvent) -> Event {
    Event {
        id: event.id(),
        at: to_timestamp(event.timestamp()),
        what: what_of(event),
    }
}

/// A function's answer may also come under the names that a task of Lambda alone has.
fn what_of(event: &HistoryEvent) -> Happened {
    if let Some(details) = event.state_entered_event_details() {
        return Happened::Entered(details.name().to_owned());
    }
    if let Some(details) = event.task_scheduled_event_details() {
        return Happened::Scheduled(to_json(Some(details.parameters())));
    }
    if let Some(details) = event.task_succeeded_event_details() {
        return Happened::Answered(to_json(details.output()));
    }
    if let Some(details) = event.task_failed_event_details() {
        return failed(details.error(), details.cause());
    }
    if let Some(details) = event.task_timed_out_event_details() {
        return failed(details.error(), details.cause());
    }
    if let Some(details) = event.map_run_started_event_details() {
        return details
            .map_run_arn()
            .map_or(Happened::Other, |arn| Happened::MapRun(arn.to_owned()));
    }
    Happened::Other
}

fn failed(error: Option<&str>, cause: Option<&str>) -> Happened {
    Happened::Failed {
        error: error.unwrap_or_default().to_owned(),
        cause: cause.unwrap_or_default().to_owned(),
    }
}

/// What is no JSON, or was left out of the history, says nothing.
fn to_json(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn to_timestamp(time: &DateTime) -> Timestamp {
    Timestamp::from_nanosecond(time.as_nanos()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use scripted_aws::ScriptedAws;

    use super::*;

    const ARN: &str = "arn:aws:states:eu-west-1:123456789012:execution:r-recycle-node:one";

    /// Ten seconds are a millisecond.
    const SPEED: f64 = 10_000.0;

    thread_local! {
        static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn histories(aws: &ScriptedAws) -> Histories {
        Histories {
            note: |text| NOTES.with_borrow_mut(|notes| notes.push(text.to_owned())),
            speed: SPEED,
            ..Histories::new(&aws.config())
        }
    }

    #[tokio::test]
    async fn a_throttle_and_a_short_outage_are_waited_out_and_a_refusal_is_told() {
        let described = r#"{"executionArn": "one", "stateMachineArn": "m", "status": "RUNNING", "startDate": 1798761600}"#;
        let aws = ScriptedAws::new()
            .refuses("DescribeExecution", 400, "ThrottlingException", "rate exceeded")
            .refuses("DescribeExecution", 503, "ServiceUnavailable", "away")
            .on("DescribeExecution", described)
            .refuses("GetExecutionHistory", 400, "ThrottlingException", "rate exceeded")
            .on("GetExecutionHistory", r#"{"events": [], "nextToken": "more"}"#)
            .on("GetExecutionHistory", r#"{"events": []}"#)
            .refuses("DescribeExecution", 400, "AccessDeniedException", "not you");
        let histories = histories(&aws);
        assert_eq!(histories.read(ARN).await.unwrap().status, "RUNNING");
        assert!(histories.read(ARN).await.is_err());
        assert_eq!(aws.scenes_left(), 0);
        let notes = NOTES.take();
        assert_eq!(notes.len(), 2, "one of each outage: {notes:?}");
        assert!(
            notes[0].ends_with("ThrottlingException: rate exceeded; it is tried again, for half an hour")
        );
    }

    #[tokio::test]
    async fn an_outage_of_more_than_half_an_hour_is_told_and_what_nobody_ever_answered_at_once() {
        let throttled =
            ScriptedAws::new().refuses("DescribeExecution", 400, "ThrottlingException", "rate exceeded");
        let away = ScriptedAws::new();
        for (aws, is_waited_out) in [(throttled, true), (away, false)] {
            // Whatever the script does not know breaks the connection.
            let began = Instant::now();
            assert!(histories(&aws).read(ARN).await.unwrap_err().code().is_none());
            let waited = began.elapsed().mul_f64(SPEED);
            assert_eq!(aws.calls().len() > 1, is_waited_out, "{:?}", aws.calls());
            assert_eq!(waited >= LONGEST_OUTAGE, is_waited_out, "{waited:?}");
            assert_eq!(NOTES.take().len(), usize::from(is_waited_out));
        }
    }
}
