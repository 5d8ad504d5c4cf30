//! Finds the installation: its state machines and functions have names that begin with the module's variable `name`.

use aws_config::SdkConfig;
use recycle::base::ids::InstanceId;
use recycle::report::event::Execution;
use serde_json::Value;

use crate::args::flags::Global;
use crate::aws::access::Access;
use crate::aws::choice::{Choice, choose};
use crate::aws::kube_context::KubeContext;
use crate::aws::step_functions::StepFunctions;
use crate::base::error::{Error, Result};

/// The default of the module's variable `name`.
const DEFAULT_NAME: &str = "recycle-eks";

/// The state machines whose executions have names that operators use.
pub(crate) const RECYCLING: [&str; 2] = ["recycle-node", "rotate-nodes"];
/// State machines whose executions claim nodes.
const CLAIMING: [&str; 2] = ["recycle-node", "sweep"];

/// The names of the state machines' log groups begin with this (`terraform/state-machine.tf`).
pub(crate) const MACHINE_LOGS: &str = "/aws/vendedlogs/states/";

#[derive(Debug)]
pub(crate) struct Installation {
    /// The AWS configuration, for further clients.
    pub aws: SdkConfig,
    /// The module's variable `name`.
    pub name: String,
    pub cluster: String,
    pub lambda: aws_sdk_lambda::Client,
    pub states: StepFunctions,
    /// Explains an error of access.
    pub access: Access,
    /// The beginning of each ARN of Step Functions: `arn:<partition>:states:<region>:<account>:`
    arn_prefix: String,
}

impl Installation {
    /// Finds the installation that the operator chose. If there is none, the error is one of usage, before anything is touched.
    pub(crate) async fn find(global: &Global) -> Result<Self> {
        let choice = Choice::of(global, |name| std::env::var(name).ok(), KubeContext::read);
        let aws = super::configuration::configure(global).await?;
        let identity = aws_sdk_sts::Client::new(&aws).get_caller_identity().send();
        let access = Access::of(global.profile.as_ref(), &aws);
        let caller = identity.await.map_err(Error::of("sts:GetCallerIdentity"));
        let caller = caller.map_err(|error| access.explain(error))?;
        let mut found = Self {
            lambda: aws_sdk_lambda::Client::new(&aws),
            states: StepFunctions::new(&aws),
            arn_prefix: states_prefix(caller.arn().unwrap_or_default(), &access.region),
            access,
            aws,
            name: choice.name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned()),
            cluster: String::new(),
        };
        choice.check_context(found.account(), found.part(3))?;
        let named = found.read_cluster().await;
        let named = named.map_err(|error| found.access.explain(error));
        if let Some(wanted) = choice.needs_search(&named) {
            let mut candidates = found.list_all().await;
            // The caller may read no logs.
            if let Ok(Some(cluster)) = named
                && candidates.is_empty()
            {
                candidates.push((found.name.clone(), cluster));
            }
            let chosen = choose(wanted, &candidates, &found.account_and_region())?;
            (found.name, found.cluster) = chosen;
        } else {
            found.cluster = choice.check(&found.name, named?)?;
        }
        Ok(found)
    }

    /// Fetches the cluster that the definition of rotate-nodes names.
    async fn read_cluster(&self) -> Result<Option<String>> {
        let machine = self.machine("rotate-nodes");
        let answer = self.states.describe_machine(&machine).await;
        let answer = answer
            .map_err(|error| no_installation(&self.name, &self.account_and_region(), &machine, error))?;
        Ok(find_cluster(answer.definition()))
    }

    /// Finds all installations that the caller may read, with their clusters. Their logs show their names.
    async fn list_all(&self) -> Vec<(String, String)> {
        let logs = aws_sdk_cloudwatchlogs::Client::new(&self.aws);
        let list = logs.describe_log_groups().log_group_name_prefix(MACHINE_LOGS);
        let groups: std::result::Result<Vec<_>, _> = list.into_paginator().items().send().collect().await;
        let names = groups.into_iter().flatten().filter_map(|group| {
            let name = group.log_group_name?;
            let name = name.strip_prefix(MACHINE_LOGS)?.strip_suffix("-rotate-nodes");
            name.map(str::to_owned)
        });
        let mut found = Vec::new();
        for name in names {
            let machine = format!("{}stateMachine:{name}-rotate-nodes", self.arn_prefix);
            let answer = self.states.describe_machine(&machine).await.ok();
            let cluster = answer.and_then(|answer| find_cluster(answer.definition()));
            found.extend(cluster.map(|cluster| (name, cluster)));
        }
        found
    }

    /// The ARN of a state machine: `recycle-node`, `rotate-nodes` or `sweep`.
    pub(crate) fn machine(&self, machine: &str) -> String {
        format!("{}stateMachine:{}-{machine}", self.arn_prefix, self.name)
    }

    /// The ARN under which `recycle-node` is started: the alias of its live version.
    pub(crate) fn live(&self) -> String {
        format!("{}:live", self.machine("recycle-node"))
    }

    /// Describes where the installation is, for operators who have several.
    pub(crate) fn place(&self) -> String {
        format!("in {}, cluster {}", self.account_and_region(), self.cluster)
    }

    fn account_and_region(&self) -> String {
        format!("account {}, region {}", self.account(), self.part(3))
    }

    pub(crate) fn account(&self) -> &str {
        self.part(4)
    }

    /// Returns a part of the beginning of each ARN, counted from 0.
    fn part(&self, number: usize) -> &str {
        self.arn_prefix.split(':').nth(number).unwrap_or_default()
    }

    pub(crate) fn execution(&self, machine: &str, name: &str) -> String {
        format!("{}execution:{}-{machine}:{name}", self.arn_prefix, self.name)
    }

    /// Finds an execution of `recycle-node` or `rotate-nodes` by its name. If both have one, a running one comes first. The names of most Nodes have dots, which takes no call, and
    /// neither does an instance id.
    pub(crate) async fn find_execution(
        &self,
        states: &StepFunctions,
        name: &str,
    ) -> Result<Option<Execution>> {
        let may_be_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        // Longer names do not exist (API reference of StartExecution).
        if name.len() > 80 || !name.chars().all(may_be_part) || name.parse::<InstanceId>().is_ok() {
            return Ok(None);
        }
        let mut ended = None;
        for machine in RECYCLING {
            if let Some(execution) = states.find(&self.execution(machine, name)).await? {
                if execution.end.is_none() {
                    return Ok(Some(execution));
                }
                ended = ended.or(Some(execution));
            }
        }
        Ok(ended)
    }

    /// Checks whether the execution is one of `recycle-node` or `rotate-nodes` of this installation.
    pub(crate) fn recycles(&self, arn: &str) -> bool {
        RECYCLING.iter().any(|machine| self.has_execution(machine, arn))
    }

    /// Checks whether the execution is one of this installation that can have a claim on a node.
    pub(crate) fn claims(&self, arn: &str) -> bool {
        CLAIMING.iter().any(|machine| self.has_execution(machine, arn))
    }

    pub(crate) fn has_execution(&self, machine: &str, arn: &str) -> bool {
        arn.starts_with(&self.execution(machine, ""))
    }
}

/// Converts the error of the search for an installation. A denial of access counts as a missing installation.
/// AWS denies access to a caller who may see only their own installation, and does not say whether another one exists.
fn no_installation(name: &str, place: &str, machine: &str, error: Error) -> Error {
    let why = match error.code() {
        Some("StateMachineDoesNotExist") => format!("there is no state machine {machine}"),
        Some("AccessDeniedException") => format!("it does not exist, or you may not read it ({error})"),
        Some(_) | None => return error,
    };
    Error::Usage(format!(
        "there is no installation {name:?} in {place}: {why}; use --name or --cluster for another one, --region for another region, and \
         --profile for another account"
    ))
}

/// Returns the beginning of each ARN of Step Functions, with the partition and the account of the caller's ARN.
fn states_prefix(caller: &str, region: &str) -> String {
    let part = |number| caller.split(':').nth(number).unwrap_or_default();
    format!("arn:{}:states:{region}:{}:", part(1), part(4))
}

/// Returns the first text under this name in a machine's definition for which `is_meant` is true.
pub(crate) fn find_text(definition: &str, name: &str, is_meant: fn(&str) -> bool) -> Option<String> {
    fn search<'a>(value: &'a Value, name: &str, is_meant: fn(&str) -> bool) -> Option<&'a str> {
        match value {
            Value::Object(fields) => {
                let text = fields.get(name).and_then(Value::as_str);
                let text = text.filter(|text| is_meant(text));
                text.or_else(|| fields.values().find_map(|value| search(value, name, is_meant)))
            }
            Value::Array(values) => values.iter().find_map(|value| search(value, name, is_meant)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
    search(&serde_json::from_str(definition).ok()?, name, is_meant).map(str::to_owned)
}

/// Returns the cluster that a definition names. Expressions are skipped.
fn find_cluster(definition: &str) -> Option<String> {
    find_text(definition, "cluster_name", |text| !text.starts_with("{%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_have_the_partition_and_the_account_of_the_caller() {
        for (caller, prefix) in [
            (
                "arn:aws:sts::123456789012:assumed-role/admin/me",
                "arn:aws:states:eu-west-1:123456789012:",
            ),
            (
                "arn:aws-cn:iam::123456789012:root",
                "arn:aws-cn:states:eu-west-1:123456789012:",
            ),
        ] {
            assert_eq!(states_prefix(caller, "eu-west-1"), prefix);
        }
    }

    #[test]
    fn an_installation_without_read_access_counts_as_missing() {
        let refused = |code: &str| {
            let answered = Error::Aws {
                call: "states:DescribeStateMachine",
                code: Some(code.to_owned()),
                reason: "no".to_owned(),
            };
            no_installation("other", "region x", "the machine", answered)
        };
        for code in ["StateMachineDoesNotExist", "AccessDeniedException"] {
            let refusal = refused(code);
            assert!(matches!(refusal, Error::Usage(_)), "{refusal}");
            assert!(
                refusal
                    .to_string()
                    .contains("there is no installation \"other\" in region x"),
                "{refusal}"
            );
        }
        assert!(matches!(refused("ThrottlingException"), Error::Aws { .. }));
    }

    #[test]
    fn the_cluster_is_read_from_the_definition() {
        let definition = r#"{"States": {"A": {"cluster_name": "{% $x %}"}, "B": [{"Payload": {"cluster_name": "production"}}]}}"#;
        assert_eq!(find_cluster(definition).as_deref(), Some("production"));
        assert_eq!(find_cluster("{}"), None);
    }
}
