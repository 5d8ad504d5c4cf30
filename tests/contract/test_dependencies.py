"""The allowed dependencies: the table of the crates, and the features that keep tests from compiling a crate twice."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from prepare import LAMBDAS, ROOT

#: Crates that reach the world outside, and those that such crates are made of.
IO = ("aws-", "hyper", "k8s-openapi", "kube", "lambda_runtime", "rustls", "tokio")
#: The crates that only tests may link: scripted services and bad input.
SCRIPTED = {"bad-input", "scripted-aws", "scripted-kube"}
#: The services that Lambda calls with a function's role from outside its VPC: for its log, and for events that it could not
#: handle.
CALLED_BY_LAMBDA = {"logs", "sqs"}

STEP = {"eks-auth", "kube", "lambda", "kubernetes", "recycle", "tokio"}
STEP_OF_THE_GROUP = STEP | {"aws-config", "autoscaling"}
STEP_OF_THE_INSTANCE = STEP | {"aws-config", "ec2"}


class Row(NamedTuple):
    """A crate, its allowed dependencies among the crates of the workspace and those for I/O, and the reason."""

    crate: str
    allowed: set[str]
    reason: str


TABLE = [
    Row("recycle", set(), "decisions are pure: no AWS, no Kubernetes, no runtime, not even through another crate"),
    Row(
        "eks-auth",
        {"recycle", "aws-config", "aws-credential-types", "aws-sdk-eks", "aws-sdk-sts", "aws-sigv4", "k8s-openapi", "kube"}
        | {"hyper-rustls", "hyper-timeout", "hyper-util", "rustls"},
        "the way into a cluster: EKS says where it is, STS's endpoint and a signature make the token, kube is handed out, on a "
        "connection that trusts the cluster's CA",
    ),
    Row(
        "kubernetes",
        {"recycle", "eks-auth", "k8s-openapi", "kube", "tokio"},
        "the Kubernetes half of the record; of AWS it knows the way into the cluster only; tokio bounds each call in time",
    ),
    Row(
        "autoscaling",
        {"recycle", "aws-config", "aws-sdk-autoscaling"},
        "Auto Scaling groups, without EC2",
    ),
    Row(
        "ec2",
        {"recycle", "autoscaling", "aws-config", "aws-sdk-ec2"},
        "the AWS half of the record, and the only one that links the largest of all SDKs",
    ),
    Row("step-functions", {"recycle", "autoscaling", "aws-config", "aws-sdk-sfn"}, "asks what became of executions"),
    Row(
        "lambda",
        {"recycle", "aws-config", "aws-smithy-http-client", "lambda_runtime"},
        "what each function's main needs; of what the functions do it knows nothing",
    ),
    Row(
        "claim-node",
        STEP_OF_THE_INSTANCE | {"aws-sdk-elasticloadbalancingv2", "step-functions"},
        "pre-flight reads instance, group, its balancers' targets and Node; asks whether executions run; the Lease has the claim",
    ),
    Row("standby-node", STEP_OF_THE_INSTANCE, "acts on the group, and looks for the replacement's Node"),
    Row("taint-node", STEP, "a Node is all that it touches"),
    Row("check-pods", STEP_OF_THE_GROUP, "polled for hours: EC2 is asked at the ends only, the group at each look"),
    Row("evict-pods", STEP, "pods are all that it touches"),
    Row("detach-terminate", STEP_OF_THE_INSTANCE, "ends the instance, and takes its Node away"),
    Row(
        "restore-node",
        STEP_OF_THE_INSTANCE | {"step-functions"},
        "restores Node, instance and group, once the execution that held the claim has ended",
    ),
    Row(
        "select-nodes",
        STEP_OF_THE_INSTANCE | {"step-functions"},
        "looks for the marks of recycle-eks on Nodes and instances, and asks what became of the executions that set them",
    ),
    Row(
        "serve-operator",
        STEP_OF_THE_INSTANCE | {"aws-sdk-sfn"},
        "looks for the marks of recycle-eks on Nodes and instances, and tries whether it reaches each service",
    ),
    Row(
        "start-rotation",
        {"recycle", "aws-config", "aws-sdk-sfn", "autoscaling", "lambda", "tokio"},
        "starts executions and looks at nothing; how AWS's refusals are sorted it has from autoscaling",
    ),
    Row(
        "recycle-eks",
        {"recycle", "aws-config", "aws-sdk-autoscaling", "aws-sdk-lambda", "aws-sdk-sfn", "aws-sdk-sts", "aws-smithy-http-client"}
        | {"aws-smithy-types", "tokio"}
        | {"aws-sdk-cloudwatchlogs", "aws-sdk-eks", "aws-sdk-eventbridge", "aws-sdk-sns", "aws-sdk-sqs"},
        "the command line talks to AWS alone: no EC2, no Kubernetes; the last five are only the doctor's",
    ),
    Row(
        "scripted-aws",
        {"aws-config", "aws-credential-types", "aws-smithy-runtime-api", "aws-smithy-types"},
        "tests' AWS, below the SDK's clients: it links none of them",
    ),
    Row("scripted-kube", {"kube"}, "tests' API server, below kube's client"),
    Row("bad-input", {"tokio"}, "tests' bad input: it knows no reader and no type of recycle-eks; tokio does the work of a case"),
]
#: The features that only the command line needs of crates that it shares with functions (package.py builds those without them):
#: credentials as in the AWS CLI, Ctrl-C, the time of day.
FEATURES = {
    ("recycle-eks", "aws-config"): ["credentials-process", "sso"],
    ("recycle-eks", "jiff"): ["std"],
    ("recycle-eks", "tokio"): ["signal"],
}
CRATES = [row.crate for row in TABLE]
WITH_EC2 = {"ec2"} | {row.crate for row in TABLE if "ec2" in row.allowed}


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    return json.loads(cargo("metadata", "--locked", "--format-version", "1"))


@pytest.fixture(scope="module")
def packages(metadata: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The crates of the workspace by name."""
    members = set(metadata["workspace_members"])
    return {package["name"]: package for package in metadata["packages"] if package["id"] in members}


def cargo(*arguments: str) -> str:
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def is_io(name: str) -> bool:
    return name.startswith(IO)


def dependencies(package: dict[str, Any], *, of_tests: bool) -> set[str]:
    return {found["name"] for found in package["dependencies"] if (found["kind"] == "dev") == of_tests}


def linked(crate: str) -> dict[str, str]:
    """Returns every crate that this one links, without tests, with its features."""
    return tree("--package", crate, "--edges", "no-dev")


def tree(*arguments: str) -> dict[str, str]:
    """Crates with their versions as `cargo tree` finds them, and their features."""
    lines = cargo("tree", "--locked", "--prefix", "none", "--format", "{p}|{f}", *arguments).splitlines()
    return dict(line.removesuffix(" (*)").split("|") for line in lines if line)


def names(crates: dict[str, str]) -> set[str]:
    return {crate.split()[0] for crate in crates}


def test_the_table_has_a_row_for_each_crate_and_a_crate_for_each_function(packages):
    assert sorted(CRATES) == sorted(packages)
    assert set(LAMBDAS) <= set(CRATES)


@pytest.mark.parametrize("row", TABLE, ids=CRATES)
def test_a_crate_depends_on_what_its_row_allows(row: Row, packages):
    found = dependencies(packages[row.crate], of_tests=False)
    assert {name for name in found if is_io(name) or name in packages} == row.allowed, row.reason


def test_the_domain_links_nothing_that_does_io():
    assert [name for name in names(linked("recycle")) if is_io(name)] == []


@pytest.mark.parametrize("crate", CRATES)
def test_only_those_that_act_on_instances_link_the_sdk_of_ec2(crate: str):
    assert ("aws-sdk-ec2" in names(linked(crate))) == (crate in WITH_EC2)


def test_only_tests_link_what_is_made_for_them(packages):
    for name, package in packages.items():
        assert not SCRIPTED & dependencies(package, of_tests=False), name


def test_the_page_names_the_endpoint_of_each_service_that_a_function_may_call():
    """The permissions are those of terraform/iam.tf: Terraform's own test holds the two together."""
    permissions = (ROOT / "terraform" / "tests" / "permissions.tftest.hcl").read_text()
    allowed = dict(re.findall(r"^      ([a-z-]+) += tolist\(\[(.*?)\]\)$", permissions, re.MULTILINE | re.DOTALL))
    page = (ROOT / "docs" / "install.md").read_text()
    (table,) = re.findall(r"^\| function \| interface endpoints \|\n\|---\|---\|\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    rows = [re.findall(r"`([a-z0-9-]+)`", row) for row in table.splitlines()]

    assert set(allowed) == set(LAMBDAS)
    assert {function: set(services) for function, *services in rows} == {
        function: set(re.findall(r'"(\w+):', actions)) - CALLED_BY_LAMBDA for function, actions in allowed.items()
    }


def test_versions_and_features_are_the_workspaces(packages):
    """A version that a crate chose for itself, or a feature, would be a second one to build and to keep up to date."""
    for crate in CRATES:
        manifest = tomllib.loads(Path(packages[crate]["manifest_path"]).read_text())
        for table in ("dependencies", "dev-dependencies", "build-dependencies"):
            for name, value in manifest.get(table, {}).items():
                asked = {"features": FEATURES[crate, name]} if (crate, name) in FEATURES else {}
                assert value == {"workspace": True, **asked}, f"{crate}: {name}"


def test_tests_switch_on_no_feature_of_what_the_functions_are_built_of():
    """Else cargo builds that crate, and all that stand on it, a second time for tests: all SDKs, minutes of it."""
    functions = tree("--workspace", "--edges", "no-dev")
    with_tests = tree("--workspace")
    assert {crate: with_tests[crate] for crate in functions} == functions
