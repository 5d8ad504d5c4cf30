//! Watching: looks again and again, politely, until something has ended or the person goes.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::aws::installation::Installation;
use crate::base::clock;
use crate::base::error::Result;
use crate::base::exit::Exit;
use crate::history::end::{describe_end, exit_of};
use crate::history::node::Story;
use crate::views::node::frame;
use crate::views::output::Output;
use crate::views::viewer::{Frame, Viewer};

/// Seconds between two looks at one execution. GetExecutionHistory has a quota for the account: 20 a second at first, 5 later
/// (Step Functions guide, "Quotas"), which ten people watching do not reach.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// After so many times as long a watch looks at the cluster again, because `select-nodes` reads the whole of it.
const LOOKS_OF_CLUSTER: u32 = 6;
/// Another number of seconds, for the local world of the tests.
const LOOK_AGAIN_VARIABLE: &str = "RECYCLE_EKS_LOOK_AGAIN_SECONDS";
/// How many looks in a row may meet an outage: five minutes with what the SDK tries by itself.
const MOST_OUTAGES: u32 = 30;

/// Waits so many times as long as there is between two looks.
pub(crate) async fn pause(looks: u32) {
    let told = std::env::var(LOOK_AGAIN_VARIABLE).ok();
    let told = told.and_then(|text| Duration::try_from_secs_f64(text.parse().ok()?).ok());
    tokio::time::sleep(told.unwrap_or(LOOK_AGAIN).saturating_mul(looks)).await;
}

/// When to look again.
pub(crate) enum Next {
    Soon,
    /// No sooner than the cluster changes.
    Later,
    /// Not any more: it is over.
    Over(Exit),
}

/// Watches something for a person, until it is over or they press Ctrl-C.
pub(crate) struct Watch<'a> {
    pub installation: &'a Installation,
    pub output: &'a Output,
    interrupts: Signal,
}

impl<'a> Watch<'a> {
    /// Hears Ctrl-C from now on. Call this before you print what was started: a person who presses Ctrl-C then reads that it goes on.
    pub(crate) fn begin(installation: &'a Installation, output: &'a Output) -> Result<Self> {
        Ok(Self {
            installation,
            output,
            interrupts: signal(SignalKind::interrupt())?,
        })
    }

    /// Looks until it is over; an outage of AWS is waited out. `None`: Ctrl-C.
    pub(crate) async fn until_over(
        &mut self,
        mut look: impl AsyncFnMut(Timestamp) -> Result<(Frame, Next)>,
    ) -> Result<Option<Exit>> {
        let (output, mut viewer, mut outages) = (self.output, Viewer::default(), 0);
        let watching = async {
            loop {
                let next = match look(clock::now()).await {
                    Ok((frame, next)) => {
                        outages = 0;
                        viewer.show(output, &frame)?;
                        next
                    }
                    Err(error) if error.is_outage() && outages < MOST_OUTAGES => {
                        outages += 1;
                        Next::Soon
                    }
                    Err(error) => return Err(error),
                };
                match next {
                    Next::Soon => pause(1).await,
                    Next::Later => pause(LOOKS_OF_CLUSTER).await,
                    Next::Over(exit) => return Ok(exit),
                }
            }
        };
        tokio::select! {
            over = watching => over.map(Some),
            _ = self.interrupts.recv() => Ok(None),
        }
    }

    /// After Ctrl-C.
    pub(crate) fn leave(&self, arn: &str, again: &str) -> Result<Exit> {
        let exit = Exit::Unwatched;
        self.output.say(format!(
            "\nnot watched any more; {arn} goes on. To watch it again: {again}"
        ))?;
        self.output
            .document(&json!({"execution_arn": arn, "watched": false, "exit": exit.code()}))?;
        Ok(exit)
    }

    /// Watches an execution of `recycle-node` to its end.
    pub(crate) async fn watch_node(&mut self, arn: &str) -> Result<Exit> {
        let (installation, mut story) = (self.installation, Story::default());
        let over = self.until_over(async |now| {
            installation.states.read_on(arn, &mut story).await?;
            let exit = story.end.as_ref().map(exit_of);
            Ok((frame(arn, &story, now), exit.map_or(Next::Soon, Next::Over)))
        });
        let Some(exit) = over.await? else {
            // Before the first look nothing is known but the execution.
            let instance = Some(story.instance()).filter(|instance| !instance.is_empty());
            let again = format!("recycle-eks status --watch {}", instance.unwrap_or(arn));
            return self.leave(arn, &again);
        };
        // A terminal's picture ends with it already.
        if let Some(end) = story.end.filter(|_| !self.output.is_terminal) {
            self.output.say(describe_end(&end))?;
        }
        Ok(exit)
    }
}
