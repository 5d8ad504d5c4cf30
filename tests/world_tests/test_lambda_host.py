"""Functions as real processes: a small Python script with a shebang stands for the compiled `bootstrap`."""

import io
import json
import os
import signal
import sys
import time
import zipfile

import pytest

from world.aws.account import Aws
from world.aws.lambda_host import Invocation, LambdaHost
from world.base.clock import Clock
from world.base.faults import Plan
from world.stepfunctions.state_errors import ServiceError

# A runtime client of the Lambda Runtime API in a few lines. {extra} runs at init.
BOOTSTRAP = """#!{python}
import http.client, json, os, sys, time
{extra}
count = 0
def ask(method, path, body=None):
    connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    connection.request(method, "/2018-06-01/runtime" + path, body)
    response = connection.getresponse()
    return response, response.read()
def aws(action):
    import urllib.request
    key, scope = os.environ["AWS_ACCESS_KEY_ID"], "20270101/" + os.environ["AWS_REGION"] + "/ec2/aws4_request"
    body = ("Action=" + action + "&Version=2016-11-15").encode()
    request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"], body, {{
        "Authorization": "AWS4-HMAC-SHA256 Credential=" + key + "/" + scope + ", SignedHeaders=host, Signature=0"}})
    return urllib.request.urlopen(request).status
while True:
    response, body = ask("GET", "/invocation/next")
    id = response.headers["Lambda-Runtime-Aws-Request-Id"]
    event = json.loads(body)
    count += 1
    print("event", event, flush=True)
    if event.get("fail"):
        error = {{"errorType": "NodeGone", "errorMessage": "asked to fail"}}
        ask("POST", "/invocation/" + id + "/error", json.dumps(error))
        continue
    if "exit" in event:
        sys.exit(event["exit"])
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "action" in event:
        event["answer"] = aws(event["action"])
    ask("POST", "/invocation/" + id + "/response", json.dumps({{
        "count": count, "pid": os.getpid(), "environment": dict(os.environ), "folder": os.getcwd(), **event}}))
"""


def package(extra="", mode=0o755, name="bootstrap"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, BOOTSTRAP.format(python=sys.executable, extra=extra))
    return buffer.getvalue()


class Account:
    def __init__(self):
        self.clock = Clock()
        self.faults = Plan()
        self.aws = Aws(self.clock, self.faults)
        self.aws.start()
        self.host = LambdaHost(self.aws, self.clock, self.faults)

    def function(self, name="claim-node", extra="", timeout=60, zip_file=None, **settings):
        role = f"{name}-role"
        self.aws.client("iam").create_role(RoleName=role, AssumeRolePolicyDocument="{}")
        return self.aws.client("lambda").create_function(
            FunctionName=name,
            Runtime="provided.al2023",
            Handler="bootstrap",
            Role=f"arn:aws:iam::123456789012:role/{role}",
            Code={"ZipFile": zip_file or package(extra)},
            Timeout=timeout,
            Publish=True,
            **settings,
        )

    def invoke(self, event=None, function="claim-node"):
        """Runs the clock until the answer is there; returns it and the virtual seconds it took."""
        answers = []

        def process():
            answers.append((yield self.host.invoke(function, json.dumps(event or {}).encode())))

        self.clock.spawn(process(), "test")
        self.clock.run(until=lambda: answers)
        return answers[0]

    def succeed(self, event=None, function="claim-node"):
        answer = self.invoke(event, function)
        assert isinstance(answer, Invocation) and answer.function_error is None, answer
        return json.loads(answer.payload)

    def fail(self, event=None, function="claim-node"):
        answer = self.invoke(event, function)
        assert isinstance(answer, Invocation) and answer.function_error == "Unhandled", answer
        return json.loads(answer.payload)


@pytest.fixture
def account():
    account = Account()
    yield account
    account.host.stop()
    account.aws.stop()


def is_running(pid):
    return os.path.exists(f"/proc/{pid}")


def test_a_function_answers_and_its_process_is_used_again(account):
    account.function()
    first, second = account.succeed({"x": 1}), account.succeed()
    assert (first["x"], first["count"], second["count"]) == (1, 1, 2)
    assert first["pid"] == second["pid"]
    assert [sample.cold for sample in account.host.samples] == [True, False]
    assert account.host.samples[0].vm_hwm_kb > 1000


def test_an_environment_of_ones_own_is_given_to_no_invocation(account):
    account.function()
    own = account.host.sandbox("claim-node")
    error, answer = own.handle("one", b"{}")
    assert error is None and json.loads(answer)["pid"] == own.pid
    assert own.init_ms > 0 and own.vm_hwm_kb > 1000
    assert account.succeed()["pid"] != own.pid and account.host.samples[0].cold
    own.close()
    assert not is_running(own.pid)


def test_the_environment_is_lambdas_and_nothing_is_inherited(account):
    os.environ["INHERITED"] = "yes"
    account.function(Environment={"Variables": {"CLUSTER_NAME": "world", "AWS_REGION": "us-east-1"}}, MemorySize=256)
    environment = account.succeed(function="claim-node:1")["environment"]
    del os.environ["INHERITED"]
    assert "INHERITED" not in environment and "HOME" not in environment
    expected = {
        "CLUSTER_NAME": "world",
        "AWS_REGION": "eu-west-1",
        "AWS_LAMBDA_FUNCTION_NAME": "claim-node",
        "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "_HANDLER": "bootstrap",
        "AWS_ENDPOINT_URL": account.aws.endpoint,
    }
    assert {name: environment.get(name) for name in expected} == expected


def test_a_scenario_sets_a_variable_anew_until_the_next_reset(account):
    account.function(Environment={"Variables": {"CLUSTER_NAME": "world", "MAX_SURGE_PER_GROUP": "5"}})

    def seen() -> list[str]:
        environment = account.succeed()["environment"]
        return [environment["CLUSTER_NAME"], environment["MAX_SURGE_PER_GROUP"]]

    assert seen() == ["world", "5"]
    account.host.variables["claim-node"] = {"MAX_SURGE_PER_GROUP": "2"}
    assert seen() == ["world", "2"]
    account.host.reset()
    assert seen() == ["world", "5"]


def test_a_recorded_call_names_the_function_its_role_and_its_process(account):
    account.function()
    key = account.succeed({"action": "DescribeInstances"})["environment"]["AWS_ACCESS_KEY_ID"]
    call = account.aws.calls[-1]
    assert (call.action, call.function, call.access_key) == ("ec2:DescribeInstances", "claim-node", key)
    assert call.principal == "arn:aws:sts::123456789012:assumed-role/claim-node-role/claim-node"
    assert account.aws.callers[key].function == "claim-node"


def test_an_error_of_the_function_is_a_function_error_and_the_process_lives_on(account):
    account.function()
    assert account.fail({"fail": True}) == {"errorType": "NodeGone", "errorMessage": "asked to fail"}
    assert account.succeed()["count"] == 2


@pytest.mark.parametrize(
    "event, reason",
    [
        ({"exit": 3}, "Runtime exited with error: exit status 3"),
        ({"exit": 0}, "Runtime exited without providing a reason"),
    ],
)
def test_a_process_that_exits_is_a_runtime_exit_error_and_the_next_one_starts_cold(account, event, reason):
    account.function()
    error = account.fail(event)
    assert error["errorType"] == "Runtime.ExitError"
    assert error["errorMessage"].endswith(reason)
    assert account.succeed()["count"] == 1


@pytest.mark.parametrize(
    "zip_file, error_type",
    [
        (package(extra="sys.exit(7)"), "Runtime.ExitError"),
        (package(extra="pass", mode=0o644), "Runtime.InvalidEntrypoint"),
        (package(name="main"), "Runtime.InvalidEntrypoint"),
    ],
)
def test_a_function_that_cannot_start_says_why(account, zip_file, error_type):
    account.function(zip_file=zip_file)
    assert account.fail()["errorType"] == error_type


def test_an_init_error_is_reported_as_the_function_wrote_it(account):
    report = (
        'connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])\n'
        'connection.request("POST", "/2018-06-01/runtime/init/error", json.dumps({"errorType": "BadConfig"}))\n'
        "connection.getresponse().read()\nsys.exit(1)"
    )
    account.function(extra=report)
    assert account.fail() == {"errorType": "BadConfig"}


def test_a_function_that_takes_longer_than_its_timeout_is_killed(account):
    account.function(timeout=1)
    started = processes_of(account.host)
    begin = time.monotonic()
    # (Nothing before that: on a busy machine a second may be too short for any answer.)
    error = account.fail({"sleep": 600})
    assert time.monotonic() - begin < 300
    assert error["errorType"] == "Sandbox.Timedout"
    assert error["errorMessage"].endswith("Task timed out after 1.00 seconds")
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def processes_of(host):
    """A list that every process which the host starts from now on is added to."""
    started, spawn = [], host.spawn

    def spawn_and_note(*arguments, **options):
        started.append(spawn(*arguments, **options))
        return started[-1]

    host.spawn = spawn_and_note
    return started


def test_a_call_that_hangs_ends_at_the_virtual_timeout_without_real_waiting(account):
    account.function(timeout=300)
    account.faults.hang("ec2:DescribeInstances")
    started = time.monotonic()
    assert account.fail({"action": "DescribeInstances"})["errorType"] == "Sandbox.Timedout"
    assert account.clock.elapsed() == 300
    assert time.monotonic() - started < 150
    assert [call.action for call in account.aws.calls if call.function] == ["ec2:DescribeInstances"]


@pytest.mark.parametrize("when, reached", [("before", 0), ("after", 1)])
def test_a_process_can_be_killed_before_or_after_a_call_takes_effect(account, when, reached):
    account.function()
    account.faults.kill(when, "ec2:DescribeInstances", function="claim-node")
    error = account.fail({"action": "DescribeInstances"})
    assert error["errorType"] == "Runtime.ExitError"
    assert error["errorMessage"].endswith("signal: killed")
    assert sum(call.action == "ec2:DescribeInstances" for call in account.aws.calls) == reached
    assert account.succeed({"action": "DescribeInstances"})["answer"] == 200


def test_virtual_time_passes_for_an_invocation_only_where_the_scenario_says_so(account):
    account.function(timeout=60)
    account.succeed()
    assert account.clock.elapsed() == 0
    account.host.duration["claim-node"] = 40
    account.succeed()
    assert account.clock.elapsed() == 40
    account.host.duration["claim-node"] = 100
    assert account.fail()["errorType"] == "Sandbox.Timedout"
    assert account.clock.elapsed() == 100


def test_two_functions_interleave_at_the_latency_of_their_calls(account):
    account.function()
    account.function("check-pods")
    account.aws.latency = lambda action: 5.0
    ended = []

    def process(name, delay):
        yield delay
        yield account.host.invoke(name, b'{"action": "DescribeInstances"}')
        ended.append((name, account.clock.elapsed()))

    account.clock.spawn(process("claim-node", 0), "first")
    account.clock.spawn(process("check-pods", 1), "second")
    account.clock.run()
    assert ended == [("claim-node", 5.0), ("check-pods", 6.0)]


def test_one_environment_handles_one_request_at_a_time(account):
    account.function()
    account.aws.latency = lambda action: 5.0
    pids = []

    def process():
        answer = yield account.host.invoke("claim-node", b'{"action": "DescribeInstances"}')
        pids.append(json.loads(answer.payload)["pid"])

    for _ in range(2):
        account.clock.spawn(process(), "invoker")
    account.clock.run()
    assert len(set(pids)) == 2


def test_versions_keep_their_code_and_configuration(account):
    account.function(extra='os.environ["CODE"] = "one"', Environment={"Variables": {"SETTING": "one"}})
    client = account.aws.client("lambda")
    client.update_function_configuration(FunctionName="claim-node", Environment={"Variables": {"SETTING": "two"}})
    client.update_function_code(FunctionName="claim-node", ZipFile=package(extra='os.environ["CODE"] = "two"'), Publish=True)
    client.create_alias(FunctionName="claim-node", Name="live", FunctionVersion="2")
    seen = {}
    for qualifier in ("1", "2", "live", "$LATEST"):
        environment = account.succeed(function=f"arn:aws:lambda:eu-west-1:123456789012:function:claim-node:{qualifier}")[
            "environment"
        ]
        seen[qualifier] = environment["CODE"], environment["SETTING"], environment["AWS_LAMBDA_FUNCTION_VERSION"]
    assert seen == {
        "1": ("one", "one", "1"),
        "2": ("two", "two", "2"),
        "live": ("two", "two", "2"),
        "$LATEST": ("two", "two", "$LATEST"),
    }


def test_invoke_itself_can_fail_before_and_after_the_function_ran(account):
    account.function()
    account.faults.invoke("claim-node", nth=2, code="TooManyRequestsException", status=429)
    account.faults.invoke("claim-node", nth=3, code="ServiceException", status=500, after=True)
    counts = [account.succeed()["count"]]
    errors = [account.invoke(), account.invoke()]
    counts.append(account.succeed()["count"])
    assert [(e.code, e.status) for e in errors] == [("TooManyRequestsException", 429), ("ServiceException", 500)]
    assert counts == [1, 3]


def test_an_unknown_function_is_a_service_error(account):
    answer = account.invoke(function="nobody")
    assert isinstance(answer, ServiceError)
    assert (answer.code, answer.status) == ("ResourceNotFoundException", 404)


def test_reserved_concurrency_zero_stops_a_function(account):
    account.function()
    account.aws.client("lambda").put_function_concurrency(FunctionName="claim-node", ReservedConcurrentExecutions=0)
    answer = account.invoke()
    assert isinstance(answer, ServiceError)
    assert (answer.code, answer.status) == ("TooManyRequestsException", 429)


def test_invocations_beyond_the_accounts_concurrency_are_throttled_until_the_next_scenario(account):
    account.function()
    account.host.concurrency = 0
    answer = account.invoke()
    assert isinstance(answer, ServiceError)
    assert (answer.code, answer.status) == ("TooManyRequestsException", 429)
    account.host.reset()
    assert not isinstance(account.invoke(), ServiceError)


def test_an_asynchronous_invocation_is_tried_three_times(account):
    account.function()
    account.host.invoke_async("claim-node", b'{"fail": true}')
    account.clock.run()
    assert account.clock.elapsed() == 180
    assert account.host.logs("claim-node").count("'fail': True") == 3
    assert [function for function, _, _ in account.host.dropped] == ["claim-node"]


def test_the_api_invokes_functions_too(account):
    account.function()
    answer = account.aws.client("lambda").invoke(FunctionName="claim-node", Payload=b'{"x": 2}', Qualifier="1")
    assert json.loads(answer["Payload"].read())["x"] == 2
    assert answer["ExecutedVersion"] == "1"
    failed = account.aws.client("lambda").invoke(FunctionName="claim-node", Payload=b'{"fail": true}')
    assert failed["FunctionError"] == "Unhandled"


def test_a_reset_keeps_warm_processes_and_forgets_logs(account):
    account.function()
    pid = account.succeed()["pid"]
    account.aws.reset()
    assert account.host.logs("claim-node") == ""
    assert account.succeed()["pid"] == pid
    assert account.aws.calls == []


def test_a_host_that_becomes_cold_starts_another_process(account):
    account.function()
    pid = account.succeed()["pid"]
    account.host.become_cold()
    assert not is_running(pid)
    assert account.succeed()["pid"] != pid


def test_a_reset_ends_processes_of_changed_functions_and_a_wipe_all(account):
    account.function()
    pid = account.succeed()["pid"]
    account.aws.client("lambda").update_function_configuration(FunctionName="claim-node", Timeout=20)
    account.aws.reset()
    assert not is_running(pid)
    pid = account.succeed()["pid"]
    account.aws.wipe()
    assert not is_running(pid)


def test_credentials_do_not_shift_the_identifiers_of_resources(account):
    account.function()
    account.aws.reset()
    before = account.aws.client("ec2").create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    account.aws.reset()
    account.succeed()
    assert account.aws.client("ec2").create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"] == before


def test_stopping_the_host_ends_its_processes(account):
    account.function()
    pid = account.succeed()["pid"]
    account.host.stop()
    assert not is_running(pid)
