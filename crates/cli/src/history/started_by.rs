//! Says who started an execution of `recycle-node`, from the execution's name.

use recycle::base::ids::InstanceId;
use recycle::input::start::Start;
use recycle::input::urgency::Urgency;
use serde::Serialize;
use serde_json::Value;

use crate::base::clock::NAMES;

/// The maximum number of attempts for one node in a rotation: the first one and ten retries.
const MOST_ATTEMPTS: u32 = 11;

/// The trigger of a rotation whose input names none.
pub(crate) const MANUAL: &str = "manual";

/// A running rotation: its ARN, and the trigger in its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Starter {
    pub arn: String,
    pub trigger: String,
}

impl Starter {
    /// `input` is that of the rotation's execution. A rotation without a trigger was started by hand.
    pub(crate) fn new(arn: String, input: &Value) -> Self {
        let trigger = input["trigger"].as_str().unwrap_or(MANUAL).to_owned();
        Self { arn, trigger }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum StartedBy {
    /// A rotation that still runs.
    Rotation { execution_arn: String },
    /// `recycle-eks recycle`.
    CommandLine,
    /// A trigger, or a rotation that has ended. The word is that of the trigger, such as `spot`, `hook` or `request`.
    Trigger { trigger: String },
    /// Another caller of StartExecution, who chose the name.
    Other { name: String },
}

impl StartedBy {
    /// Reads the starter from the name of the execution with this ARN.
    pub(crate) fn read(arn: &str, rotations: &[Starter]) -> Self {
        let name = name_of(arn);
        if let Some(rotation) = rotations
            .iter()
            .find(|rotation| instance_of(name, rotation).is_some())
        {
            return Self::Rotation {
                execution_arn: rotation.arn.clone(),
            };
        }
        match name.split_once("-i-") {
            Some((trigger, _)) if find_instance(name).is_some() => Self::Trigger {
                trigger: trigger.to_owned(),
            },
            Some(_) | None if name.starts_with(NAMES) => Self::CommandLine,
            Some(_) | None => Self::Other {
                name: name.to_owned(),
            },
        }
    }

    /// EventBridge chooses the name of an execution that it starts for a lifecycle hook. The claim shows that the hook holds the node.
    pub(crate) fn or_hook(self, urgency: Urgency) -> Self {
        if urgency != Urgency::Hook || !matches!(self, Self::Other { .. }) {
            return self;
        }
        Self::Trigger {
            trigger: "hook".to_owned(),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Rotation { execution_arn } => format!("rotation {}", name_of(execution_arn)),
            Self::CommandLine => "recycle-eks recycle".to_owned(),
            Self::Trigger { trigger } => format!("trigger {trigger}"),
            Self::Other { .. } => "a caller of StartExecution".to_owned(),
        }
    }
}

/// Returns the instance, or None if this rotation does not give the name to an execution.
pub(crate) fn instance_of(name: &str, rotation: &Starter) -> Option<InstanceId> {
    let instance = find_instance(name)?;
    let (trigger, arn) = (rotation.trigger.as_str(), &rotation.arn);
    let causes = (2..=MOST_ATTEMPTS).map(|number| format!("{arn} {number}"));
    std::iter::once(arn.clone())
        .chain(causes)
        .any(|cause| Start::new(trigger, &instance, &cause).name == name)
        .then_some(instance)
}

/// Returns the instance in a name of the form `<trigger>-<instance>-<hash>`.
pub(crate) fn find_instance(name: &str) -> Option<InstanceId> {
    let (before, _) = name.rsplit_once('-')?;
    let begin = before.find("-i-")? + 1;
    before.get(begin..)?.parse().ok()
}

/// Checks whether an execution is a sweep, of any installation.
pub(crate) fn is_sweep(arn: &str) -> bool {
    arn.split(':')
        .nth(6)
        .is_some_and(|machine| machine.ends_with("-sweep"))
}

/// Returns the name of an execution or of a state machine.
pub(crate) fn name_of(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROTATION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:one";

    fn rotation(trigger: &str) -> Starter {
        Starter {
            arn: ROTATION.to_owned(),
            trigger: trigger.to_owned(),
        }
    }

    #[test]
    fn a_rotation_recognizes_its_executions_by_their_names() {
        let instance: InstanceId = "i-0123456789abcdef0".parse().unwrap();
        for trigger in ["manual", "schedule"] {
            for cause in [
                ROTATION.to_owned(),
                format!("{ROTATION} 2"),
                format!("{ROTATION} 11"),
            ] {
                let name = Start::new(trigger, &instance, &cause).name;
                assert_eq!(
                    instance_of(&name, &rotation(trigger)),
                    Some(instance.clone()),
                    "{name}"
                );
            }
        }
        for name in [
            Start::new("manual", &instance, "another").name,
            Start::new("spot", &instance, ROTATION).name,
            "by-hand".to_owned(),
        ] {
            assert_eq!(instance_of(&name, &rotation("manual")), None, "{name}");
        }
    }

    #[test]
    fn an_execution_for_a_hook_is_recognized_by_its_claim() {
        let named = |name: &str| StartedBy::read(&format!("{ROTATION}:{name}"), &[]);
        for (name, urgency, described) in [
            ("0000-38", Urgency::Hook, "trigger hook"),
            ("0000-38", Urgency::Planned, "a caller of StartExecution"),
            (
                "recycle-eks-1795361458684454786-28476",
                Urgency::Hook,
                "recycle-eks recycle",
            ),
        ] {
            assert_eq!(
                named(name).or_hook(urgency).describe(),
                described,
                "{name} {urgency}"
            );
        }
    }

    #[test]
    fn the_name_of_an_execution_says_who_started_it() {
        let instance: InstanceId = "i-0123456789abcdef0".parse().unwrap();
        for (name, described) in [
            (Start::new("manual", &instance, ROTATION).name, "rotation one"),
            (Start::new("spot", &instance, "an event").name, "trigger spot"),
            (
                "recycle-eks-1795361458684454786-28476".to_owned(),
                "recycle-eks recycle",
            ),
            ("by-hand".to_owned(), "a caller of StartExecution"),
        ] {
            let arn =
                format!("arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:{name}");
            assert_eq!(
                StartedBy::read(&arn, &[rotation("manual")]).describe(),
                described,
                "{name}"
            );
        }
    }
}
