"""The real definition, walked into every state and twice round each loop, with functions that only answer."""

import json
import re
from typing import Any

import pytest

from contract.scripts import INPUT, LOOPS, NOTIFICATION, TOPIC, Script, Topic, Walk, answered, follow, rendered
from prepare import ROOT
from world.stepfunctions.in_memory import FunctionFailed
from world.stepfunctions.state_errors import StateError

REFUSED = FunctionFailed("ServiceRefused", "no")
SUPERSEDED = FunctionFailed("Superseded", "another execution's")


def walk(**answers: list[Any]) -> Walk:
    """Runs the definition after a script of these answers."""
    return follow(Script(**answers), rendered())


def test_straight_through():
    end = walk()
    assert end.path == [
        "Recycle", "Begin", "ClaimNode", "NodeClaimed", "StandbyNode", "ReplacementReady", "TaintNode", "EventBeforeDrain",
        "CheckPods", "PodsGone", "EventAfterDrain", "DetachTerminate", "NodeDisposed", "EventAfterDisposal", "NotifyEnd",
        "NodeRecycled",
    ]  # fmt: skip
    assert end.output == {"outcome": "recycled", "reason": "detach-terminate says recycled", "counts": {}, "names": {}}


def test_the_after_path_and_the_hook_path_go_straight_to_the_taint():
    end = walk(claim_node=["taint"])
    assert "StandbyNode" not in end.path and end.path.index("TaintNode") == end.path.index("NodeClaimed") + 1
    assert end.output["outcome"] == "recycled"


@pytest.mark.parametrize(("answers", "states"), [loop[1:] for loop in LOOPS], ids=[loop[0] for loop in LOOPS])
def test_twice_round_each_loop(answers, states):
    end = walk(**answers)
    assert end.output["outcome"] == "recycled"
    assert any(end.path[at : at + 2 * len(states)] == states * 2 for at in range(len(end.path)))


@pytest.mark.parametrize(
    ("verdict", "last"),
    [("duplicate", "Duplicate"), ("already_gone", "AlreadyGone"), ("released", "HookReleased"), ("planned", "Planned")],
)
def test_nothing_to_do_ends_succeeded(verdict, last):
    end = walk(claim_node=[verdict])
    assert end.path[-1] == last and end.output["outcome"] == verdict


@pytest.mark.parametrize("step", ["claim_node", "standby_node", "taint_node", "check_pods", "evict_pods", "detach_terminate"])
def test_an_error_of_any_step_leads_to_restore_node_and_keeps_its_name(step):
    answers = {step: [FunctionFailed("ServiceRefused", "no")]}
    if step == "evict_pods":
        answers["check_pods"] = ["evict"]
    end = walk(**answers)
    assert end.path[-4:] == ["RestoreNode", "NodeRestored", "NotifyFailure", "NodeKept"]
    assert (end.status, end.error, end.cause) == ("FAILED", "ServiceRefused", "restore-node says restored")


@pytest.mark.parametrize("step", ["claim_node", "standby_node", "check_pods", "detach_terminate"])
def test_an_unknown_verdict_is_an_error_like_any_other(step):
    end = walk(**{step: ["dance"]})
    assert end.path[-5:] == ["UnknownVerdict", "RestoreNode", "NodeRestored", "NotifyFailure", "NodeKept"]
    assert end.error == "InternalError"


def test_a_lost_claim_touches_nothing_more():
    end = walk(check_pods=[FunctionFailed("ClaimLost", "another execution's")])
    assert end.path[-1] == "ClaimLost" and "RestoreNode" not in end.path
    assert (end.status, end.error, end.cause) == ("FAILED", "ClaimLost", "another execution's")


@pytest.mark.parametrize("answers", [{"claim_node": ["wait", SUPERSEDED]}, {"check_pods": [SUPERSEDED]}])
def test_an_execution_that_a_more_urgent_one_supersedes_ends_succeeded_and_touches_nothing_more(answers):
    end = walk(**answers)
    assert end.path[-1] == "Superseded" and "RestoreNode" not in end.path
    assert (end.status, end.output) == ("SUCCEEDED", {"outcome": "superseded", "reason": "another execution's"})


def test_claim_node_gets_only_its_answer_from_before_the_wait():
    script = Script(claim_node=["wait", "standby"])
    follow(script, rendered())
    first, waited = script.requests[:2]
    assert first["run"] == {}
    assert waited["run"]["steps"] == 1


def test_a_heartbeat_that_is_refused_leads_back_to_the_pods_and_never_to_a_restore():
    asked: list[tuple[str, str, Any]] = []

    class Refusing:
        def call(self, service: str, action: str, parameters: Any) -> Any:
            asked.append((service, action, parameters))
            raise StateError("AutoScaling.AutoScalingException", "No active Lifecycle Action found")

    end = follow(Script(check_pods=["heartbeat", "wait", "dispose"]), rendered(), Refusing())
    assert end.output["outcome"] == "recycled" and "RestoreNode" not in end.path
    heartbeats = [parameters for _, action, parameters in asked if action == "recordLifecycleActionHeartbeat"]
    assert {action for _, action, _ in asked} == {"publish", "putEvents", "recordLifecycleActionHeartbeat"}
    assert heartbeats[0] == {
        "AutoScalingGroupName": "workers", "LifecycleHookName": "recycle-eks", "InstanceId": "i-0123456789abcdef0",
    }  # fmt: skip


def test_an_unavailable_service_is_retried():
    busy = FunctionFailed("ServiceUnavailable", "busy")
    end = walk(taint_node=[busy, busy, "check_pods"])
    assert end.output["outcome"] == "recycled"


@pytest.mark.parametrize("verdict", ["restored", "untouched", "kept"])
def test_a_restore_goes_twice_round_its_loop_and_ends_under_the_first_errors_name(verdict):
    script = Script(taint_node=[REFUSED], restore_node=["wait", "wait", verdict])
    end = follow(script, rendered())
    assert end.path[-10:-4] == ["RestoreNode", "NodeRestored", "WaitForRestore"] * 2
    assert end.path[-4:] == ["RestoreNode", "NodeRestored", "NotifyFailure", "NodeKept"]
    assert (end.error, end.cause) == ("ServiceRefused", f"restore-node says {verdict}")
    so_far = [request["restore"] for request in script.requests[-3:]]
    assert so_far[0] == {} and [each["verdict"] for each in so_far[1:]] == ["wait", "wait"]


#: the course of an execution -> its answers, and the states from the notification on
NOTIFIED = {
    "start": (
        {"claim_node": [{"verdict": "taint", "notification": NOTIFICATION, "run": {}}]},
        ["NotifyStart", "NodeClaimed", "TaintNode"],
    ),
    "blockage": (
        {
            "check_pods": [{"verdict": "evict", "wait_seconds": 30, "notification": NOTIFICATION, "run": {}}, "dispose"],
            "evict_pods": ["wait"],
        },
        ["NotifyBlocked", "PodsGone", "EvictPods", "WaitForPods"],
    ),
    "end": ({}, ["NotifyEnd", "NodeRecycled"]),
    "failure": ({"taint_node": [REFUSED]}, ["NotifyFailure", "NodeKept"]),
    "standby": ({"taint_node": [REFUSED], "restore_node": ["left_in_standby"]}, ["NotifyLeftInStandby", "LeftInStandby"]),
}


@pytest.mark.parametrize(("answers", "states"), NOTIFIED.values(), ids=NOTIFIED)
@pytest.mark.parametrize("refuse", [False, True])
def test_a_notification_is_published_and_a_topic_that_refuses_changes_nothing(answers, states, refuse):
    topic = Topic(refuse)
    end = follow(Script(**answers), rendered(), topic)
    assert any(end.path[at : at + len(states)] == states for at in range(len(end.path)))
    assert end.path == walk(**answers).path
    notifying = [name for name in end.path if name.startswith("Notify")]
    assert len(topic.published) == (0 if refuse else len(notifying))


def test_a_message_is_json_for_machines_and_lines_of_text_for_operators():
    topic = Topic()
    follow(Script(), rendered(), topic)
    (sent,) = topic.published
    message = json.loads(sent["Message"])
    assert json.loads(message["default"]) == NOTIFICATION
    assert message["email"] == "recycle-eks: a node\nit is so\nLook:\nkubectl get nodes"
    assert (sent["TopicArn"], sent["Subject"], sent["MessageStructure"]) == (TOPIC, NOTIFICATION["subject"], "json")
    of = {name: attribute["StringValue"] for name, attribute in sent["MessageAttributes"].items()}
    assert of == {"severity": "info", "event": "finished", "group": "workers", "cluster": "world"}


CHAT = " ".join((ROOT / "state-machine" / "chat-message.jsonata").read_text().split())
#: One notification of each kind, from docs/messages.md.
EXAMPLES = re.findall(r"```json\n(.*?)\n```", (ROOT / "docs" / "messages.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", [json.loads(example) for example in EXAMPLES], ids=lambda example: example["event"])
def test_in_the_chat_format_each_notification_is_a_custom_notification_of_amazon_q(example):
    """Amazon Q Developer in chat applications, administrator guide, "Custom notifications": each value is a String or a list."""
    topic = Topic()
    end = {"verdict": "recycled", "reason": "it is so", "counts": {}, "names": {}, "notification": example, "run": {}}
    follow(Script(detach_terminate=[end]), rendered(message=CHAT), topic)
    (sent,) = topic.published
    both = json.loads(sent["Message"])
    # An email stays text, and filters still work.
    assert both["email"].startswith(example["subject"]) and sent["MessageAttributes"]["event"]["StringValue"] == example["event"]
    message = json.loads(both["default"])
    assert (message["version"], message["source"], set(message)) == (
        "1.0",
        "custom",
        {"version", "source", "content", "metadata"},
    )
    content, metadata = message["content"], message["metadata"]
    assert content["textType"] == "client-markdown" and content["title"] == example["subject"]
    assert content["description"] == "\n".join([example["reason"], *example["blocks"]])
    assert [step.strip("`") for step in content["nextSteps"]] == example["what_to_do"]
    assert all(step.startswith("`") for step in content["nextSteps"] if not step.endswith((".", ":")))
    assert content["keywords"] == [example["severity"], example["event"], example["group"]]
    # The messages of an execution are in one thread.
    assert metadata["threadId"] == example["execution"] and metadata["relatedResources"] == [example["execution"]]
    assert (metadata["summary"], metadata["eventType"]) == (example["subject"], example["event"])
    assert all(isinstance(value, str) for value in metadata["additionalContext"].values())


@pytest.mark.parametrize("machine", ["recycle-node", "sweep", "rotate-nodes"])
def test_every_notification_of_a_machine_has_the_chosen_format(machine):
    text = json.dumps(rendered(machine, "'chosen'"))
    assert text.count("aws-sdk:sns:publish") == text.count("'default': $string('chosen')") > 0


class Bus:
    """Takes events, or gives one answer to each request."""

    def __init__(self, answer: dict[str, Any] | None = None):
        self.events: list[dict[str, Any]] = []
        self._answer = answer or {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]}

    def call(self, service: str, action: str, parameters: Any) -> Any:
        if (service, action) != ("eventbridge", "putEvents"):
            return Topic().call(service, action, parameters)
        self.events += parameters["Entries"]
        return answered(self._answer)


def test_an_event_is_sent_before_and_after_the_drain_and_after_the_disposal():
    bus = Bus()
    follow(Script(), rendered(), bus)
    assert [each["DetailType"] for each in bus.events] == ["before_drain", "after_drain", "after_disposal"]
    for event in bus.events:
        execution, machine = event["Resources"]
        assert event["Source"] == "recycle-eks" and ":execution:" in execution and ":stateMachine:" in machine
        assert json.loads(event["Detail"]) == {
            "cluster": "world",
            "group": "workers",
            "node": "a",
            "instance_id": INPUT["instance_id"],
            "execution": execution,
        }


def test_an_event_that_eventbridge_does_not_take_is_sent_once_more_and_then_left():
    refused = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException", "ErrorMessage": "busy"}]}
    bus = Bus(refused)
    end = follow(Script(), rendered(), bus)
    assert end.path == walk().path and end.output["outcome"] == "recycled"
    assert len(bus.events) == 3 * 2


def test_a_lost_node_has_no_event_after_its_drain():
    bus = Bus()
    follow(Script(check_pods=["lost"]), rendered(), bus)
    assert [each["DetailType"] for each in bus.events] == ["before_drain", "after_disposal"]


def test_a_node_that_stays_in_standby_gives_the_execution_its_name():
    end = walk(taint_node=[REFUSED], restore_node=["left_in_standby"])
    assert end.path[-1] == "LeftInStandby"
    assert (end.status, end.error, end.cause) == ("FAILED", "LeftInStandby", "restore-node says left_in_standby")


def test_a_restore_that_fails_reports_both_errors():
    failed = {
        "taint_node": [FunctionFailed("ServiceRefused", "first")],
        "restore_node": [FunctionFailed("InternalError", "second")],
    }
    end = walk(**failed)
    assert end.path[-1] == "NotRestored" and end.error == "ServiceRefused"
    assert "first" in end.cause and "second" in end.cause
    assert end.cause.endswith("The next sweep tries to restore it. Run recycle-eks status to see its state.")


def test_two_errors_that_are_longer_than_a_cause_may_be_are_both_there():
    failed = {
        "taint_node": [FunctionFailed("ServiceRefused", "first" * 6_000)],
        "restore_node": [FunctionFailed("InternalError", "second" * 5_000)],
    }
    end = walk(**failed)
    assert (end.path[-1], end.error) == ("NotRestored", "ServiceRefused"), end.cause
    assert "first" in end.cause and "RestoreNode failed with InternalError" in end.cause and "second" in end.cause


def test_these_walks_enter_every_state():
    entered: set[str] = set()
    for _, answers, _ in LOOPS:
        entered |= set(walk(**answers).path)
    for verdict in ("duplicate", "already_gone", "released", "planned", "dance"):
        entered |= set(walk(claim_node=[verdict]).path)
    for name in ("ClaimLost", "Superseded"):
        entered |= set(walk(taint_node=[FunctionFailed(name)]).path)
    for restore in ([FunctionFailed("Y")], ["wait", "restored"], ["left_in_standby"]):
        entered |= set(walk(taint_node=[FunctionFailed("X")], restore_node=restore).path)
    machine = rendered()
    branch = machine["States"]["Recycle"]["Branches"][0]
    assert entered == {*machine["States"], *branch["States"]}
