//! Handles an outage of AWS or the cluster: wait, as long as there is time. A failure would leave a drained node in Standby.

use jiff::Timestamp;
use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::contract::run::Run;
use recycle::contract::verdicts::DisposeVerdict;
use recycle::disposal::next_step::wait_for_answer;

use crate::{Answered, Error};

/// Turns a temporary error into a wait, as long as there is time.
pub(crate) fn wait_out(error: Error, run: Run, now: Timestamp) -> Answered {
    // A Node that vanished between two calls is missing at the next call.
    let may_pass = error.failure() == Failure::ServiceUnavailable
        || matches!(error, Error::Node(kubernetes::Error::NodeGone { .. }));
    let since = run.disposing_since.unwrap_or(now);
    let wait = wait_for_answer(since, now, run.input.load_balancer_grace);
    let Some(wait) = wait.filter(|_| may_pass) else {
        return Err(error);
    };
    let reason = format!("the disposal cannot go on: {}", with_causes(&error));
    Ok(Answer::new(DisposeVerdict::Wait, reason)
        .waiting(wait)
        .carrying(run))
}

#[cfg(test)]
mod tests {
    use scripted_kube::ScriptedKube;

    use super::*;
    use crate::fixtures::facts;

    #[tokio::test]
    async fn an_outage_is_waited_out_while_there_is_time() {
        let mut run = facts(&ScriptedKube::new(), "terminate", "running").run;
        let since: Timestamp = "2027-01-01T20:00:00Z".parse().unwrap();
        run.disposing_since = Some(since);
        let at = |minutes: i64| since + jiff::SignedDuration::from_mins(minutes);
        let away = || {
            Error::Node(kubernetes::Error::Unreachable {
                call: "get nodes node-a".to_owned(),
                source: "connection refused".into(),
            })
        };

        let answer = wait_out(away(), run.clone(), at(20)).unwrap();
        assert_eq!((answer.verdict, answer.wait_seconds), (DisposeVerdict::Wait, 30));
        assert!(answer.reason.contains("connection refused"), "{}", answer.reason);

        let gone = Error::Node(kubernetes::Error::NodeGone {
            node: "node-a".to_owned(),
        });
        let answer = wait_out(gone, run.clone(), at(20)).unwrap();
        assert_eq!(
            answer.verdict,
            DisposeVerdict::Wait,
            "the next call finds no Node"
        );
        let lost = Error::Ended(Failure::NodeLost, "it is lost".to_owned());
        assert!(wait_out(lost, run.clone(), at(20)).is_err());
        assert!(wait_out(away(), run.clone(), at(41)).is_err(), "the time is over");
        assert!(
            wait_out(
                Error::Ended(Failure::ServiceRefused, "no".to_owned()),
                run,
                at(20)
            )
            .is_err(),
            "the error is permanent"
        );
    }
}
