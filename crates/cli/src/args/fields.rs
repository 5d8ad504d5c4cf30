//! The fields of the input of `recycle-node` as flags. They are built from the table of the fields, so a new field is at once a flag.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use recycle::base::duration::Duration;
use recycle::base::selector::Selector;
use recycle::input::fields::{Choice, FIELDS, Field, Kind};
use serde_json::{Map, Value};

/// Fields without a flag. An argument of the command names the node and its cluster, and only triggers set the other two.
const OTHERS: [&str; 4] = ["instance_id", "cluster_name", "interrupted_at", "hook"];
/// Fields that a rotation sets itself.
const BY_ROTATIONS: [&str; 2] = ["urgency", "dry_run"];
/// The fields with a short flag, the one that kubectl has for the same.
const SHORT: [(&str, char); 2] = [("label_selector", 'l'), ("namespaces", 'n')];

/// The fields that an operator has set: any of them, or with `OF_ROTATION` only those that a rotation may set for each node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fields<const OF_ROTATION: bool>(pub Map<String, Value>);

pub(crate) type NodeFields = Fields<false>;
pub(crate) type RotationFields = Fields<true>;

impl<const OF_ROTATION: bool> Fields<OF_ROTATION> {
    fn list() -> impl Iterator<Item = &'static Field> {
        FIELDS.iter().filter(|field| {
            !(OTHERS.contains(&field.name) || OF_ROTATION && BY_ROTATIONS.contains(&field.name))
        })
    }
}

impl<const OF_ROTATION: bool> FromArgMatches for Fields<OF_ROTATION> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::list().filter_map(|field| Some((field.name.to_owned(), value_of(field, matches)?)));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const OF_ROTATION: bool> Args for Fields<OF_ROTATION> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::list().map(flag_of))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag_of(field: &'static Field) -> Arg {
    let short = SHORT.iter().find(|(name, _)| *name == field.name);
    let arg = Arg::new(field.name)
        .long(field.name.replace('_', "-"))
        .short(short.map(|(_, flag)| *flag))
        .help(help_of(field))
        .help_heading("Fields of an execution's input");
    match field.kind {
        Kind::Flag => arg.action(ArgAction::SetTrue),
        Kind::OneOf(choices) => one_of(arg, choices),
        Kind::SomeOf(choices) => one_of(arg, choices)
            .value_delimiter(',')
            .action(ArgAction::Append),
        Kind::Namespaces => arg
            .value_name("NAMESPACE")
            .value_delimiter(',')
            .action(ArgAction::Append),
        Kind::Duration(range) => arg
            .value_name("DURATION")
            // A negative duration is refused as a duration, and not as a flag.
            .allow_hyphen_values(true)
            .value_parser(move |text: &str| range.parse(text)),
        Kind::Selector => arg.value_name("SELECTOR").value_parser(parse_selector),
        Kind::Identifier | Kind::Time | Kind::Hook => arg.value_name("VALUE"),
    }
}

fn one_of(arg: Arg, choices: &'static [Choice]) -> Arg {
    let values = choices.iter().map(|choice| choice.value);
    arg.value_name("WHAT")
        .value_parser(PossibleValuesParser::new(values))
}

/// Checks a label selector, and returns it as it was written. An empty one selects no pod.
pub(crate) fn parse_selector(text: &str) -> Result<String, String> {
    match text.parse::<Selector>() {
        Err(error) if !text.trim().is_empty() => Err(format!("must be a Kubernetes label selector: {error}")),
        Ok(_) | Err(_) => Ok(text.to_owned()),
    }
}

/// Returns the meaning of a field in the documentation, without the marks of Markdown.
fn help_of(field: &Field) -> String {
    let mut meaning = field.meaning.replace('`', "");
    if matches!(field.kind, Kind::SomeOf(_) | Kind::Namespaces) {
        meaning += ". Repeat the flag, or separate values with commas";
    }
    match field.default {
        "" | "[]" | "false" => meaning,
        default => format!(
            "{meaning} [default: {}, unless the module sets another]",
            default.trim_matches('"')
        ),
    }
}

fn value_of(field: &Field, matches: &ArgMatches) -> Option<Value> {
    match field.kind {
        Kind::Flag => matches.get_flag(field.name).then_some(Value::Bool(true)),
        Kind::SomeOf(_) | Kind::Namespaces => {
            let given = matches.get_many::<String>(field.name)?;
            Some(given.map(String::as_str).collect())
        }
        Kind::Duration(_) => Some(matches.get_one::<Duration>(field.name)?.to_string().into()),
        Kind::OneOf(_) | Kind::Selector | Kind::Identifier | Kind::Time | Kind::Hook => {
            Some(matches.get_one::<String>(field.name)?.as_str().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Value, String> {
        let command = NodeFields::augment_args(Command::new("test").no_binary_name(true));
        let matches = command
            .try_get_matches_from(arguments)
            .map_err(|error| error.to_string())?;
        Ok(Value::Object(NodeFields::from_arg_matches(&matches).unwrap().0))
    }

    #[test]
    fn flags_become_fields_of_the_input() {
        for (arguments, fields) in [
            (vec![], json!({})),
            (
                vec!["--label-selector", "app=training", "--namespaces", "a,b"],
                json!({"label_selector": "app=training", "namespaces": ["a", "b"]}),
            ),
            (
                vec!["-l", "app=training", "-n", "a", "-n", "b"],
                json!({"label_selector": "app=training", "namespaces": ["a", "b"]}),
            ),
            (
                vec!["--evict", "none", "--dispose=stop"],
                json!({"evict": "none", "dispose": "stop"}),
            ),
            (
                vec!["--drain-timeout", "20h", "--load-balancer-grace", "300"],
                json!({"drain_timeout": "20h", "load_balancer_grace": "5m"}),
            ),
            (
                vec!["--override", "last_target", "--override=running_pods"],
                json!({"override": ["last_target", "running_pods"]}),
            ),
            (vec!["--label-selector", ""], json!({"label_selector": ""})),
            (vec!["--dry-run"], json!({"dry_run": true})),
        ] {
            assert_eq!(parse(&arguments), Ok(fields), "{arguments:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_flag_the_allowed_values_and_the_given_value() {
        for (arguments, words) in [
            (["--evict", "every"], ["--evict", "others", "'every'"]),
            (
                ["--drain-timeout", "30"],
                ["--drain-timeout", "from 60s to 30d", "'30'"],
            ),
            (
                ["--override", "everything"],
                ["--override", "last_target", "'everything'"],
            ),
            (
                ["--drain-timeout", "-1h"],
                ["--drain-timeout", "from 60s to 30d", "'-1h'"],
            ),
            (
                ["--label-selector", "app=training,"],
                ["--label-selector", "SELECTOR", "'app=training,'"],
            ),
        ] {
            let text = parse(&arguments).unwrap_err();
            for word in words {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
    }

    #[test]
    fn fields_of_triggers_are_no_flags() {
        assert!(parse(&["--hook", "{}"]).is_err());
        assert!(RotationFields::list().all(|field| field.name != "urgency"));
    }
}
