//! The view of one execution of `recycle-node`: the boxes of the state machine, the pods, the time of the drain, and the last reason.

use std::ops::Range;

use jiff::Timestamp;
use recycle::drain::holding::{BLOCKED, ENDS_WITH_NODE};
use recycle::report::event::BOXES;
use serde_json::{Value, json};

use crate::base::times::{clock_face, moment, shortly};
use crate::history::end::exit_of;
use crate::history::node::{Drain, GONE, History};
use crate::views::viewer::{Frame, Line, Style, shorten, time_bar};

const BAR: usize = 30;
/// Columns beside the name of a pod: the blanks, and the longest word for a class.
const LEAST_WORD: usize = 22;

pub(crate) fn frame(arn: &str, history: &History, now: Timestamp, width: u16) -> Frame {
    let (picture, rows) = draw(history, now, width);
    Frame {
        clock: clock_face(history.elapsed(now)),
        picture,
        rows,
        facts: list_facts(history),
        document: document(arn, history),
    }
}

/// Draws the picture. Also returns which of its lines are rows of pods.
fn draw(history: &History, now: Timestamp, width: u16) -> (Vec<Line>, Range<usize>) {
    let mut lines = draw_head(history, now, width);
    let first = lines.len();
    let (columns, pods) = (usize::from(width), list_pods(history));
    let longest = pods.iter().map(|(pod, _)| pod.chars().count()).max().unwrap_or(0);
    let room = longest.min(columns.saturating_sub(LEAST_WORD));
    lines.extend(pods.into_iter().map(|(pod, word)| {
        vec![
            (Style::Plain, format!("  {:<room$}  ", shorten(pod, room))),
            (style_of(word), word.to_owned()),
        ]
    }));
    let rows = first..lines.len();
    // The end is printed below the picture, where a terminal breaks no line.
    if history.end.is_none() {
        lines.push(vec![(Style::Plain, history.reason().to_owned())]);
    }
    (lines, rows)
}

/// Lists the pods, those that hold the node first and those that are gone last.
fn list_pods(history: &History) -> Vec<(&str, &'static str)> {
    let mut pods: Vec<(&str, &str)> = history
        .pods
        .iter()
        .map(|(pod, word)| (pod.as_str(), *word))
        .collect();
    pods.sort_by_key(|(_, word)| match style_of(word) {
        Style::Bad => 0,
        Style::Waits => 1,
        Style::Busy | Style::Plain | Style::Bold | Style::Good => 2,
        Style::Dim if *word == GONE => 4,
        Style::Dim => 3,
    });
    pods
}

/// Draws the lines above the pods: the node, the boxes and the time of the drain.
pub(crate) fn draw_head(history: &History, now: Timestamp, width: u16) -> Vec<Line> {
    let title = match &history.node {
        Some(node) => format!("{node} ({})", history.instance()),
        None => history.instance().to_owned(),
    };
    let columns = usize::from(width);
    let group = format!("   group {}", history.group.as_deref().unwrap_or("?"));
    let clock = format!("   {}", clock_face(history.elapsed(now)));
    let room = columns.saturating_sub(clock.chars().count());
    let group = shorten(&group, room / 2);
    let title = shorten(&title, room.saturating_sub(group.chars().count()));
    let mut boxes = draw_boxes(history, true);
    if length(&boxes) > columns {
        boxes = draw_boxes(history, false);
    }
    let mut lines = vec![
        vec![(Style::Bold, title), (Style::Dim, group), (Style::Dim, clock)],
        boxes,
    ];
    if let Some(drain) = history.drain {
        lines.push(draw_drain(drain, history, now, columns));
    }
    lines
}

fn length(line: &Line) -> usize {
    line.iter().map(|(_, text)| text.chars().count()).sum()
}

/// Draws the boxes. In a narrow terminal only the current one has its name.
fn draw_boxes(history: &History, all_have_names: bool) -> Line {
    let current = current_box(history);
    let mut line = Line::new();
    for (name, ..) in BOXES {
        let times = history.entered.get(name).copied().unwrap_or(0);
        if name == "RestoreNode" && times == 0 {
            continue;
        }
        let is_current = name == current && history.end.is_none();
        let (style, mark) = match (is_current, times) {
            (true, _) => (Style::Busy, "●"),
            (false, 0) => (Style::Dim, "○"),
            (false, _) => (Style::Good, "✔"),
        };
        if !line.is_empty() {
            line.push((Style::Dim, " ─ ".to_owned()));
        }
        let again = (is_current && times > 1).then(|| format!(" ×{times}"));
        let text = match all_have_names || is_current {
            true => format!("{mark} {name}{}", again.unwrap_or_default()),
            false => mark.to_owned(),
        };
        line.push((style, text));
    }
    line
}

fn draw_drain(drain: Drain, history: &History, now: Timestamp, columns: usize) -> Line {
    let at = match history.end {
        Some(_) => history.at.unwrap_or(now),
        None => now.max(drain.since),
    };
    let taken = shortly(at.duration_since(drain.since));
    let whole = shortly(drain.until.duration_since(drain.since));
    let (title, text) = (
        "drain ",
        format!(" {taken} of {whole}, until {}", moment(drain.until)),
    );
    let room = columns.saturating_sub(title.len() + text.chars().count());
    vec![
        (Style::Plain, title.to_owned()),
        (
            Style::Busy,
            time_bar(drain.since, drain.until, at, room.clamp(6, BAR)),
        ),
        (Style::Dim, text),
    ]
}

/// The colour of the word for a pod's class.
pub(crate) fn style_of(word: &str) -> Style {
    match word {
        BLOCKED | "stuck" | "zone_mismatch" | "unreadable" => Style::Bad,
        "awaited" => Style::Waits,
        GONE | ENDS_WITH_NODE | "leaves_last" => Style::Dim,
        _ => Style::Busy,
    }
}

fn list_facts(history: &History) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    if let Some(node) = &history.node {
        let group = history.group.as_deref().unwrap_or("?");
        let text = format!("{node} ({}) of group {group}", history.instance());
        facts.push(("node".to_owned(), text));
    }
    for (pod, word) in &history.pods {
        facts.push((format!("pod {pod}"), (*word).to_owned()));
    }
    if let Some(drain) = history.drain {
        let text = format!("until {} at the latest", moment(drain.until));
        facts.push(("drain".to_owned(), text));
    }
    if history.end.is_none() {
        facts.push((current_box(history).to_owned(), history.reason().to_owned()));
    }
    facts
}

fn document(arn: &str, history: &History) -> Value {
    let mut document = json!({
        "execution_arn": arn,
        "instance_id": history.instance(),
        "node": history.node,
        "group": history.group,
        "started": history.started,
        "step": current_box(history),
        "reason": history.reason(),
        "pods": history.pods,
    });
    if let Some(drain) = history.drain {
        document["drain"] = json!({"since": drain.since, "until": drain.until});
    }
    if let Some(end) = &history.end {
        document["status"] = end.status.clone().into();
        document["outcome"] = end.outcome().into();
        document["reason"] = end.reason().into();
        document["output"] = end.output.clone();
        document["exit"] = exit_of(end).code().into();
    }
    document
}

fn current_box(history: &History) -> &'static str {
    history.place.unwrap_or(BOXES[0].0)
}

#[cfg(test)]
mod tests {
    use recycle::base::failure::Failure;
    use recycle::report::event::{End, Event, EventKind};

    use super::*;
    use crate::base::exit::Exit;
    use crate::history::cursor::View as _;
    use crate::history::end::describe_end;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_798_761_600 + seconds).unwrap()
    }

    /// A history in the middle of a drain: after one of two hours, and with two checks of the pods.
    fn draining() -> History {
        let input = json!({"drain_timeout": 7_200});
        let run =
            json!({"node": "ip-1", "group": "workers", "draining_since": at(0).to_string(), "input": input});
        let answer = json!({"reason": "waits for 1 pod", "counts": {"awaited": 1}, "names": {"awaited": ["jobs/train"]}, "run": run});
        let started = EventKind::Started(json!({"instance_id": "i-1"}));
        let entered = |state: &str| EventKind::Entered(state.to_owned());
        let mut history = History::default();
        let whats = [
            started,
            entered("ClaimNode"),
            entered("CheckPods"),
            EventKind::Answered(answer),
            entered("EvictPods"),
            entered("WaitForPods"),
            entered("CheckPods"),
            entered("RecordHeartbeat"),
        ];
        for (id, what) in (1..).zip(whats) {
            history.read(Event {
                id,
                previous: id - 1,
                at: at(0),
                what,
            });
        }
        history
    }

    fn text(line: &Line) -> String {
        line.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn the_picture_of_a_drain_has_boxes_pods_and_time() {
        let picture: Vec<String> = frame("arn", &draining(), at(3_600), 80)
            .picture
            .iter()
            .map(text)
            .collect();
        assert_eq!(
            picture,
            [
                "ip-1 (i-1)   group workers   1:00:00",
                "✔ ClaimNode ─ ○ StandbyNode ─ ○ TaintNode ─ ● CheckPods ×2 ─ ○ DetachTerminate",
                "drain ███████████████░░░░░░░░░░░░░░░ 1h of 2h, until 2027-01-01 02:00Z",
                "  jobs/train  awaited",
                "waits for 1 pod",
            ]
        );
    }

    #[test]
    fn each_line_names_its_subject() {
        let facts = frame("arn", &draining(), at(3_600), 80).facts;
        let subjects: Vec<&str> = facts.iter().map(|(subject, _)| subject.as_str()).collect();
        assert_eq!(subjects, ["node", "pod jobs/train", "drain", "CheckPods"]);
    }

    fn end(status: &str, outcome: &str) -> End {
        End {
            status: status.to_owned(),
            output: if status == "SUCCEEDED" {
                json!({"outcome": outcome})
            } else {
                Value::Null
            },
            error: if status == "FAILED" {
                outcome.to_owned()
            } else {
                String::new()
            },
            cause: String::new(),
        }
    }

    #[test]
    fn every_end_has_its_exit_code() {
        for (status, outcome, exit) in [
            ("SUCCEEDED", "recycled", Exit::Done),
            ("SUCCEEDED", "already_gone", Exit::Done),
            ("SUCCEEDED", "planned", Exit::Done),
            ("SUCCEEDED", "rotated", Exit::Done),
            ("SUCCEEDED", "duplicate", Exit::Others),
            ("SUCCEEDED", "superseded", Exit::Others),
            ("ABORTED", "", Exit::Restored),
            ("TIMED_OUT", "", Exit::TimedOut),
            ("FAILED", "RotationFailed", Exit::Restored),
        ] {
            assert_eq!(exit_of(&end(status, outcome)), exit, "{status} {outcome}");
        }
    }

    #[test]
    fn every_failure_has_its_exit_code() {
        for failure in Failure::ALL.into_iter().filter(|failure| failure.ends_failed()) {
            let exit = match failure {
                Failure::InvalidInput => Exit::Usage,
                Failure::PreflightRefused => Exit::Refused,
                Failure::QueueTimedOut | Failure::ReplacementTimedOut | Failure::DrainTimedOut => {
                    Exit::TimedOut
                }
                Failure::NodeLost | Failure::LeftInStandby => Exit::NeedsOperator,
                Failure::ClaimLost | Failure::Superseded => Exit::Others,
                Failure::ServiceUnavailable | Failure::ServiceRefused | Failure::InternalError => {
                    Exit::Restored
                }
            };
            assert_eq!(
                exit_of(&end("FAILED", failure.name())),
                exit,
                "{}",
                failure.name()
            );
        }
    }

    #[test]
    fn a_json_cause_is_shown_as_a_sentence() {
        for (cause, text) in [
            ("no pods", "InvalidInput: no pods"),
            (
                r#"{"errorMessage":"at_once must be at most 2","errorType":"InvalidInput"}"#,
                "InvalidInput: at_once must be at most 2",
            ),
            (r#"{"a":1"#, "InvalidInput: see recycle-eks report"),
            ("", "InvalidInput"),
        ] {
            let end = End {
                status: "FAILED".to_owned(),
                error: "InvalidInput".to_owned(),
                cause: cause.to_owned(),
                ..End::default()
            };
            assert_eq!(describe_end(&end), text);
        }
    }
}
