//! Converts executions and their history events from the SDK's types to the model in [`recycle::report::event`].

use aws_sdk_sfn::operation::describe_execution::DescribeExecutionOutput;
use aws_sdk_sfn::primitives::DateTime;
use aws_sdk_sfn::types::{ExecutionStatus, HistoryEvent, HistoryEventType};
use jiff::Timestamp;
use recycle::report::event::{End, Event, EventKind, Execution};
use serde_json::Value;

use crate::history::group::NODE_DONE;

pub(super) fn to_execution(found: DescribeExecutionOutput) -> Execution {
    Execution {
        input: to_json(found.input()),
        started_at: to_timestamp(&found.start_date),
        ended_at: found.stop_date().map(to_timestamp),
        end: (found.status != ExecutionStatus::Running).then(|| {
            end(
                found.status.as_str(),
                found.output(),
                found.error(),
                found.cause(),
            )
        }),
        arn: found.execution_arn,
    }
}

pub(super) fn to_event(event: &HistoryEvent) -> Event {
    Event {
        id: event.id,
        previous: event.previous_event_id,
        at: to_timestamp(&event.timestamp),
        what: what_of(event)
            .or_else(|| end_of(event))
            .unwrap_or(EventKind::Other),
    }
}

fn what_of(event: &HistoryEvent) -> Option<EventKind> {
    if let Some(details) = event.state_entered_event_details() {
        return Some(match details.name() {
            NODE_DONE => EventKind::NodeDone(to_json(details.input())),
            state => EventKind::Entered(state.to_owned()),
        });
    }
    if let Some(details) = event.task_scheduled_event_details() {
        return Some(EventKind::Scheduled(to_json(Some(details.parameters()))));
    }
    if let Some(details) = event.task_succeeded_event_details() {
        let answer = to_json(details.output()).get_mut("Payload").map(Value::take);
        return answer.map(EventKind::Answered);
    }
    if let Some(details) = event.task_failed_event_details() {
        return Some(failed(details.error(), details.cause()));
    }
    if let Some(details) = event.task_timed_out_event_details() {
        return Some(failed(details.error(), details.cause()));
    }
    if let Some(details) = event.map_run_started_event_details() {
        return details.map_run_arn().map(|arn| EventKind::MapRun(arn.to_owned()));
    }
    if let Some(details) = event.map_iteration_started_event_details() {
        return usize::try_from(details.index).ok().map(EventKind::NodeAsked);
    }
    let started = event.execution_started_event_details()?;
    Some(EventKind::Started(to_json(started.input())))
}

/// Returns the end of the execution if the event is one.
/// The event has no details if the execution was stopped without a reason.
fn end_of(event: &HistoryEvent) -> Option<EventKind> {
    let ends = [
        (HistoryEventType::ExecutionSucceeded, "SUCCEEDED"),
        (HistoryEventType::ExecutionFailed, "FAILED"),
        (HistoryEventType::ExecutionAborted, "ABORTED"),
        (HistoryEventType::ExecutionTimedOut, "TIMED_OUT"),
    ];
    let (_, status) = ends.into_iter().find(|(kind, _)| *kind == event.r#type)?;
    let succeeded = event.execution_succeeded_event_details();
    let failed = event.execution_failed_event_details();
    let aborted = event.execution_aborted_event_details();
    let timed_out = event.execution_timed_out_event_details();
    let why = failed.map(|details| (details.error(), details.cause()));
    let why = why.or(aborted.map(|details| (details.error(), details.cause())));
    let why = why.or(timed_out.map(|details| (details.error(), details.cause())));
    let (error, cause) = why.unwrap_or_default();
    let output = succeeded.and_then(|details| details.output());
    Some(EventKind::Ended(end(status, output, error, cause)))
}

fn end(status: &str, output: Option<&str>, error: Option<&str>, cause: Option<&str>) -> End {
    End {
        status: status.to_owned(),
        output: to_json(output),
        error: error.unwrap_or_default().to_owned(),
        cause: cause.unwrap_or_default().to_owned(),
    }
}

fn failed(error: Option<&str>, cause: Option<&str>) -> EventKind {
    EventKind::Failed {
        error: error.unwrap_or_default().to_owned(),
        cause: cause.unwrap_or_default().to_owned(),
    }
}

/// Parses JSON. Returns null if the text is not JSON, or if Step Functions left it out of the history.
fn to_json(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

pub(crate) fn to_timestamp(time: &DateTime) -> Timestamp {
    Timestamp::from_nanosecond(time.as_nanos()).unwrap_or_default()
}
