//! The flags of `rotate` and `plan` as the input of `rotate-nodes`. What is wrong with one of them is said before anything is started.

use serde_json::{Map, Value, json};

use crate::args::flags::{Mark, OnFailure, Pace, Selection};
use crate::base::error::Error;

/// The input of a rotation that a person starts.
pub(crate) fn rotation_input(
    selection: &Selection,
    pace: &Pace,
    fields: &Map<String, Value>,
    dry_run: bool,
) -> Result<Value, Error> {
    let mut input = Map::new();
    input.insert("trigger".to_owned(), "manual".into());
    input.insert("selection".to_owned(), read_selection(selection)?);
    input.extend(read_pace(pace)?);
    if dry_run {
        input.insert("dry_run".to_owned(), true.into());
    }
    if !fields.is_empty() {
        input.insert("recycle".to_owned(), Value::Object(fields.clone()));
    }
    Ok(Value::Object(input))
}

fn read_selection(selection: &Selection) -> Result<Value, Error> {
    let outdated = read_criteria(selection)?;
    let names_criteria = !outdated.is_empty();
    match (selection.instances.is_empty(), names_criteria) {
        (false, true) => refuse("--instance names the nodes: it goes with no other flag of the selection"),
        (false, false) => Ok(json!({"instance_ids": selection.instances})),
        (true, _) if !has_criterion(selection) => refuse(
            "the selection needs one of --launch-template, --ami, --kubelet, --older-than-hours, --launched-before, --all or --instance; \
             --group, --group-tag and --node-labels narrow it",
        ),
        (true, _) => Ok(json!({"outdated": outdated})),
    }
}

fn has_criterion(selection: &Selection) -> bool {
    selection.launch_template
        || selection.ami
        || selection.kubelet
        || selection.all
        || selection.older_than_hours.is_some()
        || selection.launched_before.is_some()
}

fn read_criteria(selection: &Selection) -> Result<Map<String, Value>, Error> {
    let mut outdated = Map::new();
    let flags = [
        ("launch_template", selection.launch_template),
        ("ami", selection.ami),
        ("kubelet", selection.kubelet),
        ("all", selection.all),
    ];
    for (name, _) in flags.into_iter().filter(|(_, given)| *given) {
        outdated.insert(name.to_owned(), true.into());
    }
    if let Some(hours) = selection.older_than_hours {
        outdated.insert("older_than_hours".to_owned(), hours.into());
    }
    if let Some(time) = &selection.launched_before {
        if time.parse::<jiff::Timestamp>().is_err() {
            return refuse(&format!(
                "--launched-before must be a time such as 2027-01-31T18:00:00Z, but is {time:?}"
            ));
        }
        outdated.insert("launched_before".to_owned(), time.as_str().into());
    }
    if !selection.groups.is_empty() {
        outdated.insert("groups".to_owned(), json!(selection.groups));
    }
    if let Some(tag) = &selection.group_tag {
        let Some((key, value)) = tag.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return refuse(&format!("--group-tag must be KEY=VALUE, but is {tag:?}"));
        };
        outdated.insert("group_tag".to_owned(), json!({"key": key, "value": value}));
    }
    if let Some(labels) = &selection.node_labels {
        outdated.insert("node_labels".to_owned(), labels.as_str().into());
    }
    Ok(outdated)
}

fn read_pace(pace: &Pace) -> Result<Map<String, Value>, Error> {
    let mut input = Map::new();
    let numbers = [
        ("wait_between_nodes_seconds", pace.wait_between_nodes_seconds),
        ("failure_budget", pace.failure_budget),
        ("retries", pace.retries),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            input.insert(name.to_owned(), number.into());
        }
    }
    if let Some(at_once) = &pace.at_once {
        input.insert("at_once".to_owned(), read_at_once(at_once)?);
    }
    if let Some(time) = &pace.start_no_new_node_after {
        input.insert("start_no_new_node_after".to_owned(), time.as_str().into());
    }
    if let Some(what) = pace.on_failure {
        let what = match what {
            OnFailure::Stop => "stop",
            OnFailure::Continue => "continue",
        };
        input.insert("on_failure".to_owned(), what.into());
    }
    if pace.ignore_pending_pods {
        input.insert("wait_for_pending_pods".to_owned(), false.into());
    }
    if let Some(mark) = pace.mark {
        let mark = match mark {
            Mark::Soft => "soft",
            Mark::Hard => "hard",
            Mark::None => "none",
        };
        input.insert("mark".to_owned(), mark.into());
    }
    Ok(input)
}

/// A number is one in the input, too; a percentage is a text.
fn read_at_once(text: &str) -> Result<Value, Error> {
    let is_share = text
        .strip_suffix('%')
        .and_then(|number| number.parse::<u32>().ok())
        .is_some_and(|percent| (1..=100).contains(&percent));
    match text.parse::<u32>() {
        Ok(number) if number >= 1 => Ok(number.into()),
        Ok(_) | Err(_) if is_share => Ok(text.into()),
        Ok(_) | Err(_) => refuse(&format!(
            "--at-once must be a number from 1 or a percentage such as 25%, but is {text:?}"
        )),
    }
}

fn refuse<T>(text: &str) -> Result<T, Error> {
    Err(Error::Refused(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::flags::Command;
    use crate::args::flags::CommandLine;

    fn input_of(flags: &str) -> Result<Value, String> {
        let line = ["recycle-eks", "rotate"]
            .into_iter()
            .chain(flags.split_whitespace());
        let line = CommandLine::try_parse_from(line).map_err(|error| error.to_string())?;
        let Command::Rotate(rotate) = line.command else {
            panic!("{:?}", line.command)
        };
        rotation_input(&rotate.selection, &rotate.pace, &rotate.fields.0, false)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_the_input_of_a_rotation() {
        for (flags, input) in [
            (
                "--launch-template",
                json!({"trigger": "manual", "selection": {"outdated": {"launch_template": true}}}),
            ),
            (
                "--instance i-1 --instance i-2",
                json!({"trigger": "manual", "selection": {"instance_ids": ["i-1", "i-2"]}}),
            ),
            (
                "--all --group a --group b --at-once 25% --retries 2 --on-failure continue --mark none",
                json!({"trigger": "manual", "selection": {"outdated": {"all": true, "groups": ["a", "b"]}},
                    "at_once": "25%", "retries": 2, "on_failure": "continue", "mark": "none"}),
            ),
            (
                "--older-than-hours 336 --ami --group-tag team=a=b --node-labels pool=x --ignore-pending-pods --at-once 3",
                json!({"trigger": "manual", "selection": {"outdated": {"ami": true, "older_than_hours": 336,
                    "group_tag": {"key": "team", "value": "a=b"}, "node_labels": "pool=x"}}, "wait_for_pending_pods": false, "at_once": 3}),
            ),
            (
                "--launched-before 2027-01-31T18:00:00Z --start-no-new-node-after PT4H --drain-timeout-seconds 3600",
                json!({"trigger": "manual", "selection": {"outdated": {"launched_before": "2027-01-31T18:00:00Z"}},
                    "start_no_new_node_after": "PT4H", "recycle": {"drain_timeout_seconds": 3600}}),
            ),
        ] {
            assert_eq!(input_of(flags), Ok(input), "{flags}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_flag() {
        for (flags, words) in [
            ("", "needs one of --launch-template"),
            ("--group a", "needs one of --launch-template"),
            ("--instance i-1 --ami", "--instance names the nodes"),
            (
                "--ami --group-tag team",
                "--group-tag must be KEY=VALUE, but is \"team\"",
            ),
            (
                "--ami --at-once 0",
                "--at-once must be a number from 1 or a percentage such as 25%, but is \"0\"",
            ),
            ("--ami --at-once 101%", "but is \"101%\""),
            ("--launched-before friday", "--launched-before must be a time"),
            ("--ami --mark maybe", "'maybe'"),
            ("--ami --group a --group-tag b=c", "cannot be used with"),
        ] {
            let refusal = input_of(flags).unwrap_err();
            assert!(refusal.contains(words), "{flags}: {refusal}");
        }
    }
}
