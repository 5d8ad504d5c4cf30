//! Handles an outage of AWS or the cluster while the node is queued: wait with the usual time between checks, as long as there is time.
//! A failure would give up the place in the queue.

use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::claim::queue::pace_queue;
use recycle::contract::requests::ClaimRequest;
use recycle::contract::verdicts::ClaimVerdict;

use crate::{Answered, Error};

/// Turns a temporary error into a wait, as long as the node may wait in the queue.
/// Before the first answer the error stays an error, and the state machine tries again.
pub(crate) fn wait_out(error: Error, request: ClaimRequest) -> Answered {
    let now = request.context.now();
    let may_pass = error.failure() == Failure::ServiceUnavailable;
    let queued = request.run.filter(|_| may_pass);
    let Some((run, wait)) = queued.and_then(|run| pace_queue(run.claimed_at, now).map(|wait| (run, wait)))
    else {
        return Err(error);
    };
    let reason = format!("cannot read the queue of the group: {}", with_causes(&error));
    Ok(Answer::new(ClaimVerdict::Wait, reason)
        .waiting(wait)
        .carrying(run))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{request, run};

    fn away() -> Error {
        Error::Node(kubernetes::Error::Unreachable {
            call: "list nodes".to_owned(),
            source: "connection refused".into(),
        })
    }

    #[test]
    fn a_queued_node_waits_out_an_outage_while_there_is_time() {
        let at = |time: &str| {
            let mut request = request(&serde_json::to_value(run()).unwrap());
            request.context.state.entered_time = time.parse().unwrap();
            request
        };
        let answer = wait_out(away(), at("2027-01-01T10:00:00Z")).unwrap();
        assert_eq!((answer.verdict, answer.wait_seconds), (ClaimVerdict::Wait, 360));
        assert!(answer.reason.contains("connection refused"), "{}", answer.reason);
        assert_eq!(answer.run, Some(run()));

        assert!(
            wait_out(away(), at("2027-01-02T00:00:00Z")).is_err(),
            "the time is over"
        );
        assert!(
            wait_out(away(), request(&json!({}))).is_err(),
            "it is not in the queue yet"
        );
        assert!(
            wait_out(Error::Refused("no".to_owned()), at("2027-01-01T10:00:00Z")).is_err(),
            "the error is permanent"
        );
    }
}
