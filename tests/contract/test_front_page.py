"""README.md is short and says what the code, the module and the tools say; docs/glossary.md names what there is."""

import json
import re

from front_page import PAGE, POLICIES, actions_of_functions, with_permissions
from picture import Machine, crate_of
from prepare import LAMBDAS, ROOT, TEST_TOOLS, TOOLS
from world.kubernetes import kube_binaries

GLOSSARY = ROOT / "docs" / "glossary.md"
NAMES = ROOT / "crates" / "recycle" / "src" / "base" / "names.rs"
#: Services whose calls the page describes in words: logs, X-Ray, KMS.
IN_WORDS = ("logs:", "xray:", "kms:")
#: Keys of conditions, and the call by which a service takes a role.
NO_CALLS = {"aws:SourceAccount", "aws:SourceArn", "aws:TagKeys", "lambda:SourceFunctionArn", "sts:AssumeRole"}
#: How the page calls the tools; those whose version does not matter have none.
TOOL_NAMES = {
    "cargo": "Rust",
    "rustc": "Rust",
    "go": "Go",
    "terraform": "Terraform",
    "node": "Node",
    "npm": "npm",
    "tmux": "tmux",
    "setpriv": "setpriv",
    "cc": "a C compiler",
    "clippy-driver": "Clippy",
    "java": "Java",
    "mvn": "Maven",
}
WITHOUT_VERSION = ("setpriv", "cc", "clippy-driver")


def test_the_page_is_read_in_five_minutes():
    assert len(PAGE.read_text().splitlines()) <= 200


def test_the_page_for_contributors_has_three_loops_and_the_file_that_tests_permissions():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`{loop}" in page for loop in ("cargo test -p recycle", "make scenario FILE=", "make test"))
    assert "`tests/scenarios/test_*permissions.py`" in page and list((ROOT / "tests/scenarios").glob("test_*permissions.py"))


def test_the_tables_of_permissions_are_those_of_the_policies():
    page = PAGE.read_text()
    assert page == with_permissions(page), "stale: run `make generate`"


def test_every_function_has_calls():
    assert sorted(actions_of_functions()) == sorted(LAMBDAS)


def test_every_call_in_the_policies_is_on_the_page():
    policies = POLICIES.read_text()
    in_vpc = re.search(r"vpc_actions = \[(.*?)\]", policies, re.DOTALL)[1]
    actions = set(re.findall(r'"([a-z0-9]+:[A-Z][A-Za-z]+)"', policies.replace(in_vpc, ""))) - NO_CALLS
    in_words = {action for action in actions if action.startswith(IN_WORDS)}
    page = PAGE.read_text()
    assert [action for action in sorted(actions - in_words) if f"`{action}`" not in page] == []


def test_the_picture_has_the_six_functions_that_retire_a_node():
    definition = json.loads((ROOT / "state-machine" / "recycle-node.asl.json").read_text())
    machine = Machine(definition)
    steps = {name for name, state in machine.states.items() if machine.outer[name] and crate_of(state)}
    drawing = re.search(r"```mermaid\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    boxes = re.findall(r'^  (\w+)\["<b>\d (\w+)</b>', drawing, re.MULTILINE)
    assert len(boxes) == 6 and all(box == title for box, title in boxes)
    assert {box for box, _ in boxes} == steps
    for name in steps:
        crate = crate_of(machine.states[name])
        assert f"| `{name}` | [`{crate}`](crates/functions/{crate}/src/lib.rs) |" in PAGE.read_text()


def test_the_page_names_every_tool_with_its_version():
    page = PAGE.read_text()
    for tool, _, least, _ in [*TOOLS, *TEST_TOOLS]:
        version = "" if tool in WITHOUT_VERSION else " " + ".".join(map(str, least)).removesuffix(".0")
        assert TOOL_NAMES[tool] + version in page, tool


def test_the_page_names_the_versions_of_terraform_and_its_provider():
    [provider] = re.findall(r'version = ">= ([\d.]+), < 7"', (ROOT / "terraform" / "versions.tf").read_text())
    assert f"{provider} to 6.x" in PAGE.read_text()


def test_the_page_names_the_versions_of_kubernetes():
    minor, _ = kube_binaries.pinned_kubernetes().rsplit(".", 1)
    others = " and ".join(kube_binaries.other_versions())
    assert f"{minor}: all tests. {others}: the scenarios about pods (`make versions`)" in PAGE.read_text()


def test_the_glossary_is_in_alphabetical_order_and_has_no_term_twice():
    terms = [re.sub(r"[`*]", "", term).lower() for term in re.findall(r"^\| \*\*(.+?)\*\*", GLOSSARY.read_text(), re.MULTILINE)]
    assert len(terms) > 50
    assert terms == sorted(set(terms))


def test_every_annotation_label_taint_and_tag_of_the_glossary_exists():
    named = set(re.findall(r"`(recycle-eks[/:][a-z-]+)`", GLOSSARY.read_text()))
    written = set(re.findall(r'"(recycle-eks[/:][a-z-]+)"', NAMES.read_text()))
    assert len(named) > 10
    assert named <= written
