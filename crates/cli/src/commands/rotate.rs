//! `rotate` and `plan` for a selection of nodes: start a rotation or its dry run, and watch it.

use std::collections::BTreeMap;

use aws_sdk_autoscaling::types::{AutoScalingGroup, Instance, LifecycleState};
use jiff::Timestamp;
use recycle::base::ids::InstanceId;
use recycle::base::shell::quote;
use recycle::notify::status::{NodeStatus, Status};
use recycle::report::event::End;
use serde_json::{Value, json};

use crate::args::flags::{Plan, Rotate, Selection};
use crate::args::selection::rotation_input;
use crate::aws::groups::{check_names, is_paused, list_groups};
use crate::aws::installation::Installation;
use crate::aws::nodes::fetch_status;
use crate::aws::step_functions::Listed;
use crate::base::error::Result;
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::base::times::clock_face;
use crate::commands::confirm::confirm;
use crate::commands::dry_run::{PlannedNode, show, show_nodes, wait_for_end};
use crate::commands::start::start;
use crate::history::end::{describe_end, exit_of};
use crate::history::rotation::RotationHistory;
use crate::history::rotation_end::{RotationEnd, exit_of_rotation};
use crate::history::started_by::{StartedBy, Starter, instance_of};
use crate::views::fleet::{Heading, frame};
use crate::views::output::Output;
use crate::views::row::{Holding, Row, row_of, sort_rows};
use crate::views::viewer::{Frame, Style};
use crate::views::watch::{Next, Watch};

/// A watch calls `serve-operator` only at every sixth check, which is every twelve seconds, because the function reads the whole cluster.
const CHECKS: u32 = 6;

pub(crate) async fn run(installation: &Installation, output: &Output, wanted: &Rotate) -> Result<Exit> {
    let input = rotation_input(&wanted.rotation, false)?;
    check_groups(installation, &wanted.rotation.selection.groups).await?;
    warn_of_pauses(installation, output, &wanted.rotation.selection).await?;
    if wanted.rotation.selection.all && !wanted.yes {
        confirm_all(installation, output, &wanted.rotation.selection).await?;
    }
    let machine = installation.machine("rotate-nodes");
    let (arn, mut watching) = start(installation, output, &machine, &input).await?;
    if wanted.no_wait {
        output.say(format!(
            "to watch it: {}",
            recycle_eks(format_args!("status --watch {arn}"))
        ))?;
        output.document(&json!({"execution_arn": arn}))?;
        return Ok(Exit::Done);
    }
    watch(&mut watching, &arn).await
}

/// Refuses a group that the cluster does not have. If the groups cannot be read, the rotation itself finds out.
async fn check_groups(installation: &Installation, wanted: &[String]) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let client = aws_sdk_autoscaling::Client::new(&installation.aws);
    let Ok(groups) = list_groups(&client, &installation.cluster).await else {
        return Ok(());
    };
    let names = groups
        .into_iter()
        .filter_map(|group| group.auto_scaling_group_name);
    let names: Vec<String> = names.collect();
    check_names("--group", wanted, &names, &installation.cluster)
}

/// Prints which of the selected groups are paused, because the rotation starts no node of them. No groups select all of them.
/// If the groups cannot be read, the rotation itself says so.
async fn warn_of_pauses(installation: &Installation, output: &Output, selection: &Selection) -> Result<()> {
    let client = aws_sdk_autoscaling::Client::new(&installation.aws);
    let groups = list_groups(&client, &installation.cluster).await;
    let groups = groups.unwrap_or_default();
    for group in groups
        .iter()
        .filter(|group| is_paused(group) && may_be_selected(group, selection))
    {
        let Some(name) = group.auto_scaling_group_name() else {
            continue;
        };
        // A tag may exclude the group.
        let waits = if selection.group_tag.is_none() {
            "the rotation waits"
        } else {
            "nodes of it that are selected wait"
        };
        let resume = recycle_eks(format_args!("resume {}", quote(name)));
        output.say_first(format!(
            "group {name} is paused: {waits} there for a day at most, or until you run: {resume}"
        ))?;
    }
    Ok(())
}

fn may_be_selected(group: &AutoScalingGroup, selection: &Selection) -> bool {
    let is_named = |name: &str| selection.groups.iter().any(|wanted| wanted == name);
    let has_one = |ids: &[String]| {
        let mut members = group.instances().iter().filter_map(Instance::instance_id);
        members.any(|member| ids.iter().any(|id| id == member))
    };
    (selection.groups.is_empty() || group.auto_scaling_group_name().is_some_and(is_named))
        && (selection.instances.is_empty() || has_one(&selection.instances))
}

/// Asks before all nodes of the cluster are recycled, or those of the selected groups.
async fn confirm_all(installation: &Installation, output: &Output, selection: &Selection) -> Result<()> {
    let client = aws_sdk_autoscaling::Client::new(&installation.aws);
    let groups = list_groups(&client, &installation.cluster);
    let sizes = groups.await?.into_iter().filter_map(|group| {
        let in_service =
            |instance: &&Instance| instance.lifecycle_state() == Some(&LifecycleState::InService);
        let size = group.instances().iter().filter(in_service).count();
        Some((group.auto_scaling_group_name?, size))
    });
    let warning = warn_of_all(&installation.cluster, selection, &sizes.collect::<Vec<_>>());
    confirm(output, &warning, "recycle all these nodes?")
}

/// Returns a sentence with the number of instances that `--all` selects. A filter by tags or labels may exclude some of them.
fn warn_of_all(cluster: &str, selection: &Selection, sizes: &[(String, usize)]) -> String {
    let is_meant = |name: &String| selection.groups.is_empty() || selection.groups.contains(name);
    let sizes = sizes.iter().filter(|(name, _)| is_meant(name));
    let (mut count, mut names) = (0, Vec::new());
    for (name, size) in sizes {
        count += size;
        names.push(format!("{name}: {size}"));
    }
    let is_filtered = selection.group_tag.is_some() || selection.node_labels.is_some();
    let up_to = if is_filtered { "up to " } else { "" };
    format!(
        "--all recycles {up_to}{count} instances of cluster {cluster} ({}).",
        names.join(", ")
    )
}

/// Starts a dry run of the rotation, in which the execution of each node is a dry run too, and prints the plans.
pub(super) async fn plan(installation: &Installation, output: &Output, wanted: &Plan) -> Result<Exit> {
    let input = rotation_input(&wanted.rotation, true)?;
    check_groups(installation, &wanted.rotation.selection.groups).await?;
    let states = &installation.states;
    let machine = installation.machine("rotate-nodes");
    let arn = states.start(&machine, &input).await?;
    let end = wait_for_end(states, &arn).await?;
    let started = states.find(&arn).await?.map(|execution| execution.started_at);
    let planned = RotationEnd::read(&end);
    output.say(match planned {
        None => describe_end(&end),
        Some(_) if exit_of(&end) == Exit::Done => "planned: nothing was touched".to_owned(),
        Some(_) => "not every node could be planned; nothing was touched".to_owned(),
    })?;
    for (group, why) in planned.iter().flat_map(RotationEnd::list_planned) {
        output.say(format!("{group}: {why}"))?;
    }
    let mut rotation = RotationHistory::new(&arn);
    rotation.read_all(states).await?;
    if let Some(why) = &rotation.unread {
        output.say(why)?;
    }
    let mut nodes = Vec::new();
    for (instance, listed) in list_begun(installation, &rotation.starter(), started).await? {
        let planned = wait_for_end(states, &listed.arn).await?;
        let (group, criteria) = rotation.find_criteria(instance.as_str()).unwrap_or(("-", vec![]));
        nodes.push(PlannedNode {
            instance: instance.to_string(),
            group: group.to_owned(),
            criteria: criteria.into_iter().map(str::to_owned).collect(),
            execution: listed.arn,
            end: planned,
        });
    }
    show_nodes(output, &nodes)?;
    if !output.is_json() && wanted.details {
        for node in &nodes {
            output.say("")?;
            show(output, &node.execution, &node.end, true)?;
        }
    } else if !nodes.is_empty() {
        output.say("--details adds the steps and each pod of each node")?;
    }
    let plans: Vec<Value> = nodes.iter().map(document_of).collect();
    let exits: Vec<Exit> = nodes.iter().map(|node| exit_of(&node.end)).collect();
    let exit = exit_of_plan(&end, &exits);
    let document = json!({"execution_arn": arn, "outcome": end.outcome(), "reason": end.reason(), "output": end.output,
        "nodes": plans, "exit": exit.code()});
    output.document(&document)?;
    Ok(exit)
}

fn document_of(node: &PlannedNode) -> Value {
    json!({"instance_id": node.instance, "group": node.group, "criteria": node.criteria, "outcome": node.end.outcome(),
        "reason": node.end.reason(), "output": node.end.output})
}

/// Returns the exit code of a dry run, in which it is not a failure that nodes were not recycled.
/// If no group has an error, the first plan of a node that failed decides, because it says more than the end of the rotation.
fn exit_of_plan(end: &End, nodes: &[Exit]) -> Exit {
    let has_error = RotationEnd::read(end).is_some_and(|planned| planned.has_error());
    let of_nodes = nodes.iter().find(|exit| **exit != Exit::Done && !has_error);
    of_nodes.copied().unwrap_or_else(|| exit_of(end))
}

pub(super) async fn watch(watch: &mut Watch<'_>, arn: &str) -> Result<Exit> {
    let (installation, output) = (watch.installation, watch.output);
    let (mut rotation, mut checks, mut status) = (RotationHistory::new(arn), 0_u32, Status::default());
    // `serve-operator` does not list a node that is gone, so the last row of that node stays.
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let over = watch.until_over(async |now| {
        rotation.read_on(&installation.states).await?;
        let (history, starter) = (&rotation.history, rotation.starter());
        let begun = list_begun(installation, &starter, history.started).await?;
        if checks.is_multiple_of(CHECKS) {
            status = fetch_status(installation, None).await?;
        }
        checks += 1;
        for (instance, listed) in &begun {
            let node = status.nodes.iter().find(|node| node.instance_id == *instance);
            let mut row = to_row(instance, listed, node, rows.get(instance.as_str()), &starter);
            // The end of an execution is fetched once.
            if listed.status != "RUNNING" && row.step != step_of_end(&listed.status) {
                let execution = installation.states.find(&listed.arn).await?;
                if let Some(end) = execution.and_then(|execution| execution.end) {
                    row = ended(row, &end);
                }
            }
            rows.insert(instance.to_string(), row);
        }
        // Nodes under way come first. Then the group decides, and within a group the order in which the executions began.
        let listed = begun.iter().map(|(instance, _)| instance.as_str());
        let mut listed: Vec<Row> = listed.filter_map(|id| rows.get(id).cloned()).collect();
        listed.sort_by(|one, other| one.group.cmp(&other.group));
        sort_rows(&mut listed);
        let clock = clock_face(history.elapsed(now));
        let mut shown = frame(&[Heading::of(&rotation)], &listed, clock, now, output.width());
        if let Some(end) = &history.end {
            show_end(&mut shown, end);
        }
        let exit = history.end.as_ref().map(exit_of_rotation);
        Ok((shown, exit.map_or(Next::Soon, Next::Over)))
    });
    let again = recycle_eks(format_args!("status --watch {arn}"));
    over.await?.map_or_else(|| watch.leave(arn, &again), Ok)
}

fn show_end(shown: &mut Frame, end: &End) {
    for (group, became) in RotationEnd::read(end).iter().flat_map(RotationEnd::list_groups) {
        let line = (Style::Plain, format!("{group}: {became}"));
        shown.picture.push(vec![line]);
        shown.facts.push((group, became));
    }
    shown.document["outcome"] = end.outcome().into();
    shown.document["output"] = end.output.clone();
    shown.document["exit"] = exit_of_rotation(end).code().into();
}

/// Lists the executions that a rotation has begun: the last attempt of each node, in the order in which the attempts began.
/// The executions are found by their names, which follow from the rotation and the instance.
async fn list_begun(
    installation: &Installation,
    rotation: &Starter,
    since: Option<Timestamp>,
) -> Result<Vec<(InstanceId, Listed)>> {
    let Some(since) = since else { return Ok(Vec::new()) };
    let machine = installation.machine("recycle-node");
    let listed = installation.states.list_since(&machine, since).await?;
    let mut begun: Vec<(InstanceId, Listed)> = Vec::new();
    // The list begins with the newest execution, so the first one of an instance is its last attempt.
    for execution in listed {
        if let Some(instance) = instance_of(&execution.name, rotation)
            && begun.iter().all(|(other, _)| *other != instance)
        {
            begun.push((instance, execution));
        }
    }
    begun.reverse();
    Ok(begun)
}

/// Returns the row of a node whose execution was started. While the execution runs, the row shows the marks on the node.
/// Otherwise the previous row stays. Without a previous row, the row says only that the execution was started.
fn to_row(
    instance: &InstanceId,
    listed: &Listed,
    node: Option<&NodeStatus>,
    before: Option<&Row>,
    rotation: &Starter,
) -> Row {
    if let Some(node) = node.filter(|_| listed.status == "RUNNING") {
        return with_name(row_of(node, std::slice::from_ref(rotation), |_| true), before);
    }
    let group = node.and_then(|node| node.group.clone());
    before.cloned().unwrap_or_else(|| Row {
        group: group.unwrap_or_else(|| "-".to_owned()),
        instance: instance.to_string(),
        node: instance.to_string(),
        step: "begun".to_owned(),
        since: Some(listed.started_at),
        execution: Some(listed.arn.clone()),
        started_by: Some(StartedBy::read(&listed.arn, std::slice::from_ref(rotation))),
        style: Style::Busy,
        ..Row::default()
    })
}

/// Keeps the name of the Node in the row after the Node is gone, which happens before the instance is gone.
fn with_name(row: Row, before: Option<&Row>) -> Row {
    let kept = before.filter(|_| row.node == row.instance);
    let node = kept.map_or_else(|| row.node.clone(), |before| before.node.clone());
    Row { node, ..row }
}

fn step_of_end(status: &str) -> &'static str {
    if status == "SUCCEEDED" { "done" } else { "failed" }
}

/// Returns the row of a node whose execution has ended. A good end shows the outcome alone, because the row already names the node.
fn ended(row: Row, end: &End) -> Row {
    let (what, style) = if exit_of(end) == Exit::Done {
        (end.outcome().to_owned(), Style::Good)
    } else {
        (describe_end(end), Style::Bad)
    };
    Row {
        step: step_of_end(&end.status).to_owned(),
        what,
        style,
        since: None,
        until: None,
        then: None,
        end: None,
        holding: Holding::default(),
        disruptions: Vec::new(),
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_the_name_of_a_deleted_node() {
        let row = |node: &str| Row {
            group: "workers".to_owned(),
            instance: "i-1".to_owned(),
            node: node.to_owned(),
            step: "disposing".to_owned(),
            style: Style::Busy,
            ..Row::default()
        };
        for (now, before, shown) in [
            ("i-1", None, "i-1"),
            ("i-1", Some("ip-1"), "ip-1"),
            ("ip-1", Some("i-1"), "ip-1"),
        ] {
            assert_eq!(
                with_name(row(now), before.map(row).as_ref()).node,
                shown,
                "{now} {before:?}"
            );
        }
    }

    #[test]
    fn a_pause_concerns_a_rotation_only_if_the_group_may_be_selected() {
        let member = Instance::builder().instance_id("i-1").build();
        let group = AutoScalingGroup::builder().auto_scaling_group_name("workers");
        let group = group.instances(member).build();
        let names = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        for (groups, instances, expected) in [
            (&[][..], &[][..], true),
            (&["workers"], &[], true),
            (&["web"], &[], false),
            (&[], &["i-2", "i-1"], true),
            (&[], &["i-2"], false),
        ] {
            let selection = Selection {
                groups: names(groups),
                instances: names(instances),
                ..Selection::default()
            };
            assert_eq!(may_be_selected(&group, &selection), expected, "{selection:?}");
        }
    }

    #[test]
    fn the_warning_counts_the_instances_of_the_selected_groups() {
        let sizes = [("a".to_owned(), 3), ("b".to_owned(), 9)];
        let every = Selection::default();
        let one = Selection {
            groups: vec!["b".to_owned()],
            node_labels: Some("x=y".to_owned()),
            ..Selection::default()
        };
        for (selection, text) in [
            (
                every,
                "--all recycles 12 instances of cluster world (a: 3, b: 9).",
            ),
            (one, "--all recycles up to 9 instances of cluster world (b: 9)."),
        ] {
            assert_eq!(warn_of_all("world", &selection, &sizes), text);
        }
    }

    #[test]
    fn a_failed_plan_is_not_done() {
        let with_error = json!({"group": "a", "error": ["KubeletTooNew"], "why": ["no"]});
        let with_failure = json!({"group": "a", "failed": [{"node": "i-1", "why": "PreflightRefused"}]});
        let planned = json!({"group": "a", "left": 1, "why": ["planned"], "error": []});
        let (done, refused) = (Exit::Done, Exit::Refused);
        for (status, group, nodes, exit) in [
            ("SUCCEEDED", &planned, vec![done], done),
            ("SUCCEEDED", &planned, vec![done, refused], refused),
            ("FAILED", &with_failure, vec![done, refused], refused),
            ("FAILED", &with_failure, vec![done], Exit::Restored),
            ("FAILED", &with_error, vec![], Exit::Restored),
            ("FAILED", &with_error, vec![refused], Exit::Restored),
        ] {
            let result = json!({"groups": [group]});
            let end = End {
                status: status.to_owned(),
                output: if status == "SUCCEEDED" {
                    result.clone()
                } else {
                    json!(null)
                },
                error: if status == "SUCCEEDED" {
                    ""
                } else {
                    "RotationFailed"
                }
                .to_owned(),
                cause: result.to_string(),
            };
            assert_eq!(exit_of_plan(&end, &nodes), exit, "{status} {group} {nodes:?}");
        }
    }
}
