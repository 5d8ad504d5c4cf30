"""A slice of the fault campaign (`make campaign`), and deliberate bugs, which its judge has to see."""

import re

import pytest

from campaign import __main__, judge
from campaign.__main__ import kind_of
from campaign.judge import violations
from campaign.mutations import MUTATIONS, WRONG_REPORTS
from campaign.people import PEOPLE, SECOND
from campaign.runs import Boundary, Run, all_runs, explore, faultless
from campaign.scenes import SCENES, Stage, ends_of
from prepare import ROOT
from world.base.faults import INVOKE

OPERATOR = "an operator"

#: The faults of each scene, each in one of the runs with that fault. `make campaign` makes all of them.
SLICE = {
    "before": ("killed before",),
    "before-stop": ("timed out", "pair"),
    "before-detach": ("401",),
    "neighbour": ("cut",),
    "after": ("409",),
    "surge": ("killed after",),
    "surge-managed": ("answer lost",),
    "hook": ("answer lost", "lost event"),
    "hook-retain": ("refused",),
    "spot": ("throttled",),
    "put-back": (OPERATOR,),
    "evicted": ("second execution",),
    "lost": ("throttled for minutes",),
    "sweep": ("seed",),
    "rotation": ("5xx", "throttled for minutes"),
}


def fault_of(run):
    kind = kind_of(run.name)
    return OPERATOR if kind in PEOPLE and kind != SECOND else kind


@pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
def test_one_fault_leaves_nodes_and_groups_whole(world, scene):
    # The run without a fault finds the places of faults, and is judged. Without earlier scenes, each place has all kinds.
    runs = list(all_runs([explore(world, scene)]))
    violations = {}
    for kind in SLICE[scene.name]:
        of_kind = [run for run in runs if fault_of(run) == kind]
        assert of_kind, f"scene {scene.name} has no place for the fault: {kind}"
        # The places are spread over the scenes, so that each function is struck somewhere.
        run = of_kind[len(of_kind) * (2 * SCENES.index(scene) + 1) // (2 * len(SCENES))]
        violations[run.name] = run.make(world)[1]
    assert len(violations) == len(SLICE[scene.name])
    assert {name: found for name, found in violations.items() if found} == {}


def test_the_slice_has_each_scene_and_each_kind_of_fault():
    of_calls = Boundary("check-pods", "kubernetes:PATCH nodes", 1, write=True).kinds
    of_invocations = Boundary("check-pods", INVOKE, 1, write=True).kinds
    sliced = {kind for kinds in SLICE.values() for kind in kinds}
    assert sliced >= {*of_calls, *of_invocations, "pair", "seed", "lost event", "throttled for minutes", SECOND, OPERATOR}
    assert SLICE.keys() == {scene.name for scene in SCENES}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_deliberate_bug_is_seen(world, mutation):
    (run,) = [run for run in faultless() if run.name == mutation.run]
    with mutation.inside(world):
        _, found = run.make(world)
    for sees in (mutation.sees, *mutation.also_sees):
        assert any(sees in sentence for sentence in found), (sees, found)


@pytest.mark.parametrize("scene", ["put-back", "rotation"])
def test_a_wrong_report_of_the_end_is_seen(world, scene):
    """The scene is played once. Each wrong report takes the place of the true one."""
    (played,) = [each for each in SCENES if each.name == scene]
    reports = [report for report in WRONG_REPORTS if report.scene == scene]
    world.reset()
    with Stage(world).watched() as stage:
        played.play(stage)
        stage.becomes_idle()
        (arn,) = [each.arn for each in ends_of(stage, "rotate-nodes" if scene == "rotation" else "recycle-node")[-1:]]
        end = world.engine.execution(arn)
        for report in reports:
            with report.instead_of(end):
                found = violations(stage)
            assert any(report.sees in sentence for sentence in found), (report.name, found)
        assert reports and violations(stage) == []


def test_a_fault_that_strikes_nothing_and_an_issued_secret_of_any_form_are_seen(world, monkeypatch):
    monkeypatch.setattr(judge, "issued_secrets", lambda: ["recycle-eks/draining"])
    run = Run(SCENES[0], "no function calls that", lambda stage: stage.world.faults.refuse("ec2:RunInstances", code="Throttling"))
    _, found = run.make(world)
    others = [sentence for sentence in found if not sentence.endswith("has a secret that was issued")]
    assert others == ["the fault has not struck: ec2:RunInstances"] and len(found) > 1, found


def test_the_runs_that_are_named_for_readers_are_there():
    text = (ROOT / "docs" / "faults.md").read_text() + __main__.__doc__
    names = re.findall("--only '([^']+)'", text)
    assert len(names) >= 2
    # Both are runs without a fault, so no scene has to be explored.
    assert [name for name in names if not any(run.name.startswith(name) for run in faultless())] == []
