"""The present content of the cluster, followed in etcd itself.

One watch over the whole key space gives every change of every object, in order, each with the revision of the store. So a
reader can know that it has seen everything, which a watch through the API server does not allow: it asks etcd for its revision,
and waits until the watch has come that far. Reading costs the API server nothing. (Objects are readable because the API server
is set to store JSON.)

A cluster of a thousand nodes changes in a few objects at a time. A reader that checks again and again calls `changes` for the
changed objects, and uses the indexes (`pods_on`, `controlled_by`, `unplaced_pods`) for related ones, instead of reading
everything.

This is the world's own view. The functions under test see the API server, and only that.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from world.kubernetes.kube_client import Json

KINDS = (
    "nodes",
    "pods",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "poddisruptionbudgets",
    "persistentvolumeclaims",
    "persistentvolumes",
    "controllerrevisions",
    "namespaces",
    "serviceaccounts",
)
"""The kinds that are followed, named as in the API's paths."""

_REGISTRY = "/registry/"
_STORED_AS = {"nodes": "minions"}
_KIND_OF_PREFIX = {_STORED_AS.get(kind, kind): kind for kind in KINDS}

_EVERY_KEY = base64.b64encode(b"\0").decode()
_CATCH_UP_LIMIT = 180.0
"""Seconds that the watch may lag behind the store before something must be broken; usually it is 1-2 ms."""

Listener = Callable[[str, Json], None]


class Change(NamedTuple):
    """One object of a kind, by `namespace/name`: None is before it came, or after it went."""

    kind: str
    key: str
    before: Json | None
    after: Json | None


class Changes:
    """The changes from now on, for one reader."""

    def __init__(self) -> None:
        self._waiting: list[Change] = []

    def take(self) -> list[Change]:
        """Returns the changes since the last call, in order."""
        taken = self._waiting[:]
        # The watch's thread, and only that, may append others at the same time.
        del self._waiting[: len(taken)]
        return taken

    def add(self, change: Change) -> None:
        """Used by the thread that follows the cluster."""
        self._waiting.append(change)


class ClusterState:
    """Follows one etcd from `start` to `stop`. The objects it hands out are shared: never change them."""

    def __init__(self, etcd_port: int, on_change: Listener) -> None:
        """`on_change(kind, object)` is called, in the watch's own thread, for everything that appears or changes."""
        self._port = etcd_port
        self._on_change = on_change
        self._objects: dict[str, dict[str, Json]] = {kind: {} for kind in KINDS}
        self._sorted: dict[str, list[Json]] = {}
        self._on_node: dict[str, dict[str, Json]] = defaultdict(dict)
        self._unplaced: dict[str, Json] = {}
        self._controlled: dict[str, dict[tuple[str, str], Json]] = defaultdict(dict)
        self._readers: list[Changes] = []
        self._changed = threading.Condition()
        self._revision = 0
        self._followed_revision = 0
        self._ended = ""
        self._questions = threading.local()
        self._thread = threading.Thread(target=self._follow, name="cluster-state", daemon=True)

    def start(self) -> None:
        """Returns when everything that is in the store has been read."""
        self._thread.start()
        self.catch_up()

    def stop(self) -> None:
        """Waits for the end of the watch, which comes with the end of etcd: stop that first."""
        if self._thread.is_alive():
            self._thread.join()

    # -- questions -----------------------------------------------------------------------------------------------

    def all(self, kind: str) -> list[Json]:
        """The objects of a kind, by namespace and name."""
        with self._changed:
            if kind not in self._sorted:
                self._sorted[kind] = [thing for _, thing in sorted(self._objects[kind].items())]
            return self._sorted[kind][:]

    def get(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """One object, or None. `name` may be a key (`namespace/name`) by itself."""
        with self._changed:
            return self._objects[kind].get(key_of(name, namespace))

    def pods_on(self, node: str) -> list[Json]:
        """The pods that are placed on a node, by namespace and name."""
        with self._changed:
            return [pod for _, pod in sorted(self._on_node.get(node, {}).items())]

    def unplaced_pods(self) -> list[Json]:
        """The pods that are on no node yet, by namespace and name."""
        with self._changed:
            return [pod for _, pod in sorted(self._unplaced.items())]

    def controlled_by(self, uid: str) -> list[tuple[str, Json]]:
        """Returns the objects that this object controls, each with its kind."""
        with self._changed:
            return [(kind, thing) for (kind, _), thing in sorted(self._controlled.get(uid, {}).items(), key=_first)]

    def changes(self) -> Changes:
        """Returns a new reader of changes."""
        with self._changed:
            self._readers.append(reader := Changes())
            return reader

    def forget(self, reader: Changes) -> None:
        """Removes a reader."""
        with self._changed:
            self._readers.remove(reader)

    def volume_of(self, namespace: str, claim: str) -> Json | None:
        """The PersistentVolume that a claim is bound to."""
        found = self.get("persistentvolumeclaims", claim, namespace)
        name = found["spec"].get("volumeName") if found else None
        return self.get("persistentvolumes", name) if name else None

    @property
    def followed_revision(self) -> int:
        """The store's revision at the last change of any followed object, as far as seen. Changes when they do."""
        return self._followed_revision

    def catch_up(self) -> None:
        """Returns when everything written before the call has been seen."""
        target = int(
            self._ask("/v3/kv/range", {"key": _EVERY_KEY, "count_only": True, "serializable": True})["header"]["revision"]
        )
        deadline = time.monotonic() + _CATCH_UP_LIMIT
        with self._changed:
            while self._revision < target:
                if self._ended or not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise RuntimeError(f"lost sight of the cluster at revision {self._revision} of {target} {self._ended}")

    def wait_for_change(self, since: int, limit: float) -> None:
        """Returns when `followed_revision` is no longer `since`, or after `limit` real seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._followed_revision != since or self._ended, limit)

    def erase(self, prefixes: list[str]) -> None:
        """Removes everything stored under `/registry/<prefix>/`, past every finalizer and grace period. The API server
        and the controllers learn of it as of any deletion."""
        deletions = []
        for prefix in prefixes:
            first = f"{_REGISTRY}{_STORED_AS.get(prefix, prefix)}/"
            # "0" is the character after "/".
            span = {"key": _base64(first), "range_end": _base64(first[:-1] + "0")}
            deletions.append({"request_delete_range": span})
        self._ask("/v3/kv/txn", {"success": deletions})

    # -- the watch -----------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            watch = http.client.HTTPConnection("127.0.0.1", self._port)
            request = {"create_request": {"key": _EVERY_KEY, "range_end": _EVERY_KEY, "start_revision": 1}}
            watch.request("POST", "/v3/watch", json.dumps(request))
            answer = watch.getresponse()
            while line := answer.readline():
                self._take(orjson.loads(line)["result"].get("events", []))
            ended = "(the watch ended)"
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            ended = f"({type(error).__name__}: {error})"
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def _take(self, events: list[Json]) -> None:
        changes = [change for change in map(_change, events) if change]
        for kind, _, thing, _ in changes:
            if thing is not None:
                self._on_change(kind, thing)
        with self._changed:
            for kind, key, thing, revision in changes:
                self._replace(kind, key, thing)
                self._followed_revision = revision
            if events:
                self._revision = int(events[-1]["kv"]["mod_revision"])
            self._changed.notify_all()

    def _replace(self, kind: str, key: str, after: Json | None) -> None:
        objects = self._objects[kind]
        before = objects.pop(key, None)
        if before is not None:
            self._unindex(kind, key, before)
        if after is not None:
            objects[key] = after
            self._index(kind, key, after)
        self._sorted.pop(kind, None)
        for reader in self._readers:
            reader.add(Change(kind, key, before, after))

    def _index(self, kind: str, key: str, thing: Json) -> None:
        if kind == "pods":
            node = thing["spec"].get("nodeName")
            (self._on_node[node] if node else self._unplaced)[key] = thing
        owner = controller_of(thing)
        if owner:
            self._controlled[owner["uid"]][kind, key] = thing

    def _unindex(self, kind: str, key: str, thing: Json) -> None:
        if kind == "pods":
            node = thing["spec"].get("nodeName")
            del (self._on_node[node] if node else self._unplaced)[key]
            if node and not self._on_node[node]:
                del self._on_node[node]
        owner = controller_of(thing)
        if owner:
            del self._controlled[owner["uid"]][kind, key]
            if not self._controlled[owner["uid"]]:
                del self._controlled[owner["uid"]]

    def _ask(self, path: str, question: Json) -> Json:
        connection = getattr(self._questions, "connection", None)
        if connection is None:
            connection = _UndelayedConnection("127.0.0.1", self._port, timeout=_CATCH_UP_LIMIT)
            self._questions.connection = connection
        connection.request("POST", path, json.dumps(question))
        return orjson.loads(connection.getresponse().read())


def _change(event: Json) -> tuple[str, str, Json | None, int] | None:
    """(kind, key, object or None if it is gone, revision); None for what is not followed."""
    stored = event["kv"]
    path = base64.b64decode(stored["key"]).decode()
    if not path.startswith(_REGISTRY):
        return None
    prefix, _, rest = path.removeprefix(_REGISTRY).partition("/")
    kind = _KIND_OF_PREFIX.get(prefix)
    if kind is None:
        return None
    revision = int(stored["mod_revision"])
    if event.get("type") == "DELETE":
        return kind, rest, None, revision
    thing: Any = orjson.loads(base64.b64decode(stored["value"]))
    thing["metadata"]["resourceVersion"] = stored["mod_revision"]
    return kind, rest, thing, revision


def key_of(name: str, namespace: str) -> str:
    """`namespace/name`, or the name of what has no namespace."""
    return f"{namespace}/{name}" if namespace else name


def controller_of(thing: Json) -> Json | None:
    """The owner reference of the controller."""
    for owner in thing["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner
    return None


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class _UndelayedConnection(http.client.HTTPConnection):
    """Without Nagle's algorithm, which adds 40 ms where head and body of a request are two writes."""

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
