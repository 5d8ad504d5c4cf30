"""Finds the control plane's binaries, building them on the first use.

They come from their Go modules at the versions pinned here and in `kube-build/`, into a cache outside the clone that all clones
on a machine share. The environment variable RECYCLE_EKS_KUBE_BIN names a folder with ready ones instead.

    python -m world.kubernetes.kube_binaries       prints the folder, after building what is missing
"""

from __future__ import annotations

import os
import pathlib
import sys

from go_build import Build, CannotBuild, find_built, pinned

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "aws-iam-authenticator")

FOLDER_VARIABLE = "RECYCLE_EKS_KUBE_BIN"

AUTHENTICATOR = "sigs.k8s.io/aws-iam-authenticator/cmd/aws-iam-authenticator@v0.6.13"

_PINS = pathlib.Path(__file__).parent / "kube-build"


def find() -> pathlib.Path:
    """The folder with all binaries. Builds them if need be, which takes minutes."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        folder = pathlib.Path(given)
        missing = [name for name in BINARIES if not (folder / name).exists()]
        if missing:
            raise CannotBuild(f"{FOLDER_VARIABLE} names {folder}, where {', '.join(missing)} is missing")
        return folder
    advice = (
        "the local control plane is built with Go {needed} or newer once; "
        f"install it, or set {FOLDER_VARIABLE} to a folder with {', '.join(BINARIES)}"
    )
    title = "building the local control plane, once: about 6 minutes on 2 cores with nothing cached"
    return find_built("kube", _PINS, " ".join([AUTHENTICATOR, *BINARIES]), advice, title, _compile)


def _compile(build: Build) -> None:
    kubernetes = pinned(_PINS / "kubernetes" / "go.mod", r"k8s\.io/kubernetes v(\S+)$")
    major, minor = kubernetes.split(".")[:2]
    # Without these, /version says "v0.0.0-master+$Format:%H$".
    package = "k8s.io/component-base/version"
    stamps = f"-X {package}.gitVersion=v{kubernetes} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    own = {path.name for path in (_PINS / "kubernetes").iterdir() if path.is_dir()}
    names = [name for name in BINARIES if name.startswith("kube")]
    commands = [f"./{name}" if name in own else f"k8s.io/kubernetes/cmd/{name}" for name in names]
    folder, stripped = build.folder, "-ldflags=-s -w"
    build.run(
        f"kubernetes {kubernetes}",
        *("build", f"-o={folder}/", f"{stripped} {stamps}", *commands),
        pins=_PINS / "kubernetes",
    )
    build.run("etcd", "build", f"-o={folder / 'etcd'}", stripped, "go.etcd.io/etcd/server/v3", pins=_PINS / "etcd")
    build.run("aws-iam-authenticator", "install", stripped, AUTHENTICATOR, pins=folder, GOBIN=str(folder))


if __name__ == "__main__":
    try:
        print(find())
    except CannotBuild as problem:
        sys.exit(f"error: {problem}")
