"""Finds the control plane's binaries, building them on the first use.

They come from their Go modules at the versions pinned here and in `kube-build/`, into a cache outside the clone that all clones
on a machine share. `kube-versions/` pins the other versions of Kubernetes, for `make versions`. The environment variable
RECYCLE_EKS_KUBE_BIN names a folder with ready ones instead.

    python -m world.kubernetes.kube_binaries       prints the folder, after building what is missing
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

from go_build import Build, CannotBuild, find_built, hash_pins, pinned

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "aws-iam-authenticator")

FOLDER_VARIABLE = "RECYCLE_EKS_KUBE_BIN"

#: It is built with the libraries of the pinned Kubernetes, so that they are compiled once.
AUTHENTICATOR = "sigs.k8s.io/aws-iam-authenticator/cmd/aws-iam-authenticator"

_PINS = pathlib.Path(__file__).parent / "kube-build"
#: A module for each other minor version of Kubernetes, named by it.
_OTHERS = pathlib.Path(__file__).parent / "kube-versions"

_ADVICE = (
    "the local control plane is built with Go {needed} or newer once; "
    f"install it, or set {FOLDER_VARIABLE} to a folder with {', '.join(BINARIES)}"
)
_TITLE = "once: about 10 minutes on 2 cores with nothing cached"


def find() -> pathlib.Path:
    """The folder with all binaries. Builds them if need be, which takes minutes."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        folder = pathlib.Path(given)
        missing = [name for name in BINARIES if not (folder / name).exists()]
        if missing:
            raise CannotBuild(f"{FOLDER_VARIABLE} names {folder}, where {', '.join(missing)} is missing")
        return folder
    also = " ".join([AUTHENTICATOR, *BINARIES])
    return find_built("kube", _PINS, also, _ADVICE, f"building the local control plane, {_TITLE}", _compile)


def other_versions() -> list[str]:
    """Returns the other minor versions of Kubernetes that the scenarios about pods run on, oldest first."""
    return sorted((folder.name for folder in _OTHERS.iterdir()), key=lambda minor: [int(part) for part in minor.split(".")])


def find_other(minor: str) -> pathlib.Path:
    """The folder with all binaries, those of Kubernetes in another minor version. Builds them if need be."""
    own = find()

    def compile_other(build: Build) -> None:
        _compile_kubernetes(build, _OTHERS / minor)
        for name in BINARIES:
            if not name.startswith("kube"):
                shutil.copy(own / name, build.folder)

    title = f"building a control plane of Kubernetes {minor}, {_TITLE}"
    return find_built(f"kube-{minor}", _OTHERS / minor, hash_pins(_PINS), _ADVICE, title, compile_other)


def _compile(build: Build) -> None:
    _compile_kubernetes(build, _PINS / "kubernetes", AUTHENTICATOR)
    built = f"-o={build.folder / 'etcd'}"
    build.run("etcd", "build", built, "-ldflags=-s -w", "go.etcd.io/etcd/server/v3", pins=_PINS / "etcd")


def _compile_kubernetes(build: Build, module: pathlib.Path, *others: str) -> None:
    version = pinned_kubernetes(module)
    major, minor = version.split(".")[:2]
    # Without these, /version says "v0.0.0-master+$Format:%H$".
    package = "k8s.io/component-base/version"
    stamps = f"-X {package}.gitVersion=v{version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    own = {path.name for path in module.iterdir() if path.is_dir()}
    names = [name for name in BINARIES if name.startswith("kube")]
    commands = [f"./{name}" if name in own else f"k8s.io/kubernetes/cmd/{name}" for name in names]
    build.run(
        f"kubernetes {version}",
        *("build", f"-o={build.folder}/", f"-ldflags=-s -w {stamps}", *commands, *others),
        pins=module,
    )


def pinned_kubernetes(module: pathlib.Path = _PINS / "kubernetes") -> str:
    """Returns the version of Kubernetes that a module pins."""
    return pinned(module / "go.mod", r"k8s\.io/kubernetes v(\S+)$")


if __name__ == "__main__":
    try:
        print(find())
    except CannotBuild as problem:
        sys.exit(f"error: {problem}")
