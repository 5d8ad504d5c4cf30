//! Turns the flags of `rotate` and `plan` into the input of `rotate-nodes`. A wrong flag is refused before anything is started.

use serde_json::{Map, Value, json};

use crate::args::flags::{Rotation, Selection};
use crate::base::error::{Result, misuse};

/// The criteria that only narrow what others select.
const NARROWING: [&str; 3] = ["groups", "group_tag", "node_labels"];

/// Returns the input of a rotation that an operator starts.
pub(crate) fn rotation_input(rotation: &Rotation, dry_run: bool) -> Result<Value> {
    let (pace, fields) = (&rotation.pace, &rotation.fields.0);
    let at_once = pace.at_once.as_deref().map(read_at_once);
    Ok(without_null(json!({
        "trigger": "manual",
        "selection": read_selection(&rotation.selection)?,
        "at_once": at_once.transpose()?,
        "wait_between_nodes": pace.wait_between_nodes,
        "wait_after_first_node": pace.wait_after_first_node,
        "alarms": (!pace.alarms.is_empty()).then_some(&pace.alarms),
        "on_alarm": pace.on_alarm,
        "start_no_new_node_after": pace.start_no_new_node_after,
        "on_failure": pace.on_failure,
        "failure_budget": pace.failure_budget,
        "retries": pace.retries,
        "wait_for_pending_pods": pace.ignore_pending_pods.then_some(false),
        "mark": pace.mark,
        "dry_run": dry_run.then_some(true),
        "recycle": (!fields.is_empty()).then_some(fields),
    })))
}

fn read_selection(selection: &Selection) -> Result<Value> {
    let outdated = read_criteria(selection)?;
    let mut names = outdated.as_object().into_iter().flat_map(Map::keys);
    if selection.instances.is_empty() {
        if names.all(|name| NARROWING.contains(&name.as_str())) {
            misuse!(
                "the selection needs one of --launch-template, --ami, --kubelet, --older-than, --launched-before, --all or --instance; \
                 --group, --group-tag and --node-labels narrow it"
            );
        }
        return Ok(json!({"outdated": outdated}));
    }
    if names.next().is_some() {
        misuse!("--instance names the nodes, so it cannot be combined with other flags of the selection");
    }
    Ok(json!({"instance_ids": selection.instances}))
}

fn read_criteria(selection: &Selection) -> Result<Value> {
    if let Some(time) = &selection.launched_before
        && time.parse::<jiff::Timestamp>().is_err()
    {
        misuse!("--launched-before must be a time such as 2027-01-31T18:00:00Z, but is {time:?}");
    }
    let group_tag = match &selection.group_tag {
        None => None,
        Some(tag) => match tag.split_once('=') {
            Some((key, value)) if !key.is_empty() => Some(json!({"key": key, "value": value})),
            Some(_) | None => misuse!("--group-tag must be KEY=VALUE, but is {tag:?}"),
        },
    };
    Ok(without_null(json!({
        "launch_template": selection.launch_template.then_some(true),
        "ami": selection.ami.then_some(true),
        "kubelet": selection.kubelet.then_some(true),
        "all": selection.all.then_some(true),
        "older_than": selection.older_than,
        "launched_before": selection.launched_before,
        "groups": (!selection.groups.is_empty()).then_some(&selection.groups),
        "group_tag": group_tag,
        "node_labels": selection.node_labels,
    })))
}

/// Removes the fields that were not given.
fn without_null(mut fields: Value) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

/// Returns a number as a number, and a percentage as a text.
fn read_at_once(text: &str) -> Result<Value> {
    let percent = text.strip_suffix('%').map(str::parse::<u32>);
    match (text.parse::<u32>(), percent) {
        (Ok(number @ 1..), _) => Ok(number.into()),
        (_, Some(Ok(1..=100))) => Ok(text.into()),
        _ => misuse!(
            "--at-once must be a whole number of at least 1, or a percentage such as 25%, but is {text:?}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::flags::{Command, CommandLine};

    fn input_of(flags: &str) -> Result<Value, String> {
        let line = ["recycle-eks", "rotate"]
            .into_iter()
            .chain(flags.split_whitespace());
        let line = CommandLine::try_parse_from(line).map_err(|error| error.to_string())?;
        let Command::Rotate(rotate) = line.command else {
            panic!("{:?}", line.command)
        };
        rotation_input(&rotate.rotation, false).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_become_the_input_of_a_rotation() {
        for (flags, input) in [
            (
                "--launch-template",
                json!({"trigger": "manual", "selection": {"outdated": {"launch_template": true}}}),
            ),
            (
                "--instance i-0aaaaaaaaaaaaaaaa --instance i-0bbbbbbbbbbbbbbbb",
                json!({"trigger": "manual", "selection": {"instance_ids": ["i-0aaaaaaaaaaaaaaaa", "i-0bbbbbbbbbbbbbbbb"]}}),
            ),
            (
                "--all --group a --group b --at-once 25% --retries 2 --on-failure continue --mark none",
                json!({"trigger": "manual", "selection": {"outdated": {"all": true, "groups": ["a", "b"]}},
                    "at_once": "25%", "retries": 2, "on_failure": "continue", "mark": "none"}),
            ),
            (
                "--older-than 14d --ami --group-tag team=a=b --node-labels pool=x --ignore-pending-pods --at-once 3",
                json!({"trigger": "manual", "selection": {"outdated": {"ami": true, "older_than": "14d",
                    "group_tag": {"key": "team", "value": "a=b"}, "node_labels": "pool=x"}}, "wait_for_pending_pods": false, "at_once": 3}),
            ),
            (
                "--all --wait-after-first-node 1h --alarm errors --alarm latency --on-alarm stop",
                json!({"trigger": "manual", "selection": {"outdated": {"all": true}}, "wait_after_first_node": "1h", "alarms": ["errors", "latency"],
                    "on_alarm": "stop"}),
            ),
            (
                "--launched-before 2027-01-31T18:00:00Z --start-no-new-node-after 4h --wait-between-nodes 600 --drain-timeout 1h",
                json!({"trigger": "manual", "selection": {"outdated": {"launched_before": "2027-01-31T18:00:00Z"}},
                    "start_no_new_node_after": "4h", "wait_between_nodes": "10m", "recycle": {"drain_timeout": "1h"}}),
            ),
        ] {
            assert_eq!(input_of(flags), Ok(input), "{flags}");
        }
    }

    #[test]
    fn a_refusal_names_the_flag() {
        for (flags, words) in [
            ("", "needs one of --launch-template"),
            ("--group a", "needs one of --launch-template"),
            (
                "--instance i-0aaaaaaaaaaaaaaaa --ami",
                "--instance names the nodes",
            ),
            (
                "--ami --group-tag team",
                "--group-tag must be KEY=VALUE, but is \"team\"",
            ),
            (
                "--ami --at-once 0",
                "--at-once must be a whole number of at least 1, or a percentage such as 25%, but is \"0\"",
            ),
            ("--ami --at-once 101%", "but is \"101%\""),
            ("--launched-before friday", "--launched-before must be a time"),
            (
                "--older-than 336",
                "must be a duration of at least 1h, such as 20h, 10d or a number of seconds, but is",
            ),
            (
                "--ami --wait-between-nodes 2d",
                "must be a duration from 0s to 1d",
            ),
            (
                "--older-than two-weeks",
                "'--older-than <DURATION>': must be a duration of at least 1h, such as 20h, 10d or a number of seconds, but is \"two-weeks\"",
            ),
            (
                "--ami --start-no-new-node-after PT4H",
                "must be a time such as 2027-01-31T05:00:00Z, or a duration of at least 1s, such as 4h or a number of seconds, \
                 but is \"PT4H\"",
            ),
            ("--ami --mark maybe", "'maybe'"),
            ("--all --node-labels a=b,", "--node-labels"),
            ("--instance ip-1.ec2.internal", "--instance"),
            ("--ami --group a --group-tag b=c", "cannot be used with"),
        ] {
            let refusal = input_of(flags).unwrap_err();
            assert!(refusal.contains(words), "{flags}: {refusal}");
        }
    }
}
