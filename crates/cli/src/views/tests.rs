//! Draws each screen at three sizes and compares it with its picture in the folder `screens`. A letter for the style of each text stands
//! before its line: plain, dim, bold, green, yellow, blue or red. `RECYCLE_EKS_DRAW_SCREENS=1 cargo test` draws the pictures again.

use std::path::Path;

use jiff::Timestamp;
use recycle::report::event::{End, Event, EventKind};
use serde_json::{Value, json};

use crate::commands::dry_run::{PlannedNode, draw_classes, draw_nodes, draw_pods};
use crate::commands::history::draw_sample;
use crate::history::cursor::View as _;
use crate::history::node::History;
use crate::views::fleet::{Heading, frame};
use crate::views::row::{Row, sort_rows};
use crate::views::viewer::{Frame, Line, Style, fit_picture};

const SIZES: [(u16, u16); 3] = [(60, 20), (80, 24), (200, 60)];
const DRAW_AGAIN: &str = "RECYCLE_EKS_DRAW_SCREENS";

type Screen = fn(u16) -> Frame;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_798_761_600 + seconds).unwrap()
}

fn row(number: u32, step: &str, style: Style, what: &str) -> Row {
    let drains = matches!(step, "draining" | "waiting");
    Row {
        group: if number.is_multiple_of(3) {
            "workers"
        } else {
            "production-batch-spot-large"
        }
        .to_owned(),
        instance: format!("i-{number:017x}"),
        node: format!("ip-172-31-10-{number}.eu-west-1.compute.internal"),
        step: step.to_owned(),
        since: (step != "done").then(|| at(i64::from(number) * 60)),
        until: drains.then(|| at(172_800)),
        end: drains.then_some("restore"),
        what: what.to_owned(),
        style,
        ..Row::default()
    }
}

/// A rotation with nodes in every step, of which not all fit on the smaller screens.
fn fleet(width: u16) -> Frame {
    let steps = [
        (
            "draining",
            Style::Bad,
            "pods: 2 blocked by budget shop/web, 1 awaited",
        ),
        ("waiting", Style::Waits, "pods: 1 awaited"),
        (
            "replacing",
            Style::Busy,
            "waits for the replacement i-0123456789abcdef0",
        ),
        (
            "queued",
            Style::Dim,
            "node ip-172-31-10-1.eu-west-1.compute.internal is being recycled",
        ),
        (
            "failed",
            Style::Bad,
            "DrainTimedOut: it waits for 1 pod (jobs/train-2fz8x)",
        ),
        ("done", Style::Good, "recycled"),
    ];
    let rows = (1..=24_u32).zip(steps.into_iter().cycle());
    let mut rows: Vec<Row> = rows
        .map(|(number, (step, style, what))| row(number, step, style, what))
        .collect();
    sort_rows(&mut rows);
    let state = |waits: &str| format!("4 of 12 done, 2 failed, 4 under way{waits}");
    let heading = Heading {
        execution: "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:recycle-eks-1795361458684454786-28476".to_owned(),
        started: Some(at(0)),
        state: "24 nodes to recycle, in 2 of 2 groups".to_owned(),
        progress: Some("8 of 24 done, 4 failed, 8 under way".to_owned()),
        groups: vec![
            ("production-batch-spot-large".to_owned(), 0.5, state("; 2 nodes wait since 2027-01-01 00:40Z: pods are Pending")),
            ("workers".to_owned(), 0.5, state("")),
        ],
        document: Value::Null,
    };
    frame(&[heading], &rows, String::new(), at(3_600), width)
}

/// A drain with more pods than fit on the smallest screen.
fn node(width: u16) -> Frame {
    let pods = |from: u32, to: u32, name: &str| -> Vec<String> {
        (from..to)
            .map(|number| format!("data-platform-production/{name}-6bb9c8cdcf-x{number:04}"))
            .collect()
    };
    let names = json!({"awaited": pods(0, 5, "nightly-training-of-the-recommendations"), "evictable": pods(5, 10, "web"),
        "leaves_last": pods(10, 13, "log-shipper"), "stuck": pods(13, 15, "volume"), "terminating": pods(15, 18, "api")});
    let counts = json!({"awaited": 5, "evictable": 5, "leaves_last": 3, "stuck": 2, "terminating": 3});
    let run = json!({"node": "ip-172-31-10-4.eu-west-1.compute.internal", "group": "production-batch-spot-large",
        "draining_since": at(300).to_string(), "input": {"drain_timeout": 172_800}});
    let checked = json!({"reason": "it waits for 5 pods", "counts": counts, "names": names, "run": run});
    let refused = json!({"reason": "it waits for 5 pods, and 2 are blocked", "names": {"blocked": pods(5, 7, "web")}, "run": run});
    let entered = |state: &str| EventKind::Entered(state.to_owned());
    let events = [
        EventKind::Started(json!({"instance_id": "i-0123456789abcdef0"})),
        entered("ClaimNode"),
        entered("StandbyNode"),
        entered("TaintNode"),
        entered("CheckPods"),
        EventKind::Answered(checked),
        entered("EvictPods"),
        EventKind::Answered(refused),
        entered("CheckPods"),
    ];
    let mut history = History::default();
    for (id, what) in (1..).zip(events) {
        history.read(Event {
            id,
            previous: id - 1,
            at: at(0),
            what,
        });
    }
    crate::views::node::frame("arn", &history, at(7_200), width)
}

/// The table of one node's plan.
fn plan_node(width: u16) -> Frame {
    let pods = |name: &str, count: u32| -> Vec<String> {
        (0..count)
            .map(|number| format!("data-platform-production/{name}-6bb9c8cdcf-x{number:04}"))
            .collect()
    };
    let planned = json!([
        {"class": "awaited", "reason": "label_selector matches it", "count": 2, "pods": pods("nightly-training-of-the-recommendations", 2)},
        {"class": "evictable", "reason": "its controller starts it elsewhere", "count": 12, "pods": pods("web", 5)},
        {"class": "ignored", "reason": "it belongs to a DaemonSet", "count": 1, "pods": pods("log-shipper", 1)},
    ]);
    let mut lines = draw_classes(&planned, Some(width));
    lines.push(String::new());
    lines.extend(draw_pods(&planned, Some(width)));
    lines_of(lines)
}

/// The table of a selection's plan, with a node that is refused.
fn plan_selection(width: u16) -> Frame {
    let node = |number: u32, group: &str| {
        let plan = json!({"node": format!("ip-172-31-10-{number}.eu-west-1.compute.internal"),
            "pods": [{"class": "awaited", "count": 1}, {"class": "evictable", "count": 12}],
            "blocked": ["budget data-platform-production/web allows no eviction now of 2 pods"],
            "longest_wait": {"seconds": 172_800, "pods": 1, "limit": "drain_timeout"}});
        PlannedNode {
            instance: format!("i-{number:017x}"),
            group: group.to_owned(),
            criteria: vec!["launch_template".to_owned(), "ami".to_owned()],
            execution: "arn".to_owned(),
            end: End {
                status: "SUCCEEDED".to_owned(),
                output: json!({"outcome": "planned", "plan": plan}),
                ..End::default()
            },
        }
    };
    let mut nodes = vec![
        node(4, "production-batch-spot-large"),
        node(15, "workers"),
        node(160, "workers"),
    ];
    nodes[2].end = End {
        status: "FAILED".to_owned(),
        error: "PreflightRefused".to_owned(),
        cause: "the instance is protected from scale-in (scale_in_protection)".to_owned(),
        ..End::default()
    };
    lines_of(draw_nodes(&nodes, Some(width)))
}

/// The list of past executions.
fn history(width: u16) -> Frame {
    lines_of(draw_sample(at(0), Some(width)))
}

/// Returns a picture of plain lines, which commands print once.
fn lines_of(lines: Vec<String>) -> Frame {
    Frame {
        picture: lines.into_iter().map(|text| vec![(Style::Plain, text)]).collect(),
        ..Frame::default()
    }
}

fn letter(style: Style) -> char {
    match style {
        Style::Plain => 'p',
        Style::Dim => 'd',
        Style::Bold => 'b',
        Style::Good => 'g',
        Style::Busy => 'y',
        Style::Waits => 'w',
        Style::Bad => 'r',
    }
}

fn write_line(line: &Line) -> String {
    let styles: String = line.iter().map(|(style, _)| letter(*style)).collect();
    let text: String = line.iter().map(|(_, text)| text.as_str()).collect();
    format!("{styles:<10.10} │{text}").trim_end().to_owned()
}

#[test]
fn each_screen_is_right_at_each_size() {
    let screens: [(&str, Screen); 5] = [
        ("fleet", fleet),
        ("node", node),
        ("plan-node", plan_node),
        ("plan-selection", plan_selection),
        ("history", history),
    ];
    for (name, screen) in screens {
        for (columns, rows) in SIZES {
            let lines = fit_picture(&screen(columns), usize::from(columns), usize::from(rows - 1));
            assert!(lines.len() < usize::from(rows), "{name} {columns}×{rows}");
            for line in &lines {
                let width: usize = line.iter().map(|(_, text)| text.chars().count()).sum();
                assert!(
                    width <= usize::from(columns),
                    "{name} {columns}×{rows}: {}",
                    write_line(line)
                );
            }
            let drawn: String = lines.iter().map(|line| write_line(line) + "\n").collect();
            let file = format!("src/views/screens/{name}-{columns}x{rows}.txt");
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            if std::env::var_os(DRAW_AGAIN).is_some() {
                std::fs::write(&path, &drawn).unwrap();
            }
            let expected = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(
                drawn,
                expected,
                "{}: {DRAW_AGAIN}=1 cargo test draws it again",
                path.display()
            );
        }
    }
}
