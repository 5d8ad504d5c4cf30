//! `status`: shows every node that carries a mark of recycle-eks, and every running rotation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

use crate::args::flags::Status;
use crate::aws::installation::Installation;
use crate::aws::nodes::fetch_status;
use crate::base::clock;
use crate::base::error::{Error, Result, misuse};
use crate::base::exit::Exit;
use crate::base::times::clock_face;
use crate::history::rotation::RotationHistory;
use crate::views::fleet::{Heading, Row, frame, row_of, sort_rows, table};
use crate::views::output::Output;
use crate::views::viewer::{Frame, Style};
use crate::views::watch::{Next, Watch};

pub(crate) async fn run(installation: &Installation, output: &Output, wanted: &Status) -> Result<Exit> {
    let node = wanted.node.as_deref();
    if let Some(arn) = node.filter(|name| name.starts_with("arn:")) {
        return watch_execution(installation, output, arn, wanted.watch).await;
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
        misuse!("there is no instance and no node {name:?} in cluster {cluster}");
    }
    if !wanted.watch {
        return show(output, &seen, clock::now());
    }
    match seen.only_running().filter(|_| node.is_some()) {
        // The history of the execution shows more about a single node than the marks on the node do.
        Some(arn) => Watch::begin(installation, output)?.watch_node(&arn).await,
        None => watch(installation, output, node).await,
    }
}

/// Watches an execution that is given by its ARN.
async fn watch_execution(
    installation: &Installation,
    output: &Output,
    arn: &str,
    is_watched: bool,
) -> Result<Exit> {
    let is_of_rotation = installation.has_execution("rotate-nodes", arn);
    if !is_watched || !(is_of_rotation || installation.has_execution("recycle-node", arn)) {
        misuse!(
            "an ARN needs --watch and must be that of an execution of recycle-node or rotate-nodes of this installation, but is {arn}"
        );
    }
    if installation.states.find(arn).await?.is_none() {
        misuse!("there is no execution {arn}");
    }
    let mut watch = Watch::begin(installation, output)?;
    if is_of_rotation {
        return super::rotate::watch(&mut watch, arn).await;
    }
    watch.watch_node(arn).await
}

/// The state of the cluster and the state machines at one check.
struct Seen {
    rotations: Vec<Heading>,
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

    fn describe_away(&self) -> Option<String> {
        let away = self.cluster_is_away.as_ref();
        away.map(|why| format!("the cluster cannot be read, so only marks on instances are shown: {why}"))
    }

    fn frame(&self, clock: String, now: Timestamp, width: u16) -> Frame {
        let mut shown = frame(&self.rotations, &self.rows, clock, now, width);
        if let Some(text) = self.describe_away() {
            shown.picture.push(vec![(Style::Bad, text.clone())]);
            shown.facts.push(("cluster".to_owned(), text));
            shown.document["cluster_is_away"] = json!(self.cluster_is_away);
        }
        if let Some(why) = &self.unreadable_nodes {
            shown.picture.push(vec![(Style::Bad, why.clone())]);
            shown.facts.push(("nodes".to_owned(), why.clone()));
            shown.document["unreadable_nodes"] = why.as_str().into();
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
    let mut rotations = Vec::new();
    if node.is_none() {
        for arn in states.list_running(&installation.machine("rotate-nodes")).await? {
            let rotation = known.entry(arn.clone());
            let rotation = rotation.or_insert_with(|| RotationHistory::new(&arn));
            rotation.read_all(states).await?;
            rotations.push(Heading::of(rotation));
        }
    }
    let runs = |arn: &str| running.iter().chain(&sweeps).any(|other| other == arn);
    let mut rows: Vec<Row> = status.nodes.iter().map(|node| row_of(node, runs)).collect();
    sort_rows(&mut rows);
    Ok(Seen {
        rotations,
        rows,
        running,
        cluster_is_away: status.cluster_is_away,
        unreadable_nodes: status.unreadable_nodes,
    })
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
        output.say("no node carries a mark of recycle-eks")?;
    } else {
        output.say(table(&seen.rows, now, output.width()))?;
    }
    if let Some(why) = &seen.unreadable_nodes {
        output.say(why)?;
    }
    let Some(away) = seen.describe_away() else {
        return Ok(Exit::Done);
    };
    output.say(away)?;
    Ok(Exit::Failed)
}

async fn watch(installation: &Installation, output: &Output, node: Option<&str>) -> Result<Exit> {
    let mut watch = Watch::begin(installation, output)?;
    let (mut began, mut begun, mut known) = (None, None, BTreeMap::new());
    let over = watch.until_over(async |now| {
        let began: Timestamp = *began.get_or_insert(now);
        let seen = fetch(installation, node, &mut known).await?;
        let shown = seen.frame(clock_face(now.duration_since(began)), now, output.width());
        begun = seen.only_running().filter(|_| node.is_some());
        let over = (begun.is_some() || seen.is_quiet()).then_some(Exit::Done);
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
        None => "no node carries a mark of recycle-eks".to_owned(),
    })?;
    Ok(Exit::Done)
}
