//! Prints the page about notifications, from the tables of the code: `docs/notifications.md`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::fmt::Write as _;

use recycle::notify::notification::{self, ATTRIBUTES, NotificationKind, Severity};

/// The text above the tables.
const INTRODUCTION: &str = "\
# Notifications

<!-- Generated from crates/recycle/src/notify/notification.rs by `make generate`. -->

recycle-eks publishes one JSON object for each event to one SNS topic. Queues, functions and HTTP endpoints receive the object. An
email has the subject, and `reason`, `blocks` and `what_to_do` as lines of text. If the state machine cannot publish to the topic, it
continues without the notification.
";

/// The text below the tables.
const END: &str = r#"
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

fn main() {
    print!("{}", render_page());
}

fn render_page() -> String {
    let mut page = format!("{INTRODUCTION}\n## Fields\n\n| field | may be null | meaning |\n|---|---|---|\n");
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
    page + END
}
