//! Reads the status of executions from Step Functions. It starts none.

use std::collections::BTreeSet;

use autoscaling::Error;
use aws_config::SdkConfig;
use aws_sdk_sfn::Client;
use aws_sdk_sfn::primitives::DateTime;
use aws_sdk_sfn::types::{ExecutionListItem, ExecutionStatus};
use jiff::Timestamp;
use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::base::ids::ExecutionArn;
use recycle::records::owner::Owner;
use recycle::rotation::marks::{Marks, may_run};
use serde_json::Value;

#[cfg(test)]
mod laws;

const DESCRIBE_EXECUTION: &str = "states:DescribeExecution";
const LIST_EXECUTIONS: &str = "states:ListExecutions";
/// The maximum number of executions on a page (API reference of ListExecutions). One page holds all executions of most rotations.
const LONGEST_PAGE: i32 = 1_000;

/// Reader of executions in Step Functions.
#[derive(Debug)]
pub struct Executions {
    client: Client,
}

/// An execution, as DescribeExecution shows it.
#[derive(Debug)]
pub struct Described {
    pub status: String,
    /// None if it is not in the answer.
    pub input: Option<Value>,
    /// None while it runs, and if it failed.
    pub output: Option<Value>,
    /// `stopDate`. None while it runs.
    pub ended_at: Option<Timestamp>,
}

impl Executions {
    pub fn new(aws: &SdkConfig) -> Self {
        Self {
            client: Client::new(aws),
        }
    }

    /// Returns the execution's status. None if the execution does not exist, or no longer exists.
    pub async fn find_status(&self, execution: &ExecutionArn) -> Result<Option<String>, Error> {
        Ok(self.describe(execution).await?.map(|described| described.status))
    }

    /// Describes an execution. None if it does not exist, or no longer exists.
    /// An answer without a status is an error, because the SDK fills in a value of its own.
    pub async fn describe(&self, execution: &ExecutionArn) -> Result<Option<Described>, Error> {
        let answer = self
            .client
            .describe_execution()
            .execution_arn(execution.as_str())
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_EXECUTION, error));
        match answer {
            Ok(answer) => {
                let status = check_status(DESCRIBE_EXECUTION, answer.status())?;
                let read = |text: Option<&str>| text.and_then(|text| serde_json::from_str(text).ok());
                Ok(Some(Described {
                    status: status.as_str().to_owned(),
                    input: read(answer.input()),
                    output: read(answer.output()),
                    ended_at: answer.stop_date().and_then(to_timestamp),
                }))
            }
            Err(error) if matches!(error.code(), Some("ExecutionDoesNotExist" | "InvalidArn")) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Describes the execution that holds a claim. If Step Functions does not know it or refuses to answer, the status is the error's name.
    pub async fn find_owner(&self, execution: &ExecutionArn) -> Result<Owner, Error> {
        let (status, ended_at) = match self.describe(execution).await {
            Ok(Some(described)) => (described.status, described.ended_at),
            Ok(None) => ("ExecutionDoesNotExist".to_owned(), None),
            Err(error) if error.failure() == Failure::ServiceRefused => {
                let code = error.code().unwrap_or("refused");
                (code.to_owned(), None)
            }
            Err(error) => return Err(error),
        };
        Ok(Owner {
            execution: execution.clone(),
            status,
            ended_at,
        })
    }

    /// Lists the names of a machine's executions that began at `since` or later and failed, timed out or were stopped.
    /// Ended executions are sorted by their end, the last one first (API reference of ListExecutions). So the list has no more of them
    /// after one that ended before `since`.
    /// A filter takes one status. One call without a filter reads all of them, where three filters would take three calls.
    pub async fn list_ended_badly(&self, machine: &str, since: Timestamp) -> Result<BTreeSet<String>, Error> {
        let mut names = BTreeSet::new();
        let mut token = None;
        loop {
            let page = self
                .client
                .list_executions()
                .state_machine_arn(machine)
                .max_results(LONGEST_PAGE)
                .set_next_token(token)
                .send()
                .await
                .map_err(|error| Error::from_sdk(LIST_EXECUTIONS, error))?;
            let found = page.executions();
            found.iter().try_for_each(check_whole)?;
            let ended_badly = found.iter().filter(|execution| {
                execution.start_date().secs() >= since.as_second() && has_ended_badly(execution.status())
            });
            names.extend(ended_badly.map(|execution| execution.name().to_owned()));
            let is_last = found.iter().any(|execution| has_ended_before(execution, since));
            token = page.next_token().map(str::to_owned).filter(|_| !is_last);
            if token.is_none() {
                return Ok(names);
            }
        }
    }

    /// Checks whether the rotation with these marks still runs, or waits for its redrive.
    pub async fn is_running(
        &self,
        rotation: &ExecutionArn,
        marks: &Marks,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let status = self.find_status(rotation).await?;
        Ok(may_run(status.as_deref(), marks, now))
    }
}

fn to_timestamp(date: &DateTime) -> Option<Timestamp> {
    Timestamp::from_second(date.secs()).ok()
}

/// Checks that the status is one that Step Functions knows. A missing status would be taken for the end of an execution that runs.
fn check_status<'a>(call: &'static str, status: &'a ExecutionStatus) -> Result<&'a ExecutionStatus, Error> {
    if ExecutionStatus::values().contains(&status.as_str()) {
        return Ok(status);
    }
    let what = format!("an execution with the status {:?}", status.as_str());
    Err(Error::Unintelligible { call, what })
}

/// Checks that a listed execution has the status, name and start date by which failures are counted. The SDK fills in what is missing.
fn check_whole(execution: &ExecutionListItem) -> Result<(), Error> {
    check_status(LIST_EXECUTIONS, execution.status())?;
    let what = match (execution.name(), execution.start_date().secs()) {
        ("", _) => "an execution without a name",
        (_, 0) => "an execution without startDate",
        (_, _) => return Ok(()),
    };
    Err(Error::Unintelligible {
        call: LIST_EXECUTIONS,
        what: what.to_owned(),
    })
}

/// A redriven execution that runs again is listed among those that run, whatever its `stopDate` is.
fn has_ended_before(execution: &ExecutionListItem, time: Timestamp) -> bool {
    let runs = matches!(
        execution.status(),
        ExecutionStatus::Running | ExecutionStatus::PendingRedrive
    );
    let has_ended = |end: &DateTime| end.secs() < time.as_second();
    !runs && execution.stop_date().is_some_and(has_ended)
}

fn has_ended_badly(status: &ExecutionStatus) -> bool {
    matches!(
        status,
        ExecutionStatus::Failed | ExecutionStatus::TimedOut | ExecutionStatus::Aborted
    )
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;
    use serde_json::{Value, json};

    use super::*;

    const MACHINE: &str = "arn:aws:states:eu-west-1:123456789012:stateMachine:recycle-eks-recycle-node";

    #[tokio::test]
    async fn an_owner_has_a_status_or_the_name_of_the_error_and_an_outage_is_an_error() {
        let execution = || -> ExecutionArn {
            let arn = MACHINE.replace("stateMachine", "execution");
            format!("{arn}:one").parse().unwrap()
        };
        let ended = json!({"executionArn": execution().as_str(), "status": "ABORTED", "startDate": 100, "stopDate": 200});
        let script = || ScriptedAws::new();
        for (aws, expected) in [
            (
                script().on("DescribeExecution", &ended.to_string()),
                Some(("ABORTED", Some(200))),
            ),
            (
                script().refuses("DescribeExecution", 400, "ExecutionDoesNotExist", "no"),
                Some(("ExecutionDoesNotExist", None)),
            ),
            (
                script().refuses("DescribeExecution", 400, "AccessDeniedException", "no"),
                Some(("AccessDeniedException", None)),
            ),
            (
                script().refuses("DescribeExecution", 503, "ServiceUnavailable", "no"),
                None,
            ),
        ] {
            let owner = Executions::new(&aws.config()).find_owner(&execution()).await;
            let found = owner
                .ok()
                .map(|owner| (owner.status, owner.ended_at.map(Timestamp::as_second)));
            let expected = expected.map(|(status, at): (&str, _)| (status.to_owned(), at));
            assert_eq!(found, expected);
        }
    }

    /// Returns a page of executions with name, status and the seconds in which each began and ended, and the token of the next page.
    fn page(executions: &[(&str, &str, i64, Option<i64>)], next: Option<&str>) -> String {
        let listed: Vec<Value> = executions
            .iter()
            .map(|(name, status, began, ended)| {
                json!({
                    "executionArn": format!("arn:e:{name}"), "stateMachineArn": MACHINE, "name": name, "status": status,
                    "startDate": began, "stopDate": ended,
                })
            })
            .collect();
        json!({"executions": listed, "nextToken": next}).to_string()
    }

    async fn list(aws: &ScriptedAws) -> Result<Vec<String>, Error> {
        let since = Timestamp::from_second(100).unwrap();
        let executions = Executions::new(&aws.config());
        let names = executions.list_ended_badly(MACHINE, since).await?;
        Ok(names.into_iter().collect())
    }

    #[tokio::test]
    async fn failed_timed_out_and_stopped_executions_are_listed_with_one_call() {
        let found = [
            ("runs", "RUNNING", 500, None),
            ("redriven", "PENDING_REDRIVE", 400, None),
            ("failed", "FAILED", 300, Some(310)),
            ("earlier", "FAILED", 99, Some(300)),
            ("late", "TIMED_OUT", 250, Some(260)),
            ("stopped", "ABORTED", 200, Some(210)),
            ("done", "SUCCEEDED", 150, Some(160)),
            ("first", "FAILED", 100, Some(110)),
            ("before", "FAILED", 98, Some(99)),
        ];
        let aws = ScriptedAws::new().on("ListExecutions", &page(&found, Some("older")));
        assert_eq!(list(&aws).await.unwrap(), ["failed", "first", "late", "stopped"]);
        let calls = aws.calls();
        assert_eq!(calls.len(), 1, "older pages are not read");
        assert!(
            calls[0].contains(MACHINE) && !calls[0].contains("statusFilter"),
            "{calls:?}"
        );
    }

    #[tokio::test]
    async fn pages_are_read_until_one_ended_before_the_rotation_began() {
        let long = [("a", "FAILED", 300, Some(400)), ("long", "FAILED", 50, Some(350))];
        let last = [("b", "ABORTED", 200, Some(300)), ("runs", "RUNNING", 90, None)];
        let aws = ScriptedAws::new()
            .on("ListExecutions", &page(&long, Some("two")))
            .on("ListExecutions", &page(&last, None));
        assert_eq!(list(&aws).await.unwrap(), ["a", "b"]);
        assert!(aws.calls()[1].contains("two"), "{:?}", aws.calls());
        assert_eq!(aws.exchanges_left(), 0);
    }

    #[tokio::test]
    async fn a_refused_listing_is_an_error() {
        let aws = ScriptedAws::new().refuses("ListExecutions", 400, "AccessDeniedException", "no");
        assert_eq!(
            list(&aws).await.unwrap_err().code(),
            Some("AccessDeniedException")
        );
    }
}
