//! Handles an outage while the replacement is awaited: wait with the usual time between checks, as long as there is time.
//! A failure would give up the node.

use jiff::Timestamp;
use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::poll::next_wait;
use recycle::contract::run::Run;
use recycle::contract::verdicts::StandbyVerdict;

use crate::{Answered, Error};

/// Turns a temporary error into a wait, as long as there is time for the replacement.
/// Before EnterStandby the error stays an error: nothing was touched yet, and the state machine tries again.
pub(crate) fn wait_out(error: Error, run: Run, now: Timestamp) -> Answered {
    let may_pass = error.failure() == Failure::ServiceUnavailable;
    let Some(since) = run.replacement_since.filter(|_| may_pass) else {
        return Err(error);
    };
    let waited = now.duration_since(since).as_secs();
    let left = i64::from(run.input.replacement_timeout) - waited;
    if left <= 0 {
        return Err(error);
    }
    let reason = format!("cannot check the replacement: {}", with_causes(&error));
    Ok(Answer::new(StandbyVerdict::Wait, reason)
        .waiting(next_wait(waited, left, 0, None))
        .carrying(run))
}

#[cfg(test)]
mod tests {
    use scripted_kube::ScriptedKube;

    use super::*;
    use crate::fixtures::facts;

    fn away() -> Error {
        Error::Node(kubernetes::Error::Unreachable {
            call: "get nodes node-a".to_owned(),
            source: "connection refused".into(),
        })
    }

    #[tokio::test]
    async fn an_outage_is_waited_out_while_there_is_time_for_the_replacement() {
        let run = facts(&ScriptedKube::new()).run;
        let since: Timestamp = "2027-01-01T00:00:00Z".parse().unwrap();
        let waiting = Run {
            replacement_since: Some(since),
            ..run.clone()
        };
        let at = |minutes: i64| since + jiff::SignedDuration::from_mins(minutes);

        let answer = wait_out(away(), waiting.clone(), at(5)).unwrap();
        assert_eq!((answer.verdict, answer.wait_seconds), (StandbyVerdict::Wait, 30));
        assert!(answer.reason.contains("connection refused"), "{}", answer.reason);

        assert!(
            wait_out(away(), waiting.clone(), at(14)).is_err(),
            "the time is over"
        );
        assert!(
            wait_out(away(), run, at(5)).is_err(),
            "Standby was not entered yet"
        );
        assert!(
            wait_out(
                Error::Ended(Failure::PreflightRefused, "no".to_owned()),
                waiting,
                at(5)
            )
            .is_err(),
            "the error is permanent"
        );
    }
}
