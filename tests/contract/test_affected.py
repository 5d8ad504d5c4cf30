"""The tests that a change can affect: a table of changed files."""

import pytest

from affected import FOLDERS, affected_by, python_tests
from prepare import ROOT, TESTS

#: changed file -> whether Rust and Terraform are tested, some files of Python tests that are, and some that are not
TABLE = {
    "docs/guide.md": (False, False, ["docs/test_guide.py", "docs/test_pages.py"], ["scenarios/test_hook.py"]),
    "docs/demo.svg": (False, False, ["deployment/test_demo.py"], ["docs/test_guide.py"]),
    "tests/scenarios/test_hook.py": (False, False, ["scenarios/test_hook.py"], ["scenarios/test_spot.py"]),
    "tests/campaign/judge.py": (False, False, ["scenarios/test_campaign.py"], ["scenarios/test_hook.py"]),
    "tests/world/aws/balancers.py": (False, False, ["scenarios/test_hook.py", "docs/test_pods.py"], ["contract/test_walk.py"]),
    "tests/world/stepfunctions/interpreter.py": (
        False,
        False,
        ["scenarios/test_hook.py", "contract/test_walk.py"],
        ["docs/test_pages.py"],
    ),
    "tests/world_tests/conftest.py": (False, False, ["world_tests/test_kubernetes.py"], ["scenarios/test_hook.py"]),
    "tests/prose/styles/RecycleEks/Actor.yml": (False, False, ["contract/test_prose.py"], ["scenarios/test_hook.py"]),
    "tests/probe/questions/events.py": (False, False, ["world_tests/test_probe.py"], ["scenarios/test_hook.py"]),
    "tests/demo/pace.py": (False, False, ["deployment/test_demo.py"], ["scenarios/test_hook.py"]),
    "crates/recycle/src/drain/classify.rs": (
        True,
        False,
        ["scenarios/test_hook.py", "contract/test_contract.py"],
        ["contract/test_walk.py"],
    ),
    "crates/cli/src/views/watch.rs": (True, False, ["scenarios/test_cli.py"], ["scenarios/test_spot.py"]),
    "crates/functions/evict-pods/src/tests.rs": (True, False, [], ["scenarios/test_hook.py"]),
    "terraform/iam.tf": (
        True,
        True,
        ["scenarios/test_permissions.py", "deployment/test_terraform.py"],
        ["contract/test_walk.py"],
    ),
    "terraform/tests/permissions.tftest.hcl": (False, True, ["contract/test_front_page.py"], ["scenarios/test_hook.py"]),
    "README.md": (False, False, ["contract/test_front_page.py", "docs/test_pages.py"], ["contract/test_picture.py"]),
    "terraform/tests/hooks.tftest.hcl": (False, True, [], ["scenarios/test_hook.py"]),
    "docs/troubleshooting.md": (True, False, ["docs/test_troubleshooting.py"], ["scenarios/test_hook.py"]),
    "state-machine/recycle-node.asl.json": (True, True, ["contract/test_walk.py", "scenarios/test_hook.py"], []),
}


@pytest.mark.parametrize("changed", TABLE)
def test_a_change_affects(changed):
    rust, terraform, affected, others = TABLE[changed]
    assert (ROOT / changed).exists()
    found = affected_by([changed])
    assert (found.rust, found.terraform) == (rust, terraform)
    assert [file for file in affected if file not in found.python] == []
    assert [file for file in others if file in found.python] == []


@pytest.mark.parametrize(
    "changed", ["Cargo.lock", "Cargo.toml", "tests/requirements.txt", "tests/prepare.py", "tests/iam/decide.mjs"]
)
def test_a_common_dependency_affects_everything(changed):
    assert (ROOT / changed).exists()
    found = affected_by([changed])
    assert found.rust and found.terraform and found.python == python_tests()


def test_every_folder_of_tests_is_known():
    assert sorted({file.parent.name for file in TESTS.glob("*/test_*.py")}) == FOLDERS
    assert {test for test in python_tests() if (TESTS / test).is_file()} == set(python_tests())
