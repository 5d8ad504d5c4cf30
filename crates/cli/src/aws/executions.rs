//! Step Functions: starting, stopping, listing executions, and reading their histories on from where they were read last.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_sfn::Client;
use aws_sdk_sfn::primitives::DateTime;
use aws_sdk_sfn::types::{ExecutionListItem, ExecutionStatus, HistoryEvent, HistoryEventType};
use jiff::Timestamp;
use serde_json::Value;

use crate::base::clock;
use crate::base::error::Error;
use crate::history::group::{GroupEvent, GroupStory, GroupWhat, TURN_ENDED};
use crate::history::node::{End, Event, Story, What};
use crate::history::unfinished::Unfinished;

const START: &str = "states:StartExecution";

const STOP: &str = "states:StopExecution";

const DESCRIBE: &str = "states:DescribeExecution";

const LIST: &str = "states:ListExecutions";

const HISTORY: &str = "states:GetExecutionHistory";

/// Events of a page at the first look, when the whole history is read: AWS's maximum.
const FIRST_PAGE: i32 = 1_000;

/// Events of a page later: what one round of the longest loop adds, twice.
const NEXT_PAGE: i32 = 40;

/// Executions of a page: AWS's maximum.
const LISTED: i32 = 1_000;

/// Between two calls where whole histories are read: half of GetExecutionHistory's quota for an account, which refills by 20 a second (Step
/// Functions guide, "Quotas related to API action throttling"). The other half is for the machines' functions, and for those who watch.
pub(crate) const PACE: Duration = Duration::from_millis(100);

/// An execution, as a list of them shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its ARN.
    pub arn: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: String,
    /// When it began.
    pub started: Option<Timestamp>,
}

/// An execution, as it is described.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Described {
    /// Its input.
    pub input: Value,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub stopped: Option<Timestamp>,
    /// How it has ended; none: it runs.
    pub end: Option<End>,
}

/// The executions of an installation.
#[derive(Debug, Clone)]
pub(crate) struct Executions {
    client: Client,
}

impl Executions {
    pub(crate) fn new(aws: &SdkConfig) -> Self {
        Self {
            client: Client::new(aws),
        }
    }

    /// Starts one; its ARN. The name makes an attempt of the SDK whose answer was lost the same execution.
    pub(crate) async fn start(&self, machine: &str, input: &Value) -> Result<String, Error> {
        let name = clock::unique_name();
        let answer = self
            .client
            .start_execution()
            .state_machine_arn(machine)
            .name(&name)
            .input(input.to_string())
            .send()
            .await
            .map_err(|error| Error::aws(START, error));
        match answer {
            // It has begun, and has ended before the second attempt.
            Err(error) if error.code() == Some("ExecutionAlreadyExists") => Ok(arn_of(machine, &name)),
            answer => Ok(answer?.execution_arn),
        }
    }

    /// Stops one; `why` is what its history says.
    pub(crate) async fn stop(&self, arn: &str, why: &str) -> Result<(), Error> {
        let stopped = self
            .client
            .stop_execution()
            .execution_arn(arn)
            .cause(why)
            .send()
            .await;
        stopped.map(|_| ()).map_err(|error| Error::aws(STOP, error))
    }

    /// Asks about one; none if there is none.
    pub(crate) async fn describe(&self, arn: &str) -> Result<Option<Described>, Error> {
        let answer = self.client.describe_execution().execution_arn(arn).send().await;
        let answer = match answer.map_err(|error| Error::aws(DESCRIBE, error)) {
            Err(error) if error.code() == Some("ExecutionDoesNotExist") => return Ok(None),
            answer => answer?,
        };
        let end = (answer.status != ExecutionStatus::Running).then(|| End {
            status: answer.status.as_str().to_owned(),
            output: json(answer.output.as_deref()),
            error: answer.error.clone().unwrap_or_default(),
            cause: answer.cause.clone().unwrap_or_default(),
        });
        Ok(Some(Described {
            input: json(answer.input.as_deref()),
            started: timestamp(&answer.start_date),
            stopped: answer.stop_date.as_ref().and_then(timestamp),
            end,
        }))
    }

    /// Those that run, the newest first.
    pub(crate) async fn list_running(&self, machine: &str) -> Result<Vec<Listed>, Error> {
        self.list(machine, Some(ExecutionStatus::Running), None).await
    }

    /// Those that began at this time or later, the newest first.
    pub(crate) async fn list_since(&self, machine: &str, since: Timestamp) -> Result<Vec<Listed>, Error> {
        self.list(machine, None, Some(since)).await
    }

    async fn list(
        &self,
        machine: &str,
        status: Option<ExecutionStatus>,
        since: Option<Timestamp>,
    ) -> Result<Vec<Listed>, Error> {
        let (mut listed, mut token) = (Vec::new(), None);
        loop {
            let page = self
                .client
                .list_executions()
                .state_machine_arn(machine)
                .set_status_filter(status.clone())
                .max_results(LISTED)
                .set_next_token(token)
                .send()
                .await
                .map_err(|error| Error::aws(LIST, error))?;
            let found = page.executions.iter().map(to_listed);
            let before = listed.len();
            listed.extend(found.filter(|execution| since.is_none() || execution.started >= since));
            token = page.next_token;
            let is_older = listed.len() - before < page.executions.len();
            if token.is_none() || is_older {
                return Ok(listed);
            }
        }
    }

    /// The executions that a Distributed Map has begun.
    pub(crate) async fn list_children(&self, map_run: &str) -> Result<Vec<Listed>, Error> {
        let pages = self
            .client
            .list_executions()
            .map_run_arn(map_run)
            .max_results(LISTED)
            .into_paginator()
            .items()
            .send();
        let found = pages.collect::<Result<Vec<_>, _>>().await;
        Ok(found
            .map_err(|error| Error::aws(LIST, error))?
            .iter()
            .map(to_listed)
            .collect())
    }

    /// Reads an execution's history on.
    pub(crate) async fn read_on(&self, arn: &str, story: &mut Story) -> Result<(), Error> {
        loop {
            let is_old = story.unfinished.token.is_some();
            for event in self
                .read_new(arn, story.last_id, &mut story.unfinished, to_event)
                .await?
            {
                story.read(event);
            }
            if !is_old {
                return Ok(());
            }
        }
    }

    /// The same of a group of a rotation.
    pub(crate) async fn read_group_on(&self, arn: &str, story: &mut GroupStory) -> Result<(), Error> {
        loop {
            let is_old = story.unfinished.token.is_some();
            for event in self
                .read_new(arn, story.last_id, &mut story.unfinished, to_group_event)
                .await?
            {
                story.read(event);
            }
            if !is_old {
                return Ok(());
            }
        }
    }

    /// What is new in a history, the oldest first. It is read from its end, until what was read before; where a page could not be read, from
    /// there on: what has come since, the next call reads.
    async fn read_new<E>(
        &self,
        arn: &str,
        last_id: i64,
        read: &mut Unfinished<E>,
        to: impl Fn(&HistoryEvent) -> Option<E>,
    ) -> Result<Vec<E>, Error> {
        if read.token.is_none() {
            read.size = if last_id == 0 { FIRST_PAGE } else { NEXT_PAGE };
        }
        loop {
            if read.size == FIRST_PAGE {
                tokio::time::sleep(PACE).await;
            }
            let page = self
                .client
                .get_execution_history()
                .execution_arn(arn)
                .reverse_order(true)
                .max_results(read.size)
                .set_next_token(read.token.clone())
                .send()
                .await
                .map_err(|error| Error::aws(HISTORY, error))?;
            let reaches_back = page.events.iter().any(|event| event.id <= last_id);
            read.events.extend(page.events.iter().filter_map(&to));
            read.token = page.next_token.filter(|_| !reaches_back);
            if read.token.is_none() {
                break;
            }
        }
        let mut events = std::mem::take(&mut read.events);
        events.reverse();
        Ok(events)
    }
}

fn to_listed(execution: &ExecutionListItem) -> Listed {
    Listed {
        arn: execution.execution_arn.clone(),
        name: execution.name.clone(),
        status: execution.status.as_str().to_owned(),
        started: timestamp(&execution.start_date),
    }
}

/// `machine` may name an alias or a version.
fn arn_of(machine: &str, name: &str) -> String {
    let parts: Vec<&str> = machine.split(':').take(7).collect();
    format!(
        "{}:{name}",
        parts.join(":").replace(":stateMachine:", ":execution:")
    )
}

fn to_event(event: &HistoryEvent) -> Option<Event> {
    Some(Event {
        id: event.id,
        at: timestamp(&event.timestamp)?,
        what: what_of(event),
    })
}

fn what_of(event: &HistoryEvent) -> What {
    if let Some(entered) = event.state_entered_event_details() {
        return What::Entered {
            state: entered.name.clone(),
        };
    }
    if let Some(details) = event.task_succeeded_event_details() {
        let mut output = json(details.output());
        return match output.get_mut("Payload").map(Value::take) {
            Some(answer) => What::Answered { answer },
            None => What::Other,
        };
    }
    if let Some(details) = event.execution_started_event_details() {
        return What::Started {
            input: json(details.input()),
        };
    }
    if let Some(details) = event.execution_succeeded_event_details() {
        return ended("SUCCEEDED", json(details.output()), None, None);
    }
    if let Some(details) = event.execution_failed_event_details() {
        return ended("FAILED", Value::Null, details.error(), details.cause());
    }
    if let Some(details) = event.execution_aborted_event_details() {
        return ended("ABORTED", Value::Null, details.error(), details.cause());
    }
    if let Some(details) = event.execution_timed_out_event_details() {
        return ended("TIMED_OUT", Value::Null, details.error(), details.cause());
    }
    if let Some(arn) = event
        .map_run_started_event_details()
        .and_then(|details| details.map_run_arn())
    {
        return What::MapRun { arn: arn.to_owned() };
    }
    // Who stops an execution need not say why, nor need Step Functions: then the event has no details.
    let ends = [
        (HistoryEventType::ExecutionAborted, "ABORTED"),
        (HistoryEventType::ExecutionFailed, "FAILED"),
        (HistoryEventType::ExecutionTimedOut, "TIMED_OUT"),
    ];
    ends.into_iter()
        .find(|(kind, _)| *kind == event.r#type)
        .map_or(What::Other, |(_, status)| ended(status, Value::Null, None, None))
}

fn to_group_event(event: &HistoryEvent) -> Option<GroupEvent> {
    Some(GroupEvent {
        id: event.id,
        previous: event.previous_event_id,
        at: timestamp(&event.timestamp)?,
        what: group_what_of(event),
    })
}

fn group_what_of(event: &HistoryEvent) -> GroupWhat {
    if let Some(details) = event.map_iteration_started_event_details() {
        return usize::try_from(details.index).map_or(GroupWhat::Other, GroupWhat::Turn);
    }
    if let Some(entered) = event
        .state_entered_event_details()
        .filter(|entered| entered.name == TURN_ENDED)
    {
        return GroupWhat::TurnEnded(json(entered.input()));
    }
    match what_of(event) {
        What::Started { input } => GroupWhat::Started(input["group"].as_str().unwrap_or_default().to_owned()),
        What::Answered { answer } => GroupWhat::Answered(answer),
        What::Ended(_) => GroupWhat::Ended,
        What::Entered { .. } | What::MapRun { .. } | What::Other => GroupWhat::Other,
    }
}

fn ended(status: &str, output: Value, error: Option<&str>, cause: Option<&str>) -> What {
    What::Ended(End {
        status: status.to_owned(),
        output,
        error: error.unwrap_or_default().to_owned(),
        cause: cause.unwrap_or_default().to_owned(),
    })
}

/// What is no JSON, or was left out of the history, says nothing.
fn json(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn timestamp(time: &DateTime) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;
    use serde_json::json;

    use super::*;

    const MACHINE: &str = "arn:aws:states:eu-west-1:123456789012:stateMachine:r-recycle-node:live";

    #[tokio::test]
    async fn a_start_has_a_name_so_that_no_attempt_starts_it_twice() {
        let aws = ScriptedAws::new().refuses("StartExecution", 400, "ExecutionAlreadyExists", "it is there");
        let arn = Executions::new(&aws.config())
            .start(MACHINE, &json!({}))
            .await
            .unwrap();
        let name = arn
            .strip_prefix("arn:aws:states:eu-west-1:123456789012:execution:r-recycle-node:")
            .unwrap();
        assert!(aws.calls()[0].contains(name), "{:?}", aws.calls());
    }

    /// A page with an event that tells nothing but its kind.
    fn page(id: i64, kind: &str, token: Option<&str>) -> String {
        json!({"events": [{"id": id, "previousEventId": 0, "timestamp": 1_798_761_600, "type": kind}], "nextToken": token}).to_string()
    }

    #[tokio::test]
    async fn an_end_without_details_is_an_end() {
        for (kind, status) in [
            ("ExecutionAborted", Some("ABORTED")),
            ("ExecutionFailed", Some("FAILED")),
            ("ExecutionTimedOut", Some("TIMED_OUT")),
            ("WaitStateExited", None),
        ] {
            let aws = ScriptedAws::new().on("GetExecutionHistory", &page(9, kind, None));
            let mut story = Story::default();
            Executions::new(&aws.config())
                .read_on("arn", &mut story)
                .await
                .unwrap();
            assert_eq!(story.end.map(|end| end.status).as_deref(), status, "{kind}");
        }
    }

    #[tokio::test]
    async fn what_was_read_before_a_page_that_could_not_be_is_not_read_again() {
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
        let (executions, mut story) = (Executions::new(&aws.config()), Story::default());
        assert!(executions.read_on("arn", &mut story).await.is_err());
        assert_eq!(story.last_id, 0, "what is older comes first");
        executions.read_on("arn", &mut story).await.unwrap();
        assert_eq!((story.last_id, story.end.is_some()), (4, true));
        assert!(aws.calls()[2].contains("\"two\""), "{:?}", aws.calls());
        assert_eq!(aws.scenes_left(), 0);
    }
}
