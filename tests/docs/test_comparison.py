"""docs/comparison.md: the table of pods beside `kubectl drain`. The real kubectl and our plan meet the same node."""

import re
from collections.abc import Iterator
from typing import Any

from docs.pages import Shell
from prepare import ROOT
from world.kubernetes.kube_client import MERGE_PATCH
from world.kubernetes.manifests import pod_template

PAGE = ROOT / "docs" / "comparison.md"
BEGIN, END = "<!-- pods beside kubectl -->\n", "<!-- end of pods -->"
HEAD = "| pod | `kubectl drain` | recycle-eks | why |\n|---|---|---|---|\n"

KARPENTER, AUTOSCALER = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict"
CYCLOPS, DAEMON = "cyclops.atlassian.com/do-not-disrupt", "cluster-autoscaler.kubernetes.io/daemonset-pod"
DRAIN = "recycle-eks/drain"
EVERYTHING = [{"operator": "Exists"}]
EMPTY = [{"name": "data", "emptyDir": {}}]
HOST = [{"name": "data", "hostPath": {"path": "/var/data"}}]
CONFIG = [{"name": "data", "configMap": {"name": "settings", "optional": True}}]
CLAIM = {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "resources": {"requests": {"storage": "1Gi"}}}
EPHEMERAL = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}]

# The reasons for a difference.
PROTECTED = "Karpenter, Cluster Autoscaler or Cyclops keeps such a pod; kubectl does not read this annotation"
OURS = "kubectl does not read this annotation"
BARE = "no controller would start it again, so it may end by itself"
ENDS = "its work would begin anew"
DATA = "kubectl counts only emptyDir, and asks for a flag; recycle-eks evicts the pod and names it as `local_storage`"
BUDGET = "kubectl tries again until its `--timeout`, or without end; recycle-eks until the drain's end"
TWO = "kubectl fails; recycle-eks waits until one of the budgets is gone, or until the drain's end"
EACH = "its owner says that every node has one"
FINISHED = "a finished pod holds nothing"


def annotated(key: str, value: str, **how: Any) -> dict[str, Any]:
    return {"annotations": {key: value}, **how}


#: A controller of no kind that runs here.
CLONE_SET = ("CloneSet", "apps.kruise.io/v1alpha1")
#: Pods of one controller: a name, how it is described, how it is made, and why the two differ, if they do.
VARIANTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("plain", "of a controller", {}, ""),
    ("empty", "of a controller, with an emptyDir", {"volumes": EMPTY}, DATA),
    ("host", "of a controller, with a hostPath", {"volumes": HOST}, ""),
    ("ephemeral", "of a controller, with a generic ephemeral volume", {"volumes": EPHEMERAL}, ""),
    ("config", "of a controller, with a ConfigMap", {"volumes": CONFIG}, ""),
    ("zonal", "of a controller, with a volume of this zone, in which another node takes pods", {"volume_claims": ["zonal"]}, ""),
    ("local", "of a controller, with a volume of this machine", {"volume_claims": ["local"]}, "the pod could start nowhere else"),
    ("critical", "of a controller, with `system-cluster-critical`", {"priorityClassName": "system-cluster-critical"}, ""),
    ("vital", "of a controller, with `system-node-critical`", {"priorityClassName": "system-node-critical"}, ""),
    ("tolerant", "of a controller, that tolerates every taint", {"tolerations": EVERYTHING}, ""),
    ("slow", "of a controller, with three days of grace", {"grace": 3 * 86_400}, ""),
    ("once", "of a controller, with `restartPolicy: OnFailure`", {"restart_policy": "OnFailure"}, ENDS),
    ("waits", f"of a controller, with `{DRAIN}: wait`", annotated(DRAIN, "wait"), OURS),
    ("leaves", f"of a controller, with `{DRAIN}: evict`", annotated(DRAIN, "evict"), ""),
    ("stays", f"of a controller, with `{DRAIN}: ignore`", annotated(DRAIN, "ignore"), OURS),
    ("misspelt", f"of a controller, with `{DRAIN}: evicted`", annotated(DRAIN, "evicted"), ""),
    ("selected", "of a controller, that `label_selector` matches", {"labels": {"app": "train"}}, "the input asks for it"),
    ("karpenter", f"of a controller, with `{KARPENTER}: \"true\"`", annotated(KARPENTER, "true"), PROTECTED),
    ("hours", f"of a controller, with `{KARPENTER}: \"4h\"`, an hour after its start", annotated(KARPENTER, "4h"), PROTECTED),
    ("over", f"of a controller, with `{KARPENTER}: \"1m\"`, an hour after its start", annotated(KARPENTER, "1m"), ""),
    ("disrupt", f"of a controller, with `{KARPENTER}: \"false\"`", annotated(KARPENTER, "false"), ""),
    ("perhaps", f"of a controller, with `{KARPENTER}: \"maybe\"`", annotated(KARPENTER, "maybe"), ""),
    ("unsafe", f"of a controller, with `{AUTOSCALER}: \"false\"`", annotated(AUTOSCALER, "false"), PROTECTED),
    ("completes", f"of a controller, with `{AUTOSCALER}: \"on-completion\"`", annotated(AUTOSCALER, "on-completion"), PROTECTED),
    ("safe", f"of a controller, with `{AUTOSCALER}: \"true\"`", annotated(AUTOSCALER, "true"), ""),
    ("unknown", f"of a controller, with `{AUTOSCALER}: \"maybe\"`", annotated(AUTOSCALER, "maybe"), ""),
    ("like-daemon", f"of a controller, with `{DAEMON}: \"true\"`", annotated(DAEMON, "true"), EACH),
    ("cyclops", f"of a controller, with `{CYCLOPS}: \"true\"`", annotated(CYCLOPS, "true"), PROTECTED),
    ("cyclist", f"of a controller, with `{CYCLOPS}: \"false\"`", annotated(CYCLOPS, "false"), ""),
    ("guarded", "of a controller, behind a budget that allows no eviction", {"labels": {"app": "guarded"}}, BUDGET),
    ("unready", "of a controller, that is not ready, behind such a budget", {"labels": {"app": "unready"}}, BUDGET),
    ("allowed", "of a controller, that is not ready, behind a budget with `AlwaysAllow`", {"labels": {"app": "allowed"}}, ""),
    ("doubled", "of a controller, behind two budgets", {"labels": {"app": "guarded", "set": "doubled"}}, TWO),
    ("starting", "of a controller, that has not begun", {"starts_after": 7_200}, ""),
    ("unbound", "of a controller, that waits for an unbound claim", {"volume_claims": ["unbound"], "starts_after": 7_200}, ""),
    ("unknown-phase", "of a controller, whose phase is Unknown", {}, ""),
    ("leaving", "of a controller, that is being deleted", {"grace": 7_200, "exits_after": 7_200}, "kubectl asks it once more"),
    ("stuck", "of a controller, that did not end within its grace period", {"stuck": True}, "kubectl asks it once more"),
    ("kept", "of a controller, that has ended, and that a finalizer keeps", {"finalizers": ["example.com/never"]}, FINISHED),
]  # fmt: skip

#: Pods without a controller.
SINGLE: list[tuple[str, str, dict[str, Any], str]] = [
    ("bare", "bare", {}, BARE),
    ("script", "bare, with `restartPolicy: Never`", {"restart_policy": "Never"}, BARE),
    ("retry", "bare, with `restartPolicy: OnFailure`", {"restart_policy": "OnFailure"}, BARE),
    ("bare-safe", f"bare, with `{AUTOSCALER}: \"true\"`", annotated(AUTOSCALER, "true"), "its owner allows it"),
    ("bare-unsafe", f"bare, with `{AUTOSCALER}: \"false\"`", annotated(AUTOSCALER, "false"), BARE),
    ("bare-hours", f"bare, with `{KARPENTER}: \"4h\"`", annotated(KARPENTER, "4h"), BARE),
    ("bare-leaves", f"bare, with `{DRAIN}: evict`", annotated(DRAIN, "evict"), OURS),
    ("bare-waits", f"bare, with `{DRAIN}: wait`", annotated(DRAIN, "wait"), BARE),
    ("bare-stays", f"bare, with `{DRAIN}: ignore`", annotated(DRAIN, "ignore"), OURS),
    ("bare-empty", "bare, with an emptyDir", {"volumes": EMPTY}, BARE),
    ("bare-guarded", "bare, behind a budget that allows no eviction", {"labels": {"app": "guarded"}}, BARE),
    ("debugger", "bare, as `kubectl debug node` makes it", {"tolerations": EVERYTHING, "hostPID": True}, BARE),
    ("done", "bare, has succeeded", {"restart_policy": "Never"}, FINISHED),
    ("failed", "bare, has failed", {"restart_policy": "Never"}, FINISHED),
]  # fmt: skip

#: Pods of controllers that kubectl knows only by their owner reference: kind, API version.
FOREIGN: list[tuple[str, str, tuple[str, str], dict[str, Any], str]] = [
    ("workflow", "of an Argo `Workflow`", ("Workflow", "argoproj.io/v1alpha1"), {"restart_policy": "Never"}, ENDS),
    ("workflow-empty", "of an Argo `Workflow`, with an emptyDir", ("Workflow", "argoproj.io/v1alpha1"),
     {"restart_policy": "Never", "volumes": EMPTY}, ENDS),
    ("workflow-leaves", f"of an Argo `Workflow`, with `{DRAIN}: evict`", ("Workflow", "argoproj.io/v1alpha1"),
     annotated(DRAIN, "evict", restart_policy="Never"), ""),
    ("taskrun", "of a Tekton `TaskRun`", ("TaskRun", "tekton.dev/v1"), {"restart_policy": "Never"}, ENDS),
    ("kafka", "of a `StrimziPodSet`", ("StrimziPodSet", "core.strimzi.io/v1beta2"), {}, ""),
    ("postgres", "of a CloudNativePG `Cluster`", ("Cluster", "postgresql.cnpg.io/v1"), {}, ""),
    ("kruise", "of an OpenKruise `DaemonSet`", ("DaemonSet", "apps.kruise.io/v1alpha1"), {}, ""),
    ("half-static", "of a Node, without the annotation of a mirror pod", ("Node", "v1"), {}, "only a kubelet makes such pods"),
    ("runner", "of a `RunnerSet` that is not its controller", ("RunnerSet", "actions.example/v1"), {}, BARE),
]  # fmt: skip


class Pods:
    """The pods of one node, with what the page says of each."""

    def __init__(self, world: Any) -> None:
        self.world, self.kubernetes = world, world.kubernetes
        group = world.group("workers", size=2, minimum=1, maximum=4)
        self.node = group.nodes[0]
        self.rows: list[tuple[str, str, str]] = []
        of_controllers = list(self.with_controllers())
        self.kubernetes.zonal_volume("zonal", "eu-west-1a")
        self.kubernetes.local_volume("local", self.node.kubernetes)
        self.kubernetes.unbound_claim("unbound")
        for app, pods, unhealthy in (("guarded", 3, None), ("unready", 1, None), ("allowed", 1, "AlwaysAllow")):
            self.kubernetes.budget(app, {"app": app}, min_available=pods, unhealthy_pods=unhealthy)
        self.kubernetes.budget("doubled", {"set": "doubled"}, min_available=0)
        variants = [(name, words, CLONE_SET, how, why) for name, words, how, why in VARIANTS]
        for name, words, (kind, version), how, why in variants + FOREIGN:
            reference = {
                "apiVersion": version,
                "kind": kind,
                "name": name,
                "uid": f"00000000-0000-4000-8000-{len(self.rows):012}",
            }
            if kind == "Node":
                reference |= {"name": self.node.name, "uid": self.node.kubernetes.uid}
            self.create(name, words, how, why, reference | ({} if name == "runner" else {"controller": True}))
        for name, words, how, why in SINGLE:
            self.create(name, words, how, why, None)
        self.rows += of_controllers
        self.settle()
        for name in ("unready", "allowed"):
            self.kubernetes.pod(name).becomes_unready()
        unknown = self.kubernetes.pod("unknown-phase").path
        self.kubernetes.must("PATCH", f"{unknown}/status", {"status": {"phase": "Unknown"}}, MERGE_PATCH)
        self.kubernetes.pod("done").finishes()
        self.kubernetes.pod("failed").fails()
        for name in ("leaving", "kept", "stuck"):
            self.kubernetes.pod(name).deleted()
        world.run("1h")

    def settle(self) -> None:
        self.world.clock.run(limit=self.world.clock.elapsed() + 1)

    def create(self, name: str, words: str, how: dict[str, Any], why: str, owner: dict[str, Any] | None) -> None:
        manifest = {"apiVersion": "v1", "kind": "Pod", **pod_template(**how)}
        manifest["metadata"]["name"] = name
        manifest["spec"]["nodeName"] = self.node.name
        if owner:
            manifest["metadata"]["ownerReferences"] = [owner]
        self.kubernetes.must("POST", "/api/v1/namespaces/default/pods", manifest)
        self.rows.append((f"default/{name}", words, why))

    def with_controllers(self) -> Iterator[tuple[str, str, str]]:
        """Pods of controllers that run here, whose names have an ending."""
        node = self.node
        for words, why, make in [
            ("of a Deployment", "", lambda: node.deployment("web")),
            ("of a StatefulSet", "", lambda: node.stateful_set("database")),
            ("of a Job", ENDS, lambda: node.job("train")),
            (f"of a Job, with `{DRAIN}: evict`", "", lambda: node.job("again", annotations={DRAIN: "evict"})),
            ("of a Job, that has succeeded", FINISHED, lambda: node.finished_job("ready")),
            ("of a Deployment in `kube-system`", "", lambda: node.deployment("dns", namespace="kube-system")),
            ("of a DaemonSet", "", lambda: node.daemon_set("logs")),
            ("of a DaemonSet, with an emptyDir", "", lambda: node.daemon_set("cache", uses_empty_dir=True)),
            (f"of a DaemonSet, with `{DRAIN}: evict`", OURS, lambda: node.daemon_set("shipper", annotations={DRAIN: "evict"})),
            (f"of a DaemonSet, with `{DRAIN}: wait`", "", lambda: node.daemon_set("sticky", annotations={DRAIN: "wait"})),
            ("static (mirror)", "", lambda: node.mirror_pod("proxy")),
        ]:  # fmt: skip
            before = self.names()
            make()
            self.settle()
            (made,) = self.names() - before
            yield made, words, why

    def names(self) -> set[str]:
        return {f"{pod.namespace}/{pod.name}" for pod in self.node.kubernetes.pods()}


class Kubectl:
    """The answers of `kubectl drain` about each pod, in two runs that change nothing: one with few flags, one with every flag.
    Both fail: the first because it refuses pods, the second because budgets refuse evictions until its time is out."""

    def __init__(self, shell: Shell, node: str) -> None:
        drain = f"kubectl drain {node} --ignore-daemonsets --dry-run=server --timeout=2s"
        self.careful = shell.run(f"! {drain}")
        self.forced = shell.run(f"! {drain} --delete-emptydir-data --force")

    def says(self, pod: str) -> str:
        for words, meaning in (
            ("declare no controller", "refuses: no controller"),
            ("with local storage", "refuses: emptyDir"),
        ):
            if re.search(rf"{words}[^:]*: ([^:\]]* )?{re.escape(pod)}[,\]]", self.careful):
                return meaning
        if f"evicting pod {pod} " not in self.forced:
            return "leaves it"
        namespace, _, name = pod.partition("/")
        again = r"(?: \(will retry after 5s\))?"
        errors = re.findall(rf'error when evicting pods/"{name}" -n "{namespace}"{again}: (.+)', self.forced)
        if not errors:
            return "evicts"
        # The last error of a pod that kubectl asks again and again.
        refusals = {error for error in errors if not error.startswith("global timeout reached")}
        (meaning,) = {self.meaning(refusal) for refusal in refusals}
        return meaning

    @staticmethod
    def meaning(error: str) -> str:
        for words, meaning in (
            ("Cannot evict pod as it would violate the pod's disruption budget.", "asks, is refused"),
            ("This pod has more than one PodDisruptionBudget", "asks, and fails"),
        ):
            if words in error:
                return meaning
        raise AssertionError(f"kubectl printed another error: {error}")


def ours(world: Any, node: Any) -> dict[str, str]:
    """The answers of a dry run's plan about each pod."""
    plan = world.recycle(node, label_selector="app=train", dry_run=True).finishes().output["plan"]
    assert all(group["count"] == len(group["pods"]) for group in plan["pods"]), "the plan names every pod"
    return {pod: f"{group['class']}: {group['reason']}" for group in plan["pods"] for pod in group["pods"]}


def test_each_pod_is_treated_as_the_table_beside_kubectl_says(world, tmp_path):
    pods = Pods(world)
    assert len(pods.rows) >= 60
    kubectl = Kubectl(Shell(tmp_path / "here", world.environment()), pods.node.name)
    plan = ours(world, pods.node)

    rows = [(words, kubectl.says(pod), plan[pod], why) for pod, words, why in pods.rows]

    same = {"evicts": "evictable", "leaves it": "ignored"}
    for words, theirs, mine, why in rows:
        is_same = same.get(theirs) == mine.partition(":")[0]
        assert bool(why) != is_same, f"{words}: a difference has its reason, and nothing else has one"
    differences = [row for row in rows if row[-1]]
    table = HEAD + "".join(f"| {' | '.join(row)} |\n" for row in differences)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    (tmp_path / "table").write_text(table)
    assert rest.partition(END)[0] == table, f"the page differs from {tmp_path / 'table'}"
    assert f"kubectl and recycle-eks treat {len(rows) - len(differences)} of {len(rows)} kinds of pods alike." in before
