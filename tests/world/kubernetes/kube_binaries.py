"""Finds the control plane's binaries, building them on the first use.

They come from their Go modules at the versions pinned here and in `kube-build/`, into a cache outside the clone that all clones
on a machine share. The environment variable RECYCLE_EKS_KUBE_BIN names a folder with ready ones instead.

    python -m world.kube_binaries       prints the folder, after building what is missing
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "aws-iam-authenticator")

FOLDER_VARIABLE = "RECYCLE_EKS_KUBE_BIN"
CACHE_VARIABLE = "RECYCLE_EKS_CACHE"

AUTHENTICATOR = "sigs.k8s.io/aws-iam-authenticator/cmd/aws-iam-authenticator@v0.6.13"

_PINS = pathlib.Path(__file__).parent / "kube-build"
_USUAL_DURATION = "about 6 minutes on 2 cores with nothing cached"
_PROGRESS_EVERY = 15.0
"""Seconds between two signs of life while something is being compiled."""


class CannotBuild(RuntimeError):
    """The binaries are missing and cannot be built; the text says what to do."""


def find() -> pathlib.Path:
    """The folder with all binaries. Builds them if need be, which takes minutes."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        folder = pathlib.Path(given)
        missing = [name for name in BINARIES if not (folder / name).exists()]
        if missing:
            raise CannotBuild(f"{FOLDER_VARIABLE} names {folder}, where {', '.join(missing)} is missing")
        return folder
    folder = _cache() / f"kube-{_hash_of_pins()}"
    if not folder.exists():
        _build_once(folder)
    return folder


def _cache() -> pathlib.Path:
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return pathlib.Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "recycle-eks"


def _hash_of_pins() -> str:
    digest = hashlib.sha256(" ".join([AUTHENTICATOR, *BINARIES]).encode())
    for file in sorted(_PINS.rglob("*")):
        if file.is_file():
            digest.update(file.relative_to(_PINS).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _build_once(folder: pathlib.Path) -> None:
    """Under a lock, so that two clones that start together build once; renamed at the end, so that what is there is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return
        go = _find_go()
        unfinished = pathlib.Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        try:
            _build(go, unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _find_go() -> str:
    needed = _go_version_in_pins()
    advice = (
        f"the local control plane is built with Go {needed} or newer once; "
        f"install it, or set {FOLDER_VARIABLE} to a folder with {', '.join(BINARIES)}"
    )
    go = shutil.which("go")
    if go is None:
        raise CannotBuild(f"there is no `go` on the PATH: {advice}")
    # GOTOOLCHAIN=local: use the installed toolchain, without a download.
    printed = subprocess.run(
        [go, "env", "GOVERSION"], env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True, check=True
    )
    installed = printed.stdout.strip().removeprefix("go")
    if _numbers(installed) < _numbers(needed):
        raise CannotBuild(f"`go` is version {installed}: {advice}")
    return go


def _go_version_in_pins() -> str:
    versions = [_pinned(project, r"^go (\S+)$") for project in ("kubernetes", "etcd")]
    return max(versions, key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _pinned(project: str, pattern: str) -> str:
    found = re.search(pattern, (_PINS / project / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise CannotBuild(f"kube-build/{project}/go.mod has no line like {pattern}")
    return found.group(1)


def _build(go: str, folder: pathlib.Path) -> None:
    kubernetes = _pinned("kubernetes", r"k8s\.io/kubernetes v(\S+)$")
    major, minor = kubernetes.split(".")[:2]
    # Without these, /version says "v0.0.0-master+$Format:%H$".
    package = "k8s.io/component-base/version"
    stamps = f"-X {package}.gitVersion=v{kubernetes} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    own = {path.name for path in (_PINS / "kubernetes").iterdir() if path.is_dir()}
    names = [name for name in BINARIES if name.startswith("kube")]
    commands = [f"./{name}" if name in own else f"k8s.io/kubernetes/cmd/{name}" for name in names]
    started = time.monotonic()
    _say(f"building the local control plane, once: {_USUAL_DURATION}", started)
    _run(
        f"kubernetes {kubernetes}",
        [go, "build", f"-o={folder}/", f"-ldflags=-s -w {stamps}", *commands],
        _PINS / "kubernetes",
        started,
    )
    _run("etcd", [go, "build", f"-o={folder / 'etcd'}", "-ldflags=-s -w", "go.etcd.io/etcd/server/v3"], _PINS / "etcd", started)
    install = [go, "install", "-ldflags=-s -w", AUTHENTICATOR]
    _run("aws-iam-authenticator", install, folder, started, GOBIN=str(folder))
    _say("done", started)


def _run(what: str, command: list[str], folder: pathlib.Path, started: float, **environment: str) -> None:
    _say(f"compiling {what}", started)
    finished = threading.Event()

    def report() -> None:
        while not finished.wait(_PROGRESS_EVERY):
            _say(f"still compiling {what}", started)

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    finally:
        finished.set()
        reporter.join()
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")


def _say(text: str, started: float) -> None:
    print(f"[{time.monotonic() - started:4.0f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(find())
    except CannotBuild as problem:
        sys.exit(f"error: {problem}")
