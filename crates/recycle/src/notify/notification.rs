//! Builds notifications: one JSON object for each event of a node.
//!
//! The state machine publishes it to the topic: as JSON for queues, functions and HTTP endpoints, and as lines of text for email.

use jiff::Timestamp;
use serde::Serialize;

use crate::base::failure::{Failure, Outcome};
use crate::base::ids::{ClusterName, ExecutionArn, GroupName, InstanceId, NodeName};
use crate::base::named::named;
use crate::base::text::cut_text;
use crate::contract::requests::CaughtError;
use crate::contract::run::Run;
use crate::contract::verdicts::RestoreVerdict;
use crate::input::model::OnDrainTimeout;

/// The version of [`Notification`].
const SCHEMA: u32 = 1;

/// The longest subject. SNS takes fewer than 100 characters, all of them printable ASCII.
const LONGEST_SUBJECT: usize = 99;

/// Characters to which a reason is cut. The execution's output or cause has the whole reason.
const LONGEST_REASON: usize = 800;

/// Bytes of all commands together. A restore's answer has them a second time.
const COMMANDS_BUDGET: usize = 2_500;

named! {
    /// The urgency with which an operator should look, as [`Severity::describe`] says.
    pub enum Severity {
        Info = "info",
        Warning = "warning",
        Critical = "critical",
    }
}

impl Severity {
    /// Returns the meaning, for the documentation.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Info => "no action is needed",
            Self::Warning => "something did not go as planned; nothing is broken",
            Self::Critical => "an operator has to act",
        }
    }
}

named! {
    /// The kind of a notification. [`NotificationKind::describe`] says when it is sent.
    pub enum NotificationKind {
        Started = "started",
        Blocked = "blocked",
        Restored = "restored",
        LeftInStandby = "left_in_standby",
        Finished = "finished",
        Failed = "failed",
    }
}

impl NotificationKind {
    /// Returns the condition under which it is sent, for the documentation.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Started => "the node is claimed and admitted, and is about to be changed",
            Self::Blocked => {
                "the drain has been blocked for five minutes; sent again each day while it stays blocked. Also, `critical` and at once, if an \
                 instance refresh would terminate the member in Standby with its pods, or, as a `warning`, once that refresh was cancelled \
                 (`cancel_instance_refresh`)"
            }
            Self::Restored => "the node was restored, by its execution or by the sweep",
            Self::LeftInStandby => {
                "the node stays in Standby, untainted, because it cannot return to service by itself"
            }
            Self::Finished => "the node was recycled as asked",
            Self::Failed => {
                "the node was not recycled. If it was refused or not admitted in time, it is untouched. Otherwise it was lost, cannot be \
                 seen, is being terminated by its group, or AWS or Kubernetes refused the restore"
            }
        }
    }

    /// Returns the end of the sentence that begins with the node.
    fn phrase(self) -> &'static str {
        match self {
            Self::Started => "is being recycled",
            Self::Blocked => "is blocked",
            Self::Restored => "was restored",
            Self::LeftInStandby => "was left in Standby",
            Self::Finished => "was recycled",
            Self::Failed => "was not recycled",
        }
    }
}

/// The message. [`FIELDS`] documents it. Values that may be unknown are null.
/// `group` is `unknown` instead, because a message attribute is made of it.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notification {
    schema: u32,
    event: NotificationKind,
    severity: Severity,
    outcome: Option<String>,
    subject: String,
    pub(crate) reason: String,
    pub(crate) blocks: Vec<String>,
    pub(crate) what_to_do: Vec<String>,
    since: Timestamp,
    pub(crate) until: Option<Timestamp>,
    cluster: Option<String>,
    group: String,
    node: Option<NodeName>,
    instance_id: Option<String>,
    execution: ExecutionArn,
}

/// The fields in their order, for the documentation: name, whether it may be null, meaning.
pub const FIELDS: [(&str, bool, &str); 15] = [
    ("schema", false, "1"),
    ("event", false, "the kind of the event; see the table below"),
    (
        "severity",
        false,
        "how soon an operator has to act; see the table below",
    ),
    (
        "outcome",
        true,
        "how the execution ended: an outcome or the name of an error ([inputs and outcomes](inputs-and-outcomes.md)); null while it runs, \
         and in a notification of a sweep",
    ),
    ("subject", false, "a summary in one line; the email's subject"),
    (
        "reason",
        false,
        "the reason, in one or more sentences; cut to 800 characters",
    ),
    (
        "blocks",
        false,
        "the causes that block the drain, at most five, each in a sentence",
    ),
    (
        "what_to_do",
        false,
        "the next steps for an operator, line by line: sentences end with a colon or a full stop, all other lines are shell commands",
    ),
    (
        "since",
        false,
        "the time of the claim for `started` and `finished`, the start of the blockage for `blocked`, the start of the restore otherwise",
    ),
    ("until", true, "the latest end of the drain, if it is blocked"),
    ("cluster", true, "the EKS cluster; null if the input names none"),
    ("group", false, "the Auto Scaling group, or `unknown`"),
    ("node", true, "the Node's name"),
    ("instance_id", true, "the instance; null if the input names none"),
    (
        "execution",
        false,
        "the execution of recycle-node, rotate-nodes or the sweep that sends the notification, or that it is about",
    ),
];

/// The fields of which message attributes are made, for filter policies.
pub const ATTRIBUTES: [&str; 4] = ["severity", "event", "group", "cluster"];

/// The subject of a notification, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The execution that sends the notification.
    pub execution: &'a ExecutionArn,
    pub cluster: Option<&'a ClusterName>,
    pub instance: Option<&'a InstanceId>,
    pub node: Option<&'a NodeName>,
    pub group: Option<&'a GroupName>,
}

impl<'a> About<'a> {
    /// Returns the subject of a run's notifications: its node.
    pub fn run(execution: &'a ExecutionArn, run: &'a Run) -> Self {
        Self {
            execution,
            cluster: Some(&run.input.cluster_name),
            instance: Some(&run.input.instance_id),
            node: Some(&run.node),
            group: Some(&run.group),
        }
    }

    pub(crate) fn build_notification(
        &self,
        event: NotificationKind,
        severity: Severity,
        since: Timestamp,
        reason: &str,
    ) -> Notification {
        let place = self.cluster.map(|cluster| format!(", cluster {cluster}"));
        let place = place.unwrap_or_default();
        // The Node's name would leave no room for the rest. The field `node` has it.
        let instance = self.instance.map_or("a node", InstanceId::as_str);
        let subject = format!("recycle-eks: {instance} {}{place}", event.phrase());
        let mut subject = subject.replace(|letter| !matches!(letter, ' '..='~'), "?");
        subject.truncate(LONGEST_SUBJECT);
        let mut reason = reason.to_owned();
        cut_text(&mut reason, LONGEST_REASON);
        Notification {
            schema: SCHEMA,
            event,
            severity,
            outcome: None,
            subject,
            reason,
            blocks: Vec::new(),
            what_to_do: Vec::new(),
            since,
            until: None,
            cluster: self.cluster.map(ToString::to_string),
            group: self.group.map_or("unknown", GroupName::as_str).to_owned(),
            node: self.node.cloned(),
            instance_id: self.instance.map(ToString::to_string),
            execution: self.execution.clone(),
        }
    }
}

impl Notification {
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// Builds the notification that a node is about to be changed. `reason` is the reason in the answer about the claim. `severity` is higher
/// if the reason contains something that an operator should know beforehand.
pub fn build_started_notification(
    about: About<'_>,
    run: &Run,
    reason: &str,
    severity: Severity,
) -> Notification {
    let mut notification =
        about.build_notification(NotificationKind::Started, severity, run.claimed_at, reason);
    notification.what_to_do = vec![
        "Watch it:".to_owned(),
        format!("recycle-eks status {}", run.node),
        "Without the command line:".to_owned(),
        format!("kubectl describe node {}", run.node),
    ];
    notification
}

pub fn build_finished_notification(about: About<'_>, run: &Run, reason: &str) -> Notification {
    let mut notification =
        about.build_notification(NotificationKind::Finished, Severity::Info, run.claimed_at, reason);
    notification.outcome = Some(Outcome::Recycled.name().to_owned());
    notification
}

/// Describes what happens at the end of the drain's time.
/// None if EC2 interrupts the instance, because that end cannot be chosen.
pub(crate) fn describe_end(run: &Run) -> Option<String> {
    let by_input = match run.input.on_drain_timeout {
        OnDrainTimeout::Restore => "the node is restored",
        OnDrainTimeout::Evict => "awaited pods are evicted",
        OnDrainTimeout::Terminate => "the instance is disposed of, even if pods still run on it",
    };
    let end = match &run.hook {
        Some(hook) => hook.describe_end(),
        None => by_input.to_owned(),
    };
    run.input.interrupted_at.is_none().then_some(end)
}

/// Builds the notification about a node that an execution or a sweep has not recycled. None if there is nothing to report.
/// `error` is the error of the execution. `reason` does not contain the commands.
pub fn build_restored_notification(
    about: About<'_>,
    verdict: RestoreVerdict,
    error: Option<&CaughtError>,
    since: Timestamp,
    reason: &str,
    what_to_do: Vec<String>,
) -> Option<Notification> {
    let outcome = error.map(|error| error.error.clone());
    let (event, severity, outcome) = match verdict {
        RestoreVerdict::Wait | RestoreVerdict::Start | RestoreVerdict::Unmarked => return None,
        RestoreVerdict::Untouched => (NotificationKind::Failed, Severity::Warning, Some(outcome?)),
        RestoreVerdict::Restored => (NotificationKind::Restored, Severity::Warning, outcome),
        RestoreVerdict::Kept => (NotificationKind::Failed, Severity::Critical, outcome),
        RestoreVerdict::LeftInStandby => {
            let outcome = outcome.map(|_| Failure::LeftInStandby.name().to_owned());
            (NotificationKind::LeftInStandby, Severity::Critical, outcome)
        }
    };
    Some(Notification {
        outcome,
        what_to_do: fit_commands(what_to_do),
        ..about.build_notification(event, severity, since, reason)
    })
}

/// Keeps whole commands only, because half a command would be worse than none.
fn fit_commands(mut lines: Vec<String>) -> Vec<String> {
    let mut bytes = 0;
    let fitting = lines.iter().take_while(|line| {
        bytes += line.len();
        bytes <= COMMANDS_BUDGET
    });
    let count = fitting.count();
    if count < lines.len() {
        lines.truncate(count);
        lines.push("The other commands are in the cause of the execution.".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use crate::drain::survey::PodSurvey;
    use crate::notify::blockage::REMINDER;
    use crate::notify::blockage::build_blocked_notification;
    use crate::notify::blockage::list_blocks;
    use crate::notify::blockage::note_blockage;
    use crate::records::blockage::Blockage;
    use serde_json::json;

    use super::*;
    use crate::base::names::{DRAINING_TAINT, STANDBY_TAG};
    use crate::cluster::instance::Instance;
    use crate::drain::progress::build_progress;
    use crate::fixtures::{
        ARN, OLD, at, claimed, group, id, instance, job_pod, node, pod, strings, taint, terms,
    };
    use crate::records::claim::Phase;
    use crate::records::node_record::Record;
    use crate::restore::manual_commands::describe_manual_commands;

    fn about<'a>(
        execution: &'a ExecutionArn,
        cluster: &'a ClusterName,
        instance: &'a InstanceId,
        node: &'a NodeName,
        group: &'a GroupName,
    ) -> About<'a> {
        About {
            execution,
            cluster: Some(cluster),
            instance: Some(instance),
            node: Some(node),
            group: Some(group),
        }
    }

    fn with_about<T>(test: impl FnOnce(About<'_>) -> T) -> T {
        test(about(
            &ARN.parse().unwrap(),
            &"prod".parse().unwrap(),
            &id(OLD),
            &"ip-10-0-0-1.ec2.internal".parse().unwrap(),
            &"workers".parse().unwrap(),
        ))
    }

    fn caught(error: &str) -> CaughtError {
        CaughtError {
            error: error.to_owned(),
            cause: String::new(),
        }
    }

    #[test]
    fn a_reason_is_cut_to_a_limit_and_otherwise_unchanged() {
        let build_notification = |reason: &str| {
            with_about(|about| {
                about.build_notification(NotificationKind::Started, Severity::Info, at(0), reason)
            })
        };
        assert_eq!(build_notification("why").reason(), "why");
        let long = build_notification(&"x".repeat(LONGEST_REASON + 1));
        assert_eq!(long.reason().chars().count(), LONGEST_REASON);
    }

    #[test]
    fn the_documented_fields_are_those_of_the_message_in_their_order() {
        let notification = with_about(|about| {
            about.build_notification(NotificationKind::Started, Severity::Info, at(0), "x")
        });
        let text = serde_json::to_string(&notification).unwrap();
        let places: Vec<usize> = FIELDS
            .iter()
            .map(|(name, ..)| text.find(&format!("\"{name}\":")).unwrap())
            .collect();
        assert!(places.is_sorted(), "{text}");
        let message = serde_json::to_value(&notification).unwrap();
        assert_eq!(message.as_object().unwrap().len(), FIELDS.len());
        for (name, may_be_null, _) in FIELDS {
            assert!(may_be_null || !message[name].is_null(), "{name}");
        }
        for attribute in ATTRIBUTES {
            assert!(message[attribute].is_string(), "{attribute}");
        }
    }

    #[test]
    fn a_message_names_its_node_and_the_event() {
        let notification = with_about(|about| {
            let blocks = ["a budget".to_owned()];
            build_blocked_notification(
                about,
                &blocks,
                at(300),
                at(86_400),
                Some("the node is restored"),
                "it waits",
            )
        });
        assert_eq!(
            serde_json::to_value(&notification).unwrap(),
            json!({
                "schema": 1, "event": "blocked", "severity": "warning", "outcome": null,
                "subject": format!("recycle-eks: {OLD} is blocked, cluster prod"),
                "reason": "it waits", "blocks": ["a budget"],
                "what_to_do": [
                    "The drain ends at 2027-01-02T00:00:00Z at the latest. Then the node is restored. To end it now:",
                    "kubectl annotate --overwrite node ip-10-0-0-1.ec2.internal recycle-eks/drain-until=now",
                ],
                "since": "2027-01-01T00:05:00Z", "until": "2027-01-02T00:00:00Z", "cluster": "prod", "group": "workers",
                "node": "ip-10-0-0-1.ec2.internal", "instance_id": OLD, "execution": ARN,
            })
        );
    }

    #[test]
    fn a_subject_is_valid_for_sns() {
        let (execution, cluster) = (ARN.parse().unwrap(), "c".repeat(100).parse().unwrap());
        let (node, group) = ("n".repeat(253).parse().unwrap(), "grün".parse().unwrap());
        let notification = about(&execution, &cluster, &id(OLD), &node, &group).build_notification(
            NotificationKind::Finished,
            Severity::Info,
            at(0),
            "",
        );
        assert_eq!(notification.subject.len(), LONGEST_SUBJECT);
        assert_eq!(notification.group, "grün");
        let unknown = About {
            execution: &execution,
            cluster: None,
            instance: None,
            node: None,
            group: None,
        };
        let notification = unknown.build_notification(NotificationKind::Failed, Severity::Warning, at(0), "");
        assert_eq!(
            (notification.subject.as_str(), notification.group.as_str()),
            ("recycle-eks: a node was not recycled", "unknown")
        );
    }

    #[test]
    fn a_blockage_is_reported_after_five_minutes_and_then_daily() {
        let since = |since, reported: Option<i64>| {
            Some(Blockage {
                since: Some(at(since)),
                reported_at: reported.map(at),
            })
        };
        let quiet = |reported| {
            Some(Blockage {
                since: None,
                reported_at: Some(at(reported)),
            })
        };
        let day = REMINDER;
        let cases = [
            ("nothing", None, false, 0, (None, None)),
            ("it begins", None, true, 7, (since(7, None), None)),
            ("not yet", since(7, None), true, 306, (since(7, None), None)),
            (
                "five minutes",
                since(7, None),
                true,
                307,
                (since(7, Some(307)), Some(at(7))),
            ),
            (
                "reported",
                since(7, Some(307)),
                true,
                306 + day,
                (since(7, Some(307)), None),
            ),
            (
                "a day later",
                since(7, Some(307)),
                true,
                307 + day,
                (since(7, Some(307 + day)), Some(at(7))),
            ),
            ("it is over", since(7, Some(307)), false, 400, (quiet(307), None)),
            ("it is over, unreported", since(7, None), false, 60, (None, None)),
            (
                "it comes again on the same day",
                quiet(307),
                true,
                500,
                (since(500, Some(307)), None),
            ),
            (
                "and lasts",
                since(500, Some(307)),
                true,
                307 + day,
                (since(500, Some(307 + day)), Some(at(500))),
            ),
        ];
        for (name, before, is_blocked, now, expected) in cases {
            assert_eq!(note_blockage(before, is_blocked, at(now)), expected, "{name}");
        }
    }

    #[test]
    fn only_causes_that_do_not_pass_by_themselves_block_a_drain() {
        let mut survey = PodSurvey {
            awaited: vec![job_pod("train"), pod("web")],
            terminating: vec![job_pod("leaving")],
            ..PodSurvey::default()
        };
        let blocks = |survey: &PodSurvey| list_blocks(survey, &build_progress(survey, Vec::new(), &terms()));
        assert_eq!(blocks(&survey), Vec::<String>::new());
        survey.remarks.never_ends = vec![pod("web")];
        survey.stuck = vec![pod("a"), pod("b")];
        survey.held_because = vec!["a volume".to_owned()];
        assert_eq!(
            blocks(&survey),
            [
                "a volume",
                "never ends by itself: 1 pod (default/web)",
                "should have ended more than five minutes ago: 2 pods (default/a, default/b)",
            ]
        );
    }

    #[test]
    fn the_end_of_a_restore_decides_event_and_severity() {
        use RestoreVerdict::{Kept, LeftInStandby, Restored, Untouched, Wait};
        let drain = caught("DrainTimedOut");
        let cases = [
            (Wait, Some(&drain), None),
            (Untouched, None, None),
            (
                Untouched,
                Some(&drain),
                Some(("failed", "warning", Some("DrainTimedOut"))),
            ),
            (Restored, None, Some(("restored", "warning", None))),
            (
                Restored,
                Some(&drain),
                Some(("restored", "warning", Some("DrainTimedOut"))),
            ),
            (
                Kept,
                Some(&drain),
                Some(("failed", "critical", Some("DrainTimedOut"))),
            ),
            (
                LeftInStandby,
                Some(&drain),
                Some(("left_in_standby", "critical", Some("LeftInStandby"))),
            ),
            (LeftInStandby, None, Some(("left_in_standby", "critical", None))),
        ];
        for (verdict, error, expected) in cases {
            let notification = with_about(|about| {
                build_restored_notification(about, verdict, error, at(0), "why", vec!["do it".to_owned()])
            });
            let notification = notification.map(|notification| serde_json::to_value(notification).unwrap());
            let expected =
                expected.map(|(event, severity, outcome)| json!([event, severity, outcome, ["do it"]]));
            let found = notification.map(|message| {
                json!([
                    message["event"],
                    message["severity"],
                    message["outcome"],
                    message["what_to_do"]
                ])
            });
            assert_eq!(found, expected, "{verdict:?}");
        }
    }

    #[test]
    fn commands_are_whole_or_left_out() {
        let command = "c".repeat(500);
        assert_eq!(fit_commands(vec![command.clone(); 5]).len(), 5);
        let cut = fit_commands(vec![command.clone(); 10]);
        assert_eq!(cut.len(), 6);
        assert_eq!(cut[4], command);
        assert!(cut[5].ends_with("cause of the execution."), "{}", cut[5]);
    }

    /// EKS names the group of a managed node group after it, and adds a UUID.
    #[test]
    fn every_command_fits_for_a_managed_group_that_is_full_and_launches_nothing() {
        let record = Record {
            tainted_at: Some(at(0)),
            ..Record::default()
        };
        let mut node = claimed(
            node("ip-10-0-0-1.eu-central-1.compute.internal"),
            Phase::Draining,
            &record,
        );
        node.taints = vec![taint(DRAINING_TAINT, "NoSchedule")];
        let mut group = group();
        group.name = "eks-workers-1ec4f8a6-1cde-4b4e-a1a2-5b3b0f6f2c11"
            .parse()
            .unwrap();
        group.max = group.desired;
        group.suspended = vec!["Launch".to_owned()];
        let instance = Instance {
            tags: strings([(STANDBY_TAG, "y")]),
            ..instance()
        };
        let manual = describe_manual_commands(
            &id(OLD),
            Some(&group),
            Some("Standby"),
            Some(&instance),
            Some(&node.name),
            Some(&node),
            false,
        );
        assert_eq!(fit_commands(manual.commands.clone()), manual.commands);
    }

    #[test]
    fn every_kind_and_severity_has_a_name_and_a_description() {
        for event in NotificationKind::ALL {
            assert!(!event.describe().is_empty() && serde_json::to_value(event).unwrap().is_string());
        }
        for severity in Severity::ALL {
            assert!(!severity.describe().is_empty());
        }
    }
}
