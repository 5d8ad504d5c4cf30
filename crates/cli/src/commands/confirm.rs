//! Asks before a command does what cannot be undone.

use std::io::IsTerminal as _;

use recycle::base::shell::quote;

use crate::base::error::{Result, refuse};
use crate::views::output::Output;

/// Says what will happen and asks whether to do it. Without a terminal the command needs `--yes`, and the refusal has the command with it.
pub(super) fn confirm(output: &Output, effect: &str, question: &str) -> Result<()> {
    if !output.is_terminal || !std::io::stdin().is_terminal() {
        // The flags that choose the installation stay in it.
        let words = std::env::args().skip(1).map(|word| quote(&word).into_owned());
        let words: Vec<String> = words.collect();
        refuse!(
            "{effect} To do it without a question, run: recycle-eks {} --yes",
            words.join(" ")
        );
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
