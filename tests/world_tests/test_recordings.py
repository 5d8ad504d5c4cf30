"""The Step Functions interpreter against recordings of AWS: snapshots of LocalStack's tests (docs/aws-evidence.md, LS).

Each test names the recording. The machine of a recording in JSONPath is written in JSONata here.
"""

from __future__ import annotations

from typing import Any

import pytest

from world.stepfunctions.executions import Execution
from world.stepfunctions.state_errors import ServiceError, StateError
from world_tests.state_machines import branch, fails, invoke, machine, mapped, parallel, wait

TO_CAUGHT = [{"ErrorEquals": ["States.ALL"], "Output": "{% $states.errorOutput %}", "Next": "Caught"}]
CAUGHT = {"Type": "Pass", "End": True}


def links(execution: Execution, since: str) -> list[tuple[int, int, str]]:
    """Returns id, previous id and type of the events from the first one of a type on."""
    events = [(event["id"], event["previousEventId"], event["type"]) for event in execution.events]
    return events[[kind for _, _, kind in events].index(since) :]


def failed_details(execution: Execution) -> dict[str, str]:
    """Returns the details of the event that ended the execution."""
    assert execution.status == "FAILED"
    return execution.events[-1].get("executionFailedEventDetails", {})


# Which errors are caught: error_handling/test_states_errors, scenarios/test_base_scenarios


def test_states_all_catches_the_result_of_a_task_that_is_too_large(sfn):
    """test_service_task_lambada_catch_state_all_data_limit_exceeded_on_large_utf8_response, 2024-03-21."""
    sfn.functions["f"] = lambda _: "x" * 300_000
    execution = sfn.run(machine("Start", Start=invoke(Next="Caught", Catch=TO_CAUGHT), Caught=CAUGHT))
    assert execution.output == {
        "Error": "States.DataLimitExceeded",
        "Cause": "The state/task 'lambda' returned a result with a size exceeding the maximum number of bytes service limit.",
    }


@pytest.mark.not_in_the_models("has no field FunctionName")
@pytest.mark.parametrize("name", ["States.Runtime", "States.ALL"])
def test_no_catcher_takes_states_runtime_and_its_cause_names_the_state(sfn, name):
    """test_catch_states_runtime, 2023-11-23."""
    task = invoke(Arguments={}, Catch=[{"ErrorEquals": [name], "Next": "Caught"}], Next="Caught")
    execution = sfn.run(machine("Start", Start=task, Caught=CAUGHT))
    assert failed_details(execution)["error"] == "States.Runtime"
    assert execution.cause.startswith("An error occurred while executing the state 'Start' (entered at the event id #2). ")


# Errors and causes that are missing


def test_a_caught_time_out_has_an_empty_cause_and_one_that_is_not_caught_has_none(sfn):
    """error_handling/test_task_service_lambda test_invoke_timeout, 2024-11-28; timeouts/test_timeouts, 2024-03-10."""
    sfn.functions["f"] = lambda value: value
    sfn.engine.latency["f"] = 100
    caught = sfn.run(machine("Start", Start=invoke(TimeoutSeconds=5, Next="Caught", Catch=TO_CAUGHT), Caught=CAUGHT))
    assert caught.output == {"Error": "States.Timeout", "Cause": ""}
    ended = sfn.run(machine("Start", Start=invoke(TimeoutSeconds=5)))
    assert failed_details(ended) == {"error": "States.Timeout"}
    assert "cause" not in sfn.engine.describe(ended.arn)


@pytest.mark.parametrize(
    ("said", "details"),
    [({}, {}), ({"Error": "X"}, {"error": "X"}), ({"Error": "X", "Cause": "c"}, {"error": "X", "cause": "c"})],
    ids=["neither", "no cause", "both"],
)
def test_an_error_or_cause_that_is_not_given_is_left_out(sfn, said, details):
    """base/test_base test_state_fail_empty; scenarios/test_base_scenarios test_parallel_state_fail, 2023-12-16."""
    execution = sfn.run(machine("F", F={"Type": "Fail", **said}))
    assert failed_details(execution) == details
    described = sfn.engine.describe(execution.arn)
    assert {name: value for name, value in described.items() if name in ("error", "cause")} == details


def test_a_token_that_fails_without_a_name_is_caught_with_two_nulls(sfn):
    """callback/test_callback test_sqs_failure_in_wait_for_task_tok_no_error_field, 2024-04-29."""

    def report_later(token: str) -> None:
        sfn.clock.after(9, lambda: sfn.engine.report_task(token, StateError(None)))

    sfn.functions["f"] = report_later
    task = invoke(payload="{% $states.context.Task.Token %}", Output="{% $states.result %}")
    task["Resource"] += ".waitForTaskToken"
    around = parallel(branch(Job=task), Catch=TO_CAUGHT, Next="Caught")
    execution = sfn.run(machine("Around", Around=around, Caught=CAUGHT))
    assert execution.output == {"Error": None, "Cause": None}
    (failed,) = [event for event in execution.events if event["type"] == "TaskFailed"]
    assert failed["taskFailedEventDetails"] == {"resourceType": "lambda", "resource": "invoke.waitForTaskToken"}
    assert links(execution, "TaskFailed")[:4] == [
        (8, 7, "TaskFailed"),
        (9, 8, "TaskStateAborted"),
        (10, 8, "ParallelStateFailed"),
        (11, 10, "ParallelStateExited"),
    ]


# What a failure ends: states_variables/test_error_output, timeouts/test_timeouts


def test_the_task_that_fails_a_parallel_is_aborted_at_each_attempt(sfn):
    """test_parallel_catch_error[PARALLEL_CATCH_ERROR_OUTPUT_WITH_RETRY], 2024-11-13."""
    sfn.functions["f"] = fails("Exception")
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    around = parallel(branch(Job=invoke()), Retry=retry, Catch=TO_CAUGHT, Next="Caught")
    execution = sfn.run(machine("Around", Around=around, Caught=CAUGHT))
    assert links(execution, "TaskFailed")[:3] == [
        (7, 6, "TaskFailed"),
        (8, 7, "TaskStateAborted"),
        (9, 7, "ParallelStateStarted"),
    ]
    assert (16, 15, "ParallelStateExited") in links(execution, "ParallelStateFailed")


def test_a_fail_state_in_a_parallel_is_not_aborted(sfn):
    """scenarios/test_base_scenarios test_parallel_state_fail, 2023-12-16."""
    execution = sfn.run(machine("P", P=parallel(branch(F={"Type": "Fail", "Error": "FailureType"}), End=True)))
    assert links(execution, "FailStateEntered")[:2] == [(4, 3, "FailStateEntered"), (5, 4, "ParallelStateFailed")]


def test_the_tasks_of_all_iterations_are_aborted_when_one_has_failed(sfn):
    """test_service_lambda_map_timeout, 2024-03-10. There all four had timed out at the same moment."""
    sfn.functions["f"] = lambda value: value
    sfn.engine.latency["f"] = 9
    execution = sfn.run(machine("M", M=mapped([1, 2, 3], branch(Job=invoke(TimeoutSeconds=5)), End=True)))
    events = links(execution, "MapIterationFailed")
    assert [kind for _, _, kind in events] == [
        "MapIterationFailed",
        "TaskStateAborted",
        "MapIterationAborted",
        "TaskStateAborted",
        "MapIterationAborted",
        "TaskStateAborted",
        "MapStateFailed",
        "ExecutionFailed",
    ]
    timed_out = next(event["id"] for event in execution.events if event["type"] == "TaskTimedOut")
    assert {previous for _, previous, _ in events[:-1]} == {timed_out}
    assert failed_details(execution) == {"error": "States.Timeout"}


def test_siblings_that_wait_are_aborted_and_those_that_have_ended_or_not_begun_are_not(sfn):
    """No recording has a Wait or a nested state. The API has these types of events for them, and none for other states."""
    sfn.functions["f"] = lambda item: item if item != "bad" else fails("X")(item)
    bad = branch(W=wait(5, "F"), F=invoke(payload="bad"))
    siblings = [branch(A=wait(90)), branch(B=parallel(branch(C=wait(90)), End=True)), branch(D=invoke(payload="good"))]
    execution = sfn.run(machine("P", P=parallel(bad, *siblings, End=True)))
    aborted = [event["type"] for event in execution.events if event["type"].endswith("Aborted")]
    assert aborted == ["TaskStateAborted", "WaitStateAborted", "ParallelStateAborted"]
    one_by_one = sfn.run(machine("M", M=mapped(["bad", "x"], branch(F=invoke()), MaxConcurrency=1, End=True)))
    assert "MapIterationAborted" not in sfn.events(one_by_one)


def test_an_iteration_follows_the_last_event_of_the_one_before_it(sfn):
    """states_variables/test_error_output test_map_catch_error[MAP_CATCH_ERROR_OUTPUT], 2024-11-12."""
    execution = sfn.run(machine("M", M=mapped([1, 2], branch(P={"Type": "Pass", "End": True}), MaxConcurrency=1, End=True)))
    assert links(execution, "MapStateStarted")[:6] == [
        (3, 2, "MapStateStarted"),
        (4, 3, "MapIterationStarted"),
        (5, 4, "PassStateEntered"),
        (6, 5, "PassStateExited"),
        (7, 6, "MapIterationSucceeded"),
        (8, 6, "MapIterationStarted"),
    ]


# The causes of expressions: assign/test_assign_reference_variables, scenarios/test_base_scenarios


@pytest.mark.parametrize(
    ("state", "location", "what"),
    [
        (
            {"Type": "Pass", "Output": "{% $none %}"},
            "Output",
            "'$none' specified for the field 'Output' returned nothing (undefined).",
        ),
        (
            {"Type": "Pass", "Output": {"result": "{% $none %}"}},
            "Output/result",
            "'$none' specified for the field 'Output/result' returned nothing (undefined).",
        ),
        (
            {"Type": "Pass", "Assign": {"result": "{% $none %}"}},
            "Assign/result",
            "'$none' specified for the field 'Assign/result' returned nothing (undefined).",
        ),
        (
            invoke(Arguments={"FunctionName": "{% $none %}"}),
            "Arguments/FunctionName",
            "'$none' specified for the field 'Arguments/FunctionName' returned nothing (undefined).",
        ),
        (
            mapped("{% {'foo': 'bar'} %}", branch(P={"Type": "Pass", "End": True})),
            "Items",
            "'{'foo': 'bar'}' specified for the field 'Items' returned an unexpected result type. "
            "Expected 'array', but was 'object' for value: {\"foo\":\"bar\"}",
        ),
        (
            mapped("{% function($x){$x} %}", branch(P={"Type": "Pass", "End": True})),
            "Items",
            "'function($x){$x}' specified for the field 'Items' returned an unsupported result type.",
        ),
    ],
    ids=["a field", "in an object", "Assign", "Arguments", "another type", "a function"],
)
def test_the_cause_of_an_expression_names_its_state_its_event_and_its_field(sfn, state, location, what):
    """test_undefined_reference, 2024-11-21; test_map_state_items_eval_jsonata_fail, 2024-11-19."""
    execution = sfn.run(machine("First", First={"Type": "Pass", "Next": "State"}, State={**state, "End": True}))
    cause = f"An error occurred while executing the state 'State' (entered at the event id #4). The JSONata expression {what}"
    assert failed_details(execution) == {"error": "States.QueryEvaluationError", "cause": cause}
    (failed,) = [event for event in execution.events if event["type"] == "EvaluationFailed"]
    assert failed["evaluationFailedEventDetails"] == {**failed_details(execution), "state": "State", "location": location}


def test_the_cause_of_an_input_that_is_no_array_has_no_field(sfn):
    """test_map_state_items_input_types, 2024-11-19."""
    state = {"Type": "Map", "ItemProcessor": branch(P={"Type": "Pass", "End": True}), "End": True}
    execution = sfn.run(machine("M", M=state), {"foo": "bar"})
    assert execution.cause.endswith(' (entered at the event id #2). Map state input must be an array but was: {"foo":"bar"}')
    assert "location" not in execution.events[2]["evaluationFailedEventDetails"]


def test_the_cause_of_a_timestamp_has_its_text(sfn):
    """test_wait_timestamp_jsonata[NO_Z], 2024-12-27."""
    execution = sfn.run(machine("W", W={"Type": "Wait", "Timestamp": "{% '2016-12-05T21:29:29' %}", "End": True}))
    what = "The Timestamp field cannot be parsed as an ISO-8601 extended offset date-time format string: 2016-12-05T21:29:29"
    assert execution.cause.endswith(what)


# The causes of services: error_handling/test_task_service_lambda, error_handling/test_task_service_sfn


def test_the_cause_of_an_optimized_integration_has_the_services_answer_in_brackets(sfn):
    """test_no_such_function, 2025-11-25; test_start_execution_no_such_arn, 2023-06-30."""

    def refuse(_: Any) -> None:
        raise ServiceError("ResourceNotFoundException", "Function not found", 404)

    sfn.functions["f"] = refuse
    cause = sfn.run(machine("Start", Start=invoke())).cause
    assert cause.startswith(
        "Function not found (Service: AWSLambda; Status Code: 404; Error Code: ResourceNotFoundException; Request"
    )
    assert cause.endswith("; Proxy: null)")
    start = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution", "Arguments": {"StateMachineArn": "x"}}
    cause = sfn.run(machine("Start", Start={**start, "End": True})).cause
    assert " (Service: AWSStepFunctions; Status Code: 400; Error Code: StateMachineDoesNotExist; Request ID: " in cause


# Definitions and values that are accepted or end the execution


def test_a_branch_may_assign_what_the_catchers_of_its_parallel_assign(sfn):
    """states_variables/test_error_output test_parallel_catch_error[PARALLEL_CATCH_ERROR_VARIABLE_SAMPLING], 2024-11-13."""
    sfn.functions["f"] = fails("Exception")
    task = invoke(Assign={"seen": "{% $states.input %}"})
    catch = [{"ErrorEquals": ["States.ALL"], "Assign": {"seen": "{% $states.errorOutput.Error %}"}, "Next": "Caught"}]
    around = parallel(branch(Job=task), Catch=catch, Next="Caught")
    execution = sfn.run(machine("Around", Around=around, Caught={**CAUGHT, "Output": "{% $seen %}"}))
    assert execution.output == "Exception"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("ToleratedFailureCount", "{% 'NoNumber' %}", 'refers to value "NoNumber" which is not a valid integer: '),
        ("ToleratedFailureCount", "{% -1 %}", "ToleratedFailureCount cannot be negative."),
        ("ToleratedFailurePercentage", "{% 'NoNumber' %}", 'refers to value "NoNumber" which is not a valid float: '),
        ("ToleratedFailurePercentage", "{% -1.1 %}", "ToleratedFailurePercentage must be between 0 and 100."),
        ("ToleratedFailurePercentage", "{% 100.1 %}", "ToleratedFailurePercentage must be between 0 and 100."),
        ("ToleratedFailurePercentage", "{% 1.1 %}", None),
    ],
)
def test_a_threshold_that_is_no_number_or_out_of_range_ends_the_execution(sfn, field, value, text):
    """scenarios/test_base_scenarios test_map_state_tolerated_failure_count_path and …_percentage_path, 2024-06-19 (JSONPath)."""
    processor = {
        **branch(P={"Type": "Pass", "End": True}),
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
    }
    state = mapped([0], processor, Catch=TO_CAUGHT, Next="Caught", **{field: value})
    execution = sfn.run(machine("M", M=state, Caught=CAUGHT))
    if text is None:
        assert execution.output == [0]
        return
    assert failed_details(execution)["error"] == "States.Runtime" and text in execution.cause
    assert sfn.events(execution)[1:] == ["MapStateEntered", "MapStateStarted", "ExecutionFailed"]


# Times


def test_the_start_date_of_start_execution_is_a_text(sfn):
    """test_state/test_field_validation_mode: "Field 'StartDate' must be a string"."""
    child = sfn.machines.put("child", machine("W", W=wait(5)))
    start = {"Type": "Task", "Resource": "arn:aws:states:::states:startExecution", "Arguments": {"StateMachineArn": child}}
    execution = sfn.run(machine("Start", Start={**start, "End": True}))
    assert execution.output["StartDate"] == "2027-01-01T00:00:00Z"
