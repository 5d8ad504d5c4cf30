//! Builds the answer to a node of a rotation that asks to start.

use crate::answer::envelope::{Answer, SelectBody};
use crate::contract::verdicts::SelectVerdict;
use crate::input::start::Start;
use crate::rotation::admission::{
    Admission, Ended, LONGEST_WAIT, WaitReason, Waited, WaitingNode, name_cause, pace,
};
use crate::rotation::request::Rotation;
use crate::rotation::terms::Part;

impl Admission {
    /// Builds the answer for the state machine.
    /// If a node has waited for the same reason for a day, it and the nodes after it do not start.
    pub fn answer(
        self,
        rotation: &Rotation,
        part: &Part,
        waiting_node: &WaitingNode,
    ) -> Answer<SelectVerdict> {
        match self {
            Self::Start => {
                let cause = name_cause(&part.execution, waiting_node.attempt);
                let start = Start::new(rotation.trigger.name(), &waiting_node.instance_id, &cause);
                Answer::new(
                    SelectVerdict::Start,
                    format!("{} may start", waiting_node.instance_id),
                )
                .with(SelectBody::Start(start))
            }
            Self::Wait(wait_reason, reason) => {
                if waiting_node.waited_for(wait_reason) >= LONGEST_WAIT {
                    return Self::stop(format!("waited for a day: {reason}")).answer(
                        rotation,
                        part,
                        waiting_node,
                    );
                }
                wait(wait_reason, reason, waiting_node)
            }
            Self::Await(reason) => wait(WaitReason::Canary, reason, waiting_node),
            Self::DescribeAlarms => {
                Answer::new(SelectVerdict::DescribeAlarms, "the states of the alarms decide")
            }
            Self::Pause(seconds, field) => Answer::new(SelectVerdict::Pause, field).waiting(seconds),
            Self::Skip(ended) => ended.after(waiting_node).answer(SelectVerdict::Skip),
            Self::Stop(ended) => ended.after(waiting_node).answer(SelectVerdict::Stop),
        }
    }
}

impl Ended {
    fn answer(self, verdict: SelectVerdict) -> Answer<SelectVerdict> {
        Answer::new(verdict, self.why.clone()).with(SelectBody::Ended(self))
    }
}

fn wait(wait_reason: WaitReason, reason: String, waiting_node: &WaitingNode) -> Answer<SelectVerdict> {
    let seconds = pace(waiting_node.waited, &waiting_node.instance_id);
    let after_wait = Waited {
        waited: waiting_node.waited.saturating_add(seconds),
        waits_for: wait_reason,
        waited_for_it: waiting_node.waited_for(wait_reason).saturating_add(seconds),
    };
    Answer::new(SelectVerdict::Wait, reason)
        .waiting(seconds)
        .with(SelectBody::AfterWait(after_wait))
}
