"""These tests keep two languages in agreement: Rust, the state machine's definition, Terraform, the documents."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_page import BINARY
from prepare import LAMBDAS, ROOT, STEPS

CONTRACT = Path(__file__).with_name("contract.json")
MACHINES = ["recycle-node", "rotate-nodes", "sweep"]
#: Task states of other names than their function's: the function is asked for something else there.
OTHER_TASKS = {
    "SelectNodesOfGroup": "select_nodes",
    "MayStart": "select_nodes",
    "MarkNodes": "taint_node",
    "UnmarkNodes": "restore_node",
}
#: The answers that a Task can get, if the function has more: they depend on the Task's arguments.
ONLY = {
    ("recycle-node", "RestoreNode"): {"untouched", "restored", "wait", "left_in_standby", "kept"},
    ("recycle-node", "TaintNode"): {"check_pods"},
    ("sweep", "SelectNodes"): {"each_node"},
    ("sweep", "RestoreNode"): {"untouched", "restored", "wait", "left_in_standby", "kept", "start"},
    ("sweep", "UnmarkNodes"): {"unmarked"},
    ("rotate-nodes", "SelectNodes"): {"each_node", "each_group", "nothing_selected"},
    ("rotate-nodes", "SelectNodesOfGroup"): {"mark_nodes", "each_node", "nothing_selected"},
    ("rotate-nodes", "MayStart"): {"start", "wait", "describe_alarms", "pause", "skip", "stop"},
    ("rotate-nodes", "MarkNodes"): {"marked"},
    ("rotate-nodes", "UnmarkNodes"): {"unmarked"},
}


def definition_of(machine: str) -> dict[str, Any]:
    return json.loads((ROOT / "state-machine" / f"{machine}.asl.json").read_text())


def generated(example: str) -> str:
    """Returns the output of an example of the crate `recycle`, which was built before the tests. (`cargo run` would wait for
    minutes while another cargo is building.)"""
    return subprocess.run([BINARY.parent / "examples" / example], check=True, capture_output=True, text=True).stdout


def pascal(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


@pytest.fixture(scope="module")
def contract() -> dict[str, Any]:
    return json.loads(CONTRACT.read_text())


@pytest.fixture(scope="module", params=MACHINES)
def machine(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def states(machine) -> dict[str, dict[str, Any]]:
    """Returns every state of the machine by name, also those of a branch or an iteration."""
    return dict(all_states(definition_of(machine)))


def inner_scopes(scope: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The branches and iterations right below."""
    for state in scope["States"].values():
        yield from [*state.get("Branches", []), *([state["ItemProcessor"]] if "ItemProcessor" in state else [])]


def all_states(scope: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from scope["States"].items()
    for inner in inner_scopes(scope):
        yield from all_states(inner)


def test_contract_json_is_what_the_crate_says():
    assert CONTRACT.read_text() == generated("contract"), "stale: run `make generate`"


def test_the_page_of_inputs_and_outcomes_is_what_the_crate_says():
    assert (ROOT / "docs" / "inputs-and-outcomes.md").read_text() == generated("inputs"), "stale: run `make generate`"


def test_the_page_of_notifications_is_what_the_crate_says():
    assert (ROOT / "docs" / "notifications.md").read_text() == generated("notifications"), "stale: run `make generate`"


def test_each_step_is_one_task_state_of_its_name():
    invoked = {
        (name, state["Arguments"]["FunctionName"])
        for machine in MACHINES
        for name, state in all_states(definition_of(machine))
        if "lambda:invoke" in state.get("Resource", "")
    }
    others = {(task, "${" + function + "}") for task, function in OTHER_TASKS.items()}
    assert invoked == {(pascal(name), "${" + name.replace("-", "_") + "}") for name in STEPS} | others


def test_each_crate_of_a_lambda_composes_only_in_its_main():
    for name in LAMBDAS:
        code = (ROOT / "crates" / "functions" / name / "src" / "main.rs").read_text().splitlines()
        assert len([line for line in code if line.strip() and not line.strip().startswith("//")]) <= 25, name


def possible(contract: dict[str, Any], machine: str, task: str) -> set[str]:
    """Returns the answers that a Task can get."""
    function = pascal(OTHER_TASKS[task].replace("_", "-")) if task in OTHER_TASKS else task
    of_function = contract["verdicts"][function]
    only = ONLY.get((machine, task), set(of_function))
    assert only <= set(of_function), task
    return only


def verdicts_after(states: dict[str, Any], task: str) -> set[str]:
    """The verdicts that the Choice behind a Task knows; none if no Choice follows."""
    choice = states[states[task]["Next"]]
    return {found for rule in choice.get("Choices", []) for found in re.findall(r"\.verdict = '(\w+)'", rule["Condition"])}


def test_every_verdict_has_a_next_step_and_no_step_waits_for_an_unknown_verdict(contract, machine, states):
    for task in states.keys() & {*contract["verdicts"], *OTHER_TASKS}:
        if known := verdicts_after(states, task):
            assert known == possible(contract, machine, task), task


def test_a_task_without_a_choice_behind_it_goes_one_way(contract, machine, states):
    for task in states.keys() & {*contract["verdicts"], *OTHER_TASKS}:
        if not verdicts_after(states, task):
            assert len(possible(contract, machine, task)) == 1, task


def test_every_outcome_of_the_machine_is_one_of_the_contract(contract):
    states = dict(all_states(definition_of("recycle-node")))
    outcomes = {state["Output"]["outcome"] for state in states.values() if state["Type"] == "Succeed"}
    assert outcomes <= set(contract["outcomes"])


def test_every_error_that_the_machine_names_is_one_of_the_contract(contract, states):
    of_aws = re.compile(r"(AutoScaling|CloudWatch|States|StepFunctions|Sfn|Sns|Lambda|Sandbox|Runtime)\.")
    named = {
        error
        for state in states.values()
        for rule in [*(state["Retry"] if isinstance(state.get("Retry"), list) else []), *state.get("Catch", [])]
        for error in rule["ErrorEquals"]
    }
    named |= {state["Error"] for state in states.values() if state["Type"] == "Fail" and not state["Error"].startswith("{%")}
    assert {error for error in named if not of_aws.match(error)} <= {*contract["failures"], "RotationFailed", "SweepFailed"}


def test_every_choice_has_a_default(states):
    assert [name for name, state in states.items() if state["Type"] == "Choice" and "Default" not in state] == []


def test_every_task_has_retry_and_time_out(states):
    for name, state in states.items():
        if state["Type"] == "Task":
            assert state.get("Retry") and state.get("TimeoutSeconds"), name


def test_every_error_ends_at_one_restore():
    """ClaimLost and Superseded lead to no restore: the claim belongs to another execution, so nothing may be touched."""
    catch = definition_of("recycle-node")["States"]["Recycle"]["Catch"]
    targets = {error: rule["Next"] for rule in catch for error in rule["ErrorEquals"]}
    for name in ("ClaimLost", "Superseded"):
        assert targets.pop(name) == name
    assert {"States.ALL", "States.DataLimitExceeded", "States.QueryEvaluationError"} <= set(targets)
    assert set(targets.values()) == {"RestoreNode"}


def test_no_variable_is_assigned_both_in_a_scope_and_outside(machine):
    """Step Functions refuses to assign a variable of an outer scope in an inner one."""

    def assigned(scope: dict[str, Any]) -> set[str]:
        rules = [[state, *state.get("Catch", []), *state.get("Choices", [])] for state in scope["States"].values()]
        return {name for group in rules for rule in group for name in rule.get("Assign", {})}

    def check(scope: dict[str, Any], outer: set[str]) -> None:
        assert not assigned(scope) & outer
        for inner in inner_scopes(scope):
            check(inner, outer | assigned(scope))

    check(definition_of(machine), set())


def test_expressions_stay_small(states):
    """Paths, comparisons, concatenation: whatever decides, is decided in Rust."""
    expressions = re.findall(r"\{%(.*?)%\}", json.dumps(list(states.values())))
    assert [e for e in expressions if re.search(r"\$(map|filter|reduce|sort|lookup|eval)\(|\?|\bfunction\b", e)] == []
    assert max(map(len, expressions)) < 130


def test_terraform_knows_exactly_the_functions_and_the_settings(contract):
    module = "\n".join(file.read_text() for file in sorted((ROOT / "terraform").glob("*.tf")))
    fields = re.search(r"input_fields = \{(.*?)\}", module, re.DOTALL)
    assert set(re.findall(r"^\s*(\w+)\s*=", fields[1], re.MULTILINE)) == set(contract["settings"])
    for name in LAMBDAS:
        assert re.search(rf"^\s*\"?{name}\"?\s*=", module, re.MULTILINE), name


def test_terraform_knows_exactly_the_terms_of_a_rotation(contract):
    module = (ROOT / "terraform" / "main.tf").read_text()
    terms = re.search(r"rotation_terms = \{(.*?)\n  \}", module, re.DOTALL)
    assert set(re.findall(r"^\s*(\w+)\s*=", terms[1], re.MULTILINE)) == set(contract["terms"])


def test_the_page_of_rotations_has_every_term_and_every_name_by_which_a_group_stops(contract):
    page = (ROOT / "docs" / "rotations.md").read_text()
    assert [name for name in [*contract["terms"], *contract["stops"]] if f"`{name}`" not in page] == []


def test_the_hook_that_terraform_makes_is_the_one_that_the_functions_know(contract):
    hooks = (ROOT / "terraform" / "hooks.tf").read_text()
    assert f'name                   = "{contract["lifecycle_hook"]}"' in hooks
    assert f'LifecycleHookName    = ["{contract["lifecycle_hook"]}"]' in hooks


def test_the_notification_of_a_rule_has_the_fields_of_every_notification(contract):
    text = (ROOT / "terraform" / "notifications.tf").read_text()
    template = re.search(r"unreported_notifications = \{\n.*?\{\n(      schema .*?)\n    \}", text, re.DOTALL)
    assert re.findall(r"^ +(\w+) +=", template[1], re.MULTILINE) == contract["notification"]


def test_the_notification_of_a_rotation_has_the_fields_of_every_notification(contract):
    states = dict(all_states(definition_of("rotate-nodes")))
    assert list(states["DescribeFailure"]["Assign"]["notification"]) == contract["notification"]


def test_every_notification_has_the_attributes_of_the_contract(contract, machine, states):
    publications = [state["Arguments"] for state in states.values() if state.get("Resource", "").endswith("sns:publish")]
    assert publications
    for arguments in publications:
        assert list(arguments["MessageAttributes"]) == contract["attributes"]


def test_terraform_lets_functions_write_only_tags_of_the_contract(contract):
    policies = (ROOT / "terraform" / "iam.tf").read_text()
    assert set(re.findall(r'"(recycle-eks:[a-z-]+)"', policies)) == set(contract["tags"])
