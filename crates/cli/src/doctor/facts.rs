//! What the command line itself sees of an installation. Each service is asked by itself: one that refuses hides nothing of the others.

use std::collections::BTreeMap;

use aws_sdk_autoscaling::types::Filter;
use aws_sdk_lambda::operation::get_function_configuration::GetFunctionConfigurationOutput;
use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use recycle::cluster::cluster_tag::{CLUSTER_TAG_VALUES, cluster_tag};
use recycle::doctor::facts::{Group, Installation as Facts, Machine, Rule, Seen, Sweep, Topic};

use crate::aws::installation::Installation;
use crate::base::clock;
use crate::base::error::Error;
use crate::doctor::answers::{
    find_group, find_newest, find_rule, find_topic_arn, is_of_module, seen, seen_if_there, to_function,
    to_timestamp,
};

/// The functions that ask Kubernetes, and the one that does not: `terraform/functions.tf`.
const IN_CLUSTER: [&str; 8] = [
    "claim-node",
    "standby-node",
    "taint-node",
    "check-pods",
    "evict-pods",
    "detach-terminate",
    "restore-node",
    "select-nodes",
];

const OTHERS: [&str; 1] = ["start-rotation"];

const MACHINES: [&str; 3] = ["recycle-node", "rotate-nodes", "sweep"];

/// Executions of the sweep: the last, and those before it if that one still runs.
const SWEEPS: i32 = 5;

/// How EKS says that a cluster has no access entries, because of its authentication mode.
const NO_ENTRIES: &str = "InvalidRequestException";

/// How many groups are asked about at the same time: Auto Scaling has a quota for the account.
const AT_ONCE: usize = 5;

/// Asks every service.
pub(crate) async fn gather(installation: &Installation) -> Facts {
    let asker = Asker { installation };
    let steps = IN_CLUSTER.into_iter().chain(OTHERS);
    let (functions, (machines, topic), authentication, groups, rules, dead_letters, logs, sweeps) = tokio::join!(
        join_all(steps.map(|step| asker.find_function(step))),
        asker.find_machines(),
        asker.find_authentication(),
        asker.find_groups(),
        asker.find_rules(),
        asker.count_dead_letters(),
        asker.find_logs(),
        asker.list_sweeps(),
    );
    let functions: BTreeMap<String, Seen<Option<GetFunctionConfigurationOutput>>> =
        functions.into_iter().collect();
    Facts {
        name: installation.name.clone(),
        cluster: installation.cluster.clone(),
        now: clock::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machines,
        authentication,
        entries: asker.find_entries(&functions).await,
        functions: functions
            .into_iter()
            .map(|(step, found)| (step, found.map(|found| found.as_ref().map(to_function))))
            .collect(),
        groups,
        rules,
        topic: match topic {
            Ok(Some(arn)) => asker.find_topic(arn).await,
            Ok(None) => Seen::Failed("the definition of recycle-node names none".to_owned()),
            Err(why) => why,
        },
        dead_letters,
        logs,
        sweeps,
    }
}

struct Asker<'a> {
    installation: &'a Installation,
}

impl Asker<'_> {
    async fn find_function(&self, step: &str) -> (String, Seen<Option<GetFunctionConfigurationOutput>>) {
        let lambda = aws_sdk_lambda::Client::new(&self.installation.aws);
        let name = format!("{}-{step}", self.installation.name);
        let answer = lambda
            .get_function_configuration()
            .function_name(name)
            .send()
            .await;
        (
            step.to_owned(),
            seen_if_there(answer.map_err(|error| Error::aws("lambda:GetFunctionConfiguration", error))),
        )
    }

    /// The machines, and the topic that the definition of `recycle-node` publishes to.
    async fn find_machines(
        &self,
    ) -> (
        BTreeMap<String, Seen<Option<Machine>>>,
        Result<Option<String>, Seen<Topic>>,
    ) {
        let found = join_all(MACHINES.map(|machine| self.find_machine(machine))).await;
        let mut machines = BTreeMap::new();
        let mut topic = Ok(None);
        for (machine, found) in MACHINES.into_iter().zip(found) {
            if machine == "recycle-node" {
                topic = match &found {
                    Seen::Found(found) => Ok(found
                        .as_ref()
                        .and_then(|(_, definition)| find_topic_arn(definition))),
                    Seen::Denied(what) => Err(Seen::Denied(what.clone())),
                    Seen::Unanswered(why) => Err(Seen::Unanswered(why.clone())),
                    Seen::Failed(why) => Err(Seen::Failed(why.clone())),
                };
            }
            machines.insert(
                machine.to_owned(),
                found.map(|found| found.map(|(machine, _)| machine)),
            );
        }
        (machines, topic)
    }

    /// A machine with its definition. Only `recycle-node` has an alias.
    async fn find_machine(&self, machine: &str) -> Seen<Option<(Machine, String)>> {
        let states = aws_sdk_sfn::Client::new(&self.installation.aws);
        let arn = self.installation.machine(machine);
        let answer = states
            .describe_state_machine()
            .state_machine_arn(&arn)
            .send()
            .await;
        let found =
            match seen_if_there(answer.map_err(|error| Error::aws("states:DescribeStateMachine", error))) {
                Seen::Found(Some(found)) => found,
                Seen::Found(None) => return Seen::Found(None),
                Seen::Denied(what) => return Seen::Denied(what),
                Seen::Unanswered(why) => return Seen::Unanswered(why),
                Seen::Failed(why) => return Seen::Failed(why),
            };
        let (live, newest) = if machine == "recycle-node" {
            tokio::join!(self.find_live(&states), find_newest(&states, &arn))
        } else {
            (Seen::Found(None), Seen::Found(None))
        };
        let status = found
            .status()
            .map(|status| status.as_str().to_owned())
            .unwrap_or_default();
        live.and_then(|live| newest.map(|newest| Some((Machine { status, live, newest }, found.definition))))
    }

    async fn find_live(&self, states: &aws_sdk_sfn::Client) -> Seen<Option<String>> {
        let answer = states
            .describe_state_machine_alias()
            .state_machine_alias_arn(self.installation.live())
            .send()
            .await;
        let alias =
            seen_if_there(answer.map_err(|error| Error::aws("states:DescribeStateMachineAlias", error)));
        alias.map(|alias| {
            let routes = alias.and_then(|alias| alias.routing_configuration);
            Some(routes?.into_iter().next()?.state_machine_version_arn)
        })
    }

    async fn find_authentication(&self) -> Seen<String> {
        let eks = aws_sdk_eks::Client::new(&self.installation.aws);
        let answer = eks
            .describe_cluster()
            .name(&self.installation.cluster)
            .send()
            .await;
        seen(answer.map_err(|error| Error::aws("eks:DescribeCluster", error))).map(|answer| {
            let access = answer.cluster().and_then(|cluster| cluster.access_config());
            let mode = access.and_then(|access| access.authentication_mode());
            mode.map_or("CONFIG_MAP", |mode| mode.as_str()).to_owned()
        })
    }

    /// Of those functions that are there and ask Kubernetes.
    async fn find_entries(
        &self,
        functions: &BTreeMap<String, Seen<Option<GetFunctionConfigurationOutput>>>,
    ) -> BTreeMap<String, Seen<Option<Vec<String>>>> {
        let eks = aws_sdk_eks::Client::new(&self.installation.aws);
        let roles = IN_CLUSTER
            .into_iter()
            .filter_map(|step| match functions.get(step)? {
                Seen::Found(Some(function)) => Some((step, function.role()?)),
                Seen::Found(None) | Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_) => None,
            });
        let asked = roles.map(|(step, role)| {
            let question = eks
                .describe_access_entry()
                .cluster_name(&self.installation.cluster)
                .principal_arn(role);
            async move {
                let answer = question
                    .send()
                    .await
                    .map_err(|error| Error::aws("eks:DescribeAccessEntry", error));
                let entry = match answer {
                    Err(error) if error.code() == Some(NO_ENTRIES) => Seen::Found(None),
                    answer => seen_if_there(answer)
                        .map(|answer| Some(answer?.access_entry()?.kubernetes_groups().to_vec())),
                };
                (step.to_owned(), entry)
            }
        });
        join_all(asked).await.into_iter().collect()
    }

    async fn find_groups(&self) -> Seen<Vec<Group>> {
        let scaling = aws_sdk_autoscaling::Client::new(&self.installation.aws);
        let filter = Filter::builder()
            .name(format!("tag:{}", cluster_tag(&self.installation.cluster)))
            .set_values(Some(CLUSTER_TAG_VALUES.map(str::to_owned).to_vec()))
            .build();
        let pages = scaling
            .describe_auto_scaling_groups()
            .filters(filter)
            .into_paginator()
            .items()
            .send();
        let found = pages.collect::<Result<Vec<_>, _>>().await;
        match found.map_err(|error| Error::aws("autoscaling:DescribeAutoScalingGroups", error)) {
            Ok(found) => {
                let groups = stream::iter(&found).map(|group| find_group(&scaling, group));
                Seen::Found(groups.buffered(AT_ONCE).collect().await)
            }
            Err(error) => seen(Err(error)),
        }
    }

    /// Another installation may have a name that begins like this one's: what follows tells its rules apart.
    async fn find_rules(&self) -> Seen<Vec<Rule>> {
        let events = aws_sdk_eventbridge::Client::new(&self.installation.aws);
        let name = &self.installation.name;
        let (mut rules, mut token) = (Vec::new(), None);
        loop {
            let answer = events
                .list_rules()
                .name_prefix(format!("{name}-"))
                .set_next_token(token)
                .send()
                .await;
            let page = match answer.map_err(|error| Error::aws("events:ListRules", error)) {
                Ok(page) => page,
                Err(error) => return seen(Err(error)),
            };
            rules.extend(
                page.rules()
                    .iter()
                    .filter(|rule| is_of_module(rule.name().unwrap_or_default(), name))
                    .cloned(),
            );
            token = page.next_token;
            if token.is_none() {
                break;
            }
        }
        Seen::Found(join_all(rules.iter().map(|rule| find_rule(&events, rule))).await)
    }

    async fn find_topic(&self, arn: String) -> Seen<Topic> {
        let topics = aws_sdk_sns::Client::new(&self.installation.aws);
        let pages = topics
            .list_subscriptions_by_topic()
            .topic_arn(&arn)
            .into_paginator()
            .items()
            .send();
        let found = pages.collect::<Result<Vec<_>, _>>().await;
        seen(found.map_err(|error| Error::aws("sns:ListSubscriptionsByTopic", error))).map(|found| {
            // One that was ended is listed for days as `Deleted`, and tells nobody.
            let count = |is_meant: fn(&str) -> bool| {
                let arns = found
                    .iter()
                    .filter_map(|subscription| subscription.subscription_arn());
                arns.filter(|arn| is_meant(arn)).count()
            };
            Topic {
                arn,
                confirmed: count(|arn| arn.starts_with("arn:")),
                pending: count(|arn| arn == "PendingConfirmation"),
            }
        })
    }

    async fn count_dead_letters(&self) -> Seen<Option<u32>> {
        use aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages;

        let queues = aws_sdk_sqs::Client::new(&self.installation.aws);
        let name = format!("{}-dead-letters", self.installation.name);
        let answer = queues.get_queue_url().queue_name(name).send().await;
        let url = match seen_if_there(answer.map_err(|error| Error::aws("sqs:GetQueueUrl", error))) {
            Seen::Found(Some(answer)) => answer.queue_url.unwrap_or_default(),
            Seen::Found(None) => return Seen::Found(None),
            Seen::Denied(what) => return Seen::Denied(what),
            Seen::Unanswered(why) => return Seen::Unanswered(why),
            Seen::Failed(why) => return Seen::Failed(why),
        };
        let answer = queues
            .get_queue_attributes()
            .queue_url(url)
            .attribute_names(ApproximateNumberOfMessages)
            .send()
            .await;
        seen(answer.map_err(|error| Error::aws("sqs:GetQueueAttributes", error))).map(|answer| {
            let number = answer
                .attributes()
                .and_then(|all| all.get(&ApproximateNumberOfMessages)?.parse().ok());
            Some(number.unwrap_or_default())
        })
    }

    async fn find_logs(&self) -> Seen<BTreeMap<String, Option<u32>>> {
        let logs = aws_sdk_cloudwatchlogs::Client::new(&self.installation.aws);
        let mut found = BTreeMap::new();
        for folder in ["/aws/lambda", "/aws/vendedlogs/states"] {
            let prefix = format!("{folder}/{}-", self.installation.name);
            let pages = logs
                .describe_log_groups()
                .log_group_name_prefix(prefix)
                .into_paginator()
                .items()
                .send();
            match pages.collect::<Result<Vec<_>, _>>().await {
                Ok(groups) => found.extend(groups.into_iter().filter_map(|group| {
                    let days = group.retention_in_days.and_then(|days| u32::try_from(days).ok());
                    Some((group.log_group_name?, days))
                })),
                Err(error) => return seen(Err(Error::aws("logs:DescribeLogGroups", error))),
            }
        }
        Seen::Found(found)
    }

    async fn list_sweeps(&self) -> Seen<Vec<Sweep>> {
        let states = aws_sdk_sfn::Client::new(&self.installation.aws);
        let sweep = self.installation.machine("sweep");
        let answer = states
            .list_executions()
            .state_machine_arn(sweep)
            .max_results(SWEEPS)
            .send()
            .await;
        seen(answer.map_err(|error| Error::aws("states:ListExecutions", error))).map(|answer| {
            let sweeps = answer.executions.into_iter().map(|execution| Sweep {
                started_at: to_timestamp(&execution.start_date),
                execution: execution.execution_arn,
                status: execution.status.as_str().to_owned(),
            });
            sweeps.collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_functions_are_those_of_the_module() {
        let functions = include_str!("../../../../terraform/functions.tf");
        let (block, _) = functions.split_once("in_cluster =").unwrap();
        let named = block.lines().filter_map(|line| {
            let line = line.strip_prefix("    ")?;
            let (name, rest) = line.split_once('=')?;
            (rest.trim_start().starts_with('{') && !name.starts_with(' ')).then(|| name.trim())
        });
        let mut named: Vec<&str> = named.collect();
        named.sort_unstable();
        let mut ours: Vec<&str> = IN_CLUSTER.into_iter().chain(OTHERS).collect();
        ours.sort_unstable();
        assert_eq!(named, ours);
        assert!(functions.contains(r#"setsubtract(keys(local.functions), ["start-rotation"])"#));
    }

    #[test]
    fn who_may_not_ask_is_told_apart_from_who_got_no_answer() {
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
            seen_if_there::<()>(Err(error(Some("ResourceNotFoundException")))),
            Seen::Found(None)
        );
        assert_eq!(seen_if_there(Ok(1)), Seen::Found(Some(1)));
    }

    #[test]
    fn rules_of_an_installation_with_a_longer_name_are_not_ours() {
        for (rule, is_ours) in [
            ("r-sweep-clock", true),
            ("r-recycle-node-untold", true),
            ("r-hook-workers", true),
            ("r-rotate-nodes-spot", true),
            ("r-eu-sweep-clock", false),
            ("rr-sweep-clock", false),
            ("r-something", false),
        ] {
            assert_eq!(is_of_module(rule, "r"), is_ours, "{rule}");
        }
    }

    #[test]
    fn a_function_tells_its_version_and_how_long_drains_take() {
        let environment = aws_sdk_lambda::types::EnvironmentResponse::builder()
            .variables("INPUT_DEFAULTS", r#"{"drain_timeout_seconds": 7200}"#)
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
    fn the_topic_is_the_one_that_is_published_to() {
        let definition = r#"{"States": {"A": {"Branches": [{"States": {"Tell": {"Arguments": {"TopicArn": "arn:topic"}}}}]}}}"#;
        assert_eq!(find_topic_arn(definition).as_deref(), Some("arn:topic"));
        assert_eq!(find_topic_arn("{}"), None);
    }
}
