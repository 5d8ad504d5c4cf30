//! What is shown: tables and sentences, or JSON. Results go to standard output, errors to standard error.

use std::io::{self, IsTerminal as _, Write as _};

use clap::CommandFactory as _;
use clap_complete::Shell;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use recycle::base::printable::printable;
use serde_json::Value;

use crate::args::flags::{CommandLine, Format};
use crate::args::reference;
use crate::base::error::{Error, Result};
use crate::base::exit::Exit;

/// Columns where there is no terminal: a person reads the table later, in the log of a pipeline.
const WIDTH_WITHOUT_TERMINAL: u16 = 160;

/// Where it goes, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
    /// Standard output is a terminal.
    pub is_terminal: bool,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        let is_terminal = format == Format::Table && io::stdout().is_terminal();
        Self { format, is_terminal }
    }

    /// Whether a machine reads it.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    pub(crate) fn width(&self) -> u16 {
        if self.is_terminal {
            terminal_size().0
        } else {
            WIDTH_WITHOUT_TERMINAL
        }
    }

    /// A line for people; none where a machine reads.
    pub(crate) fn say(&self, text: impl AsRef<str>) -> Result<()> {
        if self.is_json() {
            return Ok(());
        }
        Self::write(text.as_ref())
    }

    /// A document for machines, on one line; none where people read.
    pub(crate) fn document(&self, document: &Value) -> Result<()> {
        if self.is_json() {
            return Self::write(&document.to_string());
        }
        Ok(())
    }

    pub(crate) fn table<Row>(&self, head: &[&str], rows: impl IntoIterator<Item = Row>) -> Result<()>
    where
        Row: IntoIterator<Item = String>,
    {
        self.say(draw_table(head, rows, self.width()))
    }

    pub(crate) fn show_completions(&self, shell: Shell) -> Result<Exit> {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut CommandLine::command(), "recycle-eks", &mut text);
        io::stdout().lock().write_all(&text)?;
        Ok(Exit::Done)
    }

    pub(crate) fn show_reference(&self) -> Result<Exit> {
        io::stdout().lock().write_all(reference::render().as_bytes())?;
        Ok(Exit::Done)
    }

    /// A line beside what is asked for, on standard error.
    pub(crate) fn note(text: &str) {
        let _nobody_reads = writeln!(io::stderr(), "recycle-eks: {}", printable(text));
    }

    pub(crate) fn show_error(&self, error: &Error) -> Exit {
        if self.is_json() {
            let document = serde_json::json!({"error": error.to_string(), "exit": error.exit().code()});
            let _nobody_reads = Self::write(&document.to_string());
        }
        Self::note(&error.to_string());
        error.exit()
    }

    /// Writes a text, whatever the format is.
    pub(crate) fn write(text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", printable(text))?;
        Ok(out.flush()?)
    }
}

/// Columns and rows of the terminal. One that does not say so, as those of some pipelines, is taken for the oldest of all.
pub(crate) fn terminal_size() -> (u16, u16) {
    let told = crossterm::terminal::size().ok();
    told.filter(|(columns, rows)| *columns > 0 && *rows > 1)
        .unwrap_or((80, 24))
}

/// What the parser refuses, and what it was asked for: help, version.
pub(crate) fn show_refusal(refusal: &clap::Error) -> Exit {
    let _nobody_reads = refusal.print();
    if refusal.use_stderr() {
        Exit::Refused
    } else {
        Exit::Done
    }
}

/// Blanks behind each column.
const GAP: u16 = 2;
/// Columns that the last cell of a row needs at least to be read.
pub(crate) const LEAST_LAST: usize = 20;

/// A table without lines, as `kubectl` draws it. Where it would be too wide the last cell goes on below, and only if that has no room
/// left, the others do.
pub(crate) fn draw_table<Row>(head: &[&str], rows: impl IntoIterator<Item = Row>, width: u16) -> String
where
    Row: IntoIterator<Item = String>,
{
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.into_iter().collect()).collect();
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(head.iter().map(|title| title.to_uppercase()));
    let only_last_is_wrapped = width_of_others(head, &rows) + LEAST_LAST <= usize::from(width);
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        let is_last = index + 1 == head.len();
        column.set_padding((0, if is_last { 0 } else { GAP }));
        if only_last_is_wrapped && !is_last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Of all columns but the last one, with what is between them.
pub(crate) fn width_of_others(head: &[&str], rows: &[Vec<String>]) -> usize {
    let others = head.iter().take(head.len().saturating_sub(1)).enumerate();
    let widths = others.map(|(index, title)| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(title.chars().count()) + usize::from(GAP)
    });
    widths.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_cell_goes_on_below() {
        let row = ["ip-172-31-0-4", "one pod is waited for and two are evicted"].map(str::to_owned);
        assert_eq!(
            draw_table(&["node", "what"], [row], 36),
            "NODE           WHAT\n\
             ip-172-31-0-4  one pod is waited for\n               and two are evicted"
        );
    }
}
