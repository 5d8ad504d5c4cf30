//! The table of several nodes, below the headings of the running rotations. Each row is one line.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::base::times::{moment, shortly};
use crate::history::rotation::RotationHistory;
use crate::history::started_by::name_of;
use crate::views::row::Row;
use crate::views::table::Form;
use crate::views::viewer::{Frame, Line, Style, bar, shorten, shorten_end, time_bar};

const BAR: usize = 12;
/// The table of nodes.
const FORM: Form = Form {
    head: &["group", "node", "step", "since", "", "until", "then", "what"],
    node: Some(NODE),
    names: &[GROUP, NODE],
    layouts: &[
        (false, &[]),
        (false, &[THEN]),
        (true, &[]),
        (true, &[THEN]),
        (true, &[THEN, UNTIL]),
        (true, &[THEN, UNTIL, SINCE]),
        (true, &[THEN, UNTIL, SINCE, TIME_BAR]),
    ],
};
const GROUP: usize = 0;
const NODE: usize = 1;
const SINCE: usize = 3;
const TIME_BAR: usize = 4;
const UNTIL: usize = 5;
const THEN: usize = 6;
/// The maximum number of groups of a rotation that the picture shows.
const MOST_GROUPS: usize = 6;

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

pub(crate) fn frame(headings: &[Heading], rows: &[Row], clock: String, now: Timestamp, width: u16) -> Frame {
    let columns = usize::from(width);
    let drawn = headings
        .iter()
        .flat_map(|heading| draw_heading(heading, now, columns));
    let mut picture: Vec<Line> = drawn.collect();
    let drawn = draw_rows(rows, now, width);
    // The head of the table stays.
    let first = picture.len() + usize::from(!drawn.is_empty());
    picture.extend(drawn);
    let of_rotations = headings.iter().flat_map(list_facts);
    let of_rows = rows.iter().map(|row| (row.node.clone(), print_row(row)));
    Frame {
        clock,
        rows: first..picture.len(),
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

fn draw_heading(heading: &Heading, now: Timestamp, columns: usize) -> Vec<Line> {
    let plain = |text: &str| vec![(Style::Plain, text.to_owned())];
    let taken = heading.started.map(|started| now.duration_since(started));
    let taken = taken.map_or_else(String::new, |taken| format!("   {}", shortly(taken)));
    let room = columns.saturating_sub("rotation ".len() + taken.chars().count());
    let title = format!("rotation {}", shorten(name_of(&heading.execution), room));
    let mut lines = vec![
        vec![(Style::Bold, title), (Style::Dim, taken)],
        plain(&heading.state),
    ];
    lines.extend(heading.progress.as_deref().map(plain));
    let shown = heading.groups.iter().take(MOST_GROUPS);
    let widths = shown.clone().map(|(name, ..)| name.chars().count());
    let width = widths.max().unwrap_or(0).min(columns / 4);
    lines.extend(shown.map(|(name, share, state)| {
        let (name, bar) = (shorten(name, width), bar(*share, BAR));
        plain(&shorten_end(
            &format!("  {name:<width$}  {bar}  {state}"),
            columns,
        ))
    }));
    if heading.groups.len() > MOST_GROUPS {
        let text = format!("  … {} more groups", heading.groups.len() - MOST_GROUPS);
        lines.push(vec![(Style::Dim, text)]);
    }
    lines
}

fn draw_rows(rows: &[Row], now: Timestamp, width: u16) -> Vec<Line> {
    let styles = rows.iter().map(|row| row.style);
    let styles = std::iter::once(Style::Dim).chain(styles);
    let lines = table(rows, now, Some(width));
    lines
        .into_iter()
        .zip(styles)
        .map(|(text, style)| vec![(style, text)])
        .collect()
}

fn cells(row: &Row, now: Timestamp) -> Vec<String> {
    let taken = row.since.map(|since| shortly(now.duration_since(since)));
    let time = row.since.zip(row.until);
    let drawn = time.map(|(since, until)| time_bar(since, until, now, BAR));
    vec![
        row.group.clone(),
        row.node.clone(),
        row.step.clone(),
        taken.unwrap_or_default(),
        drawn.unwrap_or_default(),
        row.until.map(moment).unwrap_or_default(),
        row.end.unwrap_or_default().to_owned(),
        row.what.clone(),
    ]
}

/// Draws the table of nodes. No rows give no lines.
pub(crate) fn table(rows: &[Row], now: Timestamp, width: Option<u16>) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| cells(row, now)).collect();
    FORM.draw(&rows, width)
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
    use recycle::drain::progress::name_end;

    use super::*;

    fn row() -> Row {
        Row {
            group: "workers".to_owned(),
            instance: "i-0123456789abcdef0".to_owned(),
            node: "ip-172-31-0-4.eu-west-1.compute.internal".to_owned(),
            step: "waiting".to_owned(),
            since: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            until: Some("2027-01-03T00:00:00Z".parse().unwrap()),
            then: Some("the node is restored".to_owned()),
            end: Some("restore"),
            what: "pods: 1 awaited".to_owned(),
            style: Style::Waits,
            ..Row::default()
        }
    }

    #[test]
    fn the_time_of_a_drain_is_drawn_as_a_bar_and_its_end_is_named() {
        let now = "2027-01-02T00:00:00Z".parse().unwrap();
        let by_group =
            "the hook is no longer kept alive, and its group terminates the instance within 900 seconds";
        for (then, word) in [(by_group, "group terminates"), ("\u{1b}[2Jrestore", "?")] {
            let row = Row {
                node: "ip-1".to_owned(),
                then: Some(then.to_owned()),
                end: Some(name_end(then)),
                ..row()
            };
            let shown = table(std::slice::from_ref(&row), now, None);
            let expected = format!(
                "workers  ip-1  waiting  1d     ██████░░░░░░  2027-01-03 00:00Z  {word}  pods: 1 awaited"
            );
            assert_eq!(shown[1].replace("?     pods", "?  pods"), expected);
            assert_eq!(document(&[], &[row])["nodes"][0]["then"], then);
        }
    }

    #[test]
    fn in_a_narrow_terminal_a_row_has_fewer_columns_and_stays_one_line() {
        let row = row();
        let now = "2027-01-01T04:00:00Z".parse().unwrap();
        for (width, line) in [
            (
                160,
                "workers  ip-172-31-0-4.eu-west-1.compute.internal  waiting  4h     █░░░░░░░░░░░  2027-01-03 00:00Z  restore  pods: 1 awaited",
            ),
            (
                127,
                "workers  ip-172-31-0-4.eu-west-1.compute.internal  waiting  4h     █░░░░░░░░░░░  2027-01-03 00:00Z  pods: 1 awaited",
            ),
            (
                104,
                "workers  ip-172-31-0-4  waiting  4h     █░░░░░░░░░░░  2027-01-03 00:00Z  restore  pods: 1 awaited",
            ),
            (
                96,
                "workers  ip-172-31-0-4  waiting  4h     █░░░░░░░░░░░  2027-01-03 00:00Z  pods: 1 awaited",
            ),
            (
                80,
                "workers  ip-172-31-0-4  waiting  4h     █░░░░░░░░░░░  pods: 1 awaited",
            ),
            (
                68,
                "workers  ip-172-31-0-4  waiting  █░░░░░░░░░░░  pods: 1 awaited",
            ),
            (60, "workers  ip-172-31-0-4  waiting  pods: 1 awaited"),
        ] {
            assert_eq!(
                table(std::slice::from_ref(&row), now, Some(width))[1],
                line,
                "{width}"
            );
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
    fn long_names_are_shortened_in_the_middle_and_the_last_cell_is_cut() {
        let now = "2027-01-01T04:00:00Z".parse().unwrap();
        let row = Row {
            group: "production-batch-workers-spot".to_owned(),
            what: "pods: 2 blocked by budget default/web, 1 awaited".to_owned(),
            ..row()
        };
        let shown = table(&[row], now, Some(60));
        assert_eq!(
            shown,
            [
                "GROUP           NODE           STEP     WHAT",
                "product…s-spot  ip-172-31-0-4  waiting  pods: 2 blocked by …"
            ]
            .map(str::to_owned)
        );
    }
}
