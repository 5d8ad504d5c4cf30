//! Checks right before a call that cannot be undone that the node is still as recycle-eks left it.

use recycle::base::failure::Failure;
use recycle::base::ids::InstanceId;
use recycle::base::names::DRAINING_TAINT;
use recycle::cluster::hook::{RETAINED, WAITING};
use recycle::cluster::instance::{Instance, describe_instance};
use recycle::cluster::node::{NodeFacts, is_draining_taint};
use recycle::input::model::Dispose;
use recycle::input::path::RecyclePath;

use crate::Error;
use crate::facts::FetchedFacts;

impl FetchedFacts {
    pub(crate) fn is_going(&self) -> bool {
        let (dispose, state) = (self.run.input.dispose, self.lifecycle_state());
        // A lost node that has left its group, for whatever reason, leaves nothing to do.
        let has_left = self.run.lost.is_some() && is_out(state);
        has_left || is_going(dispose, self.run.path, self.instance.as_ref(), state)
    }

    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        let (id, state) = (&self.run.input.instance_id, self.lifecycle_state());
        check_unchanged(id, self.run.path, state, self.node.as_ref())
            .map_err(|text| Error::Ended(Failure::ServiceRefused, text))
    }
}

/// Checks whether the instance is out of its group, or is being detached.
fn is_out(lifecycle_state: Option<&str>) -> bool {
    lifecycle_state.is_none_or(|state| state.starts_with("Detach"))
}

/// Checks whether the end of the instance has begun, so that its pods can no longer be saved.
fn is_going(
    dispose: Dispose,
    path: RecyclePath,
    instance: Option<&Instance>,
    lifecycle_state: Option<&str>,
) -> bool {
    let Some(instance) = instance else { return true };
    // On the hook path the instance stays until the hook is completed.
    let is_held = |state: &str| {
        state == RETAINED || (path == RecyclePath::Hook && matches!(state, "Terminating" | WAITING))
    };
    let is_terminating =
        lifecycle_state.is_some_and(|state| state.starts_with("Terminat") && !is_held(state));
    let goes_as_asked = match dispose {
        Dispose::Terminate => false,
        Dispose::Stop => matches!(instance.state.as_str(), "stopping" | "stopped"),
        Dispose::Detach => is_out(lifecycle_state),
    };
    instance.is_gone() || is_terminating || goes_as_asked
}

/// Checks that a running instance is still where recycle-eks put or left it: under the draining taint, in Standby on the `before` path, and
/// in service on the paths `after` and `surge`.
/// A node that an operator or another tool has put to use again must not be ended, although this execution still holds the claim.
/// A missing Node cannot take pods. The error text describes the state.
fn check_unchanged(
    id: &InstanceId,
    path: RecyclePath,
    lifecycle_state: Option<&str>,
    node: Option<&NodeFacts>,
) -> Result<(), String> {
    let is_in_place = match (path, lifecycle_state) {
        (RecyclePath::Before, Some("Standby" | "EnteringStandby"))
        | (RecyclePath::After | RecyclePath::Surge, Some("InService")) => true,
        (RecyclePath::Hook, state) => state.is_some(),
        (RecyclePath::Before | RecyclePath::After | RecyclePath::Surge, _) => false,
    };
    let lacks_taint = node.is_some_and(|node| !node.taints.iter().any(is_draining_taint));
    let state = match lifecycle_state {
        Some(_) | None if is_in_place && !lacks_taint => return Ok(()),
        Some(_) | None if is_in_place => format!("has lost the taint {DRAINING_TAINT}"),
        Some(state) => format!("is {state} in its group"),
        None => "has left its group".to_owned(),
    };
    let subject = describe_instance(id, node.map(|node| &node.name));
    Err(format!(
        "{subject} {state}, which recycle-eks did not do: it is not disposed of"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{id, instance, node};

    #[test]
    fn an_instance_is_going_once_its_end_cannot_be_stopped() {
        let cases = [
            (Dispose::Terminate, "running", Some("Standby"), false),
            (Dispose::Terminate, "running", Some("Terminating:Wait"), true),
            (Dispose::Terminate, "running", Some("Terminating:Retained"), false),
            (Dispose::Terminate, "running", None, false),
            (Dispose::Terminate, "shutting-down", Some("Standby"), true),
            // An operator or another tool stopped the instance: it can be started again.
            (Dispose::Terminate, "stopped", Some("Standby"), false),
            (Dispose::Stop, "stopping", Some("Standby"), true),
            (Dispose::Stop, "running", Some("Standby"), false),
            (Dispose::Stop, "running", None, false),
            (Dispose::Detach, "running", Some("Standby"), false),
            (Dispose::Detach, "running", Some("Detaching"), true),
            (Dispose::Detach, "running", None, true),
        ];
        for (dispose, state, lifecycle_state, expected) in cases {
            let instance = instance(state);
            assert_eq!(
                is_going(dispose, RecyclePath::Before, Some(&instance), lifecycle_state),
                expected,
                "{dispose:?} {state} {lifecycle_state:?}"
            );
        }
        assert!(is_going(Dispose::Terminate, RecyclePath::Before, None, None));
    }

    #[test]
    fn on_the_hook_path_an_instance_is_going_only_after_the_hook_is_completed() {
        let running = instance("running");
        for (state, expected) in [
            ("Terminating", false),
            ("Terminating:Wait", false),
            ("Terminating:Retained", false),
            ("Terminating:Proceed", true),
        ] {
            let is_going = is_going(Dispose::Terminate, RecyclePath::Hook, Some(&running), Some(state));
            assert_eq!(is_going, expected, "{state}");
        }
    }

    #[test]
    fn a_tainted_node_in_standby_is_unchanged() {
        for state in ["Standby", "EnteringStandby"] {
            assert_eq!(
                check_unchanged(&id(), RecyclePath::Before, Some(state), Some(&node())),
                Ok(())
            );
        }
        assert_eq!(
            check_unchanged(&id(), RecyclePath::Before, Some("Standby"), None),
            Ok(())
        );
    }

    #[test]
    fn a_node_that_was_put_to_use_again_is_refused() {
        for (state, text) in [
            (Some("InService"), "is InService in its group"),
            (None, "has left its group"),
        ] {
            let refusal = check_unchanged(&id(), RecyclePath::Before, state, Some(&node())).unwrap_err();
            assert!(refusal.contains(text), "{refusal}");
        }
        let mut untainted = node();
        untainted.taints.clear();
        let refusal =
            check_unchanged(&id(), RecyclePath::Before, Some("Standby"), Some(&untainted)).unwrap_err();
        assert!(refusal.contains("has lost the taint"), "{refusal}");
    }
}
