//! `restore`: starts the sweep, which restores the nodes, and watches it. `abort` watches the restore of its node, too.

use jiff::{SignedDuration, Timestamp};
use recycle::input::urgency::Urgency;
use recycle::notify::status::NodeStatus;
use recycle::records::claim::{Claim, Phase, has_ended};
use recycle::report::event::{End, Execution};
use serde_json::{Value, json};

use crate::args::flags::Restore;
use crate::aws::installation::Installation;
use crate::aws::nodes::{fetch_status, find_node, find_node_in_cluster};
use crate::base::error::{Error, Result, refuse};
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::base::times::clock_face;
use crate::commands::abortable::{check_own, check_readable, describe};
use crate::commands::start::start;
use crate::history::end::describe_end;
use crate::history::node::History;
use crate::history::started_by::is_sweep;
use crate::views::output::Output;
use crate::views::viewer::{Frame, Style};
use crate::views::watch::{Next, Watch};

pub(crate) async fn restore(installation: &Installation, output: &Output, wanted: &Restore) -> Result<Exit> {
    let node = match &wanted.node {
        Some(name) => Some(check_restorable(installation, find_restorable(installation, name).await?).await?),
        None => None,
    };
    let input = json!({"started_by": "recycle-eks restore"});
    let (arn, mut watch) = start(installation, output, &installation.machine("sweep"), &input).await?;
    if wanted.no_wait {
        output.document(&json!({"execution_arn": arn}))?;
        return Ok(Exit::Done);
    }
    match node {
        Some(node) => watch_restore(&mut watch, &node, Sweep::Started(&arn)).await,
        None => watch_sweep(&mut watch, &arn).await,
    }
}

/// Fetches the node. If the cluster cannot be read, the marks on the instance are enough: the sweep restores what it can.
async fn find_restorable(installation: &Installation, name: &str) -> Result<NodeStatus> {
    let away = match find_node_in_cluster(installation, name).await {
        Err(Error::Unreachable(why)) => why,
        found => return found,
    };
    match find_node(installation, name).await {
        Ok(node) if node.is_marked => Ok(node),
        Ok(_) | Err(_) => Err(Error::Unreachable(away)),
    }
}

/// Refuses a node that the sweep would leave alone.
async fn check_restorable(installation: &Installation, node: NodeStatus) -> Result<NodeStatus> {
    let named = describe(&node);
    if !node.is_marked {
        refuse!("{named} carries no mark of recycle-eks: there is nothing to restore");
    }
    check_readable(&node)?;
    if let Some(claim) = &node.claim {
        check_own(installation, &node, claim)?;
    }
    if let Some(claim) = &node.claim
        && !is_sweep(claim.fence.execution.as_str())
        && runs(installation, claim).await?
    {
        if claim.urgency == Urgency::Hook {
            refuse!(
                "{} works on {named}, which its group is terminating: a node that a lifecycle hook holds cannot be restored. Its drain goes on \
                 until its pods end, or until you run {}",
                claim.fence.execution,
                recycle_eks(format_args!("finish {}", node.instance_id))
            );
        }
        refuse!(
            "{} works on {named}: to stop it, use {}",
            claim.fence.execution,
            recycle_eks(format_args!("abort {}", node.instance_id))
        );
    }
    Ok(node)
}

pub(super) async fn runs(installation: &Installation, claim: &Claim) -> Result<bool> {
    let execution = installation.states.find(claim.fence.execution.as_str()).await?;
    Ok(execution.is_some_and(|execution| execution.end.is_none_or(|end| !has_ended(&end.status))))
}

/// The time after which the sweep has seen a stopped execution: the next one begins within 15 minutes.
const LONGEST_SWEEP: SignedDuration = SignedDuration::from_mins(20);

/// The sweep that restores a node.
pub(super) enum Sweep<'a> {
    /// The end of the stopped execution starts it.
    Next,
    /// `restore` has started it.
    Started(&'a str),
    /// It has taken the node over, or has ended in this way.
    Seen(Option<End>),
}

/// Watches until the node carries no mark of recycle-eks, is gone, or needs an operator.
pub(super) async fn watch_restore(
    watch: &mut Watch<'_>,
    node: &NodeStatus,
    mut sweep: Sweep<'_>,
) -> Result<Exit> {
    let (installation, id) = (watch.installation, node.instance_id.as_str());
    let mut began = None;
    let over = watch.until_over(async |now| {
        let began: Timestamp = *began.get_or_insert(now);
        if let Sweep::Started(arn) = sweep {
            match installation.states.find(arn).await? {
                None => sweep = Sweep::Seen(None),
                Some(Execution { end: Some(end), .. }) => sweep = Sweep::Seen(Some(end)),
                Some(_) => {}
            }
        }
        let status = fetch_status(installation, Some(id)).await?;
        let mut nodes = status.nodes.iter();
        let found = nodes.find(|found| found.instance_id == node.instance_id);
        let before = node.claim.as_ref();
        let is_over = now.duration_since(began) > LONGEST_SWEEP;
        if matches!(sweep, Sweep::Next) && (is_over || found.is_some_and(|found| !is_held_as(found, before)))
        {
            sweep = Sweep::Seen(None);
        }
        let of_sweep = found.and_then(|found| found.claim.as_ref());
        let is_restoring = match of_sweep.filter(|claim| is_sweep(claim.fence.execution.as_str())) {
            Some(claim) => runs(installation, claim).await?,
            None => false,
        };
        let away = status.cluster_is_away.as_deref();
        let (text, exit) = match found.filter(|_| is_restoring) {
            Some(found) => (describe_holder(found, before), None),
            None => judge_restore(found, before, away, &sweep),
        };
        let document = json!({"instance_id": id, "state": text});
        let shown = frame_of(id, document, &text, clock_face(now.duration_since(began)), exit);
        Ok((shown, exit.map_or(Next::Later, Next::Over)))
    });
    let again = recycle_eks(format_args!("status --watch {id}"));
    over.await?.map_or_else(|| watch.leave(id, &again), Ok)
}

/// Returns the state of the restore as a sentence, and the exit code if the restore has ended. `before` is the claim that the node had
/// first. The mark of a node that needs an operator counts only after a sweep, because the cause of an older mark may be removed.
fn judge_restore(
    node: Option<&NodeStatus>,
    before: Option<&Claim>,
    away: Option<&str>,
    sweep: &Sweep<'_>,
) -> (String, Option<Exit>) {
    let over = |text: &str, exit| (text.to_owned(), Some(exit));
    let gone = "gone: its instance is terminated, there is nothing to restore";
    match (node, away, sweep) {
        (Some(node), _, _) if node.is_gone => over(gone, Exit::Restored),
        (_, Some(why), _) => (format!("the cluster cannot be read: {why}"), None),
        (None, None, _) => over(gone, Exit::Restored),
        (Some(node), None, _) if !node.is_marked => {
            over("restored: it carries no mark of recycle-eks", Exit::Done)
        }
        (Some(node), None, Sweep::Seen(_)) if node.gave_up_at.is_some() => {
            let text = format!(
                "it cannot be restored automatically. For the commands: {}",
                recycle_eks(format_args!("status {}", node.instance_id))
            );
            over(&text, Exit::NeedsOperator)
        }
        (Some(node), None, Sweep::Seen(Some(end)))
            if end.status != "SUCCEEDED" && is_held_as(node, before) =>
        {
            let text = format!("not restored: the sweep has ended: {}", describe_end(end));
            over(&text, Exit::NeedsOperator)
        }
        (Some(node), None, Sweep::Next | Sweep::Started(_) | Sweep::Seen(_)) => {
            let exit = is_held_by_others(node, before).then_some(Exit::Others);
            (describe_holder(node, before), exit)
        }
    }
}

/// Checks whether the node has the same claim as before, or still none.
fn is_held_as(node: &NodeStatus, before: Option<&Claim>) -> bool {
    node.claim.as_ref().map(|claim| &claim.fence) == before.map(|claim| &claim.fence)
}

/// Checks whether another execution of `recycle-node` holds the node now. A sweep only holds it until it is restored.
fn is_held_by_others(node: &NodeStatus, before: Option<&Claim>) -> bool {
    let holder = node.claim.as_ref().filter(|_| !is_held_as(node, before));
    holder.is_some_and(|claim| !is_sweep(claim.fence.execution.as_str()))
}

/// Describes which execution holds the node, and in which step that is. The progress on the Node may be that of another execution.
fn describe_holder(node: &NodeStatus, before: Option<&Claim>) -> String {
    let Some(claim) = &node.claim else {
        return "waits for the sweep".to_owned();
    };
    let (arn, phase) = (&claim.fence.execution, claim.phase);
    if is_sweep(arn.as_str()) {
        format!("is being restored by {arn}")
    } else if is_held_as(node, before) {
        format!("waits for the sweep: {arn} has ended in step {phase}")
    } else {
        format!("held by another execution, {arn}, in step {phase}")
    }
}

fn frame_of(subject: &str, mut document: Value, text: &str, clock: String, exit: Option<Exit>) -> Frame {
    if let Some(exit) = exit {
        document["exit"] = exit.code().into();
    }
    let style = match exit {
        Some(Exit::Done) => Style::Good,
        Some(_) => Style::Bad,
        None => Style::Busy,
    };
    Frame {
        picture: vec![vec![
            (Style::Bold, subject.to_owned()),
            (Style::Dim, format!("   {clock}   ")),
            (style, text.to_owned()),
        ]],
        clock,
        facts: vec![(subject.to_owned(), text.to_owned())],
        document,
        ..Frame::default()
    }
}

async fn watch_sweep(watch: &mut Watch<'_>, arn: &str) -> Result<Exit> {
    let (installation, mut history) = (watch.installation, History::default());
    let over = watch.until_over(async |now| {
        installation.states.read_on(arn, &mut history).await?;
        let (text, exit) = match &history.end {
            Some(end) => {
                let left = Left::fetch(installation).await?;
                let is_done = end.status == "SUCCEEDED" && left.is_empty();
                let exit = if is_done { Exit::Done } else { Exit::NeedsOperator };
                (describe_sweep(end, &left), Some(exit))
            }
            None => (history.reason().to_owned(), None),
        };
        let text = text.trim_end();
        let document = json!({"execution_arn": arn, "state": text});
        let shown = frame_of("sweep", document, text, clock_face(history.elapsed(now)), exit);
        Ok((shown, exit.map_or(Next::Soon, Next::Over)))
    });
    let over = over.await?;
    over.map_or_else(|| watch.leave(arn, &recycle_eks("status")), Ok)
}

/// The instances that a sweep has left.
#[derive(Debug, Default)]
struct Left {
    /// These need an operator.
    given_up: Vec<String>,
    /// These are to be restored, or another sweep is restoring them.
    open: Vec<String>,
}

impl Left {
    async fn fetch(installation: &Installation) -> Result<Self> {
        let status = fetch_status(installation, None).await?;
        if let Some(why) = status.cluster_is_away {
            return Err(Error::Unreachable(format!(
                "the sweep has ended, and which nodes are restored is unknown, because the cluster {} cannot be read: {why}",
                installation.cluster
            )));
        }
        let mut left = Self::default();
        for node in status.nodes {
            let claim = node.claim.as_ref();
            let is_own = claim.is_none_or(|claim| check_own(installation, &node, claim).is_ok());
            if !is_own {
                continue;
            }
            let is_alive = match claim {
                Some(claim) => runs(installation, claim).await?,
                None => false,
            };
            let id = node.instance_id.to_string();
            if node.gave_up_at.is_some() && !is_alive {
                left.given_up.push(id);
            } else if claim.is_some_and(|claim| is_left_open(claim, is_alive)) {
                left.open.push(id);
            }
        }
        Ok(left)
    }

    fn is_empty(&self) -> bool {
        self.given_up.is_empty() && self.open.is_empty()
    }
}

/// Checks whether a node with this claim is still to be restored. A member that its group terminates, and an instance that is being
/// disposed of, end otherwise.
fn is_left_open(claim: &Claim, is_alive: bool) -> bool {
    if is_alive {
        return is_sweep(claim.fence.execution.as_str());
    }
    claim.urgency != Urgency::Hook && claim.phase != Phase::Disposing
}

/// Describes how the sweep has ended, with the results of its nodes, and the nodes that it has left.
fn describe_sweep(end: &End, left: &Left) -> String {
    let Some(nodes) = end.output["nodes"].as_array() else {
        return describe_end(end);
    };
    let restored: Vec<&str> = nodes
        .iter()
        .filter_map(|node| node["restored"].as_str())
        .collect();
    let mut parts = Vec::new();
    if !restored.is_empty() {
        parts.push(format!("restored {}", restored.join(", ")));
    }
    if let Some(first) = left.given_up.first() {
        parts.push(format!(
            "an operator must act on {}. For the commands: {}",
            left.given_up.join(", "),
            recycle_eks(format_args!("status {first}"))
        ));
    }
    if !left.open.is_empty() {
        parts.push(format!(
            "not restored yet: {}. Another sweep is at it, or the next one is, within 15 minutes. To watch it: {}",
            left.open.join(", "),
            recycle_eks("status --watch")
        ));
    }
    if parts.is_empty() {
        return "there was nothing to restore".to_owned();
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(more: Value) -> NodeStatus {
        let mut node = json!({"instance_id": "i-0123456789abcdef0", "is_marked": true});
        node.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_restore_has_ended_when_no_mark_remains_or_an_operator_must_act() {
        let gave_up = json!({"gave_up_at": "2027-01-01T00:00:00Z"});
        let held_by = |machine: &str| {
            let fence = format!("arn:aws:states:eu-west-1:123456789012:execution:world-{machine}:one#0");
            json!({"claim": {"schema": 1, "fence": fence, "group": "workers", "phase": "standby", "urgency": "planned",
                "claimed_at": "2027-01-01T00:00:00Z"}})
        };
        let failed = || {
            let status = "FAILED".to_owned();
            Sweep::Seen(Some(End {
                status,
                ..End::default()
            }))
        };
        let seen = || Sweep::Seen(None);
        for (name, node, away, sweep, exit) in [
            ("marked", Some(node(json!({}))), None, seen(), None),
            (
                "its sweep failed",
                Some(node(json!({}))),
                None,
                failed(),
                Some(Exit::NeedsOperator),
            ),
            (
                "another sweep is at it",
                Some(node(held_by("sweep"))),
                None,
                failed(),
                None,
            ),
            (
                "another execution holds it",
                Some(node(held_by("recycle-node"))),
                None,
                Sweep::Next,
                Some(Exit::Others),
            ),
            (
                "clean",
                Some(node(json!({"is_marked": false}))),
                None,
                seen(),
                Some(Exit::Done),
            ),
            (
                "given up before the sweep",
                Some(node(gave_up.clone())),
                None,
                Sweep::Started("arn"),
                None,
            ),
            (
                "given up",
                Some(node(gave_up)),
                None,
                seen(),
                Some(Exit::NeedsOperator),
            ),
            ("away", Some(node(json!({}))), Some("no"), seen(), None),
            (
                "terminated",
                Some(node(json!({"is_marked": false, "is_gone": true}))),
                None,
                seen(),
                Some(Exit::Restored),
            ),
            (
                "terminated, tags left",
                Some(node(json!({"is_gone": true}))),
                Some("no"),
                seen(),
                Some(Exit::Restored),
            ),
            ("unknown", None, None, seen(), Some(Exit::Restored)),
            ("unreadable", None, Some("no"), seen(), None),
        ] {
            let (_, found) = judge_restore(node.as_ref(), None, away, &sweep);
            assert_eq!(found, exit, "{name}");
        }
    }

    #[test]
    fn a_node_waits_for_the_sweep_unless_another_execution_holds_it() {
        let claimed = |name: &str| {
            let claim = json!({"schema": 1, "fence": format!("arn:aws:states:eu-west-1:123456789012:execution:recycle-node:{name}#0"),
                "group": "workers", "phase": "standby", "urgency": "planned", "claimed_at": "2027-01-01T00:00:00Z"});
            // The progress is that of the execution that was stopped.
            let progress = json!({"summary": "pods: 1 awaited", "since": "2027-01-01T00:00:00Z", "until": "2027-01-03T00:00:00Z"});
            node(json!({"claim": claim, "progress": progress}))
        };
        let before = claimed("one").claim;
        for (now, text) in [
            (
                claimed("one"),
                "waits for the sweep: arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one has ended in step standby",
            ),
            (
                claimed("two"),
                "held by another execution, arn:aws:states:eu-west-1:123456789012:execution:recycle-node:two, in step standby",
            ),
            (node(json!({})), "waits for the sweep"),
        ] {
            assert_eq!(describe_holder(&now, before.as_ref()), text);
        }
    }

    #[test]
    fn a_sweep_names_the_nodes_that_it_has_restored() {
        let none = Left::default;
        let given_up = || Left {
            given_up: vec!["i-3".to_owned()],
            ..Left::default()
        };
        let open = Left {
            open: vec!["i-4".to_owned()],
            ..Left::default()
        };
        for (output, left, text) in [
            (json!({"nodes": []}), none(), "there was nothing to restore"),
            (json!({"nodes": [{}]}), none(), "there was nothing to restore"),
            (
                json!({"nodes": [{}]}),
                open,
                "not restored yet: i-4. Another sweep is at it, or the next one is, within 15 minutes. To watch it: recycle-eks status --watch",
            ),
            (
                json!({"nodes": [{"restored": "i-1"}, {}, {"restored": "i-2"}]}),
                none(),
                "restored i-1, i-2",
            ),
            (
                json!({"nodes": [{"restored": "i-1"}, {"left_in_standby": "i-3"}]}),
                given_up(),
                "restored i-1; an operator must act on i-3. For the commands: recycle-eks status i-3",
            ),
            (
                json!({"nodes": [{}]}),
                given_up(),
                "an operator must act on i-3. For the commands: recycle-eks status i-3",
            ),
        ] {
            let end = End {
                status: "SUCCEEDED".to_owned(),
                output,
                ..End::default()
            };
            assert_eq!(describe_sweep(&end, &left), text);
        }
    }
}
