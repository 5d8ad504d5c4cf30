"""The fault plan, without any server."""

import pytest

from world.base.faults import Plan, carry_out, kills, sample


class Process:
    """A caller that records its events."""

    function = "recycle-eks-claim-node"

    def __init__(self):
        self.events = []

    def kill(self):
        self.events.append("killed")

    def time_out(self):
        self.events.append("timed out")

    def wait(self, seconds):
        self.events.append(f"waited {seconds:g} s")


def make_call(plan, process, action="ec2:CreateTags"):
    def perform():
        process.events.append("took effect")
        return "answer"

    fault = plan.consult(action, process.function, {"Resources": ["i-1"]})
    return carry_out(fault, process, perform, lambda refused: f"{refused.status} {refused.code}")


@pytest.mark.parametrize(
    "plant, events, answer",
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
def test_a_fault_does_to_a_call_what_its_name_says(plant, events, answer):
    plan, process = Plan(), Process()
    plant(plan)
    assert make_call(plan, process) == answer
    assert process.events == events


def test_a_refusal_has_the_headers_that_the_scenario_names():
    plan = Plan()
    plan.refuse("kubernetes:GET pods", code="TooManyRequests", status=429, headers={"Retry-After": "5"})
    fault = plan.consult("kubernetes:GET pods", Process.function, {})
    answer = carry_out(fault, Process(), lambda: "answer", lambda refused: dict(refused.headers))
    assert answer == {"Retry-After": "5"}


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


def test_a_fault_with_times_strikes_every_call_between_them_and_no_other():
    now = 0.0
    plan, process = Plan(lambda: now), Process()
    plan.refuse("ec2:*", code="Throttling", since="90s", until="2m")
    answers = {}
    for now in (0.0, 89.0, 90.0, 100.0, 119.0, 120.0, 500.0):
        answers[now] = make_call(plan, process)
    assert answers == {moment: "400 Throttling" if 90 <= moment < 120 else "answer" for moment in answers}


def test_a_fault_with_a_beginning_counts_from_there_and_strikes_as_often_as_it_says():
    now = 0.0
    plan, process = Plan(lambda: now), Process()
    plan.refuse("ec2:*", code="Throttling", since=60, nth=2, times=2)
    answers = []
    for now in (0.0, 60.0, 61.0, 62.0, 63.0):  # noqa: B007 (the plan reads it)
        answers.append(make_call(plan, process))
    assert answers == ["answer", "answer", "400 Throttling", "400 Throttling", "answer"]


def test_a_sample_is_spread_over_all_points():
    assert sample(range(20), 4) == [0, 5, 10, 15]
    assert sample(range(20), 4, first=1) == [1, 6, 11, 16]
    assert sample(range(11), 4) == [0, 2, 5, 8]
    assert sample(range(11), 4, first=3) == [3, 5, 8, 0]
    assert sorted(sample(range(3), 5, first=2)) == [0, 1, 2]
    assert sample([], 5) == []
    assert sorted({*sample(range(8), 4), *sample(range(8), 4, first=1)}) == list(range(8))


def test_kills_strike_the_named_calls_or_every_call_before_and_after(monkeypatch):
    ten = [("function", f"action-{number}", 1) for number in range(10)]
    at = [("before", "action-3"), ("after", "action-8")]
    assert kills(ten, ten, at=at) == [(("before", *ten[3]), ("after", *ten[8]))]
    assert kills(ten[::2], ten[1::2], at=at) == [(("before", *ten[3]), ("after", *ten[8]))]
    with pytest.raises(StopIteration):
        kills(ten, at=[("before", "no such action")])
    monkeypatch.setenv("WHOLE", "1")
    whole = [kill for kill, _ in kills(ten, ten[:1], at=at)]
    assert sorted(whole) == sorted((moment, *call) for call in ten for moment in ("before", "after"))
