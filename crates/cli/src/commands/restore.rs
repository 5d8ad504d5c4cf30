//! `abort` and `restore`: `abort` stops the execution that works on a node, `restore` starts the sweep. The sweep restores the nodes; both
//! commands watch it.

use jiff::Timestamp;
use recycle::input::urgency::Urgency;
use recycle::notify::status::NodeStatus;
use recycle::records::claim::{Claim, has_ended};
use recycle::report::event::{End, Execution};
use serde_json::{Value, json};

use crate::args::flags::{Abort, Restore};
use crate::aws::installation::{Installation, RECYCLING};
use crate::aws::nodes::{fetch_status, find_node};
use crate::base::error::{Result, misuse, refuse};
use crate::base::exit::Exit;
use crate::base::times::clock_face;
use crate::commands::abortable::{check_abortable, check_readable, check_rotation, describe};
use crate::commands::confirm::confirm;
use crate::commands::room::warn_of_room;
use crate::commands::start::start;
use crate::history::end::describe_end;
use crate::history::node::History;
use crate::history::started_by::Starter;
use crate::views::output::Output;
use crate::views::viewer::{Frame, Style};
use crate::views::watch::{Next, Watch};

/// The cause in the history of an execution that `abort` has stopped.
pub(super) const WHY: &str = "recycle-eks abort";

pub(crate) async fn abort(installation: &Installation, output: &Output, wanted: &Abort) -> Result<Exit> {
    // The parser requires a name unless `--all` is set.
    let what = wanted.what.as_deref().unwrap_or_default();
    if what.starts_with("arn:") {
        let execution = find_execution(installation, what).await?;
        return abort_execution(installation, output, execution, wanted).await;
    }
    if !what.starts_with("i-")
        && let Some(execution) = installation.find_execution(&installation.states, what).await?
    {
        return abort_execution(installation, output, execution, wanted).await;
    }
    let node = find_node(installation, what).await?;
    check_readable(&node)?;
    let named = describe(&node);
    let Some(claim) = &node.claim else {
        refuse!("no execution works on {named}: there is nothing to abort");
    };
    if !runs(installation, claim).await? {
        refuse!(
            "the execution that worked on {named} has ended already ({}): to restore the node, use recycle-eks restore {}",
            claim.fence.execution,
            node.instance_id
        );
    }
    abort_claimed(installation, output, &node, claim, wanted).await
}

/// Stops the execution that holds the node, and watches until the node is restored, unless `--no-wait` is set.
async fn abort_claimed(
    installation: &Installation,
    output: &Output,
    node: &NodeStatus,
    claim: &Claim,
    wanted: &Abort,
) -> Result<Exit> {
    check_abortable(node, claim)?;
    let arn = claim.fence.execution.as_str();
    for warning in warn_of_room(installation, std::slice::from_ref(&node.instance_id)).await {
        output.say(warning)?;
    }
    if !wanted.yes {
        let effect = format!(
            "This stops the execution {arn}. The sweep then restores {}, which is in step {}: its remaining pods keep running.",
            describe(node),
            claim.phase
        );
        confirm(output, &effect, "abort it?")?;
    }
    installation.states.stop(arn, WHY).await?;
    output.say(format!(
        "stopped {arn}; the sweep restores the node in about five minutes"
    ))?;
    if wanted.no_wait {
        output.document(&json!({"stopped": arn, "instance_id": node.instance_id.as_str()}))?;
        return Ok(Exit::Done);
    }
    watch_restore(&mut Watch::begin(installation, output)?, node, None).await
}

/// Fetches an execution by its ARN.
async fn find_execution(installation: &Installation, arn: &str) -> Result<Execution> {
    if !RECYCLING
        .iter()
        .any(|machine| installation.has_execution(machine, arn))
    {
        misuse!(
            "EXECUTION must be an execution of recycle-node or rotate-nodes of the installation {:?} ({}), but is {arn}",
            installation.name,
            installation.place()
        );
    }
    let Some(execution) = installation.states.find(arn).await? else {
        misuse!("there is no execution {arn}");
    };
    Ok(execution)
}

/// Stops an execution that is given by its ARN or its name.
/// An execution of `recycle-node` that holds its node is stopped in the same way as if the node were given.
/// Stopping an execution of `rotate-nodes` also stops those of its nodes, because Step Functions stops the executions that it waits for.
async fn abort_execution(
    installation: &Installation,
    output: &Output,
    execution: Execution,
    wanted: &Abort,
) -> Result<Exit> {
    let arn = execution.arn.as_str();
    let is_of_node = installation.has_execution("recycle-node", arn);
    if let Some(end) = &execution.end {
        refuse!("the execution {arn} has ended already ({})", end.outcome());
    }
    let instance = execution.input["instance_id"].as_str();
    if let Some(instance) = instance.filter(|_| is_of_node) {
        let node = find_node(installation, instance).await?;
        check_readable(&node)?;
        let claim = node.claim.as_ref();
        if let Some(claim) = claim.filter(|claim| claim.fence.execution.as_str() == arn) {
            return abort_claimed(installation, output, &node, claim, wanted).await;
        }
    }
    let is_plan = execution.is_dry_run();
    if !is_of_node && !is_plan {
        check_rotation(installation, Starter::new(arn.to_owned(), &execution.input)).await?;
    }
    if !wanted.yes && !is_of_node && !is_plan {
        let effect = format!(
            "This stops the rotation {arn}, and with it the executions of its nodes under way. The sweep then restores those nodes."
        );
        confirm(output, &effect, "abort it?")?;
    }
    installation.states.stop(arn, WHY).await?;
    output.say(match (is_plan, is_of_node) {
        (true, _) => format!("stopped {arn}: a plan, which had changed nothing"),
        (false, true) => format!("stopped {arn}; it had not changed its node"),
        (false, false) => format!(
            "stopped {arn}: it starts no other node, and Step Functions also stops the executions of the nodes under way; the sweep \
             restores those nodes in about five minutes. (To let them end instead, use recycle-eks pause.)"
        ),
    })?;
    output.document(&json!({"stopped": arn}))?;
    Ok(Exit::Done)
}

pub(crate) async fn restore(installation: &Installation, output: &Output, wanted: &Restore) -> Result<Exit> {
    let node = match &wanted.node {
        Some(name) => Some(check_restorable(installation, find_node(installation, name).await?).await?),
        None => None,
    };
    let input = json!({"started_by": "recycle-eks restore"});
    let (arn, mut watch) = start(installation, output, &installation.machine("sweep"), &input).await?;
    if wanted.no_wait {
        output.document(&json!({"execution_arn": arn}))?;
        return Ok(Exit::Done);
    }
    match node {
        Some(node) => watch_restore(&mut watch, &node, Some(&arn)).await,
        None => watch_sweep(&mut watch, &arn).await,
    }
}

async fn check_restorable(installation: &Installation, node: NodeStatus) -> Result<NodeStatus> {
    let named = describe(&node);
    if !node.is_marked {
        refuse!("{named} carries no mark of recycle-eks: there is nothing to restore");
    }
    if let Some(claim) = &node.claim
        && runs(installation, claim).await?
    {
        if claim.urgency == Urgency::Hook {
            refuse!(
                "{} works on {named}, which its group is terminating: a node that a lifecycle hook holds cannot be restored. Its drain goes on \
                 until its pods end, or until you run recycle-eks finish {}",
                claim.fence.execution,
                node.instance_id
            );
        }
        refuse!(
            "{} works on {named}: to stop it, use recycle-eks abort {}",
            claim.fence.execution,
            node.instance_id
        );
    }
    Ok(node)
}

async fn runs(installation: &Installation, claim: &Claim) -> Result<bool> {
    let execution = installation.states.find(claim.fence.execution.as_str()).await?;
    Ok(execution.is_some_and(|execution| execution.end.is_none_or(|end| !has_ended(&end.status))))
}

/// Watches until the node carries no mark of recycle-eks, is gone, or needs an operator.
/// The mark of a node that needs an operator counts only after the end of the `sweep`, because the cause of an older mark may be removed.
async fn watch_restore(watch: &mut Watch<'_>, node: &NodeStatus, sweep: Option<&str>) -> Result<Exit> {
    let (installation, id) = (watch.installation, node.instance_id.as_str());
    let (mut is_swept, mut began) = (sweep.is_none(), None);
    let over = watch.until_over(async |now| {
        let began: Timestamp = *began.get_or_insert(now);
        if let Some(arn) = sweep.filter(|_| !is_swept) {
            let execution = installation.states.find(arn).await?;
            is_swept = execution.is_none_or(|execution| execution.end.is_some());
        }
        let status = fetch_status(installation, Some(id)).await?;
        let mut nodes = status.nodes.iter();
        let found = nodes.find(|found| found.instance_id == node.instance_id);
        let (text, exit) = judge_restore(
            found,
            node.claim.as_ref(),
            status.cluster_is_away.as_deref(),
            is_swept,
        );
        let document = json!({"instance_id": id, "state": text});
        let shown = frame_of(id, document, &text, clock_face(now.duration_since(began)), exit);
        Ok((shown, exit.map_or(Next::Later, Next::Over)))
    });
    let again = format!("recycle-eks status --watch {id}");
    over.await?.map_or_else(|| watch.leave(id, &again), Ok)
}

/// Returns the state of the restore as a sentence, and the exit code if the restore has ended. `before` is the claim of the execution that
/// was stopped.
fn judge_restore(
    node: Option<&NodeStatus>,
    before: Option<&Claim>,
    away: Option<&str>,
    is_swept: bool,
) -> (String, Option<Exit>) {
    let over = |text: &str, exit| (text.to_owned(), Some(exit));
    let gone = "gone: its instance is terminated, there is nothing to restore";
    match (node, away) {
        (Some(node), _) if node.is_gone => over(gone, Exit::Restored),
        (_, Some(why)) => (format!("the cluster cannot be read: {why}"), None),
        (None, None) => over(gone, Exit::Restored),
        (Some(node), None) if !node.is_marked => {
            over("restored: it carries no mark of recycle-eks", Exit::Done)
        }
        (Some(node), None) if node.gave_up_at.is_some() && is_swept => {
            let text = format!(
                "it cannot be restored automatically. For the commands: recycle-eks status {}",
                node.instance_id
            );
            over(&text, Exit::NeedsOperator)
        }
        (Some(node), None) => (describe_holder(node, before), None),
    }
}

/// Describes which execution holds the node, and in which step that is. The progress on the Node may be that of another execution.
fn describe_holder(node: &NodeStatus, before: Option<&Claim>) -> String {
    let Some(claim) = &node.claim else {
        return "waits for the sweep".to_owned();
    };
    let (arn, phase) = (&claim.fence.execution, claim.phase);
    if before.is_some_and(|before| before.fence == claim.fence) {
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
                let given_up = list_given_up(installation).await?;
                let is_done = end.status == "SUCCEEDED" && given_up.is_empty();
                let exit = if is_done { Exit::Done } else { Exit::NeedsOperator };
                (describe_sweep(end, &given_up), Some(exit))
            }
            None => (history.reason().to_owned(), None),
        };
        let text = text.trim_end();
        let document = json!({"execution_arn": arn, "state": text});
        let shown = frame_of("sweep", document, text, clock_face(history.elapsed(now)), exit);
        Ok((shown, exit.map_or(Next::Soon, Next::Over)))
    });
    let over = over.await?;
    over.map_or_else(|| watch.leave(arn, "recycle-eks status"), Ok)
}

/// Lists the instances that need an operator, without those on which an execution works again.
async fn list_given_up(installation: &Installation) -> Result<Vec<String>> {
    let status = fetch_status(installation, None).await?;
    let mut found = Vec::new();
    for node in status.nodes.iter().filter(|node| node.gave_up_at.is_some()) {
        let is_held = match &node.claim {
            Some(claim) => runs(installation, claim).await?,
            None => false,
        };
        if !is_held {
            found.push(node.instance_id.to_string());
        }
    }
    Ok(found)
}

/// Describes how the sweep has ended, with the results of its nodes, and the nodes that need an operator.
fn describe_sweep(end: &End, given_up: &[String]) -> String {
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
    if let Some(first) = given_up.first() {
        parts.push(format!(
            "an operator must act on {}. For the commands: recycle-eks status {first}",
            given_up.join(", ")
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
        for (name, node, away, is_swept, exit) in [
            ("marked", Some(node(json!({}))), None, true, None),
            (
                "clean",
                Some(node(json!({"is_marked": false}))),
                None,
                true,
                Some(Exit::Done),
            ),
            (
                "given up before the sweep",
                Some(node(gave_up.clone())),
                None,
                false,
                None,
            ),
            (
                "given up",
                Some(node(gave_up)),
                None,
                true,
                Some(Exit::NeedsOperator),
            ),
            ("away", Some(node(json!({}))), Some("no"), true, None),
            (
                "terminated",
                Some(node(json!({"is_marked": false, "is_gone": true}))),
                None,
                true,
                Some(Exit::Restored),
            ),
            (
                "terminated, tags left",
                Some(node(json!({"is_gone": true}))),
                Some("no"),
                true,
                Some(Exit::Restored),
            ),
            ("unknown", None, None, true, Some(Exit::Restored)),
            ("unreadable", None, Some("no"), true, None),
        ] {
            let (_, found) = judge_restore(node.as_ref(), None, away, is_swept);
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
        let given_up = ["i-3".to_owned()];
        for (output, given_up, text) in [
            (json!({"nodes": []}), &[][..], "there was nothing to restore"),
            (json!({"nodes": [{}]}), &[], "there was nothing to restore"),
            (
                json!({"nodes": [{"restored": "i-1"}, {}, {"restored": "i-2"}]}),
                &[],
                "restored i-1, i-2",
            ),
            (
                json!({"nodes": [{"restored": "i-1"}, {"left_in_standby": "i-3"}]}),
                &given_up,
                "restored i-1; an operator must act on i-3. For the commands: recycle-eks status i-3",
            ),
            (
                json!({"nodes": [{}]}),
                &given_up,
                "an operator must act on i-3. For the commands: recycle-eks status i-3",
            ),
        ] {
            let end = End {
                status: "SUCCEEDED".to_owned(),
                output,
                ..End::default()
            };
            assert_eq!(describe_sweep(&end, given_up), text);
        }
    }
}
