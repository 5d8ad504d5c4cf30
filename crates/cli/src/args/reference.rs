//! Renders the reference of all commands from the definitions of the parser. It is a part of docs/cli.md (`make generate`).

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command, CommandFactory as _};

use crate::args::flags::CommandLine;
use crate::base::exit::Exit;

/// The first command that has flags under a heading, and their names.
type Described = BTreeMap<String, (String, BTreeSet<String>)>;

pub(crate) fn render() -> String {
    let mut command = CommandLine::command();
    command.build();
    let mut page = String::from("### Flags of every command\n");
    push_arguments(&mut page, &command, Arg::is_global_set);
    let mut described = Described::new();
    let is_own = |each: &&Command| !each.is_hide_set() && each.get_name() != "help";
    for each in command.get_subcommands().filter(is_own) {
        push_command(&mut page, each, &mut described);
    }
    page += "\n### Exit codes\n\n| code | meaning |\n|---|---|\n";
    for exit in Exit::ALL {
        page += &format!("| {} | {} |\n", exit.code(), exit.meaning());
    }
    page
}

/// Renders a command. Flags under a heading that an earlier command already has are not repeated, but the missing ones are named.
fn push_command(page: &mut String, command: &Command, described: &mut Described) {
    let name = command.get_name();
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let sentences = about.split("\n\n").map(|text| text.replace('\n', " "));
    let sentences = sentences.map(|text| format!("{}.", text.trim_end_matches('.')));
    let sentences: Vec<String> = sentences.collect();
    *page += &format!("\n### `{name}`\n\n{}\n", sentences.join(" "));
    let usage = command.clone().render_usage().to_string();
    *page += &format!("\n```\n{}\n```\n", usage.trim_start_matches("Usage: "));
    push_arguments(page, command, |argument| {
        let heading = argument.get_help_heading().unwrap_or_default();
        !argument.is_global_set() && !described.contains_key(heading)
    });
    let mut headings: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for argument in command.get_arguments().filter(|each| !each.is_global_set()) {
        if let (Some(heading), Some(flag)) = (argument.get_help_heading(), argument.get_long()) {
            headings.entry(heading).or_default().insert(flag.to_owned());
        }
    }
    for (heading, flags) in headings {
        let Some((before, known)) = described.get(heading) else {
            described.insert(heading.to_owned(), (name.to_owned(), flags));
            continue;
        };
        let missing = known.difference(&flags).map(|flag| format!("`--{flag}`"));
        let without = match missing.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => none,
            missing => format!(", without {missing}"),
        };
        *page += &format!("\n{heading}: as for [`{before}`](#{before}){without}.\n");
    }
}

fn push_arguments(page: &mut String, command: &Command, is_wanted: impl Fn(&Arg) -> bool) {
    let is_own = |argument: &&Arg| !matches!(argument.get_id().as_str(), "help" | "version");
    let shown = command.get_arguments();
    let shown = shown.filter(|argument| is_wanted(argument) && is_own(argument));
    let rows = shown.map(|argument| format!("| {} | {} |\n", name(argument), describe(argument)));
    let rows: String = rows.collect();
    if !rows.is_empty() {
        *page += &format!("\n| | |\n|---|---|\n{rows}");
    }
}

fn name(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default().iter();
    let value: String = values.take(1).map(|value| format!("<{value}>")).collect();
    let text = match argument.get_long() {
        Some(long) if argument.get_action().takes_values() => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
        None => value,
    };
    let text = match argument.get_short() {
        Some(short) => format!("-{short}, {text}"),
        None => text,
    };
    format!("`{}`", text.replace('|', "\\|"))
}

fn describe(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    if argument.get_action().takes_values() {
        let values = argument.get_possible_values();
        let values = values.iter().map(|value| format!("`{}`", value.get_name()));
        let values = values.collect::<Vec<_>>().join(", ");
        if !values.is_empty() {
            text = format!("{text}: {values}");
        }
        if let Some(default) = argument.get_default_values().first() {
            text = format!("{text}; default `{}`", default.to_string_lossy());
        }
    }
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_described_with_exactly_its_flags() {
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
