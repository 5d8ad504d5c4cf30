//! What a dry run answers: what would happen, step by step, with today's figures.

use serde::Serialize;

use crate::drain::describe_pods;
use crate::input::{Dispose, Evict, Input, Replacement};
use crate::node::{Group, NodeFacts};
use crate::pods::PodSurvey;

/// The plan of a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// One sentence a step.
    pub steps: Vec<String>,
    /// Things that a person should know.
    pub notes: Vec<String>,
}

/// Writes the plan.
#[must_use]
pub fn write_plan(
    input: &Input,
    group: &Group,
    node: &NodeFacts,
    survey: &PodSurvey,
    notes: Vec<String>,
) -> Plan {
    let mut steps = Vec::new();
    steps.extend(plan_replacement(input, group, node));
    steps.push(format!("taint node {} and cordon it", node.name));
    steps.push(plan_drain(input, survey));
    steps.push(plan_balancers(input));
    steps.push(plan_disposal(input, group));
    Plan {
        steps,
        notes: notes.into_iter().chain(note_pods(survey)).collect(),
    }
}

fn plan_replacement(input: &Input, group: &Group, node: &NodeFacts) -> Vec<String> {
    let Group {
        name,
        min,
        desired,
        max,
        ..
    } = group;
    match input.replacement {
        Replacement::Before => vec![
            format!(
                "put {} into Standby: group {name} (min {min}, desired {desired}, max {max}, {} members) launches a replacement",
                input.instance_id,
                group.members.len()
            ),
            format!(
                "wait up to {} until the replacement is in service and its Node usable{}",
                describe_seconds(input.replacement_timeout_seconds),
                describe_resources(node)
            ),
        ],
        Replacement::After => Vec::new(),
    }
}

fn describe_resources(node: &NodeFacts) -> String {
    if node.extended_resources.is_empty() {
        return String::new();
    }
    format!(" (with {})", node.extended_resources.join(", "))
}

fn plan_drain(input: &Input, survey: &PodSurvey) -> String {
    let rest = match input.evict {
        Evict::Others => "evict the others",
        Evict::None => "leave the others alone",
    };
    format!(
        "wait up to {} for the pods that end by themselves, {rest}; now {}; {} pods do not matter",
        describe_seconds(input.drain_timeout_seconds),
        describe_pods(survey),
        survey.ignored
    )
}

fn plan_balancers(input: &Input) -> String {
    format!(
        "take the node out of load balancers, wait {}, and up to 5 minutes for volumes to detach",
        describe_seconds(input.load_balancer_grace_seconds)
    )
}

fn plan_disposal(input: &Input, group: &Group) -> String {
    let id = &input.instance_id;
    match input.dispose {
        Dispose::Terminate => {
            format!(
                "terminate {id}: group {} keeps its desired capacity of {}",
                group.name, group.desired
            )
        }
        Dispose::Stop => format!("stop {id} in Standby, tag it, and remove its Node"),
        Dispose::Detach => format!("detach {id} from group {}; it keeps running", group.name),
    }
}

fn note_pods(survey: &PodSurvey) -> Vec<String> {
    let names = survey.names();
    [
        (
            "never_ends",
            "these pods are waited for, but end only if somebody ends them",
        ),
        (
            "bare",
            "these pods are waited for because no controller would start them again",
        ),
        (
            "bad_annotation",
            "these pods have an annotation recycle-eks/drain that is none of wait, evict, ignore",
        ),
    ]
    .into_iter()
    .filter_map(|(class, text)| {
        names
            .get(class)
            .map(|names| format!("{text}: {}", names.join(", ")))
    })
    .collect()
}

/// Seconds in the largest unit that divides them.
fn describe_seconds(seconds: u32) -> String {
    let (count, unit) = match seconds {
        0 => (0, "second"),
        _ if seconds.is_multiple_of(86_400) => (seconds / 86_400, "day"),
        _ if seconds.is_multiple_of(3_600) => (seconds / 3_600, "hour"),
        _ if seconds.is_multiple_of(60) => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
