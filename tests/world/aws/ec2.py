"""EC2 instances that take time: moto 5.2.5 changes them at once, this module on the virtual clock.

A started instance is `pending` before it is `running`, a stopped one `stopping` before `stopped`, a terminated one
`shutting-down`, then `terminated` and visible for an hour, then unknown. Private DNS names are never used twice. Tags
obey AWS's limits, malformed instance ids are distinguished from unknown ones.

`on_change(instance, old, new)` is called for each change. Each change is also an EventBridge event.

Not supported: volumes, networks, addresses, images (those of moto are good enough).
"""

from __future__ import annotations

import copy
import datetime
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moto.autoscaling.models import AutoScalingBackend
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import AMIS, Ami, AmiBackend
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.responses import EC2Response

from world.aws.account import Aws
from world.aws.identity import ACCOUNT, REGION
from world.aws.moto_internals import LOCK, moto_original
from world.base.clock import Clock

Emit = Callable[[str, str, dict[str, Any], list[str]], None]

STATE_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}

# States in which a call has nothing left to do.
ALREADY = {
    "stop": ("stopping", "stopped"),
    "start": ("pending", "running"),
    "terminate": ("shutting-down", "terminated"),
}
PARTICIPLE = {"stop": "stopped", "start": "started"}

# EC2 user guide, "Tag restrictions".
MAX_TAG_KEY, MAX_TAG_VALUE = 128, 256

INSTANCE_ID = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")


@dataclass
class Timings:
    """Virtual seconds."""

    stop: float = 40
    start: float = 30
    terminate: float = 30
    # "Terminated instances remain visible after termination (for approximately one hour)": TerminateInstances API
    # reference.
    terminated_visible: float = 3600


class Ec2:
    """The instances of the account."""

    def __init__(self, aws: Aws, clock: Clock, emit: Emit):
        self.aws = aws
        self.clock = clock
        self.emit = emit
        self.timings = Timings()
        # Called with LOCK held, as (instance, old state's name, new state's name).
        self.on_change: list[Callable[[Instance, str, str], None]] = []
        self._next_host: dict[str, int] = {}
        # The places of instances, by id: (order, reservation).
        self._places: dict[str, tuple[int, Any]] = {}
        _install(self)
        aws.on_reset.append(self._reset)

    @property
    def backend(self) -> Any:
        return ec2_backends[ACCOUNT][REGION]

    def _reset(self) -> None:
        self.timings = Timings()
        self._next_host.clear()
        self._places.clear()

    def find(self, instance_ids: list[str]) -> list[Any]:
        """The reservations with these instances and no others, in the order in which they were made. (moto
        reads every reservation for that.) Raises InvalidInstanceIdError for an instance that is not there."""
        if any(not self._is_at(self._places.get(each), each) for each in instance_ids):
            every = enumerate(self.backend.reservations.values())
            self._places = {each.id: (order, reservation) for order, reservation in every for each in reservation.instances}
        missing = [each for each in instance_ids if each not in self._places]
        if missing:
            raise InvalidInstanceIdError(missing)
        found = []
        for _, reservation in sorted(dict(self._places[each] for each in instance_ids).items()):
            narrowed = copy.copy(reservation)
            narrowed.instances = [instance for instance in reservation.instances if instance.id in instance_ids]
            found.append(narrowed)
        return found

    def _is_at(self, place: tuple[int, Any] | None, instance_id: str) -> bool:
        """Returns the instances of the last read. An instance leaves its reservation an hour after its end."""
        return (
            place is not None
            and place[1].id in self.backend.reservations
            and any(instance.id == instance_id for instance in place[1].instances)
        )

    def instance(self, instance_id: str) -> Instance:
        return self.find([instance_id])[0].instances[0]

    def change(self, instance: Instance, state: str) -> None:
        """Changes the state of an instance, and calls every listener."""
        old = instance._state.name
        if old == state:
            return
        instance._state.name, instance._state.code = state, STATE_CODES[state]
        for listener in list(self.on_change):
            listener(instance, old, state)
        self.emit(
            "aws.ec2",
            "EC2 Instance State-change Notification",
            {"instance-id": instance.id, "state": state},
            [f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{instance.id}"],
        )

    def launched(self, instance: Instance) -> None:
        """A new instance starts as `pending`; moto created it as `running`. `change` makes it run."""
        instance._state.name, instance._state.code = "", -1
        self._dates(instance)
        self.change(instance, "pending")

    def _dates(self, instance: Instance) -> None:
        """LaunchTime is that of the last start, in UTC without saying so, as moto has it."""
        instance.launch_time = datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC).replace(tzinfo=None)

    def free_address(self, subnet: Any) -> str:
        """An address of the subnet that no instance of this world ever had, so that no private DNS name comes back."""
        # AWS reserves the first four addresses of a subnet.
        host = self._next_host.setdefault(subnet.id, 4)
        self._next_host[subnet.id] = host + 1
        return str(ipaddress.ip_network(subnet.cidr_block)[host])

    # The effects of the API calls

    def stopping(self, instance: Instance) -> None:
        self.change(instance, "stopping")
        self._later(self.timings.stop, instance, "stopping", "stopped")

    def starting(self, instance: Instance) -> None:
        self._dates(instance)
        self.change(instance, "pending")
        self._later(self.timings.start, instance, "pending", "running")

    def terminating(self, instance: Instance) -> None:
        self.change(instance, "shutting-down")
        self._later(self.timings.terminate, instance, "shutting-down", "terminated")

    def _later(self, seconds: float, instance: Instance, expected: str, state: str) -> None:
        def arrive() -> None:
            with LOCK:
                if instance._state.name != expected:
                    return
                self.change(instance, state)
                if state == "terminated":
                    self.clock.after(self.timings.terminated_visible, lambda: self._forget(instance))

        self.clock.after(seconds, arrive)

    def _forget(self, instance: Instance) -> None:
        with LOCK:
            for reservation in list(self.backend.reservations.values()):
                if instance in reservation.instances:
                    reservation.instances.remove(instance)
                if not reservation.instances:
                    del self.backend.reservations[reservation.id]
            self.backend.tags.pop(instance.id, None)


def check_instance_ids(instance_ids: list[str]) -> None:
    for instance_id in instance_ids:
        if not INSTANCE_ID.fullmatch(instance_id):
            raise EC2ClientError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')


def check_tagging(ec2: Ec2, resources: list[str], tags: list[dict[str, str]]) -> None:
    check_tags(tags)
    instances = [resource for resource in resources if resource.startswith("i-")]
    check_instance_ids(instances)
    ec2.backend.get_multi_instances_by_id(instances)


def check_tags(tags: list[dict[str, str]]) -> None:
    for tag in tags:
        key, value = tag["Key"], tag.get("Value") or ""
        if key.startswith("aws:"):
            raise EC2ClientError(
                "InvalidParameterValue",
                f"Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use",
            )
        if len(key) > MAX_TAG_KEY:
            raise EC2ClientError("InvalidParameterValue", f"Tag key exceeds the maximum length of {MAX_TAG_KEY} characters")
        if len(value) > MAX_TAG_VALUE:
            raise EC2ClientError("InvalidParameterValue", f"Tag value exceeds the maximum length of {MAX_TAG_VALUE} characters")


# moto's internals


def _install(ec2: Ec2) -> None:
    """Lays `ec2` over moto's instances. The originals are kept on first use, so a second world replaces the first."""
    _after(Instance, "stop", ec2.stopping)
    _after(Instance, "start", ec2.starting)
    _after(Instance, "terminate", ec2.terminating)
    _before(
        EC2Response,
        "create_tags",
        lambda response: check_tagging(ec2, response._get_param("Resources", []), response._get_param("Tags", [])),
    )
    _before(EC2Response, "delete_tags", lambda response: check_tags(response._get_param("Tags", [])))
    for operation in ("describe_instances", "terminate_instances", "stop_instances", "start_instances"):
        _before(EC2Response, operation, lambda response: check_instance_ids(response._get_param("InstanceIds", [])))
    _find_fast(ec2)
    _load_few_images()
    # autoscaling/groups.py listens to `on_change`; moto's own replacement of terminated members must not interfere.
    assert hasattr(AutoScalingBackend, "notify_terminate_instances")
    AutoScalingBackend.notify_terminate_instances = lambda backend, instance_ids: None
    name = moto_original(Instance, "private_dns_name")
    Instance.private_dns_name = property(lambda instance: "" if instance._state.name == "terminated" else name.fget(instance))


#: The images of moto's that scenarios launch from.
IMAGES = ("ami-03cf127a", "ami-12c6146b", "ami-1e749f67")


def _load_few_images() -> None:
    """moto creates some 1,300 images with each backend, which takes seconds at the start of a process and most of the time of a
    reset. These are the only ones here."""

    def load(backend: Any) -> None:
        used = [image for image in AMIS if image["ami_id"] in IMAGES]
        backend.amis = {image["ami_id"]: Ami(backend, **{**image, "owner_alias": "amazon"}) for image in used}

    AmiBackend._load_amis = load


def _find_fast(ec2: Ec2) -> None:
    """Finds instances by id quickly if the request names them."""
    by_instances = moto_original(InstanceBackend, "get_reservations_by_instance_ids")
    multi = moto_original(InstanceBackend, "get_multi_instances_by_id")

    def reservations(backend: Any, instance_ids: list[str], filters: Any = None) -> list[Any]:
        if backend is not ec2.backend or filters:
            return by_instances(backend, instance_ids, filters)
        return ec2.find(instance_ids)

    def instances(backend: Any, instance_ids: list[str], filters: Any = None) -> list[Any]:
        if backend is not ec2.backend or filters:
            return multi(backend, instance_ids, filters)
        return [instance for reservation in ec2.find(instance_ids) for instance in reservation.instances]

    InstanceBackend.get_reservations_by_instance_ids = reservations
    InstanceBackend.get_multi_instances_by_id = instances


def _after(owner: type, name: str, then: Callable[[Instance], None]) -> None:
    """Wraps a method that changes the state at once: restores the previous state, and `then` changes it in virtual time."""
    original = moto_original(owner, name)

    def replaced(instance: Instance) -> Any:
        before = (instance._state.name, instance._state.code)
        if before[0] in ALREADY[name]:
            return type(instance._state)(*before)
        if before[0] in ALREADY["terminate"]:
            raise EC2ClientError(
                "IncorrectInstanceState",
                f"This instance '{instance.id}' is not in a state from which it can be {PARTICIPLE[name]}.",
            )
        previous = original(instance)
        instance._state.name, instance._state.code = before
        then(instance)
        return previous

    setattr(owner, name, replaced)


def _before(owner: type, name: str, check: Callable[[Any], Any]) -> None:
    original = moto_original(owner, name)

    def replaced(response: Any) -> Any:
        check(response)
        return original(response)

    setattr(owner, name, replaced)
