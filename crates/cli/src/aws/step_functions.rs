//! The client of Step Functions. It starts, stops and lists executions, describes state machines, and reads histories. The next read of
//! a history continues after the last event that was read.

use std::cell::Cell;
use std::cmp::Reverse;
use std::error::Error as StdError;
use std::time::{Duration, Instant};

use aws_config::SdkConfig;
use aws_sdk_sfn::Client;
use aws_sdk_sfn::error::ProvideErrorMetadata;
use aws_sdk_sfn::operation::describe_state_machine::DescribeStateMachineOutput;
use aws_sdk_sfn::operation::list_executions::builders::ListExecutionsFluentBuilder;
use aws_sdk_sfn::types::ExecutionStatus;
use jiff::Timestamp;
use recycle::report::event::{Event, Execution, name_execution};
use serde_json::Value;

use crate::aws::events::{to_event, to_execution, to_timestamp};
use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::history::cursor::{Cursor, View};

const NO_EXECUTION: &str = "ExecutionDoesNotExist";
const STARTED_ALREADY: &str = "ExecutionAlreadyExists";

/// Events per page at the first check, which reads the whole history: AWS's maximum.
const FIRST_PAGE: i32 = 1_000;

/// Events per page at later checks: twice the number that one round of the longest loop adds.
const NEXT_PAGE: i32 = 40;

/// Executions per page: AWS's maximum.
const MOST_LISTED: i32 = 1_000;

/// The pause before each call while whole histories are read, so that the calls take half of the account's quota for GetExecutionHistory.
/// The quota refills by 20 a second (Step Functions guide, "Quotas related to API action throttling").
/// The other half is for other callers, such as commands that watch.
const PACE: Duration = Duration::from_millis(100);

/// The time until a throttled or unanswered call is made again, in addition to the SDK's own attempts.
const TRY_AGAIN: Duration = Duration::from_secs(10);

const LONGEST_OUTAGE: Duration = Duration::from_secs(30 * 60);

/// An execution in the answer of ListExecutions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub arn: String,
    pub name: String,
    pub status: String,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

impl Listed {
    /// Whether it ended badly.
    pub(crate) fn has_failed(&self) -> bool {
        ["FAILED", "TIMED_OUT", "ABORTED"].contains(&self.status.as_str())
    }
}

#[derive(Debug)]
pub(crate) struct StepFunctions {
    client: Client,
    patience: Option<Patience>,
}

/// The waits of a command that makes many calls.
#[derive(Debug)]
struct Patience {
    has_answered: Cell<bool>,
    /// The function that prints a note when an outage begins.
    note: fn(&str),
    /// The factor by which waits are shorter. Only tests have another factor than 1.
    speed: f64,
}

impl StepFunctions {
    pub(crate) fn new(aws: &SdkConfig) -> Self {
        Self {
            client: Client::new(aws),
            patience: None,
        }
    }

    /// Returns a client whose pace leaves room for other callers, and which waits until an outage is over.
    pub(crate) fn patient(aws: &SdkConfig, note: fn(&str)) -> Self {
        let patience = Patience {
            has_answered: Cell::new(false),
            note,
            speed: 1.0,
        };
        Self {
            patience: Some(patience),
            ..Self::new(aws)
        }
    }

    async fn ask<T, E>(&self, name: &'static str, call: impl AsyncFn() -> Result<T, E>) -> Result<T>
    where
        E: ProvideErrorMetadata + StdError,
    {
        let call = async || call().await.map_err(Error::of(name));
        match &self.patience {
            Some(patience) => patience.ask(call).await,
            None => call().await,
        }
    }

    /// Starts an execution and returns its ARN.
    /// If an answer is lost and the SDK retries, the name makes the second attempt return the same execution.
    pub(crate) async fn start(&self, machine: &str, input: &Value) -> Result<String> {
        let name = clock::unique_name();
        let start = self.client.start_execution().state_machine_arn(machine);
        let start = start.name(&name).input(input.to_string());
        let answer = self.ask("states:StartExecution", || start.clone().send());
        match answer.await {
            // The first attempt started the execution, and the execution ended before the second attempt.
            Err(error) if error.code() == Some(STARTED_ALREADY) => Ok(name_execution(machine, &name)),
            answer => Ok(answer?.execution_arn),
        }
    }

    /// Stops an execution. `why` becomes the cause in its history.
    pub(crate) async fn stop(&self, arn: &str, why: &str) -> Result<()> {
        let stop = self.client.stop_execution().execution_arn(arn).cause(why);
        self.ask("states:StopExecution", || stop.clone().send()).await?;
        Ok(())
    }

    pub(crate) async fn describe(&self, arn: &str) -> Result<Execution> {
        let describe = self.client.describe_execution().execution_arn(arn);
        let answer = self.ask("states:DescribeExecution", || describe.clone().send());
        Ok(to_execution(answer.await?))
    }

    /// Fetches an execution. None if there is none with this ARN.
    pub(crate) async fn find(&self, arn: &str) -> Result<Option<Execution>> {
        match self.describe(arn).await {
            Err(error) if error.code() == Some(NO_EXECUTION) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Lists the ARNs of the running executions, the newest first.
    pub(crate) async fn list_running(&self, machine: &str) -> Result<Vec<String>> {
        let list = self.client.list_executions().state_machine_arn(machine);
        let list = list.status_filter(ExecutionStatus::Running);
        let listed = self.list(list, Timestamp::MIN).await?.into_iter();
        Ok(listed.map(|execution| execution.arn).collect())
    }

    /// Lists the executions that began at this time or later, the newest first.
    pub(crate) async fn list_since(&self, machine: &str, since: Timestamp) -> Result<Vec<Listed>> {
        let list = self.client.list_executions().state_machine_arn(machine);
        self.list(list, since).await
    }

    /// Lists the executions that ended at this time or later, whenever they began.
    pub(crate) async fn list_ended_since(&self, machine: &str, since: Timestamp) -> Result<Vec<Listed>> {
        let list = self.client.list_executions().state_machine_arn(machine);
        let ended = |execution: &Listed| execution.ended_at.is_some_and(|end| end >= since);
        self.list_while(list, since, ended).await
    }

    /// Lists the executions that a Distributed Map has begun.
    pub(crate) async fn list_children(&self, map_run: &str) -> Result<Vec<Listed>> {
        let list = self.client.list_executions().map_run_arn(map_run);
        self.list(list, Timestamp::MIN).await
    }

    /// Lists the last `count` executions with any status, the newest first. "Last" counts the end of those that have ended.
    pub(crate) async fn list_newest(&self, machine: &str, count: i32) -> Result<Vec<Listed>> {
        let list = self.client.list_executions().state_machine_arn(machine);
        let (page, _) = self.list_page(list.max_results(count)).await?;
        Ok(sort_by_start(page))
    }

    /// Ended executions are sorted by their end, the last one first (API reference of ListExecutions). So all that are listed after one
    /// that ended before `since` began before it, too, unless they run.
    async fn list(&self, list: ListExecutionsFluentBuilder, since: Timestamp) -> Result<Vec<Listed>> {
        self.list_while(list, since, |execution| execution.started_at >= since)
            .await
    }

    /// Lists the wanted executions, down to one that ended before `since`.
    async fn list_while(
        &self,
        list: ListExecutionsFluentBuilder,
        since: Timestamp,
        is_wanted: impl Fn(&Listed) -> bool,
    ) -> Result<Vec<Listed>> {
        let (mut listed, mut token) = (Vec::new(), None);
        loop {
            let list = list.clone().max_results(MOST_LISTED).set_next_token(token);
            let (page, next) = self.list_page(list).await?;
            let has_ended_before = |execution: &Listed| execution.ended_at.is_some_and(|end| end < since);
            let is_last = next.is_none() || page.iter().any(has_ended_before);
            listed.extend(page.into_iter().filter(&is_wanted));
            if is_last {
                return Ok(sort_by_start(listed));
            }
            token = next;
        }
    }

    /// Fetches a page, and the token of the next page.
    async fn list_page(&self, list: ListExecutionsFluentBuilder) -> Result<(Vec<Listed>, Option<String>)> {
        let answer = self.ask("states:ListExecutions", || list.clone().send());
        let page = answer.await?;
        let listed = page.executions.into_iter().map(|execution| Listed {
            arn: execution.execution_arn,
            name: execution.name,
            status: execution.status.as_str().to_owned(),
            started_at: to_timestamp(&execution.start_date),
            // A redriven execution that runs again is listed among those that run, whatever its `stopDate` is.
            ended_at: execution
                .stop_date
                .as_ref()
                .filter(|_| !matches!(execution.status.as_str(), "RUNNING" | "PENDING_REDRIVE"))
                .map(to_timestamp),
        });
        Ok((listed.collect(), page.next_token))
    }

    pub(crate) async fn read_history(&self, arn: &str) -> Result<Vec<Event>> {
        self.read_new(arn, &mut Cursor::default()).await
    }

    pub(crate) async fn read_on(&self, arn: &str, view: &mut impl View) -> Result<()> {
        loop {
            let is_resumed = view.cursor().token.is_some();
            for event in self.read_new(arn, view.cursor()).await? {
                view.read(event);
            }
            if !is_resumed {
                return Ok(());
            }
        }
    }

    /// Returns the new events of a history, the oldest first.
    /// Reads pages backwards from the end of the history, down to the events that an earlier call has read. If a page cannot be read, the
    /// next call continues with it. The call after that reads the events that came in the meantime.
    async fn read_new(&self, arn: &str, cursor: &mut Cursor) -> Result<Vec<Event>> {
        if cursor.token.is_none() {
            cursor.page = if cursor.last_id == 0 {
                FIRST_PAGE
            } else {
                NEXT_PAGE
            };
        }
        let history = self.client.get_execution_history().execution_arn(arn);
        let history = history.reverse_order(true).max_results(cursor.page);
        loop {
            if cursor.page == FIRST_PAGE && self.patience.is_none() {
                tokio::time::sleep(PACE).await;
            }
            let next = history.clone().set_next_token(cursor.token.clone());
            let page = self.ask("states:GetExecutionHistory", || next.clone().send());
            let page = page.await?;
            let reaches_back = page.events.iter().any(|event| event.id <= cursor.last_id);
            cursor.unfinished.extend(page.events.iter().map(to_event));
            cursor.token = page.next_token.filter(|_| !reaches_back);
            if cursor.token.is_none() {
                let mut events = std::mem::take(&mut cursor.unfinished);
                events.reverse();
                return Ok(events);
            }
        }
    }

    pub(crate) async fn describe_machine(&self, arn: &str) -> Result<DescribeStateMachineOutput> {
        let describe = self.client.describe_state_machine().state_machine_arn(arn);
        self.ask("states:DescribeStateMachine", || describe.clone().send())
            .await
    }

    /// Fetches the ARN of the version that an alias starts.
    pub(crate) async fn find_version(&self, alias: &str) -> Result<Option<String>> {
        let describe = self.client.describe_state_machine_alias();
        let describe = describe.state_machine_alias_arn(alias);
        let answer = self.ask("states:DescribeStateMachineAlias", || describe.clone().send());
        let mut routes = answer.await?.routing_configuration.into_iter().flatten();
        Ok(routes.next().map(|route| route.state_machine_version_arn))
    }

    pub(crate) async fn find_newest_version(&self, machine: &str) -> Result<Option<String>> {
        let list = self.client.list_state_machine_versions();
        let list = list.state_machine_arn(machine).max_results(1);
        let answer = self.ask("states:ListStateMachineVersions", || list.clone().send());
        let mut versions = answer.await?.state_machine_versions.into_iter();
        Ok(versions.next().map(|version| version.state_machine_version_arn))
    }
}

/// Sorts executions by their start, the newest first.
fn sort_by_start(mut listed: Vec<Listed>) -> Vec<Listed> {
    listed.sort_by_key(|execution| Reverse(execution.started_at));
    listed
}

impl Patience {
    /// Makes a call, and waits until an outage is over, for half an hour at most.
    /// As long as no call has been answered, an error is returned at once: the endpoint is wrong or cannot be reached, or there are no
    /// credentials.
    async fn ask<T>(&self, call: impl AsyncFn() -> Result<T>) -> Result<T> {
        let wait = |time: Duration| tokio::time::sleep(time.div_f64(self.speed));
        let mut began: Option<Instant> = None;
        loop {
            wait(PACE).await;
            let answer = call().await;
            let outage = answer.as_ref().err().filter(|error| error.is_outage());
            if outage.is_none_or(|error| error.code().is_some()) {
                self.has_answered.set(true);
            }
            let Some(error) = outage.filter(|_| self.has_answered.get()) else {
                return answer;
            };
            let since = *began.get_or_insert_with(|| {
                (self.note)(&format!("{error}; retrying for half an hour"));
                Instant::now()
            });
            if since.elapsed().mul_f64(self.speed) >= LONGEST_OUTAGE {
                return answer;
            }
            wait(TRY_AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use scripted_aws::ScriptedAws;
    use serde_json::json;

    use super::*;
    use crate::history::node::History;

    const MACHINE: &str = "arn:aws:states:eu-west-1:123456789012:stateMachine:r-recycle-node:live";

    #[tokio::test]
    async fn a_second_attempt_of_a_start_returns_the_same_execution() {
        let aws = ScriptedAws::new().refuses("StartExecution", 400, "ExecutionAlreadyExists", "it is there");
        let arn = StepFunctions::new(&aws.config())
            .start(MACHINE, &json!({}))
            .await
            .unwrap();
        let name = arn
            .strip_prefix("arn:aws:states:eu-west-1:123456789012:execution:r-recycle-node:")
            .unwrap();
        assert!(aws.calls()[0].contains(name), "{:?}", aws.calls());
    }

    /// A page with one event that has no details.
    fn page(id: i64, kind: &str, token: Option<&str>) -> String {
        json!({"events": [{"id": id, "previousEventId": 0, "timestamp": 1_798_761_600, "type": kind}], "nextToken": token}).to_string()
    }

    #[tokio::test]
    async fn executions_are_listed_by_their_start_until_one_ended_before_the_given_time() {
        let page = |executions: &[(&str, i64, Option<i64>)], token: Option<&str>| {
            let listed: Vec<Value> = executions
                .iter()
                .map(|(name, began, ended)| {
                    json!({"executionArn": name, "stateMachineArn": MACHINE, "name": name, "status": "FAILED", "startDate": began,
                        "stopDate": ended})
                })
                .collect();
            json!({"executions": listed, "nextToken": token}).to_string()
        };
        let aws = ScriptedAws::new()
            .on(
                "ListExecutions",
                &page(&[("long", 50, Some(400)), ("first", 100, Some(390))], Some("two")),
            )
            .on(
                "ListExecutions",
                &page(&[("second", 200, Some(300)), ("runs", 20, None)], Some("three")),
            )
            .on(
                "ListExecutions",
                &page(
                    &[("third", 250, Some(260)), ("before", 10, Some(99))],
                    Some("four"),
                ),
            );
        let since = Timestamp::from_second(100).unwrap();
        let listed = StepFunctions::new(&aws.config()).list_since(MACHINE, since).await;
        let names: Vec<String> = listed
            .unwrap()
            .into_iter()
            .map(|execution| execution.name)
            .collect();
        assert_eq!(names, ["third", "second", "first"]);
        assert_eq!(aws.exchanges_left(), 0);
    }

    #[tokio::test]
    async fn an_end_event_without_details_is_an_end() {
        for (kind, status) in [
            ("ExecutionAborted", Some("ABORTED")),
            ("ExecutionFailed", Some("FAILED")),
            ("ExecutionTimedOut", Some("TIMED_OUT")),
            ("WaitStateExited", None),
        ] {
            let aws = ScriptedAws::new().on("GetExecutionHistory", &page(9, kind, None));
            let mut history = History::default();
            StepFunctions::new(&aws.config())
                .read_on("arn", &mut history)
                .await
                .unwrap();
            assert_eq!(history.end.map(|end| end.status).as_deref(), status, "{kind}");
        }
    }

    #[tokio::test]
    async fn pages_that_were_read_before_a_refused_page_are_not_read_again() {
        let aws = ScriptedAws::new()
            .on("GetExecutionHistory", &page(3, "WaitStateExited", Some("two")))
            .refuses("GetExecutionHistory", 400, "ThrottlingException", "rate exceeded")
            .on("GetExecutionHistory", &page(2, "WaitStateExited", Some("one")))
            .on("GetExecutionHistory", &page(1, "WaitStateExited", None))
            .on(
                "GetExecutionHistory",
                &page(4, "ExecutionTimedOut", Some("three")),
            )
            .on("GetExecutionHistory", &page(3, "WaitStateExited", Some("two")));
        let (states, mut history) = (StepFunctions::new(&aws.config()), History::default());
        assert!(states.read_on("arn", &mut history).await.is_err());
        assert_eq!(history.cursor.last_id, 0, "older events come first");
        states.read_on("arn", &mut history).await.unwrap();
        assert_eq!((history.cursor.last_id, history.end.is_some()), (4, true));
        assert!(aws.calls()[2].contains("\"two\""), "{:?}", aws.calls());
        assert_eq!(aws.exchanges_left(), 0);
    }

    const ARN: &str = "arn:aws:states:eu-west-1:123456789012:execution:r-recycle-node:one";

    /// Ten seconds take a millisecond.
    const SPEED: f64 = 10_000.0;

    thread_local! {
        static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn patient(aws: &ScriptedAws) -> StepFunctions {
        let note = |text: &str| NOTES.with_borrow_mut(|notes| notes.push(text.to_owned()));
        let mut states = StepFunctions::patient(&aws.config(), note);
        states.patience.as_mut().unwrap().speed = SPEED;
        states
    }

    #[tokio::test]
    async fn a_throttle_and_a_short_outage_are_retried_and_a_refusal_is_returned() {
        let described = r#"{"executionArn": "one", "stateMachineArn": "m", "status": "RUNNING", "startDate": 1798761600}"#;
        let aws = ScriptedAws::new()
            .refuses("DescribeExecution", 400, "ThrottlingException", "rate exceeded")
            .refuses("DescribeExecution", 503, "ServiceUnavailable", "away")
            .on("DescribeExecution", described)
            .refuses("GetExecutionHistory", 400, "ThrottlingException", "rate exceeded")
            .on("GetExecutionHistory", r#"{"events": [], "nextToken": "more"}"#)
            .on("GetExecutionHistory", r#"{"events": []}"#)
            .refuses("DescribeExecution", 400, "AccessDeniedException", "not you");
        let states = patient(&aws);
        assert_eq!(states.describe(ARN).await.unwrap().end, None);
        assert!(states.read_history(ARN).await.unwrap().is_empty());
        assert!(states.describe(ARN).await.is_err());
        assert_eq!(aws.exchanges_left(), 0);
        let notes = NOTES.take();
        assert_eq!(notes.len(), 2, "one of each outage: {notes:?}");
        assert!(notes[0].ends_with("ThrottlingException: rate exceeded; retrying for half an hour"));
    }

    #[tokio::test]
    async fn an_outage_fails_after_half_an_hour_or_at_once_if_no_call_was_ever_answered() {
        let throttled =
            ScriptedAws::new().refuses("DescribeExecution", 400, "ThrottlingException", "rate exceeded");
        let away = ScriptedAws::new();
        for (aws, is_waited_out) in [(throttled, true), (away, false)] {
            // A call that is not in the script breaks the connection.
            let began = Instant::now();
            assert!(patient(&aws).describe(ARN).await.unwrap_err().code().is_none());
            let waited = began.elapsed().mul_f64(SPEED);
            assert_eq!(aws.calls().len() > 1, is_waited_out, "{:?}", aws.calls());
            assert_eq!(waited >= LONGEST_OUTAGE, is_waited_out, "{waited:?}");
            assert_eq!(NOTES.take().len(), usize::from(is_waited_out));
        }
    }
}
