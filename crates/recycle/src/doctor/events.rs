//! Checks EventBridge rules, the topic, the dead-letter queue, logs and sweeps.

use crate::base::shell::quote;
use crate::doctor::facts::{Installation, Rule};
use crate::doctor::finding::Finding;
use crate::doctor::finding::{APPLY, count, judge};
use crate::restore::sweep::INTERVAL;

pub(crate) fn examine_sweeps(seen: &Installation) -> Vec<Finding> {
    let check = "sweep";
    judge(check, "", &seen.sweeps, |sweeps| {
        let start = format!("See that the rule {}-sweep-clock is enabled.", seen.name);
        vec![match sweeps
            .iter()
            .find(|sweep| sweep.status != "RUNNING")
            .or(sweeps.first())
        {
            None => Finding::problem(check, "", "none has ever run", start),
            Some(last) if seen.now.duration_since(last.started_at).as_secs() > 3 * INTERVAL => {
                Finding::problem(
                    check,
                    "",
                    format!("the last one began at {}", last.started_at),
                    start,
                )
            }
            Some(last) if matches!(last.status.as_str(), "SUCCEEDED" | "RUNNING") => Finding::ok(
                check,
                "",
                format!("the last one began at {} and is {}", last.started_at, last.status),
            ),
            Some(last) => Finding::problem(
                check,
                "",
                format!(
                    "the last one {}: what executions leave is not put back",
                    last.status
                ),
                format!(
                    "aws stepfunctions describe-execution --execution-arn {}",
                    quote(&last.execution)
                ),
            ),
        }]
    })
}

/// What the module makes whatever its variables are, without its name.
pub(crate) const RULES: [&str; 5] = [
    "sweep-clock",
    "sweep-ended-badly",
    "recycle-node-untold",
    "rotate-nodes-untold",
    "sweep-untold",
];

pub(crate) fn examine_rules(seen: &Installation) -> Vec<Finding> {
    judge("rule", "", &seen.rules, |rules| {
        let is_there = |name: &str| rules.iter().any(|rule| rule.name == name);
        let missing = RULES
            .map(|rule| format!("{}-{rule}", seen.name))
            .into_iter()
            .filter(|name| !is_there(name))
            .map(|name| Finding::problem("rule", &name, "there is no such rule", APPLY));
        missing.chain(rules.iter().flat_map(examine_rule)).collect()
    })
}

fn examine_rule(rule: &Rule) -> Vec<Finding> {
    if !rule.is_enabled {
        let mend = format!("aws events enable-rule --name {}", quote(&rule.name));
        return vec![Finding::problem("rule", &rule.name, "is disabled", mend)];
    }
    judge("rule", &rule.name, &rule.targets, |targets| {
        vec![match targets {
            0 => Finding::problem("rule", &rule.name, "has no target: it starts nothing", APPLY),
            targets => Finding::ok(
                "rule",
                &rule.name,
                format!("enabled, {}", count(*targets, "target")),
            ),
        }]
    })
}

pub(crate) fn examine_topic(seen: &Installation) -> Vec<Finding> {
    let check = "notifications";
    judge(check, "", &seen.topic, |topic| {
        let subscribe = format!(
            "aws sns subscribe --topic-arn {} --protocol email --notification-endpoint <address>",
            quote(&topic.arn)
        );
        vec![match (topic.confirmed, topic.pending) {
            (0, 0) => Finding::warning(check, "", "nobody subscribes to the topic", subscribe),
            (0, pending) => Finding::warning(
                check,
                "",
                format!(
                    "{} waits to be confirmed, none is",
                    count(pending, "subscription")
                ),
                "Confirm it by the link in the message that SNS has sent.",
            ),
            (confirmed, _) => Finding::ok(check, "", count(confirmed, "confirmed subscription")),
        }]
    })
}

pub(crate) fn examine_dead_letters(seen: &Installation) -> Vec<Finding> {
    let check = "dead letters";
    judge(check, "", &seen.dead_letters, |messages| {
        vec![match messages {
            None => Finding::problem(
                check,
                "",
                format!("there is no queue {}-dead-letters", seen.name),
                APPLY,
            ),
            Some(0) => Finding::ok(check, "", "none"),
            Some(messages) => Finding::warning(
                check,
                "",
                format!(
                    "{}: what they would have started did not start",
                    count(*messages as usize, "message")
                ),
                format!(
                    "Look at the messages of the queue {}-dead-letters, start by hand what is missing, and purge it.",
                    seen.name
                ),
            ),
        }]
    })
}

pub(crate) fn examine_logs(seen: &Installation) -> Vec<Finding> {
    let check = "logs";
    judge(check, "", &seen.logs, |logs| {
        let functions = seen
            .functions
            .keys()
            .map(|step| format!("/aws/lambda/{}-{step}", seen.name));
        let machines = seen
            .machines
            .keys()
            .map(|name| format!("/aws/vendedlogs/states/{}-{name}", seen.name));
        let odd: Vec<Finding> = functions
            .chain(machines)
            .filter_map(|name| match logs.get(&name) {
                None => Some(Finding::warning(
                    check,
                    &name,
                    "there is no such log group",
                    APPLY,
                )),
                Some(None) => Some(Finding::warning(check, &name, "it is kept for ever", APPLY)),
                Some(Some(_)) => None,
            })
            .collect();
        if odd.is_empty() {
            return vec![Finding::ok(check, "", "every log group is there and has an end")];
        }
        odd
    })
}
