//! Decides which executions can be stopped: after a stop the sweep has to be able to restore the node.

use std::collections::BTreeSet;

use futures::future::ready;
use futures::stream::{self, StreamExt as _};
use recycle::base::ids::InstanceId;
use recycle::input::urgency::Urgency;
use recycle::notify::status::NodeStatus;
use recycle::records::claim::{Claim, Phase};
use recycle::report::event::Execution;

use crate::aws::installation::Installation;
use crate::aws::nodes::fetch_status;
use crate::base::error::{Error, Result, refuse};
use crate::base::printed::recycle_eks;
use crate::history::started_by::{Starter, find_instance, instance_of, name_of};

/// How many executions are read at the same time.
const AT_ONCE: usize = 4;

/// The executions that run now, without plans (`dry_run: true`), which change nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Running {
    pub rotations: Vec<String>,
    /// The executions of nodes to stop.
    pub nodes: Vec<String>,
    /// The instances that these have claimed.
    pub instances: Vec<InstanceId>,
    /// Why the other executions of nodes go on.
    pub kept: Vec<String>,
}

impl Running {
    pub(super) async fn fetch(installation: &Installation) -> Result<Self> {
        let states = &installation.states;
        let mut rotations = Vec::new();
        for arn in states.list_running(&installation.machine("rotate-nodes")).await? {
            let execution = states.find(&arn).await?;
            let execution = execution.filter(is_under_way);
            rotations.extend(execution.map(|execution| Starter::new(arn, &execution.input)));
        }
        let nodes = states.list_running(&installation.machine("recycle-node")).await?;
        let nodes = leave_out_others(installation, nodes).await;
        // It comes last, because a node may come to a step after which it cannot be restored.
        let status = fetch_status(installation, None).await?;
        if let Some(why) = status.cluster_is_away {
            return Err(Error::Unreachable(format!(
                "the cluster {} cannot be read, so it is unknown which nodes could not be restored: {why}. To stop one node or rotation: {}",
                installation.cluster,
                recycle_eks("abort NODE-OR-EXECUTION")
            )));
        }
        let mut found = Self::sort(rotations, nodes, &status.nodes);
        found.kept.extend(list_foreign(installation, &status.nodes));
        Ok(found)
    }

    /// Leaves out the executions that have ended or may no longer be stopped, as `now` says.
    pub(super) fn keep_only(&mut self, now: Self) {
        self.rotations.retain(|arn| now.rotations.contains(arn));
        self.nodes.retain(|arn| now.nodes.contains(arn));
        self.kept = now.kept;
    }

    /// An execution without a claim has not changed its node yet, so it can be stopped. Step Functions stops the executions of a
    /// rotation together with it, so a rotation of an execution that goes on also goes on.
    fn sort(rotations: Vec<Starter>, running: Vec<String>, nodes: &[NodeStatus]) -> Self {
        let mut found = Self::default();
        let mut kept = BTreeSet::new();
        for node in nodes {
            let why = find_obstacle(node);
            let Some(why) = why else { continue };
            let of_node = running.iter().filter(|arn| works_on(arn, node));
            let before = kept.len();
            kept.extend(of_node.cloned());
            if kept.len() > before {
                found.kept.push(why);
            }
        }
        for rotation in rotations {
            let held = kept
                .iter()
                .find(|arn| instance_of(name_of(arn), &rotation).is_some());
            match held {
                None => found.rotations.push(rotation.arn),
                Some(of) => found.kept.push(hold_rotation(&rotation.arn, of)),
            }
        }
        found.nodes = running.into_iter().filter(|arn| !kept.contains(arn)).collect();
        let claimed = nodes.iter().filter(|node| {
            let claim = node.claim.as_ref();
            claim.is_some_and(|claim| {
                found
                    .nodes
                    .iter()
                    .any(|arn| arn == claim.fence.execution.as_str())
            })
        });
        found.instances = claimed.map(|node| node.instance_id.clone()).collect();
        found
    }

    pub(super) fn describe(&self) -> String {
        format!(
            "This stops {} and {}. The sweep then restores their nodes, whose remaining pods keep running. Replacements that have pods by then \
             stay, and their groups are larger.",
            count(self.rotations.len(), "rotation"),
            count(self.nodes.len(), "execution of a node")
        )
    }
}

/// Whether it still runs, and is no plan.
fn is_under_way(execution: &Execution) -> bool {
    execution.end.is_none() && !execution.is_dry_run()
}

/// Returns the executions that are under way. An execution that cannot be read counts, because to stop a plan does no harm.
async fn leave_out_others(installation: &Installation, arns: Vec<String>) -> Vec<String> {
    let reads = arns.into_iter().map(async |arn| {
        let read = installation.states.find(&arn).await;
        let is_other = read.is_ok_and(|found| found.is_some_and(|execution| !is_under_way(&execution)));
        (!is_other).then_some(arn)
    });
    let kept = stream::iter(reads).buffered(AT_ONCE).filter_map(ready);
    kept.collect().await
}

/// Explains why the execution of this node is not to be stopped, if so.
fn find_obstacle(node: &NodeStatus) -> Option<String> {
    match (&node.claim, &node.strange_claim) {
        (Some(claim), _) => check_abortable(node, claim).err().map(|why| why.to_string()),
        (None, Some(strange)) => Some(format!("the claim on {} is {strange}", describe(node))),
        (None, None) => None,
    }
}

/// Explains why nodes go on whose claims are those of another installation on the same cluster.
fn list_foreign(installation: &Installation, nodes: &[NodeStatus]) -> Vec<String> {
    let claimed = nodes.iter().filter_map(|node| Some((node, node.claim.as_ref()?)));
    let foreign = claimed.filter_map(|(node, claim)| check_own(installation, node, claim).err());
    foreign.map(|why| why.to_string()).collect()
}

/// Refuses a claim of another installation on the same cluster.
pub(super) fn check_own(installation: &Installation, node: &NodeStatus, claim: &Claim) -> Result<()> {
    let arn = claim.fence.execution.as_str();
    if !installation.claims(arn) {
        refuse!(
            "{} is claimed by {arn}, which is not of the installation {:?}: choose its own one with --name",
            describe(node),
            installation.name
        );
    }
    Ok(())
}

/// Whether the execution has the node's claim. If the claim cannot be read, the name of the execution decides.
fn works_on(arn: &str, node: &NodeStatus) -> bool {
    match &node.claim {
        Some(claim) => claim.fence.execution.as_str() == arn,
        None => find_instance(name_of(arn)).as_ref() == Some(&node.instance_id),
    }
}

fn hold_rotation(arn: &str, of: &str) -> String {
    format!(
        "the rotation {arn}, with which Step Functions would stop {of}: to start no other node, use {}",
        recycle_eks("pause --all")
    )
}

/// Refuses to stop a rotation if one of its nodes could not be restored. It is not refused if the cluster cannot be read.
pub(super) async fn check_rotation(installation: &Installation, rotation: Starter) -> Result<()> {
    let running = installation
        .states
        .list_running(&installation.machine("recycle-node"))
        .await?;
    let Ok(status) = fetch_status(installation, None).await else {
        return Ok(());
    };
    let found = Running::sort(vec![rotation], running, &status.nodes);
    if found.rotations.is_empty() {
        refuse!("not stopped: {}", found.kept.join("; "));
    }
    Ok(())
}

fn count(number: usize, what: &str) -> String {
    match (number, what.split_once(" of a ")) {
        (1, _) => format!("1 {what}"),
        (_, Some((one, of))) => format!("{number} {one}s of {of}s"),
        (_, None) => format!("{number} {what}s"),
    }
}

/// Refuses an abort of a node whose claim this version cannot read: it may be in a step after which it cannot be restored.
pub(super) fn check_readable(node: &NodeStatus) -> Result<()> {
    if let Some(strange) = &node.strange_claim {
        refuse!(
            "the claim on {} is {strange}, so it is unknown whether an abort could restore the node: use the version of recycle-eks that \
             the installation has",
            describe(node)
        );
    }
    Ok(())
}

/// Refuses an abort after which the node could not be restored.
pub(super) fn check_abortable(node: &NodeStatus, claim: &Claim) -> Result<()> {
    let named = describe(node);
    if claim.phase == Phase::Disposing {
        refuse!("{named} is being disposed of already: an abort cannot restore it");
    }
    match claim.urgency {
        Urgency::Hook => refuse!(
            "{named} waits in a lifecycle hook, because its group is terminating it. An abort cannot restore it, and the sweep would \
             start another execution. Without an abort, its pods keep running until they end or the hook ends"
        ),
        Urgency::Planned | Urgency::Spot | Urgency::Interruption => Ok(()),
    }
}

pub(super) fn describe(node: &NodeStatus) -> String {
    recycle::cluster::instance::describe_instance(&node.instance_id, node.node.as_ref())
}

#[cfg(test)]
mod tests {
    use recycle::input::start::Start;
    use serde_json::json;

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
        let rotation = Starter::new("rotation".to_owned(), &json!({}));
        let found = Running::sort(vec![rotation], running, &nodes);
        assert_eq!(found.nodes, ["new", "drains"].map(arn));
        assert_eq!(found.instances.len(), 1, "{found:?}");
        assert_eq!(found.kept.len(), 2, "{found:?}");
        assert_eq!(
            found.describe(),
            "This stops 1 rotation and 2 executions of nodes. The sweep then restores their nodes, whose remaining pods keep running. \
             Replacements that have pods by then stay, and their groups are larger."
        );
    }

    #[test]
    fn a_rotation_goes_on_with_an_execution_that_goes_on() {
        let rotation = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:weekly";
        let machine = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node";
        let instance = "i-0123456789abcdef0".parse().unwrap();
        let child = format!("{machine}:{}", Start::new("manual", &instance, rotation).name);
        let starter = || vec![Starter::new(rotation.to_owned(), &json!({}))];
        let claim = |phase: &str| {
            json!({"schema": 1, "fence": format!("{child}#0"), "group": "workers", "phase": phase, "urgency": "planned",
                "claimed_at": "2027-01-01T00:00:00Z"})
        };
        for (marks, is_stopped) in [
            (json!({"claim": claim("draining")}), true),
            (json!({"claim": claim("disposing")}), false),
            (json!({"strange_claim": "of a newer version (schema 2)"}), false),
        ] {
            let mut node = json!({"instance_id": "i-0123456789abcdef0", "is_marked": true});
            node.as_object_mut()
                .unwrap()
                .extend(marks.as_object().unwrap().clone());
            let nodes = [serde_json::from_value(node).unwrap()];
            let found = Running::sort(starter(), vec![child.clone()], &nodes);
            assert_eq!(!found.rotations.is_empty(), is_stopped, "{found:?}");
            assert_eq!(!found.nodes.is_empty(), is_stopped, "{found:?}");
            assert_eq!(found.kept.len(), if is_stopped { 0 } else { 2 }, "{found:?}");
        }
    }

    #[test]
    fn an_abort_is_refused_if_the_node_could_not_be_restored() {
        for (phase, urgency, words) in [
            ("draining", "planned", None),
            ("draining", "spot", None),
            ("disposing", "planned", Some("being disposed of")),
            ("draining", "hook", Some("its pods keep running")),
        ] {
            let node = node_in(phase, urgency);
            let refusal = check_abortable(&node, node.claim.as_ref().unwrap()).err();
            assert_eq!(refusal.is_some(), words.is_some(), "{phase} {urgency}");
            let text = refusal.map(|refusal| refusal.to_string()).unwrap_or_default();
            assert!(text.contains(words.unwrap_or_default()), "{text}");
            // It would end the pods that the drain waits for.
            assert!(!text.contains("finish"), "{text}");
        }
    }

    fn node_in(phase: &str, urgency: &str) -> NodeStatus {
        let claim = json!({"schema": 1, "fence": "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one#0",
            "group": "workers", "phase": phase, "urgency": urgency, "claimed_at": "2027-01-01T00:00:00Z"});
        serde_json::from_value(
            json!({"instance_id": "i-0123456789abcdef0", "is_marked": true, "claim": claim}),
        )
        .unwrap()
    }
}
