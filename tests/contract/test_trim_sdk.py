"""The crates of the AWS SDK are cut to the calls that are made: what is kept is complete, unchanged, and no more."""

import re

import pytest

from trim_sdk import COMMENT, LISTS, MODULE, OF_FUNCTIONS, Sdk, find_source, locked_crates, used_names


@pytest.fixture(params=["aws-sdk-ec2", "aws-sdk-eks"])
def cut(request) -> Sdk:
    sdk = Sdk(find_source(request.param, locked_crates()[request.param]))
    sdk.trim(sorted(used_names() & sdk.operations()))
    return sdk


def test_the_calls_are_those_that_the_crates_make(cut):
    clients = (re.fullmatch(r"client/(\w+)\.rs", path) for path in cut.needed)
    calls = {found[1] for found in clients if found} - {"customize"}
    images = {"describe_images", "describe_launch_template_versions"}
    expected = {
        "aws-sdk-ec2": {"create_tags", "delete_tags", "describe_instances", "stop_instances", *images},
        "aws-sdk-eks": {"describe_access_entry", "describe_cluster", "describe_nodegroup"},
    }
    assert calls == expected[cut.source.name.rpartition("-")[0]]


def test_each_file_is_unchanged_but_for_comments_and_each_listed_module_has_a_file(cut):
    for path, text in cut.needed.items():
        whole = COMMENT.sub("", (cut.source / "src" / path).read_text())
        if path not in LISTS and path.removesuffix(".rs") not in OF_FUNCTIONS:
            assert text == whole, path
        folder = "" if path == "lib.rs" else path.removesuffix(".rs") + "/"
        for module in MODULE.findall(text):
            assert f"{folder}{module}.rs" in cut.needed, (path, module)


def test_it_is_a_small_part(cut):
    whole = sum(file.read_text().count("\n") for file in (cut.source / "src").rglob("*.rs"))
    assert sum(text.count("\n") for text in cut.needed.values()) < 0.2 * whole
