"""The rights in the cluster by Kustomize and by the Helm chart: for the real API server they are the same objects."""

import subprocess

import yaml

from prepare import ROOT, version
from world.kubernetes import kube_binaries
from world.world import World

MANIFEST = ROOT / "terraform" / "rbac" / "recycle-eks.yaml"
CHART = ROOT / "charts" / "recycle-eks"


def kubectl(world: World, *arguments: str) -> str:
    command = [str(kube_binaries.find() / "kubectl"), f"--kubeconfig={world.kubernetes.kubeconfig}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_kustomize_and_the_files_of_the_chart_create_what_the_manifest_creates(empty_world):
    def applied(*arguments: str) -> list[str]:
        # In another order: Kustomize sorts by kind.
        return sorted(kubectl(empty_world, "apply", *arguments).splitlines())

    by_kustomize = applied("--kustomize", str(MANIFEST.parent))
    documents = [document for document in yaml.safe_load_all(MANIFEST.read_text()) if document]
    assert len(by_kustomize) == len(documents)
    assert all(line.endswith(" created") for line in by_kustomize)
    unchanged = [line.replace(" created", " unchanged") for line in by_kustomize]
    assert applied("--filename", str(CHART / "templates")) == unchanged
    assert applied("--filename", str(MANIFEST)) == unchanged


def test_the_chart_has_the_manifest_unchanged_and_the_version_of_the_release():
    """A template without expressions is rendered as it is, so the chart needs no Helm to be tested."""
    text = (CHART / "templates" / "rbac.yaml").read_text()
    assert text == MANIFEST.read_text(), "run: make generate"
    assert "{{" not in text
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version(), version()), "run: make generate"
