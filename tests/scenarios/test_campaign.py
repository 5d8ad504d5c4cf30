"""A slice of the fault campaign (`make campaign`), and deliberate bugs, which its judge has to see."""

import re

import pytest

from campaign import __main__, judge
from campaign.mutations import MUTATIONS
from campaign.runs import Run, all_runs, explored, faultless, undisturbed
from campaign.scenes import SCENES
from prepare import ROOT

#: Every `EVERY`th run of a scene, and at least `LEAST`: about 35 in total. `make campaign` makes all of them.
EVERY, LEAST = 90, 2


@pytest.fixture(scope="module")
def runs(deployed_world):
    """All runs of the campaign by name."""
    return {run.name: run for run in all_runs(explored(deployed_world))}


@pytest.mark.parametrize("scene", [scene.name for scene in SCENES])
def test_one_fault_leaves_nodes_and_groups_whole(world, runs, scene):
    # The first has no fault: that run found the places of faults, and was judged.
    played = [run for run in runs.values() if run.scene.name == scene][1:]
    violations = {run.name: run.make(world)[1] for run in played[:: min(EVERY, len(played) // LEAST)]}
    assert len(violations) >= LEAST
    assert {name: found for name, found in violations.items() if found} == {}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_deliberate_bug_is_seen(world, mutation):
    (run,) = [run for run in faultless() if run.name == mutation.run]
    with mutation.inside(world):
        _, found = run.make(world)
    assert any(mutation.sees in sentence for sentence in found), found


def test_a_fault_that_strikes_nothing_is_seen(world):
    run = Run(SCENES[0], "no function calls that", lambda stage: stage.world.faults.refuse("ec2:RunInstances", code="Throttling"))
    assert run.make(world)[1] == ["the fault has not struck: ec2:RunInstances"]


def test_an_issued_secret_of_any_form_is_seen(world, monkeypatch):
    monkeypatch.setattr(judge, "issued_secrets", lambda: ["recycle-eks/draining"])
    _, found = undisturbed(SCENES[0]).make(world)
    assert any(sentence.endswith("has a secret that was issued") for sentence in found), found


def test_the_runs_that_are_named_for_readers_are_there(runs):
    text = (ROOT / "docs" / "faults.md").read_text() + __main__.__doc__
    names = re.findall("--only '([^']+)'", text)
    assert len(names) >= 2
    assert [name for name in names if not any(run.startswith(name) for run in runs)] == []
