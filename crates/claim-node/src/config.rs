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
