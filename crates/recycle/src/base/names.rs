//! The names of the annotations, labels, taints and tags that recycle-eks writes on Nodes, pods, instances and groups, or reads there.
//! Users type these names, so they are API.

/// The namespace of the Leases ([`crate::records::lease`]).
pub const NAMESPACE: &str = "recycle-eks";

/// Lease annotation: the claim, as JSON ([`crate::records::claim::Claim`]). The annotation of this name on the Node is a copy for operators.
pub const CLAIM_ANNOTATION: &str = "recycle-eks/claim";

/// Lease annotation: the Node's state before recycle-eks changed it, as JSON ([`crate::records::node_record::Record`]).
pub const RECORD_ANNOTATION: &str = "recycle-eks/record";

/// Node annotation: the progress for operators, as JSON ([`crate::records::progress::Progress`]).
pub const PROGRESS_ANNOTATION: &str = "recycle-eks/progress";

/// Annotation that moves the end of a running drain: an RFC 3339 time or `now`. The command line sets it on the Lease.
/// An operator may set it on the Node, where the node itself could have written it. The annotation of the Lease wins.
pub const DRAIN_UNTIL_ANNOTATION: &str = "recycle-eks/drain-until";

/// Node annotation on a replacement: the instance id of the node that it stands in for.
pub const REPLACEMENT_FOR_ANNOTATION: &str = "recycle-eks/replacement-for";

/// Node annotation on a replacement: the instance id of the node for whose restore it was cordoned.
pub const CORDONED_FOR_ANNOTATION: &str = "recycle-eks/cordoned-for";

/// Node label on replacements: the instance id of the node for which recycle-eks keeps Cluster Autoscaler from removing them.
pub const KEPT_FOR_LABEL: &str = "recycle-eks/kept-for";

/// Node annotation on a node that recycle-eks keeps, on a replacement, or on the Node of a stopped instance.
/// Holds what [`SCALE_DOWN_DISABLED_ANNOTATION`] said before recycle-eks set it. On the first it is empty if there was no value.
pub const KEPT_BEFORE_ANNOTATION: &str = "recycle-eks/kept-before";

/// Lease annotation: the time (RFC 3339) at which the restore of this node began. In a group, the oldest restore goes first.
pub const RESTORING_ANNOTATION: &str = "recycle-eks/restoring";

/// Lease annotation, written before each change of the group by a restore: the changes so far
/// ([`crate::records::restore_log::GroupChanges`]).
pub const RESTORE_LOG_ANNOTATION: &str = "recycle-eks/restore-log";

/// Lease annotation with the value of [`GAVE_UP_TAG`]. The tag counts only together with it.
pub const GAVE_UP_ANNOTATION: &str = "recycle-eks/gave-up";

/// Pod annotation that an operator or a pod's owner sets: `wait`, `evict` or `ignore`. Wins over every selector.
pub const DRAIN_ANNOTATION: &str = "recycle-eks/drain";

/// Pod annotation: the time (RFC 3339) until which the pod's node, which is being retired, waits for the pod. Written for the pod.
pub const WAITS_UNTIL_ANNOTATION: &str = "recycle-eks/waits-until";

/// Lease label: a short hash of the group's name, by which the API server selects the claims of a group.
pub const GROUP_LABEL: &str = "recycle-eks/group";

/// Lease annotation: the name of the instance's Node.
pub const NODE_ANNOTATION: &str = "recycle-eks/node";

/// Taint key, effect `NoSchedule`: the node is being drained.
pub const DRAINING_TAINT: &str = "recycle-eks/draining";

/// Taint key, of any effect and value: an operator requests that the node is recycled.
/// The sweep starts an execution for it once, and the taint is removed.
pub const REQUEST_TAINT: &str = "recycle-eks/request";

/// Taint key, effect `PreferNoSchedule` or `NoSchedule`: a rotation is about to recycle the node, and new pods should go elsewhere.
pub const OUTDATED_TAINT: &str = "recycle-eks/outdated";

/// Node annotation that goes with [`OUTDATED_TAINT`]: the ARN of the rotation that set it, and the time at which it began.
pub const OUTDATED_ANNOTATION: &str = "recycle-eks/outdated";

/// Node label on a replacement: the instance id of the node that it stands in for. A result, not a leftover.
/// The label says what [`REPLACEMENT_FOR_ANNOTATION`] says, in a form by which the API server can select.
pub const REPLACES_LABEL: &str = "recycle-eks/replaces";

/// Node annotation on a replacement: short hashes of the uids of the controllers whose pods were evicted.
/// The pods were on the node that the replacement stands in for. A result, not a leftover.
pub const EVICTED_ANNOTATION: &str = "recycle-eks/evicted";

/// Tag that an operator sets on an Auto Scaling group, value `true`: rotations start no node of the group while the tag is there.
pub const PAUSED_TAG: &str = "recycle-eks:paused";

/// Taint key, effect `NoSchedule`, on the Node of an instance that `dispose: stop` has stopped. A result, not a leftover.
pub const STOPPED_TAINT: &str = "recycle-eks/stopped";

/// Taint key, effect `NoSchedule`, on the Node of an instance that `dispose: detach` has taken out of its group. A result, not a leftover.
pub const DETACHED_TAINT: &str = "recycle-eks/detached";

/// Taint key, effect `NoExecute` (Kubernetes' own name): the machine is off, so its volumes may be attached elsewhere at once.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// EC2 tag: the claim in one line ([`crate::records::claim::Claim::to_tag`]); the AWS half of the claim.
pub const CLAIM_TAG: &str = "recycle-eks:claim";

/// EC2 tag: the name of the group that the instance belonged to when it was claimed.
pub const GROUP_TAG: &str = "recycle-eks:group";

/// EC2 tag, written before EnterStandby: the time (RFC 3339) since which the instance is in Standby because of recycle-eks.
pub const STANDBY_TAG: &str = "recycle-eks:standby";

/// EC2 tag, a copy of [`RESTORE_LOG_ANNOTATION`]. It counts while the cluster cannot be read, and later for an ExitStandby that fits.
pub const RESTORE_LOG_TAG: &str = "recycle-eks:restore-log";

/// EC2 tag on members that recycle-eks protects from scale-in: the instance id of another node of their group.
/// That node is being restored, or leaves the group (`dispose: detach`).
pub const PROTECTED_FOR_TAG: &str = "recycle-eks:protected-for";

/// EC2 tag: the time (RFC 3339) since which an operator has to take care of an instance that recycle-eks could not restore.
/// The sweep keeps trying, and repeats the report only if it is refused again.
pub const GAVE_UP_TAG: &str = "recycle-eks:gave-up";

/// EC2 tag: when (RFC 3339) an instance was stopped by `dispose: stop`. A result, not a leftover.
pub const STOPPED_TAG: &str = "recycle-eks:stopped";

/// EC2 tag: when (RFC 3339) an instance left its group by `dispose: detach`. A result, not a leftover.
pub const DETACHED_TAG: &str = "recycle-eks:detached";

/// The lifecycle hook that the module creates. recycle-eks keeps alive and completes only this hook.
pub const LIFECYCLE_HOOK: &str = "recycle-eks";

/// Node label that takes a node out of instance-mode load balancer targets (Kubernetes' own name).
pub const EXCLUDE_FROM_BALANCERS_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Node annotation (Cluster Autoscaler's own name) that keeps Cluster Autoscaler from removing a node.
/// Set on the old node and on its replacement while an execution works on them.
pub const SCALE_DOWN_DISABLED_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// The annotation that the kubelet sets on pods that it runs from a file (Kubernetes' own name).
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The annotation in which the kubelet says where it has a pod from (Kubernetes' own name): `api`, `file` or `http`.
pub const CONFIG_SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";

/// Cluster Autoscaler's mark on a pod that it treats like a DaemonSet's, value `true` (its FAQ).
pub const DAEMON_SET_POD_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";

/// Karpenter's protection of a pod: `true`, or for how long after the pod's start (karpenter.sh, "Well-Known Annotations").
pub const DO_NOT_DISRUPT_ANNOTATION: &str = "karpenter.sh/do-not-disrupt";

/// Cyclops' protection of a pod, value `true` (its README).
pub const CYCLOPS_ANNOTATION: &str = "cyclops.atlassian.com/do-not-disrupt";

/// Cluster Autoscaler's protection of a pod: `false`, or `on-completion`, which means until the pod has finished.
/// With `true` the pod may be evicted although no controller starts it again (its FAQ).
pub const SAFE_TO_EVICT_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Checks whether recycle-eks reads an annotation of Nodes or pods. All others are left out when a list is read, because they may be large.
pub fn is_read_annotation(key: &str) -> bool {
    let of_others = [
        SCALE_DOWN_DISABLED_ANNOTATION,
        MIRROR_ANNOTATION,
        CONFIG_SOURCE_ANNOTATION,
        DAEMON_SET_POD_ANNOTATION,
        CYCLOPS_ANNOTATION,
        DO_NOT_DISRUPT_ANNOTATION,
        SAFE_TO_EVICT_ANNOTATION,
    ];
    key.starts_with("recycle-eks/") || of_others.contains(&key)
}

/// Field manager of every write to the Kubernetes API.
pub const FIELD_MANAGER: &str = "recycle-eks";

/// The tag by which aws-node-termination-handler finds its groups (its README, "Queue Processor").
pub const TERMINATION_HANDLER_TAG: &str = "aws-node-termination-handler/managed";
/// The tag by which Cluster Autoscaler finds its groups (its README for AWS, "Auto-Discovery Setup").
pub const AUTOSCALER_TAG: &str = "k8s.io/cluster-autoscaler/enabled";
