//! Reads the environment: the state machine to start, and the alarms that start it.

use lambda::{EnvironmentError, parse_variable, read_object};
use recycle::base::ids::StateMachineArn;
use recycle::rotation::start::AlarmTriggers;

const MACHINE: &str = "ROTATE_STATE_MACHINE_ARN";
const ALARM_TRIGGERS: &str = "ALARM_TRIGGERS";

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The state machine `rotate-nodes`.
    pub machine: StateMachineArn,
    /// The module's `alarm_triggers`.
    pub alarm_triggers: AlarmTriggers,
}

/// Reads the environment through `variable`.
pub fn read_settings(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, EnvironmentError> {
    let alarm_triggers: String = parse_variable(ALARM_TRIGGERS, variable(ALARM_TRIGGERS))?;
    Ok(Settings {
        machine: parse_variable(MACHINE, variable(MACHINE))?,
        alarm_triggers: read_object(ALARM_TRIGGERS, &alarm_triggers)?,
    })
}

#[cfg(test)]
mod tests {
    use bad_input::{any_text, config, spoiled_text};
    use proptest::prelude::*;

    use super::*;

    const ARN: &str = "arn:aws:states:eu-west-1:123456789012:stateMachine:recycle-eks-rotate-nodes";

    fn read(machine: Option<&str>, triggers: Option<&str>) -> Result<Settings, String> {
        let variable = |name: &str| match name {
            MACHINE => machine.map(str::to_owned),
            ALARM_TRIGGERS => triggers.map(str::to_owned),
            other => panic!("undocumented variable {other}"),
        };
        read_settings(variable).map_err(|error| error.to_string())
    }

    #[test]
    fn the_settings_are_a_state_machine_and_triggers_by_name() {
        let triggers = r#"{"cpu": {"alarm_names": ["node-cpu"], "rotation": {"trigger": "alarm"}}}"#;
        let settings = read(Some(ARN), Some(triggers)).unwrap();
        assert_eq!(settings.machine.as_str(), ARN);
        assert_eq!(settings.alarm_triggers["cpu"].alarm_names, ["node-cpu"]);
        assert!(read(Some(ARN), Some("{}")).unwrap().alarm_triggers.is_empty());
    }

    #[test]
    fn a_bad_value_names_its_variable() {
        for (machine, triggers, words) in [
            (None, Some("{}"), "ROTATE_STATE_MACHINE_ARN: it is not set"),
            (
                Some("machine"),
                Some("{}"),
                "ROTATE_STATE_MACHINE_ARN: it must be the ARN",
            ),
            (Some(ARN), None, "ALARM_TRIGGERS: it is not set"),
            (Some(ARN), Some("[]"), "ALARM_TRIGGERS: it must be a JSON object"),
            (
                Some(ARN),
                Some(r#"{"a": {}}"#),
                "ALARM_TRIGGERS: it must be a JSON object: missing field",
            ),
        ] {
            let text = read(machine, triggers).unwrap_err();
            assert!(text.contains(words), "{text}");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_environment_is_read_or_the_error_names_the_variable(
            machine in prop_oneof![any_text(), spoiled_text(&[ARN])],
            triggers in prop_oneof![any_text(), spoiled_text(&["{}", r#"{"cpu": {"alarm_names": ["a"], "rotation": {}}}"#])],
        ) {
            let read = read_settings(|variable| {
                Some(if variable == MACHINE { machine.clone() } else { triggers.clone() })
            });
            match read {
                Ok(settings) => prop_assert_eq!(settings.machine.as_str(), &machine),
                Err(error) => prop_assert!(error.to_string().contains("environment variable "), "{}", error),
            }
        }
    }
}
