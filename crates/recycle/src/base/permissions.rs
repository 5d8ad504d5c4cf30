//! The permissions of the functions in the cluster, by Kubernetes group.
//!
//! The manifest is generated from this table, `terraform/access.tf` puts each function into its groups, and pre-flight and `doctor` ask
//! the API server about each permission.

use std::fmt;

use crate::base::named::named;
use crate::base::names::NAMESPACE;

named! {
    /// A Kubernetes group of access entries. Its role in the cluster and the role's binding have the same name.
    pub enum AccessGroup {
        /// Reads Nodes, Leases, pods, volumes and devices.
        Read = "recycle-eks-read",
        /// Changes Nodes, creates and deletes Leases, and records Events.
        Write = "recycle-eks-write",
        /// Changes Leases: the claims and records of the functions, and the end of a drain that an operator asks for.
        Lease = "recycle-eks-lease",
        Evict = "recycle-eks-evict",
        /// Asks the API server about the permissions of groups.
        Review = "recycle-eks-review",
    }
}

impl fmt::Display for AccessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One verb on one resource: a right of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    pub group: AccessGroup,
    /// The only namespace in which the permission holds. None for the whole cluster.
    pub namespace: Option<&'static str>,
    /// API group; empty for the core group.
    pub api_group: &'static str,
    /// Resource, with its subresource if any, such as `pods/eviction`.
    pub resource: &'static str,
    pub verb: &'static str,
    /// The functions that make this call.
    pub functions: &'static [&'static str],
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.api_group.is_empty() {
            write!(f, ".{}", self.api_group)?;
        }
        match self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// The functions that ask the API server about the permissions of all groups.
const ASKING: &[&str] = &["claim-node", "serve-operator"];
/// The functions of `recycle-node`.
const STEPS: &[&str] = &[
    "claim-node",
    "standby-node",
    "taint-node",
    "check-pods",
    "evict-pods",
    "detach-terminate",
    "restore-node",
];
/// The functions that find a Node by its name, and its Lease.
const FINDING: &[&str] = &[
    "claim-node",
    "standby-node",
    "taint-node",
    "check-pods",
    "evict-pods",
    "detach-terminate",
    "restore-node",
    "serve-operator",
];
/// The functions that list Nodes: all that call Kubernetes.
const READING: &[&str] = &[
    "claim-node",
    "standby-node",
    "taint-node",
    "check-pods",
    "evict-pods",
    "detach-terminate",
    "restore-node",
    "select-nodes",
    "serve-operator",
];
const READING_PODS: &[&str] = &[
    "claim-node",
    "check-pods",
    "evict-pods",
    "detach-terminate",
    "restore-node",
    "select-nodes",
];
/// The functions that find out which nodes can use the volumes of a pod.
const READING_VOLUMES: &[&str] = &["claim-node", "check-pods", "evict-pods", "detach-terminate"];

/// Exactly the calls that the functions make. The permissions of a group are adjacent, and so are the verbs of one resource.
pub const PERMISSIONS: &[Permission] = &[
    in_core_group(AccessGroup::Read, "nodes", "get", FINDING),
    in_core_group(AccessGroup::Read, "nodes", "list", READING),
    in_core_group(AccessGroup::Read, "pods", "list", READING_PODS),
    in_core_group(
        AccessGroup::Read,
        "persistentvolumeclaims",
        "get",
        READING_VOLUMES,
    ),
    in_core_group(AccessGroup::Read, "persistentvolumes", "get", READING_VOLUMES),
    Permission {
        api_group: "policy",
        ..in_core_group(AccessGroup::Read, "poddisruptionbudgets", "list", &["claim-node"])
    },
    Permission {
        api_group: "resource.k8s.io",
        ..in_core_group(
            AccessGroup::Read,
            "resourceslices",
            "list",
            &["claim-node", "standby-node", "taint-node"],
        )
    },
    on_leases(AccessGroup::Read, "get", FINDING),
    on_leases(
        AccessGroup::Read,
        "list",
        &[
            "claim-node",
            "standby-node",
            "detach-terminate",
            "restore-node",
            "select-nodes",
            "serve-operator",
        ],
    ),
    in_core_group(AccessGroup::Write, "nodes", "patch", STEPS),
    in_core_group(
        AccessGroup::Write,
        "pods/status",
        "patch",
        &["check-pods", "restore-node"],
    ),
    in_core_group(AccessGroup::Write, "events", "create", STEPS),
    on_leases(AccessGroup::Write, "create", &["claim-node", "restore-node"]),
    on_leases(
        AccessGroup::Write,
        "delete",
        &["detach-terminate", "restore-node"],
    ),
    on_leases(
        AccessGroup::Lease,
        "patch",
        &[
            "claim-node",
            "standby-node",
            "taint-node",
            "check-pods",
            "detach-terminate",
            "restore-node",
            "serve-operator",
        ],
    ),
    in_core_group(AccessGroup::Evict, "pods/eviction", "create", &["evict-pods"]),
    in_core_group(AccessGroup::Evict, "pods", "delete", &["evict-pods"]),
    REVIEW,
];

/// The permission to ask about permissions. A function without it learns nothing about the others.
pub const REVIEW: Permission = Permission {
    group: AccessGroup::Review,
    namespace: None,
    api_group: "authorization.k8s.io",
    resource: "subjectaccessreviews",
    verb: "create",
    functions: ASKING,
};

const fn in_core_group(
    group: AccessGroup,
    resource: &'static str,
    verb: &'static str,
    functions: &'static [&'static str],
) -> Permission {
    Permission {
        group,
        namespace: None,
        api_group: "",
        resource,
        verb,
        functions,
    }
}

const fn on_leases(group: AccessGroup, verb: &'static str, functions: &'static [&'static str]) -> Permission {
    Permission {
        group,
        namespace: Some(NAMESPACE),
        api_group: "coordination.k8s.io",
        resource: "leases",
        verb,
        functions,
    }
}

/// Returns the groups that a function needs for its calls. None for a function that does not call Kubernetes.
pub fn groups_of(function: &str) -> Vec<AccessGroup> {
    let needs = |group: &AccessGroup| {
        let mut own = PERMISSIONS.iter().filter(|permission| permission.group == *group);
        own.any(|permission| permission.functions.contains(&function))
    };
    AccessGroup::ALL.into_iter().filter(needs).collect()
}

/// Describes missing permissions, in one text for each group.
pub fn describe_missing(missing: &[Permission]) -> Vec<String> {
    let each = missing.chunk_by(|one, next| one.group == next.group);
    each.filter_map(|permissions| {
        let group = permissions.first()?.group;
        let calls: Vec<String> = permissions.iter().map(ToString::to_string).collect();
        Some(format!("the group {group} may not {}", calls.join(", ")))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::find_permission;

    #[test]
    fn each_resource_has_its_api_group() {
        let mut named: Vec<_> = PERMISSIONS
            .iter()
            .filter(|permission| !permission.api_group.is_empty())
            .map(|permission| (permission.api_group, permission.resource))
            .collect();
        named.sort_unstable();
        named.dedup();
        assert_eq!(
            named,
            [
                ("authorization.k8s.io", "subjectaccessreviews"),
                ("coordination.k8s.io", "leases"),
                ("policy", "poddisruptionbudgets"),
                ("resource.k8s.io", "resourceslices"),
            ]
        );
    }

    #[test]
    fn no_permission_is_listed_twice_and_none_is_a_wildcard() {
        let of = |permission: &Permission| {
            (
                permission.namespace,
                permission.api_group,
                permission.resource,
                permission.verb,
            )
        };
        let mut sorted: Vec<_> = PERMISSIONS.iter().map(of).collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), PERMISSIONS.len());
        for permission in PERMISSIONS {
            assert!(
                permission.verb != "*" && permission.resource != "*",
                "{permission}"
            );
            assert!(!permission.functions.is_empty(), "{permission}");
        }
    }

    #[test]
    fn the_permissions_of_a_group_are_adjacent() {
        let groups: Vec<_> = PERMISSIONS
            .chunk_by(|one, next| one.group == next.group)
            .collect();
        assert_eq!(groups.len(), AccessGroup::ALL.len());
    }

    #[test]
    fn a_permission_reads_as_verb_and_resource() {
        let texts: Vec<String> = PERMISSIONS.iter().map(ToString::to_string).collect();
        for expected in [
            "create pods/eviction",
            "create subjectaccessreviews.authorization.k8s.io",
            "get leases.coordination.k8s.io in namespace recycle-eks",
        ] {
            assert!(texts.iter().any(|text| text == expected), "{expected}: {texts:?}");
        }
    }

    #[test]
    fn only_one_function_evicts_and_only_the_asking_ones_review() {
        let functions = |group| {
            let all = READING.iter().copied();
            all.filter(|function| groups_of(function).contains(&group))
                .collect::<Vec<_>>()
        };
        assert_eq!(functions(AccessGroup::Evict), ["evict-pods"]);
        assert_eq!(functions(AccessGroup::Review), ASKING);
        assert_eq!(functions(AccessGroup::Read), READING);
        assert_eq!(groups_of("select-nodes"), [AccessGroup::Read]);
        assert!(groups_of("start-rotation").is_empty());
    }

    #[test]
    fn missing_permissions_are_described_by_group() {
        assert_eq!(
            describe_missing(&["list nodes", "list pods", "create pods/eviction"].map(find_permission)),
            [
                "the group recycle-eks-read may not list nodes, list pods",
                "the group recycle-eks-evict may not create pods/eviction",
            ]
        );
        assert!(describe_missing(&[]).is_empty());
    }

    /// `terraform/access.tf` has the groups of each function in `kubernetes_groups`.
    #[test]
    fn terraform_puts_each_function_into_its_groups_and_no_others() {
        let text = include_str!("../../../../terraform/access.tf");
        let (_, rest) = text.split_once("kubernetes_groups = {\n").unwrap();
        let (block, _) = rest.split_once("  }\n").unwrap();
        let in_terraform: Vec<(String, Vec<String>)> = block
            .lines()
            .map(|line| {
                let (function, groups) = line.split_once('=').unwrap();
                let groups = groups.split('"').skip(1).step_by(2).map(str::to_owned);
                (function.trim().to_owned(), groups.collect())
            })
            .collect();
        let expected: Vec<(String, Vec<String>)> = READING
            .iter()
            .map(|function| {
                let groups = groups_of(function).into_iter();
                (
                    (*function).to_owned(),
                    groups.map(|group| group.to_string()).collect(),
                )
            })
            .collect();
        assert_eq!(in_terraform, expected);
    }
}
