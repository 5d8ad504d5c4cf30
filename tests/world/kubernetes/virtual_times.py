"""The times of Kubernetes objects, in virtual time.

The API server stamps objects with the machine's time, cut to whole seconds, while a scenario of twenty hours takes ten of them.
So nothing can be computed from its stamps. Instead this table keeps, for each object, the virtual moment at which each of
its dated facts (that it exists, that it is being deleted, that a condition has this status) was first seen. Virtual time
stands still while the cluster settles, therefore first seen is exact.

Times that a client wrote itself (annotations, the times in an Event) are virtual already and are left alone. So is
`END_OF_TIME`, which only a client writes.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from world.kubernetes.kube_client import Json

END_OF_TIME = "9999-12-31T23:59:59Z"
"""The last time that RFC 3339 can write. The API server stores it where a client claims it."""


class VirtualTimes:
    """The table. Safe to use from any thread."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: virtual epoch seconds."""
        self._now = now
        self._lock = threading.Lock()
        self._histories: dict[str, _History] = {}

    def observe(self, thing: Json) -> None:
        """Takes note of what is new about an object."""
        with self._lock:
            self._observe(thing)

    def translate(self, thing: Json) -> None:
        """Rewrites the times of an object, or of the objects in a list, in place."""
        with self._lock:
            for each in thing["items"] if isinstance(thing.get("items"), list) else (thing,):
                self._translate(each)

    def created(self, uid: str) -> float | None:
        """Virtual epoch seconds at which the object appeared; None if it was never seen."""
        return self._moment(uid, "created")

    def deletion_requested(self, uid: str) -> float | None:
        """Virtual epoch seconds at which the object's deletion was asked for (its grace period starts then)."""
        return self._moment(uid, "deleted")

    def tainted(self, uid: str, key: str, effect: str) -> float | None:
        """Virtual epoch seconds since when a Node carries a taint."""
        return self._moment(uid, ("taint", key, effect))

    def pretend_created(self, uid: str, moment: float) -> None:
        """Sets the creation time of the object to `moment` (virtual epoch seconds)."""
        with self._lock:
            self._histories[uid].facts["created"] = _Fact(True, moment)

    def forget_everything(self) -> None:
        """Resets the table for a new scenario."""
        with self._lock:
            self._histories.clear()

    def _moment(self, uid: str, key: Any) -> float | None:
        with self._lock:
            history = self._histories.get(uid)
            fact = history.facts.get(key) if history else None
            return fact.since if fact else None

    def _observe(self, thing: Json) -> _History | None:
        metadata = thing.get("metadata") or {}
        uid = metadata.get("uid")
        if not uid:
            return None
        history = self._histories.setdefault(uid, _History())
        version = int(metadata.get("resourceVersion") or 0)
        if version > history.version or not history.facts:
            history.version = version
            history.facts = self._facts(thing, history.facts)
        return history

    def _facts(self, thing: Json, before: dict[Any, _Fact]) -> dict[Any, _Fact]:
        facts = {}
        for stamp in _stamps(thing):
            known = before.get(stamp.key)
            if known is not None and known.value == stamp.value:
                facts[stamp.key] = known
            else:
                facts[stamp.key] = _Fact(stamp.value, self._now())
        return facts

    def _translate(self, thing: Json) -> None:
        history = self._observe(thing)
        if history is None:
            return
        for stamp in _stamps(thing):
            if stamp.holder.get(stamp.field) not in (None, "", END_OF_TIME):
                fact = history.facts.get(stamp.key)
                moment = fact.since if fact else self._now()
                if stamp.keeps_beating:
                    moment = self._now()
                stamp.holder[stamp.field] = rfc3339(moment + stamp.plus)


def rfc3339(moment: float) -> str:
    """Epoch seconds as Kubernetes writes a time: whole seconds, cut off."""
    return datetime.datetime.fromtimestamp(int(moment), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Fact(NamedTuple):
    value: Any
    since: float


class _History:
    """The history of one object: the newest version seen, and its dated facts."""

    def __init__(self) -> None:
        self.version = -1
        self.facts: dict[Any, _Fact] = {}


class _Stamp(NamedTuple):
    """One time in an object: its path, and the fact that it dates (since when `key` has had `value`)."""

    holder: Json
    field: str
    key: Any
    value: Any = True
    plus: float = 0.0
    """Seconds from the fact to the time that is written there."""
    keeps_beating: bool = False
    """The time is that of the last heartbeat of something alive: always now."""


def _stamps(thing: Json) -> Iterator[_Stamp]:
    metadata = thing["metadata"]
    yield _Stamp(metadata, "creationTimestamp", "created")
    if metadata.get("deletionTimestamp"):
        # The API server moves the time when a later request shortens the grace period; counting from the first request
        # with the present grace period gives just that.
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        yield _Stamp(metadata, "deletionTimestamp", "deleted", plus=grace)
    for entry in metadata.get("managedFields") or ():
        manager = ("manager", entry.get("manager"), entry.get("operation"), entry.get("subresource"))
        yield _Stamp(entry, "time", manager, entry.get("fieldsV1"))
    for taint in (thing.get("spec") or {}).get("taints") or ():
        yield _Stamp(taint, "timeAdded", ("taint", taint.get("key"), taint.get("effect")))
    status = thing.get("status")
    if isinstance(status, dict):
        yield from _stamps_of_status(status)


def _stamps_of_status(status: Json) -> Iterator[_Stamp]:
    for condition in status.get("conditions") or ():
        key = ("condition", condition.get("type"))
        value = condition.get("status")
        yield _Stamp(condition, "lastTransitionTime", key, value)
        yield _Stamp(condition, "lastUpdateTime", key, value)
        yield _Stamp(condition, "lastProbeTime", key, value)
        yield _Stamp(condition, "lastHeartbeatTime", key, value, keeps_beating=value != "Unknown")
    if status.get("startTime"):
        yield _Stamp(status, "startTime", "started")
    if status.get("completionTime"):
        yield _Stamp(status, "completionTime", "completed")
    for container in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        name, restarts = container.get("name"), container.get("restartCount")
        state = container.get("state") or {}
        for running_or_ended in (state.get("running"), state.get("terminated")):
            if running_or_ended:
                yield _Stamp(running_or_ended, "startedAt", ("container started", name, restarts))
        if state.get("terminated"):
            yield _Stamp(state["terminated"], "finishedAt", ("container finished", name, restarts))
