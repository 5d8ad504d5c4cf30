"""The probe of AWS, run against the local world: it reports exactly what the world is set to."""

from __future__ import annotations

import pytest

import probe.questions  # noqa: F401
from probe.account import Account
from probe.cleanup import CleanUp
from probe.question import QUESTIONS
from probe.resources import Resources
from probe.stage import Stage
from probe.state import State
from world.aws.account import Aws
from world.aws.autoscaling.api import install
from world.aws.autoscaling.groups import AutoScaling
from world.aws.autoscaling.model import Unknowns
from world.aws.ec2 import Ec2
from world.aws.identity import REGION, ROOT_ACCESS_KEY
from world.aws.moto_internals import LOCK, backend_of
from world.base.clock import Clock


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
                rule.send_to_targets(event)

    # The clock of the probe

    def now(self):
        return self.clock.now()

    def sleep(self, seconds):
        self.clock.run(limit=self.clock.elapsed() + seconds)

    def reset(self):
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


def run(region, tmp_path, questions):
    account = Account(REGION, region, region.aws.endpoint)
    state = State(tmp_path / "state.json", "test", REGION, account.identity(), "now")
    resources = Resources(account, state, "t4g.nano")
    Stage(account, state, resources, 16, print).run(questions)
    assert CleanUp(account, "test", print).everything() == []
    return state


SWITCHES = [name for name in vars(Unknowns) if not name.startswith("_")]


def test_every_question_finds_what_is_expected_in_the_world_as_it_is(region, tmp_path):
    state = run(region, tmp_path, list(QUESTIONS.values()))
    assert {name: each["problem"] or each["value"] for name, each in state.findings.items()} == {
        name: each.expected for name, each in QUESTIONS.items()
    }
    assert region.clock.elapsed() < 40 * 60


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_is_reported_exactly_as_it_is_set(region, tmp_path, switch):
    unknowns = region.autoscaling.unknowns
    setattr(unknowns, switch, not getattr(unknowns, switch))
    state = run(region, tmp_path, [each for each in QUESTIONS.values() if each.switch])
    values = {each["switch"]: each["problem"] or each["value"] for each in state.findings.values()}
    assert values == vars(unknowns)
