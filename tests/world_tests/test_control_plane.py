"""The processes of the control plane: they end with the process that started them, and leave nothing.

test_sessions.py has the end of a whole session.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from world.kubernetes import control_plane, kube_binaries
from world.kubernetes.control_plane import FROZEN_BETWEEN_SETTLES, ComponentDied, ControlPlane
from world.process.processes import eventually, is_running, listening_addresses, thread_states


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A plane that has only started, for all tests that need no more."""
    plane = ControlPlane(kube_binaries.find(), "world", "http://127.0.0.1:9", os.devnull)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()
    assert not plane.folder.exists()


def test_every_port_is_on_loopback_only(plane: ControlPlane) -> None:
    own = {process.pid for process in plane._processes.values()}
    assert set(listening_addresses(own)) == {"127.0.0.1"}


def test_a_component_that_was_frozen_stands_still_at_once(plane: ControlPlane) -> None:
    pids = [plane._processes[name].pid for name in FROZEN_BETWEEN_SETTLES]
    for _ in range(200):
        plane.freeze(*FROZEN_BETWEEN_SETTLES)
        assert {state for pid in pids for state in thread_states(pid)} == {"T"}
        plane.thaw(*FROZEN_BETWEEN_SETTLES)


def test_controllers_that_get_no_answer_for_a_minute_keep_their_connections(plane: ControlPlane) -> None:
    client = plane.client()

    def namespace_gets_its_account(name: str) -> bool:
        client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return eventually(lambda: client.call("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default").status == 200)

    assert namespace_gets_its_account("before")
    # A controller may be frozen before it has read the answer to its health check, and thawed a minute later.
    plane.freeze("kube-apiserver")
    time.sleep(55)
    plane.thaw("kube-apiserver")
    assert namespace_gets_its_account("after")
    assert [name for name in FROZEN_BETWEEN_SETTLES if "connection lost" in plane.log(name)] == []


HASTY = """
import os, signal, subprocess
from world.process.processes import never_outlives
component = subprocess.Popen(never_outlives(os.getpid(), ["sleep", "600"]), process_group=0)
print(component.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_session_that_is_killed_while_it_starts_a_component_leaves_none() -> None:
    """Without the second check of the parent 5 of 20 processes remained."""
    tests = pathlib.Path(control_plane.__file__).parents[2]
    for _ in range(10):
        session = subprocess.run([sys.executable, "-c", HASTY], cwd=tests, stdout=subprocess.PIPE, text=True, check=False)
        assert session.returncode == -signal.SIGKILL
        assert eventually(lambda pid=int(session.stdout): not is_running(pid))


def test_a_component_that_cannot_start_is_named_with_its_log(tmp_path: pathlib.Path) -> None:
    for name in kube_binaries.BINARIES:
        (tmp_path / name).symlink_to(kube_binaries.find() / name)
    (tmp_path / "etcd").unlink()
    (tmp_path / "etcd").write_text("#!/bin/sh\necho the disk is full\nexit 3\n")
    (tmp_path / "etcd").chmod(0o755)
    plane = ControlPlane(tmp_path, "world", "http://127.0.0.1:9", os.devnull)
    with pytest.raises(ComponentDied, match="etcd ended with exit code 3:\nthe disk is full"):
        plane.start()
    assert not plane.folder.exists()


def test_a_component_that_dies_while_the_others_start_is_started_again(tmp_path: pathlib.Path) -> None:
    for name in kube_binaries.BINARIES:
        (tmp_path / name).symlink_to(kube_binaries.find() / name)
    etcd, first = tmp_path / "etcd", tmp_path / "first"
    etcd.unlink()
    etcd.write_text(f'#!/bin/sh\n[ -e {first} ] || {{ touch {first}; exit 3; }}\nexec {kube_binaries.find() / "etcd"} "$@"\n')
    etcd.chmod(0o755)
    plane = ControlPlane(tmp_path, "world", "http://127.0.0.1:9", os.devnull)
    try:
        plane.start()
        assert first.exists()
        plane.check_alive()
    finally:
        plane.stop()
