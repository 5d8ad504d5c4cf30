//! What has to hold at the very moment of a call that cannot be taken back.

use recycle::contract::{WayIn, describe_instance};
use recycle::ids::InstanceId;
use recycle::input::Dispose;
use recycle::names::DRAINING_TAINT;
use recycle::node::{Instance, NodeFacts};

/// Somebody put the node to use again: it is not as we left it, so that we must not end it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} {state}, which was not our doing: it is not disposed of")]
pub struct NotAsLeft {
    subject: String,
    state: String,
}

/// Whether the end of the instance has begun, so that no pod of it can be saved any more.
pub(crate) fn is_going(dispose: Dispose, instance: Option<&Instance>, lifecycle_state: Option<&str>) -> bool {
    let Some(instance) = instance else { return true };
    let is_stopping = matches!(instance.state.as_str(), "stopping" | "stopped");
    let is_terminating =
        lifecycle_state.is_some_and(|state| state.starts_with("Terminat") && state != "Terminating:Retained");
    instance.is_gone() || is_terminating || (dispose == Dispose::Stop && is_stopping)
}

/// Checks that a running instance is still where we put it: in Standby, if it came in that way, and under our taint. A missing Node
/// cannot take pods.
pub(crate) fn check_as_left(
    id: &InstanceId,
    way_in: WayIn,
    lifecycle_state: Option<&str>,
    node: Option<&NodeFacts>,
) -> Result<(), NotAsLeft> {
    let not_as_left = |state: String| {
        let subject = describe_instance(id, node.map(|node| &node.name));
        Err(NotAsLeft { subject, state })
    };
    let is_in_place = match (way_in, lifecycle_state) {
        (WayIn::Before, Some("Standby")) | (WayIn::After, Some("InService")) => true,
        (WayIn::Hook, state) => state.is_some(),
        (WayIn::Before | WayIn::After, _) => false,
    };
    if !is_in_place {
        return not_as_left(match lifecycle_state {
            Some(state) => format!("is {state} in its group"),
            None => "has left its group".to_owned(),
        });
    }
    let lacks_taint = node.is_some_and(|node| node.taints.iter().all(|taint| taint.key != DRAINING_TAINT));
    if lacks_taint {
        not_as_left(format!("has lost the taint {DRAINING_TAINT}"))
    } else {
        Ok(())
    }
}
