//! The boxes that an execution of `recycle-node` is shown in.

/// The boxes of the picture, each with the states that belong to it (`state-machine/recycle-node.asl.json`; a contract test knows them all).
/// A box has the name of the state that calls its function, and says how often the execution came to that state.
pub(crate) const BOXES: [(&str, &[&str]); 6] = [
    ("ClaimNode", &["ClaimNode", "WaitForTurn", "DescribeClaimOwner"]),
    ("StandbyNode", &["StandbyNode", "WaitForReplacement"]),
    ("TaintNode", &["TaintNode"]),
    (
        "CheckPods",
        &["CheckPods", "EvictPods", "WaitForPods", "RecordHeartbeat"],
    ),
    ("DetachTerminate", &["DetachTerminate", "WaitForDisposal"]),
    ("RestoreNode", &["RestoreNode", "WaitForRestore"]),
];

/// Whether a state belongs to a box.
#[must_use]
pub(crate) fn has_box(state: &str) -> bool {
    BOXES.iter().any(|(_, states)| states.contains(&state))
}
