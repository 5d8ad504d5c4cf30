//! Our taint on a Node, and since when pods on the Node tolerate it.

use jiff::Timestamp;
use recycle::ids::InstanceId;
use recycle::names::DRAINING_TAINT;
use recycle::node::{NodeFacts, Taint, UnreadableRecord};

/// Never `NoExecute`, which would bypass disruption budgets.
const EFFECT: &str = "NoSchedule";

/// The taint as we set it; its value says for which instance.
#[must_use]
pub fn draining_taint(instance: &InstanceId) -> Taint {
    Taint {
        key: DRAINING_TAINT.to_owned(),
        value: Some(instance.to_string()),
        effect: EFFECT.to_owned(),
        time_added: None,
    }
}

/// Whether a taint stands where ours does: Kubernetes allows one of a key and an effect.
#[must_use]
pub fn is_draining_taint(taint: &Taint) -> bool {
    taint.key == DRAINING_TAINT && taint.effect == EFFECT
}

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
