//! Writes the answer of a dry run: each step that an execution would take, with the present figures.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::text::{NAMES_PER_CLASS, fit_names};
use crate::cluster::group::Group;
use crate::cluster::node::NodeFacts;
use crate::cluster::pod::PodFacts;
use crate::drain::budgets::{Budget, describe_refusing, is_refused};
use crate::drain::classify::{PodClass, Rule, find_rule, is_empty_node, is_selected};
use crate::drain::survey::PodSurvey;
use crate::drain::terms::Terms;
use crate::input::model::{Dispose, Evict, Input, OnDrainTimeout, Replacement};
use crate::restore::table::{Column, Way, find_row, look_up};

/// The bytes that the names of a plan's pods may have together. With all else an answer stays under 8 KB.
const PODS_BUDGET: usize = 2_400;
/// The number of pods of one class and reason that are named.
/// Two such lists name all pods of a node that has the maximum number of pods that EKS allows by default (110).
const PODS_NAMED: usize = 55;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub node: String,
    /// The longest time that the drain may take with the pods that are on the node now.
    pub longest_wait: LongestWait,
    /// One sentence for each budget that allows no eviction now, and for each pod that nothing lets go.
    pub blocked: Vec<String>,
    pub steps: Vec<String>,
    /// Remarks for an operator.
    pub notes: Vec<String>,
    /// The treatment of each pod, and the rule for it.
    pub pods: Vec<PlannedPods>,
    /// How the node would be restored if its drain failed, as the group is now.
    /// One sentence for each cell in the group's row of the restore table.
    pub restore: Vec<String>,
}

/// How long the pods of a node may hold it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LongestWait {
    pub seconds: u32,
    /// The number of pods that may need this time.
    pub pods: u32,
    /// The limit of the time: `drain_timeout`, `grace_period`, or `nothing_to_wait_for`.
    pub limit: &'static str,
}

/// Pods that are treated alike for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedPods {
    /// The class of the pods in a drain: `unreadable`, `awaited`, `zone_mismatch`, `evictable`, `leaves_last`, `terminating`, `stuck`, `skipped`
    /// or `ignored`.
    pub class: &'static str,
    pub reason: &'static str,
    pub count: u32,
    /// The pods' names, as many as there is room for.
    pub pods: Vec<String>,
}

/// Everything that a plan is written from.
#[derive(Debug, Clone, Copy)]
pub struct PlanFacts<'a> {
    pub input: &'a Input,
    pub group: &'a Group,
    pub node: &'a NodeFacts,
    /// The pods of the node, and the same pods by class under these terms.
    pub pods: &'a [PodFacts],
    pub survey: &'a PodSurvey,
    pub terms: &'a Terms<'a>,
    /// All disruption budgets of the cluster.
    pub budgets: &'a [Budget],
    /// The places that other executions have added to the group.
    pub added_places: u32,
}

pub fn write_plan(facts: PlanFacts<'_>, notes: Vec<String>) -> Plan {
    let PlanFacts {
        input,
        group,
        node,
        survey,
        added_places,
        ..
    } = facts;
    // The capacity that the group has for itself, which it has again at the end.
    let own = group.desired.saturating_sub(added_places);
    let mut steps = Vec::new();
    match input.replacement {
        Replacement::Before => {
            steps.push(plan_standby(input, group));
            steps.push(plan_wait("the replacement", input, node));
        }
        Replacement::Surge => {
            steps.push(plan_raise(input, group, added_places));
            steps.push(plan_wait("the replacement", input, node));
        }
        Replacement::After => {}
    }
    steps.push(format!("taint node {} and cordon it", node.name));
    steps.push(plan_drain(input, survey));
    steps.push(plan_balancers(input));
    steps.push(plan_disposal(input, group, own));
    // On the hook path the group itself launches a replacement.
    if input.replacement == Replacement::After && input.hook.is_none() {
        steps.push(plan_wait("the group's new member", input, node));
    }
    let mut blocked = describe_refusing(&survey.evictable, facts.budgets);
    blocked.extend(survey.held_because.iter().take(NAMES_PER_CLASS).cloned());
    Plan {
        node: node.name.to_string(),
        longest_wait: find_longest_wait(facts),
        blocked,
        steps,
        notes: notes
            .into_iter()
            .chain(note_selector(facts))
            .chain(note_pods(survey))
            .collect(),
        pods: plan_pods(facts),
        restore: plan_restore(input, group, own),
    }
}

/// Pods that end by themselves, or that nothing lets go now, may take all of the drain's time. All others take their grace period.
fn find_longest_wait(facts: PlanFacts<'_>) -> LongestWait {
    let PlanFacts {
        input, survey, terms, ..
    } = facts;
    let refused = survey.evictable.iter();
    let refused = refused.filter(|pod| is_refused(pod, facts.budgets)).count();
    let held = [&survey.unreadable, &survey.awaited, &survey.zone_mismatch];
    // A stuck pod that is also awaited counts once.
    let stuck = survey.stuck.iter().filter(|pod| !survey.awaited.contains(pod));
    let open = held.iter().map(|pods| pods.len()).sum::<usize>() + refused + stuck.count();
    if open > 0 {
        return LongestWait {
            seconds: input.drain_timeout,
            pods: u32::try_from(open).unwrap_or(u32::MAX),
            limit: "drain_timeout",
        };
    }
    let leaving = [&survey.evictable, &survey.leaves_last, &survey.terminating];
    let graces = leaving.into_iter().flatten().map(|pod| terms.grace_of(pod));
    let graces: Vec<u32> = graces.map(|grace| grace.min(input.drain_timeout)).collect();
    let Some(seconds) = graces.iter().copied().max() else {
        return LongestWait {
            limit: "nothing_to_wait_for",
            ..LongestWait::default()
        };
    };
    let pods = graces.iter().filter(|grace| **grace == seconds).count();
    LongestWait {
        seconds,
        pods: u32::try_from(pods).unwrap_or(u32::MAX),
        limit: "grace_period",
    }
}

/// Finds the class of a pod, its rank in a plan, and the reason.
fn plan_pod(pod: &PodFacts, facts: PlanFacts<'_>) -> (u8, &'static str, &'static str) {
    let (rule, terms) = (find_rule(pod, facts.terms), facts.terms);
    let is_held = facts.survey.zone_mismatch.iter().any(|held| held.uid == pod.uid);
    let is_leaving = pod.deletion_at.is_some();
    let class = rule.class(terms.evict);
    if class != PodClass::Ignore && terms.skips(pod) {
        return (5, "skipped", "it should have ended long ago");
    }
    match class {
        PodClass::Ignore => (6, "ignored", rule.reason(terms.evict)),
        PodClass::Wait if pod.unreadable.is_some() => (0, "unreadable", rule.reason(terms.evict)),
        PodClass::Wait if !is_leaving && terms.is_out_of_time(pod) => {
            (3, "evictable", "the drain has no time to wait for it")
        }
        PodClass::Wait => (1, "awaited", rule.reason(terms.evict)),
        PodClass::Evict if pod.is_stuck(terms.now) => (4, "stuck", "it should have ended five minutes ago"),
        PodClass::Evict if is_leaving => (4, "terminating", "it is already leaving"),
        PodClass::Evict if is_held => (
            2,
            "zone_mismatch",
            "no other node that takes pods can use its volume",
        ),
        PodClass::Evict if is_refused(pod, facts.budgets) => {
            (3, "evictable", "its budget allows no eviction now")
        }
        PodClass::Evict if rule == Rule::LeavesLast => (3, "leaves_last", rule.reason(terms.evict)),
        PodClass::Evict => (3, "evictable", rule.reason(terms.evict)),
    }
}

/// Groups the pods by class and reason. The most important class comes first.
fn plan_pods(facts: PlanFacts<'_>) -> Vec<PlannedPods> {
    let mut groups: BTreeMap<(u8, &'static str, &'static str), Vec<String>> = BTreeMap::new();
    for pod in facts.pods {
        let key = plan_pod(pod, facts);
        groups.entry(key).or_default().push(pod.full_name());
    }
    let mut planned: Vec<PlannedPods> = groups
        .into_iter()
        .map(|((_, class, reason), mut pods)| {
            let count = u32::try_from(pods.len()).unwrap_or(u32::MAX);
            pods.sort();
            pods.truncate(PODS_NAMED);
            PlannedPods {
                class,
                reason,
                count,
                pods,
            }
        })
        .collect();
    let mut named: usize = planned.iter().map(|group| group.pods.len()).sum();
    // This many names fit if each is cut to 16 characters.
    while named * 16 > PODS_BUDGET {
        if let Some(longest) = planned.iter_mut().max_by_key(|group| group.pods.len()) {
            longest.pods.pop();
        }
        named -= 1;
    }
    let mut names: Vec<&mut String> = planned.iter_mut().flat_map(|group| &mut group.pods).collect();
    fit_names(&mut names, PODS_BUDGET);
    planned
}

fn plan_restore(input: &Input, group: &Group, own: u32) -> Vec<String> {
    if input.hook.is_some() {
        let never = "never: its group is terminating it; the next execution finishes its drain";
        return vec![never.to_owned()];
    }
    if input.replacement == Replacement::After {
        let half = "the changes in Kubernetes are undone; nothing has to be undone in the group";
        return vec![half.to_owned()];
    }
    if input.replacement == Replacement::Surge {
        let larger = own + 1;
        return vec![
            format!("without a replacement that has pods: the group has {own} as before"),
            format!("with pods on the replacement: the group has {larger}, one more than before"),
        ];
    }
    let row = find_row(group);
    let desired = group.desired;
    [
        (Column::NotLaunched, "before the replacement is in service"),
        (Column::Empty, "with an empty replacement"),
        (Column::Stays, "with pods on the replacement"),
    ]
    .into_iter()
    .map(|(column, when)| match look_up(row, column) {
        Way::LowerThenExit | Way::DropThenExit | Way::ExitThenLower | Way::ExitThenDrop => {
            format!("{when}: back in service, the group has {desired} as before")
        }
        Way::Exit => {
            let larger = desired + 1;
            format!("{when}: back in service, the group has {larger}, one more than before")
        }
        Way::Stay => {
            format!("{when}: it stays in Standby, schedulable, until an operator acts (LeftInStandby)")
        }
    })
    .collect()
}

fn plan_standby(input: &Input, group: &Group) -> String {
    let (id, name, members) = (&input.instance_id, &group.name, group.members.len());
    format!(
        "put {id} into Standby: group {name} (min {}, desired {}, max {}, {members} members) launches a replacement",
        group.min, group.desired, group.max
    )
}

fn plan_raise(input: &Input, group: &Group, added_places: u32) -> String {
    let (id, name, members, desired) = (
        &input.instance_id,
        &group.name,
        group.members.len(),
        group.desired,
    );
    format!(
        "protect {id} from scale-in and raise the desired capacity of group {name} (min {}, desired {desired}{}, max {}, {members} members) to {}",
        group.min,
        describe_places(added_places),
        group.max,
        desired + 1
    )
}

fn describe_places(added_places: u32) -> String {
    match added_places {
        0 => String::new(),
        1 => " with 1 for another node that is underway".to_owned(),
        places => format!(" with {places} for other nodes that are underway"),
    }
}

fn plan_wait(new_member: &str, input: &Input, node: &NodeFacts) -> String {
    let time = describe_seconds(input.replacement_timeout);
    let resources = match node.extended_resources.as_slice() {
        [] => String::new(),
        resources => format!(" (with {})", resources.join(", ")),
    };
    format!("wait up to {time} until {new_member} is in service and its Node is usable{resources}")
}

/// Describes the drain with the number of pods. The answer's `names` say which pods these are.
fn plan_drain(input: &Input, survey: &PodSurvey) -> String {
    let rest = match input.evict {
        Evict::Others | Evict::OthersAndJobs | Evict::All => "evict the others",
        Evict::None => "leave the others alone",
    };
    let end = match input.on_drain_timeout {
        OnDrainTimeout::Restore => "",
        OnDrainTimeout::Evict => {
            "; awaited pods that need longer are evicted in time for their grace periods"
        }
        OnDrainTimeout::Terminate => "; after that the instance is disposed of, even if pods still run on it",
    };
    format!(
        "wait up to {} for the awaited pods (now {}), {rest} (now {} evictable, {} terminating; {} ignored){end}",
        describe_seconds(input.drain_timeout),
        survey.awaited.len(),
        survey.evictable.len(),
        survey.terminating.len() + survey.stuck.len(),
        survey.ignored
    )
}

fn plan_balancers(input: &Input) -> String {
    format!(
        "take the node out of load balancers, wait {}, then wait up to 5 minutes for volumes to detach",
        describe_seconds(input.load_balancer_grace)
    )
}

fn plan_disposal(input: &Input, group: &Group, own: u32) -> String {
    let (id, name, desired) = (&input.instance_id, &group.name, group.desired);
    match input.dispose {
        Dispose::Terminate if input.hook.is_some() => {
            format!("complete the lifecycle action, after which group {name} terminates {id}")
        }
        Dispose::Terminate if input.replacement == Replacement::Surge => {
            format!("terminate {id} with decrement: group {name} has its desired capacity of {own} again")
        }
        Dispose::Terminate => format!("terminate {id}: group {name} keeps its desired capacity of {desired}"),
        Dispose::Stop => format!("stop {id} in Standby, tag it, and remove its Node"),
        Dispose::Detach => format!(
            "detach {id} from group {name} and protect its other members from scale-in meanwhile; the instance keeps running"
        ),
    }
}

/// Notes a selector that matches none of the node's pods, because a misspelt one would let the pods be evicted that it was meant for.
fn note_selector(facts: PlanFacts<'_>) -> Option<String> {
    let awaited = &facts.input.awaited;
    let selector = awaited.selector.as_ref()?;
    if is_empty_node(facts.pods) || facts.pods.iter().any(|pod| is_selected(pod, awaited)) {
        return None;
    }
    let namespaces = match awaited.namespaces.iter().map(String::as_str).collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        names => format!(" and in namespace {}", names.join(" or ")),
    };
    Some(format!(
        "no pod on this node matches label_selector {selector}{namespaces}"
    ))
}

fn note_pods(survey: &PodSurvey) -> Vec<String> {
    let counts = survey.counts();
    [
        (
            "unreadable",
            "some pods cannot be read; they hold the node until the drain times out",
        ),
        (
            "grace_too_long",
            "some pods have a grace period that is longer than the drain may take; if they need it, the drain times out before they are gone",
        ),
        (
            "out_of_time",
            "some awaited pods would be evicted at once, because their grace period takes all of the time that the drain may take",
        ),
        (
            "stuck",
            "some pods should have ended five minutes ago, including their grace period; they hold the node",
        ),
        (
            "never_ends",
            "some awaited pods do not end by themselves; an operator has to end them",
        ),
        (
            "bare",
            "some pods are awaited because no controller would start them again",
        ),
        (
            "owner_protected",
            "some pods are awaited because an annotation of their owner protects them; without it, or with override owner_protected, they are evicted",
        ),
        (
            "half_completed",
            "some awaited pods have completed except for a container that still runs, such as an injected sidecar",
        ),
        (
            "leaves_last",
            "some pods of DaemonSets are evicted once no other pod holds the node",
        ),
        (
            "skipped",
            "some pods should have ended long ago; they end with the instance",
        ),
        (
            "local_storage",
            "some pods with data on the machine (emptyDir, hostPath, ephemeral volume) are evicted; it is lost",
        ),
        (
            "debugged",
            "some pods have a running debug container",
        ),
        (
            "pending",
            "some pods are bound to the node and have not started",
        ),
        (
            "bad_annotation",
            "some pods have an annotation whose value does not count",
        ),
    ]
    .into_iter()
    .filter_map(|(class, text)| Some(format!("{text} ({class}: {})", counts.get(class)?)))
    .collect()
}

/// Writes seconds in the largest unit that divides them.
fn describe_seconds(seconds: u32) -> String {
    let mut units = [(86_400, "day"), (3_600, "hour"), (60, "minute")].into_iter();
    let largest = units.find(|(length, _)| seconds != 0 && seconds.is_multiple_of(*length));
    let (length, unit) = largest.unwrap_or((1, "second"));
    let count = seconds / length;
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::drain::survey::PodRemarks;
    use crate::fixtures::{at, controller, group, input, job_pod, node, pod, strings};

    fn survey() -> PodSurvey {
        PodSurvey {
            awaited: vec![job_pod("job")],
            evictable: vec![pod("web"), pod("api")],
            remarks: PodRemarks {
                never_ends: vec![pod("endless")],
                ..PodRemarks::default()
            },
            ignored: 3,
            ..PodSurvey::default()
        }
    }

    #[test]
    fn a_plan_lists_every_step_with_the_present_figures() {
        let plan = write_on(&node("old"), json!({}), &group(), &[], &survey(), &["a note"]);
        assert_eq!(
            plan.steps,
            [
                "put i-0aaaaaaaaaaaaaaaa into Standby: group workers (min 1, desired 2, max 4, 2 members) launches a replacement",
                "wait up to 14 minutes until the replacement is in service and its Node is usable",
                "taint node old and cordon it",
                "wait up to 2 days for the awaited pods (now 1), evict the others (now 2 evictable, 0 terminating; 3 ignored)",
                "take the node out of load balancers, wait 5 minutes, then wait up to 5 minutes for volumes to detach",
                "terminate i-0aaaaaaaaaaaaaaaa: group workers keeps its desired capacity of 2",
            ]
        );
        assert_eq!(
            plan.notes,
            [
                "a note",
                "some awaited pods do not end by themselves; an operator has to end them (never_ends: 1)"
            ]
        );
    }

    #[test]
    fn a_plan_notes_a_selector_that_matches_no_pod_on_the_node() {
        let training = PodFacts {
            labels: strings([("app", "training")]),
            ..job_pod("job")
        };
        let pods = [training, pod("web")];
        let noted = |more| plan_of(more, &group(), &pods, &PodSurvey::default()).notes;
        let of_labels = ["no pod on this node matches label_selector app=trainig"];
        assert_eq!(noted(json!({"label_selector": "app=trainig"})), of_labels);
        let of_namespaces =
            ["no pod on this node matches label_selector app=training and in namespace ml or web"];
        let narrowed = json!({"label_selector": "app=training", "namespaces": ["web", "ml"]});
        assert_eq!(noted(narrowed), of_namespaces);
        for matches in ["*", "", "app=training"] {
            let selector = json!({"label_selector": matches});
            assert_eq!(noted(selector), [""; 0], "{matches:?}");
        }
        let empty = plan_of(
            json!({"label_selector": "app=trainig"}),
            &group(),
            &[],
            &PodSurvey::default(),
        );
        assert_eq!(empty.notes, [""; 0]);
    }

    fn write_on(
        node: &NodeFacts,
        more: serde_json::Value,
        group: &Group,
        pods: &[PodFacts],
        survey: &PodSurvey,
        notes: &[&str],
    ) -> Plan {
        let input = input(more);
        let (terms, _) = Terms::find(&input, None, None, None, at(0));
        let budget = Budget {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            selector: Some("*".parse().unwrap()),
            allows: false,
            allows_unhealthy: false,
        };
        let facts = PlanFacts {
            input: &input,
            group,
            node,
            pods,
            survey,
            terms: &terms,
            budgets: &[budget],
            added_places: 0,
        };
        write_plan(facts, notes.iter().map(|note| (*note).to_owned()).collect())
    }

    fn plan_of(more: serde_json::Value, group: &Group, pods: &[PodFacts], survey: &PodSurvey) -> Plan {
        write_on(&node("old"), more, group, pods, survey, &[])
    }

    #[test]
    fn a_plan_names_the_class_of_each_pod_and_the_rule_for_it() {
        let marked = |name: &str, key: &str, value: &str| PodFacts {
            annotations: strings([(key, value)]),
            ..pod(name)
        };
        let leaving = |name: &str, seconds: i64| PodFacts {
            deletion_at: Some(at(seconds)),
            ..pod(name)
        };
        let blocked = PodFacts {
            namespace: "shop".to_owned(),
            ..pod("blocked")
        };
        let daemon = PodFacts {
            controller: controller("DaemonSet"),
            ..marked("daemon", "recycle-eks/drain", "evict")
        };
        let pods = [
            pod("web"),
            marked("annotated", "recycle-eks/drain", "ignore"),
            marked("protected", "karpenter.sh/do-not-disrupt", "true"),
            pod("held"),
            pod("api"),
            job_pod("job"),
            leaving("leaving", 60),
            leaving("stuck", -400),
            leaving("forgotten", -800),
            blocked.clone(),
            daemon,
        ];
        let survey = PodSurvey {
            zone_mismatch: vec![pod("held")],
            evictable: vec![pod("web"), blocked],
            ..PodSurvey::default()
        };
        let planned = plan_of(json!({"label_selector": "*"}), &group(), &pods, &survey).pods;
        assert_eq!(planned[0].count, 9, "{planned:?}");
        let plan = plan_of(json!({"skip_stuck_after": "10m"}), &group(), &pods, &survey);
        let found: Vec<(&str, &str, String)> = plan
            .pods
            .iter()
            .map(|group| (group.class, group.reason, group.pods.join(" ")))
            .collect();
        let row = |class, reason, names: &str| (class, reason, names.to_owned());
        assert_eq!(
            found,
            [
                row("awaited", "it runs to completion", "default/job"),
                row(
                    "awaited",
                    "its owner's annotation protects it",
                    "default/protected"
                ),
                row(
                    "zone_mismatch",
                    "no other node that takes pods can use its volume",
                    "default/held"
                ),
                row("evictable", "its budget allows no eviction now", "shop/blocked"),
                row(
                    "evictable",
                    "its controller starts it elsewhere",
                    "default/api default/web"
                ),
                row(
                    "leaves_last",
                    "its annotation recycle-eks/drain, after all other pods",
                    "default/daemon"
                ),
                row("stuck", "it should have ended five minutes ago", "default/stuck"),
                row("terminating", "it is already leaving", "default/leaving"),
                row("skipped", "it should have ended long ago", "default/forgotten"),
                row("ignored", "its annotation recycle-eks/drain", "default/annotated"),
            ]
        );
        assert_eq!(
            plan.blocked,
            ["budget shop/web allows no eviction now of 1 pod (shop/blocked)"]
        );
        let odd = PodFacts::unreadable(
            "default".to_owned(),
            "odd".to_owned(),
            "uid-odd".to_owned(),
            "spec",
        );
        assert_eq!(
            (odd.uid.as_str(), odd.unreadable.as_deref()),
            ("uid-odd", Some("spec"))
        );
        let plan = plan_of(json!({}), &group(), &[odd], &PodSurvey::default());
        assert_eq!((plan.pods[0].class, plan.pods.len()), ("unreadable", 1));
        let slow = PodFacts {
            grace_seconds: 3_600,
            ..job_pod("slow")
        };
        let short = json!({"on_drain_timeout": "evict", "drain_timeout": "1h"});
        let plan = plan_of(short, &group(), &[slow], &PodSurvey::default());
        assert_eq!(
            (plan.pods[0].class, plan.pods[0].reason),
            ("evictable", "the drain has no time to wait for it")
        );
    }

    #[test]
    fn a_plan_with_surge_gives_the_place_up() {
        let plan = plan_of(json!({"replacement": "surge"}), &group(), &[], &survey());
        assert!(
            plan.steps
                .iter()
                .any(|step| step.starts_with("terminate i-0aaaaaaaaaaaaaaaa with decrement")),
            "{:?}",
            plan.steps
        );
    }

    #[test]
    fn the_longest_wait_is_the_whole_drain_or_the_longest_grace_period() {
        let slow = PodFacts {
            grace_seconds: 7_200,
            ..pod("slow")
        };
        let blocked = PodFacts {
            namespace: "shop".to_owned(),
            ..pod("blocked")
        };
        let nothing = PodSurvey::default();
        let leaving = PodSurvey {
            evictable: vec![pod("web"), pod("api"), slow.clone()],
            ..nothing.clone()
        };
        let refused = PodSurvey {
            evictable: vec![slow, blocked],
            stuck: vec![pod("stuck")],
            ..nothing.clone()
        };
        for (survey, expected) in [
            (nothing, (0, 0, "nothing_to_wait_for")),
            (leaving, (7_200, 1, "grace_period")),
            (refused, (172_800, 2, "drain_timeout")),
            (survey(), (172_800, 1, "drain_timeout")),
        ] {
            let wait = plan_of(json!({}), &group(), &[], &survey).longest_wait;
            assert_eq!((wait.seconds, wait.pods, wait.limit), expected);
        }
    }

    #[test]
    fn a_plan_has_the_row_of_the_restore_table_for_the_group() {
        let fixed = Group {
            min: 2,
            max: 2,
            ..group()
        };
        for (more, group, first, last) in [
            (
                json!({}),
                group(),
                "the group has 2 as before",
                "has 3, one more than before",
            ),
            (json!({}), fixed, "stays in Standby", "stays in Standby"),
            (
                json!({"replacement": "after"}),
                group(),
                "nothing has to be undone in the group",
                "nothing has to be undone in the group",
            ),
        ] {
            let restore = plan_of(more, &group, &[], &PodSurvey::default()).restore;
            let ends = (restore.first().unwrap(), restore.last().unwrap());
            assert!(ends.0.contains(first) && ends.1.contains(last), "{restore:?}");
        }
    }

    #[test]
    fn the_names_of_the_pods_in_a_plan_are_limited() {
        let long = |number: usize| PodFacts {
            namespace: "n".repeat(63),
            name: format!("{number:0>253}"),
            uid: number.to_string(),
            controller: controller(["ReplicaSet", "DaemonSet", "Job"][number % 3]),
            phase: if number.is_multiple_of(4) {
                "Succeeded"
            } else {
                "Running"
            }
            .to_owned(),
            ..job_pod("a")
        };
        let pods: Vec<PodFacts> = (0..400).map(long).collect();
        let planned = plan_of(json!({}), &group(), &pods, &PodSurvey::default()).pods;
        let bytes = serde_json::to_string(&planned).unwrap().len();
        assert!(bytes < 3_600, "{bytes}");
        assert_eq!(planned.iter().map(|group| group.count).sum::<u32>(), 400);
        let named: usize = planned.iter().map(|group| group.pods.len()).sum();
        assert_eq!(named * 16, PODS_BUDGET);
    }

    #[test]
    fn a_plan_for_the_hook_path_has_no_standby_and_no_wait_for_a_replacement() {
        let hook = json!({"name": "recycle-eks", "auto_scaling_group_name": "workers", "destination": "EC2"});
        let plan = plan_of(json!({"hook": hook}), &group(), &[], &survey());
        assert_eq!(plan.steps[0], "taint node old and cordon it");
        assert_eq!(
            plan.steps.last().map(String::as_str),
            Some("complete the lifecycle action, after which group workers terminates i-0aaaaaaaaaaaaaaaa")
        );
    }

    #[test]
    fn a_plan_describes_the_treatment_of_pods_that_need_longer() {
        let slow = PodSurvey {
            remarks: PodRemarks {
                grace_too_long: vec![pod("slow")],
                out_of_time: vec![pod("slow")],
                ..survey().remarks
            },
            stuck: vec![pod("stuck")],
            ..survey()
        };
        for (more, expected) in [
            (json!({}), "3 ignored)"),
            (
                json!({"on_drain_timeout": "evict"}),
                "3 ignored); awaited pods that need longer are evicted in time for their grace periods",
            ),
            (
                json!({"on_drain_timeout": "terminate", "override": ["running_pods"]}),
                "3 ignored); after that the instance is disposed of, even if pods still run on it",
            ),
        ] {
            let plan = plan_of(more, &group(), &[], &slow);
            assert!(plan.steps[3].ends_with(expected), "{}", plan.steps[3]);
            assert!(plan.steps[3].contains("1 terminating"), "{}", plan.steps[3]);
            assert_eq!(
                plan.notes[0],
                "some pods have a grace period that is longer than the drain may take; if they need it, the drain times out before \
                 they are gone (grace_too_long: 1)"
            );
        }
    }

    #[test]
    fn a_plan_follows_the_input() {
        let asked = json!({"dispose": "stop", "evict": "none", "load_balancer_grace": 0});
        let gpu = NodeFacts {
            extended_resources: vec!["nvidia.com/gpu".to_owned()],
            ..node("old")
        };
        let text = write_on(&gpu, asked, &group(), &[], &PodSurvey::default(), &[])
            .steps
            .join("\n");
        for expected in [
            "its Node is usable (with nvidia.com/gpu)",
            "leave the others alone (now 0 evictable, 0 terminating; 0 ignored)",
            "wait 0 seconds",
            "stop i-0aaaaaaaaaaaaaaaa in Standby, tag it, and remove its Node",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn seconds_are_written_in_the_largest_unit_that_divides_them() {
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
