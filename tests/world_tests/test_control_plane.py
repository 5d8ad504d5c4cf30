"""The processes of the control plane: they end with whoever started them, and leave nothing behind."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from world import control_plane, kube_binaries
from world.control_plane import ComponentDied, ControlPlane

STARTER = """
import os, pathlib, sys, time
from world import kube_binaries
from world.control_plane import ControlPlane
plane = ControlPlane(kube_binaries.find(), "world", "http://127.0.0.1:9", os.devnull)
plane.start()
print(plane.folder, *[process.pid for process in plane._processes.values()], flush=True)
time.sleep(600)
"""


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def is_running(pid: int) -> bool:
    stat = pathlib.Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_killed_session_leaves_no_process_and_the_next_one_removes_its_folder() -> None:
    tests = pathlib.Path(control_plane.__file__).parents[1]
    session = subprocess.Popen([sys.executable, "-c", STARTER], cwd=tests, stdout=subprocess.PIPE, text=True)
    assert session.stdout is not None
    folder, *pids = session.stdout.readline().split()
    assert len(pids) == 5 and all(is_running(int(pid)) for pid in pids)
    session.send_signal(signal.SIGKILL)
    session.wait()
    session.stdout.close()
    assert eventually(lambda: not any(is_running(int(pid)) for pid in pids))
    assert pathlib.Path(folder).exists()
    control_plane._temporary_folder().rmdir()
    assert not pathlib.Path(folder).exists()


def test_every_port_is_on_loopback_only() -> None:
    plane = ControlPlane(kube_binaries.find(), "world", "http://127.0.0.1:9", os.devnull)
    plane.start()
    try:
        ours = {process.pid for process in plane._processes.values()}
        assert set(listening_addresses(ours)) == {"127.0.0.1"}
    finally:
        plane.stop()
    assert not plane.folder.exists()


def listening_addresses(pids: set[int]) -> list[str]:
    """The addresses on which processes listen, by the kernel's tables."""
    inodes = set()
    for pid in pids:
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(link) if link.is_symlink() else ""
            if target.startswith("socket:["):
                inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                in_hex = fields[1].partition(":")[0]
                reversed_bytes = bytes.fromhex(in_hex)[::-1]
                addresses.append(".".join(str(byte) for byte in reversed_bytes) if len(in_hex) == 8 else in_hex)
    return addresses


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
