//! Handles an outage of the cluster: wait with the usual time between checks, as long as there is time.
//! A failure would restore the node, and an immediate retry would come every few seconds.

use recycle::answer::envelope::Answer;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::poll::{HOOK_POLL_BUDGET, POLL_BUDGET, next_wait};
use recycle::cluster::hook::HeldByHook;
use recycle::contract::context::Context;
use recycle::contract::run::Run;
use recycle::contract::verdicts::CheckVerdict;
use recycle::drain::terms::find_deadline;
use recycle::notify::blockage::update_blockage;

use crate::{Answered, Error};

/// Turns a temporary error into a wait. Once the last known deadline is over or the poll budget is spent, the error stays an error.
/// An operator may have moved the deadline since, so it is not certain that the drain has timed out.
pub(crate) fn wait_out(error: Error, mut run: Run, context: &Context) -> Answered {
    let now = context.now();
    let since = run.drain.draining_since.unwrap_or(now);
    let drain_timeout = run.input.drain_timeout;
    let planned = find_deadline(since, now, drain_timeout, None).0;
    let deadline = run.drain.drain_until.unwrap_or(planned.at);
    let budget = match run.hook {
        Some(_) => HOOK_POLL_BUDGET,
        None => POLL_BUDGET,
    };
    // A Node that vanished between two calls is missing at the next check.
    let may_pass = matches!(error.failure(), Failure::ServiceUnavailable | Failure::NodeLost);
    if !may_pass || now >= deadline || run.drain.polls > budget {
        return Err(error);
    }
    let waited = now.duration_since(since).as_secs();
    let left = deadline.duration_since(now).as_secs();
    let heartbeat_timeout = run.hook.as_ref().and_then(HeldByHook::heartbeat_timeout);
    let wait = next_wait(waited, left, drain_timeout, heartbeat_timeout);
    let reason = format!("cannot read the cluster: {}", with_causes(&error));
    let (execution, blocks) = (&context.execution.id, [reason.clone()]);
    let notification = update_blockage(&mut run, &blocks, execution, now, deadline, &reason);
    Ok(Answer::new(CheckVerdict::Wait, reason)
        .waiting(wait)
        .with_notification(notification)
        .carrying(run))
}
