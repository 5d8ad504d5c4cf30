//! The table of several nodes. The row of a node shows its step, since when, the latest end and what happens then, what it waits for, and
//! what blocks its drain.

use jiff::Timestamp;
use recycle::drain::progress::name_end;
use recycle::notify::status::NodeStatus;
use recycle::records::claim::Phase;
use serde::Serialize;
use serde_json::{Value, json};

use crate::base::times::{moment, shortly};
use crate::history::rotation::RotationHistory;
use crate::views::output::{LEAST_LAST, draw_table, width_of_others};
use crate::views::viewer::{Frame, Line, Style, bar, time_bar};

/// The step of a node that carries no mark of recycle-eks.
const QUIET: &str = "-";
const BAR: usize = 12;
const HEAD: [&str; 8] = ["group", "node", "step", "since", "", "until", "then", "what"];
const NODE: usize = 1;
const SINCE: usize = 3;
const TIME_BAR: usize = 4;
const UNTIL: usize = 5;
const THEN: usize = 6;
/// The layouts of the table. Each says whether node names are written without their domain, and which columns are left out.
/// The table takes the first layout for which the terminal is wide enough, else the last one.
const LAYOUTS: [(bool, &[usize]); 7] = [
    (false, &[]),
    (false, &[THEN]),
    (true, &[]),
    (true, &[THEN]),
    (true, &[THEN, UNTIL]),
    (true, &[THEN, UNTIL, SINCE]),
    (true, &[THEN, UNTIL, SINCE, TIME_BAR]),
];

/// The row of a node in the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The name of the group, or a dash if the group is unknown.
    pub group: String,
    #[serde(rename = "instance_id")]
    pub instance: String,
    /// The name of the Node, or the instance id if the name is unknown.
    pub node: String,
    pub step: String,
    pub since: Option<Timestamp>,
    /// The time at which the current wait ends at the latest.
    pub until: Option<Timestamp>,
    /// The consequence of the end of the drain, as the execution has written it on the Node. None if the node does not drain.
    pub then: Option<String>,
    /// Texts about what the node waits for, what blocks its drain, or how its execution ended.
    pub what: String,
    /// The execution that claims the node, or that a rotation has begun for it.
    #[serde(rename = "execution_arn")]
    pub execution: Option<String>,
    #[serde(skip)]
    pub style: Style,
}

impl Row {
    /// Whether the node carries no mark of recycle-eks.
    pub(crate) fn is_quiet(&self) -> bool {
        self.step == QUIET
    }
}

/// Returns the row of a node. `runs` says whether the execution that claims the node still runs.
pub(crate) fn row_of(node: &NodeStatus, runs: impl Fn(&str) -> bool) -> Row {
    let execution = node.claim.as_ref().map(|claim| claim.fence.execution.to_string());
    let is_alive = execution.as_deref().is_some_and(runs);
    let (step, style) = judge(node, is_alive);
    let progress = node.progress.as_ref();
    let then = progress.map(|progress| progress.then.clone());
    let phase = node.claim.as_ref().map(|claim| claim.phase);
    let name = node.node.as_ref().map(ToString::to_string);
    let drains = is_alive && matches!(phase, Some(Phase::Draining | Phase::Waiting));
    Row {
        group: node.group.clone().unwrap_or_else(|| "-".to_owned()),
        instance: node.instance_id.to_string(),
        node: name.unwrap_or_else(|| node.instance_id.to_string()),
        step: step.to_owned(),
        since: progress
            .map(|progress| progress.since)
            .or(node.claim.as_ref().map(|claim| claim.claimed_at))
            .or(node.gave_up_at),
        until: progress.map(|progress| progress.until).filter(|_| is_alive),
        then: then.filter(|then| drains && !then.is_empty()),
        what: describe_node(node, is_alive),
        execution,
        style,
    }
}

fn judge(node: &NodeStatus, is_alive: bool) -> (&'static str, Style) {
    match (&node.claim, is_alive) {
        _ if node.gave_up_at.is_some() => ("manual", Style::Bad),
        (Some(claim), true) => (step_of(claim.phase), Style::Busy),
        (Some(_), false) => ("to restore", Style::Bad),
        (None, _) if node.strange_claim.is_some() => ("claimed", Style::Bad),
        (None, _) if node.is_requested => ("requested", Style::Plain),
        (None, _) if node.is_marked => ("to restore", Style::Bad),
        (None, _) => (QUIET, Style::Dim),
    }
}

fn step_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Claimed | Phase::Admitted => "queued",
        Phase::Standby => "replacing",
        Phase::Draining => "draining",
        Phase::Waiting => "waiting",
        Phase::Disposing => "disposing",
    }
}

fn describe_node(node: &NodeStatus, is_alive: bool) -> String {
    let mut parts = Vec::new();
    if let Some(strange) = &node.strange_claim {
        parts.push(format!("the claim is {strange}"));
    }
    if let Some(progress) = &node.progress {
        parts.push(progress.summary.clone());
        let blocked = progress.blocked.iter();
        parts.extend(blocked.map(|blocker| format!("blocked: {}", blocker.describe())));
        parts.extend(progress.held.iter().cloned());
        parts.extend(progress.disruptions.iter().cloned());
    }
    if node.claim.is_some() && !is_alive {
        parts.push("its execution no longer runs: the sweep restores the node".to_owned());
    }
    if node.is_requested && node.claim.is_none() {
        parts.push(
            "requested by the taint recycle-eks/request: the next sweep starts its execution".to_owned(),
        );
    }
    if node.gave_up_at.is_some() {
        parts.push(
            "it cannot be restored automatically: run the manual commands of the notification".to_owned(),
        );
    }
    parts.join("; ")
}

/// The heading of a rotation above the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heading {
    pub execution: String,
    pub started: Option<Timestamp>,
    pub state: String,
    pub progress: Option<String>,
    /// The groups that have not ended: the name, the share of nodes whose iterations have ended (from 0 to 1), and a sentence.
    pub groups: Vec<(String, f64, String)>,
    pub document: Value,
}

impl Heading {
    pub(crate) fn of(rotation: &RotationHistory) -> Self {
        let (state, progress) = (rotation.describe(), rotation.describe_progress());
        let mut document = rotation.document();
        document["state"] = state.as_str().into();
        Self {
            execution: rotation.arn.clone(),
            started: rotation.history.started,
            state,
            progress,
            groups: rotation.list_groups(),
            document,
        }
    }
}

/// Sorts the rows: nodes under way, then nodes where something went wrong, then requested nodes, and last the others.
pub(crate) fn sort_rows(rows: &mut [Row]) {
    rows.sort_by_key(|row| match row.style {
        Style::Busy => 0,
        Style::Bad => 1,
        Style::Plain | Style::Bold => 2,
        Style::Good | Style::Dim => 3,
    });
}

pub(crate) fn frame(headings: &[Heading], rows: &[Row], clock: String, now: Timestamp, width: u16) -> Frame {
    let drawn = headings.iter().flat_map(|heading| draw_heading(heading, now));
    let mut picture: Vec<Line> = drawn.collect();
    picture.extend(draw_rows(rows, now, width));
    let of_rotations = headings.iter().flat_map(list_facts);
    let of_rows = rows.iter().map(|row| (row.node.clone(), print_row(row)));
    Frame {
        clock,
        picture,
        facts: of_rotations.chain(of_rows).collect(),
        document: document(headings, rows),
    }
}

fn list_facts(heading: &Heading) -> Vec<(String, String)> {
    let name = name_of(&heading.execution);
    let mut facts = vec![(name.to_owned(), heading.state.clone())];
    if let Some(progress) = &heading.progress {
        facts.push((format!("{name} nodes"), progress.clone()));
    }
    let groups = heading.groups.iter();
    facts.extend(groups.map(|(group, _, state)| (format!("group {group}"), state.clone())));
    facts
}

fn draw_heading(heading: &Heading, now: Timestamp) -> Vec<Line> {
    let plain = |text: &str| vec![(Style::Plain, text.to_owned())];
    let taken = heading.started.map(|started| now.duration_since(started));
    let taken = taken.map(|taken| format!("   {}", shortly(taken)));
    let title = format!("rotation {}", name_of(&heading.execution));
    let mut lines = vec![
        vec![(Style::Bold, title), (Style::Dim, taken.unwrap_or_default())],
        plain(&heading.state),
    ];
    lines.extend(heading.progress.as_deref().map(plain));
    let widths = heading.groups.iter().map(|(name, ..)| name.chars().count());
    let width = widths.max().unwrap_or(0);
    lines.extend(heading.groups.iter().map(|(name, share, state)| {
        let bar = bar(*share, BAR);
        plain(&format!("  {name:<width$}  {bar}  {state}"))
    }));
    lines
}

fn name_of(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

fn draw_rows(rows: &[Row], now: Timestamp, width: u16) -> Vec<Line> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut styles = rows.iter().map(|row| row.style);
    let lines = table(rows, now, width);
    let lines = lines.lines().enumerate().map(|(number, text)| {
        // The further lines of a wrapped row begin with an empty first cell.
        let is_new = number > 0 && !text.starts_with(' ');
        let style = if is_new { styles.next() } else { Some(Style::Dim) };
        vec![(style.unwrap_or(Style::Plain), text.to_owned())]
    });
    lines.collect()
}

fn cells(row: &Row, now: Timestamp) -> [String; 8] {
    let taken = row.since.map(|since| shortly(now.duration_since(since)));
    let time = row.since.zip(row.until);
    let drawn = time.map(|(since, until)| time_bar(since, until, now, BAR));
    [
        row.group.clone(),
        row.node.clone(),
        row.step.clone(),
        taken.unwrap_or_default(),
        drawn.unwrap_or_default(),
        row.until.map(moment).unwrap_or_default(),
        row.then.as_deref().map_or("", name_end).to_owned(),
        row.what.clone(),
    ]
}

/// Draws the table for a terminal with `width` columns.
pub(crate) fn table(rows: &[Row], now: Timestamp, width: u16) -> String {
    let rows: Vec<[String; 8]> = rows.iter().map(|row| cells(row, now)).collect();
    let layouts = LAYOUTS.map(|(is_short, left_out)| lay_out(&rows, is_short, left_out));
    let has_room = |(head, rows): &&Layout| width_of_others(head, rows) + LEAST_LAST <= usize::from(width);
    let chosen = layouts.iter().find(has_room).or(layouts.last());
    chosen.map_or_else(String::new, |(head, rows)| draw_table(head, rows.clone(), width))
}

/// The head of a table and its rows.
type Layout = (Vec<&'static str>, Vec<Vec<String>>);

/// Returns the head and the rows without the columns that are left out.
fn lay_out(rows: &[[String; 8]], is_short: bool, left_out: &[usize]) -> Layout {
    let kept = (0..HEAD.len()).filter(|index| !left_out.contains(index));
    let cell = |row: &[String; 8], index: usize| match row[index].split_once('.') {
        Some((name, _)) if is_short && index == NODE => name.to_owned(),
        Some(_) | None => row[index].clone(),
    };
    let rows = rows.iter();
    let rows = rows.map(|row| kept.clone().map(|index| cell(row, index)).collect());
    (kept.clone().map(|index| HEAD[index]).collect(), rows.collect())
}

fn print_row(row: &Row) -> String {
    match row.what.as_str() {
        "" => row.step.clone(),
        what => format!("{}: {what}", row.step),
    }
}

fn document(headings: &[Heading], rows: &[Row]) -> Value {
    let rotations: Vec<Value> = headings.iter().map(|heading| heading.document.clone()).collect();
    json!({"rotations": rotations, "nodes": rows})
}

#[cfg(test)]
mod tests {
    use recycle::notify::status::Status;

    use super::*;

    const ARN: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:one";

    fn status(more: Value) -> NodeStatus {
        let mut node = json!({"instance_id": "i-0123456789abcdef0", "node": "ip-1", "is_marked": true});
        node.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let status: Status = serde_json::from_value(json!({"nodes": [node]})).unwrap();
        status.nodes.into_iter().next().unwrap()
    }

    fn claim(phase: &str) -> Value {
        json!({"schema": 1, "fence": format!("{ARN}#0"), "group": "workers", "phase": phase, "urgency": "planned",
            "claimed_at": "2027-01-01T00:00:00Z"})
    }

    #[test]
    fn a_row_shows_the_step_of_a_node_and_what_it_waits_for() {
        let progress = json!({"summary": "waits for 1 pod", "since": "2027-01-01T00:10:00Z", "until": "2027-01-03T00:10:00Z"});
        for (name, node, runs, step, words) in [
            (
                "draining",
                json!({"claim": claim("draining"), "progress": progress}),
                true,
                "draining",
                "waits for 1 pod",
            ),
            ("queued", json!({"claim": claim("admitted")}), true, "queued", ""),
            (
                "dead",
                json!({"claim": claim("standby")}),
                false,
                "to restore",
                "no longer runs",
            ),
            (
                "asked",
                json!({"is_requested": true}),
                false,
                "requested",
                "recycle-eks/request",
            ),
            (
                "given up",
                json!({"gave_up_at": "2027-01-01T00:00:00Z"}),
                false,
                "manual",
                "manual commands",
            ),
            (
                "strange",
                json!({"strange_claim": "unreadable: x"}),
                false,
                "claimed",
                "unreadable: x",
            ),
            ("marked", json!({}), false, "to restore", ""),
            ("nothing", json!({"is_marked": false}), false, "-", ""),
        ] {
            let row = row_of(&status(node), |_| runs);
            assert_eq!(row.step, step, "{name}");
            assert!(row.what.contains(words), "{name}: {}", row.what);
        }
    }

    #[test]
    fn the_time_of_a_drain_is_drawn_as_a_bar() {
        let progress =
            json!({"summary": "waits", "since": "2027-01-01T00:00:00Z", "until": "2027-01-03T00:00:00Z"});
        let row = row_of(
            &status(json!({"claim": claim("waiting"), "progress": progress})),
            |_| true,
        );
        let now = "2027-01-02T00:00:00Z".parse().unwrap();
        let shown = table(std::slice::from_ref(&row), now, 160);
        let cells: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "-",
                "ip-1",
                "waiting",
                "1d",
                "██████░░░░░░",
                "2027-01-03",
                "00:00Z",
                "waits"
            ]
        );
    }

    #[test]
    fn a_row_shows_what_happens_at_the_end_of_a_running_drain() {
        let (restored, forged) = ("the node is restored", "\u{1b}[2Jrestore");
        let by_group =
            "the hook is no longer kept alive, and its group terminates the instance within 900 seconds";
        let now = "2027-01-02T00:00:00Z".parse().unwrap();
        for (phase, runs, then, word) in [
            ("draining", true, restored, Some("restore")),
            ("waiting", true, by_group, Some("group terminates")),
            ("waiting", true, forged, Some("?")),
            ("waiting", true, "", None),
            ("waiting", false, restored, None),
            ("admitted", true, restored, None),
            ("disposing", true, restored, None),
        ] {
            let progress = json!({"summary": "waits", "since": "2027-01-01T00:00:00Z", "until": "2027-01-03T00:00:00Z", "then": then});
            let row = row_of(
                &status(json!({"claim": claim(phase), "progress": progress})),
                |_| runs,
            );
            let shown = table(std::slice::from_ref(&row), now, 160);
            let lines: Vec<Vec<char>> = shown.lines().map(|line| line.chars().collect()).collect();
            let head: String = lines[0].iter().collect();
            let cell = head.find("THEN").zip(head.find("WHAT"));
            let cell: Option<String> = cell.map(|(from, to)| lines[1][from..to].iter().collect());
            assert_eq!(
                cell.as_deref().map(str::trim),
                Some(word.unwrap_or_default()),
                "{phase} {then}\n{shown}"
            );
            let written = &document(&[], &[row])["nodes"][0]["then"];
            assert_eq!(written.as_str(), word.map(|_| then), "{phase}");
        }
    }

    #[test]
    fn in_a_narrow_terminal_a_row_has_fewer_columns_and_stays_one_line() {
        let row = Row {
            group: "workers".to_owned(),
            instance: "i-0123456789abcdef0".to_owned(),
            node: "ip-172-31-0-4.eu-west-1.compute.internal".to_owned(),
            step: "waiting".to_owned(),
            since: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            until: Some("2027-01-03T00:00:00Z".parse().unwrap()),
            then: Some("the node is restored".to_owned()),
            what: "pods: 1 to wait for".to_owned(),
            execution: None,
            style: Style::Busy,
        };
        let now = "2027-01-01T04:00:00Z".parse().unwrap();
        for (width, line) in [
            (
                160,
                "workers  ip-172-31-0-4.eu-west-1.compute.internal  waiting  4h     █░░░░░░░░░░░  2027-01-03 00:00Z  restore  pods: 1 to wait for",
            ),
            (
                127,
                "workers  ip-172-31-0-4.eu-west-1.compute.internal  waiting  4h     █░░░░░░░░░░░  2027-01-03 00:00Z  pods: 1 to wait for",
            ),
            (
                104,
                "workers  ip-172-31-0-4  waiting  4h     █░░░░░░░░░░░  2027-01-03 00:00Z  restore  pods: 1 to wait for",
            ),
            (
                96,
                "workers  ip-172-31-0-4  waiting  4h     █░░░░░░░░░░░  2027-01-03 00:00Z  pods: 1 to wait for",
            ),
            (
                80,
                "workers  ip-172-31-0-4  waiting  4h     █░░░░░░░░░░░  pods: 1 to wait for",
            ),
            (
                68,
                "workers  ip-172-31-0-4  waiting  █░░░░░░░░░░░  pods: 1 to wait for",
            ),
            (60, "workers  ip-172-31-0-4  waiting  pods: 1 to wait for"),
        ] {
            let shown = table(std::slice::from_ref(&row), now, width);
            assert_eq!(shown.lines().skip(1).collect::<Vec<_>>(), [line], "{width}");
        }
    }

    #[test]
    fn the_heading_of_a_rotation_is_above_its_nodes() {
        let heading = Heading {
            execution: "arn:aws:states:eu-west-1:1:execution:m:weekly".to_owned(),
            started: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            state: "running".to_owned(),
            progress: Some("1 of 4 done".to_owned()),
            groups: vec![("workers".to_owned(), 0.25, "1 of 4 done".to_owned())],
            document: Value::Null,
        };
        let now = "2027-01-01T01:00:00Z".parse().unwrap();
        let shown = frame(&[heading], &[], String::new(), now, 100);
        let text = |line: &Line| line.iter().map(|(_, text)| text.as_str()).collect::<String>();
        let texts: Vec<String> = shown.picture.iter().map(text).collect();
        assert_eq!(
            texts,
            [
                "rotation weekly   1h",
                "running",
                "1 of 4 done",
                "  workers  ███░░░░░░░░░  1 of 4 done"
            ]
        );
        let subjects: Vec<&str> = shown.facts.iter().map(|(subject, _)| subject.as_str()).collect();
        assert_eq!(subjects, ["weekly", "weekly nodes", "group workers"]);
    }

    #[test]
    fn rows_under_way_come_first_and_done_rows_last() {
        let styles = [Style::Good, Style::Bad, Style::Plain, Style::Busy];
        let row = row_of(&status(json!({})), |_| false);
        let mut rows = styles.map(|style| Row { style, ..row.clone() });
        sort_rows(&mut rows);
        assert_eq!(
            rows.map(|row| row.style),
            [Style::Busy, Style::Bad, Style::Plain, Style::Good]
        );
    }
}
