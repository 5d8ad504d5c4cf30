//! What to do next, from where the member stands in its group.

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StandbyStep {
    /// Record and call EnterStandby.
    Enter,
    /// It is in Standby because of us: look at the replacement.
    AwaitReplacement,
    /// Nothing of ours was done, and now it is not possible; its state in words.
    Refuse(String),
    /// We had begun, and it was taken away; its state in words.
    Lose(String),
}

/// Decides the next step. `has_begun` says that the members before EnterStandby are recorded.
pub(crate) fn choose_step(lifecycle_state: Option<&str>, has_begun: bool) -> StandbyStep {
    match (lifecycle_state, has_begun) {
        // Also after we had begun: we crashed before the call, or somebody brought it back.
        (Some("InService"), _) => StandbyStep::Enter,
        (Some("EnteringStandby" | "Standby"), true) => StandbyStep::AwaitReplacement,
        (Some(state), true) => StandbyStep::Lose(format!("was put into {state} by somebody else")),
        (Some(state), false) => StandbyStep::Refuse(format!("is {state} and not InService")),
        (None, true) => StandbyStep::Lose("is no longer a member".to_owned()),
        (None, false) => StandbyStep::Refuse("is not a member any more".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_in_service_enters_standby_even_if_we_had_begun_before() {
        assert_eq!(choose_step(Some("InService"), false), StandbyStep::Enter);
        assert_eq!(choose_step(Some("InService"), true), StandbyStep::Enter);
    }

    #[test]
    fn standby_of_our_own_waits_for_the_replacement() {
        for state in ["EnteringStandby", "Standby"] {
            assert_eq!(
                choose_step(Some(state), true),
                StandbyStep::AwaitReplacement,
                "{state}"
            );
        }
    }

    #[test]
    fn what_somebody_else_did_before_us_is_refused() {
        for state in [Some("Standby"), Some("Terminating:Wait"), Some("Pending"), None] {
            assert!(
                matches!(choose_step(state, false), StandbyStep::Refuse(_)),
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_node_that_is_taken_away_under_us_is_lost() {
        for state in [Some("Terminating"), Some("Detaching"), None] {
            assert!(
                matches!(choose_step(state, true), StandbyStep::Lose(_)),
                "{state:?}"
            );
        }
    }
}
