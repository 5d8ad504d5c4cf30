//! Checks which roles the cluster admits.

use crate::base::names::GROUP;
use crate::base::shell::quote;
use crate::doctor::facts::{Inside, Installation, Seen};
use crate::doctor::finding::Finding;
use crate::doctor::finding::judge;

/// The function that asks the API server for `doctor`.
pub(crate) const ASKER: &str = "select-nodes";

/// Whether the API server has let `select-nodes` in, however its role came in.
pub(crate) fn is_let_in(inside: &Seen<Inside>) -> bool {
    match inside {
        Seen::Found(inside) => match inside.api_server {
            Seen::Found(_) => true,
            Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_) => false,
        },
        Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_) => false,
    }
}

/// A role without an access entry may be mapped by the ConfigMap aws-auth, which we may not read: that it is one sees by `select-nodes`.
pub(crate) fn examine_entries(seen: &Installation, is_let_in: bool) -> Vec<Finding> {
    let has_entry = match seen.entries.get(ASKER) {
        Some(Seen::Found(entry)) => entry.is_some(),
        Some(Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_)) | None => true,
    };
    let is_mapped = is_let_in && !has_entry;
    let mode = judge("authentication", "", &seen.authentication, |mode| {
        vec![examine_mode(seen, mode, is_mapped)]
    });
    let entries = seen.entries.iter().flat_map(|(step, entry)| {
        judge("access entry", step, entry, |groups| {
            vec![examine_entry(step, groups.as_deref(), is_mapped)]
        })
    });
    mode.into_iter().chain(entries).collect()
}

fn examine_mode(seen: &Installation, mode: &str, is_mapped: bool) -> Finding {
    let check = "authentication";
    if mode != "CONFIG_MAP" {
        return Finding::ok(check, "", format!("mode {mode}"));
    }
    let mend = format!(
        "aws eks update-cluster-config --name {} --access-config authenticationMode=API_AND_CONFIG_MAP, then apply the Terraform module \
         again with create_access_entries = true",
        quote(&seen.cluster)
    );
    if is_mapped {
        return Finding::warning(
            check,
            "",
            "mode CONFIG_MAP: roles are let in by the ConfigMap aws-auth alone, which EKS has deprecated",
            mend,
        );
    }
    Finding::problem(
        check,
        "",
        "mode CONFIG_MAP has no access entries, and the functions are not let in otherwise",
        mend,
    )
}

fn examine_entry(step: &str, groups: Option<&[String]>, is_mapped: bool) -> Finding {
    let check = "access entry";
    let mend = "Apply the Terraform module again, or make the entry for the role (output role_arns).";
    match groups {
        None if is_mapped && step == ASKER => Finding::warning(
            check,
            step,
            "its role has none, and is let in all the same: by the ConfigMap aws-auth",
            mend,
        ),
        None if is_mapped => Finding::warning(
            check,
            step,
            format!(
                "its role has none: it is let in if the ConfigMap aws-auth maps it, as it does that of {ASKER}"
            ),
            mend,
        ),
        None => Finding::problem(
            check,
            step,
            "its role has none: the cluster does not know the function",
            mend,
        ),
        Some(groups) if groups.iter().any(|group| group == GROUP) => {
            Finding::ok(check, step, format!("in the group {GROUP}"))
        }
        Some(groups) => Finding::problem(
            check,
            step,
            format!(
                "its role is not in the group {GROUP}, but in [{}]",
                groups.join(", ")
            ),
            mend,
        ),
    }
}
