//! Since when a pod that comes to a Node is late, if it tolerates our taint.

use jiff::Timestamp;
use recycle::cluster::node::{NodeFacts, is_draining_taint};
use recycle::records::node_record::UnreadableRecord;

/// Since when a pod that comes to this Node tolerates our taint. None if the taint is not there (any more), or if nobody
/// recorded it: any pod may come then, and all of them count.
///
/// The record says when it was decided to set the taint, which may have taken a quarter of an hour of tries since; a pod that
/// came in meanwhile tolerates nothing. `draining_since` is when `check-pods` first looked, and the taint was there by then.
pub fn tainted_since(
    node: &NodeFacts,
    draining_since: Option<Timestamp>,
) -> Result<Option<Timestamp>, UnreadableRecord> {
    let record = node.record()?;
    let is_tainted = node.taints.iter().any(is_draining_taint);
    Ok(record
        .tainted_at
        .filter(|_| is_tainted)
        .map(|at| draining_since.map_or(at, |since| at.max(since))))
}
