//! Shows a view that changes. On a terminal the picture is drawn again in place. Otherwise each change is a line of text, or a JSON
//! document.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::ops::Range;

use crossterm::cursor::{MoveTo, MoveToPreviousLine};
use crossterm::queue;
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{Clear, ClearType};
use jiff::Timestamp;
use recycle::base::printable::printable;
use serde_json::Value;

use crate::base::error::Result;
use crate::views::output::{Output, terminal_size};

/// The style of a piece of text. Its words say the same, for terminals without colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Style {
    #[default]
    Plain,
    /// Less important text, and queued nodes.
    Dim,
    /// Titles and names.
    Bold,
    /// Replaced nodes.
    Good,
    /// Nodes under way.
    Busy,
    /// Nodes and pods that only have to be waited for.
    Waits,
    /// Blocked pods, their nodes, and failures.
    Bad,
}

pub(crate) type Line = Vec<(Style, String)>;

/// The view at one moment, in a form for each kind of output.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Frame {
    /// The time that has passed, which stands in front of each plain line.
    pub clock: String,
    /// The picture for a terminal.
    pub picture: Vec<Line>,
    /// The lines of the picture that are rows. If the picture is too high for the terminal, the last rows are left out and counted.
    pub rows: Range<usize>,
    /// The facts for plain lines: each subject and its state.
    pub facts: Vec<(String, String)>,
    /// The JSON document.
    pub document: Value,
}

#[derive(Debug, Default)]
pub(crate) struct Viewer {
    /// Lines of the picture on the terminal.
    drawn: u16,
    /// Columns of the terminal when the picture was drawn.
    columns: u16,
    /// The state of each subject in the last frame.
    shown: BTreeMap<String, String>,
    document: Value,
}

impl Viewer {
    pub(crate) fn show(&mut self, output: &Output, frame: &Frame) -> Result<()> {
        if output.is_json() {
            if self.document != frame.document {
                output.document(&frame.document)?;
                self.document = frame.document.clone();
            }
            return Ok(());
        }
        if output.is_terminal {
            return Ok(self.draw(frame)?);
        }
        for line in self.find_updates(frame) {
            output.say(line)?;
        }
        Ok(())
    }

    /// Returns a line for each fact that has changed. A subject that disappears has a line again when it comes back.
    fn find_updates(&mut self, frame: &Frame) -> Vec<String> {
        let updates = frame.facts.iter();
        let updates = updates.filter(|(subject, state)| self.shown.get(subject) != Some(state));
        let updates = updates.map(|(subject, state)| format!("{:>11}  {subject:<24} {state}", frame.clock));
        let updates = updates.collect();
        self.shown = frame.facts.iter().cloned().collect();
        updates
    }

    /// Draws over the last picture, line by line, so that nothing flickers.
    fn draw(&mut self, frame: &Frame) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let (columns, rows) = terminal_size();
        if self.drawn > 0 && self.columns != columns {
            // Terminals wrap lines that no longer fit in different ways, so the place of the picture is unknown after a change of width.
            queue!(out, MoveTo(0, 0), Clear(ClearType::All))?;
        } else if self.drawn > 0 {
            queue!(out, MoveToPreviousLine(self.drawn))?;
        }
        (self.columns, self.drawn) = (columns, 0);
        for line in fit_picture(frame, usize::from(columns), usize::from(rows.saturating_sub(1))) {
            for (style, text) in line {
                begin(&mut out, style)?;
                queue!(out, Print(printable(&text)))?;
                queue!(out, SetAttribute(Attribute::Reset), ResetColor)?;
            }
            queue!(out, Clear(ClearType::UntilNewLine), Print("\n"))?;
            self.drawn += 1;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        out.flush()
    }
}

fn begin(out: &mut impl io::Write, style: Style) -> io::Result<()> {
    match style {
        Style::Plain => Ok(()),
        Style::Dim => queue!(out, SetAttribute(Attribute::Dim)),
        Style::Bold => queue!(out, SetAttribute(Attribute::Bold)),
        Style::Good => queue!(out, SetForegroundColor(Color::Green)),
        Style::Busy => queue!(out, SetForegroundColor(Color::Yellow)),
        Style::Waits => queue!(out, SetForegroundColor(Color::Blue)),
        Style::Bad => queue!(out, SetForegroundColor(Color::Red)),
    }
}

/// Fits the picture into the screen. A row is one line, and the last rows are left out if there are too many.
/// Lines beyond the screen could not be drawn over, so they are also left out.
pub(crate) fn fit_picture(frame: &Frame, columns: usize, lines: usize) -> Vec<Line> {
    let (before, others) = frame.picture.split_at(frame.rows.start.min(frame.picture.len()));
    let (rows, after) = others.split_at(frame.rows.len().min(others.len()));
    let wrapped =
        |lines: &[Line]| -> Vec<Line> { lines.iter().flat_map(|line| fit(line, columns)).collect() };
    let (mut shown, after) = (wrapped(before), wrapped(after));
    let room = lines.saturating_sub(shown.len() + after.len());
    let fitting = if rows.len() <= room {
        rows.len()
    } else {
        room.saturating_sub(1)
    };
    shown.extend(rows.iter().take(fitting).map(|row| cut(row, columns)));
    if fitting < rows.len() {
        let left_out = rows.len() - fitting;
        let text = format!("… {left_out} more {}", if left_out == 1 { "row" } else { "rows" });
        shown.push(vec![(Style::Dim, text)]);
    }
    shown.extend(after);
    shown.truncate(lines);
    shown
}

/// Shortens a name in the middle, so that its beginning and its end can be read.
pub(crate) fn shorten(name: &str, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns {
        return name.to_owned();
    }
    let kept = columns.saturating_sub(1);
    let (begin, end) = (kept.div_ceil(2), kept / 2);
    let begin: String = name.chars().take(begin).collect();
    let end: String = name.chars().skip(length - end).collect();
    format!("{begin}…{end}")
}

/// Cuts a text at the end.
pub(crate) fn shorten_end(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Fits a line into the columns. A line of a single text is wrapped at blanks, and a line of several texts is cut.
fn fit(line: &Line, columns: usize) -> Vec<Line> {
    match line.as_slice() {
        [(style, text)] => wrap(text, columns)
            .into_iter()
            .map(|text| vec![(*style, text)])
            .collect(),
        _ => vec![cut(line, columns)],
    }
}

fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    // Blanks are kept, because the rows of a table may begin with some.
    for word in text.split_inclusive(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        let is_full = last > 0 && last + word.trim_end().chars().count() > columns;
        match lines.last_mut() {
            Some(line) if !is_full => line.push_str(word),
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
        .iter()
        .flat_map(|line| divide(line.trim_end(), columns))
        .collect()
}

/// Divides a line that is longer than the columns, such as an ARN.
fn divide(line: &str, columns: usize) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    if letters.is_empty() {
        return vec![String::new()];
    }
    let parts = letters.chunks(columns.max(1));
    parts.map(|part| part.iter().collect()).collect()
}

fn cut(line: &Line, columns: usize) -> Line {
    let whole: usize = line.iter().map(|(_, text)| text.chars().count()).sum();
    let mut left = if whole > columns {
        columns.saturating_sub(1)
    } else {
        columns
    };
    let mut shown = Line::new();
    for (style, text) in line {
        let text: String = text.chars().take(left).collect();
        left -= text.chars().count();
        shown.push((*style, text));
    }
    if whole > columns && columns > 0 {
        shown.push((Style::Plain, "…".to_owned()));
    }
    shown
}

/// Draws a bar with `columns` columns. A `share` below 0 or above 1 counts as 0 or 1.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(columns - full))
}

/// Draws a bar of how much of the time from `since` to `until` is over.
pub(crate) fn time_bar(since: Timestamp, until: Timestamp, now: Timestamp, columns: usize) -> String {
    let whole = until.duration_since(since).as_secs_f64();
    let taken = now.duration_since(since).as_secs_f64();
    bar(if whole > 0.0 { taken / whole } else { 1.0 }, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_its_share() {
        for (share, drawn) in [
            (0.0, "░░░░"),
            (0.5, "██░░"),
            (1.0, "████"),
            (7.0, "████"),
            (-1.0, "░░░░"),
        ] {
            assert_eq!(bar(share, 4), drawn);
        }
    }

    #[test]
    fn a_line_of_several_texts_is_cut_at_the_width() {
        let line = vec![(Style::Plain, "abc".to_owned()), (Style::Bold, "äöü".to_owned())];
        let texts = |columns| {
            cut(&line, columns)
                .into_iter()
                .map(|(_, text)| text)
                .collect::<String>()
        };
        assert_eq!(
            (texts(4), texts(6), texts(0)),
            ("abc…".to_owned(), "abcäöü".to_owned(), String::new())
        );
    }

    #[test]
    fn a_sentence_is_wrapped_at_the_width() {
        for (text, lines) in [
            ("waits for one pod", vec!["waits for", "one pod"]),
            ("  a", vec!["  a"]),
            ("", vec![""]),
            ("of abcdefghijklm no", vec!["of", "abcdefghij", "klm", "no"]),
        ] {
            assert_eq!(wrap(text, 10), lines, "{text}");
        }
    }

    #[test]
    fn a_name_is_shortened_in_the_middle_and_a_text_at_the_end() {
        for (columns, name, text) in [
            (20, "training-2fz8x", "training-2fz8x"),
            (9, "trai…fz8x", "training…"),
            (2, "t…", "t…"),
            (1, "…", "…"),
        ] {
            assert_eq!(shorten("training-2fz8x", columns), name, "{columns}");
            assert_eq!(shorten_end("training-2fz8x", columns), text, "{columns}");
        }
    }

    #[test]
    fn rows_that_do_not_fit_are_counted_and_the_lines_below_them_stay() {
        let line = |text: &str| vec![(Style::Plain, text.to_owned()), (Style::Plain, String::new())];
        let frame = Frame {
            picture: ["title", "1", "2", "3", "4", "end"].map(line).to_vec(),
            rows: 1..5,
            ..Frame::default()
        };
        let texts = |lines| -> Vec<String> {
            let fitted = fit_picture(&frame, 20, lines);
            let text = |line: &Line| line.iter().map(|(_, text)| text.as_str()).collect();
            fitted.iter().map(text).collect()
        };
        assert_eq!(texts(6), ["title", "1", "2", "3", "4", "end"]);
        assert_eq!(texts(5), ["title", "1", "2", "… 2 more rows", "end"]);
        assert_eq!(texts(3), ["title", "… 4 more rows", "end"]);
        assert_eq!(texts(1), ["title"]);
    }

    #[test]
    fn only_a_changed_fact_is_a_line() {
        let mut viewer = Viewer::default();
        let frame = |facts: &[(&str, &str)]| Frame {
            clock: "0:00:10".to_owned(),
            facts: facts
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect(),
            ..Frame::default()
        };
        let count = |viewer: &mut Viewer, facts: &[(&str, &str)]| viewer.find_updates(&frame(facts)).len();
        assert_eq!(count(&mut viewer, &[("a", "1"), ("b", "1")]), 2);
        assert_eq!(count(&mut viewer, &[("a", "1"), ("b", "2")]), 1);
        assert_eq!(count(&mut viewer, &[("a", "1")]), 0);
        assert_eq!(count(&mut viewer, &[("a", "1"), ("b", "2")]), 1);
    }
}
