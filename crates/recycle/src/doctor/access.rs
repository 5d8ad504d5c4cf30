//! Checks which roles the cluster admits.

use crate::base::permissions::{AccessGroup, groups_of};
use crate::base::shell::quote;
use crate::doctor::facts::{Inside, Installation, Seen};
use crate::doctor::finding::{Check, Finding};

/// The function that calls the API server for `doctor`.
pub(crate) const ASKER: &str = "serve-operator";

/// Checks the access entries of the functions' roles. The ConfigMap aws-auth may map a role that has no entry, and doctor may not read it.
/// If `serve-operator` has no entry and reaches the API server, the ConfigMap maps its role.
pub(crate) fn examine_entries(seen: &Installation, inside: &Seen<Inside>) -> Vec<Finding> {
    let api_server = inside.as_ref().and_then(|inside| inside.api_server.as_ref());
    let entry = seen.entries.get(ASKER).map(Seen::as_ref);
    let has_entry = entry.and_then(Seen::found).is_none_or(Option::is_some);
    let is_mapped = api_server.found().is_some() && !has_entry;
    let check = Check::only("authentication");
    let mode = check.judge(&seen.authentication, |mode| examine_mode(seen, mode, is_mapped));
    let entries = seen.entries.iter();
    let entries = entries.map(|(step, entry)| examine_entry(step, entry, is_mapped));
    std::iter::once(mode).chain(entries).collect()
}

fn examine_mode(seen: &Installation, mode: &str, is_mapped: bool) -> Finding {
    let check = Check::only("authentication");
    if mode != "CONFIG_MAP" {
        return check.ok(format!("mode {mode}"));
    }
    let remedy = format!(
        "aws eks update-cluster-config --name {} --access-config authenticationMode=API_AND_CONFIG_MAP # then apply the Terraform module \
         again with create_access_entries = true",
        quote(&seen.cluster)
    );
    if is_mapped {
        return check.warning(
            "mode CONFIG_MAP: only the ConfigMap aws-auth admits roles, and EKS has deprecated it",
            remedy,
        );
    }
    check.problem(
        "mode CONFIG_MAP has no access entries, and the cluster does not admit the functions otherwise",
        remedy,
    )
}

fn examine_entry(step: &str, entry: &Seen<Option<Vec<String>>>, is_mapped: bool) -> Finding {
    let check = Check::new("access entry", step);
    let remedy = "Apply the Terraform module again, or create the access entry for the role (outputs role_arns and kubernetes_groups).";
    check.judge(entry, |groups| match groups {
        None if is_mapped && step == ASKER => check.warning(
            "its role has no access entry; the ConfigMap aws-auth admits it",
            remedy,
        ),
        None if is_mapped => check.warning(
            format!(
                "its role has no access entry: the cluster admits it only if the ConfigMap aws-auth maps it, like the role of {ASKER}"
            ),
            remedy,
        ),
        None => check.problem(
            "its role has no access entry: the cluster does not know the function",
            remedy,
        ),
        Some(groups) => match judge_groups(step, groups) {
            Ok(found) => check.ok(found),
            Err(found) => check.problem(found, remedy),
        },
    })
}

/// Compares the groups of an entry with those that the function needs. An entry may have groups that are not recycle-eks' own.
fn judge_groups(step: &str, groups: &[String]) -> Result<String, String> {
    let needed = groups_of(step);
    let is_in = |group: &AccessGroup| groups.iter().any(|own| own == group.name());
    let own: Vec<AccessGroup> = AccessGroup::ALL.into_iter().filter(is_in).collect();
    let names = needed.iter().map(ToString::to_string).collect::<Vec<_>>();
    let names = names.join(", ");
    if own == needed {
        return Ok(format!("in {names}"));
    }
    let groups = groups.join(", ");
    Err(format!(
        "its role needs the groups [{names}] and no others of recycle-eks, but is in [{groups}]"
    ))
}
