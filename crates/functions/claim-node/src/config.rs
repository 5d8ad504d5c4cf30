//! Reads the environment: the cluster of this function, the limits for each group, and the module's defaults for the input fields.

use lambda::{EnvironmentError, MAX_SURGE, read_cluster_name, read_count, read_input_defaults};
use recycle::input::fields::Settings;
use recycle::input::limits::Limits;

const MAX_PARALLEL: &str = "MAX_PARALLEL_PER_GROUP";

/// Reads the environment through `variable`.
pub fn read_settings(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, EnvironmentError> {
    Ok(Settings {
        cluster_name: read_cluster_name(&variable)?,
        limits: read_limits(&variable)?,
        defaults: read_input_defaults(&variable)?,
    })
}

fn read_limits(variable: impl Fn(&str) -> Option<String>) -> Result<Limits, EnvironmentError> {
    let default = Limits::default();
    let parallel = read_count(MAX_PARALLEL, variable(MAX_PARALLEL))?.unwrap_or(default.parallel);
    let surge = read_count(MAX_SURGE, variable(MAX_SURGE))?.unwrap_or(default.surge.max(parallel));
    if surge < parallel {
        let reason = format!("must be at least {MAX_PARALLEL}, which is {parallel}, but is {surge}");
        return Err(EnvironmentError(MAX_SURGE, reason));
    }
    Ok(Limits { parallel, surge })
}

#[cfg(test)]
mod tests {
    use bad_input::{any_text, config, spoiled_text};
    use proptest::prelude::*;

    use super::*;

    const CLUSTER_NAME: &str = "CLUSTER_NAME";
    const INPUT_DEFAULTS: &str = "INPUT_DEFAULTS";

    fn read(cluster_name: Option<&str>, defaults: Option<&str>) -> Result<Settings, String> {
        let variable = |name: &str| match name {
            CLUSTER_NAME => cluster_name.map(str::to_owned),
            INPUT_DEFAULTS => defaults.map(str::to_owned),
            MAX_PARALLEL | MAX_SURGE => None,
            other => panic!("undocumented variable {other}"),
        };
        read_settings(variable).map_err(|error| error.to_string())
    }

    #[test]
    fn missing_input_defaults_are_empty() {
        let settings = read(Some("world"), None).unwrap();
        assert_eq!(settings.cluster_name.as_str(), "world");
        assert!(settings.defaults.is_empty());
        assert_eq!(settings.limits, Limits::default());
    }

    #[test]
    fn input_defaults_are_an_object_with_field_names() {
        let settings = read(Some("world"), Some(r#"{"evict": "none"}"#)).unwrap();
        assert_eq!(settings.defaults["evict"], "none");
    }

    #[test]
    fn a_bad_value_names_its_variable() {
        let cases = [
            (None, None, "the environment variable CLUSTER_NAME: it is not set"),
            (
                Some("-"),
                None,
                "the environment variable CLUSTER_NAME: it must be a cluster name",
            ),
            (
                Some("world"),
                Some("[]"),
                "the environment variable INPUT_DEFAULTS: it must be a JSON object",
            ),
            (
                Some("world"),
                Some(""),
                "the environment variable INPUT_DEFAULTS: it must be a JSON object",
            ),
        ];
        for (cluster_name, defaults, expected) in cases {
            let text = read(cluster_name, defaults).unwrap_err();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn limits_are_whole_numbers_and_the_surge_is_at_least_the_parallel_limit() {
        let read = |parallel: Option<&str>, surge: Option<&str>| {
            let limits = read_limits(|name| match name {
                MAX_PARALLEL => parallel.map(str::to_owned),
                MAX_SURGE => surge.map(str::to_owned),
                other => panic!("undocumented variable {other}"),
            });
            limits.map_err(|error| error.to_string())
        };
        let limits = |parallel, surge| Ok(Limits { parallel, surge });
        assert_eq!(read(Some("2"), Some("2")), limits(2, 2));
        assert_eq!(read(Some("9"), None), limits(9, 9));
        assert_eq!(read(None, Some("1")), limits(1, 1));
        let cases = [
            (
                Some("0"),
                None,
                "the environment variable MAX_PARALLEL_PER_GROUP: it must be a whole number of at least 1, but is \"0\"",
            ),
            (
                None,
                Some("many"),
                "the environment variable MAX_SURGE_PER_GROUP: it must be a whole number of at least 1, but is \"many\"",
            ),
            (
                Some("3"),
                Some("2"),
                "the environment variable MAX_SURGE_PER_GROUP: it must be at least MAX_PARALLEL_PER_GROUP, which is 3, but is 2",
            ),
        ];
        for (parallel, surge, expected) in cases {
            let text = read(parallel, surge).unwrap_err();
            assert!(text.contains(expected), "{text}");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_environment_is_read_or_the_error_names_the_variable(
            name in prop_oneof![any_text(), spoiled_text(&["world"])],
            defaults in prop_oneof![any_text(), spoiled_text(&[r#"{"evict": "none"}"#])],
            limit in proptest::option::of(prop_oneof![any_text(), spoiled_text(&["1", "5"])]),
        ) {
            let read = read_settings(|variable| match variable {
                CLUSTER_NAME => Some(name.clone()),
                INPUT_DEFAULTS => Some(defaults.clone()),
                _ => limit.clone(),
            });
            match read {
                Ok(settings) => prop_assert_eq!(settings.cluster_name.as_str(), &name),
                Err(error) => prop_assert!(error.to_string().contains("environment variable "), "{}", error),
            }
        }
    }
}
