"""Finding and building the control plane's binaries, with a `go` that only pretends."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from world.kubernetes import kube_binaries

FAKE_GO = f"""#!{sys.executable}
import os, pathlib, sys
with open(os.environ["FAKE_GO_LOG"], "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "env":
    print(os.environ["FAKE_GO_VERSION"])
    sys.exit()
if os.environ.get("FAKE_GO_FAILS"):
    sys.exit("no such module")
out = next(each for each in sys.argv if each.startswith("-o=")).removeprefix("-o=")
commands = [each for each in sys.argv[2:] if not each.startswith("-")]
made = [pathlib.Path(out) / each.rpartition("/")[2] for each in commands] if out.endswith("/") else [pathlib.Path(out)]
for file in made:
    file.write_text("binary")
"""


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache, and a pretended Go that is new enough."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(FAKE_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent))
    monkeypatch.setenv("FAKE_GO_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.99.1")
    monkeypatch.setenv("RECYCLE_EKS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(kube_binaries.FOLDER_VARIABLE, raising=False)
    return tmp_path / "cache"


def runs_of_go(tmp_path: pathlib.Path) -> list[str]:
    log = tmp_path / "log"
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def test_a_missing_binary_is_built_once(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = kube_binaries.find()
    assert folder.parent == cache
    assert sorted(file.name for file in folder.iterdir()) == sorted(kube_binaries.BINARIES)
    assert runs_of_go(tmp_path) == ["env", "build", "build"]
    assert kube_binaries.find() == folder
    assert len(runs_of_go(tmp_path)) == 3


def test_kubernetes_is_built_with_its_version(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    kube_binaries.find()
    assert "gitVersion=v1." in (tmp_path / "log").read_text()


def test_other_pins_are_another_folder(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kube_binaries.find()
    monkeypatch.setattr(kube_binaries, "AUTHENTICATOR", f"{kube_binaries.AUTHENTICATOR}-other")
    assert kube_binaries.find() != first


def test_two_clones_at_once_build_once(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "world.kubernetes.kube_binaries"]
    tests = pathlib.Path(kube_binaries.__file__).parents[2]
    clones = [subprocess.Popen(command, cwd=tests, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [clone.communicate()[0] for clone in clones]
    assert printed[0] == printed[1]
    assert runs_of_go(tmp_path) == ["env", "build", "build"]


def test_a_failed_build_leaves_nothing(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", "yes")
    with pytest.raises(kube_binaries.CannotBuild, match="no such module"):
        kube_binaries.find()
    assert [each.name for each in cache.iterdir() if not each.name.endswith(".lock")] == []


def test_a_go_that_is_too_old_is_named(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", "go1.21.5")
    with pytest.raises(kube_binaries.CannotBuild, match=r"version 1\.21\.5: .* is built with Go 1\.\d+ or newer"):
        kube_binaries.find()


def test_a_missing_go_is_named(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(kube_binaries.CannotBuild, match="there is no `go` on the PATH"):
        kube_binaries.find()


def test_a_given_folder_is_taken_if_it_has_everything(
    cache: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    monkeypatch.setenv(kube_binaries.FOLDER_VARIABLE, str(given))
    with pytest.raises(kube_binaries.CannotBuild, match="etcd, kube-apiserver"):
        kube_binaries.find()
    for name in kube_binaries.BINARIES:
        (given / name).touch()
    assert kube_binaries.find() == given
    assert runs_of_go(tmp_path) == []
