"""The Step Functions API of the world: executions of the world's engine over moto's state machines.

moto keeps state machines, aliases and tags. This module replaces in moto's responses everything about executions, adds the
version features that moto 5.2.5 lacks, and refuses at create and update a definition that the engine could not run, as AWS does.

    machines = MotoMachines(clock, ACCOUNT, REGION, READING)
    engine = Engine(clock, machines, functions, services)
    uninstall = install(engine)
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from moto.core.exceptions import AWSError
from moto.core.responses import ActionResult, EmptyResult
from moto.stepfunctions.models import StateMachine, StateMachineVersion, StepFunctionBackend, stepfunctions_backends
from moto.stepfunctions.responses import StepFunctionResponse

from world.base.clock import Clock
from world.stepfunctions import asl
from world.stepfunctions.engine import Engine
from world.stepfunctions.executions import Execution, Machine
from world.stepfunctions.state_errors import ApiError, StateError

# API reference of GetExecutionHistory, ListExecutions and ListStateMachineVersions: results per page.
_DEFAULT_PAGE, _GREATEST_PAGE = 100, 1000

_MOTO_CREATE = StepFunctionResponse.create_state_machine
_MOTO_UPDATE = StepFunctionResponse.update_state_machine
_MOTO_DELETE = StepFunctionResponse.delete_state_machine
_MOTO_DESCRIBE = StepFunctionResponse._describe_state_machine


class MotoMachines:
    """Finds the state machine, version or alias behind an ARN in moto's backend.

    `lock` is the one that the server holds around each read.
    """

    def __init__(self, clock: Clock, account: str, region: str, lock: AbstractContextManager[Any] | None = None):
        self._clock = clock
        self._account, self._region = account, region
        self._lock = lock or contextlib.nullcontext()

    def resolve(self, arn: str) -> Machine:
        base, qualifier = ":".join(arn.split(":")[:7]), ":".join(arn.split(":")[7:])
        with self._lock:
            machine = _find(stepfunctions_backends[self._account][self._region], base)
            if not qualifier:
                return Machine(base, machine.definition, machine.roleArn)
            if qualifier.isdigit():
                return _as_version(_version(machine, arn))
            if qualifier not in machine.aliases:
                raise ApiError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
            chosen = _version(machine, self._routed(machine.aliases[qualifier].routing_configuration))
            return _as_version(chosen, alias_arn=arn)

    def _routed(self, routes: list[dict[str, Any]]) -> str:
        """AWS docs, "Aliases": an alias sends each new execution to one of at most two versions, by weight."""
        if len(routes) == 1:
            return routes[0]["stateMachineVersionArn"]
        first = self._clock.random.uniform(0, 100) < routes[0]["weight"]
        return routes[0 if first else 1]["stateMachineVersionArn"]


def _find(backend: StepFunctionBackend, arn: str) -> StateMachine:
    for machine in backend.state_machines:
        if machine.arn == arn:
            return machine
    raise ApiError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")


def _version(machine: StateMachine, version_arn: str) -> StateMachineVersion:
    number = version_arn.rpartition(":")[2]
    found = machine.versions.get(int(number)) if number.isdigit() else None
    if found is None:
        raise ApiError("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{version_arn}'")
    return found


def _as_version(version: StateMachineVersion, alias_arn: str | None = None) -> Machine:
    return Machine(version.source_arn, version.definition, version.roleArn, version.arn, alias_arn)


def install(engine: Engine) -> Callable[[], None]:
    """Puts the engine behind moto's Step Functions endpoint. The returned function undoes this."""
    before = {name: StepFunctionResponse.__dict__.get(name) for name in _HANDLERS}
    for name, handler in _HANDLERS.items():
        setattr(StepFunctionResponse, name, _served(handler, engine))

    def uninstall() -> None:
        for name, method in before.items():
            if method is None:
                delattr(StepFunctionResponse, name)
            else:
                setattr(StepFunctionResponse, name, method)

    return uninstall


def _served(handler: Callable[[StepFunctionResponse, Engine], Any], engine: Engine) -> Callable[[StepFunctionResponse], Any]:
    @functools.wraps(handler)
    def serve(response: StepFunctionResponse, *arguments: Any) -> Any:
        try:
            result = handler(response, engine, *arguments)
        except ApiError as error:
            raise AWSError(error.message, exception_type=error.code, status=400) from error
        return ActionResult(result) if isinstance(result, dict) else result

    return serve


def _date(moment: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC)


def _with_dates(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _date(value) if name.endswith("Date") or name == "timestamp" else value for name, value in fields.items()}


def _page(response: StepFunctionResponse, items: list[Any]) -> tuple[list[Any], dict[str, str]]:
    """One page by maxResults and nextToken, and the field that leads to the next one."""
    size = min(response._get_int_param("maxResults") or _DEFAULT_PAGE, _GREATEST_PAGE)
    token = response._get_param("nextToken") or "0"
    if not token.isdigit():
        raise ApiError("InvalidToken", f"Invalid Token: '{token}'")
    start = int(token)
    more = {"nextToken": str(start + size)} if start + size < len(items) else {}
    return items[start : start + size], more


# Executions


def _start_execution(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    text = response._get_param("input") or "{}"
    execution = engine.start_execution(response._get_param("stateMachineArn"), text, response._get_param("name"))
    return {"executionArn": execution.arn, "startDate": _date(execution.start)}


def _stop_execution(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    arn = response._get_param("executionArn")
    execution = engine.stop_execution(arn, response._get_param("error"), response._get_param("cause"))
    return {"stopDate": _date(execution.stop)}


def _describe_execution(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    return _with_dates(engine.describe(response._get_param("executionArn")))


def _redrive_execution(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    execution = engine.redrive_execution(response._get_param("executionArn"))
    return {"redriveDate": _date(execution.redriven_at)}


_LISTED = {
    "executionArn",
    "stateMachineArn",
    "name",
    "status",
    "startDate",
    "stopDate",
    "mapRunArn",
    "stateMachineVersionArn",
    "stateMachineAliasArn",
    "redriveCount",
    "redriveDate",
}


def _list_executions(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    machine_arn, map_run_arn = response._get_param("stateMachineArn"), response._get_param("mapRunArn")
    if (machine_arn is None) == (map_run_arn is None):
        raise ApiError("ValidationException", "Either stateMachineArn or mapRunArn must be given")
    if map_run_arn:
        found = engine.children_of(map_run_arn, response._get_param("statusFilter"))
    else:
        engine.machines.resolve(machine_arn)
        found = engine.executions_of(machine_arn, response._get_param("statusFilter"))
    if response._get_param("redriveFilter"):
        redriven = response._get_param("redriveFilter") == "REDRIVEN"
        found = [execution for execution in found if bool(execution.redrive_count) == redriven]
    page, more = _page(response, found)
    return {"executions": [_listed(engine, execution) for execution in page], **more}


def _listed(engine: Engine, execution: Execution) -> dict[str, Any]:
    fields = engine.describe(execution.arn)
    return _with_dates({name: value for name, value in fields.items() if name in _LISTED})


def _get_execution_history(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    events = engine.history(response._get_param("executionArn"))
    if response._get_param("reverseOrder"):
        events.reverse()
    page, more = _page(response, events)
    return {"events": [_with_dates(event) for event in page], **more}


def _describe_state_machine_for_execution(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    """The definition and role that the execution runs, whatever became of the state machine since."""
    execution = engine.execution(response._get_param("executionArn"))
    machine = execution.machine
    answer = {
        "stateMachineArn": machine.version_arn or machine.arn,
        "name": machine.name,
        "definition": machine.definition,
        "roleArn": machine.role_arn,
        "updateDate": _date(execution.start),
        "revisionId": _revision(machine.definition, machine.role_arn),
    }
    return answer | ({"mapRunArn": execution.map_run_arn} if execution.map_run_arn else {})


def _send_task_success(response: StepFunctionResponse, engine: Engine) -> EmptyResult:
    try:
        result = json.loads(response._get_param("output"))
    except ValueError as error:
        raise ApiError("InvalidOutput", f"Invalid Output: '{error}'") from error
    engine.report_task(response._get_param("taskToken"), result)
    return EmptyResult()


def _send_task_failure(response: StepFunctionResponse, engine: Engine) -> EmptyResult:
    error = StateError(response._get_param("error"), response._get_param("cause"))
    engine.report_task(response._get_param("taskToken"), error)
    return EmptyResult()


def _send_task_heartbeat(response: StepFunctionResponse, engine: Engine) -> EmptyResult:
    engine.report_heartbeat(response._get_param("taskToken"))
    return EmptyResult()


# State machines: definitions that can be run, versions


def _create_state_machine(response: StepFunctionResponse, engine: Engine) -> Any:
    _refuse_bad_definition(response)
    name, definition = response._get_param("name"), response._get_param("definition")
    for machine in response.stepfunction_backend.state_machines:
        if machine.name == name and (machine.definition, machine.roleArn) != (definition, response._get_param("roleArn")):
            raise ApiError("StateMachineAlreadyExists", f"State Machine Already Exists: '{machine.arn}'")
    return _MOTO_CREATE(response)


def _update_state_machine(response: StepFunctionResponse, engine: Engine) -> Any:
    """moto publishes a version for every update; AWS gives the newest version again if nothing changed since."""
    _refuse_bad_definition(response)
    machine = _find(response.stepfunction_backend, response._get_param("stateMachineArn"))
    newest = machine.latest_version
    answer = _MOTO_UPDATE(response)
    if response._get_param("publish") and _same(newest, machine):
        _withdraw_newest(machine, newest)
        answer.result["stateMachineVersionArn"] = newest.arn
    answer.result["revisionId"] = _revision(machine.definition, machine.roleArn)
    return answer


def _withdraw_newest(machine: StateMachine, newest: StateMachineVersion) -> None:
    del machine.versions[machine.latest_version_number]
    machine.latest_version_number -= 1
    machine.latest_version = newest


def _delete_state_machine(response: StepFunctionResponse, engine: Engine) -> Any:
    """moto keeps the tags of a deleted machine for its successor of the same name."""
    backend = response.stepfunction_backend
    backend.tagger.delete_all_tags_for_resource(response._get_param("stateMachineArn"))
    return _MOTO_DELETE(response)


def _describe_state_machine(response: StepFunctionResponse, engine: Engine, arn: str) -> Any:
    answer = _MOTO_DESCRIBE(response, arn)
    fields = answer.result
    if not arn.rpartition(":")[2].isdigit():
        fields["revisionId"] = _revision(fields["definition"], fields["roleArn"])
    return answer


def _refuse_bad_definition(response: StepFunctionResponse) -> None:
    definition = response._get_param("definition")
    found = asl.problems_of(definition) if definition is not None else []
    if found:
        listed = "; ".join(str(problem) for problem in found)
        raise ApiError("InvalidDefinition", f"Invalid State Machine Definition: '{listed}'")


def _validate_state_machine_definition(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    found = asl.problems_of(response._get_param("definition"))
    diagnostics = [
        {"severity": "ERROR", "code": problem.code, "message": problem.message, "location": problem.location} for problem in found
    ]
    return {"result": "FAIL" if found else "OK", "diagnostics": diagnostics, "truncated": False}


def _publish_state_machine_version(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    machine = _find(response.stepfunction_backend, response._get_param("stateMachineArn"))
    expected = response._get_param("revisionId")
    if expected and expected != _revision(machine.definition, machine.roleArn):
        raise ApiError("ConflictException", f"The revision of '{machine.arn}' is not '{expected}'")
    if not _same(machine.latest_version, machine):
        machine.publish(response._get_param("description"))
    newest = machine.latest_version
    return {"creationDate": newest.creation_date, "stateMachineVersionArn": newest.arn}


def _list_state_machine_versions(response: StepFunctionResponse, engine: Engine) -> dict[str, Any]:
    machine = _find(response.stepfunction_backend, response._get_param("stateMachineArn"))
    newest_first = [machine.versions[number] for number in sorted(machine.versions, reverse=True)]
    page, more = _page(response, newest_first)
    listed = [{"stateMachineVersionArn": version.arn, "creationDate": version.creation_date} for version in page]
    return {"stateMachineVersions": listed, **more}


def _delete_state_machine_version(response: StepFunctionResponse, engine: Engine) -> EmptyResult:
    """AWS refuses to delete a version that an alias routes to; deleting one that does not exist succeeds."""
    arn = response._get_param("stateMachineVersionArn")
    base, _, number = arn.rpartition(":")
    machine = _find(response.stepfunction_backend, base)
    for alias in machine.aliases.values():
        if any(route["stateMachineVersionArn"] == arn for route in alias.routing_configuration):
            raise ApiError("ConflictException", f"Version to be deleted must not be referenced by an alias: '{alias.arn}'")
    if number.isdigit():
        machine.versions.pop(int(number), None)
    return EmptyResult()


def _same(version: StateMachineVersion | None, machine: StateMachine) -> bool:
    return version is not None and (version.definition, version.roleArn) == (machine.definition, machine.roleArn)


def _revision(definition: str, role_arn: str) -> str:
    """AWS changes a machine's revisionId whenever its definition or role changes."""
    digest = hashlib.sha256(f"{role_arn}\n{definition}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


_HANDLERS: dict[str, Callable[..., Any]] = {
    "start_execution": _start_execution,
    "stop_execution": _stop_execution,
    "describe_execution": _describe_execution,
    "redrive_execution": _redrive_execution,
    "list_executions": _list_executions,
    "get_execution_history": _get_execution_history,
    "describe_state_machine_for_execution": _describe_state_machine_for_execution,
    "send_task_success": _send_task_success,
    "send_task_failure": _send_task_failure,
    "send_task_heartbeat": _send_task_heartbeat,
    "create_state_machine": _create_state_machine,
    "update_state_machine": _update_state_machine,
    "delete_state_machine": _delete_state_machine,
    "_describe_state_machine": _describe_state_machine,
    "validate_state_machine_definition": _validate_state_machine_definition,
    "publish_state_machine_version": _publish_state_machine_version,
    "list_state_machine_versions": _list_state_machine_versions,
    "delete_state_machine_version": _delete_state_machine_version,
}
