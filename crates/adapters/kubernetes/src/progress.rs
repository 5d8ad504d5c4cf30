//! Reads and writes the progress for operators in the annotation `recycle-eks/progress`.

use recycle::cluster::node::NodeFacts;
use recycle::records::progress::Progress;

use crate::{Error, NodeChange, change_node};

/// Returns the progress that was written last. None if there is none, or if it cannot be read, for example after an edit.
/// The next write then replaces it.
pub fn read_progress(node: &NodeFacts) -> Option<Progress> {
    node.progress()
}

/// Writes the progress, unless the annotation already says the same.
/// If another client changed the Node at the same moment, nothing is written and no error is returned. The next check writes it.
pub async fn write_progress(
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
