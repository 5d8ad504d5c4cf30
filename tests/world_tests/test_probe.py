"""The probe of AWS, run against the local world: it reports exactly what the world is set to."""

from __future__ import annotations

import json

import pytest

from prepare import ROOT
from probe.__main__ import main
from probe.account import Account
from probe.cleanup import CleanUp
from probe.plan import announcement
from probe.question import QUESTIONS
from probe.rebalance import Rebalance
from probe.state import State
from world.aws.account import Aws
from world.aws.autoscaling.api import install
from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.model import Unknowns
from world.aws.ec2 import Ec2
from world.aws.identity import REGION, ROOT_ACCESS_KEY
from world.aws.moto_internals import LOCK, backend_of
from world.base.clock import Clock

NEVER = float("inf")
PAGE = (ROOT / "docs" / "probe.md").read_text()


class Killed(Exception):
    """The machine of the probe dies."""


class Region:
    """An empty account in the local world, without a cluster. Its events reach queues, as EventBridge sends them."""

    def __init__(self):
        self.clock = Clock()
        self.aws = Aws(self.clock)
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
        self.emit("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": instance}, [])

    def reset(self):
        self.interrupts_after = NEVER
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


def test_the_page_has_the_announcement(region):
    asked = [each for each in QUESTIONS.values() if each.needs is None]
    assert announcement(Account(REGION), "123456789012", asked, "t4g.nano", 16) in PAGE


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_is_reported_exactly_as_it_is_set(probe, region, switch):
    unknowns = region.autoscaling.unknowns
    setattr(unknowns, switch, not getattr(unknowns, switch))
    switched = [word for each in QUESTIONS.values() if each.switch for word in ("--only", each.name)]
    # All at once, so that less time has to be played.
    assert probe("--at-once", "100", *switched) == 0
    found = {each["switch"]: each["value"] for each in probe.findings().values()}
    assert found == vars(unknowns)


def test_every_switch_has_a_question():
    assert {each.switch for each in QUESTIONS.values()} - {None} == set(SWITCHES)


def test_nothing_is_created_without_consent(probe, region):
    assert probe(says="no") == 2
    created = [call.action for call in region.aws.calls if call.write and not call.action.startswith("servicequotas")]
    assert created == []


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
    assert probe("--clean-up") == 0
    assert probe.is_clean()


def test_a_question_that_cannot_be_played_is_named_and_asked_again(probe, region, capsys):
    region.autoscaling.timings.launch = 10_000
    assert probe("--only", "terminate-at-minimum") == 1
    assert "not within 480 s: 1 members in service" in probe.findings()["terminate-at-minimum"]["problem"]
    region.autoscaling.timings.launch = 60
    assert probe("--only", "terminate-at-minimum") == 0
    assert values(probe.findings()) == {"terminate-at-minimum": True}


def test_a_recommendation_is_sent_by_an_experiment_that_is_removed_with_its_role(region, tmp_path):
    account = Account(REGION, region, region.aws.endpoint)
    state = State(tmp_path / "state.json", "test", REGION, account.identity(), "now")
    Rebalance(account, state).recommend("i-0123456789abcdef0")
    (experiment,) = account.client("fis").list_experiments()["experiments"]
    assert CleanUp(account, "test").left() == ["role recycle-eks-probe-test-fis"]
    assert CleanUp(account, "test").everything() == []
    assert account.client("fis").list_experiment_templates()["experimentTemplates"] == []
