//! Finds the installation: its state machines and functions have names that begin with the module's variable `name`.

use aws_config::SdkConfig;
use serde_json::Value;

use crate::args::flags::Global;
use crate::aws::step_functions::StepFunctions;
use crate::base::error::{Error, Result, refuse};

#[derive(Debug)]
pub(crate) struct Installation {
    /// The AWS configuration, for further clients.
    pub aws: SdkConfig,
    /// The module's variable `name`.
    pub name: String,
    pub cluster: String,
    pub lambda: aws_sdk_lambda::Client,
    pub states: StepFunctions,
    /// The beginning of each ARN of Step Functions: `arn:<partition>:states:<region>:<account>:`
    arn_prefix: String,
}

impl Installation {
    /// Finds the installation. If there is none, the error is a refusal, before anything is touched.
    pub(crate) async fn find(global: &Global) -> Result<Self> {
        let aws = super::configuration::configure(global).await?;
        let identity = aws_sdk_sts::Client::new(&aws).get_caller_identity().send();
        let caller = identity.await.map_err(Error::of("sts:GetCallerIdentity"))?;
        let region = aws.region().map(ToString::to_string).unwrap_or_default();
        let arn_prefix = states_prefix(caller.arn().unwrap_or_default(), &region);
        let mut found = Self {
            lambda: aws_sdk_lambda::Client::new(&aws),
            states: StepFunctions::new(&aws),
            aws,
            name: global.name.clone(),
            cluster: String::new(),
            arn_prefix,
        };
        // The definition of rotate-nodes names the cluster.
        let machine = found.machine("rotate-nodes");
        let answer = found.states.describe_machine(&machine).await;
        let answer = answer.map_err(|error| no_installation(&found.name, &region, &machine, error))?;
        found.cluster = choose_cluster(find_cluster(answer.definition()), global)?;
        Ok(found)
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
        let part = |number| self.arn_prefix.split(':').nth(number).unwrap_or_default();
        let (region, account) = (part(3), part(4));
        format!("in account {account}, region {region}, cluster {}", self.cluster)
    }

    pub(crate) fn execution(&self, machine: &str, name: &str) -> String {
        format!("{}execution:{}-{machine}:{name}", self.arn_prefix, self.name)
    }

    pub(crate) fn has_execution(&self, machine: &str, arn: &str) -> bool {
        arn.starts_with(&self.execution(machine, ""))
    }
}

/// Converts the error of the search for an installation. A denial of access counts as a missing installation.
/// AWS denies access to a caller who may see only their own installation, and does not say whether another one exists.
fn no_installation(name: &str, region: &str, machine: &str, error: Error) -> Error {
    let why = match error.code() {
        Some("StateMachineDoesNotExist") => format!("there is no state machine {machine}"),
        Some("AccessDeniedException") => format!("it does not exist, or you may not read it ({error})"),
        Some(_) | None => return error,
    };
    Error::Refused(format!(
        "there is no installation {name:?} in {region}: {why}; check --name and --region"
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

fn choose_cluster(named: Option<String>, global: &Global) -> Result<String> {
    match (named, &global.cluster) {
        (Some(named), Some(given)) if named != *given => refuse!(
            "--cluster must be {named:?}, the cluster of the installation {:?}, but is {given:?}",
            global.name
        ),
        (Some(cluster), _) => Ok(cluster),
        (None, Some(given)) => Ok(given.clone()),
        (None, None) => refuse!("the definition of rotate-nodes names no cluster: use --cluster"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::flags::CommandLine;

    fn global(more: &[&str]) -> Global {
        let line = ["recycle-eks", "doctor"].iter().chain(more);
        CommandLine::try_parse_from(line).unwrap().global
    }

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
            no_installation("other", "eu-west-1", "the machine", answered)
        };
        for code in ["StateMachineDoesNotExist", "AccessDeniedException"] {
            let refusal = refused(code);
            assert!(matches!(refusal, Error::Refused(_)), "{refusal}");
            assert!(
                refusal
                    .to_string()
                    .contains("there is no installation \"other\" in eu-west-1"),
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

    #[test]
    fn a_cluster_of_another_installation_is_refused() {
        let named = || Some("production".to_owned());
        assert_eq!(choose_cluster(named(), &global(&[])).unwrap(), "production");
        assert_eq!(choose_cluster(None, &global(&["--cluster", "a"])).unwrap(), "a");
        let refusal = choose_cluster(named(), &global(&["--cluster", "a"])).unwrap_err();
        assert!(
            refusal.to_string().contains("must be \"production\""),
            "{refusal}"
        );
        assert!(choose_cluster(None, &global(&[])).is_err());
    }
}
