//! The environment: which cluster this function is for, and the module's defaults for the fields of the input.

use recycle::input::Settings;

use crate::Error;

const CLUSTER_NAME: &str = "CLUSTER_NAME";
const INPUT_DEFAULTS: &str = "INPUT_DEFAULTS";

/// Reads the environment through `variable`.
pub fn read_settings(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Error> {
    let invalid = |name, reason: String| Error::InvalidEnvironment {
        variable: name,
        reason,
    };
    let cluster_name =
        variable(CLUSTER_NAME).ok_or_else(|| invalid(CLUSTER_NAME, "it is not set".to_owned()))?;
    let defaults = variable(INPUT_DEFAULTS).unwrap_or_else(|| "{}".to_owned());
    Ok(Settings {
        cluster_name: cluster_name
            .parse()
            .map_err(|reason| invalid(CLUSTER_NAME, format!("it {reason}")))?,
        defaults: serde_json::from_str(&defaults)
            .map_err(|reason| invalid(INPUT_DEFAULTS, format!("it must be a JSON object: {reason}")))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cluster_name: Option<&str>, defaults: Option<&str>) -> Result<Settings, String> {
        let variable = |name: &str| match name {
            CLUSTER_NAME => cluster_name.map(str::to_owned),
            INPUT_DEFAULTS => defaults.map(str::to_owned),
            other => panic!("nobody documented the variable {other}"),
        };
        read_settings(variable).map_err(|error| error.to_string())
    }

    #[test]
    fn without_defaults_there_are_none() {
        let settings = read(Some("world"), None).unwrap();
        assert_eq!(settings.cluster_name.as_str(), "world");
        assert!(settings.defaults.is_empty());
    }

    #[test]
    fn defaults_are_an_object_by_field_name() {
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
}
