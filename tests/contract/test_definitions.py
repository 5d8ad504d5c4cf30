"""The state machines' definitions beside what AWS has: by two linters, and by botocore's models of the services that they call.

The three know this of JSONata:

- asl-validator has schemas of each state in JSONata, and follows transitions: no state is unreachable, none leads nowhere. It
  does not read expressions.
- cfn-lint's E3601 has schemas of each state, and the names of states in StartAt and Next. It does not read expressions, and knows
  nothing of the arguments of a Task.
- botocore knows the arguments and the errors of each call, but not the values of expressions. Those are checked when a scenario
  makes the call (world/stepfunctions/service_models.py, world/aws/models.py).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contract.scripts import rendered
from prepare import ROOT, install_cfn_lint, install_linter
from world.base.beyond_models import common_errors, refusal_of
from world.base.shapes import Errors
from world.stepfunctions.asl import integration_of
from world.stepfunctions.sdk_integrations import BOTO_NAMES, named, prefix_of
from world.stepfunctions.service_models import OF_LAMBDA, OPTIMIZED, PASCAL, operation_of, without

MACHINES = ["recycle-node", "rotate-nodes", "sweep"]

#: The complaint of cfn-lint about a correct definition. In JSONata, MaxConcurrency may be an expression: the CDK has for it
#: the property `jsonataMaxConcurrency`, "A JSONata expression that evaluates to an integer" (aws-cdk-lib, MapBaseOptions).
NOT_SO = re.compile(r"E3601: '\{% \$members\.at_once %\}' is not of type 'number' at '[\w/]*/EachNodeOfGroup/MaxConcurrency'")

#: The errors of the functions' own runtime begin with these.
OF_FUNCTIONS = ("Sandbox.", "Runtime.", "States.")


def cfn_lint(definitions: dict[str, dict[str, Any]], folder: Path) -> list[str]:
    """Complaints of the linter of CloudFormation about these machines, each in a template of its own."""
    for name, definition in definitions.items():
        properties = {"RoleArn": "arn:aws:iam::123456789012:role/machine", "DefinitionString": json.dumps(definition)}
        template = {"Resources": {"Machine": {"Type": "AWS::StepFunctions::StateMachine", "Properties": properties}}}
        (folder / f"{name}.json").write_text(json.dumps(template))
    files = [str(folder / f"{name}.json") for name in definitions]
    command = [install_cfn_lint(), "--format", "parseable", "--regions", "eu-west-1", "--", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2, 4, 6), done.stdout + done.stderr
    return [": ".join(line.split(":")[5:]) for line in done.stdout.splitlines() if line]


def asl_validator(definitions: dict[str, dict[str, Any]], folder: Path) -> str:
    """The output of asl-validator for these definitions; nothing if it accepts them."""
    paths: list[str] = []
    for name, definition in definitions.items():
        (folder / f"{name}.asl.json").write_text(json.dumps(definition))
        paths += ["--json-path", str(folder / f"{name}.asl.json")]
    done = subprocess.run([str(install_linter() / "asl-validator"), *paths], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def wrong_definitions() -> dict[str, dict[str, Any]]:
    """A field that no state has, and a state that is not there."""
    text = json.dumps(rendered("sweep"))
    return {
        "misspelt": json.loads(text.replace('"TimeoutSeconds"', '"TimeoutSecnods"', 1)),
        "nowhere": {**json.loads(text), "StartAt": "Nowhere"},
    }


def test_cloudformations_linter_finds_nothing_in_the_definitions(tmp_path):
    found = cfn_lint({machine: rendered(machine) for machine in MACHINES}, tmp_path)
    assert [each for each in found if not NOT_SO.search(each)] == []
    assert len(found) == 1, "the exception above is not needed any more"


def test_cloudformations_linter_finds_defects(tmp_path):
    found = cfn_lint(wrong_definitions(), tmp_path)
    assert any("TimeoutSecnods" in each for each in found), found
    assert any("Nowhere" in each for each in found), found


def test_asl_validator_finds_nothing_in_the_definitions(tmp_path):
    assert asl_validator({machine: rendered(machine) for machine in MACHINES}, tmp_path) == ""


def test_asl_validator_finds_defects(tmp_path):
    said = asl_validator(wrong_definitions(), tmp_path)
    assert "additional properties" in said and "Nowhere" in said, said


# The calls and the errors, by botocore's models


def tasks(scope: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """All Task states of a definition with their names, also those of inner scopes."""
    if isinstance(scope, dict):
        for name, state in scope.get("States", {}).items():
            if state["Type"] == "Task":
                yield name, state
        for inner in scope.values():
            yield from tasks(inner)
    elif isinstance(scope, list):
        for inner in scope:
            yield from tasks(inner)


def call_of(state: dict[str, Any]) -> tuple[str, str, str]:
    """The service and the operation of a Task as boto3 has them, and the prefix of its errors."""
    integration = integration_of(state["Resource"])
    if integration.startswith("aws-sdk:"):
        _, service, action = integration.split(":")
        return BOTO_NAMES.get(service, service), action[0].upper() + action[1:], prefix_of(service)
    service, operation, _ = OPTIMIZED[integration.split(".")[0]]
    return service, operation, {"events": "EventBridge", "lambda": "Lambda", "stepfunctions": "StepFunctions"}[service]


def with_constants(shape: Any, arguments: Any) -> Any:
    """The arguments, with a possible value for each expression: the first of an enumeration, or one of the type."""
    if isinstance(arguments, str) and arguments.startswith("{%"):
        enum = getattr(shape, "enum", None)
        examples = {"boolean": True, "integer": 1, "long": 1, "structure": {}, "list": [], "map": {}}
        return enum[0] if enum else examples.get(shape.type_name, "")
    if isinstance(arguments, dict) and shape.type_name in ("structure", "map"):
        members = {PASCAL.name_of(name, of): of for name, of in getattr(shape, "members", {}).items()}
        inner = getattr(shape, "value", None)
        return {
            name: with_constants(members.get(name, inner), of) if members.get(name, inner) else of
            for name, of in arguments.items()
        }
    return arguments


@pytest.mark.parametrize("machine", MACHINES)
def test_the_arguments_of_each_task_are_the_operations(machine):
    found = []
    for name, state in tasks(rendered(machine)):
        service, operation, _ = call_of(state)
        _, _, free = OPTIMIZED.get(integration_of(state["Resource"]).split(".")[0], ("", "", set()))
        shape = operation_of(service, operation).input_shape
        arguments = without(free, state["Arguments"])
        found += [f"{name}: {problem}" for problem in PASCAL.problems(with_constants(shape, arguments), shape, "")]
    assert found == []


@pytest.mark.parametrize("machine", MACHINES)
def test_each_error_that_a_task_names_is_one_of_its_services(machine):
    """As `world.stepfunctions.sdk_integrations` names them: `AutoScaling.ResourceContentionException`."""
    retry = [{"ErrorEquals": of_the_module("retry")}]
    found = []
    for name, state in tasks(rendered(machine)):
        service, operation, prefix = call_of(state)
        known = {f"{prefix}.{each}" for each in errors_of(service, operation)}
        for rule in [*state.get("Retry", []), *state.get("Catch", []), *(retry if service == "lambda" else [])]:
            named = [error for error in rule["ErrorEquals"] if "." in error and not error.startswith(OF_FUNCTIONS)]
            found += [f"{name}: {error}" for error in named if error not in known]
    assert found == []


def errors_of(service: str, operation: str) -> set[str]:
    """The names after the prefix. AWSStepFunctionsException is named after AWSLambdaException; no page has it."""
    names = {shape.name for shape in operation_of(service, operation).service_model.error_shapes} | common_errors(service).keys()
    names = {name.removesuffix("Fault").removesuffix("Exception") + "Exception" for name in names}
    general = {"SdkClientException", "AWSStepFunctionsException"} | {f"{each}Exception" for each in ("Sfn", "Sns", "AutoScaling")}
    return names | general | (OF_LAMBDA if service == "lambda" else set())


def of_the_module(retry: str) -> list[str]:
    """The errors of a `Retry` that Terraform renders into the definitions."""
    text = (ROOT / "terraform" / "state-machine.tf").read_text()
    rule = re.search(rf"^  {retry} = .*?ErrorEquals += \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    return re.findall(r'"([\w.]+)"', rule[1])


def test_the_errors_of_each_service_that_the_module_repeats_a_publish_for_are_snss():
    known = {f"Sns.{each}" for each in errors_of("sns", "Publish")}
    assert [each for each in of_the_module("publish_retry") if not each.startswith("States.") and each not in known] == []


@pytest.mark.parametrize("kind", ["throttled", "5xx"])
def test_a_publish_is_repeated_after_an_error_that_may_pass(kind):
    how = refusal_of("sns:Publish", kind)
    answer = {"Error": {"Code": how["code"], "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": how["status"]}}
    error = named("sns", operation_of("sns", "Publish"), ClientError(answer, "Publish"))
    assert error.error in of_the_module("publish_retry")


def test_an_error_that_a_service_does_not_have_is_found():
    assert "ResourceContentionException" in errors_of("autoscaling", "RecordLifecycleActionHeartbeat")
    assert "NoSuchThingException" not in errors_of("autoscaling", "RecordLifecycleActionHeartbeat")
    assert list(Errors("lambda", operation_of("lambda", "Invoke")).problems("NoSuchThing", 400)) != []
