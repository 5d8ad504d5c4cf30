//! Watching: looks again and again, politely, until something has ended or the person goes.

use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::aws::executions::Executions;
use crate::aws::installation::Installation;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::exit::Exit;
use crate::history::end::{describe_end, exit_of};
use crate::history::node::{End, Story};
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

/// What a look has found.
pub(crate) enum Look {
    /// There is more to come.
    GoOn(Frame),
    /// The same, and it comes no sooner than the cluster changes.
    GoOnSlowly(Frame),
    /// It is over.
    Over(Frame, Exit),
}

/// Hears Ctrl-C from now on: before anybody is told what was started, so that whoever goes then is told that it goes on.
pub(crate) fn hear_interrupts() -> Result<Signal, Error> {
    signal(SignalKind::interrupt()).map_err(Error::Output)
}

/// Looks until it is over; an outage of AWS is waited out. `None`: Ctrl-C.
pub(crate) async fn until_over(
    viewer: &mut Viewer<'_>,
    interrupts: &mut Signal,
    mut look: impl AsyncFnMut(Timestamp) -> Result<Look, Error>,
) -> Result<Option<Exit>, Error> {
    let mut outages = 0;
    let watching = async {
        loop {
            match look(clock::now()).await {
                Ok(Look::Over(frame, exit)) => {
                    viewer.show(&frame)?;
                    return Ok(exit);
                }
                Ok(Look::GoOn(frame)) => {
                    outages = 0;
                    viewer.show(&frame)?;
                }
                Ok(Look::GoOnSlowly(frame)) => {
                    outages = 0;
                    viewer.show(&frame)?;
                    pause_for_cluster().await;
                    continue;
                }
                Err(error) if error.is_outage() && outages < MOST_OUTAGES => outages += 1,
                Err(error) => return Err(error),
            }
            pause().await;
        }
    };
    tokio::select! {
        over = watching => over.map(Some),
        _ = interrupts.recv() => Ok(None),
    }
}

/// Watches an execution of `recycle-node` to its end.
pub(crate) async fn watch_node(
    installation: &Installation,
    output: &Output,
    arn: &str,
    interrupts: &mut Signal,
) -> Result<Exit, Error> {
    let executions = Executions::new(&installation.aws);
    let (mut story, mut viewer) = (Story::default(), Viewer::new(output));
    let over = until_over(&mut viewer, interrupts, async |now| {
        executions.read_on(arn, &mut story).await?;
        let shown = frame(arn, &story, now);
        Ok(match &story.end {
            Some(end) => Look::Over(shown, exit_of(end)),
            None => Look::GoOn(shown),
        })
    })
    .await?;
    match (over, &story.end) {
        (Some(exit), Some(end)) => {
            tell_end(output, end)?;
            Ok(exit)
        }
        (Some(_), None) | (None, _) => {
            // Before the first look nothing is known but the execution.
            let what = if story.instance().is_empty() {
                arn
            } else {
                story.instance()
            };
            leave(output, arn, &format!("recycle-eks status --watch {what}"))
        }
    }
}

fn tell_end(output: &Output, end: &End) -> Result<(), Error> {
    // A terminal's picture ends with it already.
    if output.is_terminal {
        return Ok(());
    }
    output.say(describe_end(end))
}

/// After Ctrl-C.
pub(crate) fn leave(output: &Output, arn: &str, again: &str) -> Result<Exit, Error> {
    output.say(format!(
        "\nnot watched any more; {arn} goes on. To watch it again: {again}"
    ))?;
    output.document(
        &serde_json::json!({"execution_arn": arn, "watched": false, "exit": Exit::Unwatched.code()}),
    )?;
    Ok(Exit::Unwatched)
}
