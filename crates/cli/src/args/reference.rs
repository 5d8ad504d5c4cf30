//! The reference of all commands, from the parser's own definitions: a part of docs/cli.md (`make generate`).

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use crate::args::flags::CommandLine;
use crate::base::exit::Exit;

/// The first command that has flags under a heading, and their names.
type Told = BTreeMap<String, (String, BTreeSet<String>)>;

/// All of it, in Markdown.
pub(crate) fn render() -> String {
    let mut command = CommandLine::command();
    command.build();
    let mut page = String::from("### Flags of every command\n");
    push_arguments(&mut page, &command, Arg::is_global_set);
    let mut told = Told::new();
    for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
        push_command(&mut page, each, &mut told);
    }
    page.push_str("\n### Exit codes\n\n| code | meaning |\n|---|---|\n");
    for exit in Exit::ALL {
        page.push_str(&format!("| {} | {} |\n", exit.code(), exit.meaning()));
    }
    page
}

/// Flags under a heading that an earlier command has are not told again; those of them that this one lacks are.
fn push_command(page: &mut String, command: &Command, told: &mut Told) {
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let sentences: Vec<String> = about.split("\n\n").map(end_sentence).collect();
    page.push_str(&format!(
        "\n### `{}`\n\n{}\n",
        command.get_name(),
        sentences.join(" ")
    ));
    let usage = command.clone().render_usage().to_string();
    page.push_str(&format!("\n```\n{}\n```\n", usage.trim_start_matches("Usage: ")));
    push_arguments(page, command, |argument| {
        let heading = argument.get_help_heading().unwrap_or_default();
        !argument.is_global_set() && !told.contains_key(heading)
    });
    let headings: BTreeSet<&str> = command
        .get_arguments()
        .filter(|argument| !argument.is_global_set())
        .filter_map(Arg::get_help_heading)
        .collect();
    for heading in headings {
        let flags = flags_under(command, heading);
        let Some((before, known)) = told.get(heading) else {
            told.insert(heading.to_owned(), (command.get_name().to_owned(), flags));
            continue;
        };
        let missing = known.difference(&flags).map(|flag| format!("`--{flag}`"));
        let without = match missing.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => none,
            missing => format!(", without {missing}"),
        };
        page.push_str(&format!(
            "\n{heading}: as for [`{before}`](#{before}){without}.\n"
        ));
    }
}

fn flags_under(command: &Command, heading: &str) -> BTreeSet<String> {
    command
        .get_arguments()
        .filter(|argument| argument.get_help_heading() == Some(heading))
        .filter_map(|argument| argument.get_long().map(str::to_owned))
        .collect()
}

fn end_sentence(text: &str) -> String {
    let text = text.replace('\n', " ");
    if text.ends_with('.') {
        text
    } else {
        format!("{text}.")
    }
}

fn push_arguments(page: &mut String, command: &Command, is_wanted: impl Fn(&Arg) -> bool) {
    let shown: Vec<&Arg> = command
        .get_arguments()
        .filter(|argument| is_wanted(argument) && !matches!(argument.get_id().as_str(), "help" | "version"))
        .collect();
    if shown.is_empty() {
        return;
    }
    page.push_str("\n| | |\n|---|---|\n");
    for argument in shown {
        page.push_str(&format!("| {} | {} |\n", name(argument), describe(argument)));
    }
}

fn name(argument: &Arg) -> String {
    let takes_value = !matches!(argument.get_action(), ArgAction::SetTrue);
    let values = argument.get_value_names().unwrap_or_default();
    let value = values
        .first()
        .map(|value| format!("<{value}>"))
        .unwrap_or_default();
    let text = match (argument.get_long(), takes_value) {
        (Some(long), true) => format!("--{long} {value}"),
        (Some(long), false) => format!("--{long}"),
        (None, _) => value,
    };
    format!("`{}`", text.replace('|', "\\|"))
}

fn describe(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() {
        text = format!("{text}: {}", values.join(", "));
    }
    let defaults = argument.get_default_values();
    if let Some(default) = defaults.first().filter(|_| argument.get_action().takes_values()) {
        text = format!("{text}; default `{}`", default.to_string_lossy());
    }
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_said_to_have_the_flags_that_it_has() {
        let page = render();
        let mut command = CommandLine::command();
        command.build();
        for name in ["rotate", "plan"] {
            let (_, of_command) = page.split_once(&format!("### `{name}`")).unwrap();
            let (of_command, _) = of_command.split_once("\n### ").unwrap();
            let fields = of_command
                .lines()
                .find(|line| line.starts_with("Fields of"))
                .unwrap();
            let command = command.find_subcommand(name).unwrap();
            for flag in ["urgency", "dry-run"] {
                assert!(
                    command
                        .get_arguments()
                        .all(|argument| argument.get_long() != Some(flag))
                );
                assert!(fields.contains(&format!("`--{flag}`")), "{name}: {fields}");
            }
            assert!(!fields.contains("`--evict`"), "{fields}");
        }
    }

    #[test]
    fn every_command_and_every_exit_code_is_in_the_reference() {
        let page = render();
        for name in [
            "recycle", "rotate", "plan", "status", "extend", "finish", "abort", "restore", "pause", "resume",
        ] {
            assert!(page.contains(&format!("### `{name}`")), "{name}");
        }
        for exit in Exit::ALL {
            assert!(page.contains(&format!("| {} | {} |", exit.code(), exit.meaning())));
        }
        assert!(!page.contains("### `reference`"));
    }
}
