//! Checks EventBridge rules, the topic, the dead-letter queue, logs and sweeps.

use crate::base::shell::quote;
use crate::doctor::facts::{Installation, Rule, Seen};
use crate::doctor::finding::{APPLY, Check, Finding, count};
use crate::restore::sweep::INTERVAL;

pub(crate) fn examine_sweeps(seen: &Installation) -> Finding {
    let check = Check::only("sweep");
    check.judge(&seen.sweeps, |sweeps| {
        let start = format!("Enable the rule {}-sweep-clock.", seen.name);
        let ended = sweeps.iter().find(|sweep| sweep.status != "RUNNING");
        let Some(last) = ended.or(sweeps.first()) else {
            return if is_fresh(seen) {
                check.ok("none has run yet, because the installation is new: the first one begins within 15 minutes")
            } else {
                check.problem("no sweep has ever run", start)
            };
        };
        let (began, status, execution) = (last.started_at, &last.status, quote(&last.execution));
        if seen.now.duration_since(began).as_secs() > 3 * INTERVAL {
            return check.problem(format!("the last sweep began at {began}"), start);
        }
        match status.as_str() {
            "SUCCEEDED" | "RUNNING" => check.ok(format!("the last sweep began at {began} and is {status}")),
            _ => check.problem(
                format!("the last sweep {status}: nodes that executions leave are not restored"),
                format!("aws stepfunctions describe-execution --execution-arn {execution}"),
            ),
        }
    })
}

/// Checks whether the sweep's state machine is so new that its first execution may not have begun.
fn is_fresh(seen: &Installation) -> bool {
    let Some(Seen::Found(Some(machine))) = seen.machines.get("sweep") else {
        return false;
    };
    let age = machine
        .created_at
        .map(|time| seen.now.duration_since(time).as_secs());
    age.is_some_and(|age| age <= 2 * INTERVAL)
}

/// The rules that the module creates whatever its variables are, without the module's name.
pub(crate) const RULES: [&str; 5] = [
    "sweep-clock",
    "sweep-ended-badly",
    "recycle-node-unreported",
    "rotate-nodes-unreported",
    "sweep-unreported",
];

pub(crate) fn examine_rules(seen: &Installation) -> Vec<Finding> {
    Check::only("rule").judge_all(&seen.rules, |rules| {
        let names = RULES.map(|rule| format!("{}-{rule}", seen.name)).into_iter();
        let missing = names.filter(|name| rules.iter().all(|rule| rule.name != *name));
        let missing = missing.map(|name| Check::new("rule", &name).problem("the rule does not exist", APPLY));
        missing.chain(rules.iter().map(examine_rule)).collect()
    })
}

fn examine_rule(rule: &Rule) -> Finding {
    let check = Check::new("rule", &rule.name);
    if !rule.is_enabled {
        let remedy = format!("aws events enable-rule --name {}", quote(&rule.name));
        return check.problem("is disabled", remedy);
    }
    check.judge(&rule.targets, |targets| match targets {
        0 => check.problem("has no target: it starts nothing", APPLY),
        targets => check.ok(format!("enabled, {}", count(*targets, "target"))),
    })
}

pub(crate) fn examine_topic(seen: &Installation) -> Finding {
    let check = Check::only("notifications");
    check.judge(&seen.topic, |topic| {
        let subscribe = format!(
            "aws sns subscribe --topic-arn {} --protocol email --notification-endpoint you@example.com",
            quote(&topic.arn)
        );
        match (topic.confirmed, topic.pending) {
            (0, 0) => check.warning("the topic has no subscription", subscribe),
            (0, pending) => check.warning(
                format!(
                    "{} waits to be confirmed, and none is confirmed",
                    count(pending, "subscription")
                ),
                "Confirm it by the link in the message from SNS.",
            ),
            (confirmed, _) => check.ok(count(confirmed, "confirmed subscription")),
        }
    })
}

pub(crate) fn examine_dead_letters(seen: &Installation) -> Finding {
    let check = Check::only("dead letters");
    let queue = format!("{}-dead-letters", seen.name);
    check.judge(&seen.dead_letters, |messages| match messages {
        None => check.problem(format!("there is no queue {queue}"), APPLY),
        Some(0) => check.ok("none"),
        Some(messages) => check.warning(
            format!(
                "{}: the executions for these events did not start",
                count(*messages as usize, "message")
            ),
            format!(
                "Read the messages in the queue {queue}, start the missing executions by hand, and purge the queue."
            ),
        ),
    })
}

pub(crate) fn examine_logs(seen: &Installation) -> Vec<Finding> {
    let check = Check::only("logs");
    check.judge_all(&seen.logs, |logs| {
        let functions = seen.functions.keys();
        let functions = functions.map(|step| format!("/aws/lambda/{}-{step}", seen.name));
        let machines = seen.machines.keys();
        let machines = machines.map(|name| format!("/aws/vendedlogs/states/{}-{name}", seen.name));
        let odd = functions.chain(machines).filter_map(|name| {
            let found = match logs.get(&name) {
                None => "the log group does not exist",
                Some(None) => "its logs are never deleted",
                Some(Some(_)) => return None,
            };
            Some(Check::new("logs", &name).warning(found, APPLY))
        });
        check.or_ok(odd.collect(), "every log group exists and has a retention time")
    })
}
