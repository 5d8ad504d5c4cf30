//! Lists the permissions of recycle-eks in the cluster.
//!
//! The ClusterRole is generated from this list. `doctor` checks each entry with a SelfSubjectAccessReview.

use std::fmt;

use crate::base::names::GROUP;

/// One verb on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, with its subresource if any, such as `pods/eviction`.
    pub resource: &'static str,
    pub verb: &'static str,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

/// Exactly the verbs that the functions use. The verbs of one resource are adjacent.
pub const PERMISSIONS: &[Permission] = &[
    in_core_group("nodes", "get"),
    in_core_group("nodes", "list"),
    in_core_group("nodes", "patch"),
    in_core_group("pods", "list"),
    in_core_group("pods/eviction", "create"),
    in_core_group("persistentvolumeclaims", "get"),
    in_core_group("persistentvolumes", "get"),
    in_core_group("events", "create"),
];

const fn in_core_group(resource: &'static str, verb: &'static str) -> Permission {
    Permission {
        group: "",
        resource,
        verb,
    }
}

/// Renders the manifest `terraform/rbac/recycle-eks.yaml`.
#[must_use]
pub fn render_manifest() -> String {
    let rules: String = PERMISSIONS
        .chunk_by(|one, next| (one.group, one.resource) == (next.group, next.resource))
        .map(render_rule)
        .collect();
    format!(
        "\
# Generated from crates/recycle/src/reference/permissions.rs by `{COMMAND}`.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {GROUP}
rules:
{rules}---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {GROUP}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {GROUP}
subjects:
  - apiGroup: rbac.authorization.k8s.io
    kind: Group
    name: {GROUP}
"
    )
}

/// The command that regenerates the manifest.
const COMMAND: &str = "cargo run -q -p recycle --example rbac > terraform/rbac/recycle-eks.yaml";

fn render_rule(permissions: &[Permission]) -> String {
    let Some(Permission { group, resource, .. }) = permissions.first() else {
        return String::new();
    };
    let verbs: Vec<&str> = permissions.iter().map(|permission| permission.verb).collect();
    format!("  - apiGroups: [{group:?}]\n    resources: [{resource:?}]\n    verbs: {verbs:?}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_manifest_matches_the_generated_one() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../terraform/rbac/recycle-eks.yaml"
        );
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == render_manifest(),
            "the manifest differs from permissions.rs; run: {COMMAND}"
        );
    }

    #[test]
    fn no_permission_is_listed_twice_and_none_is_a_wildcard() {
        let mut sorted = PERMISSIONS.to_vec();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), PERMISSIONS.len());
        assert!(
            PERMISSIONS
                .iter()
                .all(|permission| permission.verb != "*" && permission.resource != "*")
        );
    }

    #[test]
    fn a_permission_reads_as_verb_and_resource() {
        assert_eq!(PERMISSIONS[4].to_string(), "create pods/eviction");
    }
}
