//! `extend` and `finish`: move the end of a running drain. They invoke `serve-operator`, which writes the new end on the Node.

use jiff::Timestamp;
use recycle::base::duration::Duration;
use recycle::base::time::later;
use recycle::cluster::hook::HeldByHook;
use recycle::drain::holding::{ENDS_WITH_NODE, HOLDING};
use recycle::input::urgency::Urgency;
use recycle::notify::status::NodeStatus;
use recycle::records::claim::Phase;
use recycle::records::progress::Progress;
use serde_json::{Value, json};

use crate::args::flags::{Extend, Finish};
use crate::aws::installation::Installation;
use crate::aws::nodes::find_node_in_cluster;
use crate::base::clock;
use crate::base::error::{Result, misuse, refuse};
use crate::base::exit::Exit;
use crate::base::times::moment;
use crate::commands::confirm::confirm;
use crate::history::node::History;
use crate::views::output::Output;

pub(crate) async fn extend(installation: &Installation, output: &Output, wanted: &Extend) -> Result<Exit> {
    let until = wanted.until.as_deref().map(parse_time).transpose()?;
    let node = find_node_in_cluster(installation, &wanted.node).await?;
    let until = match (until, wanted.by) {
        (Some(until), _) => check_later(until, clock::now())?,
        (None, by) => prolong(&node, by.unwrap_or_default(), clock::now())?,
    };
    move_end(installation, output, &node, &until.to_string()).await
}

pub(crate) async fn finish(installation: &Installation, output: &Output, wanted: &Finish) -> Result<Exit> {
    let node = find_node_in_cluster(installation, &wanted.node).await?;
    if let Some(warning) = warn_of_end(&node).filter(|_| !wanted.yes) {
        confirm(output, &warning, "end the drain?")?;
    }
    move_end(installation, output, &node, "now").await
}

/// Returns a sentence about what the end of the drain costs.
/// None if the node has no claim, or if the last check says that the node is restored at the end.
/// The progress on the Node decides that only for a planned drain.
fn warn_of_end(node: &NodeStatus) -> Option<String> {
    let claim = node.claim.as_ref()?;
    let progress = node.progress.as_ref();
    let planned = progress.map_or("", |progress| progress.then.as_str());
    let is_restored = planned.starts_with("the node is restored");
    if is_restored && claim.urgency == Urgency::Planned {
        return None;
    }
    let pods = match progress.map(list_holding) {
        None => "pods that have not been checked yet".to_owned(),
        Some(none) if none.is_empty() => "no pod".to_owned(),
        Some(pods) => pods.join(", "),
    };
    let then = match claim.urgency {
        Urgency::Planned if planned.is_empty() => {
            "its instance may be disposed of with them: no check has said yet what happens at the end"
        }
        Urgency::Hook | Urgency::Spot | Urgency::Interruption if is_restored || planned.is_empty() => {
            "its group terminates the instance"
        }
        Urgency::Planned | Urgency::Hook | Urgency::Spot | Urgency::Interruption => planned,
    };
    Some(format!(
        "{} is held by {pods}; if its drain ends now, {then}.",
        node.instance_id
    ))
}

/// Lists the pods that end with the instance, as far as the last check named them.
fn list_holding(progress: &Progress) -> Vec<String> {
    let classes = HOLDING.into_iter().chain([ENDS_WITH_NODE]);
    let texts = classes.filter_map(|class| {
        let (count, names) = (*progress.counts.get(class)?, progress.names.get(class)?);
        let is_all = count as usize <= names.len();
        let more = if is_all { "" } else { ", …" };
        Some(format!("{count} {class} ({}{more})", names.join(", ")))
    });
    texts.collect()
}

async fn move_end(
    installation: &Installation,
    output: &Output,
    node: &NodeStatus,
    until: &str,
) -> Result<Exit> {
    let instance = node.instance_id.as_str();
    let question = json!({
        "ask": "move_drain_end",
        "instance_id": instance,
        "cluster_name": installation.cluster,
        "until": until,
    });
    let mut moved: Value = installation.ask(&question).await?;
    let ends = moved["until"].as_str().unwrap_or(until);
    let end = ends.parse::<Timestamp>().ok();
    let at = end.map_or_else(|| ends.to_owned(), |time| format!("at {}", moment(time)));
    let cut = match moved["asked"].as_str() {
        Some(asked) if asked != ends => ", 30 days after it began, which is the maximum",
        Some(_) | None => "",
    };
    if let Some(end) = end
        && let Some(warning) = warn_of_hook(installation, node, end).await
    {
        output.say(format!("warning: {warning}"))?;
        moved["warning"] = warning.into();
    }
    let unless = if moved["warning"].is_null() {
        ""
    } else {
        ", unless the hook ends before"
    };
    output.say(format!(
        "the drain of {instance} ends {at}{cut}{unless}; its execution applies this at its next check, within 15 minutes, or within two hours if the drain may last for weeks"
    ))?;
    output.document(&moved)?;
    Ok(Exit::Done)
}

/// Warns if a lifecycle hook holds the node and ends before the drain. The last answer in the history of the execution has the hook.
async fn warn_of_hook(installation: &Installation, node: &NodeStatus, end: Timestamp) -> Option<String> {
    let claim = node
        .claim
        .as_ref()
        .filter(|claim| claim.urgency == Urgency::Hook)?;
    let mut history = History::default();
    let read = installation
        .states
        .read_on(claim.fence.execution.as_str(), &mut history);
    // The end is moved, so a history that cannot be read is no error.
    read.await.ok()?;
    judge_hook(&history.answer, end)
}

fn judge_hook(answer: &Value, end: Timestamp) -> Option<String> {
    let hook: HeldByHook = serde_json::from_value(answer["run"]["hook"].clone()).ok()?;
    let warning = hook.warn(end)?;
    Some(format!(
        "{warning}: to keep it, set TerminateHookAbandon to retain in that policy before the hook ends"
    ))
}

/// Returns the end of a drain that lasts longer by this duration. The present end may be any time, because the node can write it.
/// So an end in the past is refused.
fn prolong(node: &NodeStatus, by: Duration, now: Timestamp) -> Result<Timestamp> {
    let end = current_end(node)?;
    let until = later(end, by.as_seconds());
    if until <= now {
        refuse!(
            "--by needs the present end of the drain, but node {} says {end}, which has passed: use --until",
            node.instance_id
        );
    }
    Ok(until)
}

/// Returns the end that an operator has set, else the end in the progress that the execution wrote.
/// Refuses if no drain is running, because the progress of other phases has the end of another wait.
fn current_end(node: &NodeStatus) -> Result<Timestamp> {
    let phase = node.claim.as_ref().map(|claim| claim.phase);
    let planned = node.progress.as_ref().map(|progress| progress.until);
    match node.drain_until.or(planned) {
        Some(end) if matches!(phase, Some(Phase::Draining | Phase::Waiting)) => Ok(end),
        Some(_) | None => refuse!(
            "--by needs a running drain, but {} has none yet: use --until, or wait until the drain begins",
            node.instance_id
        ),
    }
}

fn parse_time(text: &str) -> Result<Timestamp> {
    match text.parse() {
        Ok(time) => Ok(time),
        Err(_) => misuse!("--until must be a time such as 2027-01-31T18:00:00Z, but is {text:?}"),
    }
}

/// Refuses a time that is not in the future, because `finish` is the command that ends a drain now.
fn check_later(until: Timestamp, now: Timestamp) -> Result<Timestamp> {
    if until <= now {
        misuse!(
            "--until must be later than now ({now}), but is {until}: to end the drain now, use finish instead of extend"
        );
    }
    Ok(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_that_already_ends_at_the_end_of_time_is_not_prolonged_beyond_it() {
        for (end, longer) in [
            ("2027-01-02T00:00:00Z", "2027-01-03T00:00:00Z"),
            ("9999-12-30T00:00:00Z", "9999-12-30T22:00:00.999999999Z"),
        ] {
            let node: NodeStatus = serde_json::from_value(json!({
                "instance_id": "i-0123456789abcdef0", "is_marked": true, "drain_until": end,
                "claim": {"schema": 1, "fence": "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one#0", "group": "workers",
                          "phase": "draining", "urgency": "planned", "claimed_at": "2027-01-01T00:00:00Z"},
            }))
            .unwrap();
            let day = Duration::read(&json!(86_400)).unwrap();
            let now = "2027-01-01T00:00:00Z".parse().unwrap();
            assert_eq!(prolong(&node, day, now).unwrap().to_string(), longer);
            let refusal = prolong(&node, day, longer.parse().unwrap())
                .unwrap_err()
                .to_string();
            assert!(refusal.ends_with("which has passed: use --until"), "{refusal}");
        }
    }

    /// `finish` asks, unless the node is certain to be restored.
    /// The progress on the Node does not prove what happens at the end, because the node can write it.
    #[test]
    fn the_warning_names_the_pods_that_end_with_the_drain() {
        let back = "the node is restored";
        let evicted = "awaited pods are evicted, the first at 2027-01-02T00:00:00Z";
        let ended =
            "the hook is no longer kept alive, and its group terminates the instance within 1800 seconds";
        for (urgency, then, warns) in [
            ("planned", back, false),
            ("planned", "", true),
            ("planned", evicted, true),
            ("hook", ended, true),
            ("hook", back, true),
            ("spot", back, true),
            ("hook", "", true),
        ] {
            let node: NodeStatus = serde_json::from_value(json!({
                "instance_id": "i-0123456789abcdef0", "is_marked": true,
                "claim": {"schema": 1, "fence": "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one#0", "group": "workers",
                          "phase": "draining", "urgency": urgency, "claimed_at": "2027-01-01T00:00:00Z"},
                "progress": {"summary": "waits", "since": "2027-01-01T00:00:00Z", "until": "2027-01-02T00:00:00Z", "then": then,
                             "counts": {"awaited": 7, "ignored": 3}, "names": {"awaited": ["jobs/train"]}},
            }))
            .unwrap();
            let warning = warn_of_end(&node);
            assert_eq!(warning.is_some(), warns, "{urgency} {then}");
            let then = match (urgency, then) {
                ("planned", "") => {
                    "its instance may be disposed of with them: no check has said yet what happens at the end"
                }
                (_, "") => "its group terminates the instance",
                (_, then) if then == back => "its group terminates the instance",
                (_, then) => then,
            };
            let expected = format!(
                "i-0123456789abcdef0 is held by 7 awaited (jobs/train, …); if its drain ends now, {then}."
            );
            assert!(warning.is_none_or(|warning| warning == expected));
        }
    }

    #[test]
    fn finish_asks_also_before_the_first_check() {
        for urgency in ["planned", "hook", "spot"] {
            let node: NodeStatus = serde_json::from_value(json!({
                "instance_id": "i-0123456789abcdef0", "is_marked": true,
                "claim": {"schema": 1, "fence": "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one#0", "group": "workers",
                          "phase": "claimed", "urgency": urgency, "claimed_at": "2027-01-01T00:00:00Z"},
            }))
            .unwrap();
            let warning = warn_of_end(&node).unwrap();
            assert!(
                warning.contains("pods that have not been checked yet"),
                "{warning}"
            );
        }
    }

    #[test]
    fn an_end_after_that_of_the_hook_is_warned_of_unless_the_group_retains_the_instance() {
        let hook = |more: &Value| {
            let mut hook =
                json!({"name": "recycle-eks", "heartbeat_timeout": 3_600, "ends_at": "2027-01-03T00:00:00Z"});
            hook.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"run": {"hook": hook}})
        };
        let end = "2027-01-11T00:00:00Z";
        for (answer, end, warns) in [
            (hook(&json!({})), end, true),
            (hook(&json!({"retain": true})), end, false),
            (hook(&json!({})), "2027-01-03T00:30:00Z", false),
            (hook(&json!({"ends_at": null})), end, false),
            (json!({"run": {}}), end, false),
            (Value::Null, end, false),
        ] {
            let warning = judge_hook(&answer, end.parse().unwrap());
            assert_eq!(warning.is_some(), warns, "{answer} {end}");
            if let Some(text) = warning {
                assert!(
                    text.starts_with("the hook ends at 2027-01-03T00:00:00Z even if it is kept alive"),
                    "{text}"
                );
                assert!(
                    text.ends_with("set TerminateHookAbandon to retain in that policy before the hook ends"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_past_end_is_refused() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2027-01-01T00:00:00Z");
        assert!(check_later(at("2027-01-01T00:00:01Z"), now).is_ok());
        let refusal = check_later(now, now).unwrap_err().to_string();
        assert!(refusal.starts_with("--until must be later than now"), "{refusal}");
    }

    #[test]
    fn times_have_the_format_of_rfc_3339() {
        assert!(parse_time("2027-01-31T18:00:00Z").is_ok());
        let refusal = parse_time("tomorrow").unwrap_err().to_string();
        assert!(
            refusal.contains("--until must be a time") && refusal.contains("\"tomorrow\""),
            "{refusal}"
        );
    }

    #[test]
    fn by_needs_the_end_of_a_running_drain() {
        let until = "2027-01-03T00:00:00Z";
        let moved = "2027-01-09T00:00:00Z";
        let progress = json!({"summary": "waits", "since": "2027-01-01T00:00:00Z", "until": until});
        for (phase, annotation, end) in [
            ("admitted", None, None),
            ("standby", None, None),
            ("admitted", Some(moved), None),
            ("draining", None, Some(until)),
            ("waiting", Some(moved), Some(moved)),
            ("disposing", None, None),
        ] {
            let claim = json!({"schema": 1, "fence": "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one#0",
                "group": "workers", "phase": phase, "urgency": "planned", "claimed_at": "2027-01-01T00:00:00Z"});
            let node = json!({"instance_id": "i-0123456789abcdef0", "is_marked": true, "claim": claim, "progress": progress,
                "drain_until": annotation});
            let node: NodeStatus = serde_json::from_value(node).unwrap();
            let found = current_end(&node).ok().map(|end| end.to_string());
            assert_eq!(found.as_deref(), end, "{phase} {annotation:?}");
        }
    }
}
