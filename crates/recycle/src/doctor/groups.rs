//! Checks Auto Scaling groups and their lifecycle hooks.

use crate::base::names::LIFECYCLE_HOOK;
use crate::base::shell::quote;
use crate::cluster::cluster_tag::cluster_tag;
use crate::cluster::hook::{SHORTEST_HEARTBEAT, longest_hold};
use crate::doctor::facts::{Group, Hook, Installation, Rule, Seen};
use crate::doctor::finding::{APPLY, judge};
use crate::doctor::finding::{Finding, Level};

pub(crate) fn examine_groups(seen: &Installation) -> Vec<Finding> {
    judge("group", "", &seen.groups, |groups| {
        if groups.is_empty() {
            return vec![Finding::problem(
                "group",
                "",
                format!("no group has the tag {}", cluster_tag(&seen.cluster)),
                "Tag the Auto Scaling groups of the cluster's nodes with it (value owned).",
            )];
        }
        groups
            .iter()
            .flat_map(|group| examine_group(seen, group))
            .collect()
    })
}

fn examine_group(seen: &Installation, group: &Group) -> Vec<Finding> {
    let odd: Vec<Finding> = [
        examine_processes(group),
        examine_sizes(group),
        judge("instance refresh", &group.name, &group.refresh, |refresh| {
            examine_refresh(group, refresh.as_deref())
        }),
        judge("lifecycle hook", &group.name, &group.hooks, |hooks| {
            examine_hooks(seen, group, hooks)
        }),
    ]
    .concat();
    if odd.is_empty() {
        let (min, desired, max) = group.sizes;
        return vec![Finding::ok(
            "group",
            &group.name,
            format!("min {min}, desired {desired}, max {max}{}", describe_hook(group)),
        )];
    }
    odd
}

fn describe_hook(group: &Group) -> &'static str {
    if group.retains {
        ", our hook is there, and it keeps what the hook gives up"
    } else {
        ", our hook is there"
    }
}

/// Other processes are the group's own affair.
fn examine_processes(group: &Group) -> Vec<Finding> {
    let what = |process: &str| match process {
        "Launch" => Some((
            Level::Problem,
            "no replacement is launched, and no way leads back from Standby",
        )),
        "Terminate" => Some((Level::Problem, "no instance is terminated, a drained one neither")),
        "AddToLoadBalancer" => Some((
            Level::Warning,
            "replacements get no traffic from the group's load balancers",
        )),
        _ => None,
    };
    group
        .suspended
        .iter()
        .filter_map(|process| {
            let (level, meaning) = what(process)?;
            let mend = format!(
                "aws autoscaling resume-processes --auto-scaling-group-name {} --scaling-processes {process}",
                quote(&group.name)
            );
            Some(Finding::new(
                level,
                "suspended process",
                &group.name,
                format!("{process} is suspended: {meaning}"),
                Some(mend),
            ))
        })
        .collect()
}

pub(crate) fn examine_sizes(group: &Group) -> Vec<Finding> {
    let (min, desired, max) = group.sizes;
    if max == 0 || min < desired || desired < max {
        return Vec::new();
    }
    vec![Finding::warning(
        "sizes",
        &group.name,
        format!("minimum, desired capacity and maximum are all {max}: from Standby there is no way back"),
        format!(
            "aws autoscaling update-auto-scaling-group --auto-scaling-group-name {} --max-size {}, or recycle its nodes with replacement: after",
            quote(&group.name),
            max.saturating_add(1)
        ),
    )]
}

fn examine_refresh(group: &Group, refresh: Option<&str>) -> Vec<Finding> {
    let under_way = refresh.map(|status| {
        Finding::warning(
            "instance refresh",
            &group.name,
            format!("one is under way ({status}): until it ends, executions of its nodes are refused"),
            "Wait for its end, or cancel it.",
        )
    });
    under_way.into_iter().collect()
}

fn examine_hooks(seen: &Installation, group: &Group, hooks: &[Hook]) -> Vec<Finding> {
    let check = "lifecycle hook";
    let ours = hooks.iter().find(|hook| hook.name == LIFECYCLE_HOOK);
    let foreign: Vec<String> = hooks
        .iter()
        .filter(|hook| hook.on_termination && hook.name != LIFECYCLE_HOOK)
        .map(|hook| hook.name.clone())
        .collect();
    let mut found = match ours {
        Some(hook) => examine_our_hook(seen, group, hook),
        None => vec![examine_absence(group)],
    };
    if !foreign.is_empty() {
        found.push(Finding::warning(
            check,
            &group.name,
            format!("other hooks hold terminated members, too: {}", foreign.join(", ")),
            "See that whoever answers them does not drain the nodes as well: their time runs beside ours.",
        ));
    }
    found
}

fn examine_absence(group: &Group) -> Finding {
    let mend = "Name the group in the module's variable lifecycle_hooks.";
    match group.max_lifetime {
        Some(seconds) => Finding::problem(
            "lifecycle hook",
            &group.name,
            format!(
                "it ends instances after {} hours, and our hook is not there: nobody waits for their pods",
                seconds / 3_600
            ),
            mend,
        ),
        None => Finding::warning(
            "lifecycle hook",
            &group.name,
            "our hook is not there: what the group terminates itself, such as a scale-in, does not wait for pods",
            mend,
        ),
    }
}

fn examine_our_hook(seen: &Installation, group: &Group, hook: &Hook) -> Vec<Finding> {
    let check = "lifecycle hook";
    let of = &group.name;
    let mut found = Vec::new();
    if !hook.on_termination {
        return vec![Finding::problem(
            check,
            of,
            "the hook of our name does not hold what is terminated",
            APPLY,
        )];
    }
    if hook.default_result != "ABANDON" {
        let text = format!(
            "its default result is {}: the group keeps no instance whose hook times out",
            hook.default_result
        );
        found.push(Finding::warning(check, of, text, APPLY));
    }
    if hook.heartbeat < SHORTEST_HEARTBEAT {
        let text = format!(
            "its heartbeat time-out is {} s: executions need {SHORTEST_HEARTBEAT} s",
            hook.heartbeat
        );
        found.push(Finding::problem(
            check,
            of,
            text,
            "Raise heartbeat_timeout_seconds in lifecycle_hooks.",
        ));
    }
    found.extend(examine_hook_time(seen, group, hook));
    found.extend(examine_hook_rule(seen, group));
    found
}

fn examine_hook_time(seen: &Installation, group: &Group, hook: &Hook) -> Option<Finding> {
    let lasts = longest_hold(hook.heartbeat);
    let claim_node = seen.functions.get("claim-node");
    let drain = match claim_node {
        Some(Seen::Found(Some(function))) => i64::from(function.drain_timeout),
        Some(Seen::Found(None) | Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_)) | None => {
            return None;
        }
    };
    (lasts < drain && !group.retains).then(|| {
        Finding::warning(
            "lifecycle hook",
            &group.name,
            format!("it lasts {} hours at most, a drain may take {}: then the node goes with its pods", lasts / 3_600, drain / 3_600),
            "Let the group keep what the hook gives up (instance lifecycle policy, TerminateHookAbandon = retain), raise heartbeat_timeout_seconds, or give drains less time.",
        )
    })
}

/// Without it the sweep finds the node all the same, up to a quarter of an hour later.
fn examine_hook_rule(seen: &Installation, group: &Group) -> Option<Finding> {
    let Seen::Found(rules) = &seen.rules else {
        return None;
    };
    let named = serde_json::Value::from(group.name.as_str()).to_string();
    let hears = |rule: &Rule| {
        let pattern = rule.pattern.as_deref().unwrap_or_default();
        rule.is_enabled && pattern.contains("LifecycleHookName") && pattern.contains(&named)
    };
    (!rules.iter().any(hears)).then(|| {
        Finding::warning(
            "lifecycle hook",
            &group.name,
            "no rule hears of it: only the sweep finds what it holds",
            APPLY,
        )
    })
}
