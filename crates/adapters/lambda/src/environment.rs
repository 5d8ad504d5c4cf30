//! Reads the environment variables of a function, which the Terraform module sets. `variables` looks them up by name.

use std::fmt::Display;
use std::str::FromStr;

use recycle::base::ids::ClusterName;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// `max_surge_per_group` of the Terraform module.
pub const MAX_SURGE: &str = "MAX_SURGE_PER_GROUP";

const CLUSTER_NAME: &str = "CLUSTER_NAME";
const INPUT_DEFAULTS: &str = "INPUT_DEFAULTS";

/// A variable is missing or has a wrong value. The reason is a sentence without its subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the environment variable {0}: it {1}")]
pub struct EnvironmentError(pub &'static str, pub String);

/// Looks up a variable of this process.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub fn read_cluster_name(
    variables: impl Fn(&'static str) -> Option<String>,
) -> Result<ClusterName, EnvironmentError> {
    parse_variable(CLUSTER_NAME, variables(CLUSTER_NAME))
}

pub fn parse_variable<T: FromStr<Err: Display>>(
    name: &'static str,
    value: Option<String>,
) -> Result<T, EnvironmentError> {
    let value = value.ok_or_else(|| EnvironmentError(name, "is not set".to_owned()))?;
    let parsed = value.parse::<T>();
    parsed.map_err(|error| EnvironmentError(name, error.to_string()))
}

/// Reads a whole number of at least 1. None if the variable is not set.
pub fn read_count<T: FromStr + Default + PartialEq>(
    name: &'static str,
    value: Option<String>,
) -> Result<Option<T>, EnvironmentError> {
    let Some(value) = value else { return Ok(None) };
    let count = value.parse().ok().filter(|count: &T| *count != T::default());
    let reason = || format!("must be a whole number of at least 1, but is {value:?}");
    count.map(Some).ok_or_else(|| EnvironmentError(name, reason()))
}

/// Reads `input_defaults` of the Terraform module: the defaults for the input of `recycle-node`, by field.
pub fn read_input_defaults(
    variables: impl Fn(&'static str) -> Option<String>,
) -> Result<Map<String, Value>, EnvironmentError> {
    variables(INPUT_DEFAULTS).map_or_else(|| Ok(Map::new()), |text| read_object(INPUT_DEFAULTS, &text))
}

pub fn read_object<T: DeserializeOwned>(name: &'static str, value: &str) -> Result<T, EnvironmentError> {
    let read = serde_json::from_str(value);
    read.map_err(|error| EnvironmentError(name, format!("must be a JSON object: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_name_that_is_missing_or_wrong_names_its_variable() {
        let read = |value: Option<&str>| {
            let read = read_cluster_name(|name| value.filter(|_| name == "CLUSTER_NAME").map(str::to_owned));
            read.map_err(|error| error.to_string())
        };
        assert_eq!(read(Some("world")).unwrap().as_str(), "world");
        for (value, text) in [
            (None, "CLUSTER_NAME: it is not set"),
            (Some("-"), "CLUSTER_NAME: it must be a cluster name"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_count_is_at_least_one() {
        let read = |value: Option<&str>| read_count::<u32>(MAX_SURGE, value.map(str::to_owned));
        assert_eq!(
            [read(None), read(Some("1")), read(Some("40"))],
            [Ok(None), Ok(Some(1)), Ok(Some(40))]
        );
        for value in ["0", "-1", "many", ""] {
            let error = read(Some(value)).unwrap_err().to_string();
            let text = format!("it must be a whole number of at least 1, but is {value:?}");
            assert!(error.contains(&text), "{error}");
        }
    }
}
