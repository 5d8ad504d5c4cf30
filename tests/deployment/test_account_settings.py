"""The rules of an account reach every resource that can have them: read from a real plan of all that the module can create."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from prepare import host_architecture
from world.deployment import CLUSTER, TRIGGERS, ZIPS, environment
from world.process.folders import temporary_folder
from world.process.terraform import MODULE, Terraform, copy_of_project

KEY = "arn:aws:kms:eu-west-1:123456789012:key/12345678-1234-1234-1234-123456789012"
SETTINGS: dict[str, Any] = {
    "iam_role_permissions_boundary": "arn:aws:iam::123456789012:policy/boundary",
    "iam_role_path": "/team/",
    "kms_key_arn": KEY,
    "log_retention_days": 30,
    "tracing": True,
    "tags": {"team": "nodes"},
}

#: setting -> the attributes by which a resource has it (in full: `type.attribute`), and whether a value is as set
BY_ATTRIBUTE: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "iam_role_permissions_boundary": (
        r".*\.permissions_boundary",
        lambda value: value == SETTINGS["iam_role_permissions_boundary"],
    ),
    "iam_role_path": (r"aws_iam_role\.path", lambda value: value == SETTINGS["iam_role_path"]),
    "kms_key_arn": (r".*\.kms_\w*key_(id|arn)", lambda value: value == KEY),
    "log_retention_days": (r".*\.retention_in_days", lambda value: value == SETTINGS["log_retention_days"]),
    "tracing": (r".*\.tracing_config(uration)?", lambda value: value in ([{"mode": "Active"}], [{"enabled": True}])),
    "tags": (r".*\.tags", lambda value: (value or {}).items() >= SETTINGS["tags"].items()),
}
#: A key here would need rights on it for every function, and their environment holds no secret.
EXCEPT = {"aws_lambda_function.kms_key_arn"}

Resource = dict[str, Any]


def without_setting(resources: list[Resource], setting: str) -> set[str]:
    """The attributes, by the address of their resource, that could have a setting and have not."""
    pattern, is_set = BY_ATTRIBUTE[setting]
    return {
        f"{each['address']}.{name}"
        for each in resources
        for name, value in each["values"].items()
        if re.fullmatch(pattern, kind := f"{each['type']}.{name}") and kind not in EXCEPT and not is_set(value)
    }


def with_setting(resources: list[Resource], setting: str) -> set[str]:
    """The types of which all have a setting."""
    pattern, _ = BY_ATTRIBUTE[setting]
    return {each["type"] for each in resources if any(re.fullmatch(pattern, f"{each['type']}.{name}") for name in each["values"])}


@pytest.fixture(scope="module")
def planned(account) -> list[Resource]:
    """Returns every resource of a plan with all options."""
    subnets = [subnet["SubnetId"] for subnet in account.client("ec2").describe_subnets()["Subnets"]]
    module = {
        "source": "../",
        "cluster_name": CLUSTER,
        "artifacts": {"directory": str(ZIPS)},
        "architecture": host_architecture(),
        "vpc": {"subnet_ids": subnets[:1]},
        "lifecycle_hooks": {"workers": {"auto_scaling_group_name": "workers"}},
        **TRIGGERS,
        **SETTINGS,
    }
    folder = copy_of_project(temporary_folder("terraform")) / "everything"
    folder.mkdir()
    (folder / "main.tf.json").write_text(json.dumps({"provider": {"aws": {}}, "module": {"recycle_eks": module}}))
    terraform = Terraform(folder, environment(account.endpoint))
    terraform.init()
    terraform.run("plan", "-input=false", "-no-color", "-out=everything.plan")
    plan = json.loads(terraform.run("show", "-json", "everything.plan").stdout)
    (recycle_eks,) = plan["planned_values"]["root_module"]["child_modules"]
    # One of which nothing is known yet, such as a queue's policy, has no values.
    return [{"values": {}, **each} for each in recycle_eks["resources"] if each["mode"] == "managed"]


def test_the_plan_has_every_resource_of_the_module(planned):
    written = {
        f"{kind}.{name}"
        for file in MODULE.glob("*.tf")
        for kind, name in re.findall(r'^resource "(\w+)" "(\w+)"', file.read_text(), re.MULTILINE)
    }
    assert {f"{each['type']}.{each['name']}" for each in planned} == written


def test_a_setting_reaches_everything_that_can_have_it(planned):
    for setting in SETTINGS:
        assert without_setting(planned, setting) == set(), setting
        assert with_setting(planned, setting), f"or {setting} is called otherwise by now"


def test_a_missing_or_different_setting_is_found():
    queue = {"address": "one", "type": "aws_sqs_queue", "values": {"tags": {"team": "others"}, "kms_master_key_id": None}}
    function = {"address": "two", "type": "aws_lambda_function", "values": {"kms_key_arn": None, "tracing_config": []}}
    assert without_setting([queue, function], "tags") == {"one.tags"}
    assert without_setting([queue, function], "kms_key_arn") == {"one.kms_master_key_id"}
    assert without_setting([queue, function], "tracing") == {"two.tracing_config"}
