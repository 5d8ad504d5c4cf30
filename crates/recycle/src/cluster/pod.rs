//! The facts about a pod, and its kind: bare, finished, of a DaemonSet, or one that runs to completion.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::base::names::{CONFIG_SOURCE_ANNOTATION, DAEMON_SET_POD_ANNOTATION, MIRROR_ANNOTATION};
use crate::base::text::cut_given;
use crate::cluster::node::Taint;

/// The controller of a pod (the entry with `controller: true` in `metadata.ownerReferences`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// The API group of its `apiVersion`, such as `apps`; empty for the core group.
    pub api_group: String,
    /// The kind, such as `ReplicaSet`, `DaemonSet`, `Job` or `Node`.
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// A toleration of a pod (`spec.tolerations`). A tenant may write any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    /// `key`. None, or empty with the operator `Exists`, means every taint.
    pub key: Option<String>,
    /// `operator`: `Equal` (also if there is none) or `Exists`. Other operators tolerate no taint of recycle-eks.
    pub operator: Option<String>,
    pub value: Option<String>,
    /// `effect`. None means every effect.
    pub effect: Option<String>,
    /// `tolerationSeconds`. None means without a time limit.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// Checks whether the pod tolerates a taint, as the scheduler does (`ToleratesTaint` in Kubernetes' `core/v1/toleration.go`).
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let same = |mine: &Option<String>, other: &str| mine.as_deref().unwrap_or_default() == other;
        let any = |mine: &Option<String>| mine.as_deref().is_none_or(str::is_empty);
        let is_value = match self.operator.as_deref() {
            None | Some("" | "Equal") => same(&self.value, taint.value.as_deref().unwrap_or_default()),
            Some("Exists") => true,
            Some(_) => false,
        };
        (any(&self.effect) || same(&self.effect, &taint.effect))
            && (any(&self.key) || same(&self.key, &taint.key))
            && is_value
    }
}

/// The facts about a pod that the decisions need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, the precondition of an eviction.
    pub uid: String,
    /// The field that cannot be read, and why; none if all can be read. All other facts of an unreadable pod except its names are empty.
    pub unreadable: Option<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The annotations that recycle-eks reads ([`crate::base::names::is_read_annotation`]).
    pub annotations: BTreeMap<String, String>,
    /// The controller of the pod; none for a bare pod.
    pub controller: Option<Controller>,
    /// `status.phase`: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// `metadata.creationTimestamp`.
    pub created_at: Option<Timestamp>,
    /// `status.startTime`: when a kubelet accepted it.
    pub started_at: Option<Timestamp>,
    pub scheduling: PodScheduling,
    /// `metadata.deletionTimestamp`, which includes the grace period.
    pub deletion_at: Option<Timestamp>,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: u32,
    pub containers: PodContainers,
    pub volumes: PodVolumes,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodScheduling {
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `spec.priorityClassName`; empty if there is none.
    pub priority_class: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodContainers {
    /// `metadata.resourceVersion` of the pod whose containers are in this state: the precondition of a deletion.
    pub version: String,
    /// `spec.restartPolicy`: `Always`, `OnFailure` or `Never`.
    pub restart_policy: String,
    /// Whether a debug container (`kubectl debug`) runs in the pod.
    pub is_debugged: bool,
    /// Whether a container has completed with the exit code 0 and another one still runs. Init containers do not count.
    pub is_half_completed: bool,
    /// Whether the pod's condition `Ready` is true.
    pub is_ready: bool,
    /// Whether the kubelet waits before it starts a container again, because the container keeps failing (`CrashLoopBackOff`).
    pub is_crash_looping: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodVolumes {
    /// The PersistentVolumeClaims in `spec.volumes`, which outlive the pod.
    pub claims: Vec<String>,
    /// Whether the pod has data on the machine: an emptyDir, a hostPath, or a generic ephemeral volume, which ends with the pod.
    pub has_local_storage: bool,
}

impl PodFacts {
    /// Creates the facts of a pod that cannot be read. Its names are empty if they cannot be read, either.
    pub fn unreadable(namespace: String, name: String, uid: String, why: &str) -> Self {
        Self {
            namespace,
            name,
            uid,
            unreadable: Some(cut_given(why)),
            ..Self::default()
        }
    }

    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn is_controlled_by(&self, groups: &[&str], kind: &str) -> bool {
        let controller = self.controller.as_ref();
        controller.is_some_and(|controller| {
            controller.kind == kind && groups.contains(&controller.api_group.as_str())
        })
    }

    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether the kubelet runs the pod from a file or a URL (`IsStaticPod` in Kubernetes' `kubelet/types/pod_update.go`),
    /// or the pod is its copy in the API server.
    pub(crate) fn is_mirror(&self) -> bool {
        let source = self.annotations.get(CONFIG_SOURCE_ANNOTATION);
        self.annotations.contains_key(MIRROR_ANNOTATION)
            || source.is_some_and(|source| source != "api")
            || self.is_controlled_by(&[""], "Node")
    }

    /// Whether every node has a pod like it: Kubernetes' own DaemonSets (until version 1.15 also in the group `extensions`),
    /// and pods that their owner marked so for Cluster Autoscaler.
    pub(crate) fn is_of_daemon_set(&self) -> bool {
        let mark = self.annotations.get(DAEMON_SET_POD_ANNOTATION);
        self.is_controlled_by(&["apps", "extensions"], "DaemonSet") || mark.is_some_and(|mark| mark == "true")
    }

    /// Whether nothing is lost if the pod ends with the node: it has finished, or every node has one like it.
    pub(crate) fn leaves_nothing(&self) -> bool {
        self.is_finished() || self.is_of_daemon_set() || self.is_mirror()
    }

    /// Whether other pods may depend on it: Karpenter evicts pods of these two classes last, too (`terminator.go`).
    pub(crate) fn is_critical(&self) -> bool {
        let classes = ["system-cluster-critical", "system-node-critical"];
        classes.contains(&self.scheduling.priority_class.as_str()) || self.namespace == "kube-system"
    }

    /// Whether the pod has a node, and not all of its containers have begun.
    /// Its images are pulled, its volumes attached, or its init containers run.
    pub(crate) fn is_pending(&self) -> bool {
        self.phase == "Pending" && self.deletion_at.is_none()
    }

    /// Whether no controller would start the pod again elsewhere.
    pub(crate) fn is_bare(&self) -> bool {
        self.controller.is_none()
    }

    /// Whether the pod may come to an end without a request. With restartPolicy Always its containers are always started again.
    pub(crate) fn can_end(&self) -> bool {
        self.containers.restart_policy != "Always"
    }

    /// Whether the pod's containers end, and its controller counts on that: a Job, a workflow, a task.
    pub(crate) fn runs_to_completion(&self) -> bool {
        !self.is_bare() && self.containers.restart_policy != "Always"
    }

    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        self.scheduling
            .tolerations
            .iter()
            .any(|toleration| toleration.tolerates(taint))
    }
}
