//! Decides when a notification reports a blocked drain, and builds it.

use jiff::Timestamp;

use crate::base::ids::{ExecutionArn, NodeName};
use crate::base::shell::quote;
use crate::base::text::{NAMES_PER_CLASS, count_and_name, cut_text};
use crate::cluster::pod::PodFacts;
use crate::cluster::refresh::Cancellation;
use crate::contract::run::Run;
use crate::drain::survey::{PodSurvey, first_names};
use crate::notify::notification::{About, Notification, NotificationKind, Severity, describe_end};
use crate::records::blockage::Blockage;
use crate::records::blocker::{Blocker, REPORTED_AFTER};
use crate::records::progress::Progress;

/// Seconds between two notifications of a node that stays blocked.
pub const REMINDER: i64 = 86_400;

/// Characters to which a blocked drain's reason is cut. `blocks` explains the blockage.
/// An answer has room for 8 KB, and also carries a run.
const LONGEST_BLOCKED_REASON: usize = 300;

/// Characters to which each entry of `blocks` is cut.
const LONGEST_BLOCK: usize = 120;

/// Records whether the drain is blocked now. Also returns the start of the blockage if a notification is due.
/// The first is due after five minutes, and the next a day after the last one.
/// A blockage that ends and returns causes no more notifications than that.
pub(crate) fn note_blockage(
    before: Option<Blockage>,
    is_blocked: bool,
    now: Timestamp,
) -> (Option<Blockage>, Option<Timestamp>) {
    let reported_at = before.and_then(|before| before.reported_at);
    if !is_blocked {
        let quiet = reported_at.map(|reported_at| Blockage {
            since: None,
            reported_at: Some(reported_at),
        });
        return (quiet, None);
    }
    let since = before.and_then(|before| before.since).unwrap_or(now);
    let seconds_from = |moment: Timestamp| now.duration_since(moment).as_secs();
    let is_due = seconds_from(since) >= REPORTED_AFTER
        && reported_at.is_none_or(|reported_at| seconds_from(reported_at) >= REMINDER);
    let noted = Blockage {
        since: Some(since),
        reported_at: if is_due { Some(now) } else { reported_at },
    };
    (Some(noted), is_due.then_some(since))
}

/// Lists the causes that block the drain and do not pass by themselves, at most five entries.
/// Awaited pods that may end by themselves are not among them.
pub fn list_blocks(survey: &PodSurvey, progress: &Progress) -> Vec<String> {
    let budgets = progress.blocked.iter().map(Blocker::describe);
    let describe = |pods: &[PodFacts], what: &str| {
        let counted = count_and_name(pods.len(), &first_names(pods));
        (!pods.is_empty()).then(|| format!("{what}: {counted}"))
    };
    let never_ends = describe(&survey.remarks.never_ends, "never ends by itself");
    let stuck = describe(&survey.stuck, "should have ended more than five minutes ago");
    let blocks = budgets.chain(progress.held.iter().cloned());
    let blocks = blocks.chain(never_ends).chain(stuck);
    blocks.take(NAMES_PER_CLASS).collect()
}

pub(crate) fn build_blocked_notification(
    about: About<'_>,
    blocks: &[String],
    since: Timestamp,
    until: Timestamp,
    end: Option<&str>,
    reason: &str,
) -> Notification {
    let mut notification =
        about.build_notification(NotificationKind::Blocked, Severity::Warning, since, reason);
    notification.blocks = blocks.iter().take(NAMES_PER_CLASS).cloned().collect();
    for block in &mut notification.blocks {
        cut_text(block, LONGEST_BLOCK);
    }
    cut_text(&mut notification.reason, LONGEST_BLOCKED_REASON);
    notification.until = Some(until);
    let node = about.node.map_or("<node>", NodeName::as_str);
    notification.what_to_do = match end {
        Some(end) => vec![
            format!("The drain ends at {until} at the latest. Then {end}. To end it now:"),
            format!("kubectl annotate --overwrite node {node} recycle-eks/drain-until=now"),
        ],
        None => vec![format!("EC2 interrupts the instance. The drain ends at {until}.")],
    };
    notification
}

/// Returns a notification, at once and then daily, while an instance refresh would terminate the member in Standby with its pods,
/// and one for each refresh that was cancelled for that reason.
pub fn report_refresh(
    run: &mut Run,
    cancellation: &Cancellation,
    execution: &ExecutionArn,
    now: Timestamp,
    until: Timestamp,
) -> Option<Notification> {
    let is_due = |reported_at: Timestamp| now.duration_since(reported_at).as_secs() >= REMINDER;
    let what = "an instance refresh would terminate this member in Standby with its pods (StandbyInstances: Terminate)";
    let (severity, reason) = match cancellation {
        Cancellation::NotNeeded => return None,
        Cancellation::Done => {
            run.drain.refresh_reported_at = None;
            (Severity::Warning, format!("{what}; recycle-eks has cancelled it"))
        }
        Cancellation::NotAllowed | Cancellation::Failed(_)
            if !run.drain.refresh_reported_at.is_none_or(is_due) =>
        {
            return None;
        }
        Cancellation::NotAllowed => (Severity::Critical, what.to_owned()),
        Cancellation::Failed(error) => {
            let mut error = error.clone();
            cut_text(&mut error, LONGEST_BLOCKED_REASON);
            (
                Severity::Critical,
                format!("{what}, and cancelling it failed: {error}"),
            )
        }
    };
    let about = About::run(execution, run);
    let mut notification = about.build_notification(NotificationKind::Blocked, severity, now, &reason);
    if *cancellation == Cancellation::Done {
        notification.what_to_do = vec![
            "Start the refresh again when no execution works on a node of this group, or with StandbyInstances set to Ignore."
                .to_owned(),
        ];
        return Some(notification);
    }
    run.drain.refresh_reported_at = Some(now);
    notification.until = Some(until);
    notification.what_to_do = vec![
        "Cancel the refresh now:".to_owned(),
        format!(
            "aws autoscaling cancel-instance-refresh --auto-scaling-group-name {}",
            quote(run.group.as_str())
        ),
    ];
    Some(notification)
}

/// Records in a run what blocks the drain now, and returns a notification if one is due.
pub fn update_blockage(
    run: &mut Run,
    blocks: &[String],
    execution: &ExecutionArn,
    now: Timestamp,
    until: Timestamp,
    reason: &str,
) -> Option<Notification> {
    let (noted, since) = note_blockage(run.drain.blockage, !blocks.is_empty(), now);
    run.drain.blockage = noted;
    Some(build_blocked_notification(
        About::run(execution, run),
        blocks,
        since?,
        until,
        describe_end(run).as_deref(),
        reason,
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{at, input};
    use crate::input::path::RecyclePath;

    #[test]
    fn a_refresh_that_endangers_the_node_is_reported_at_once_and_then_daily() {
        let (group, node) = ("workers".parse().unwrap(), "old".parse().unwrap());
        let mut run = Run::new(input(json!({})), RecyclePath::Before, group, node, at(0));
        let execution = "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one"
            .parse()
            .unwrap();
        for (now, is_reported) in [(0, true), (60, false), (REMINDER - 1, false), (REMINDER, true)] {
            let found = report_refresh(
                &mut run,
                &Cancellation::NotAllowed,
                &execution,
                at(now),
                at(2 * REMINDER),
            );
            assert_eq!(found.is_some(), is_reported, "{now}");
        }
        let mut report = |cancellation| {
            let found = report_refresh(
                &mut run,
                &cancellation,
                &execution,
                at(2 * REMINDER),
                at(3 * REMINDER),
            );
            found.map(|found| (json!(found)["severity"].clone(), found.what_to_do.len()))
        };
        assert_eq!(report(Cancellation::NotNeeded), None);
        assert_eq!(report(Cancellation::NotAllowed), Some((json!("critical"), 2)));
        assert_eq!(report(Cancellation::Done), Some((json!("warning"), 1)));
        assert_eq!(
            report(Cancellation::Failed("no".to_owned())),
            Some((json!("critical"), 2))
        );
    }
}
