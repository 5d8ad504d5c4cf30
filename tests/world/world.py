"""The local world: an AWS account, a Kubernetes cluster and recycle-eks deployed between them, all on one virtual clock.

    world.group("workers", size=3)              an Auto Scaling group whose instances are nodes of the cluster
    node.job("train", labels={"app": "train"})  what runs on a node
    world.at("19h", pod.finishes)               what happens meanwhile
    world.recycle(node, label_selector="…")     an execution of the deployed state machine
    execution.finishes()                        lets time pass until it has ended

Everything that recycle-eks consists of is real: the state machine as Terraform rendered it, the compiled functions that Terraform
uploaded, the API server with its authenticator. `tests/README.md` documents this API with examples.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import InvalidInstanceIdError

from world.aws import terraform_gaps
from world.aws.account import Aws
from world.aws.alarms import Alarms
from world.aws.autoscaling.api import install as install_auto_scaling
from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.model import Launch, Timings, Unknowns
from world.aws.balancers import Balancers, TargetGroup
from world.aws.ec2 import Ec2
from world.aws.events import Events
from world.aws.iam import Iam
from world.aws.iam_quotas import install as install_iam_quotas
from world.aws.identity import ACCOUNT, REGION
from world.aws.lambda_host import LambdaHost
from world.aws.metrics import Measurement, read_metrics
from world.aws.moto_internals import LOCK
from world.aws.schedules import Schedules
from world.base.clock import Call, Clock, seconds
from world.base.faults import Plan
from world.deployment import CLUSTER, Deployment, environment
from world.kubernetes.cluster import Kubernetes
from world.kubernetes.handles import Node as KubernetesNode
from world.kubernetes.handles import Pod, Workload
from world.kubernetes.manifests import KUBELET
from world.kubernetes.settled import is_finished, name_of
from world.scenario.cluster_autoscaler import ClusterAutoscaler
from world.stepfunctions.api import MotoMachines
from world.stepfunctions.api import install as install_step_functions
from world.stepfunctions.engine import Engine
from world.stepfunctions.executions import Execution as EngineExecution
from world.stepfunctions.sdk_integrations import AwsServices

#: An execution may take this long, in virtual seconds, before a scenario gives it up: the longest drain and a day more.
PATIENCE = 31 * 86_400

#: Seconds until the node controller says that a kubelet is silent (kube-controller-manager's --node-monitor-grace-period).
NODE_MONITOR_GRACE = 50

#: What machines run.
IMAGE = "ami-12c6146b"

UNREACHABLE = "node.kubernetes.io/unreachable"

#: What we write on nodes and instances.
OURS = ("recycle-eks/", "recycle-eks:", "cluster-autoscaler.kubernetes.io/", "node.kubernetes.io/exclude-from")
OUT_OF_SERVICE = ("node.kubernetes.io/out-of-service", "recycle-eks")
#: What stays of it on purpose: on a replacement's Node, and on an instance that is stopped.
RESULTS, STOPPED = ("recycle-eks/replacement-for", "recycle-eks/replaces", "recycle-eks/evicted"), "recycle-eks:stopped"
#: What stays, with the cordon, on the Node of an instance that was stopped, or detached.
STOPPED_NODE = (
    "recycle-eks/stopped",
    "recycle-eks/kept-before",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "node.kubernetes.io/exclude-from-external-load-balancers",
)
DETACHED = ("recycle-eks/detached", "node.kubernetes.io/exclude-from-external-load-balancers")


@dataclass(frozen=True)
class EndOfInstance:
    """An instance of a group began to shut down or to stop."""

    at: float
    """Virtual seconds since the scenario began."""
    instance_id: str
    node_name: str
    pods: tuple[str, ...]
    """What still ran on its node, and ended with it: `namespace/name` of each pod that was neither Succeeded nor Failed."""


class World:
    """One world for many scenarios; `reset` between them takes well under a second."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        """`say` gets a line for each slow step of `start`."""
        self._say = say
        self.clock = Clock()
        self.faults = Plan(self.clock.elapsed)
        self.aws = Aws(self.clock, self.faults)
        self.ec2 = Ec2(self.aws, self.clock, self._emit)
        self.autoscaling = AutoScaling(self.aws, self.ec2, self.clock, self._emit)
        install_auto_scaling(self.autoscaling)
        self.kubernetes = Kubernetes(self.clock, CLUSTER, self.faults)
        self.balancers = Balancers(self.aws, self.ec2, self.clock, self._node_objects)
        self.host = LambdaHost(self.aws, self.clock, self.faults)
        self.services = AwsServices("", REGION)
        machines = MotoMachines(self.clock, ACCOUNT, REGION, LOCK)
        self.engine = Engine(self.clock, machines, Functions(self.host, self.kubernetes), self.services, ACCOUNT, REGION)
        self.engine.faults = self.faults
        self.iam = Iam(self.aws)
        self.engine.refusal, self.engine.services_of = self.iam.refusal, self.services.of
        self.services.credentials = lambda role: self.aws.session(role, role.rpartition("/")[2])
        self.events = Events(self.clock, self.engine, ACCOUNT, REGION, LOCK)
        self.events.refusal = self.iam.refusal
        self.schedules = Schedules(self.clock, self.events, ACCOUNT, REGION, LOCK)
        self.alarms = Alarms(self.clock, self._emit, self.events.publish)
        self.eks = terraform_gaps.Eks(self.aws)
        self.deployment = Deployment(self.aws, say)
        self.groups: dict[str, Group] = {}
        self.has_cloud_controller = True
        """The cloud controller deletes the Nodes of terminated instances; a scenario may do without."""
        self.ends: list[EndOfInstance] = []
        """Every instance that was terminated or stopped since the scenario began, with the pods that ran on it then."""
        self._listeners: list[tuple[list[Any], list[Any]]] = []
        self._uninstall = contextlib.ExitStack()

    # -- its life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts account and cluster and deploys recycle-eks: by Terraform (about a minute) when anything of it changed since the
        last time, else by making Terraform's calls again (a second). Leaves nothing running if it fails."""
        with self._all_or_nothing():
            self._start_empty()
            self.deployment.deploy()
            self.finish_deployment()

    def start_empty(self) -> None:
        """Starts account and cluster (3 real seconds) with nothing of recycle-eks in them, or nothing at all if that fails."""
        with self._all_or_nothing():
            self._start_empty()

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def _start_empty(self) -> None:
        self.services.endpoint = self.aws.start()
        self._uninstall.callback(install_step_functions(self.engine))
        self._uninstall.callback(self.events.install())
        self._uninstall.callback(install_iam_quotas())
        self.clock.before_jump.append(self.kubernetes.settle)
        self.clock.before_jump.append(self.balancers.follow_nodes)
        self.autoscaling.on_in_service.append(self._joins)
        self.autoscaling.on_terminated.append(self._leaves)
        self.ec2.on_change.append(self._power_changes)
        self._listeners = [(listeners, list(listeners)) for listeners in self._all_listeners()]
        self._say("starting the Kubernetes control plane (3 seconds)")
        self.kubernetes.start()
        self.kubernetes.proxy.caller_of = self.aws.callers.get
        self.kubernetes.proxy.calls = self.aws.calls
        self.eks.on_access_entries = self.kubernetes.set_access_entries
        self.eks.create_cluster(CLUSTER, self.kubernetes.endpoint, self.kubernetes.control_plane.authority.pem)

    def _node_objects(self) -> list[dict[str, Any]]:
        return [node.object for node in self.kubernetes.nodes()]

    def _all_listeners(self) -> Iterator[list[Any]]:
        """Where a scenario may add its own."""
        yield from (self.clock.before_jump, self.clock.on_jump, self.faults.witnesses, self.engine.on_entered)
        yield from (self.ec2.on_change, self.autoscaling.on_in_service, self.autoscaling.on_terminated)

    def finish_deployment(self) -> None:
        """What comes after Terraform: the cluster's rights, and the beginning of the first scenario."""
        self.autoscaling.remember_hooks()
        self.kubernetes.apply(self.deployment.outputs["rbac_manifest"])
        self.reset()

    def stop(self) -> None:
        """Stops everything, also what a start that failed had begun; nothing is left running. A step that fails does not keep the
        others from being taken."""
        with contextlib.ExitStack() as last_first:
            for stop in (
                self.aws.stop,
                self._uninstall.close,
                self.kubernetes.stop,
                self.host.stop,
                self.iam.stop,
                self.deployment.forget,
            ):
                last_first.callback(stop)
            last_first.callback(self.clock.reset)

    def reset(self, seed: int | None = None) -> None:
        """A new scenario: what was deployed stays, everything else goes. With a seed, what is ready at the same moment runs in
        an order of its own, the same for each seed."""
        self.clock.reset(seed=seed)
        for listeners, at_the_start in self._listeners:
            listeners[:] = at_the_start
        self.faults.clear()
        self.engine.reset()
        self.events.reset()
        # A scenario sees what an execution leaves, unless it lets the sweep come.
        self.events.silent = "*-sweep-*"
        self.aws.reset()
        self.host.reset()
        self.kubernetes.reset()
        self.groups.clear()
        self.ends.clear()
        self.has_cloud_controller = True

    # -- time ----------------------------------------------------------------------------------------------------

    def at(self, time: str | float, action: Callable[[], Any]) -> None:
        """Does something at a virtual time since the scenario began."""
        self.clock.at(seconds(time), action)

    def run(self, until: str | float) -> None:
        """Lets the world go on up to a virtual time since the scenario began."""
        self.clock.run(limit=seconds(until))

    @staticmethod
    def seconds(time: str | float) -> float:
        """Virtual seconds of "20h10m"."""
        return seconds(time)

    # -- how it behaves ------------------------------------------------------------------------------------------

    @property
    def unknowns(self) -> Unknowns:
        """What AWS's documentation leaves open about Auto Scaling; a scenario sets the switches, `reset` puts them back."""
        return self.autoscaling.unknowns

    @property
    def timings(self) -> Timings:
        """How long Auto Scaling takes for things, in virtual seconds; a scenario sets them, `reset` puts them back."""
        return self.autoscaling.timings

    def environment(self) -> dict[str, str]:
        """For ordinary clients while the scenario stands still: endpoint, region and root's credentials for the AWS CLI and every
        SDK, and an administrator's KUBECONFIG (straight to the API server, where times are real)."""
        return {
            **environment(self.aws.endpoint),
            # boto3 and the AWS CLI read this one, the other SDKs and Terraform AWS_REGION.
            "AWS_DEFAULT_REGION": REGION,
            "KUBECONFIG": self.kubernetes.kubeconfig,
        }

    def operators_environment(self) -> dict[str, str]:
        """The same of AWS alone for an operator: a user who has the module's `operator_policy_json` and nothing else."""
        key, secret = self.iam.user("operator", self.deployment.outputs["operator_policy_json"])
        credentials = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
        return {**environment(self.aws.endpoint), "AWS_DEFAULT_REGION": REGION, **credentials}

    # -- what there is -------------------------------------------------------------------------------------------

    def group(
        self,
        name: str = "workers",
        size: int = 3,
        minimum: int = 1,
        maximum: int = 6,
        zones: Sequence[str] = (f"{REGION}a",),
        cluster: str = CLUSTER,
        labels: Mapping[str, str] | None = None,
        retains: bool = False,
        kubelet: str = KUBELET,
    ) -> Group:
        """An Auto Scaling group whose members are in service and, if it is this cluster's, Ready nodes."""
        group = Group(self, name, cluster, dict(labels or {}), kubelet)
        self.groups[name] = group
        self.autoscaling.plan_launches(name, *[Arrival(seconds=0)] * size)
        ec2, autoscaling = self.aws.client("ec2"), self.aws.client("autoscaling")
        template = ec2.create_launch_template(
            LaunchTemplateName=name, LaunchTemplateData={"ImageId": IMAGE, "InstanceType": "m7i.2xlarge"}
        )["LaunchTemplate"]["LaunchTemplateId"]
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=size,
            AvailabilityZones=list(zones),
            LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"},
            Tags=[{"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned", "PropagateAtLaunch": True}],
            **({"InstanceLifecyclePolicy": {"RetentionTriggers": {"TerminateHookAbandon": "retain"}}} if retains else {}),
        )
        self.clock.run(limit=self.clock.elapsed())
        states = list(group.states.values())
        assert states == ["InService"] * size, states
        self.forget_calls()
        return group

    def instance_without_group(self) -> Instance:
        """An instance that nobody scales."""
        ran = self.aws.client("ec2").run_instances(ImageId=IMAGE, MinCount=1, MaxCount=1)
        self.forget_calls()
        return Instance(self, ran["Instances"][0]["InstanceId"])

    def instance(self, instance_id: str) -> Instance:
        """An EC2 instance by id."""
        return Instance(self, instance_id)

    def target_group(
        self,
        name: str,
        *groups: Group,
        deregistration_delay: str | float = 300,
        checks: str | float = 30,
    ) -> TargetGroup:
        """A load balancer's target group, attached to these groups; without any it has the cluster's nodes as its targets, as
        the AWS Load Balancer Controller registers them. Whoever is there already is healthy, a new target after its `checks`."""
        made = self.balancers.create(name, not groups, seconds(deregistration_delay), seconds(checks))
        for group in groups:
            self.aws.client("autoscaling").attach_load_balancer_target_groups(
                AutoScalingGroupName=group.name, TargetGroupARNs=[made.arn]
            )
            made.register(instance for instance, state in group.states.items() if state == "InService")
        self.balancers.follow_nodes()
        for entry in made.book:
            entry.healthy = entry.registered
        self.forget_calls()
        return made

    def cluster_autoscaler(
        self, scan: str | float = 60, unneeded_time: str | float = "10m", provision_time: str | float = "15m"
    ) -> ClusterAutoscaler:
        """Lets Cluster Autoscaler take nodes away that are not needed, or have not registered, from now on."""
        return ClusterAutoscaler(self, seconds(scan), seconds(unneeded_time), seconds(provision_time))

    def budget(self, workload: Workload, **limits: Any) -> None:
        """A PodDisruptionBudget over a workload's pods: `min_available` or `max_unavailable`."""
        self.kubernetes.budget(workload.name, workload, **limits)

    def alarm(self, name: str, *topics: str, **dimensions: str) -> None:
        """A CloudWatch alarm on one metric, which is OK now, and tells these topics when it turns."""
        self.aws.client("cloudwatch").put_metric_alarm(
            AlarmName=name,
            AlarmActions=topics,
            OKActions=topics,
            Namespace="AWS/EC2",
            MetricName="CPUUtilization",
            Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
            Statistic="Average",
            Period=60,
            EvaluationPeriods=3,
            Threshold=90,
            ComparisonOperator="GreaterThanThreshold",
        )

    def turn_alarm(self, name: str, state: str) -> None:
        """The metric says so, or somebody who tries it out: `ALARM`, `OK`, `INSUFFICIENT_DATA`."""
        self.aws.client("cloudwatch").set_alarm_state(AlarmName=name, StateValue=state, StateReason="CPU at night")

    # -- recycling -----------------------------------------------------------------------------------------------

    def recycle(self, what: Node | Mapping[str, Any] | Any, **fields: Any) -> Execution:
        """Starts an execution through the alias `live`: for a node with further fields of the input, or with any input at all."""
        given = {"instance_id": what.instance_id, "cluster_name": CLUSTER, **fields} if isinstance(what, Node) else what
        started = self.aws.client("stepfunctions").start_execution(
            stateMachineArn=self.deployment.outputs["state_machine_alias_arn"], input=json.dumps(given)
        )
        return Execution(self, started["executionArn"])

    def rotate(self, selection: Mapping[str, Any] | None = None, **fields: Any) -> Execution:
        """Starts a rotation by hand; without a selection of what the groups would launch otherwise now."""
        given = {"trigger": "manual", "selection": selection or {"outdated": {"launch_template": True}}, **fields}
        started = self.aws.client("stepfunctions").start_execution(
            stateMachineArn=self.deployment.outputs["rotate_state_machine_arn"], input=json.dumps(given)
        )
        return Execution(self, started["executionArn"])

    def sweep(self) -> Execution:
        """Starts a sweep by hand."""
        arn = self.deployment.outputs["sweep_state_machine_arn"]
        return Execution(self, self.aws.client("stepfunctions").start_execution(stateMachineArn=arn)["executionArn"])

    def executions(self, machine: str = "recycle-node") -> list[Execution]:
        """Every execution of a machine, whoever started it, the oldest first."""
        every = list(self.engine.executions.values())
        of_machine = f":execution:recycle-eks-{machine}:"
        return [Execution(self, execution.arn) for execution in every if of_machine in execution.arn]

    def let_sweep(self, after_bad_ends: bool = True) -> None:
        """From now on the sweep comes by itself, as deployed: every 15 minutes, and after executions that ended badly."""
        self.events.silent = "" if after_bad_ends else "*-sweep-ended-badly"
        self.events.run_schedules()

    def let_schedules_run(self) -> None:
        """From now on the schedules of EventBridge Scheduler come at their times, as deployed."""
        self.schedules.run()

    @property
    def told(self) -> list[dict[str, Any]]:
        """The notifications, which all have one schema: what the module's topic was told."""
        topic = self.deployment.outputs["notification_topic_arn"]
        return [json.loads(told.message) for told in self.events.notifications if told.topic == topic]

    @property
    def notifications(self) -> list[str]:
        """The notifications that are not only for information: what somebody should look at."""
        return [json.dumps(told) for told in self.told if told["severity"] != "info"]

    def queued(self, queue: str) -> list[dict[str, Any]]:
        """What lies in a queue of the module, such as `dead-letters`."""
        client = self.aws.client("sqs")
        url = client.get_queue_url(QueueName=f"recycle-eks-{queue}")["QueueUrl"]
        found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0).get("Messages", [])
        return [json.loads(message["Body"]) for message in found]

    @property
    def metrics(self) -> list[Measurement]:
        """What the functions counted, in the order of time."""
        lines = (line for function in self.host.functions_with_logs() for line in self.host.logs(function).splitlines())
        return sorted(read_metrics(lines), key=lambda each: each.moment)

    def metrics_into_cloudwatch(self) -> None:
        """As CloudWatch Logs does it by itself."""
        client = self.aws.client("cloudwatch")
        for each in self.metrics:
            client.put_metric_data(Namespace=each.namespace, MetricData=[each.datum()])

    # -- what was called -----------------------------------------------------------------------------------------

    def calls(self, action: str | None = None, succeeded: bool | None = None) -> list[Any]:
        """The functions' calls to AWS and Kubernetes in the order in which they were made, such as `autoscaling:EnterStandby` or
        `kubernetes:POST pods/eviction`."""
        return [
            call
            for call in self.aws.calls
            if call.function is not None
            and action in (None, call.action)
            and succeeded in (None, call.status is not None and call.status < 300)
        ]

    def writes(self) -> list[Any]:
        """The calls of functions that change something."""
        return [call for call in self.calls() if call.write]

    def write_points(self) -> list[tuple[str, str, int]]:
        """(function, action, n-th time) of every call of a function that changed something: where faults may strike."""
        seen: Counter[tuple[str, str]] = Counter()
        points = []
        for call in self.writes():
            key = (call.function, call.action)
            seen[key] += 1
            points.append((*key, seen[key]))
        return points

    def leftovers(self, group: Group | None = None) -> list[tuple[str, str]]:
        """Whose and what: everything of ours on a group's nodes and members, former ones too, or on any; but for results."""
        nodes = [node.kubernetes for node in group.nodes_seen.values()] if group else self.kubernetes.nodes()
        found = []
        for node in (node for node in nodes if node.exists):
            keys = [*node.annotations, *node.labels, *(taint["key"] for taint in node.taints)]
            instance = node.object["spec"].get("providerID", "").rpartition("/")[2]
            is_member = any(instance in each.states for each in self.groups.values() if each.exists)
            is_stopped = STOPPED_NODE[0] in keys and is_member and self.state_of(instance) == "stopped"
            results = (*RESULTS, *DETACHED) if DETACHED[0] in keys and not is_member else RESULTS
            results = (*RESULTS, *STOPPED_NODE) if is_stopped else results
            off = [taint["key"] for taint in node.taints if (taint["key"], taint.get("value")) == OUT_OF_SERVICE]
            found += [(node.name, key) for key in off if not is_stopped]
            found += [(node.name, key) for key in keys if key.startswith(OURS) and key not in results]
            found += [(node.name, "cordon")] if node.is_cordoned and results == RESULTS else []
        for each in [group] if group else [each for each in self.groups.values() if each.exists]:
            living = [id for id in each.nodes_seen if id not in each.states and self.state_of(id) in ("running", "stopped")]
            tags = [(instance, key) for instance in each.instances for key in self.instance(instance).tags]
            former = [(instance, key) for instance in living for key in self.instance(instance).tags]
            tags += [(instance, key) for instance, key in former if key != "recycle-eks:detached"]
            left = [(instance, key) for instance, key in tags if key.startswith(OURS)]
            found += [(id, key) for id, key in left if key != STOPPED or self.instance(id).state != "stopped"]
            members = self.autoscaling.group(each.name).instance_states
            found += [(member.instance_id, "protection from scale-in") for member in members if member.protected_from_scale_in]
        return found

    def state_of(self, instance_id: str) -> str:
        """`running`, `stopped`, `terminated` …: EC2 forgets an instance about an hour after its end."""
        try:
            return self.instance(instance_id).state
        except InvalidInstanceIdError:
            return "terminated"

    def forget_calls(self) -> None:
        """What was called so far was preparation."""
        self.aws.calls.clear()

    # -- the actors ----------------------------------------------------------------------------------------------

    def _emit(self, source: str, detail_type: str, detail: dict[str, Any], resources: list[str]) -> None:
        self.events.emit(source, detail_type, detail, resources)

    def _joins(self, member: Any) -> None:
        """A kubelet registers when its instance is in service; one that comes back from Standby is registered already."""
        group = self.groups[member.group.name]
        arrival = member.launch if isinstance(member.launch, Arrival) else Arrival(joins_cluster=member.launch.joins_cluster)
        if group.cluster == CLUSTER and arrival.joins_cluster and group.node_of(member.instance_id) is None:
            self._register(group, member.instance, arrival)

    def _register(self, group: Group, instance: Any, arrival: Arrival) -> None:
        taints = [{"key": arrival.startup_taint, "effect": "NoSchedule"}] if arrival.startup_taint else []
        zone = instance.placement.zone
        node = self.kubernetes.add_node(
            instance.private_dns_name,
            f"aws:///{zone}/{instance.id}",
            zone,
            labels=group.labels,
            ready=arrival.becomes_ready,
            startup_taints=taints,
            startup_taints_go_after=arrival.taint_lasts,
            allocatable=arrival.allocatable,
            kubelet=group.kubelet,
        )
        group.nodes_seen[instance.id] = Node(group, instance.id, node, self.clock.elapsed())

    def _power_changes(self, instance: Any, old: str, new: str) -> None:
        """What a cluster sees of a machine that goes off or on again, whoever did it."""
        node = next((seen for group in self.groups.values() if (seen := group.node_of(instance.id))), None)
        if node is None:
            return
        if new in ("shutting-down", "stopping"):
            self.ends.append(EndOfInstance(self.clock.elapsed(), instance.id, node.name, node.pods_at_work()))
            self.clock.after(NODE_MONITOR_GRACE, lambda: self._falls_silent(node))
        elif new == "stopped" and node.exists:
            node.kubernetes.add_taint("node.cloudprovider.kubernetes.io/shutdown")
        elif new == "terminated" and self.has_cloud_controller:
            self.kubernetes.remove_node(node.name)
        elif new == "running" and node.exists:
            node.reports_again()
        elif new == "running":
            self._register(node.group, instance, Arrival())

    def _falls_silent(self, node: Node) -> None:
        if node.exists and self.instance(node.instance_id).state != "running":
            node.falls_silent()

    def _leaves(self, member: Any) -> None:
        """The cloud controller deletes the Node of a terminated instance."""
        group = self.groups.get(member.group.name)
        if group and self.has_cloud_controller and member.instance_id in group.nodes_seen:
            self.kubernetes.remove_node(group.nodes_seen[member.instance_id].name)


class Functions:
    """The Lambda host as the state machine sees it: payloads are JSON values, and a function finds a cluster that has settled."""

    def __init__(self, host: LambdaHost, kubernetes: Kubernetes) -> None:
        self._host = host
        self._kubernetes = kubernetes

    def invoke(self, function_arn: str, payload: Any) -> Call:
        """For the engine to yield."""
        self._kubernetes.settle()
        return self._host.invoke(function_arn, json.dumps(payload).encode())


@dataclass
class Arrival(Launch):
    """How one launch goes, down to the Node."""

    becomes_ready: bool = True
    startup_taint: str | None = None
    taint_lasts: float = 0.0
    allocatable: Mapping[str, str] | None = None


class Group:
    """An Auto Scaling group."""

    def __init__(self, world: World, name: str, cluster: str, labels: dict[str, str], kubelet: str) -> None:
        self._world = world
        #: What the kubelets of nodes say that register from now on.
        self.kubelet = kubelet
        self.name = name
        self.cluster = cluster
        self.labels = labels
        self.nodes_seen: dict[str, Node] = {}

    def __repr__(self) -> str:
        return f"group {self.name}"

    @property
    def exists(self) -> bool:
        """Whether nobody has deleted it."""
        return self.name in self._world.autoscaling.backend.autoscaling_groups

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Minimum, desired, maximum."""
        group = self._world.autoscaling.group(self.name)
        return group.min_size, group.desired_capacity, group.max_size

    @property
    def states(self) -> dict[str, str]:
        """The members' lifecycle states by instance id."""
        return {m.instance_id: m.lifecycle_state for m in self._world.autoscaling.group(self.name).instance_states}

    @property
    def instances(self) -> list[str]:
        """The members' instance ids."""
        return list(self.states)

    @property
    def nodes(self) -> list[Node]:
        """The members' nodes, in the order in which they registered."""
        return [node for instance, node in self.nodes_seen.items() if instance in self.states]

    @property
    def newest(self) -> Node:
        """The node that registered last."""
        return self.nodes[-1]

    def node_of(self, instance_id: str) -> Node | None:
        """The node of an instance, if it registered."""
        return self.nodes_seen.get(instance_id)

    def next_launch(
        self,
        takes: str | float | None = None,
        fails: str | None = None,
        never_registers: bool = False,
        never_ready: bool = False,
        startup_taint: str | None = None,
        taint_lasts: str | float = 0,
        allocatable: Mapping[str, str] | None = None,
        zone: str | None = None,
    ) -> None:
        """How the next launch goes. `fails` is AWS's message, and all further launches fail, too."""
        arrival = Arrival(
            seconds=None if takes is None else seconds(takes),
            failure=fails,
            joins_cluster=not never_registers,
            becomes_ready=not never_ready,
            startup_taint=startup_taint,
            taint_lasts=seconds(taint_lasts),
            allocatable=allocatable,
            zone=zone,
        )
        self._world.autoscaling.plan_launches(self.name, *[arrival] * (1000 if fails else 1))

    def warm(self, count: int = 1) -> None:
        """Fills its warm pool: so many stopped instances from which its next launches come."""
        for _ in range(count):
            self._world.autoscaling.warm(self.name)

    def gets_a_new_template(self, **data: Any) -> None:
        """The group's launch template has a new version, which the group launches from now on: `$Latest`."""
        whole = {"ImageId": IMAGE, "InstanceType": "m7i.2xlarge", **data}
        self._world.aws.client("ec2").create_launch_template_version(LaunchTemplateName=self.name, LaunchTemplateData=whole)
        self._world.forget_calls()

    def refreshes_its_instances(self) -> None:
        """Somebody starts an instance refresh."""
        self._world.autoscaling.start_refresh(self.name)

    def lets_members_live(self, lifetime: str | float) -> None:
        """Max instance lifetime: members that are in service now end after so long."""
        self._world.autoscaling.limit_lifetime(self.name, seconds(lifetime))

    def protect(self, node: Node) -> None:
        """A person protects a member from scale-in."""
        self._world.aws.client("autoscaling").set_instance_protection(
            AutoScalingGroupName=self.name, InstanceIds=[node.instance_id], ProtectedFromScaleIn=True
        )

    def grow(self, desired: int) -> None:
        """A person sets the desired capacity."""
        self._world.aws.client("autoscaling").set_desired_capacity(AutoScalingGroupName=self.name, DesiredCapacity=desired)

    def suspend(self, *processes: str) -> None:
        """A person suspends processes such as Launch."""
        self._world.aws.client("autoscaling").suspend_processes(AutoScalingGroupName=self.name, ScalingProcesses=processes)

    def reserve_capacity(self, instances: int) -> None:
        """So many machines are there for it, as in a reservation: a launch beyond them fails until one has terminated."""
        self._world.autoscaling.reserve_capacity(self.name, instances)

    def terminate(self, node: Node) -> None:
        """A person terminates a member; the group replaces it."""
        self._world.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=node.instance_id, ShouldDecrementDesiredCapacity=False
        )


class Node:
    """An instance of a group with its Node object."""

    def __init__(self, group: Group, instance_id: str, node: KubernetesNode, ready_at: float) -> None:
        self.group = group
        self.instance_id = instance_id
        self.ready_at = ready_at
        """Virtual seconds since the scenario began at which it registered."""
        self.kubernetes = node
        """The handle with everything about the Node object."""

    def __repr__(self) -> str:
        return f"{self.kubernetes!r} ({self.instance_id})"

    @property
    def name(self) -> str:
        """The Node's name."""
        return self.kubernetes.name

    @property
    def exists(self) -> bool:
        """Whether the Node object is there."""
        return self.kubernetes.exists

    @property
    def unschedulable(self) -> bool:
        """Whether it is cordoned."""
        return self.kubernetes.is_cordoned

    @property
    def annotations(self) -> dict[str, str]:
        """The Node's annotations."""
        return self.kubernetes.annotations

    @property
    def labels(self) -> dict[str, str]:
        """The Node's labels."""
        return self.kubernetes.labels

    @property
    def zone(self) -> str:
        """Its Availability Zone."""
        return self.labels["topology.kubernetes.io/zone"]

    def has_taint(self, key: str) -> bool:
        """Whether it has a taint of this key."""
        return any(taint["key"] == key for taint in self.kubernetes.taints)

    def pods_at_work(self) -> tuple[str, ...]:
        """What the end of its machine would kill: `namespace/name` of each pod on it that has not ended."""
        pods = self.group._world.kubernetes.look_at_pods(on=self.kubernetes.name)
        return tuple(name_of(pod) for pod in pods if not is_finished(pod))

    def falls_silent(self) -> None:
        """Its kubelet is not heard of any more; the node controller says so, and gives its pods five minutes."""
        self.kubernetes.stops_reporting()
        for effect in ("NoSchedule", "NoExecute"):
            self.kubernetes.add_taint(UNREACHABLE, effect)

    def reports_again(self) -> None:
        """Its kubelet is back."""
        self.kubernetes.remove_taints(UNREACHABLE, "node.cloudprovider.kubernetes.io/shutdown")
        self.kubernetes.becomes_ready()

    def is_terminated_in_the_console(self) -> None:
        """A person terminates its instance, behind its group's back."""
        self.group._world.aws.client("ec2").terminate_instances(InstanceIds=[self.instance_id])

    def is_stopped_in_the_console(self) -> None:
        """A person stops its instance, behind its group's back."""
        self.group._world.aws.client("ec2").stop_instances(InstanceIds=[self.instance_id])

    def object_is_deleted(self) -> None:
        """A person runs `kubectl delete node`."""
        self.group._world.kubernetes.remove_node(self.name)

    def annotate(self, key: str, value: str | None) -> None:
        """A person annotates it."""
        self.kubernetes.annotate(**{key: value})

    # What runs on it. Further arguments: see `pod_template`.

    def job(self, name: str, **how: Any) -> Pod:
        """The pod of a Job, which runs until the scenario says that it `finishes`."""
        return self._cluster.job(name, on=self.kubernetes, **how).pods()[0]

    def finished_job(self, name: str, **how: Any) -> Pod:
        """The pod of a Job that is done."""
        pod = self.job(name, **how)
        self._cluster.settle()
        pod.finishes()
        return pod

    def bare_pod(self, name: str, **how: Any) -> Pod:
        """A pod that nobody controls."""
        return self._cluster.bare_pod(name, self.kubernetes, **how)

    def mirror_pod(self, name: str, **how: Any) -> Pod:
        """What the API server shows of a pod that the kubelet runs from a file."""
        return self._cluster.static_pod(name, self.kubernetes, **how)

    def deployment(self, name: str, replicas: int = 1, **how: Any) -> Workload:
        """A Deployment whose first pods are here."""
        return self._cluster.deployment(name, replicas, on=self.kubernetes, **how)

    def stateful_set(self, name: str, replicas: int = 1, **how: Any) -> Workload:
        """A StatefulSet whose first pods are here."""
        return self._cluster.stateful_set(name, replicas, on=self.kubernetes, **how)

    def daemon_set(self, name: str, **how: Any) -> Workload:
        """A DaemonSet: one pod here, and one on every other node."""
        return self._cluster.daemon_set(name, **how)

    @property
    def _cluster(self) -> Kubernetes:
        return self.group._world.kubernetes


class Instance:
    """An EC2 instance as DescribeInstances shows it."""

    def __init__(self, world: World, instance_id: str) -> None:
        self._world = world
        self.id = instance_id

    @property
    def state(self) -> str:
        """`running`, `stopped`, `terminated` …"""
        return self._world.ec2.instance(self.id)._state.name

    @property
    def tags(self) -> dict[str, str]:
        """Its tags."""
        answer = self._world.aws.client("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": [self.id]}])
        return {tag["Key"]: tag["Value"] for tag in answer["Tags"]}


@dataclass(frozen=True)
class End:
    """How an execution ended."""

    status: str
    outcome: str | None
    """The outcome's name, if it SUCCEEDED."""
    output: Any
    error: str | None
    cause: str
    at: float
    """Virtual seconds since the scenario began."""
    history_events: int


class Execution:
    """One execution of the state machine."""

    def __init__(self, world: World, arn: str) -> None:
        self._world = world
        self.arn = arn

    @property
    def _engine(self) -> EngineExecution:
        return self._world.engine.execution(self.arn)

    @property
    def status(self) -> str:
        """RUNNING, SUCCEEDED, FAILED, ABORTED or TIMED_OUT."""
        return self._engine.status

    def finishes(self, within: str | float = PATIENCE) -> End:
        """Lets time pass until it has ended."""
        limit = self._world.clock.elapsed() + seconds(within)
        self._world.clock.run(until=lambda: self.status != "RUNNING", limit=limit)
        ended = self._engine
        output = ended.output
        return End(
            status=ended.status,
            outcome=output.get("outcome") if isinstance(output, dict) else None,
            output=output,
            error=ended.error,
            cause=ended.cause or "",
            at=ended.stop - self._world.clock.start,
            history_events=len(ended.events),
        )

    def stop(self) -> None:
        """A person stops it."""
        self._world.engine.stop_execution(self.arn)

    def redrive(self) -> None:
        """A person redrives it: it goes on where it ended."""
        self._world.engine.redrive_execution(self.arn)

    @property
    def steps(self) -> list[tuple[float, str]]:
        """The states that it entered, each with the moment in virtual seconds since the scenario began."""
        return [
            (event["timestamp"] - self._world.clock.start, event["stateEnteredEventDetails"]["name"])
            for event in self._engine.events
            if "stateEnteredEventDetails" in event
        ]

    @property
    def path(self) -> list[str]:
        """The names of the states that it entered."""
        return [name for _, name in self.steps]

    def entered(self, state: str) -> list[float]:
        """When it entered a state, in virtual seconds since the scenario began."""
        return [moment for moment, name in self.steps if name == state]

    def answers(self, state: str) -> list[Any]:
        """What a Task state was answered, each time it succeeded: a function's payload, else the call's result."""
        results = [json.loads(event["taskSucceededEventDetails"]["output"]) for event in self._events(state, "TaskSucceeded")]
        return [result.get("Payload", result) for result in results]

    def errors(self, state: str) -> list[str]:
        """The names of the errors that the attempts at a Task state failed with, also of those that were tried again."""
        failed = self._events(state, "TaskFailed", "TaskTimedOut")
        return [next(value for key, value in event.items() if key.endswith("EventDetails"))["error"] for event in failed]

    def _events(self, state: str, *kinds: str) -> list[dict[str, Any]]:
        """The events of these kinds that belong to a state: each leads back to the one with which its state was entered."""
        history = self._engine.events
        found = []
        for event in history:
            if event["type"] in kinds:
                origin = event
                while "stateEnteredEventDetails" not in origin:
                    origin = history[origin["previousEventId"] - 1]
                if origin["stateEnteredEventDetails"]["name"] == state:
                    found.append(event)
        return found
