//! Checks Auto Scaling groups and their lifecycle hooks.

use crate::base::names::LIFECYCLE_HOOK;
use crate::base::shell::quote;
use crate::cluster::cluster_tag::cluster_tag;
use crate::cluster::hook::{SHORTEST_HEARTBEAT, longest_hold};
use crate::cluster::node_group::{explain_surge, write_room};
use crate::cluster::refresh::Refresh;
use crate::doctor::facts::{Group, Hook, Installation, Rule, Seen};
use crate::doctor::finding::{APPLY, Check, Finding, Level};

pub(crate) fn examine_groups(seen: &Installation) -> Vec<Finding> {
    let check = Check::only("group");
    check.judge_all(&seen.groups, |groups| {
        if groups.is_empty() {
            return vec![check.problem(
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
    let refresh = Check::new("instance refresh", &group.name);
    let hooks = Check::new("lifecycle hook", &group.name);
    let odd = [
        examine_processes(group),
        examine_sizes(group).into_iter().collect(),
        examine_handler(group).into_iter().collect(),
        examine_surge(seen, group).into_iter().collect(),
        refresh.judge_all(&group.refresh, |found| {
            found
                .iter()
                .map(|found| examine_refresh(refresh, found))
                .collect()
        }),
        hooks.judge_all(&group.hooks, |found| examine_hooks(hooks, seen, group, found)),
    ]
    .concat();
    let (min, desired, max) = group.sizes;
    let keeps = if group.retains {
        ", and it retains instances whose hook is abandoned"
    } else {
        ""
    };
    let mode = why_surge(group).map_or_else(String::new, |why| {
        format!("; its nodes are recycled with replacement surge, because {why}")
    });
    let all_is_well =
        format!("min {min}, desired {desired}, max {max}, with the hook {LIFECYCLE_HOOK}{keeps}{mode}");
    Check::new("group", &group.name).or_ok(odd, all_is_well)
}

/// Checks for suspended processes that affect recycling. Other processes do not matter here.
fn examine_processes(group: &Group) -> Vec<Finding> {
    let check = Check::new("suspended process", &group.name);
    let suspended = group.suspended.iter().filter_map(|process| {
        let remedy = format!(
            "aws autoscaling resume-processes --auto-scaling-group-name {} --scaling-processes {process}",
            quote(&group.name)
        );
        let (level, meaning) = match process.as_str() {
            "Launch" => (
                Level::Problem,
                "no replacement is launched, and no instance can leave Standby",
            ),
            "Terminate" => (
                Level::Warning,
                "executions with replacement: after or surge are refused, because no member in service is terminated",
            ),
            "AddToLoadBalancer" => (
                Level::Warning,
                "replacements get no traffic from the group's load balancers",
            ),
            _ => return None,
        };
        Some(check.find(level, format!("{process} is suspended: {meaning}"), Some(remedy)))
    });
    suspended.collect()
}

pub(crate) fn examine_sizes(group: &Group) -> Option<Finding> {
    let (min, desired, max) = group.sizes;
    (max > 0 && min >= desired && desired >= max).then(|| Check::new("sizes", &group.name).warning(
        format!("minimum, desired capacity and maximum are all {max}: no instance can leave Standby"),
        format!(
            "aws autoscaling update-auto-scaling-group --auto-scaling-group-name {} --max-size {} # or recycle its nodes with replacement: after",
            quote(&group.name),
            max.saturating_add(1)
        ),
    ))
}

fn why_surge(group: &Group) -> Option<String> {
    explain_surge(group.node_group.as_deref(), group.rebalances_capacity)
}

/// Checks whether a group in which replacement `surge` is the default allows it.
fn examine_surge(seen: &Installation, group: &Group) -> Option<Finding> {
    let why = why_surge(group)?;
    let check = Check::new("replacement", &group.name);
    let found = |what: &str| {
        format!("replacement surge is the default, because {why}; executions are refused, because {what}")
    };
    let (_, desired, max) = group.sizes;
    if group.balances_zones() {
        let what = format!(
            "with one member more, AZRebalance may terminate another node in its {} zones",
            group.zones
        );
        let remedy = format!(
            "aws autoscaling suspend-processes --auto-scaling-group-name {} --scaling-processes AZRebalance",
            quote(&group.name)
        );
        return Some(check.warning(found(&what), remedy));
    }
    (desired >= max).then(|| {
        let room = write_room(&seen.cluster, &group.name, group.node_group.as_deref(), max);
        check.warning(found("the group has no room for one member more"), room)
    })
}

/// Checks for aws-node-termination-handler, which completes the hook of every event that reaches its queue.
fn examine_handler(group: &Group) -> Option<Finding> {
    group.is_of_termination_handler.then(|| {
        Check::new("termination handler", &group.name).warning(
            "the group has the tag aws-node-termination-handler/managed: in queue mode that tool drains its members, and completes the \
             hook of recycle-eks, too, before their pods are done",
            "Limit the EventBridge rule of aws-node-termination-handler to its own LifecycleHookName, or remove the tag.",
        )
    })
}

fn examine_refresh(check: Check<'_>, refresh: &Refresh) -> Finding {
    let (status, effect) = (&refresh.status, refresh.describe_effect());
    check.warning(
        format!("one is under way ({status}). It {effect}. Until it ends, executions for nodes of the group are refused"),
        "Wait until it ends, or cancel it.",
    )
}

fn examine_hooks(check: Check<'_>, seen: &Installation, group: &Group, hooks: &[Hook]) -> Vec<Finding> {
    let mut found = match hooks.iter().find(|hook| hook.name == LIFECYCLE_HOOK) {
        Some(hook) => examine_own_hook(check, seen, group, hook),
        None => vec![examine_absence(check, group)],
    };
    let is_foreign = |hook: &&Hook| hook.on_termination && hook.name != LIFECYCLE_HOOK;
    let foreign = hooks.iter().filter(is_foreign);
    let foreign: Vec<&str> = foreign.map(|hook| hook.name.as_str()).collect();
    if !foreign.is_empty() {
        found.push(check.warning(
            format!("other hooks also hold terminated members: {}", foreign.join(", ")),
            "Check that the tools behind them do not also drain the nodes. All hooks of a group run at the same time.",
        ));
    }
    found
}

/// Checks what the group does to its members by itself, which no hook holds.
fn examine_absence(check: Check<'_>, group: &Group) -> Finding {
    let remedy = "Name the group in the module's variable lifecycle_hooks.";
    if let Some(seconds) = group.max_lifetime {
        let hours = seconds / 3_600;
        return check.problem(
            format!("the group terminates instances after {hours} hours without the hook {LIFECYCLE_HOOK}: nothing waits for their pods"),
            remedy,
        );
    }
    if group.rebalances_capacity {
        return check.problem(
            format!(
                "Capacity Rebalancing is on without the hook {LIFECYCLE_HOOK}: the group terminates Spot instances at risk with their \
                 pods, as soon as their replacements are healthy"
            ),
            remedy,
        );
    }
    if group.balances_zones() {
        return check.warning(
            format!(
                "AZRebalance is on in {} zones without the hook {LIFECYCLE_HOOK}: while a node is in Standby, the group may terminate \
                 another node with its pods to balance the zones",
                group.zones
            ),
            remedy,
        );
    }
    check.warning(
        format!("the hook {LIFECYCLE_HOOK} is missing: a termination by the group, such as a scale-in, does not wait for pods"),
        remedy,
    )
}

fn examine_own_hook(check: Check<'_>, seen: &Installation, group: &Group, hook: &Hook) -> Vec<Finding> {
    if !hook.on_termination {
        return vec![check.problem(
            format!("the hook {LIFECYCLE_HOOK} does not hold terminated members"),
            APPLY,
        )];
    }
    let (result, heartbeat) = (&hook.default_result, hook.heartbeat);
    let default_result = (result != "ABANDON").then(|| {
        check.warning(
            format!("its default result is {result}: the group keeps no instance whose hook times out"),
            APPLY,
        )
    });
    let heartbeat = (heartbeat < SHORTEST_HEARTBEAT).then(|| {
        check.problem(
            format!("its heartbeat time-out is {heartbeat} s: executions need {SHORTEST_HEARTBEAT} s"),
            "Raise heartbeat_timeout_seconds in lifecycle_hooks.",
        )
    });
    let found = [
        default_result,
        heartbeat,
        examine_hook_time(check, seen, group, hook),
        examine_hook_rule(check, seen, group),
    ];
    found.into_iter().flatten().collect()
}

fn examine_hook_time(check: Check<'_>, seen: &Installation, group: &Group, hook: &Hook) -> Option<Finding> {
    let lasts = longest_hold(hook.heartbeat);
    let claim_node = seen.functions.get("claim-node")?.as_ref().found()?.as_ref()?;
    let drain = i64::from(claim_node.drain_timeout);
    (lasts < drain && !group.retains).then(|| {
        check.warning(
            format!("it lasts {} hours at most, but a drain may take {}: then the group terminates the node with its pods", lasts / 3_600, drain / 3_600),
            "Let the group retain instances whose hook is abandoned (instance lifecycle policy, TerminateHookAbandon = retain), raise heartbeat_timeout_seconds, or lower drain_timeout.",
        )
    })
}

/// Checks that an enabled rule matches the hook's events of the group.
/// Without such a rule the sweep still finds the node, up to a quarter of an hour later.
fn examine_hook_rule(check: Check<'_>, seen: &Installation, group: &Group) -> Option<Finding> {
    let Seen::Found(rules) = &seen.rules else {
        return None;
    };
    let named = serde_json::Value::from(group.name.as_str()).to_string();
    let matches = |rule: &Rule| {
        let pattern = rule.pattern.as_deref().unwrap_or_default();
        rule.is_enabled && pattern.contains("LifecycleHookName") && pattern.contains(&named)
    };
    (!rules.iter().any(matches)).then(|| {
        check.warning(
            "no rule of this installation matches its events: unless another installation has one, only the sweep finds the members that it holds",
            APPLY,
        )
    })
}
