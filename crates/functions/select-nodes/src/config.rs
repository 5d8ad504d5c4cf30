//! Reads the environment: the maximum number of nodes of a group that are recycled at once.

use lambda::{EnvironmentError, MAX_SURGE, read_count};

/// Reads the module's `max_surge_per_group` from the environment through `variable`.
pub fn read_most_at_once(variable: impl Fn(&str) -> Option<String>) -> Result<u32, EnvironmentError> {
    read_count(MAX_SURGE, variable(MAX_SURGE))?
        .ok_or_else(|| EnvironmentError(MAX_SURGE, "is not set".to_owned()))
}

#[cfg(test)]
mod tests {
    use bad_input::{any_text, config, spoiled_text};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bad_value_names_its_variable() {
        let read = |value: Option<&str>| {
            read_most_at_once(|name| value.filter(|_| name == MAX_SURGE).map(str::to_owned))
                .map_err(|error| error.to_string())
        };
        assert_eq!(read(Some("5")), Ok(5));
        for (value, words) in [
            (None, "MAX_SURGE_PER_GROUP: it is not set"),
            (Some("0"), "but is \"0\""),
            (Some("x"), "but is \"x\""),
        ] {
            assert!(read(value).unwrap_err().contains(words), "{value:?}");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_environment_is_read_or_the_error_names_the_variable(
            value in prop_oneof![any_text(), spoiled_text(&["5", "40"])],
        ) {
            match read_most_at_once(|_| Some(value.clone())) {
                Ok(most) => prop_assert!(most > 0),
                Err(error) => prop_assert!(error.to_string().contains(MAX_SURGE), "{}", error),
            }
        }
    }
}
