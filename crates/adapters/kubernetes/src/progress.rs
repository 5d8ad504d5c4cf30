//! The story for people in the annotation `recycle-eks/progress`.

use recycle::cluster::node::NodeFacts;
use recycle::records::progress::Progress;

use crate::{Error, NodeChange, change_node};

/// What was told last; none also if somebody edited it: it is written anew then.
#[must_use]
pub fn read_progress(node: &NodeFacts) -> Option<Progress> {
    node.progress()
}

/// Tells it, if it is not what was told last. If somebody else changed the Node at the same moment, nothing is written and
/// nothing is wrong: the next poll tells it.
pub async fn tell_progress(
    client: &kube::Client,
    node: &NodeFacts,
    progress: &Progress,
) -> Result<(), Error> {
    if read_progress(node).as_ref() == Some(progress) {
        return Ok(());
    }
    match change_node(client, node, NodeChange::new().progress(progress)?).await {
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
