//! `status --history`: lists recent executions, with how each ended and the command for more.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use recycle::base::ids::InstanceId;
use recycle::report::event::End;
use serde_json::{Value, json};

use crate::aws::installation::Installation;
use crate::aws::nodes::find_node;
use crate::aws::step_functions::Listed;
use crate::base::clock;
use crate::base::error::{Result, misuse};
use crate::base::exit::Exit;
use crate::base::times::{moment, shortly};
use crate::history::end::describe_end;
use crate::history::rotation_end::describe_rotation_end;
use crate::history::started_by::{Starter, find_instance, instance_of};
use crate::views::output::Output;
use crate::views::viewer::shorten_end;

/// How far back the list reaches, in hours: 30 days.
const HOURS: i64 = 720;
/// The maximum number of executions in the list.
const MOST: usize = 50;
/// The same for one node, because the names of some executions do not say whether they are of that node.
const MOST_OF_NODE: usize = 200;
/// How many executions are described at the same time.
const AT_ONCE: usize = 4;

/// An execution in the list.
struct Past {
    listed: Listed,
    is_rotation: bool,
    instance: Option<String>,
    end: Option<End>,
}

/// The executions that are wanted.
enum Wanted {
    All,
    Node(InstanceId),
    Rotation(Starter),
}

pub(super) async fn run(installation: &Installation, output: &Output, of: Option<&str>) -> Result<Exit> {
    let wanted = find_wanted(installation, of).await?;
    let now = clock::now();
    let since = now
        .checked_sub(SignedDuration::from_hours(HOURS))
        .unwrap_or(Timestamp::MIN);
    let mut found = Vec::new();
    for (machine, is_rotation) in [("rotate-nodes", true), ("recycle-node", false)] {
        let listed = installation
            .states
            .list_since(&installation.machine(machine), since)
            .await?;
        found.extend(listed.into_iter().map(|listed| (listed, is_rotation)));
    }
    found.retain(|(listed, is_rotation)| wanted.may_be(listed, *is_rotation));
    found.sort_by_key(|(listed, _)| std::cmp::Reverse(listed.started_at));
    let most = if let Wanted::Node(_) = wanted {
        MOST_OF_NODE
    } else {
        MOST
    };
    let more = found.len().saturating_sub(most);
    found.truncate(most);
    let found = stream::iter(found).map(async |(listed, is_rotation)| {
        if wanted.needs_description(&listed, is_rotation) {
            describe(installation, listed, is_rotation).await
        } else {
            Ok(Past::of_list(listed))
        }
    });
    let mut found: Vec<Past> = found.buffered(AT_ONCE).try_collect().await?;
    if let Wanted::Node(instance) = &wanted {
        found.retain(|past| past.instance.as_deref() == Some(instance.as_str()));
    }
    let documents: Vec<Value> = found.iter().map(Past::document).collect();
    output.document(&json!({"executions": documents, "older_executions": more}))?;
    show(output, &found, more, now)?;
    Ok(Exit::Done)
}

async fn find_wanted(installation: &Installation, of: Option<&str>) -> Result<Wanted> {
    let Some(name) = of else { return Ok(Wanted::All) };
    if name.starts_with("arn:") {
        if !installation.has_execution("rotate-nodes", name) {
            misuse!("with --history an ARN must be that of a rotation of this installation, but is {name}");
        }
        let Some(execution) = installation.states.find(name).await? else {
            misuse!("there is no execution {name}");
        };
        return Ok(Wanted::Rotation(Starter::new(name.to_owned(), &execution.input)));
    }
    // The instance of a node that is gone has a history too.
    Ok(Wanted::Node(match name.parse() {
        Ok(instance) => instance,
        Err(_) => find_node(installation, name).await?.instance_id,
    }))
}

impl Wanted {
    /// Checks the name of an execution. Names that the command line gives have no instance: their inputs decide later.
    fn may_be(&self, listed: &Listed, is_rotation: bool) -> bool {
        match self {
            Self::All => true,
            Self::Node(instance) => {
                !is_rotation && find_instance(&listed.name).is_none_or(|named| named == *instance)
            }
            Self::Rotation(starter) => {
                listed.arn == starter.arn || (!is_rotation && instance_of(&listed.name, starter).is_some())
            }
        }
    }

    /// Whether an execution takes a call of its own. In the list of all, an execution of a node that did not fail takes none, because its
    /// name says the instance, and its status is enough.
    fn needs_description(&self, listed: &Listed, is_rotation: bool) -> bool {
        let is_known = !is_rotation && !listed.has_failed() && find_instance(&listed.name).is_some();
        !is_known || !matches!(self, Self::All)
    }
}

async fn describe(installation: &Installation, listed: Listed, is_rotation: bool) -> Result<Past> {
    let execution = installation.states.find(&listed.arn).await?;
    let instance = execution
        .as_ref()
        .and_then(|execution| execution.input["instance_id"].as_str());
    Ok(Past {
        instance: instance.map(str::to_owned),
        end: execution.and_then(|execution| execution.end),
        listed,
        is_rotation,
    })
}

impl Past {
    /// Returns what the list says about an execution of a node. Its outcome is its status.
    fn of_list(listed: Listed) -> Self {
        let end = listed.ended_at.map(|_| End {
            status: listed.status.clone(),
            ..End::default()
        });
        Self {
            instance: find_instance(&listed.name).map(|id| id.to_string()),
            end,
            listed,
            is_rotation: false,
        }
    }

    fn outcome(&self) -> &str {
        self.end.as_ref().map_or("running", End::outcome)
    }

    fn reason(&self) -> String {
        let Some(end) = &self.end else {
            return String::new();
        };
        let text = if self.is_rotation {
            describe_rotation_end(end)
        } else {
            describe_end(end)
        };
        let outcome = format!("{}: ", end.outcome());
        text.strip_prefix(&outcome)
            .map_or_else(String::new, str::to_owned)
    }

    fn document(&self) -> Value {
        json!({
            "execution_arn": self.listed.arn,
            "is_rotation": self.is_rotation,
            "instance_id": self.instance,
            "started": self.listed.started_at,
            "ended": self.listed.ended_at,
            "status": self.listed.status,
            "outcome": self.outcome(),
            "reason": self.reason(),
        })
    }

    fn row(&self, now: Timestamp) -> [String; 6] {
        let until = self.listed.ended_at.unwrap_or(now);
        let what = match (&self.instance, self.is_rotation) {
            (_, true) => "a rotation",
            (Some(instance), false) => instance.as_str(),
            (None, false) => "-",
        };
        [
            moment(self.listed.started_at),
            shortly(until.duration_since(self.listed.started_at)),
            self.outcome().to_owned(),
            what.to_owned(),
            self.listed.name.clone(),
            self.reason().lines().next().unwrap_or_default().to_owned(),
        ]
    }
}

/// Prints one line for each execution, the newest first.
fn show(output: &Output, found: &[Past], more: usize, now: Timestamp) -> Result<()> {
    if found.is_empty() && more > 0 {
        let read = MOST_OF_NODE;
        return output.say(format!(
            "no execution of it among the newest {read} of the last 30 days; {more} older ones were not read"
        ));
    }
    if found.is_empty() {
        return output.say("no execution in the last 30 days");
    }
    let columns = output.width_of_terminal().map_or(usize::MAX, usize::from);
    let head = ["STARTED", "TOOK", "OUTCOME", "OF", "EXECUTION", "REASON"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head)
        .chain(found.iter().map(|past| past.row(now)))
        .collect();
    for line in draw(&rows, columns) {
        output.say(line)?;
    }
    if more > 0 {
        output.say(format!("… {more} older executions"))?;
    }
    output.say("\nfor more about one of them: recycle-eks report EXECUTION --file report.html")
}

fn draw(rows: &[[String; 6]], columns: usize) -> Vec<String> {
    let width = |index: usize| {
        rows.iter()
            .map(|row| row[index].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let lines = rows.iter().map(|row| {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        shorten_end(cells.join("  ").trim_end(), columns)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, status: &str) -> Listed {
        let running = status == "RUNNING";
        Listed {
            arn: format!("arn:aws:states:eu-west-1:123456789012:execution:r-recycle-node:{name}"),
            name: name.to_owned(),
            status: status.to_owned(),
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: (!running).then_some(Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn the_list_of_all_describes_failures_rotations_and_executions_whose_names_have_no_instance() {
        let (named, nameless) = ("schedule-i-0123456789abcdef0-1a2b3c", "recycle-eks-1-1");
        let instance = Wanted::Node("i-0123456789abcdef0".parse().unwrap());
        for (wanted, name, status, is_rotation, expected) in [
            (&Wanted::All, named, "SUCCEEDED", false, false),
            (&Wanted::All, named, "RUNNING", false, false),
            (&Wanted::All, named, "FAILED", false, true),
            (&Wanted::All, named, "ABORTED", false, true),
            (&Wanted::All, nameless, "SUCCEEDED", false, true),
            (&Wanted::All, "weekly", "SUCCEEDED", true, true),
            (&instance, named, "SUCCEEDED", false, true),
        ] {
            let found = wanted.needs_description(&listed(name, status), is_rotation);
            assert_eq!(found, expected, "{name} {status}");
        }
    }

    #[test]
    fn an_execution_that_is_not_described_has_its_status_and_no_reason() {
        for (status, outcome) in [("SUCCEEDED", "SUCCEEDED"), ("RUNNING", "running")] {
            let past = Past::of_list(listed("schedule-i-0123456789abcdef0-1a2b3c", status));
            assert_eq!((past.outcome(), past.reason().as_str()), (outcome, ""));
            assert_eq!(past.document()["instance_id"], "i-0123456789abcdef0");
        }
    }
}
