//! `abort --all`: stops every rotation and every execution of a node, except those whose nodes could not be restored.

use std::collections::BTreeSet;

use recycle::notify::status::NodeStatus;
use serde_json::json;

use crate::args::flags::Abort;
use crate::aws::installation::Installation;
use crate::aws::nodes::fetch_status;
use crate::base::error::{Error, Result};
use crate::base::exit::Exit;
use crate::commands::confirm::confirm;
use crate::commands::restore::{WHY, check_abortable};
use crate::views::output::Output;

/// The executions that run now.
#[derive(Debug, Default, PartialEq, Eq)]
struct Running {
    rotations: Vec<String>,
    /// The executions of nodes to stop.
    nodes: Vec<String>,
    /// Why the other executions of nodes go on.
    kept: Vec<String>,
}

pub(crate) async fn abort_all(installation: &Installation, output: &Output, wanted: &Abort) -> Result<Exit> {
    let found = Running::fetch(installation).await?;
    for why in &found.kept {
        output.say(format!("not stopped: {why}"))?;
    }
    if found.rotations.is_empty() && found.nodes.is_empty() {
        output.say("nothing runs that could be stopped")?;
        output.document(&json!({"stopped": [], "not_stopped": found.kept}))?;
        return Ok(Exit::Done);
    }
    if !wanted.yes {
        confirm(
            output,
            &found.describe(),
            "abort all of them?",
            "recycle-eks abort --all --yes",
        )?;
    }
    let mut stopped = Vec::new();
    // Rotations come first, so that they start no other node.
    for arn in found.rotations.iter().chain(&found.nodes) {
        match installation.states.stop(arn, WHY).await {
            Ok(()) => stopped.push(arn),
            // The stopped executions are printed even if the rest is refused.
            Err(error) => {
                print(output, &stopped, &found.kept)?;
                return Err(error);
            }
        }
    }
    print(output, &stopped, &found.kept)?;
    output.say(
        "The sweep restores their nodes in about five minutes. To watch it: recycle-eks status --watch\n\
         Schedules, alarms and other triggers may start new executions. Until you resume, rotations start no node of paused groups: \
         recycle-eks pause --all",
    )?;
    Ok(Exit::Done)
}

fn print(output: &Output, stopped: &[&String], kept: &[String]) -> Result<(), Error> {
    for arn in stopped {
        output.say(format!("stopped {arn}"))?;
    }
    output.document(&json!({"stopped": stopped, "not_stopped": kept}))
}

impl Running {
    async fn fetch(installation: &Installation) -> Result<Self> {
        let states = &installation.states;
        let rotations = states.list_running(&installation.machine("rotate-nodes")).await?;
        let nodes = states.list_running(&installation.machine("recycle-node")).await?;
        let status = fetch_status(installation, None).await?;
        if let Some(why) = status.cluster_is_away {
            return Err(Error::Unreachable(format!(
                "the cluster {} cannot be read, so it is unknown which nodes could not be restored: {why}. To stop one node or rotation: \
                 recycle-eks abort",
                installation.cluster
            )));
        }
        Ok(Self::sort(rotations, nodes, &status.nodes))
    }

    /// An execution without a claim has not changed its node yet, so it can be stopped.
    fn sort(rotations: Vec<String>, running: Vec<String>, nodes: &[NodeStatus]) -> Self {
        let mut found = Self {
            rotations,
            ..Self::default()
        };
        let mut kept = BTreeSet::new();
        for node in nodes {
            if let Some(claim) = &node.claim
                && let Err(why) = check_abortable(node, claim)
                && running.iter().any(|arn| arn == claim.fence.execution.as_str())
            {
                kept.insert(claim.fence.execution.as_str());
                found.kept.push(why.to_string());
            }
        }
        let stopped = running.iter().filter(|arn| !kept.contains(arn.as_str()));
        found.nodes = stopped.cloned().collect();
        found
    }

    fn describe(&self) -> String {
        format!(
            "This stops {} and {}. The sweep then restores their nodes, whose remaining pods keep running.",
            count(self.rotations.len(), "rotation"),
            count(self.nodes.len(), "execution of a node")
        )
    }
}

fn count(number: usize, what: &str) -> String {
    match (number, what.split_once(" of a ")) {
        (1, _) => format!("1 {what}"),
        (_, Some((one, of))) => format!("{number} {one}s of {of}s"),
        (_, None) => format!("{number} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_whose_nodes_could_not_be_restored_go_on() {
        let arn = |name: &str| {
            format!("arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:{name}")
        };
        let node = |name: &str, phase: &str, urgency: &str| -> NodeStatus {
            let claim = json!({"schema": 1, "fence": format!("{}#0", arn(name)), "group": "workers", "phase": phase, "urgency": urgency,
                "claimed_at": "2027-01-01T00:00:00Z"});
            serde_json::from_value(
                json!({"instance_id": "i-0123456789abcdef0", "is_marked": true, "claim": claim}),
            )
            .unwrap()
        };
        let nodes = [
            node("drains", "draining", "planned"),
            node("in-a-hook", "draining", "hook"),
            node("disposes", "disposing", "planned"),
            node("ended", "disposing", "planned"),
        ];
        let running = ["new", "drains", "in-a-hook", "disposes"].map(arn).to_vec();
        let found = Running::sort(vec!["rotation".to_owned()], running, &nodes);
        assert_eq!(found.nodes, ["new", "drains"].map(arn));
        assert_eq!(found.kept.len(), 2, "{found:?}");
        assert_eq!(
            found.describe(),
            "This stops 1 rotation and 2 executions of nodes. The sweep then restores their nodes, whose remaining pods keep running."
        );
    }
}
