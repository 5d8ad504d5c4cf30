"""The fault plan, without any server."""

from dataclasses import dataclass

import pytest

from world.faults import Mutation, Plan, carry_out, mutations


class Process:
    """A caller that notes what happened to it."""

    function = "recycle-eks-claim-node"

    def __init__(self):
        self.story = []

    def kill(self):
        self.story.append("killed")

    def time_out(self):
        self.story.append("timed out")

    def wait(self, seconds):
        self.story.append(f"waited {seconds:g} s")


def make_call(plan, process, action="ec2:CreateTags"):
    def perform():
        process.story.append("took effect")
        return "answer"

    fault = plan.consult(action, process.function, {"Resources": ["i-1"]})
    return carry_out(fault, process, perform, lambda refused: f"{refused.status} {refused.code}")


@pytest.mark.parametrize(
    "plant, story, answer",
    [
        (lambda plan: plan.refuse("ec2:CreateTags", code="Throttling", status=503), [], "503 Throttling"),
        (
            lambda plan: plan.refuse("ec2:CreateTags", code="InternalError", after=True),
            ["took effect"],
            "400 InternalError",
        ),
        (lambda plan: plan.kill("before", "ec2:CreateTags"), ["killed"], None),
        (lambda plan: plan.kill("after", "ec2:CreateTags"), ["took effect", "killed"], None),
        (lambda plan: plan.lose_answer("ec2:CreateTags"), ["took effect"], None),
        (lambda plan: plan.hang("ec2:CreateTags"), ["took effect", "timed out"], None),
        (lambda plan: plan.delay("ec2:CreateTags", 30), ["took effect", "waited 30 s"], "answer"),
        (lambda plan: plan.kill("before", "ec2:DeleteTags"), ["took effect"], "answer"),
        (lambda plan: plan.kill("before", "ec2:*"), ["killed"], None),
        (lambda plan: plan.kill("before", "*", function="claim-node"), ["killed"], None),
        (lambda plan: plan.kill("before", "*", function="taint-node"), ["took effect"], "answer"),
        (
            lambda plan: plan.kill("before", "*", where=lambda call: "i-2" in call["Resources"]),
            ["took effect"],
            "answer",
        ),
    ],
)
def test_a_fault_does_to_a_call_what_its_name_says(plant, story, answer):
    plan, process = Plan(), Process()
    plant(plan)
    assert make_call(plan, process) == answer
    assert process.story == story


def test_a_fault_strikes_the_nth_matching_call_and_as_many_as_asked_for():
    plan, process = Plan(), Process()
    plan.refuse("ec2:CreateTags", code="Throttling", nth=2, times=2)
    answers = [make_call(plan, process) for _ in range(5)]
    assert answers == ["answer", "400 Throttling", "400 Throttling", "answer", "answer"]


def test_a_fault_without_an_end_strikes_for_ever():
    plan, process = Plan(), Process()
    plan.refuse("ec2:*", code="UnauthorizedOperation", status=403, times=None)
    assert {make_call(plan, process) for _ in range(5)} == {"403 UnauthorizedOperation"}


def test_a_call_that_no_function_makes_is_neither_killed_nor_left_hanging():
    plan = Plan()
    plan.kill("before", "*")
    plan.hang("*")
    assert plan.consult("ec2:CreateTags", function=None) is None


def test_a_fault_that_no_call_met_is_reported():
    plan, process = Plan(), Process()
    met = plan.refuse("ec2:CreateTags", code="Throttling")
    missed = plan.kill("after", "autoscaling:EnterStandby")
    make_call(plan, process)
    assert met.struck == 1
    assert plan.not_struck() == [missed]


def test_a_misspelt_filter_is_refused():
    with pytest.raises(AssertionError, match="nht"):
        Plan().kill("before", "*", nht=2)


@dataclass
class Recorded:
    action: str
    function: str | None
    write: bool


def test_the_mutating_calls_of_a_run_are_numbered_per_function_and_action():
    calls = [
        Recorded("ec2:DescribeInstances", "claim-node", False),
        Recorded("ec2:CreateTags", "claim-node", True),
        Recorded("kubernetes:PATCH nodes", "claim-node", True),
        Recorded("ec2:CreateTags", "standby-node", True),
        Recorded("ec2:CreateTags", "claim-node", True),
        Recorded("autoscaling:UpdateAutoScalingGroup", None, True),
    ]
    assert mutations(calls) == [
        Mutation("ec2:CreateTags", "claim-node", 1),
        Mutation("kubernetes:PATCH nodes", "claim-node", 1),
        Mutation("ec2:CreateTags", "standby-node", 1),
        Mutation("ec2:CreateTags", "claim-node", 2),
    ]


def test_a_mutation_becomes_a_kill_of_exactly_that_call():
    plan, process = Plan(), Process()
    Mutation("ec2:CreateTags", "claim-node", 2).kill(plan, "before")
    assert make_call(plan, process) == "answer"
    assert make_call(plan, process) is None
    assert process.story == ["took effect", "killed"]
