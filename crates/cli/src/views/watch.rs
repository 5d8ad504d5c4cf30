//! Watches an execution or the cluster: checks at a limited rate until the subject has ended, or until the operator presses Ctrl-C.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::aws::installation::Installation;
use crate::base::clock;
use crate::base::error::Result;
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::history::end::{describe_end, describe_flags, exit_of};
use crate::history::node::History;
use crate::views::node::frame;
use crate::views::output::Output;
use crate::views::viewer::{Frame, Viewer};

/// The time between two checks of one execution. Ten operators who each watch one make five calls of GetExecutionHistory a second.
/// The account's quota for that call refills by 20 a second (Step Functions guide, "Quotas related to API action throttling").
const CHECK_AGAIN: Duration = Duration::from_secs(2);
/// The factor by which the wait is longer before another check of the cluster, because `serve-operator` reads the whole cluster.
const CHECKS_OF_CLUSTER: u32 = 6;
/// The environment variable with another number of seconds, for the local world of the tests.
const CHECK_AGAIN_VARIABLE: &str = "RECYCLE_EKS_CHECK_AGAIN_SECONDS";
/// The maximum number of checks in a row that may fail because of an outage. With the SDK's own attempts, they take about five minutes.
const MOST_OUTAGES: u32 = 30;

/// Waits `checks` times as long as the time between two checks.
pub(crate) async fn pause(checks: u32) {
    let given = std::env::var(CHECK_AGAIN_VARIABLE).ok();
    let given = given.and_then(|text| Duration::try_from_secs_f64(text.parse().ok()?).ok());
    tokio::time::sleep(given.unwrap_or(CHECK_AGAIN).saturating_mul(checks)).await;
}

/// The time of the next check.
pub(crate) enum Next {
    Soon,
    /// After the longer wait for another check of the cluster.
    Later,
    /// Never, because the watch is over.
    Over(Exit),
}

/// A watch for an operator, until its subject is over or the operator presses Ctrl-C.
pub(crate) struct Watch<'a> {
    pub installation: &'a Installation,
    pub output: &'a Output,
    interrupts: Signal,
}

impl<'a> Watch<'a> {
    /// Catches Ctrl-C from now on. Call this before you print what was started.
    /// An operator who then presses Ctrl-C reads that the execution goes on.
    pub(crate) fn begin(installation: &'a Installation, output: &'a Output) -> Result<Self> {
        Ok(Self {
            installation,
            output,
            interrupts: signal(SignalKind::interrupt())?,
        })
    }

    /// Calls `check` again until it returns the end. An outage of AWS does not end the watch before [`MOST_OUTAGES`] checks in a row.
    /// None after Ctrl-C.
    pub(crate) async fn until_over(
        &mut self,
        mut check: impl AsyncFnMut(Timestamp) -> Result<(Frame, Next)>,
    ) -> Result<Option<Exit>> {
        let (output, mut viewer, mut outages) = (self.output, Viewer::default(), 0);
        let watching = async {
            loop {
                let next = match check(clock::now()).await {
                    Ok((frame, next)) => {
                        outages = 0;
                        viewer.show(output, &frame)?;
                        next
                    }
                    Err(error) if error.is_outage() && outages < MOST_OUTAGES => {
                        outages += 1;
                        Next::Soon
                    }
                    Err(error) => return Err(self.installation.access.explain(error)),
                };
                match next {
                    Next::Soon => pause(1).await,
                    Next::Later => pause(CHECKS_OF_CLUSTER).await,
                    Next::Over(exit) => return Ok(exit),
                }
            }
        };
        tokio::select! {
            over = watching => over.map(Some),
            _ = self.interrupts.recv() => Ok(None),
        }
    }

    /// Prints after Ctrl-C that the execution, or the restore of an instance, goes on, and how to watch it again.
    pub(crate) fn leave(&self, what: &str, again: &str) -> Result<Exit> {
        let exit = Exit::Unwatched;
        let (name, of) = if what.starts_with("arn:") {
            ("execution_arn", "")
        } else {
            ("instance_id", "the restore of ")
        };
        self.output.say(format!(
            "\nstopped watching; {of}{what} goes on. To watch it again: {again}"
        ))?;
        self.output
            .document(&json!({name: what, "watched": false, "exit": exit.code()}))?;
        Ok(exit)
    }

    /// Watches an execution of `recycle-node` until it ends or the operator presses Ctrl-C.
    pub(crate) async fn watch_node(&mut self, arn: &str) -> Result<Exit> {
        let (installation, output, mut history) = (self.installation, self.output, History::default());
        let over = self.until_over(async |now| {
            installation.states.read_on(arn, &mut history).await?;
            let exit = history.end.as_ref().map(exit_of);
            Ok((
                frame(arn, &history, now, output.width()),
                exit.map_or(Next::Soon, Next::Over),
            ))
        });
        let Some(exit) = over.await? else {
            // Before the first check only the execution is known.
            let instance = Some(history.instance()).filter(|instance| !instance.is_empty());
            let again = recycle_eks(format_args!("status --watch {}", instance.unwrap_or(arn)));
            return self.leave(arn, &again);
        };
        if let Some(end) = history.end {
            self.output.say(describe_end(&end))?;
            describe_flags(&end).map_or(Ok(()), |flags| self.output.say(flags))?;
        }
        Ok(exit)
    }
}
