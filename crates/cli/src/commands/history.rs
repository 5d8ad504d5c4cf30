//! `status --history`: lists recent executions, with how each ended and the command for more.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use recycle::base::ids::InstanceId;
use recycle::report::event::{End, Execution};
use serde_json::{Value, json};

use crate::aws::installation::Installation;
use crate::aws::nodes::find_node;
use crate::aws::past::find_of_gone;
use crate::aws::step_functions::Listed;
use crate::base::clock;
use crate::base::error::{Result, misuse};
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
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
    let found = stream::iter(found).map(|(listed, is_rotation)| describe(installation, listed, is_rotation));
    let mut found: Vec<Past> = found.buffered(AT_ONCE).try_collect().await?;
    if let Wanted::Node(instance) = &wanted {
        found.retain(|past| past.instance.as_deref() == Some(instance.as_str()));
    }
    let documents: Vec<Value> = found.iter().map(Past::document).collect();
    output.document(&json!({"executions": documents, "older_executions": older}))?;
    show(output, &found, older, now)?;
    Ok(Exit::Done)
}

/// Finds out what the name means: an execution by its ARN or name, an instance, or a Node.
async fn find_wanted(installation: &Installation, of: Option<&str>) -> Result<Wanted> {
    let Some(name) = of else { return Ok(Wanted::All) };
    // The instance of a node that is gone has a history too.
    if let Ok(instance) = name.parse() {
        return Ok(Wanted::Node(instance));
    }
    if name.starts_with("arn:") {
        if !installation.recycles(name) {
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

    /// Keeps the newest executions and the wanted rotation itself, which began before all of its nodes. Returns how many others there are.
    fn cut(&self, found: &mut Vec<(Listed, bool)>) -> usize {
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
        older.len()
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
}

async fn describe(installation: &Installation, listed: Listed, is_rotation: bool) -> Result<Past> {
    let execution = installation.states.find(&listed.arn).await?;
    Ok(Past::new(listed, is_rotation, execution))
}

impl Past {
    fn new(listed: Listed, is_rotation: bool, execution: Option<Execution>) -> Self {
        let input = execution
            .as_ref()
            .map_or(&Value::Null, |execution| &execution.input);
        Self {
            rotation: is_rotation.then(|| Starter::new(listed.arn.clone(), input)),
            is_plan: execution.as_ref().is_some_and(Execution::is_dry_run),
            instance: input["instance_id"].as_str().map(str::to_owned),
            end: execution.and_then(|execution| execution.end),
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
        let more = recycle_eks("report EXECUTION --file report.html");
        return output.say(format!("\nfor more about one of them: {more}"));
    }
    output.say(format!(
        "\nfor more about the last execution of an instance: {}",
        recycle_eks("report INSTANCE --file report.html")
    ))?;
    output.say(format!(
        "the names of the executions, for which this terminal is too narrow: {}",
        recycle_eks("status --history --output json")
    ))
}

/// Draws a failure, a rotation that runs, and a plan, for the pictures of the screens.
#[cfg(test)]
pub(crate) fn draw_sample(now: Timestamp, width: Option<u16>) -> Vec<String> {
    let rows = [
        tests::failed(),
        tests::past("recycle-eks-1795361458684454786-28476", true, json!({}), None),
        tests::planned_node(),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|mut past| {
            past.listed.started_at = now;
            past.listed.ended_at = past.listed.ended_at.map(|_| now);
            past.row(now)
        })
        .collect();
    FORM.draw(&rows, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str) -> Listed {
        Listed {
            arn: format!("arn:aws:states:eu-west-1:123456789012:execution:r-recycle-node:{name}"),
            name: name.to_owned(),
            status: "RUNNING".to_owned(),
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: None,
        }
    }

    pub(super) fn past(name: &str, is_rotation: bool, input: Value, end: Option<End>) -> Past {
        let listed = Listed {
            ended_at: end.as_ref().map(|_| Timestamp::UNIX_EPOCH),
            ..listed(name)
        };
        let execution = Execution {
            arn: listed.arn.clone(),
            input,
            started_at: listed.started_at,
            ended_at: listed.ended_at,
            end,
        };
        Past::new(listed, is_rotation, Some(execution))
    }

    pub(super) fn failed() -> Past {
        let end = End {
            status: "FAILED".to_owned(),
            error: "DrainTimedOut".to_owned(),
            cause:
                "it waits for 1 pod (data-platform-production/training-2fz8x)\nThen a line that no list shows"
                    .to_owned(),
            ..End::default()
        };
        let input = json!({"instance_id": "i-0123456789abcdef0"});
        past("schedule-i-0123456789abcdef0-1a2b3c4d5e", false, input, Some(end))
    }

    pub(super) fn planned_node() -> Past {
        let end = End {
            status: "SUCCEEDED".to_owned(),
            output: json!({"outcome": "planned"}),
            ..End::default()
        };
        let input = json!({"instance_id": "i-0123456789abcdef0", "dry_run": true});
        past("manual-i-0123456789abcdef0-0f1e2d3c4b", false, input, Some(end))
    }

    #[test]
    fn the_list_of_a_rotation_has_its_own_row_and_far_more_nodes_than_the_list_of_all() {
        let own = listed("weekly");
        let rotation = Wanted::Rotation(Starter::new(own.arn.clone(), &json!({})));
        for (wanted, nodes, kept, has_own) in [
            (&rotation, 60, 61, true),
            (&rotation, 250, 201, true),
            (&Wanted::All, 60, 50, false),
        ] {
            // The newest execution comes first, so the rotation comes last.
            let mut found: Vec<(Listed, bool)> = (0..nodes)
                .map(|number| (listed(&format!("manual-{number}")), false))
                .collect();
            found.push((own.clone(), true));
            let older = wanted.cut(&mut found);
            assert_eq!((found.len(), older), (kept, nodes + 1 - kept));
            assert_eq!(found.contains(&(own.clone(), true)), has_own, "{nodes}");
        }
    }

    #[test]
    fn a_plan_is_planned_and_recycles_nothing() {
        let planned = json!({"outcome": "rotated", "reason": "2 nodes to recycle, in 1 of 1 group",
            "groups": [{"group": "workers", "recycled": 0, "left": 2, "why": ["planned"], "error": [], "reason": "2 nodes"}]});
        let end = End {
            status: "SUCCEEDED".to_owned(),
            output: planned,
            ..End::default()
        };
        let plan = past("recycle-eks-1-1", true, json!({"dry_run": true}), Some(end));
        let row = plan.row(Timestamp::UNIX_EPOCH);
        assert_eq!(
            [&row[2], &row[3], &row[5]],
            ["planned", "a plan", "group workers: 2 nodes"]
        );
        let document = plan.document();
        assert_eq!(
            (&document["is_plan"], &document["is_rotation"]),
            (&json!(true), &json!(false))
        );
        let row = planned_node().row(Timestamp::UNIX_EPOCH);
        assert_eq!([&row[2], &row[3]], ["planned", "plan of i-0123456789abcdef0"]);
    }

    #[test]
    fn a_narrow_terminal_shows_the_reason_and_leaves_out_the_names_of_the_executions() {
        let rows = vec![failed().row(Timestamp::UNIX_EPOCH)];
        let lines = FORM.draw(&rows, Some(80));
        assert_eq!(
            lines,
            [
                "STARTED            OUTCOME        OF                   REASON",
                "1970-01-01 00:00Z  DrainTimedOut  i-0123456789abcdef0  it waits for 1 pod (data…",
            ]
        );
        assert!(!FORM.shows(EXECUTION, &rows, Some(80)) && FORM.shows(EXECUTION, &rows, None));
    }
}
