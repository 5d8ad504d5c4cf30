//! Writes the output: tables and sentences, or JSON. Results go to standard output, errors to standard error.

use std::io::{self, IsTerminal as _, Write as _};

use clap::CommandFactory as _;
use clap_complete::Shell;
use recycle::base::printable::printable;
use serde_json::Value;

use crate::args::flags::{CommandLine, Format};
use crate::args::reference;
use crate::base::error::{Error, Result};
use crate::base::exit::Exit;

/// Columns if there is no terminal, because the table is then read later, in the log of a pipeline.
const WIDTH_WITHOUT_TERMINAL: u16 = 160;

/// The destination and the format of the output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
    /// Whether standard output is a terminal and shows tables. False if the format is JSON.
    pub is_terminal: bool,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        let is_terminal = format == Format::Table && io::stdout().is_terminal();
        Self { format, is_terminal }
    }

    /// Whether the output is JSON.
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

    /// The width of the terminal. None if the output is read later, which has room for lines of any length.
    pub(crate) fn width_of_terminal(&self) -> Option<u16> {
        self.is_terminal.then(|| terminal_size().0)
    }

    /// Writes a line of text. Writes nothing if the output is JSON.
    pub(crate) fn say(&self, text: impl AsRef<str>) -> Result<()> {
        if self.is_json() {
            return Ok(());
        }
        Self::write(text.as_ref())
    }

    /// Writes a line of text before the command acts. A reader who has closed the output does not keep it from acting.
    pub(crate) fn say_first(&self, text: impl AsRef<str>) -> Result<()> {
        match self.say(text) {
            Err(error) if error.is_broken_pipe() => Ok(()),
            said => said,
        }
    }

    /// Writes a JSON document on one line. Writes nothing if the output is not JSON.
    pub(crate) fn document(&self, document: &Value) -> Result<()> {
        if self.is_json() {
            return Self::write(&document.to_string());
        }
        Ok(())
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

    /// Writes a line to standard error, apart from the output.
    pub(crate) fn note(text: &str) {
        let _unwritten = writeln!(io::stderr(), "recycle-eks: {}", printable(text));
    }

    pub(crate) fn show_error(&self, error: &Error) -> Exit {
        if self.is_json() {
            let document = serde_json::json!({"error": error.to_string(), "exit": error.exit().code()});
            let _unwritten = Self::write(&document.to_string());
        }
        Self::note(&error.to_string());
        error.exit()
    }

    /// Writes a text to standard output in any format.
    pub(crate) fn write(text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", printable(text))?;
        Ok(out.flush()?)
    }
}

/// Returns the columns and the rows of the terminal. If the terminal does not report them, as in some pipelines, it counts as 80 by 24.
pub(crate) fn terminal_size() -> (u16, u16) {
    let size = crossterm::terminal::size().ok();
    size.filter(|(columns, rows)| *columns > 0 && *rows > 1)
        .unwrap_or((80, 24))
}

/// Prints what the parser returns instead of a command: a refusal, the help or the version.
pub(crate) fn show_refusal(refusal: &clap::Error) -> Exit {
    let _unwritten = refusal.print();
    if refusal.use_stderr() {
        Exit::Usage
    } else {
        Exit::Done
    }
}
