//! Prints the permissions of recycle-eks in the cluster: `terraform/rbac/recycle-eks.yaml`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::collections::BTreeSet;

use recycle::base::permissions::{AccessGroup, PERMISSIONS, Permission};

/// The command that regenerates the manifest.
const COMMAND: &str = "cargo run -q -p recycle --example rbac > terraform/rbac/recycle-eks.yaml";

fn main() {
    print!("{}", render_manifest());
}

fn render_manifest() -> String {
    let documents = render_documents(PERMISSIONS).join("---\n");
    format!("# Generated from crates/recycle/src/base/permissions.rs by `{COMMAND}`.\n{documents}")
}

/// Renders the namespaces, then a role and its binding for each group: in the cluster, and in each namespace that the group needs.
fn render_documents(permissions: &[Permission]) -> Vec<String> {
    let namespaces: BTreeSet<&str> = permissions
        .iter()
        .filter_map(|permission| permission.namespace)
        .collect();
    let namespaces = namespaces.into_iter().map(render_namespace);
    let roles = permissions
        .chunk_by(|one, next| (one.group, one.namespace) == (next.group, next.namespace))
        .filter_map(|own| Some((own.first()?, own)))
        .flat_map(|(first, own)| render_role(first.group, first.namespace, own));
    namespaces.chain(roles).collect()
}

fn render_namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}

/// Renders a role and its binding to the group. Role and binding have the group's name.
fn render_role(group: AccessGroup, namespace: Option<&str>, own: &[Permission]) -> [String; 2] {
    let (kind, place) = match namespace {
        None => ("ClusterRole", String::new()),
        Some(namespace) => ("Role", format!("  namespace: {namespace}\n")),
    };
    let rules: String = own
        .chunk_by(|one, next| (one.api_group, one.resource) == (next.api_group, next.resource))
        .map(render_rule)
        .collect();
    let role = format!(
        "\
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata:
  name: {group}
{place}rules:
{rules}"
    );
    let binding = format!(
        "\
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}Binding
metadata:
  name: {group}
{place}roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {kind}
  name: {group}
subjects:
  - apiGroup: rbac.authorization.k8s.io
    kind: Group
    name: {group}
"
    );
    [role, binding]
}

fn render_rule(permissions: &[Permission]) -> String {
    let Some(Permission {
        api_group, resource, ..
    }) = permissions.first()
    else {
        return String::new();
    };
    let verbs: Vec<&str> = permissions.iter().map(|permission| permission.verb).collect();
    format!("  - apiGroups: [{api_group:?}]\n    resources: [{resource:?}]\n    verbs: {verbs:?}\n")
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
    fn a_permission_in_a_namespace_is_in_a_role_there_and_the_namespace_comes_first() {
        let of = |verb, namespace: Option<&'static str>| Permission {
            group: AccessGroup::Write,
            namespace,
            api_group: "example.org",
            resource: "things",
            verb,
            functions: &["evict-pods"],
        };
        let permissions = [
            of("get", None),
            of("create", Some("apart")),
            of("patch", Some("apart")),
        ];
        let documents = render_documents(&permissions);
        let heads: Vec<Vec<&str>> = documents
            .iter()
            .map(|document| document.lines().take(5).skip(1).collect())
            .collect();
        assert_eq!(
            heads,
            [
                vec!["kind: Namespace", "metadata:", "  name: apart"],
                vec![
                    "kind: ClusterRole",
                    "metadata:",
                    "  name: recycle-eks-write",
                    "rules:"
                ],
                vec![
                    "kind: ClusterRoleBinding",
                    "metadata:",
                    "  name: recycle-eks-write",
                    "roleRef:"
                ],
                vec![
                    "kind: Role",
                    "metadata:",
                    "  name: recycle-eks-write",
                    "  namespace: apart"
                ],
                vec![
                    "kind: RoleBinding",
                    "metadata:",
                    "  name: recycle-eks-write",
                    "  namespace: apart"
                ],
            ]
        );
        assert!(documents[3].contains("resources: [\"things\"]\n    verbs: [\"create\", \"patch\"]\n"));
        assert!(documents[4].contains("  kind: Role\n"));
    }
}
