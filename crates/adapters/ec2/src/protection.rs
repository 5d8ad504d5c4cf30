//! Protects other members from scale-in while the size or the membership of the group changes because of one instance.
//!
//! A tag on each protected member names that instance. After a crash, the next execution or the sweep finds the tag and removes the
//! protection.

use recycle::base::ids::{GroupName, InstanceId};
use recycle::base::names::PROTECTED_FOR_TAG;
use recycle::cluster::group::{Group, Member};

use crate::Error;
use crate::groups::Groups;
use crate::instances::Instances;

/// Protects members because of `cause`. The tags come first, because the execution or the sweep that finds a tag removes the protection.
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

/// Finds the instances that are tagged as protected because of `cause`, except those that are terminated or about to be.
pub async fn find_protected(instances: &Instances, cause: &InstanceId) -> Result<Vec<InstanceId>, Error> {
    let tagged = instances.fetch_tagged(PROTECTED_FOR_TAG, cause.as_str()).await?;
    let living = tagged.into_iter().filter(|instance| !instance.is_gone());
    Ok(living.map(|instance| instance.id).collect())
}

/// Removes the protection, then the tags, of instances that [`Group::find_unprotectable`] has found.
/// An instance that has left the group, or is leaving it, has no protection left to remove.
pub async fn unprotect(
    groups: &Groups,
    instances: &Instances,
    group: Option<&Group>,
    protected: &[InstanceId],
) -> Result<(), Error> {
    if let Some(group) = group {
        let is_staying = |id: &&InstanceId| group.member(id).is_some_and(Member::can_be_protected);
        let members: Vec<InstanceId> = protected.iter().filter(is_staying).cloned().collect();
        if !members.is_empty() {
            groups.protect(&group.name, &members, false).await?;
        }
    }
    instances.untag_all(protected, &[PROTECTED_FOR_TAG]).await
}
