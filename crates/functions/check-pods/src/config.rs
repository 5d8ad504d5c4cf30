//! Environment variables of the function, which the Terraform module sets.

use lambda::EnvironmentError;

const CANCEL_INSTANCE_REFRESH: &str = "CANCEL_INSTANCE_REFRESH";

/// Reads the module's `cancel_instance_refresh` from the environment through `variable`. If it is not set, refreshes are not cancelled.
pub fn read_cancels_refreshes(variable: impl Fn(&str) -> Option<String>) -> Result<bool, EnvironmentError> {
    match variable(CANCEL_INSTANCE_REFRESH).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(value) => Err(EnvironmentError(
            CANCEL_INSTANCE_REFRESH,
            format!("must be true or false, but is {value:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refreshes_are_cancelled_only_if_the_module_says_so() {
        let read = |value: Option<&str>| {
            read_cancels_refreshes(|name| {
                value
                    .filter(|_| name == CANCEL_INSTANCE_REFRESH)
                    .map(str::to_owned)
            })
        };
        assert_eq!(
            [read(None), read(Some("false")), read(Some("true"))],
            [Ok(false), Ok(false), Ok(true)]
        );
        let error = "CANCEL_INSTANCE_REFRESH: it must be true or false, but is \"yes\"";
        assert!(read(Some("yes")).unwrap_err().to_string().ends_with(error));
    }
}
