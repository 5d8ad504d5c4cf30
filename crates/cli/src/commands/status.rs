//! `status`: shows every node that carries a mark of recycle-eks, and every running rotation.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use recycle::base::shell::quote;
use recycle::notify::status::NodeStatus;
use recycle::report::event::Execution;
use serde_json::{Value, json};

use crate::args::flags::Status;
use crate::aws::groups::list_paused;
use crate::aws::installation::Installation;
use crate::aws::nodes::fetch_status;
use crate::aws::step_functions::Listed;
use crate::base::clock;
use crate::base::error::{Error, Result, misuse};
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::base::times::clock_face;
use crate::history::node::History;
use crate::history::rotation::RotationHistory;
use crate::history::started_by::{Starter, name_of};
use crate::views::details::list_details;
use crate::views::fleet::{Heading, frame, table};
use crate::views::node::draw_head;
use crate::views::output::Output;
use crate::views::row::{Row, row_of, sort_rows};
use crate::views::viewer::{Frame, Style};
use crate::views::watch::{Next, Watch};

/// The maximum number of nodes whose details are printed below the table.
const MOST_DETAILED: usize = 10;
/// The maximum number of failures that are described, to find out which of them are plans. Older ones count as failures.
const MOST_DESCRIBED: usize = 100;
/// How many of them are described at the same time.
const AT_ONCE: usize = 4;

pub(crate) async fn run(installation: &Installation, output: &Output, wanted: &Status) -> Result<Exit> {
    let node = wanted.node.as_deref();
    if wanted.history {
        return super::history::run(installation, output, node).await;
    }
    if let Some(name) = node {
        let named = installation.find_execution(&installation.states, name).await?;
        let named = named.map(|execution| execution.arn);
        let arn = named.or_else(|| name.starts_with("arn:").then(|| name.to_owned()));
        if let Some(arn) = arn {
            return watch_execution(installation, output, &arn, wanted.watch).await;
        }
    }
    let seen = fetch(installation, node, &mut BTreeMap::new()).await?;
    if let Some(name) = node.filter(|_| seen.rows.is_empty()) {
        let cluster = &installation.cluster;
        // If the cluster cannot be read, the Node may exist, so the error is not a refusal.
        if let Some(why) = seen.cluster_is_away {
            return Err(Error::Unreachable(format!(
                "no instance with a mark of recycle-eks is node {name:?}, and the cluster {cluster} cannot be read: {why}"
            )));
        }
        misuse!(
            "there is no instance and no node {name:?} in cluster {cluster}. For the past of an instance: {}",
            recycle_eks(format_args!("status --history {}", quote(name)))
        );
    }
    if !wanted.watch {
        let mut seen = seen;
        seen.failed = list_failed(installation, node)
            .await
            .map_err(|error| error.to_string());
        return match node {
            Some(_) => show_node(installation, output, &seen).await,
            None => show(output, &seen, clock::now()),
        };
    }
    match seen.only_running().filter(|_| node.is_some()) {
        // The history of the execution shows more about a single node than the marks on the node do.
        Some(arn) => Watch::begin(installation, output)?.watch_node(&arn).await,
        None => watch(installation, output, node).await,
    }
}

/// Watches an execution that is given by its ARN or its name.
async fn watch_execution(
    installation: &Installation,
    output: &Output,
    arn: &str,
    is_watched: bool,
) -> Result<Exit> {
    if !installation.recycles(arn) {
        misuse!(
            "an ARN must be that of an execution of recycle-node or rotate-nodes of this installation, but is {arn}"
        );
    }
    if !is_watched {
        let name = name_of(arn);
        misuse!(
            "an execution needs another command. To watch it: {}. For its history: {}",
            recycle_eks(format_args!("status --watch {name}")),
            recycle_eks(format_args!("report {name}"))
        );
    }
    if installation.states.find(arn).await?.is_none() {
        misuse!("there is no execution {arn}");
    }
    let mut watch = Watch::begin(installation, output)?;
    if installation.has_execution("rotate-nodes", arn) {
        return super::rotate::watch(&mut watch, arn).await;
    }
    watch.watch_node(arn).await
}

/// The state of the cluster and the state machines at one check.
struct Seen {
    /// The executions that ended badly within the last day, the newest first. Not known in a watch.
    /// An error if they could not be listed. The rest is shown then.
    failed: std::result::Result<Vec<Listed>, String>,
    rotations: Vec<Heading>,
    /// The ARNs of rotations that are dry runs.
    plans: Vec<String>,
    /// The groups that are paused, or why this cannot be read.
    paused: std::result::Result<Vec<String>, String>,
    rows: Vec<Row>,
    running: Vec<String>,
    cluster_is_away: Option<String>,
    unreadable_nodes: Option<String>,
}

impl Seen {
    /// Returns the running execution of the only node. None if there are several nodes, or if no execution works on the only one.
    fn only_running(&self) -> Option<String> {
        let [row] = self.rows.as_slice() else { return None };
        row.execution.clone().filter(|arn| self.running.contains(arn))
    }

    /// Whether no rotation runs and no node carries a mark of recycle-eks. False if the cluster cannot be read.
    fn is_quiet(&self) -> bool {
        self.rotations.is_empty() && self.rows.iter().all(Row::is_quiet) && self.cluster_is_away.is_none()
    }

    /// Describes what else an operator should know: plans, pauses, and what cannot be read.
    fn list_remarks(&self) -> Vec<(&'static str, Style, String)> {
        let plans = self.plans.iter().map(|arn| {
            let text = format!("plan {}: a dry run, which changes nothing", name_of(arn));
            ("plan", Style::Dim, text)
        });
        let paused = match &self.paused {
            Ok(none) if none.is_empty() => None,
            Ok(groups) => Some(format!(
                "paused: {}. Rotations start no node there. To let them go on: {}",
                groups.join(", "),
                recycle_eks(format_args!(
                    "resume {}",
                    groups
                        .iter()
                        .map(|group| quote(group))
                        .collect::<Vec<_>>()
                        .join(" ")
                ))
            )),
            Err(why) => Some(format!("pauses cannot be read: {why}")),
        };
        let paused = paused.map(|text| ("paused", Style::Bold, text));
        let away = self.describe_away().map(|text| ("cluster", Style::Bad, text));
        let unreadable = self.unreadable_nodes.clone();
        let unreadable = unreadable.map(|text| ("nodes", Style::Bad, text));
        let failed = self.describe_failed();
        let failed = failed.map(|text| ("failed", Style::Bad, text));
        plans
            .chain(paused)
            .chain(failed)
            .chain(unreadable)
            .chain(away)
            .collect()
    }

    fn describe_failed(&self) -> Option<String> {
        let failed = match &self.failed {
            Ok(failed) => failed,
            Err(why) => return Some(format!("the executions that ended badly cannot be read: {why}")),
        };
        let newest = failed.first()?;
        let count = match failed.len() {
            1 => "1 execution".to_owned(),
            more => format!("{more} executions"),
        };
        Some(format!(
            "in the last 24 hours {count} ended badly, the last one {} ({}). For the reasons: {}",
            newest.name,
            newest.status,
            recycle_eks("status --history")
        ))
    }

    fn describe_away(&self) -> Option<String> {
        let away = self.cluster_is_away.as_ref();
        away.map(|why| format!("the cluster cannot be read, so only marks on instances are shown: {why}"))
    }

    fn frame(&self, clock: String, now: Timestamp, width: u16) -> Frame {
        let mut shown = frame(&self.rotations, &self.rows, clock, now, width);
        for (subject, style, text) in self.list_remarks() {
            shown.picture.push(vec![(style, text.clone())]);
            shown.facts.push((subject.to_owned(), text));
        }
        let document = &mut shown.document;
        document["plans"] = json!(self.plans);
        document["paused_groups"] = json!(self.paused.as_ref().ok());
        document["failed_executions"] = self.failed.as_ref().map_or(Value::Null, |failed| {
            let failed = failed.iter().map(|listed| {
                json!({"execution_arn": listed.arn, "status": listed.status, "started": listed.started_at, "ended": listed.ended_at})
            });
            failed.collect()
        });
        if self.cluster_is_away.is_some() {
            document["cluster_is_away"] = json!(self.cluster_is_away);
        }
        if self.unreadable_nodes.is_some() {
            document["unreadable_nodes"] = json!(self.unreadable_nodes);
        }
        shown
    }
}

async fn fetch(
    installation: &Installation,
    node: Option<&str>,
    known: &mut BTreeMap<String, RotationHistory>,
) -> Result<Seen> {
    let status = fetch_status(installation, node).await?;
    let states = &installation.states;
    let running = states.list_running(&installation.machine("recycle-node")).await?;
    let sweeps = states.list_running(&installation.machine("sweep")).await?;
    let (mut rotations, mut plans, mut starters) = (Vec::new(), Vec::new(), Vec::new());
    for arn in states.list_running(&installation.machine("rotate-nodes")).await? {
        // For a single node only the trigger of the rotation matters.
        if node.is_some() {
            let execution = states.find(&arn).await?;
            starters.extend(execution.map(|execution| Starter::new(arn, &execution.input)));
            continue;
        }
        let rotation = known.entry(arn.clone());
        let rotation = rotation.or_insert_with(|| RotationHistory::new(&arn));
        rotation.read_all(states).await?;
        starters.push(rotation.starter());
        if rotation.is_dry_run() {
            plans.push(arn);
        } else {
            rotations.push(Heading::of(rotation));
        }
    }
    let others = list_running_others(installation, &status.nodes).await;
    let runs = |arn: &str| {
        let mut all = running.iter().chain(&sweeps).chain(&others);
        all.any(|other| other == arn)
    };
    let to_row = |node| row_of(node, &starters, runs);
    let mut rows: Vec<Row> = status.nodes.iter().map(to_row).collect();
    sort_rows(&mut rows);
    let paused = list_paused(installation).await.map_err(|error| error.to_string());
    Ok(Seen {
        failed: Ok(Vec::new()),
        rotations,
        plans,
        paused,
        rows,
        running,
        cluster_is_away: status.cluster_is_away,
        unreadable_nodes: status.unreadable_nodes,
    })
}

/// Lists the running executions of other installations of the cluster that have claimed a node. An execution that cannot be read counts as
/// running, because the sweep of its own installation restores its node.
async fn list_running_others(installation: &Installation, nodes: &[NodeStatus]) -> Vec<String> {
    let claims = nodes.iter().filter_map(|node| node.claim.as_ref());
    let mut others: Vec<String> = claims.map(|claim| claim.fence.execution.to_string()).collect();
    others.retain(|arn| !installation.claims(arn));
    let mut running = Vec::new();
    for arn in others {
        match installation.states.find(&arn).await {
            Ok(None) => {}
            Ok(Some(execution)) if execution.end.is_some() => {}
            Ok(Some(_)) | Err(_) => running.push(arn),
        }
    }
    running
}

/// Lists the executions that ended badly within the last day, the newest first. Plans do not count. None is listed for a single node.
async fn list_failed(installation: &Installation, node: Option<&str>) -> Result<Vec<Listed>> {
    let mut failed = Vec::new();
    if node.is_some() {
        return Ok(failed);
    }
    let since = clock::now().checked_sub(SignedDuration::from_hours(24));
    let since = since.unwrap_or(Timestamp::MIN);
    for machine in ["rotate-nodes", "recycle-node"] {
        let machine = installation.machine(machine);
        let listed = installation.states.list_ended_since(&machine, since);
        failed.extend(listed.await?);
    }
    failed.retain(Listed::has_failed);
    failed.sort_by_key(|listed| std::cmp::Reverse(listed.ended_at));
    let described = failed
        .iter()
        .take(MOST_DESCRIBED)
        .map(|listed| installation.states.find(&listed.arn));
    let described: Vec<Option<Execution>> = stream::iter(described).buffered(AT_ONCE).try_collect().await?;
    let is_plan = |number: usize| {
        described
            .get(number)
            .is_some_and(|found| found.as_ref().is_some_and(Execution::is_dry_run))
    };
    let failed = failed.into_iter().enumerate();
    Ok(failed
        .filter(|(number, _)| !is_plan(*number))
        .map(|(_, listed)| listed)
        .collect())
}

fn show(output: &Output, seen: &Seen, now: Timestamp) -> Result<Exit> {
    output.document(&seen.frame(String::new(), now, output.width()).document)?;
    for rotation in &seen.rotations {
        output.say(format!("rotation {}: {}", rotation.execution, rotation.state))?;
        if let Some(progress) = &rotation.progress {
            output.say(format!("  {progress}"))?;
        }
        for (group, _, state) in &rotation.groups {
            output.say(format!("  group {group}: {state}"))?;
        }
    }
    if seen.rows.is_empty() {
        output.say("no execution works on a node, and no node is to be restored")?;
    }
    for line in table(&seen.rows, now, output.width_of_terminal()) {
        output.say(line)?;
    }
    for row in seen.rows.iter().take(MOST_DETAILED) {
        output.say("")?;
        for line in list_details(row, now) {
            output.say(line)?;
        }
    }
    if seen.rows.len() > MOST_DETAILED {
        output.say(format!(
            "\n… and {} more nodes. For one of them: {}",
            seen.rows.len() - MOST_DETAILED,
            recycle_eks("status NODE")
        ))?;
    }
    finish(output, seen)
}

/// Prints the remarks. If the cluster cannot be read, the command has failed.
fn finish(output: &Output, seen: &Seen) -> Result<Exit> {
    for (_, _, text) in seen.list_remarks() {
        output.say(text)?;
    }
    match seen.cluster_is_away {
        Some(_) => Ok(Exit::Failed),
        None => Ok(Exit::Done),
    }
}

/// Shows one node: the picture of its running execution, and its details.
async fn show_node(installation: &Installation, output: &Output, seen: &Seen) -> Result<Exit> {
    let now = clock::now();
    output.document(&seen.frame(String::new(), now, output.width()).document)?;
    for row in &seen.rows {
        let running = row.execution.as_ref().filter(|arn| seen.running.contains(arn));
        if let Some(arn) = running.filter(|_| !output.is_json()) {
            let mut history = History::default();
            installation.states.read_on(arn, &mut history).await?;
            for line in draw_head(&history, now, output.width()).into_iter().skip(1) {
                let text: String = line.into_iter().map(|(_, text)| text).collect();
                output.say(text)?;
            }
        }
        if row.is_quiet() {
            output.say(format!(
                "{} carries no mark of recycle-eks: no execution works on it",
                row.describe_node()
            ))?;
            continue;
        }
        for line in list_details(row, now) {
            output.say(line)?;
        }
        if row.execution.is_some() {
            let watch = recycle_eks(format_args!("status --watch {}", row.instance));
            output.say(format!("to watch it: {watch}"))?;
        }
        // A sweep that restores the node has no report.
        let reported = row.execution.as_ref().filter(|arn| installation.recycles(arn));
        if let Some(arn) = reported {
            let report = recycle_eks(format_args!("report {}", name_of(arn)));
            output.say(format!("its history: {report}"))?;
        }
    }
    finish(output, seen)
}

async fn watch(installation: &Installation, output: &Output, node: Option<&str>) -> Result<Exit> {
    let mut watch = Watch::begin(installation, output)?;
    let (mut began, mut begun, mut known) = (None, None, BTreeMap::new());
    let over = watch.until_over(async |now| {
        let began: Timestamp = *began.get_or_insert(now);
        let seen = fetch(installation, node, &mut known).await?;
        let mut shown = seen.frame(clock_face(now.duration_since(began)), now, output.width());
        begun = seen.only_running().filter(|_| node.is_some());
        let over = (begun.is_some() || seen.is_quiet()).then_some(Exit::Done);
        if let Some(exit) = over.filter(|_| begun.is_none()) {
            shown.document["exit"] = exit.code().into();
        }
        Ok((shown, over.map_or(Next::Later, Next::Over)))
    });
    let over = over.await?;
    // The history of the execution shows more about a single node than the marks on the node do.
    if let Some(arn) = begun {
        return watch.watch_node(&arn).await;
    }
    if over.is_none() {
        output.say("\nstopped watching; running executions go on")?;
        return Ok(Exit::Unwatched);
    }
    output.say(match node {
        Some(node) => format!("{node} carries no mark of recycle-eks"),
        None => "no execution works on a node, and no node is to be restored".to_owned(),
    })?;
    Ok(Exit::Done)
}
