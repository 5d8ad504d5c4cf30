//! Asks before a command does what cannot be undone.

use std::io::IsTerminal as _;

use crate::base::error::{Result, refuse};
use crate::views::output::Output;

/// Says what will happen and asks whether to do it. Without a terminal the command needs `--yes`: `again` is the command with that flag.
pub(super) fn confirm(output: &Output, effect: &str, question: &str, again: &str) -> Result<()> {
    if !output.is_terminal || !std::io::stdin().is_terminal() {
        refuse!("{effect} To do it without a question, run: {again}");
    }
    output.say(effect)?;
    Output::note(&format!("{question} Type yes to do it:"));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim() != "yes" {
        refuse!("nothing was changed");
    }
    Ok(())
}
