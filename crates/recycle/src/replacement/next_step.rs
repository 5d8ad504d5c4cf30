//! Decides the next step of `StandbyNode` from the lifecycle state of the member and the phase of the claim.

use crate::input::path::RecyclePath;
use crate::records::claim::Phase;

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StandbyStep {
    /// Record and call EnterStandby.
    Enter,
    /// Record and raise the desired capacity by one.
    Raise,
    /// Check the replacement: an execution of recycle-eks has put the instance into Standby, or has raised the desired capacity.
    AwaitReplacement,
    /// End the execution: an operator or another tool returns the instance to service, although this execution or an earlier one had put
    /// it into Standby.
    GiveBack,
    /// Go on to the next step: an execution that no longer runs has begun to end the instance, so this step has nothing to do.
    Proceed,
    /// Refuse: EnterStandby is not possible or not allowed. The text describes the state.
    Refuse(String),
    /// End the execution: the members were recorded, and then the instance was taken away. The text describes its state.
    Lose(String),
}

/// Decides the next step of a claim that has come to `phase`.
/// `has_begun` says that the members before the replacement are recorded.
/// `has_entered` says that this execution has called EnterStandby or raised the desired capacity, or has seen the instance in Standby.
pub fn choose_step(
    path: RecyclePath,
    lifecycle_state: Option<&str>,
    phase: Phase,
    has_begun: bool,
    has_entered: bool,
) -> StandbyStep {
    let is_disposed_of = has_begun && phase == Phase::Disposing;
    let stays_in_service = path == RecyclePath::Surge;
    match (lifecycle_state, has_begun) {
        (Some("InService"), _) if stays_in_service && has_entered => StandbyStep::AwaitReplacement,
        // A second EnterStandby would undo what an operator or another tool has done, and each round makes the group one larger.
        (Some("InService"), _) if has_entered => StandbyStep::GiveBack,
        // ExitStandby leads through Pending.
        (Some(state), true) if state.starts_with("Pending") => StandbyStep::GiveBack,
        // A slow earlier call of claim-node withdrew the admission after the call that led here. Another node may be admitted by now.
        (Some("InService"), _) if phase < Phase::Admitted => {
            StandbyStep::Refuse("is no longer admitted; start another execution to queue it again".to_owned())
        }
        // Also applies if the members are recorded: an earlier attempt crashed before the call, or the instance was restored before this
        // execution.
        (Some("InService"), _) if stays_in_service => StandbyStep::Raise,
        (Some("InService"), _) => StandbyStep::Enter,
        (Some("EnteringStandby" | "Standby"), true) if !stays_in_service => StandbyStep::AwaitReplacement,
        (None, _) if is_disposed_of => StandbyStep::Proceed,
        (Some(state), _) if is_disposed_of && state.starts_with("Terminat") => StandbyStep::Proceed,
        (Some(state), true) => {
            StandbyStep::Lose(format!("was put into {state} by an operator or another tool"))
        }
        (Some(state), false) => StandbyStep::Refuse(format!("is {state} and not InService")),
        (None, true) => StandbyStep::Lose("is no longer a member".to_owned()),
        (None, false) => StandbyStep::Refuse("is no longer a member".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_in_service_enters_standby_even_if_an_earlier_attempt_had_begun() {
        for (phase, has_begun) in [
            (Phase::Admitted, false),
            (Phase::Standby, true),
            (Phase::Draining, true),
        ] {
            assert_eq!(
                choose_step(RecyclePath::Before, Some("InService"), phase, has_begun, false),
                StandbyStep::Enter,
                "{phase:?}"
            );
        }
    }

    #[test]
    fn on_the_path_surge_the_member_stays_in_service() {
        let step = |state, phase, has_begun, has_entered| {
            choose_step(RecyclePath::Surge, Some(state), phase, has_begun, has_entered)
        };
        assert_eq!(
            step("InService", Phase::Admitted, false, false),
            StandbyStep::Raise
        );
        assert_eq!(
            step("InService", Phase::Draining, true, false),
            StandbyStep::Raise
        );
        assert_eq!(
            step("InService", Phase::Standby, true, true),
            StandbyStep::AwaitReplacement
        );
        assert!(matches!(
            step("InService", Phase::Claimed, false, false),
            StandbyStep::Refuse(_)
        ));
        assert!(matches!(
            step("Standby", Phase::Standby, true, true),
            StandbyStep::Lose(_)
        ));
    }

    #[test]
    fn a_member_that_was_brought_back_during_the_wait_stays_in_service() {
        for state in ["Pending", "Pending:Wait", "InService"] {
            let step = choose_step(RecyclePath::Before, Some(state), Phase::Standby, true, true);
            assert_eq!(step, StandbyStep::GiveBack, "{state}");
        }
    }

    #[test]
    fn a_withdrawn_admission_is_not_used() {
        let step = choose_step(
            RecyclePath::Before,
            Some("InService"),
            Phase::Claimed,
            false,
            false,
        );
        assert!(matches!(step, StandbyStep::Refuse(_)), "{step:?}");
    }

    #[test]
    fn a_member_that_recycle_eks_put_into_standby_waits_for_its_replacement() {
        for state in ["EnteringStandby", "Standby"] {
            assert_eq!(
                choose_step(RecyclePath::Before, Some(state), Phase::Standby, true, true),
                StandbyStep::AwaitReplacement,
                "{state}"
            );
        }
    }

    #[test]
    fn a_state_that_another_tool_set_before_the_start_is_refused() {
        for state in [Some("Standby"), Some("Terminating:Wait"), Some("Pending"), None] {
            let step = choose_step(RecyclePath::Before, state, Phase::Claimed, false, false);
            assert!(matches!(step, StandbyStep::Refuse(_)), "{state:?}: {step:?}");
        }
    }

    #[test]
    fn a_node_that_is_taken_away_after_the_start_is_lost() {
        for state in [Some("Terminating"), Some("Detaching"), None] {
            let step = choose_step(RecyclePath::Before, state, Phase::Draining, true, true);
            assert!(matches!(step, StandbyStep::Lose(_)), "{state:?}: {step:?}");
        }
    }

    #[test]
    fn a_disposal_that_an_ended_execution_began_is_continued() {
        for state in [
            Some("Terminating"),
            Some("Terminating:Wait"),
            Some("Terminated"),
            None,
        ] {
            assert_eq!(
                choose_step(RecyclePath::Before, state, Phase::Disposing, true, false),
                StandbyStep::Proceed,
                "{state:?}"
            );
        }
    }
}
