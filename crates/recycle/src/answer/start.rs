//! Builds the answer of `start-rotation`.

use crate::answer::envelope::Answer;
use crate::base::text::cut_text;
use crate::contract::verdicts::StartVerdict;
use crate::rotation::start::{LONGEST_REASON, Starts};

impl Starts {
    /// Builds the answer once the rotations are started.
    pub fn answer(&self) -> Answer<StartVerdict> {
        let verdict = if self.starts.is_empty() {
            StartVerdict::NothingToStart
        } else {
            StartVerdict::Started
        };
        let mut reason = self.reasons.join("; ");
        cut_text(&mut reason, LONGEST_REASON);
        Answer::new(verdict, reason)
    }
}
