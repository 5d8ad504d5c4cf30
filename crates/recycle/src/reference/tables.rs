//! Renders the pages about inputs, outcomes and notifications in Markdown, from the tables of the code.

use std::fmt::Write as _;

use crate::base::failure::{Failure, Outcome};
use crate::input::fields::{Choice, FIELDS, Field, Kind, choices};
use crate::notify::notification::{self, ATTRIBUTES, NotificationKind, Severity};

/// The text above the tables. `make generate` writes the page, so the text warns against changes by hand.
const INTRODUCTION: &str = "\
# Inputs and outcomes

<!-- Generated from crates/recycle/src/input/fields.rs and crates/recycle/src/base/failure.rs by `make generate`. -->

An execution needs `instance_id` and `cluster_name`. If a field is unknown, wrong, or makes no sense with another field,
the execution fails before it touches anything. The error names the field.
";

/// The text below the tables.
const END: &str = "
A node that a [lifecycle hook](hooks.md) holds is never restored, because its group is terminating it. After any failure except
`DrainTimedOut` and `NodeLost`, the sweep starts another execution for it.
";

/// Renders the page of inputs and outcomes: all tables, each under its heading.
pub fn render_page() -> String {
    format!(
        "{INTRODUCTION}\n## Inputs\n\n{}\n## Outcomes\n\n{}{END}",
        render_inputs(),
        render_outcomes()
    )
}

/// The text above the tables of notifications.
const NOTIFICATIONS: &str = "\
# Notifications

<!-- Generated from crates/recycle/src/notify/notification.rs by `make generate`. -->

recycle-eks publishes one JSON object for each event to one SNS topic. Queues, functions and HTTP endpoints receive the object. An
email has the subject, and `reason`, `blocks` and `what_to_do` as lines of text. If the state machine cannot publish to the topic, it
continues without the notification.
";

/// The text below the tables of notifications.
const NOTIFICATIONS_END: &str = r#"
Some executions cannot publish the notification of their own end. EventBridge rules publish it instead, for these executions:

- `recycle-node`: it was aborted or timed out, or it failed as `ClaimLost` or with an error of Step Functions (`States.…`).
- `rotate-nodes`: it did not succeed. After `RotationFailed` the state machine itself publishes which groups and nodes failed, and why.
- the sweep: it did not succeed.

These notifications have the same schema, with the event `failed` and the outcome `FAILED`, `TIMED_OUT` or `ABORTED`. They have no
message attributes, and an email contains the JSON. The module's alarms also publish to this topic, in CloudWatch's format and without
attributes. A subscription with a filter policy on attributes receives none of them. Keep one subscription without a filter policy.

## Filter policies

Only the events that an operator should look at:

```json
{"severity": ["warning", "critical"]}
```

Everything about two groups except the starts:

```json
{"group": ["workers", "gpu"], "event": [{"anything-but": "started"}]}
```

## Chat

With the module's variable `notification_format = "chat"` the messages have the format of [custom
notifications](https://docs.aws.amazon.com/chatbot/latest/adminguide/custom-notifs.html) of Amazon Q Developer in chat applications, which
shows them in Slack, Microsoft Teams or Amazon Chime. Add the topic (output `notification_topic_arn`) to the configuration of a channel
there. All messages of one execution have the same `threadId`. A channel shows them in one thread if its preferences allow that. Emails and
message attributes are as in the other format, and the module's alarms need no format of their own.

| custom notification | of the fields above |
|---|---|
| `content.title`, `metadata.summary` | `subject` |
| `content.description` | `reason` and `blocks` |
| `content.nextSteps` | `what_to_do`, with commands as code |
| `content.keywords` | `severity`, `event`, `group` |
| `metadata.threadId`, `metadata.relatedResources` | `execution` |
| `metadata.eventType` | `event` |
| `metadata.additionalContext` | `severity`, `group`, `cluster`, `instance_id`, `outcome` |

## One of each

[One message of each kind](messages.md), as a run in the local test environment published them.
"#;

/// Renders the page about notifications.
pub fn render_notifications() -> String {
    let mut page =
        format!("{NOTIFICATIONS}\n## Fields\n\n| field | may be null | meaning |\n|---|---|---|\n");
    for (name, may_be_null, meaning) in notification::FIELDS {
        let null = if may_be_null { "yes" } else { "" };
        let _ = writeln!(page, "| `{name}` | {null} | {meaning} |");
    }
    let attributes = ATTRIBUTES.map(|name| format!("`{name}`")).join(", ");
    let _ = writeln!(page, "\nMessage attributes, for filter policies: {attributes}.");
    page.push_str("\n## Events\n\n| event | sent when |\n|---|---|\n");
    for event in NotificationKind::ALL {
        let _ = writeln!(page, "| `{}` | {} |", event.name(), event.describe());
    }
    page.push_str("\n| severity | meaning |\n|---|---|\n");
    for severity in Severity::ALL {
        let _ = writeln!(page, "| `{}` | {} |", severity.name(), severity.describe());
    }
    page + NOTIFICATIONS_END
}

/// Renders one row for each field. Its meaning includes the values of a closed list.
fn render_inputs() -> String {
    let mut table = String::from("| field | default | allowed | meaning |\n|---|---|---|---|\n");
    for field in &FIELDS {
        let (name, default, allowed) = (field.name, render_default(field), render_allowed(field));
        let meaning = render_meaning(field);
        let _ = writeln!(table, "| `{name}` | {default} | {allowed} | {meaning} |");
    }
    table
}

fn render_default(field: &Field) -> String {
    match (field.required, field.default) {
        (true, _) => "required".to_owned(),
        (false, "") => "absent".to_owned(),
        (false, default) => format!("`{default}`"),
    }
}

fn render_allowed(field: &Field) -> String {
    match field.kind {
        Kind::Identifier => "a text".to_owned(),
        Kind::Selector => "a label selector, `\"\"` or `*`".to_owned(),
        Kind::Namespaces => "a list of names".to_owned(),
        Kind::Duration(range) => format!("{} to {}", range.least(), range.most()),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Time => "a time".to_owned(),
        Kind::Hook => "an object".to_owned(),
        Kind::OneOf(values) => list_values(values),
        Kind::SomeOf(values) => format!("a list of {}", list_values(values)),
    }
}

fn list_values(values: &[Choice]) -> String {
    let quote = |choice: &Choice| format!("`{}`", choice.value);
    values.iter().map(quote).collect::<Vec<_>>().join(", ")
}

fn render_meaning(field: &Field) -> String {
    let values: Vec<String> = choices(field)
        .iter()
        .map(|choice| format!("`{}`: {}", choice.value, choice.meaning))
        .collect();
    if values.is_empty() {
        field.meaning.to_owned()
    } else {
        format!("{}. {}", field.meaning, values.join("; "))
    }
}

fn render_outcomes() -> String {
    let mut table = String::from("| outcome | ends | the node is |\n|---|---|---|\n");
    let succeeded = Outcome::ALL.map(|outcome| (outcome.name(), "SUCCEEDED", outcome.describe_node()));
    let failures = Failure::ALL.into_iter().filter(|failure| failure.ends_failed());
    let failed = failures.map(|failure| (failure.name(), "FAILED", failure.describe_node()));
    for (name, ends, node) in succeeded.into_iter().chain(failed) {
        let _ = writeln!(table, "| `{name}` | {ends} | {node} |");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_value_and_outcome_is_on_the_page() {
        let tables = render_page();
        for field in &FIELDS {
            assert!(
                tables.contains(&format!("| `{}` |", field.name)),
                "{}",
                field.name
            );
            for choice in choices(field) {
                assert!(
                    tables.contains(&format!("`{}`: {}", choice.value, choice.meaning)),
                    "{}",
                    choice.value
                );
            }
        }
        for name in Outcome::ALL.map(Outcome::name).into_iter().chain(
            Failure::ALL
                .into_iter()
                .filter(|failure| failure.ends_failed())
                .map(Failure::name),
        ) {
            assert!(tables.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    #[test]
    fn every_row_has_as_many_cells_as_its_heading() {
        for table in [render_inputs(), render_outcomes()] {
            let mut bars = table.lines().map(|line| line.matches('|').count());
            let heading = bars.next().unwrap();
            assert!(bars.all(|count| count == heading), "{table}");
        }
    }
}
