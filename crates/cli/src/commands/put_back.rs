//! `abort` and `restore`: stopping the execution that works on a node, and putting back what was left. The sweep does it; it is watched here.

use jiff::Timestamp;
use recycle::input::urgency::Urgency;
use recycle::notify::status::NodeStatus;
use recycle::records::claim::{Claim, Phase, has_ended};
use serde_json::{Value, json};
use tokio::signal::unix::Signal;

use crate::args::flags::{Abort, Restore};
use crate::aws::executions::Executions;
use crate::aws::installation::Installation;
use crate::aws::nodes::{fetch_status, find_node};
use crate::base::error::Error;
use crate::base::exit::Exit;
use crate::base::times::clock_face;
use crate::history::end::describe_end;
use crate::history::node::Story;
use crate::views::output::Output;
use crate::views::viewer::{Frame, Style, Viewer};
use crate::views::watch::{Look, hear_interrupts, leave, until_over};

/// What the history of a stopped execution says.
const WHY: &str = "recycle-eks abort";

pub(crate) async fn abort(
    installation: &Installation,
    output: &Output,
    wanted: &Abort,
) -> Result<Exit, Error> {
    let executions = Executions::new(&installation.aws);
    if wanted.what.starts_with("arn:") {
        return abort_execution(installation, output, &executions, wanted).await;
    }
    let node = find_node(installation, &wanted.what).await?;
    let Some(claim) = &node.claim else {
        return Err(Error::Refused(format!(
            "nobody works on {}: there is nothing to abort",
            describe(&node)
        )));
    };
    if !runs(&executions, claim).await? {
        return Err(Error::Refused(format!(
            "the execution that worked on {} has ended already ({}): to put the node back, recycle-eks restore {}",
            describe(&node),
            claim.fence.execution,
            node.instance_id
        )));
    }
    abort_claimed(installation, output, &executions, &node, claim, wanted.detach).await
}

/// The execution that holds the node.
async fn abort_claimed(
    installation: &Installation,
    output: &Output,
    executions: &Executions,
    node: &NodeStatus,
    claim: &Claim,
    detach: bool,
) -> Result<Exit, Error> {
    if let Some(why) = refuse_abort(node, claim) {
        return Err(Error::Refused(why));
    }
    let arn = claim.fence.execution.as_str();
    executions.stop(arn, WHY).await?;
    output.say(format!(
        "stopped {arn}; the sweep puts the node back, about five minutes later"
    ))?;
    if detach {
        output.document(&json!({"stopped": arn, "instance_id": node.instance_id.as_str()}))?;
        return Ok(Exit::Done);
    }
    watch_put_back(installation, output, node, None, &mut hear_interrupts()?).await
}

/// Why an abort would bring nothing back.
fn refuse_abort(node: &NodeStatus, claim: &Claim) -> Option<String> {
    if claim.phase == Phase::Disposing {
        return Some(format!(
            "{} is being disposed of already: an abort would save nothing",
            describe(node)
        ));
    }
    match claim.urgency {
        Urgency::Hook => Some(format!(
            "{} is being ended by its group, and waits in a lifecycle hook: it cannot be put back, and the sweep would begin another \
             execution; its pods run on, and are waited for as long as the hook lives",
            describe(node)
        )),
        Urgency::Planned | Urgency::Spot | Urgency::Interruption => None,
    }
}

/// One of `recycle-node` is a node's. One of `rotate-nodes` takes those of its nodes with it: Step Functions stops what it waits for.
async fn abort_execution(
    installation: &Installation,
    output: &Output,
    executions: &Executions,
    wanted: &Abort,
) -> Result<Exit, Error> {
    let arn = wanted.what.as_str();
    let is_of_node = arn.starts_with(&installation.execution("recycle-node", ""));
    if !is_of_node && !arn.starts_with(&installation.execution("rotate-nodes", "")) {
        return Err(Error::Refused(format!(
            "EXECUTION must be an execution of recycle-node or rotate-nodes of the installation {:?} ({}), but is {arn}",
            installation.name,
            installation.place()
        )));
    }
    let Some(described) = executions.describe(arn).await? else {
        return Err(Error::Refused(format!("there is no execution {arn}")));
    };
    if described.end.is_some() {
        return Err(Error::Refused(format!("the execution {arn} has ended already")));
    }
    let instance = described.input["instance_id"].as_str().filter(|_| is_of_node);
    if let Some(instance) = instance {
        let node = find_node(installation, instance).await?;
        let claim = node
            .claim
            .as_ref()
            .filter(|claim| claim.fence.execution.as_str() == arn);
        if let Some(claim) = claim {
            return abort_claimed(installation, output, executions, &node, claim, wanted.detach).await;
        }
    }
    executions.stop(arn, WHY).await?;
    output.say(match is_of_node {
        true => format!("stopped {arn}; it has not touched its node"),
        false => format!(
            "stopped {arn}: it begins no other node, and the executions of the nodes that are under way are stopped with it; the sweep \
             puts those nodes back, about five minutes later. (recycle-eks pause lets them end.)"
        ),
    })?;
    output.document(&json!({"stopped": arn}))?;
    Ok(Exit::Done)
}

pub(crate) async fn restore(
    installation: &Installation,
    output: &Output,
    wanted: &Restore,
) -> Result<Exit, Error> {
    let executions = Executions::new(&installation.aws);
    let node = match &wanted.node {
        Some(name) => Some(check_restorable(&executions, find_node(installation, name).await?).await?),
        None => None,
    };
    let arn = executions
        .start(
            &installation.machine("sweep"),
            &json!({"started_by": "recycle-eks restore"}),
        )
        .await?;
    let mut interrupts = hear_interrupts()?;
    output.say(format!("started {arn}\n{}", installation.place()))?;
    if wanted.detach {
        output.document(&json!({"execution_arn": arn}))?;
        return Ok(Exit::Done);
    }
    match node {
        Some(node) => watch_put_back(installation, output, &node, Some(&arn), &mut interrupts).await,
        None => watch_sweep(installation, output, &arn, &mut interrupts).await,
    }
}

async fn check_restorable(executions: &Executions, node: NodeStatus) -> Result<NodeStatus, Error> {
    if !node.is_marked {
        return Err(Error::Refused(format!(
            "nothing of ours is on {}: there is nothing to put back",
            describe(&node)
        )));
    }
    if let Some(claim) = &node.claim
        && runs(executions, claim).await?
    {
        return Err(Error::Refused(format!(
            "{} is being worked on by {}: stop that with recycle-eks abort {}",
            describe(&node),
            claim.fence.execution,
            node.instance_id
        )));
    }
    Ok(node)
}

async fn runs(executions: &Executions, claim: &Claim) -> Result<bool, Error> {
    let described = executions.describe(claim.fence.execution.as_str()).await?;
    Ok(described.is_some_and(|described| described.end.is_none_or(|end| !has_ended(&end.status))))
}

/// Until nothing of ours is on the node, or it is a person's. That it was a person's before the `sweep` has looked at it does not count: what
/// stood in the way may be mended.
async fn watch_put_back(
    installation: &Installation,
    output: &Output,
    node: &NodeStatus,
    sweep: Option<&str>,
    interrupts: &mut Signal,
) -> Result<Exit, Error> {
    let executions = Executions::new(&installation.aws);
    let mut is_swept = sweep.is_none();
    let id = node.instance_id.as_str();
    let mut viewer = Viewer::new(output);
    let mut began = None;
    let over = until_over(&mut viewer, interrupts, async |now| {
        let began: Timestamp = *began.get_or_insert(now);
        if let Some(arn) = sweep.filter(|_| !is_swept) {
            let described = executions.describe(arn).await?;
            is_swept = described.is_none_or(|described| described.end.is_some());
        }
        let status = fetch_status(installation, Some(id)).await?;
        let clock = clock_face(now.duration_since(began));
        let found = status
            .nodes
            .into_iter()
            .find(|found| found.instance_id.as_str() == id);
        let (text, exit) = judge_put_back(found.as_ref(), status.cluster_is_away.as_deref(), is_swept);
        let shown = frame_of(id, &text, clock, exit);
        Ok(match exit {
            Some(exit) => Look::Over(shown, exit),
            None => Look::GoOnSlowly(shown),
        })
    })
    .await?;
    match over {
        Some(exit) => Ok(exit),
        None => leave(output, id, &format!("recycle-eks status --watch {id}")),
    }
}

/// How far the put-back is, and how it has ended if it has.
fn judge_put_back(node: Option<&NodeStatus>, away: Option<&str>, is_swept: bool) -> (String, Option<Exit>) {
    let gone = || {
        (
            "gone: its instance is terminated, there is nothing to put back".to_owned(),
            Some(Exit::PutBack),
        )
    };
    if node.is_some_and(|node| node.is_gone) {
        return gone();
    }
    if let Some(why) = away {
        return (format!("the cluster cannot be asked: {why}"), None);
    }
    match node {
        None => gone(),
        Some(node) if !node.is_marked => (
            "put back: nothing of ours is on it any more".to_owned(),
            Some(Exit::Done),
        ),
        Some(node) if node.gave_up_at.is_some() && is_swept => (
            "there is no way back by itself: a person is needed; the notification has the commands"
                .to_owned(),
            Some(Exit::NeedsPerson),
        ),
        Some(node) => {
            let progress = node.progress.as_ref().map(|progress| progress.summary.as_str());
            let holder = node.claim.as_ref().map(|claim| claim.fence.execution.as_str());
            let text = match holder {
                Some(holder) => format!("held by {holder}: {}", progress.unwrap_or("no story yet")),
                None => progress.unwrap_or("waits for the sweep").to_owned(),
            };
            (text, None)
        }
    }
}

fn frame_of(instance: &str, text: &str, clock: String, exit: Option<Exit>) -> Frame {
    let mut document = json!({"instance_id": instance, "state": text});
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
            (Style::Bold, instance.to_owned()),
            (Style::Dim, format!("   {clock}   ")),
            (style, text.to_owned()),
        ]],
        clock,
        facts: vec![(instance.to_owned(), text.to_owned())],
        document,
    }
}

/// Until the sweep has ended.
async fn watch_sweep(
    installation: &Installation,
    output: &Output,
    arn: &str,
    interrupts: &mut Signal,
) -> Result<Exit, Error> {
    let executions = Executions::new(&installation.aws);
    let (mut story, mut viewer) = (Story::default(), Viewer::new(output));
    let over = until_over(&mut viewer, interrupts, async |now| {
        executions.read_on(arn, &mut story).await?;
        let clock = clock_face(story.elapsed(now));
        let exit = story.end.as_ref().map(|end| {
            if end.status == "SUCCEEDED" {
                Exit::Done
            } else {
                Exit::NeedsPerson
            }
        });
        let text = match &story.end {
            Some(end) => format!("{} {}", describe_end(end), list_mended(&end.output)),
            None => story.reason().to_owned(),
        };
        let shown = frame_of("sweep", text.trim_end(), clock, exit);
        Ok(match exit {
            Some(exit) => Look::Over(shown, exit),
            None => Look::GoOn(shown),
        })
    })
    .await?;
    match over {
        Some(exit) => Ok(exit),
        None => leave(output, arn, "recycle-eks status"),
    }
}

fn list_mended(output: &Value) -> String {
    match output.get("nodes") {
        Some(nodes) => nodes.to_string(),
        None => String::new(),
    }
}

fn describe(node: &NodeStatus) -> String {
    recycle::cluster::instance::describe_instance(&node.instance_id, node.node.as_ref())
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

    fn claimed(phase: &str, urgency: &str) -> NodeStatus {
        node(
            json!({"claim": {"schema": 1, "fence": "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one#0",
            "group": "workers", "phase": phase, "urgency": urgency, "claimed_at": "2027-01-01T00:00:00Z"}}),
        )
    }

    #[test]
    fn a_put_back_has_ended_when_nothing_is_left_or_a_person_has_to_come() {
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
                Some(Exit::NeedsPerson),
            ),
            ("away", Some(node(json!({}))), Some("no"), true, None),
            (
                "terminated",
                Some(node(json!({"is_marked": false, "is_gone": true}))),
                None,
                true,
                Some(Exit::PutBack),
            ),
            (
                "terminated, tags left",
                Some(node(json!({"is_gone": true}))),
                Some("no"),
                true,
                Some(Exit::PutBack),
            ),
            ("forgotten", None, None, true, Some(Exit::PutBack)),
            ("cannot be seen", None, Some("no"), true, None),
        ] {
            assert_eq!(judge_put_back(node.as_ref(), away, is_swept).1, exit, "{name}");
        }
    }

    #[test]
    fn what_an_abort_would_not_bring_back_is_not_aborted() {
        for (phase, urgency, words) in [
            ("draining", "planned", None),
            ("draining", "spot", None),
            ("disposing", "planned", Some("being disposed of")),
            ("draining", "hook", Some("its pods run on")),
        ] {
            let node = claimed(phase, urgency);
            let refusal = refuse_abort(&node, node.claim.as_ref().unwrap());
            assert_eq!(refusal.is_some(), words.is_some(), "{phase} {urgency}");
            assert!(refusal.unwrap_or_default().contains(words.unwrap_or_default()));
        }
    }
}
