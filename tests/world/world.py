"""The local world: an AWS account, a Kubernetes cluster and recycle-eks deployed between them, all on one virtual clock.

    world.group("workers", size=3)              an Auto Scaling group whose instances are nodes of the cluster
    node.job("train", labels={"app": "train"})  a pod on a node
    world.at("19h", pod.finishes)               an event at a time
    world.recycle(node, label_selector="…")     an execution of the deployed state machine
    execution.finishes()                        lets time pass until it has ended

All parts of recycle-eks are real: the state machine as Terraform rendered it, the compiled functions that Terraform uploaded. The
API server and its authenticator are real, too. `tests/README.md` documents this API with examples.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from world.aws import terraform_gaps
from world.aws.account import Aws
from world.aws.alarms import Alarms
from world.aws.autoscaling.api import install as install_auto_scaling
from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.model import Timings, Unknowns
from world.aws.balancers import Balancers, TargetGroup
from world.aws.ec2 import Ec2
from world.aws.events import Events
from world.aws.function_logs import FunctionLogs
from world.aws.iam import Iam
from world.aws.iam_quotas import install as install_iam_quotas
from world.aws.identity import ACCOUNT, REGION
from world.aws.lambda_host import LambdaHost
from world.aws.metrics import Measurement, read_metrics
from world.aws.moto_internals import READING
from world.aws.requests import BOTO3_SERVICE
from world.aws.schedules import Schedules
from world.base.clock import Call, Clock, seconds
from world.base.faults import Plan
from world.deployment import CLUSTER, Deployment, environment
from world.kubernetes.cluster import Kubernetes
from world.kubernetes.handles import Workload
from world.kubernetes.manifests import KUBELET
from world.scenario.cluster_autoscaler import ClusterAutoscaler
from world.scenario.executions import Execution
from world.scenario.groups import IMAGE, TEMPLATE, Arrival, Group, Node
from world.scenario.leftovers import leftovers
from world.scenario.machines import Instance, Machines
from world.scenario.neighbours import Descheduler, NodeRepair, TerminationHandler
from world.stepfunctions.api import MotoMachines
from world.stepfunctions.api import install as install_step_functions
from world.stepfunctions.engine import Engine
from world.stepfunctions.sdk_integrations import AwsServices


class World:
    """One world for many scenarios; `reset` between them takes well under a second."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        """`say` gets a line for each slow step of `start`."""
        self._say = say
        self.clock = Clock()
        self.faults = Plan(self.clock.elapsed)
        #: Fields of the input with which `recycle` starts a node, unless its caller gives others. A reset keeps them.
        self.usual_fields: dict[str, Any] = {}
        self.aws = Aws(self.clock, self.faults)
        self.ec2 = Ec2(self.aws, self.clock, self._emit)
        self.autoscaling = AutoScaling(self.aws, self.ec2, self.clock, self._emit)
        install_auto_scaling(self.autoscaling)
        self.kubernetes = Kubernetes(self.clock, CLUSTER, self.faults)
        self.balancers = Balancers(self.aws, self.ec2, self.clock, self._node_objects)
        self.host = LambdaHost(self.aws, self.clock, self.faults)
        FunctionLogs(self.host)
        self.services = AwsServices("", REGION)
        state_machines = MotoMachines(self.clock, ACCOUNT, REGION, READING)
        self.engine = Engine(self.clock, state_machines, Functions(self.host, self.kubernetes), self.services, ACCOUNT, REGION)
        self.engine.faults = self.faults
        self.iam = Iam(self.aws)
        self.engine.refusal, self.engine.services_of = self.iam.refusal, self.services.of
        self.services.credentials = lambda role: self.aws.session(role, role.rpartition("/")[2])
        self.events = Events(self.clock, self.engine, ACCOUNT, REGION, READING)
        self.events.refusal = self.iam.refusal
        self.events.trust_refusal, self.events.policy_refusal = self.iam.trust_refusal, self.iam.policy_refusal
        self.schedules = Schedules(self.clock, self.events, ACCOUNT, REGION, READING)
        self.alarms = Alarms(self.clock, self._emit, self.events.publish)
        self.eks = terraform_gaps.Eks(self.aws)
        self.deployment = Deployment(self.aws, say)
        self.groups: dict[str, Group] = {}
        self.machines = Machines(self.clock, self.ec2, self.kubernetes, self.groups)
        self.ends = self.machines.ends
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
        self.autoscaling.on_in_service.append(self.machines.joins)
        self.autoscaling.on_terminated.append(self.machines.leaves)
        self.ec2.on_change.append(self.machines.power_changes)
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
        """Returns the lists to which a scenario may add its own listeners."""
        yield from (self.clock.before_jump, self.clock.on_jump, self.faults.witnesses, self.engine.on_entered)
        yield from (self.ec2.on_change, self.autoscaling.on_in_service, self.autoscaling.on_terminated)

    def finish_deployment(self) -> None:
        """Does the steps after Terraform: grants the permissions in the cluster, and starts the first scenario."""
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
        """Starts a new scenario: keeps the deployment and removes everything else. With a seed, processes that are ready at the
        same moment run in an order that depends on the seed only."""
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
        self.services.full_seconds_have_fraction = False
        self.kubernetes.reset()
        self.groups.clear()
        self.machines.reset()

    # -- time ----------------------------------------------------------------------------------------------------

    def at(self, time: str | float, action: Callable[[], Any]) -> None:
        """Does something at a virtual time since the scenario began."""
        self.clock.at(seconds(time), action)

    def run(self, until: str | float) -> None:
        """Lets the world go on up to a virtual time since the scenario began."""
        self.clock.run(limit=seconds(until))

    def wait(self, time: str | float) -> None:
        """Lets the world go on for so long."""
        self.run(self.clock.elapsed() + seconds(time))

    @staticmethod
    def seconds(time: str | float) -> float:
        """Virtual seconds of "20h10m"."""
        return seconds(time)

    # -- how it behaves ------------------------------------------------------------------------------------------

    @property
    def has_cloud_controller(self) -> bool:
        """Deletes the Nodes of terminated instances, as the cloud controller. A scenario can switch it off until a `reset`."""
        return self.machines.has_cloud_controller

    @has_cloud_controller.setter
    def has_cloud_controller(self, has: bool) -> None:
        self.machines.has_cloud_controller = has

    @property
    def unknowns(self) -> Unknowns:
        """The behaviour of Auto Scaling that AWS does not document. A scenario sets the switches; `reset` restores them."""
        return self.autoscaling.unknowns

    @property
    def timings(self) -> Timings:
        """The durations of Auto Scaling in virtual seconds. A scenario sets them; `reset` restores them."""
        return self.autoscaling.timings

    def environment(self) -> dict[str, str]:
        """Returns the environment for ordinary clients while the scenario stands still. It has endpoint, region and root's
        credentials for the AWS CLI and every SDK. Its KUBECONFIG is an administrator's, directly to the API server, whose times
        are real."""
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

    def principal(self, action: str) -> Any:
        """A client of AWS for a user who may do one thing, such as `ec2:CreateTags`, with every resource, and nothing else."""
        statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        prefix, _, name = action.partition(":")
        return self.aws.client_as(BOTO3_SERVICE.get(prefix, prefix), *self.iam.user(f"only-{name}", policy))

    # -- content -------------------------------------------------------------------------------------------------

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
        instance_types: Sequence[str] = (),
        node_group: str | None = None,
    ) -> Group:
        """An Auto Scaling group whose members are in service and, if it is this cluster's, Ready nodes. With `instance_types` it
        has a mixed instances policy with these overrides, and no launch template at the top level. With `node_group` it is the
        group of an EKS managed node group of this name, with the tags and the label that EKS sets."""
        managed = {"eks.amazonaws.com/nodegroup": node_group} if node_group else {}
        tags = {f"kubernetes.io/cluster/{cluster}": "owned"}
        if node_group:
            tags |= {"eks:cluster-name": cluster, "eks:nodegroup-name": node_group}
            self.eks.add_node_group(cluster, node_group, name)
        group = Group(self.aws, self.autoscaling, name, cluster, {**managed, **(labels or {})}, kubelet)
        self.groups[name] = group
        self.autoscaling.plan_launches(name, *[Arrival(seconds=0)] * size)
        ec2, autoscaling = self.aws.client("ec2"), self.aws.client("autoscaling")
        template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=TEMPLATE)["LaunchTemplate"]
        source: dict[str, Any] = {"LaunchTemplateId": template["LaunchTemplateId"], "Version": "$Latest"}
        mixed = {"LaunchTemplateSpecification": source, "Overrides": [{"InstanceType": each} for each in instance_types]}
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=size,
            AvailabilityZones=list(zones),
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
            **({"MixedInstancesPolicy": {"LaunchTemplate": mixed}} if instance_types else {"LaunchTemplate": source}),
            **({"InstanceLifecyclePolicy": {"RetentionTriggers": {"TerminateHookAbandon": "retain"}}} if retains else {}),
        )
        self.clock.run(limit=self.clock.elapsed())
        states = list(group.states.values())
        assert states == ["InService"] * size, states
        self.forget_calls()
        return group

    def instance_without_group(self) -> Instance:
        """Creates an instance without a group."""
        ran = self.aws.client("ec2").run_instances(ImageId=IMAGE, MinCount=1, MaxCount=1)
        self.forget_calls()
        return Instance(self.ec2, ran["Instances"][0]["InstanceId"])

    def instance(self, instance_id: str) -> Instance:
        """An EC2 instance by id."""
        return self.machines.instance(instance_id)

    def target_group(
        self,
        name: str,
        *groups: Group,
        deregistration_delay: str | float = 300,
        checks: str | float = 30,
    ) -> TargetGroup:
        """A load balancer's target group, attached to these groups; without any it has the cluster's nodes as its targets, as
        the AWS Load Balancer Controller registers them. Existing targets are healthy at once, new ones after their `checks`."""
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
        return ClusterAutoscaler(
            self.aws, self.kubernetes, self.groups, seconds(scan), seconds(unneeded_time), seconds(provision_time)
        )

    def descheduler(self, excluded_taints: Collection[str] = ()) -> None:
        """Lets the Descheduler evict pods that do not tolerate the taints of their node, from now on."""
        Descheduler(self.kubernetes, excluded_taints)

    def node_repair(self, on_replaced: Callable[[str], None] = lambda instance: None) -> NodeRepair:
        """Lets EKS node repair replace nodes that are not Ready for half an hour, from now on."""
        return NodeRepair(self.aws, self.kubernetes, on_replaced)

    def termination_handler(self, hooks: Collection[str] | None = None) -> None:
        """Lets aws-node-termination-handler drain the nodes that these hooks hold, or all hooks, from now on."""
        TerminationHandler(self.aws, self.events, self.kubernetes, hooks)

    def budget(self, workload: Workload, **limits: Any) -> None:
        """A PodDisruptionBudget over a workload's pods: `min_available` or `max_unavailable`."""
        self.kubernetes.budget(workload.name, workload, **limits)

    def alarm(self, name: str, *topics: str, **dimensions: str) -> None:
        """Creates a CloudWatch alarm on one metric, in the state OK. It notifies these topics when its state changes."""
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
        """Sets the state of an alarm: `ALARM`, `OK`, `INSUFFICIENT_DATA`."""
        self.aws.client("cloudwatch").set_alarm_state(AlarmName=name, StateValue=state, StateReason="CPU at night")

    # -- recycling -----------------------------------------------------------------------------------------------

    def recycle(self, what: Node | Mapping[str, Any] | Any, **fields: Any) -> Execution:
        """Starts an execution through the alias `live`: for a node with further fields of the input, or with any input at all."""
        if isinstance(what, Node):
            what = {"instance_id": what.instance_id, "cluster_name": CLUSTER, **self.usual_fields, **fields}
        started = self.aws.client("stepfunctions").start_execution(
            stateMachineArn=self.deployment.outputs["state_machine_alias_arn"], input=json.dumps(what)
        )
        return Execution(self.engine, started["executionArn"])

    def rotate(self, selection: Mapping[str, Any] | None = None, **fields: Any) -> Execution:
        """Starts a rotation by hand; without a selection of what the groups would launch otherwise now."""
        if self.usual_fields:
            fields["recycle"] = {**self.usual_fields, **fields.get("recycle", {})}
        given = {"trigger": "manual", "selection": selection or {"outdated": {"launch_template": True}}, **fields}
        started = self.aws.client("stepfunctions").start_execution(
            stateMachineArn=self.deployment.outputs["rotate_state_machine_arn"], input=json.dumps(given)
        )
        return Execution(self.engine, started["executionArn"])

    def sweep(self) -> Execution:
        """Starts a sweep by hand."""
        arn = self.deployment.outputs["sweep_state_machine_arn"]
        return Execution(self.engine, self.aws.client("stepfunctions").start_execution(stateMachineArn=arn)["executionArn"])

    def executions(self, machine: str = "recycle-node") -> list[Execution]:
        """Returns every execution of a state machine, the oldest first."""
        every = list(self.engine.executions.values())
        of_machine = f":execution:recycle-eks-{machine}:"
        return [Execution(self.engine, execution.arn) for execution in every if of_machine in execution.arn]

    def let_sweep(self, after_bad_ends: bool = True) -> None:
        """Lets the sweep run as deployed from now on: every 15 minutes, and after executions that ended badly."""
        self.events.silent = "" if after_bad_ends else "*-sweep-ended-badly"
        self.events.run_schedules()

    def let_schedules_run(self) -> None:
        """Lets the schedules of EventBridge Scheduler run as deployed from now on."""
        self.schedules.run()

    @property
    def all_notifications(self) -> list[dict[str, Any]]:
        """The notifications that the module's topic received. All have one schema."""
        topic = self.deployment.outputs["notification_topic_arn"]
        return [json.loads(notification.message) for notification in self.events.notifications if notification.topic == topic]

    @property
    def notifications(self) -> list[str]:
        """The notifications that need attention, without those for information only."""
        return [json.dumps(notification) for notification in self.all_notifications if notification["severity"] != "info"]

    def queued(self, queue: str) -> list[dict[str, Any]]:
        """Returns the messages in a queue of the module, such as `dead-letters`."""
        client = self.aws.client("sqs")
        url = client.get_queue_url(QueueName=f"recycle-eks-{queue}")["QueueUrl"]
        found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0).get("Messages", [])
        return [json.loads(message["Body"]) for message in found]

    @property
    def metrics(self) -> list[Measurement]:
        """The metrics of the functions, in the order of time."""
        lines = (line for function in self.host.functions_with_logs() for line in self.host.logs(function).splitlines())
        return sorted(read_metrics(lines), key=lambda each: each.moment)

    def metrics_into_cloudwatch(self) -> None:
        """Puts the metrics into CloudWatch, as CloudWatch Logs does."""
        client = self.aws.client("cloudwatch")
        for each in self.metrics:
            client.put_metric_data(Namespace=each.namespace, MetricData=[each.datum()])

    # -- calls ---------------------------------------------------------------------------------------------------

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

    def write_points(self, node: Node | None = None) -> list[tuple[str, str, int]]:
        """Returns (function, action, n-th time) of every call of a function that changed something, or changed something of
        a node. Faults may strike there."""
        seen: Counter[tuple[str, str]] = Counter()
        points = []
        for call in (each for each in self.writes() if node is None or node.is_named_in(each.parameters)):
            key = (call.function, call.action)
            seen[key] += 1
            points.append((*key, seen[key]))
        return points

    def asked_to_go(self) -> list[str]:
        """Returns the pods whose eviction was asked for, each by the beginning of its name."""
        return [call.parameters["name"].split("-")[0] for call in self.calls("kubernetes:POST pods/eviction")]

    def leftovers(self, group: Group | None = None) -> list[tuple[str, str]]:
        """Returns the records of recycle-eks, except results, on the nodes and members of a group (past ones too) or all."""
        return leftovers(self.kubernetes, self.autoscaling, self.machines, self.groups, group)

    def state_of(self, instance_id: str) -> str:
        """`running`, `stopped`, `terminated` …: EC2 forgets an instance about an hour after its end."""
        return self.machines.state_of(instance_id)

    def forget_calls(self) -> None:
        """Forgets the calls so far, because they were preparation."""
        self.aws.calls.clear()

    def _emit(self, source: str, detail_type: str, detail: dict[str, Any], resources: list[str]) -> None:
        self.events.emit(source, detail_type, detail, resources)


class Functions:
    """The Lambda host as the state machine sees it: payloads are JSON values, and a function finds a cluster that has settled."""

    def __init__(self, host: LambdaHost, kubernetes: Kubernetes) -> None:
        self._host = host
        self._kubernetes = kubernetes

    def invoke(self, function_arn: str, payload: Any) -> Call:
        """Returns a call that the engine yields."""
        self._kubernetes.settle()
        return self._host.invoke(function_arn, json.dumps(payload).encode())
