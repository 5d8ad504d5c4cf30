"""The probe of AWS, run against the local world: it reports exactly what the world is set to."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
from fnmatch import fnmatchcase

import pytest
from moto.fis.models import FISBackend

from prepare import ROOT
from probe import plan
from probe.__main__ import end_by_signals, main
from probe.account import Account
from probe.cleanup import CleanUp
from probe.group import Group
from probe.plan import announcement
from probe.question import QUESTIONS
from probe.rebalance import Rebalance
from probe.state import State
from world.aws.account import Aws
from world.aws.autoscaling.api import install
from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.model import Unknowns
from world.aws.ec2 import IMAGES, Ec2
from world.aws.identity import REGION, ROOT_ACCESS_KEY
from world.aws.moto_internals import LOCK, backend_of
from world.base.beyond_models import refusal_of
from world.base.clock import Clock
from world.base.faults import Plan

NEVER = float("inf")
#: The trust policy of a role that the probe has not created.
TRUST = json.dumps(
    {"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
)
PAGE = (ROOT / "docs" / "probe.md").read_text()


class Killed(Exception):
    """The machine of the probe dies."""


class Region:
    """An empty account in the local world, without a cluster. Its events reach queues, as EventBridge sends them."""

    def __init__(self):
        self.clock = Clock()
        self.aws = Aws(self.clock, Plan(self.clock.elapsed))
        self.ec2 = Ec2(self.aws, self.clock, self.emit)
        self.autoscaling = AutoScaling(self.aws, self.ec2, self.clock, self.emit)
        install(self.autoscaling)
        self.aws.start()

    def emit(self, source, detail_type, detail, resources):
        event = {"version": "0", "source": source, "detail-type": detail_type, "resources": resources, "detail": detail}
        self.clock.after(1, lambda: self._send(event))

    def _send(self, event):
        with LOCK:
            for rule in list(backend_of("events").event_buses["default"].rules.values()):
                rule.send_to_targets(event, transform_input=False)

    # The clock of the probe

    def now(self):
        return self.clock.now()

    def sleep(self, seconds):
        self.clock.run(limit=self.clock.elapsed() + seconds)
        if self.clock.elapsed() >= self.interrupts_after:
            self.interrupts_after = NEVER
            raise KeyboardInterrupt

    def recommend_rebalance(self, instance):
        self.autoscaling.recommend_rebalance(instance)

    def reset(self):
        self.interrupts_after = NEVER
        self.aws.faults.clear()
        self.clock.reset()
        self.aws.reset()


@pytest.fixture(scope="module")
def one_region():
    region = Region()
    yield region
    region.aws.stop()


@pytest.fixture
def region(one_region, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ROOT_ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "world")
    one_region.reset()
    return one_region


@pytest.fixture
def probe(region, tmp_path, monkeypatch):
    """Runs the program in the region. Returns its exit code."""

    def run(*arguments, says="yes"):
        account = Account(REGION, region, region.aws.endpoint)
        account.recommend_rebalance = region.recommend_rebalance
        return main(["--folder", str(tmp_path), *arguments], account, ask=lambda text: says)

    def dies(cleanup):
        raise Killed

    def is_killed(*arguments):
        """It ends in the middle of its questions, and removes nothing."""
        region.interrupts_after = 90
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(CleanUp, "everything", dies)
            run(*arguments)
        assert not run.is_clean()

    run.is_killed = is_killed
    run.findings = lambda: json.loads((tmp_path / "findings.json").read_text())["findings"]
    run.is_clean = lambda: CleanUp(Account(REGION, region, region.aws.endpoint), None).left() == []
    return run


def created(region):
    """The calls that changed something. The quota is asked with a name that does not say that it is a read."""
    return [call.action for call in region.aws.calls if call.write and not call.action.startswith("servicequotas")]


def not_on_the_page(calls):
    """The actions of the calls that the page does not list. A batch needs the permission for one."""
    policy = json.loads(PAGE.split("```json")[1].split("```")[0])
    allowed = [action for statement in policy["Statement"] for action in statement["Action"]]
    made = {call.action.removesuffix("Batch") for call in calls}
    return {action for action in made if not any(fnmatchcase(action, each) for each in allowed)}


def values(findings, key="question"):
    return {name: each["problem"] or each["value"] for name, each in findings.items()}


#: Two questions that are short.
SHORT = ("terminate-at-minimum", "tags-of-an-unknown-instance")
ONLY_SHORT = [word for name in SHORT for word in ("--only", name)]
SWITCHES = [name for name in vars(Unknowns) if not name.startswith("_")]


def test_every_question_finds_what_is_expected_in_the_world_as_it_is(probe, region, tmp_path, capsys):
    assert probe("--rebalance") == 0
    assert values(probe.findings()) == {name: each.expected for name, each in QUESTIONS.items()}
    assert region.clock.elapsed() < 40 * 60
    assert probe.is_clean()
    printed = capsys.readouterr().out
    assert "Cost:" in printed and "OTHERWISE" not in printed
    assert all(finding["activities"] for finding in probe.findings().values())
    assert (tmp_path / "findings.md").read_text() in PAGE
    assert not_on_the_page(region.aws.calls) == set()
    terminations = [call for call in region.aws.calls if call.action == "ec2:TerminateInstances"]
    assert all(len(call.parameters["InstanceIds"]) == 1 for call in terminations)


def test_the_page_has_the_announcement(region):
    asked = [each for each in QUESTIONS.values() if each.needs is None]
    assert announcement(Account(REGION), "123456789012", asked, "t4g.nano", 16) in PAGE


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_is_reported_exactly_as_it_is_set(probe, region, switch):
    unknowns = region.autoscaling.unknowns
    setattr(unknowns, switch, not getattr(unknowns, switch))
    switched = [word for each in QUESTIONS.values() if each.switch for word in ("--only", each.name)]
    # All at once, so that less time has to be played.
    assert probe("--rebalance", "--at-once", "100", *switched) == 0
    found = {each["switch"]: each["value"] for each in probe.findings().values()}
    assert found == vars(unknowns)


def test_every_switch_has_a_question():
    assert {each.switch for each in QUESTIONS.values()} - {None} == set(SWITCHES)


def test_nothing_is_created_without_consent(probe, region):
    assert probe(says="no") == 2
    assert created(region) == []


def test_an_interrupted_run_removes_everything_and_goes_on_where_it_was(probe, region, capsys):
    region.interrupts_after = 90
    assert probe("--at-once", "1", *ONLY_SHORT) == 130
    assert probe.is_clean()
    (answered,) = probe.findings()
    assert probe("--at-once", "1", *ONLY_SHORT) == 0
    assert set(probe.findings()) == set(SHORT)
    assert capsys.readouterr().out.count(f"{answered}: begins") == 1


def test_what_a_killed_run_has_left_is_removed_by_the_next_one(probe, region):
    probe.is_killed(*ONLY_SHORT)
    assert probe(*ONLY_SHORT) == 0
    assert probe.is_clean() and set(probe.findings()) == set(SHORT)


def test_clean_up_removes_everything_also_without_the_state(probe, region, tmp_path):
    probe.is_killed(*ONLY_SHORT)
    (tmp_path / "state.json").unlink()
    assert probe("--clean-up", "--yes", says="no") == 0
    assert probe.is_clean() and not_on_the_page(region.aws.calls) == set()


def test_clean_up_names_the_runs_and_asks_and_takes_only_things_with_name_and_tag(probe, region, tmp_path, capsys):
    clients = {each: region.aws.client(each) for each in ("ec2", "sqs", "events", "iam")}
    tagged = [{"ResourceType": "instance", "Tags": [{"Key": "recycle-eks-probe", "Value": "mine"}]}]
    clients["ec2"].run_instances(ImageId=IMAGES[0], MinCount=1, MaxCount=1, TagSpecifications=tagged)
    url = clients["sqs"].create_queue(QueueName="recycle-eks-probe-mine")["QueueUrl"]
    clients["events"].put_rule(Name="recycle-eks-probe-mine", EventPattern='{"source": ["mine"]}')
    clients["iam"].create_role(RoleName="recycle-eks-probe-mine", AssumeRolePolicyDocument=TRUST)

    probe.is_killed(*ONLY_SHORT)
    run = json.loads((tmp_path / "state.json").read_text())["run"]
    assert probe("--clean-up", says="no") == 2
    assert f"run {run}: group recycle-eks-probe-{run}-" in capsys.readouterr().out
    assert not probe.is_clean()
    assert probe("--clean-up") == 0
    assert "mine" not in capsys.readouterr().out

    (reservation,) = clients["ec2"].describe_instances(Filters=[{"Name": "tag:recycle-eks-probe", "Values": ["mine"]}])[
        "Reservations"
    ]
    assert reservation["Instances"][0]["State"]["Name"] == "running"
    # The world keeps these for other tests, and they are all there.
    clients["sqs"].delete_queue(QueueUrl=url)
    clients["events"].delete_rule(Name="recycle-eks-probe-mine")
    clients["iam"].delete_role(RoleName="recycle-eks-probe-mine")


def test_only_experiments_and_clean_up_need_the_list_of_roles(probe, region, capsys):
    region.aws.faults.refuse("iam:ListRoles", **refusal_of("iam:ListRoles", "refused"), times=None)
    assert probe("--only", "terminate-at-minimum") == 0
    region.aws.calls.clear()
    assert probe("--rebalance", "--only", "capacity-rebalancing") == 2
    assert created(region) == []
    probe.is_killed("--new", *ONLY_SHORT)
    assert probe("--clean-up") == 1
    assert probe.is_clean()
    assert "the list of each role: An error occurred (AccessDenied)" in capsys.readouterr().out


def test_nothing_is_created_that_the_clean_up_could_not_find(probe, region, capsys):
    region.aws.faults.refuse("sqs:ListQueues", **refusal_of("sqs:ListQueues", "refused"), times=None)
    assert probe(*ONLY_SHORT) == 2
    assert created(region) == []
    assert "could not remove what it creates" in capsys.readouterr().err


def test_a_refused_removal_stops_no_other_one_and_is_named(probe, region, capsys):
    region.aws.faults.refuse("sqs:DeleteQueue", **refusal_of("sqs:DeleteQueue", "refused"), times=None)
    update = "autoscaling:UpdateAutoScalingGroup"
    region.aws.faults.refuse(update, **refusal_of(update, "refused"), times=None)
    assert probe(*ONLY_SHORT) == 1
    (queue,) = CleanUp(Account(REGION, region, region.aws.endpoint), None).left()
    assert f"still there: {queue}: An error occurred (AccessDenied)" in capsys.readouterr().out
    region.aws.faults.clear()
    assert probe("--clean-up") == 0


def test_a_new_run_does_not_forget_what_an_earlier_one_has_left(probe, region, capsys):
    probe.is_killed(*ONLY_SHORT)
    assert probe("--new", *ONLY_SHORT) == 2
    assert "--clean-up" in capsys.readouterr().err
    assert probe("--clean-up") == 0
    assert probe("--new", *ONLY_SHORT) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_ctrl_c_does(monkeypatch, number):
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        end_by_signals()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        print("the terminal may be gone")
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def replace_play(monkeypatch, play):
    monkeypatch.setitem(QUESTIONS, SHORT[0], dataclasses.replace(QUESTIONS[SHORT[0]], play=play))


def detaches(group):
    (member,) = yield from group.until_in_service(1)
    group.call("detach_instances", InstanceIds=[member], ShouldDecrementDesiredCapacity=False)
    # The deletion of its group would end a member that is still being detached.
    yield from group.until_gone(member)
    return True


def test_a_question_that_fails_ends_alone(probe, monkeypatch):
    def fails(group):
        yield from group.until_in_service(1)
        raise ZeroDivisionError("a defect")

    replace_play(monkeypatch, fails)
    assert probe(*ONLY_SHORT) == 1
    assert values(probe.findings()) == {SHORT[0]: "ZeroDivisionError('a defect')", SHORT[1]: True}


@pytest.mark.parametrize("operation", ["CreateAutoScalingGroup", "PutLifecycleHook"])
def test_a_question_whose_group_cannot_be_created_ends_alone_and_leaves_no_group(probe, region, operation):
    """The first question has a hook, and the group is there when AWS refuses the hook."""
    questions = ("terminate-a-retained-member", SHORT[1])
    refused = {"where": lambda call: "terminate-a-retained-member" in call["AutoScalingGroupName"], "times": None}
    region.aws.faults.refuse(f"autoscaling:{operation}", **refusal_of(f"autoscaling:{operation}", "refused"), **refused)
    assert probe("--only", questions[0], "--only", questions[1]) == 1
    found = probe.findings()
    assert "its group could not be created: An error occurred (AccessDenied)" in found[questions[0]]["problem"]
    assert values(found)[questions[1]] is True
    assert probe.is_clean()
    region.aws.faults.clear()
    assert probe("--only", questions[0]) == 0


@pytest.mark.parametrize(("until", "is_answered"), [("3m", True), ("20m", False)])
def test_the_questions_go_on_after_a_short_outage_and_end_after_a_long_one(probe, region, until, is_answered):
    """Auto Scaling describes no groups by name. The list by tag, by which they are removed, has no names.
    The client would repeat the call after an error that may pass."""
    refused = refusal_of("autoscaling:DescribeAutoScalingGroups", "refused")
    named = {"where": lambda call: "AutoScalingGroupNames" in call, "since": 30, "until": until}
    region.aws.faults.refuse("autoscaling:DescribeAutoScalingGroups", **refused, **named)
    assert probe(*ONLY_SHORT) == (0 if is_answered else 1)
    for finding in probe.findings().values():
        assert (finding["value"] is True) if is_answered else "was not described for 5 minutes" in finding["problem"]
    assert probe.is_clean()


def test_a_group_that_is_described_without_its_members_ends_its_question_alone(probe, monkeypatch):
    see, broken = Group.see, []

    def sees(group, described):
        broken[:] = broken or [group.name]
        see(group, {} if group.name in broken else described)

    monkeypatch.setattr(Group, "see", sees)
    assert probe(*ONLY_SHORT) == 1
    assert sorted(map(str, values(probe.findings()).values())) == ["KeyError('DesiredCapacity')", "True"]


def test_an_instance_that_did_not_end_with_its_question_is_terminated_again(probe, region, monkeypatch):
    replace_play(monkeypatch, detaches)
    region.aws.faults.refuse("ec2:TerminateInstances", "OperationNotPermitted")
    assert probe("--at-once", "1", *ONLY_SHORT) == 0
    assert values(probe.findings()) == {SHORT[0]: True, SHORT[1]: True}
    assert region.clock.elapsed() < 15 * 60 and region.aws.faults.not_struck() == []


def test_a_question_without_room_is_given_up(probe, region, monkeypatch):
    replace_play(monkeypatch, detaches)
    region.aws.faults.refuse("ec2:TerminateInstances", "OperationNotPermitted", times=None)
    assert probe("--at-once", "1", *ONLY_SHORT) == 1
    problem = "no room: 1 instances of other questions did not end within 20 minutes"
    assert values(probe.findings()) == {SHORT[0]: True, SHORT[1]: problem}
    region.aws.faults.clear()
    assert probe("--clean-up") == 0


def test_a_question_beyond_the_quota_is_named_and_left_out(probe, monkeypatch, capsys):
    monkeypatch.setattr(plan, "limit_by_quota", lambda account, wanted, questions: (wanted, questions[:1]))
    assert probe(*ONLY_SHORT) == 1
    assert list(probe.findings()) == [SHORT[1]]
    assert f"too small for these questions: {SHORT[0]}." in capsys.readouterr().out


def test_a_question_that_cannot_be_played_is_named_and_asked_again(probe, region, capsys):
    region.autoscaling.timings.launch = 10_000
    assert probe("--only", "terminate-at-minimum") == 1
    assert "not within 480 s: 1 members in service" in probe.findings()["terminate-at-minimum"]["problem"]
    region.autoscaling.timings.launch = 60
    assert probe("--only", "terminate-at-minimum") == 0
    assert values(probe.findings()) == {"terminate-at-minimum": True}


def recommend(region, run, tmp_path):
    account = Account(REGION, region, region.aws.endpoint)
    state = State(tmp_path / f"{run}.json", run, REGION, account.identity(), "now")
    Rebalance(account, state).recommend("i-0123456789abcdef0")
    return account


def test_a_recommendation_is_sent_by_an_experiment_that_is_removed_with_its_role(region, tmp_path, monkeypatch):
    monkeypatch.setitem(FISBackend.PAGINATION_MODEL["list_experiment_templates"], "limit_default", 1)
    recommend(region, "other", tmp_path)
    account = recommend(region, "test", tmp_path)
    clean_up = CleanUp(account, ["test"], experiments=True)
    experiment, template, role = clean_up.left()
    assert experiment.startswith("experiment ") and template.startswith("experiment template ")
    assert role == "role recycle-eks-probe-test-fis"
    assert clean_up.everything() == []
    fis = account.client("fis")
    assert {each["tags"]["recycle-eks-probe"]: each["state"]["status"] for each in fis.list_experiments()["experiments"]} == {
        "other": "pending",
        "test": "stopping",
    }
    assert len(CleanUp(account, None, experiments=True).left()) == 3
    assert CleanUp(account, None, experiments=True).everything() == []
    tokens = [call.parameters["clientToken"] for call in region.aws.calls if call.action == "fis:CreateExperimentTemplate"]
    assert all(token.endswith("-i-0123456789abcdef0") for token in tokens)
    assert not_on_the_page(region.aws.calls) == set()


def test_the_role_of_an_experiment_is_for_the_instances_of_the_run(region, tmp_path):
    account = recommend(region, "role", tmp_path)
    iam, name = account.client("iam"), "recycle-eks-probe-role-fis"
    (trust,) = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": account.identity()}}
    policy = iam.get_role_policy(RoleName=name, PolicyName="interrupt")["PolicyDocument"]
    (condition,) = (each["Condition"] for each in policy["Statement"] if each["Action"] == "ec2:SendSpotInstanceInterruptions")
    assert condition == {"StringEquals": {"aws:ResourceTag/recycle-eks-probe": "role"}}
    assert CleanUp(account, ["role"], experiments=True).everything() == []
