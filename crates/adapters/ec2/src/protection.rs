//! Protects other members from scale-in while the size or the membership of the group changes because of one instance.
//!
//! The record of that instance names the protected members. After a crash, the next execution or the sweep removes the protection of
//! these, and of no other member. A tag on each of them names the instance, for operators. Nothing follows the tag, because other
//! principals can write it.

use recycle::base::ids::{ClusterName, GroupName, InstanceId};
use recycle::base::names::PROTECTED_FOR_TAG;
use recycle::cluster::group::{Group, Member};

use crate::Error;
use crate::groups::Groups;
use crate::instances::Instances;

/// Protects members because of `cause`, whose record must name them already.
pub async fn protect(
    groups: &Groups,
    instances: &Instances,
    group: &GroupName,
    members: &[InstanceId],
    cause: &InstanceId,
) -> Result<(), Error> {
    instances
        .tag_all(members, &[(PROTECTED_FOR_TAG, cause.to_string())])
        .await?;
    groups.protect(group, members, true).await
}

/// Removes the protection, then the tags, of instances that [`Group::find_unprotectable`] has found.
/// An instance that has left the group, or is leaving it, has no protection left to remove.
/// The tags are removed where EC2 shows them: a call that names an instance which EC2 does not know is refused as a whole.
pub async fn unprotect(
    groups: &Groups,
    instances: &Instances,
    cluster: &ClusterName,
    group: Option<&Group>,
    protected: &[InstanceId],
    cause: &InstanceId,
) -> Result<(), Error> {
    if let Some(group) = group {
        let is_staying = |id: &&InstanceId| group.member(id).is_some_and(Member::can_be_protected);
        let members: Vec<InstanceId> = protected.iter().filter(is_staying).cloned().collect();
        if !members.is_empty() {
            groups.protect(&group.name, &members, false).await?;
        }
    }
    let tagged = instances
        .fetch_tagged(cluster, PROTECTED_FOR_TAG, cause.as_str())
        .await?;
    let is_tagged = |id: &&InstanceId| {
        let mut living = tagged.iter().filter(|instance| !instance.is_gone());
        living.any(|instance| instance.id == **id)
    };
    let tagged: Vec<InstanceId> = protected.iter().filter(is_tagged).cloned().collect();
    if tagged.is_empty() {
        return Ok(());
    }
    instances.untag_all(&tagged, &[PROTECTED_FOR_TAG]).await
}
