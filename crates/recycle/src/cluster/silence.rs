//! Describes a node that is not Ready.

use crate::base::time::later;
use crate::cluster::node::NodeFacts;

/// Describes, in one sentence, that a node is not Ready, and when it counts as lost. None if it is Ready.
pub fn describe_silence(node: &NodeFacts, patience: u32) -> Option<String> {
    let since = node.not_ready_since?;
    let end = match patience {
        u32::MAX => "its pods tolerate that without a time limit, so it does not count as lost".to_owned(),
        seconds => format!("it counts as lost at {}", later(since, seconds)),
    };
    Some(format!(
        "node {} has not been Ready since {since}; {end}",
        node.name
    ))
}
