//! What we may do in the cluster: the ClusterRole, SelfSubjectAccessReview and the documentation all come from this table.

/// One verb on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, with its subresource if any, such as `pods/eviction`.
    pub resource: &'static str,
    /// Verb.
    pub verb: &'static str,
}

/// Exactly the verbs that are used.
pub const PERMISSIONS: &[Permission] = &[
    Permission {
        group: "",
        resource: "nodes",
        verb: "get",
    },
    Permission {
        group: "",
        resource: "nodes",
        verb: "list",
    },
    Permission {
        group: "",
        resource: "nodes",
        verb: "patch",
    },
    Permission {
        group: "",
        resource: "nodes",
        verb: "delete",
    },
    Permission {
        group: "",
        resource: "pods",
        verb: "list",
    },
    Permission {
        group: "",
        resource: "pods/eviction",
        verb: "create",
    },
    Permission {
        group: "",
        resource: "events",
        verb: "create",
    },
];
