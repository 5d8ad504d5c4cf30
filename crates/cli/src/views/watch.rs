//! Watching: looks again and again, politely, until something has ended or the person goes.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::aws::installation::Installation;
use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::base::exit::Exit;
use crate::history::end::{describe_end, exit_of};
use crate::history::node::Story;
use crate::views::node::frame;
use crate::views::output::Output;
use crate::views::viewer::{Frame, Viewer};

/// Seconds between two looks at one execution. GetExecutionHistory has a quota for the account: 20 a second at first, 5 later
/// (Step Functions guide, "Quotas"), which ten people watching do not reach.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// So many times as long it takes until the cluster is looked at again.
const LOOKS_OF_CLUSTER: u32 = 6;
/// Another number of seconds, for the local world of the tests.
const LOOK_AGAIN_VARIABLE: &str = "RECYCLE_EKS_LOOK_AGAIN_SECONDS";
/// How many looks in a row may meet an outage: five minutes with what the SDK tries by itself.
const MOST_OUTAGES: u32 = 30;

/// Waits until the next look.
pub(crate) async fn pause() {
    let told = std::env::var(LOOK_AGAIN_VARIABLE).ok();
    let told = told.and_then(|text| Duration::try_from_secs_f64(text.parse().ok()?).ok());
    tokio::time::sleep(told.unwrap_or(LOOK_AGAIN)).await;
}

/// Waits until the next look at what `select-nodes` tells: it reads the whole cluster.
async fn pause_for_cluster() {
    for _ in 0..LOOKS_OF_CLUSTER {
        pause().await;
    }
}

/// When to look again.
pub(crate) enum Next {
    Soon,
    /// No sooner than the cluster changes.
    Later,
    /// Not any more: it is over.
    Over(Exit),
}

impl Next {
    pub(crate) fn of(over: Option<Exit>) -> Self {
        over.map_or(Self::Soon, Self::Over)
    }
}

/// Watches something for a person, until it is over or they press Ctrl-C.
pub(crate) struct Watch<'a> {
    pub output: &'a Output,
    interrupts: Signal,
}

impl<'a> Watch<'a> {
    /// Hears Ctrl-C from now on. Call this before you print what was started: a person who presses Ctrl-C then reads that it goes on.
    pub(crate) fn begin(output: &'a Output) -> Result<Self> {
        let interrupts = signal(SignalKind::interrupt()).map_err(Error::Output)?;
        Ok(Self { output, interrupts })
    }

    /// Looks until it is over; an outage of AWS is waited out. `None`: Ctrl-C.
    pub(crate) async fn until_over(
        &mut self,
        mut look: impl AsyncFnMut(Timestamp) -> Result<(Frame, Next)>,
    ) -> Result<Option<Exit>> {
        let (mut viewer, mut outages) = (Viewer::new(self.output), 0);
        let watching = async {
            loop {
                match look(clock::now()).await {
                    Ok((frame, next)) => {
                        outages = 0;
                        viewer.show(&frame)?;
                        match next {
                            Next::Soon => pause().await,
                            Next::Later => pause_for_cluster().await,
                            Next::Over(exit) => return Ok(exit),
                        }
                    }
                    Err(error) if error.is_outage() && outages < MOST_OUTAGES => {
                        outages += 1;
                        pause().await;
                    }
                    Err(error) => return Err(error),
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
    pub(crate) async fn watch_node(&mut self, installation: &Installation, arn: &str) -> Result<Exit> {
        let mut story = Story::default();
        let over = self.until_over(async |now| {
            installation.states.read_on(arn, &mut story).await?;
            let exit = story.end.as_ref().map(exit_of);
            Ok((frame(arn, &story, now), Next::of(exit)))
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
