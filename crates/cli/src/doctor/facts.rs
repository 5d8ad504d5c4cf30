//! Fetches the facts about an installation. The calls are independent: if a service refuses one, the facts of the others are still shown.

use std::collections::BTreeMap;

use aws_sdk_lambda::operation::get_function_configuration::GetFunctionConfigurationOutput;
use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use recycle::doctor::facts::{Group, Installation as Facts, Machine, Rule, Seen, Sweep, Topic};

use crate::aws::events::to_timestamp;
use crate::aws::groups::list_groups;
use crate::aws::installation::{Installation, find_text};
use crate::base::clock;
use crate::base::error::{Error, Result};
use crate::doctor::answers::{find_group, find_rule, if_there, is_of_module, seen, to_function};

/// The functions that call the Kubernetes API (`terraform/functions.tf`).
const IN_CLUSTER: [&str; 9] = [
    "claim-node",
    "standby-node",
    "taint-node",
    "check-pods",
    "evict-pods",
    "detach-terminate",
    "restore-node",
    "select-nodes",
    "serve-operator",
];

/// The function that does not call the Kubernetes API.
const OTHERS: [&str; 1] = ["start-rotation"];

pub(crate) const MACHINES: [&str; 3] = ["recycle-node", "rotate-nodes", "sweep"];

/// Executions of the sweep to read. If the last one still runs, those before it decide.
const SWEEPS: i32 = 5;

/// The error code with which EKS says that the authentication mode of a cluster allows no access entries.
const NO_ENTRIES: &str = "InvalidRequestException";

/// How many groups are read at the same time, because Auto Scaling has a quota for the account.
const AT_ONCE: usize = 5;

pub(crate) async fn gather(installation: &Installation) -> Facts {
    let steps = list_functions();
    let (functions, machines, authentication, groups, rules, dead_letters, logs, sweeps) = tokio::join!(
        ask_each(steps, async |step| find_function(installation, step).await),
        ask_each(MACHINES, async |name| find_machine(installation, name).await),
        find_authentication(installation),
        find_groups(installation),
        find_rules(installation),
        count_dead_letters(installation),
        find_logs(installation),
        list_sweeps(installation),
    );
    let topic = match find_topic_arn(&machines).known() {
        Ok(arn) => seen(find_topic(installation, arn).await),
        Err(unknown) => unknown,
    };
    Facts {
        name: installation.name.clone(),
        cluster: installation.cluster.clone(),
        now: clock::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machines: known(machines, |(machine, _)| machine),
        authentication: seen(authentication),
        entries: find_entries(installation, &functions).await,
        functions: known(functions, |function| to_function(&function)),
        groups: seen(groups),
        rules: seen(rules),
        topic,
        dead_letters: seen(dead_letters),
        logs: seen(logs),
        sweeps: seen(sweeps),
    }
}

pub(crate) fn list_functions() -> impl Iterator<Item = &'static str> {
    IN_CLUSTER.into_iter().chain(OTHERS)
}

/// The answers about several things that may not exist, by their names.
type ByName<T> = BTreeMap<String, Seen<Option<T>>>;

async fn ask_each<T>(
    names: impl IntoIterator<Item = &'static str>,
    ask: impl AsyncFn(&'static str) -> Result<Option<T>>,
) -> ByName<T> {
    let names = names.into_iter();
    let asked = names.map(async |name| (name.to_owned(), seen(ask(name).await)));
    join_all(asked).await.into_iter().collect()
}

fn known<T, U>(found: ByName<T>, make: impl Fn(T) -> U) -> ByName<U> {
    let each = found.into_iter();
    each.map(|(name, found)| (name, found.map(|found| found.map(&make))))
        .collect()
}

/// Finds the topic to which the definition of `recycle-node` publishes.
fn find_topic_arn(machines: &ByName<(Machine, String)>) -> Seen<String> {
    let machine = machines.get("recycle-node");
    let machine = machine.map_or(Seen::Found(&None), Seen::as_ref);
    machine.and_then(|machine| {
        let definition = machine.as_ref().map(|(_, definition)| definition.as_str());
        match definition.and_then(|definition| find_text(definition, "TopicArn", |_| true)) {
            Some(arn) => Seen::Found(arn),
            None => Seen::Failed("the definition of recycle-node names no topic".to_owned()),
        }
    })
}

async fn find_function(
    installation: &Installation,
    step: &str,
) -> Result<Option<GetFunctionConfigurationOutput>> {
    let name = format!("{}-{step}", installation.name);
    let asked = installation.lambda.get_function_configuration();
    let asked = asked.function_name(name).send();
    if_there(asked.await.map_err(Error::of("lambda:GetFunctionConfiguration")))
}

/// Fetches a state machine and its definition. Only `recycle-node` has an alias.
async fn find_machine(installation: &Installation, machine: &str) -> Result<Option<(Machine, String)>> {
    let states = &installation.states;
    let arn = installation.machine(machine);
    let Some(found) = if_there(states.describe_machine(&arn).await)? else {
        return Ok(None);
    };
    let (mut live, mut newest) = (None, None);
    if machine == "recycle-node" {
        let alias = installation.live();
        let (of_alias, of_machine) =
            tokio::join!(states.find_version(&alias), states.find_newest_version(&arn));
        live = if_there(of_alias)?.flatten();
        newest = of_machine?;
    }
    let status = found.status().map(|status| status.as_str().to_owned());
    let machine = Machine {
        status: status.unwrap_or_default(),
        created_at: Some(to_timestamp(&found.creation_date)),
        live,
        newest,
    };
    Ok(Some((machine, found.definition)))
}

async fn find_authentication(installation: &Installation) -> Result<String> {
    let eks = aws_sdk_eks::Client::new(&installation.aws);
    let asked = eks.describe_cluster().name(&installation.cluster).send();
    let answer = asked.await.map_err(Error::of("eks:DescribeCluster"))?;
    let access = answer.cluster().and_then(|cluster| cluster.access_config());
    let mode = access.and_then(|access| access.authentication_mode());
    Ok(mode.map_or("CONFIG_MAP", |mode| mode.as_str()).to_owned())
}

/// Fetches the access entries of the functions that exist and call the Kubernetes API.
async fn find_entries(
    installation: &Installation,
    functions: &ByName<GetFunctionConfigurationOutput>,
) -> ByName<Vec<String>> {
    let eks = aws_sdk_eks::Client::new(&installation.aws);
    let roles = IN_CLUSTER.into_iter().filter_map(|step| {
        let function = functions.get(step)?.as_ref().found()?.as_ref()?;
        Some((step, function.role()?))
    });
    let asked = roles.map(async |(step, role)| {
        let question = eks.describe_access_entry().principal_arn(role);
        let asked = question.cluster_name(&installation.cluster).send();
        let entry = match asked.await.map_err(Error::of("eks:DescribeAccessEntry")) {
            Err(error) if error.code() == Some(NO_ENTRIES) => Ok(None),
            answer => if_there(answer),
        };
        let groups = entry.map(|answer| Some(answer?.access_entry()?.kubernetes_groups().to_vec()));
        (step.to_owned(), seen(groups))
    });
    join_all(asked).await.into_iter().collect()
}

async fn find_groups(installation: &Installation) -> Result<Vec<Group>> {
    let scaling = aws_sdk_autoscaling::Client::new(&installation.aws);
    let found = list_groups(&scaling, &installation.cluster).await?;
    let groups = stream::iter(&found).map(|group| find_group(&scaling, group));
    Ok(groups.buffered(AT_ONCE).collect().await)
}

/// Fetches the EventBridge rules of this installation. Another installation may have a name that begins with this one's name.
/// The rest of a rule's name shows which of the two the rule belongs to.
async fn find_rules(installation: &Installation) -> Result<Vec<Rule>> {
    let events = aws_sdk_eventbridge::Client::new(&installation.aws);
    let name = &installation.name;
    let list = events.list_rules().name_prefix(format!("{name}-"));
    let (mut rules, mut token) = (Vec::new(), None);
    loop {
        let asked = list.clone().set_next_token(token).send();
        let page = asked.await.map_err(Error::of("events:ListRules"))?;
        let found = page.rules.into_iter().flatten();
        rules.extend(found.filter(|rule| is_of_module(rule.name().unwrap_or_default(), name)));
        token = page.next_token;
        if token.is_none() {
            break;
        }
    }
    Ok(join_all(rules.iter().map(|rule| find_rule(&events, rule))).await)
}

async fn find_topic(installation: &Installation, arn: String) -> Result<Topic> {
    let topics = aws_sdk_sns::Client::new(&installation.aws);
    let list = topics.list_subscriptions_by_topic().topic_arn(&arn);
    let found: Result<Vec<_>, _> = list.into_paginator().items().send().collect().await;
    let found = found.map_err(Error::of("sns:ListSubscriptionsByTopic"))?;
    // SNS lists a subscription that was ended as `Deleted` for days, and sends nothing to it.
    let count = |is_meant: fn(&str) -> bool| {
        let arns = found.iter().filter_map(|each| each.subscription_arn());
        arns.filter(|arn| is_meant(arn)).count()
    };
    Ok(Topic {
        confirmed: count(|arn| arn.starts_with("arn:")),
        pending: count(|arn| arn == "PendingConfirmation"),
        arn,
    })
}

async fn count_dead_letters(installation: &Installation) -> Result<Option<u32>> {
    use aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages;

    let queues = aws_sdk_sqs::Client::new(&installation.aws);
    let name = format!("{}-dead-letters", installation.name);
    let asked = queues.get_queue_url().queue_name(name).send();
    let Some(answer) = if_there(asked.await.map_err(Error::of("sqs:GetQueueUrl")))? else {
        return Ok(None);
    };
    let question = queues.get_queue_attributes().set_queue_url(answer.queue_url);
    let asked = question.attribute_names(ApproximateNumberOfMessages).send();
    let answer = asked.await.map_err(Error::of("sqs:GetQueueAttributes"))?;
    let attributes = answer.attributes();
    let number = attributes.and_then(|all| all.get(&ApproximateNumberOfMessages)?.parse().ok());
    Ok(Some(number.unwrap_or_default()))
}

async fn find_logs(installation: &Installation) -> Result<BTreeMap<String, Option<u32>>> {
    let logs = aws_sdk_cloudwatchlogs::Client::new(&installation.aws);
    let mut found = BTreeMap::new();
    for folder in ["/aws/lambda", "/aws/vendedlogs/states"] {
        let prefix = format!("{folder}/{}-", installation.name);
        let list = logs.describe_log_groups().log_group_name_prefix(prefix);
        let groups: Result<Vec<_>, _> = list.into_paginator().items().send().collect().await;
        let groups = groups.map_err(Error::of("logs:DescribeLogGroups"))?;
        found.extend(groups.into_iter().filter_map(|group| {
            let days = group.retention_in_days.and_then(|days| u32::try_from(days).ok());
            Some((group.log_group_name?, days))
        }));
    }
    Ok(found)
}

async fn list_sweeps(installation: &Installation) -> Result<Vec<Sweep>> {
    let machine = installation.machine("sweep");
    let newest = installation.states.list_newest(&machine, SWEEPS).await?;
    let sweeps = newest.into_iter().map(|execution| Sweep {
        execution: execution.arn,
        status: execution.status,
        started_at: execution.started_at,
    });
    Ok(sweeps.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listed_functions_are_those_of_the_module() {
        let functions = include_str!("../../../../terraform/functions.tf");
        let (block, _) = functions.split_once("in_cluster =").unwrap();
        let named = block.lines().filter_map(|line| {
            let line = line.strip_prefix("    ")?;
            let (name, rest) = line.split_once('=')?;
            (rest.trim_start().starts_with('{') && !name.starts_with(' ')).then(|| name.trim())
        });
        let mut named: Vec<&str> = named.collect();
        named.sort_unstable();
        let mut listed: Vec<&str> = IN_CLUSTER.into_iter().chain(OTHERS).collect();
        listed.sort_unstable();
        assert_eq!(named, listed);
        assert!(functions.contains(r#"setsubtract(keys(local.functions), ["start-rotation"])"#));
    }

    #[test]
    fn a_denied_call_differs_from_an_unanswered_one() {
        let error = |code: Option<&str>| Error::Aws {
            call: "events:ListRules",
            code: code.map(str::to_owned),
            reason: "no".to_owned(),
        };
        assert_eq!(
            seen::<()>(Err(error(Some("AccessDeniedException")))),
            Seen::Denied("events:ListRules".to_owned())
        );
        for code in [None, Some("ThrottlingException"), Some("ServiceUnavailable")] {
            assert!(
                matches!(seen::<()>(Err(error(code))), Seen::Unanswered(_)),
                "{code:?}"
            );
        }
        assert!(matches!(
            seen::<()>(Err(error(Some("ValidationException")))),
            Seen::Failed(_)
        ));
        assert_eq!(
            seen(if_there::<()>(Err(error(Some("ResourceNotFoundException"))))),
            Seen::Found(None)
        );
        assert_eq!(seen(if_there(Ok(1))), Seen::Found(Some(1)));
    }

    #[test]
    fn rules_of_an_installation_with_a_longer_name_are_skipped() {
        for (rule, expected) in [
            ("r-sweep-clock", true),
            ("r-recycle-node-unreported", true),
            ("r-hook-workers", true),
            ("r-rotate-nodes-spot", true),
            ("r-eu-sweep-clock", false),
            ("rr-sweep-clock", false),
            ("r-something", false),
        ] {
            assert_eq!(is_of_module(rule, "r"), expected, "{rule}");
        }
    }

    #[test]
    fn a_functions_configuration_has_its_version_and_drain_timeout() {
        let environment = aws_sdk_lambda::types::EnvironmentResponse::builder()
            .variables("INPUT_DEFAULTS", r#"{"drain_timeout": "2h"}"#)
            .build();
        let found = GetFunctionConfigurationOutput::builder()
            .description("recycle-eks 1.2.3: the step claim-node")
            .environment(environment)
            .build();
        let function = to_function(&found);
        assert_eq!(
            (function.version.as_deref(), function.drain_timeout),
            (Some("1.2.3"), 7_200)
        );
        let bare = to_function(
            &GetFunctionConfigurationOutput::builder()
                .description("recycle-eks: the step")
                .build(),
        );
        assert_eq!((bare.version, bare.drain_timeout), (None, 172_800));
    }

    #[test]
    fn the_topic_is_read_from_the_definition() {
        let definition = r#"{"States": {"A": {"Branches": [{"States": {"Notify": {"Arguments": {"TopicArn": "arn:topic"}}}}]}}}"#;
        let machines = |definition: &str| {
            let machine = Machine {
                status: "ACTIVE".to_owned(),
                created_at: None,
                live: None,
                newest: None,
            };
            let found = Seen::Found(Some((machine, definition.to_owned())));
            BTreeMap::from([("recycle-node".to_owned(), found)])
        };
        assert_eq!(
            find_topic_arn(&machines(definition)),
            Seen::Found("arn:topic".to_owned())
        );
        assert!(matches!(find_topic_arn(&machines("{}")), Seen::Failed(_)));
    }
}
