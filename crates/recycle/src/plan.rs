//! What a dry run answers: what would happen, step by step, with today's figures.

use serde::Serialize;

use crate::input::{Dispose, Evict, Input, OnDrainTimeout, Replacement};
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
    steps.extend(plan_successor(input, node));
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

fn plan_successor(input: &Input, node: &NodeFacts) -> Option<String> {
    // Of a hook's node the group sees to the replacement.
    (input.replacement == Replacement::After && input.hook.is_none()).then(|| {
        format!(
            "wait up to {} until the group's new member is in service and its Node usable{}",
            describe_seconds(input.replacement_timeout_seconds),
            describe_resources(node)
        )
    })
}

fn describe_resources(node: &NodeFacts) -> String {
    if node.extended_resources.is_empty() {
        return String::new();
    }
    format!(" (with {})", node.extended_resources.join(", "))
}

/// How many pods; which ones, the answer's `names` say.
fn plan_drain(input: &Input, survey: &PodSurvey) -> String {
    let rest = match input.evict {
        Evict::Others => "evict the others",
        Evict::None => "leave the others alone",
    };
    let end = match input.on_drain_timeout {
        OnDrainTimeout::Restore => "",
        OnDrainTimeout::Evict => "; those that need longer are evicted, in time for their grace periods",
        OnDrainTimeout::Terminate => "; after that the instance goes, whatever runs on it",
    };
    format!(
        "wait up to {} for the pods that end by themselves (now {}), {rest} (now {} to evict, {} leaving; {} do not matter){end}",
        describe_seconds(input.drain_timeout_seconds),
        survey.awaited.len(),
        survey.evictable.len(),
        survey.terminating.len() + survey.stuck.len(),
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
        Dispose::Terminate if input.hook.is_some() => {
            format!(
                "complete the lifecycle action, upon which group {} terminates {id}",
                group.name
            )
        }
        Dispose::Terminate => {
            format!(
                "terminate {id}: group {} keeps its desired capacity of {}",
                group.name, group.desired
            )
        }
        Dispose::Stop => format!("stop {id} in Standby, tag it, and remove its Node"),
        Dispose::Detach => format!(
            "detach {id} from group {}, whose other members are protected from scale-in meanwhile; it keeps running",
            group.name
        ),
    }
}

fn note_pods(survey: &PodSurvey) -> Vec<String> {
    let counts = survey.counts();
    [
        (
            "grace_too_long",
            "some pods have a grace period that is longer than the drain's time: if they need it, the time is over before they are gone",
        ),
        (
            "out_of_time",
            "some pods that are waited for would be asked to go at once, because their grace period takes all of the drain's time",
        ),
        (
            "stuck",
            "some pods should have ended five minutes ago, grace period included, and hold the node",
        ),
        (
            "never_ends",
            "some pods are waited for, but end only if somebody ends them",
        ),
        (
            "bare",
            "some pods are waited for because no controller would start them again",
        ),
        (
            "empty_dir",
            "some pods are evicted with an emptyDir, whose content is lost",
        ),
        (
            "debugged",
            "somebody looks into some pods with a debug container",
        ),
        (
            "pending",
            "some pods are bound to the node and have not begun",
        ),
        (
            "bad_annotation",
            "some pods have an annotation recycle-eks/drain that is none of wait, evict, ignore",
        ),
    ]
    .into_iter()
    .filter_map(|(class, text)| {
        counts
            .get(class)
            .map(|count| format!("{text} ({class}: {count})"))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{group, input, job_pod, node, pod};

    fn survey() -> PodSurvey {
        PodSurvey {
            awaited: vec![job_pod("job")],
            evictable: vec![pod("web"), pod("api")],
            never_ends: vec![pod("endless")],
            ignored: 3,
            ..PodSurvey::default()
        }
    }

    #[test]
    fn a_plan_tells_every_step_with_todays_figures() {
        let plan = write_plan(
            &input(json!({})),
            &group(),
            &node("old"),
            &survey(),
            vec!["a note".to_owned()],
        );
        assert_eq!(
            plan.steps,
            [
                "put i-0aaaaaaaaaaaaaaaa into Standby: group workers (min 1, desired 2, max 4, 2 members) launches a replacement",
                "wait up to 14 minutes until the replacement is in service and its Node usable",
                "taint node old and cordon it",
                "wait up to 2 days for the pods that end by themselves (now 1), evict the others (now 2 to evict, 0 leaving; 3 do not matter)",
                "take the node out of load balancers, wait 1 minute, and up to 5 minutes for volumes to detach",
                "terminate i-0aaaaaaaaaaaaaaaa: group workers keeps its desired capacity of 2",
            ]
        );
        assert_eq!(
            plan.notes,
            [
                "a note",
                "some pods are waited for, but end only if somebody ends them (never_ends: 1)"
            ]
        );
    }

    #[test]
    fn a_plan_for_a_hook_puts_nothing_into_standby_and_waits_for_no_replacement() {
        let hook = json!({"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2"});
        let plan = write_plan(
            &input(json!({"hook": hook})),
            &group(),
            &node("old"),
            &survey(),
            Vec::new(),
        );
        assert_eq!(plan.steps[0], "taint node old and cordon it");
        assert_eq!(
            plan.steps.last().map(String::as_str),
            Some("complete the lifecycle action, upon which group workers terminates i-0aaaaaaaaaaaaaaaa")
        );
    }

    #[test]
    fn a_plan_says_what_becomes_of_pods_that_need_longer() {
        let slow = PodSurvey {
            grace_too_long: vec![pod("slow")],
            out_of_time: vec![pod("slow")],
            stuck: vec![pod("stuck")],
            ..survey()
        };
        for (more, expected) in [
            (json!({}), "3 do not matter)"),
            (
                json!({"on_drain_timeout": "evict"}),
                "3 do not matter); those that need longer are evicted, in time for their grace periods",
            ),
            (
                json!({"on_drain_timeout": "terminate", "force": ["running_pods"]}),
                "3 do not matter); after that the instance goes, whatever runs on it",
            ),
        ] {
            let plan = write_plan(&input(more), &group(), &node("old"), &slow, Vec::new());
            assert!(plan.steps[3].ends_with(expected), "{}", plan.steps[3]);
            assert!(plan.steps[3].contains("1 leaving"), "{}", plan.steps[3]);
            assert_eq!(
                plan.notes[0],
                "some pods have a grace period that is longer than the drain's time: if they need it, the time is over before they \
                 are gone (grace_too_long: 1)"
            );
        }
    }

    #[test]
    fn a_plan_follows_the_input() {
        let asked = input(json!({"dispose": "stop", "evict": "none", "load_balancer_grace_seconds": 0}));
        let gpu = NodeFacts {
            extended_resources: vec!["nvidia.com/gpu".to_owned()],
            ..node("old")
        };
        let text = write_plan(&asked, &group(), &gpu, &PodSurvey::default(), Vec::new())
            .steps
            .join("\n");
        for expected in [
            "its Node usable (with nvidia.com/gpu)",
            "leave the others alone (now 0 to evict, 0 leaving; 0 do not matter)",
            "wait 0 seconds",
            "stop i-0aaaaaaaaaaaaaaaa in Standby, tag it, and remove its Node",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn seconds_are_told_in_the_largest_unit_that_divides_them() {
        let cases = [
            (0, "0 seconds"),
            (1, "1 second"),
            (60, "1 minute"),
            (90, "90 seconds"),
            (7_200, "2 hours"),
            (86_400, "1 day"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(describe_seconds(seconds), expected);
        }
    }
}
