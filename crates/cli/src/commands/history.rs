//! `status --history`: lists recent executions, with how each ended and the command for more.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use recycle::base::ids::InstanceId;
use recycle::report::event::{End, Execution};
use serde_json::{Value, json};

use crate::aws::installation::{Installation, RECYCLING};
use crate::aws::nodes::find_node;
use crate::aws::past::find_of_gone;
use crate::aws::step_functions::Listed;
use crate::base::clock;
use crate::base::error::{Result, misuse};
use crate::base::exit::Exit;
use crate::base::times::{moment, shortly};
use crate::history::end::describe_end;
use crate::history::rotation_end::{RotationEnd, describe_rotation_end};
use crate::history::started_by::{Starter, find_instance, instance_of};
use crate::views::output::Output;
use crate::views::table::Form;

/// How far back the list reaches, in hours: 30 days.
const HOURS: i64 = 720;
/// The maximum number of executions in the list.
const MOST: usize = 50;
/// The same for one node or one rotation. The names of some executions do not say whether they are of that node.
const MOST_OF_ONE: usize = 200;
/// How many executions are described at the same time.
const AT_ONCE: usize = 4;

/// The table of the executions.
const FORM: Form = Form {
    head: &["started", "took", "outcome", "of", "execution", "reason"],
    node: None,
    names: &[OF],
    layouts: &[(false, &[]), (false, &[TOOK]), (false, &[TOOK, EXECUTION])],
};
const TOOK: usize = 1;
const OF: usize = 3;
const EXECUTION: usize = 4;

/// An execution in the list.
struct Past {
    listed: Listed,
    /// The rotation or the plan of a selection, if the execution is one.
    rotation: Option<Starter>,
    is_plan: bool,
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
    let older = wanted.cut(&mut found);
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
    if let Wanted::All = wanted {
        mark_plans(installation, &mut found, &older).await?;
    }
    let documents: Vec<Value> = found.iter().map(Past::document).collect();
    output.document(&json!({"executions": documents, "older_executions": older.len()}))?;
    show(output, &found, older.len(), now)?;
    Ok(Exit::Done)
}

/// Marks the executions that a plan of a selection has started. Their names say so, because not all of them were described.
/// The plan itself may be the newest of the older rotations.
async fn mark_plans(installation: &Installation, found: &mut [Past], older: &[(Listed, bool)]) -> Result<()> {
    let mut plans: Vec<Starter> = found
        .iter()
        .filter(|past| past.is_plan)
        .filter_map(|past| past.rotation.clone())
        .collect();
    if let Some((listed, _)) = older.iter().find(|(_, is_rotation)| *is_rotation) {
        let past = describe(installation, listed.clone(), true).await?;
        plans.extend(past.rotation.filter(|_| past.is_plan));
    }
    for past in found.iter_mut().filter(|past| past.rotation.is_none()) {
        past.is_plan |= plans
            .iter()
            .any(|plan| instance_of(&past.listed.name, plan).is_some());
    }
    Ok(())
}

/// Finds out what the name means: an execution by its ARN or name, an instance, or a Node.
async fn find_wanted(installation: &Installation, of: Option<&str>) -> Result<Wanted> {
    let Some(name) = of else { return Ok(Wanted::All) };
    // The instance of a node that is gone has a history too.
    if let Ok(instance) = name.parse() {
        return Ok(Wanted::Node(instance));
    }
    if name.starts_with("arn:") {
        if !RECYCLING
            .iter()
            .any(|machine| installation.has_execution(machine, name))
        {
            misuse!(
                "with --history an ARN must be that of an execution of recycle-node or rotate-nodes of this installation, but is {name}"
            );
        }
        let Some(execution) = installation.states.find(name).await? else {
            misuse!("there is no execution {name}");
        };
        return Wanted::of(installation, execution);
    }
    if let Some(execution) = installation.find_execution(&installation.states, name).await? {
        return Wanted::of(installation, execution);
    }
    let unknown = match find_node(installation, name).await {
        Ok(node) => return Ok(Wanted::Node(node.instance_id)),
        Err(error) => error,
    };
    match find_of_gone(installation, name).await? {
        Some(execution) => Wanted::of(installation, execution),
        None => Err(unknown),
    }
}

impl Wanted {
    /// Returns the rotation, or the node that the execution is of.
    fn of(installation: &Installation, execution: Execution) -> Result<Self> {
        if installation.has_execution("rotate-nodes", &execution.arn) {
            return Ok(Self::Rotation(Starter::new(execution.arn, &execution.input)));
        }
        let instance = execution.input["instance_id"].as_str().unwrap_or_default();
        match instance.parse() {
            Ok(instance) => Ok(Self::Node(instance)),
            Err(_) => misuse!("the input of the execution {} names no instance", execution.arn),
        }
    }

    /// Keeps the newest executions and the wanted rotation itself, which began before all of its nodes. Returns the others.
    fn cut(&self, found: &mut Vec<(Listed, bool)>) -> Vec<(Listed, bool)> {
        let most = match self {
            Self::All => MOST,
            Self::Node(_) | Self::Rotation(_) => MOST_OF_ONE,
        };
        let mut older = found.split_off(most.min(found.len()));
        if let Self::Rotation(starter) = self
            && let Some(own) = older.iter().position(|(listed, _)| listed.arn == starter.arn)
        {
            found.push(older.remove(own));
        }
        older
    }

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
    let input = execution
        .as_ref()
        .map_or(&Value::Null, |execution| &execution.input);
    Ok(Past {
        rotation: is_rotation.then(|| Starter::new(listed.arn.clone(), input)),
        is_plan: execution.as_ref().is_some_and(Execution::is_dry_run),
        instance: input["instance_id"].as_str().map(str::to_owned),
        end: execution.and_then(|execution| execution.end),
        listed,
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
            rotation: None,
            is_plan: false,
            end,
            listed,
        }
    }

    /// Returns the outcome. A plan that succeeded is planned, whatever its execution says: it has recycled nothing.
    fn outcome(&self) -> &str {
        match &self.end {
            None => "running",
            Some(end) if self.is_plan && matches!(end.outcome(), "rotated" | "SUCCEEDED") => "planned",
            Some(end) => end.outcome(),
        }
    }

    fn reason(&self) -> String {
        let Some(end) = &self.end else {
            return String::new();
        };
        let planned = RotationEnd::read(end).filter(|_| self.is_plan);
        if let Some(planned) = planned {
            let groups = planned
                .list_planned()
                .map(|(group, text)| format!("{group}: {text}"));
            return groups.collect::<Vec<_>>().join("; ");
        }
        let text = if self.rotation.is_some() {
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
            "is_rotation": self.rotation.is_some() && !self.is_plan,
            "is_plan": self.is_plan,
            "instance_id": self.instance,
            "started": self.listed.started_at,
            "ended": self.listed.ended_at,
            "status": self.listed.status,
            "outcome": self.outcome(),
            "reason": self.reason(),
        })
    }

    fn row(&self, now: Timestamp) -> Vec<String> {
        let until = self.listed.ended_at.unwrap_or(now);
        let what = match (&self.instance, self.rotation.is_some(), self.is_plan) {
            (_, true, true) | (None, false, true) => "a plan".to_owned(),
            (_, true, false) => "a rotation".to_owned(),
            (Some(instance), false, true) => format!("plan of {instance}"),
            (Some(instance), false, false) => instance.clone(),
            (None, false, false) => "-".to_owned(),
        };
        vec![
            moment(self.listed.started_at),
            shortly(until.duration_since(self.listed.started_at)),
            self.outcome().to_owned(),
            what,
            self.listed.name.clone(),
            self.reason().lines().next().unwrap_or_default().to_owned(),
        ]
    }
}

/// Prints one line for each execution, the newest first.
fn show(output: &Output, found: &[Past], more: usize, now: Timestamp) -> Result<()> {
    if found.is_empty() && more > 0 {
        let read = MOST_OF_ONE;
        return output.say(format!(
            "no execution of it among the newest {read} of the last 30 days; {more} older ones were not read"
        ));
    }
    if found.is_empty() {
        return output.say("no execution in the last 30 days");
    }
    let width = output.width_of_terminal();
    let rows: Vec<Vec<String>> = found.iter().map(|past| past.row(now)).collect();
    for line in FORM.draw(&rows, width) {
        output.say(line)?;
    }
    if more > 0 {
        output.say(format!("… {more} older executions"))?;
    }
    if FORM.shows(EXECUTION, &rows, width) {
        return output.say("\nfor more about one of them: recycle-eks report EXECUTION --file report.html");
    }
    output.say(
        "\nfor more about the last execution of an instance: recycle-eks report INSTANCE --file report.html",
    )?;
    output.say("the names of the executions, for which this terminal is too narrow: recycle-eks status --history --output json")
}

/// Draws a failure, a rotation that runs, and a plan, for the pictures of the screens.
#[cfg(test)]
pub(crate) fn draw_sample(now: Timestamp, width: Option<u16>) -> Vec<String> {
    let listed = |name: &str, status: &str| Listed {
        arn: name.to_owned(),
        name: name.to_owned(),
        status: status.to_owned(),
        started_at: now,
        ended_at: (status != "RUNNING").then_some(now),
    };
    let mut failed = Past::of_list(listed("schedule-i-0123456789abcdef0-1a2b3c4d5e", "FAILED"));
    failed.end = Some(End {
        status: "FAILED".to_owned(),
        error: "DrainTimedOut".to_owned(),
        cause: "it waits for 1 pod (data-platform-production/training-2fz8x)".to_owned(),
        ..End::default()
    });
    let mut planned = Past::of_list(listed("manual-i-0123456789abcdef0-0f1e2d3c4b", "SUCCEEDED"));
    planned.is_plan = true;
    let running = listed("recycle-eks-1795361458684454786-28476", "RUNNING");
    let running = Past {
        rotation: Some(Starter::new(running.arn.clone(), &json!({}))),
        ..Past::of_list(running)
    };
    let rows: Vec<Vec<String>> = [failed, running, planned]
        .iter()
        .map(|past| past.row(now))
        .collect();
    FORM.draw(&rows, width)
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

    #[test]
    fn the_list_of_a_rotation_has_its_own_row_and_far_more_nodes_than_the_list_of_all() {
        let own = listed("weekly", "FAILED");
        let rotation = Wanted::Rotation(Starter::new(own.arn.clone(), &json!({})));
        for (wanted, nodes, kept, has_own) in [
            (&rotation, 60, 61, true),
            (&rotation, 250, 201, true),
            (&Wanted::All, 60, 50, false),
        ] {
            // The newest execution comes first, so the rotation comes last.
            let mut found: Vec<(Listed, bool)> = (0..nodes)
                .map(|number| (listed(&format!("manual-{number}"), "SUCCEEDED"), false))
                .collect();
            found.push((own.clone(), true));
            let older = wanted.cut(&mut found);
            assert_eq!((found.len(), older.len()), (kept, nodes + 1 - kept));
            assert_eq!(found.contains(&(own.clone(), true)), has_own, "{nodes}");
        }
    }

    #[test]
    fn a_plan_is_planned_and_recycles_nothing() {
        let planned = json!({"outcome": "rotated", "reason": "2 nodes to recycle, in 1 of 1 groups",
            "groups": [{"group": "workers", "recycled": 0, "left": 2, "why": ["planned"], "error": [], "reason": "2 nodes"}]});
        let rotation = listed("recycle-eks-1-1", "SUCCEEDED");
        let past = Past {
            rotation: Some(Starter::new(rotation.arn.clone(), &json!({}))),
            is_plan: true,
            instance: None,
            end: Some(End {
                status: "SUCCEEDED".to_owned(),
                output: planned,
                ..End::default()
            }),
            listed: rotation,
        };
        let row = past.row(Timestamp::UNIX_EPOCH);
        assert_eq!(
            [&row[2], &row[3], &row[5]],
            ["planned", "a plan", "group workers: 2 nodes"]
        );
        let document = past.document();
        assert_eq!(
            (&document["is_plan"], &document["is_rotation"]),
            (&json!(true), &json!(false))
        );
        let mut node = Past::of_list(listed("manual-i-0123456789abcdef0-1a2b3c", "SUCCEEDED"));
        node.is_plan = true;
        let row = node.row(Timestamp::UNIX_EPOCH);
        assert_eq!([&row[2], &row[3]], ["planned", "plan of i-0123456789abcdef0"]);
    }

    #[test]
    fn a_narrow_terminal_shows_the_reason_and_leaves_out_the_names_of_the_executions() {
        let mut past = Past::of_list(listed("schedule-i-0123456789abcdef0-1a2b3c4d5e", "FAILED"));
        past.end = Some(End {
            status: "FAILED".to_owned(),
            error: "DrainTimedOut".to_owned(),
            cause: "it waits for 1 pod (default/training-2fz8x), and one more line follows".to_owned(),
            ..End::default()
        });
        let rows = vec![past.row(Timestamp::UNIX_EPOCH)];
        let lines = FORM.draw(&rows, Some(80));
        assert_eq!(
            lines,
            [
                "STARTED            OUTCOME        OF                   REASON",
                "1970-01-01 00:00Z  DrainTimedOut  i-0123456789abcdef0  it waits for 1 pod (defa…",
            ]
        );
        assert!(!FORM.shows(EXECUTION, &rows, Some(80)) && FORM.shows(EXECUTION, &rows, None));
    }
}
