"""The checks of requests and answers by botocore's models, for a defect of each kind and a good call of each protocol."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import botocore.session
import pytest
from botocore.awsrequest import prepare_request_dict
from botocore.model import ServiceModel as BotocoreServiceModel
from botocore.serialize import create_serializer

from world.aws.account import Aws
from world.aws.models import Models
from world.aws.requests import Identified, identified, parse, wsgi_environ
from world.aws.server import Answer, error_answer
from world.aws.wire_formats import parsed_xml
from world.base.beyond_models import refusal_of
from world.base.clock import Clock
from world.base.shapes import VIOLATIONS, Errors, Violations
from world.model_reports import told, unexpected
from world.stepfunctions.service_models import check_arguments, check_error, check_result, operation_of

SIGNED = "AWS4-HMAC-SHA256 Credential=key/20270101/eu-west-1/{}/aws4_request"
QUERY = "application/x-www-form-urlencoded"
GROUP = "<AutoScalingGroupName>workers</AutoScalingGroupName>"


def found() -> list[str]:
    return list(VIOLATIONS.take())


def checked(
    signer: str, uri: str, headers: dict[str, str], body: bytes, answer: Answer | None, method: str = "POST"
) -> list[str]:
    """The defects of a request as it comes over the wire, and of its answer."""
    environ = wsgi_environ(method, uri, [("Authorization", SIGNED.format(signer)), *headers.items()], body)
    Models().check(identified(environ, body), environ, body, answer)
    return found()


def query(signer: str, action: str, answer: Answer | None = None, **fields: Any) -> list[str]:
    body = urlencode({"Action": action, "Version": "2011-01-01", **fields}).encode()
    return checked(signer, "/", {"Content-Type": QUERY}, body, answer)


def states(action: str, fields: dict[str, Any], answer: Answer | None = None) -> list[str]:
    headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AWSStepFunctions.{action}"}
    return checked("states", "/", headers, json.dumps(fields).encode(), answer)


def eks(uri: str, fields: dict[str, Any], answer: Answer | None = None, method: str = "POST") -> list[str]:
    body = json.dumps(fields).encode() if fields else b""
    return checked("eks", uri, {"Content-Type": "application/json"}, body, answer, method)


def xml(action: str, result: str) -> Answer:
    text = f"<{action}Response><{action}Result>{result}</{action}Result><ResponseMetadata/></{action}Response>"
    return Answer(200, [("Content-Type", "text/xml")], text.encode())


def as_json(status: int, fields: Any) -> Answer:
    return Answer(status, [("Content-Type", "application/json")], json.dumps(fields).encode())


PROTECT = {
    "AutoScalingGroupName": "workers",
    "InstanceIds.member.1": "i-1",
    "InstanceIds.member.2": "i-2",
    "ProtectedFromScaleIn": "true",
}
STANDBY = {"AutoScalingGroupName": "workers", "InstanceIds.member.1": "i-1", "ShouldDecrementDesiredCapacity": "true"}
TAGS = {"ResourceId.1": "i-1", "Tag.1.Key": "a", "Tag.1.Value": "b"}
START = {"stateMachineArn": "arn:aws:states:eu-west-1:123456789012:stateMachine:m", "input": "{}"}


def test_an_operation_is_known_although_another_request_is_loading_the_service(monkeypatch):
    """Both requests of a first apply that creates two schedules were once the first to the service."""
    seen, loads = [], BotocoreServiceModel.operation_model
    second = threading.Thread(target=lambda: seen.append(parse("pipes", environ, b"{}")[0]))

    def second_request_in_the_middle(model: BotocoreServiceModel, operation: str) -> Any:
        monkeypatch.undo()
        loaded = loads(model, operation)
        second.start()
        second.join(0.2)
        return loaded

    environ = wsgi_environ("POST", "/v1/pipes/nodes", [("Content-Type", "application/json")], b"{}")
    monkeypatch.setattr(BotocoreServiceModel, "operation_model", second_request_in_the_middle)
    seen.append(parse("pipes", environ, b"{}")[0])
    second.join()
    assert seen == ["CreatePipe", "CreatePipe"]


def test_good_calls_of_each_protocol_pass():
    assert query("autoscaling", "SetInstanceProtection", xml("SetInstanceProtection", ""), **PROTECT) == []
    assert (
        query("ec2", "CreateTags", Answer(200, [], b"<CreateTagsResponse><return>true</return></CreateTagsResponse>"), **TAGS)
        == []
    )
    assert states("StartExecution", START, as_json(200, {"executionArn": "arn", "startDate": 1798761600.5})) == []
    assert eks("/clusters/world", {}, as_json(200, {"cluster": {"name": "world", "status": "ACTIVE"}}), "GET") == []
    assert eks("/clusters/world/access-entries?maxResults=5", {}, as_json(200, {"accessEntries": []}), "GET") == []


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (
            lambda: query("autoscaling", "EnterStandby", **STANDBY, Urgently="true"),
            "autoscaling EnterStandby: the request has the field Urgently, which does not exist; "
            "allowed are AutoScalingGroupName, InstanceIds, ShouldDecrementDesiredCapacity.",
        ),
        (
            lambda: query("ec2", "CreateTags", **TAGS, **{"Tag.1.Colour": "red"}),
            "ec2 CreateTags: the request has the field Tag[].Colour, which does not exist; allowed are Key, Value.",
        ),
        (
            lambda: states("StartExecution", {**START, "urgency": 1}),
            "stepfunctions StartExecution: the request has the field urgency, which does not exist; "
            "allowed are input, name, stateMachineArn, traceHeader.",
        ),
        (
            lambda: eks("/clusters/world/access-entries", {"principalArn": "arn", "groups": []}),
            "eks CreateAccessEntry: the request has the field groups, which does not exist; "
            "allowed are clientRequestToken, kubernetesGroups, principalArn, tags, type, username.",
        ),
        (
            lambda: eks("/clusters/world/access-entries?order=1", {}, None, "GET"),
            "eks ListAccessEntries: the request has the field order in its query, which does not exist; "
            "allowed are associatedPolicyArn, maxResults, nextToken.",
        ),
    ],
    ids=["query", "ec2", "json", "rest-json", "query string"],
)
def test_a_field_that_does_not_exist_is_a_defect(wrong, sentence):
    assert wrong() == [sentence]


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (
            lambda: query("autoscaling", "EnterStandby", AutoScalingGroupName="workers"),
            "autoscaling EnterStandby: the request has no field ShouldDecrementDesiredCapacity; it is required.",
        ),
        (
            lambda: query(
                "autoscaling", "DescribeTags", **{"Filters.member.1.Values.member.1": "a", "Filters.member.1.Nmae": "b"}
            ),
            "autoscaling DescribeTags: the request has the field Filters[].Nmae, which does not exist; allowed are Name, Values.",
        ),
        (
            lambda: states("StartExecution", {"input": "{}"}),
            "stepfunctions StartExecution: the request has no field stateMachineArn; it is required.",
        ),
        (
            lambda: eks("/clusters/world/access-entries", {}),
            "eks CreateAccessEntry: the request has no field principalArn; it is required.",
        ),
    ],
)
def test_a_required_field_that_is_missing_is_a_defect(wrong, sentence):
    assert wrong() == [sentence]


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (
            lambda: states("ListExecutions", {"stateMachineArn": "arn", "statusFilter": "WAITING"}),
            "stepfunctions ListExecutions: the request has 'WAITING' at statusFilter; "
            "allowed are ABORTED, FAILED, PENDING_REDRIVE, RUNNING, SUCCEEDED, TIMED_OUT.",
        ),
        (
            lambda: query(
                "elasticloadbalancing", "DescribeTargetHealth", TargetGroupArn="arn", **{"Include.member.1": "Weather"}
            ),
            "elbv2 DescribeTargetHealth: the request has 'Weather' at Include[]; allowed are All, AnomalyDetection.",
        ),
        (
            lambda: query("autoscaling", "SetInstanceProtection", **{**PROTECT, "ProtectedFromScaleIn": "yes"}),
            "autoscaling SetInstanceProtection: the request has 'yes' at ProtectedFromScaleIn; "
            "allowed is a value of the type boolean.",
        ),
        (
            lambda: states("ListExecutions", {"stateMachineArn": "arn", "maxResults": "ten"}),
            "stepfunctions ListExecutions: the request has 'ten' at maxResults; allowed is a value of the type integer.",
        ),
    ],
)
def test_a_value_that_does_not_exist_is_a_defect(wrong, sentence):
    assert wrong() == [sentence]


def test_an_operation_that_does_not_exist_is_a_defect():
    assert query("autoscaling", "RestStandby") == ["autoscaling has no operation RestStandby in botocore's model."]


@pytest.mark.parametrize(
    "code, status, sentence",
    [
        (
            "Nonsense",
            400,
            "autoscaling EnterStandby: the answer has the error Nonsense; "
            "allowed are ResourceContention, ResourceContentionFault, and for each operation ",
        ),
        (
            "ResourceContention",
            418,
            "autoscaling EnterStandby: the answer has the error ResourceContention with the status 418; allowed is 500.",
        ),
        ("ScalingActivityInProgress", 400, "has the error ScalingActivityInProgress; allowed are ResourceContention"),
    ],
)
def test_an_error_that_the_operation_does_not_have_is_a_defect(code, status, sentence):
    answer = error_answer("query", code, "no", status)
    (told_of,) = query("autoscaling", "EnterStandby", answer, **STANDBY)
    assert sentence in told_of


@pytest.mark.parametrize(
    "code, status", [("ResourceContention", 500), ("ValidationError", 400), ("Throttling", 400), ("AccessDenied", 403)]
)
def test_errors_of_the_operation_and_of_all_operations_pass(code, status):
    assert query("autoscaling", "EnterStandby", error_answer("query", code, "no", status), **STANDBY) == []


def test_errors_are_read_as_each_protocol_writes_them():
    refusals = [
        query("ec2", "CreateTags", error_answer("ec2", "Throttled", "no", 503), **TAGS),
        states("StartExecution", START, error_answer("json", "Throttled", "no", 400)),
        eks("/clusters/world", {}, error_answer("rest-json", "Throttled", "no", 429), "GET"),
    ]
    assert [len(each) for each in refusals] == [1, 1, 1]
    assert all("has the error Throttled; allowed are" in each[0] for each in refusals)


def test_sns_is_throttled_by_an_error_that_the_operation_has():
    publish, phones = (Errors("sns", operation_of("sns", each)) for each in ("Publish", "ListPhoneNumbersOptedOut"))
    assert list(publish.problems("Throttled", 429)) != [] and list(phones.problems("Throttled", 429)) == []
    assert list(publish.problems(**refusal_of("sns:Publish", "throttled"))) == []


MEMBER = "<member><InstanceId>i-1</InstanceId><AvailabilityZone>a</AvailabilityZone>{}</member>"
REST = "<HealthStatus>Healthy</HealthStatus><ProtectedFromScaleIn>false</ProtectedFromScaleIn>"
SIZES = "<MinSize>1</MinSize><MaxSize>2</MaxSize><DesiredCapacity>1</DesiredCapacity><DefaultCooldown>300</DefaultCooldown>"
WHOLE = f"{SIZES}<AvailabilityZones/><HealthCheckType>EC2</HealthCheckType><CreatedTime>2027-01-01T00:00:00Z</CreatedTime>"


def groups(instances: str, more: str = "") -> Answer:
    group = f"<member>{GROUP}{WHOLE}<Instances>{instances}</Instances>{more}</member>"
    return xml("DescribeAutoScalingGroups", f"<AutoScalingGroups>{group}</AutoScalingGroups>")


@pytest.mark.parametrize(
    "answer, sentence",
    [
        (
            groups(MEMBER.format(f"<LifecycleState>Dancing</LifecycleState>{REST}")),
            "has 'Dancing' at AutoScalingGroups[].Instances[].LifecycleState; allowed are ",
        ),
        (groups(MEMBER.format(f"<LifecycleState>InService</LifecycleState>{REST}<Mood/>")), "[].Mood, which does not exist"),
        (
            groups(
                MEMBER.format(f"<LifecycleState>Standby</LifecycleState>{REST}").replace("i-1", "i-2"), "<MinSize>x</MinSize>"
            ),
            "'x'",
        ),
        (
            groups(MEMBER.format("<LifecycleState>InService</LifecycleState>")),
            "has no field AutoScalingGroups[].Instances[].HealthStatus",
        ),
        (groups("<instance/>"), "at AutoScalingGroups[].Instances; allowed is a list"),
    ],
    ids=["value", "field", "type", "missing", "list"],
)
def test_an_answer_in_xml_is_compared_with_its_shape(answer, sentence):
    told_of = query("autoscaling", "DescribeAutoScalingGroups", answer)
    assert any(sentence in each for each in told_of), told_of


def test_an_answer_in_json_is_compared_with_its_shape():
    wrong = as_json(200, {"cluster": {"name": "world", "status": "DANCING", "mood": "good"}})
    told_of = eks("/clusters/world", {}, wrong, "GET")
    assert [each.split("; ")[0] for each in told_of] == [
        "eks DescribeCluster: the answer has 'DANCING' at cluster.status",
        "eks DescribeCluster: the answer has the field cluster.mood, which does not exist",
    ]
    assert eks("/clusters/world", {}, as_json(204, {}), "GET") == [
        "eks DescribeCluster: the answer has the status 204; allowed is 200."
    ]


def test_a_wrong_answer_is_told_each_time():
    models, body = Models(), urlencode({"Action": "DescribeAutoScalingGroups"}).encode()
    environ = wsgi_environ("POST", "/", [("Authorization", SIGNED.format("autoscaling")), ("Content-Type", QUERY)], body)
    call, answer = identified(environ, body), groups("", "<Mood/>")
    for times in (1, 2, 3):
        models.check(call, environ, body, answer)
        assert list(VIOLATIONS.take().values()) == [1], times


def test_a_good_kind_of_answer_is_compared_once(monkeypatch):
    models, body, read = Models(), urlencode({"Action": "DescribeAutoScalingGroups"}).encode(), []
    monkeypatch.setattr("world.aws.models.parsed_xml", lambda text: read.append(text) or parsed_xml(text))
    environ = wsgi_environ("POST", "/", [("Authorization", SIGNED.format("autoscaling")), ("Content-Type", QUERY)], body)
    for number in range(5):
        member = MEMBER.format(f"<LifecycleState>InService</LifecycleState>{REST}").replace("i-1", f"i-{number}")
        models.check(identified(environ, body), environ, body, groups(member * (number + 1)))
    assert len(read) == 2, "one member, and more"
    assert found() == []


def test_a_new_value_makes_a_new_kind():
    models, body = Models(), urlencode({"Action": "DescribeAutoScalingGroups"}).encode()
    environ = wsgi_environ("POST", "/", [("Authorization", SIGNED.format("autoscaling")), ("Content-Type", QUERY)], body)
    for state, wrong in (("InService", 0), ("Standby", 0), ("Dancing", 1), ("InService", 0)):
        instance = MEMBER.format(f"<LifecycleState>{state}</LifecycleState>{REST}")
        models.check(identified(environ, body), environ, body, groups(instance))
        assert len(found()) == wrong, state


# The requests of every operation that botocore itself writes


SERVICES = [
    "autoscaling",
    "ec2",
    "eks",
    "elbv2",
    "events",
    "iam",
    "lambda",
    "logs",
    "scheduler",
    "sns",
    "sqs",
    "stepfunctions",
    "sts",
]


@pytest.mark.parametrize("service", SERVICES)
def test_what_botocore_writes_with_the_required_fields_passes(service):
    """So the readers of requests know each operation's protocol as its writer does."""
    model = botocore.session.get_session().get_service_model(service)
    serializer = create_serializer(model.protocol, include_validation=False)
    names = [name for name in model.operation_names if service != "ec2" or name.startswith(("Describe", "Run", "Create"))][:120]
    models, wrong = Models(), {}
    for name in names:
        operation = model.operation_model(name)
        parameters = {} if operation.input_shape is None else sample(operation.input_shape)
        request = serializer.serialize_to_request(parameters, operation)
        prepare_request_dict(request, endpoint_url="http://world", context={})
        environ, body = on_the_wire(request)
        call = Identified(service, f"{service}:{name}", model.protocol, "", "", {}, None)
        models.check(call, environ, body, None)
        if problems := found():
            wrong[name] = problems
    assert wrong == {}


def sample(shape: Any, depth: int = 0, seen: tuple[str, ...] = ()) -> Any:
    """A value of a shape: all fields of the upper levels, below them the required ones or else one."""
    kind = shape.type_name
    if kind == "structure":
        if getattr(shape, "is_tagged_union", False) or shape.name in seen:
            return {}
        least = shape.required_members or list(shape.members)[:1]
        chosen = shape.members if depth < 3 else {name: shape.members[name] for name in least}
        return {name: sample(of, depth + 1, (*seen, shape.name)) for name, of in chosen.items() if not streamed(of)}
    if kind == "list":
        return [sample(shape.member, depth + 1, seen)]
    if kind == "map":
        return {sample(shape.key, depth + 1, seen): sample(shape.value, depth + 1, seen)}
    if getattr(shape, "enum", None):
        return shape.enum[0]
    texts = {"boolean": True, "blob": b"x", "timestamp": 1798761600, "float": 1.5, "double": 1.5, "string": "x"}
    return texts.get(kind, 1)


def streamed(shape: Any) -> bool:
    return bool(shape.serialization.get("streaming") or shape.serialization.get("jsonvalue"))


def on_the_wire(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    body = request["body"]
    if isinstance(body, dict):
        body = urlencode(body, doseq=True)
    body = body.encode() if isinstance(body, str) else body or b""
    uri = request["url"].removeprefix("http://world")
    headers = {**request["headers"], "Content-Type": request["headers"].get("Content-Type", QUERY)}
    return {**wsgi_environ(request["method"], uri, headers.items(), body), "wsgi.input": io.BytesIO(body)}, body


# State machines


def test_arguments_results_and_errors_of_a_state_machine_are_compared():
    check_arguments("lambda:invoke", {"FunctionName": "f", "Payload": {"anything": 1}})
    check_arguments("states:startExecution.sync:2", {"StateMachineArn": "arn", "Input": {"a": 1}, "Name": "n"})
    check_result("lambda:invoke", {"ExecutedVersion": "1", "Payload": {}, "StatusCode": 200})
    check_error("lambda:invoke", "TooManyRequestsException", 429)
    assert found() == []

    check_arguments("lambda:invoke", {"FunctionName": "f", "InvocationType": "Later"})
    check_arguments("states:startExecution", {"Input": {}, "Nmae": "n"})
    check_result("states:startExecution", {"ExecutionArn": "arn", "StartDate": 1, "Mood": "good"})
    check_error("lambda:invoke", "TooManyWishes", 429)
    assert [each.split("; ")[0] for each in found()] == [
        "lambda Invoke: the request of a state machine has 'Later' at InvocationType",
        "stepfunctions StartExecution: the request of a state machine has the field Nmae, which does not exist",
        "stepfunctions StartExecution: the request of a state machine has no field StateMachineArn",
        "stepfunctions StartExecution: the answer to a state machine has the field Mood, which does not exist",
        "lambda Invoke: the answer to a state machine has the error TooManyWishes",
    ]


# In a world


@pytest.fixture(scope="module")
def aws():
    aws = Aws(Clock())
    aws.start()
    yield aws
    aws.stop()


def test_schedules_in_a_list_have_the_fields_of_a_list(aws):
    aws.client("scheduler").create_schedule(
        Name="s",
        ScheduleExpression="rate(1 day)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:lambda:eu-west-1:123456789012:function:f", "RoleArn": "arn:aws:iam::123456789012:role/r"},
    )
    (schedule,) = aws.client("scheduler").list_schedules()["Schedules"]
    assert schedule["Name"] == "s" and "ScheduleExpression" not in schedule


def test_the_older_api_of_load_balancers_has_a_model_of_its_own(aws):
    assert aws.client("elb").describe_load_balancers()["LoadBalancerDescriptions"] == []
    assert aws.client("elbv2").describe_load_balancers()["LoadBalancers"] == []
    assert found() == []


def test_a_service_says_a_fault_in_its_own_words():
    kinds = ("throttled", "5xx", "refused")
    actions = ("autoscaling:EnterStandby", "ec2:CreateTags", "eks:DescribeCluster", "sns:Publish", "states:StartExecution")
    for action in (*actions, "elasticloadbalancing:DescribeTargetHealth"):
        service, _, operation = action.partition(":")
        service = {"states": "stepfunctions", "elasticloadbalancing": "elbv2"}.get(service, service)
        for kind in kinds:
            how = refusal_of(action, kind)
            problems = Errors(service, operation_of(service, operation)).problems(how["code"], how["status"])
            assert list(problems) == [], (action, kind)


@pytest.mark.not_in_the_models("sns Publish: the answer has the error Nonsense", "allowed are")
def test_a_test_may_say_that_it_leaves_the_models(aws):
    aws.faults.refuse("sns:Publish", code="Nonsense")
    with pytest.raises(Exception, match="Nonsense"):
        aws.client("sns").publish(TopicArn="arn:aws:sns:eu-west-1:123456789012:t", Message="m")


def test_a_world_tells_each_violation_of_a_test(aws):
    aws.faults.clear()
    aws.faults.refuse("sns:Publish", code="Nonsense", times=None)
    for _ in range(2):
        with pytest.raises(Exception, match="Nonsense"):
            aws.client("sns").publish(TopicArn="arn:aws:sns:eu-west-1:123456789012:t", Message="m")
    taken = VIOLATIONS.take()
    assert unexpected(taken, ["Nonsense"]) == {}
    assert told(taken).startswith(
        "Not as AWS's models (botocore) have it:\n  sns Publish: the answer has the error Nonsense; allowed"
    )
    assert told(taken).endswith("(2 times)")


def test_a_sentence_about_a_request_counts_for_the_test_in_which_the_request_began():
    violations = Violations()
    violations.begin("first")
    begun_in = violations.test
    violations.add(["not taken."], begun_in)
    violations.begin("second")
    violations.add(["late."], begun_in)
    violations.add(["now."], violations.test)
    violations.add(["of no request."])
    assert violations.take() == {"now.": 1, "of no request.": 1}
    assert violations.take_late() == {"first": ["late.", "not taken."]}
    assert violations.take_late() == {}


def test_a_request_that_ends_after_its_test_does_not_fail_the_next_test(aws, monkeypatch):
    has_begun, next_test_runs = threading.Event(), threading.Event()

    def holds(*call: Any) -> None:
        has_begun.set()
        next_test_runs.wait(30)

    def publishes() -> None:
        with pytest.raises(Exception, match="Nonsense"):
            aws.client("sns").publish(TopicArn="arn:aws:sns:eu-west-1:123456789012:t", Message="m")

    monkeypatch.setattr(VIOLATIONS, "test", "the test before")
    aws.faults.refuse("sns:Publish", code="Nonsense")
    aws.faults.witnesses.append(holds)
    function = threading.Thread(target=publishes)
    function.start()
    assert has_begun.wait(30)
    monkeypatch.setattr(VIOLATIONS, "test", "this test")
    next_test_runs.set()
    function.join(30)
    aws.faults.witnesses.remove(holds)

    assert found() == []
    late = VIOLATIONS.take_late()
    assert list(late) == ["the test before"] and "Nonsense" in late["the test before"][0]


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "workers"])
def test_a_session_fails_if_a_request_violated_the_models_after_its_test(tmp_path, workers):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    file = tmp_path / "test_late.py"
    file.write_text(
        "from world.base.shapes import VIOLATIONS\n"
        "def test_first(): pass\n"
        "def test_second(): VIOLATIONS.add(['sns Publish: wrong.'], 'test_late.py::test_first')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "world.model_reports", "-p", "no:cacheprovider", *workers, file]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 test: sns Publish: wrong." in done.stdout and "2 passed" in done.stdout
