//! Turns the admission of a node into an answer.

use crate::answer::envelope::{Answer, SelectBody};
use crate::contract::verdicts::SelectVerdict;
use crate::input::start::Start;
use crate::rotation::admission::{Ended, Gate, Holdup, LONGEST_WAIT, Turn, Waited, name_cause, pace};
use crate::rotation::request::Rotation;
use crate::rotation::terms::Part;

impl Gate {
    /// Builds the answer for the state machine.
    /// If a node has waited for the same reason for a day, neither it nor the nodes after it start.
    #[must_use]
    pub fn answer(self, rotation: &Rotation, part: &Part, turn: &Turn) -> Answer<SelectVerdict> {
        match self {
            Self::Start => {
                let cause = name_cause(&part.execution, turn.attempt);
                let start = Start::new(rotation.trigger.name(), &turn.instance_id, &cause);
                Answer::new(SelectVerdict::Start, format!("{} may start", turn.instance_id))
                    .with(SelectBody::Start(start))
            }
            Self::Wait(holdup, reason) => {
                if turn.waited_for(holdup) >= LONGEST_WAIT {
                    return Self::stop(format!("waited for a day: {reason}")).answer(rotation, part, turn);
                }
                wait(holdup, reason, turn)
            }
            Self::Await(reason) => wait(Holdup::Canary, reason, turn),
            Self::Pause(seconds) => {
                Answer::new(SelectVerdict::Pause, "wait_between_nodes_seconds").waiting(seconds)
            }
            Self::Skip(ended) => ended.after(turn).answer(SelectVerdict::Skip),
            Self::Stop(ended) => ended.after(turn).answer(SelectVerdict::Stop),
        }
    }
}

impl Ended {
    fn answer(self, verdict: SelectVerdict) -> Answer<SelectVerdict> {
        Answer::new(verdict, self.why.clone()).with(SelectBody::Ended(self))
    }
}

fn wait(holdup: Holdup, reason: String, turn: &Turn) -> Answer<SelectVerdict> {
    let seconds = pace(turn.waited, &turn.instance_id);
    let after_wait = Waited {
        waited: turn.waited.saturating_add(seconds),
        waits_for: holdup,
        waited_for_it: turn.waited_for(holdup).saturating_add(seconds),
    };
    Answer::new(SelectVerdict::Wait, reason)
        .waiting(seconds)
        .with(SelectBody::AfterWait(after_wait))
}
