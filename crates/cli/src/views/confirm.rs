//! Asks before a command that is hard to undo.

use std::io::IsTerminal as _;

use crate::base::error::{Result, refuse};
use crate::views::output::Output;

/// Shows what a command will do, and asks. Any answer but `yes` is a refusal.
/// Without a terminal nothing is asked: the refusal names the command that does not ask.
///
/// `what` continues the sentence "To … all the same"; `command` has `--yes`.
pub(crate) fn confirm(output: &Output, warning: &str, what: &str, command: &str) -> Result<()> {
    if !output.is_terminal || !std::io::stdin().is_terminal() {
        refuse!("{warning} To {what} all the same, run: recycle-eks {command}");
    }
    output.say(warning)?;
    Output::note(&format!("{what}? Type yes:"));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim() != "yes" {
        refuse!("nothing was changed, because the answer was not yes");
    }
    Ok(())
}
