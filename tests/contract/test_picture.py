"""The picture of the state machine follows the definition and is complete."""

import json
import re
from typing import Any

import pytest

from picture import BEGIN, END, PAGE, Machine, Step, draw, list_tasks, publishes, steps, with_pictures
from prepare import ROOT, STEPS


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    return json.loads((ROOT / "state-machine" / "recycle-node.asl.json").read_text())


def machine(**states: dict[str, Any]) -> dict[str, Any]:
    """A definition that starts at its first state."""
    return {"StartAt": next(iter(states)), "States": states}


def pictures() -> str:
    """The page's part with the pictures."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def test_the_page_has_the_pictures_of_the_definitions():
    page = PAGE.read_text()
    assert page == with_pictures(page), "stale: run `make generate`"


def test_every_state_that_can_be_stayed_in_is_drawn(definition):
    drawn = {step.name for step in steps(definition)}
    states = Machine(definition).states
    of_no_duration = {name for name, state in states.items() if state["Type"] in ("Choice", "Pass", "Parallel")}
    publishing = {name for name, state in states.items() if publishes(state)}
    assert drawn == set(states) - of_no_duration - publishing - {"UnknownVerdict"}


def test_each_of_those_states_is_in_one_box(definition):
    drawing = re.search(r"```mermaid\n(.*?)```", pictures(), re.DOTALL)[1]
    boxes = re.findall(r"^ +\w+([\[(].*)", drawing, re.MULTILINE)
    for step in steps(definition):
        assert len([box for box in boxes if re.search(rf"\b{step.name}\b", box)]) == 1, step


def test_every_link_of_the_picture_leads_to_a_file():
    links = re.findall(r'(?:\]\(|href ")([^)"]+)', pictures())
    assert {f"../crates/functions/{name}/src/lib.rs" for name in STEPS} <= set(links)
    assert [link for link in links if not (PAGE.parent / link).is_file()] == []


def test_the_main_path_goes_through_the_first_rule_of_each_choice(definition):
    assert Machine(definition).main_path() == [
        "ClaimNode", "StandbyNode", "TaintNode", "CheckPods", "DetachTerminate", "NodeRecycled",
    ]  # fmt: skip


def test_a_detour_stands_below_the_step_that_it_leaves(definition):
    found = steps(definition)
    at = found.index(Step("CheckPods", "task", 0))
    assert found[at + 1 : at + 5] == [
        Step("EvictPods", "task", 1), Step("WaitForPods", "wait", 1), Step("RecordHeartbeat", "task", 1),
        Step("DetachTerminate", "task", 0),
    ]  # fmt: skip


def test_states_after_errors_come_last(definition):
    assert [step.name for step in steps(definition)][-7:] == [
        "ClaimLost", "Superseded", "RestoreNode", "LeftInStandby", "WaitForRestore", "NodeKept", "NotRestored",
    ]  # fmt: skip


def test_consecutive_choices_become_one_labelled_edge():
    choosing = machine(
        Look={"Type": "Task", "Next": "First"},
        First={"Type": "Choice", "Choices": [{"Condition": "{% $a = 'far' %}", "Next": "Second"}], "Default": "Stop"},
        Second={"Type": "Choice", "Choices": [{"Condition": "{% $b = 'up' or $b = 'down' %}", "Next": "Go"}], "Default": "Look"},
        Go={"Type": "Succeed"},
        Stop={"Type": "Fail"},
    )
    assert Machine(choosing).ways_from("Look") == [("far, up or down", "Go"), ("far, otherwise", "Look"), ("otherwise", "Stop")]


def test_publishing_is_not_a_step_of_its_own():
    publish = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sns:publish"}
    rules = [
        {"Condition": "{% $exists($a.notification) %}", "Next": "NotifyFirst"},
        {"Condition": "{% $a = 'done' %}", "Next": "NotifyLast"},
    ]
    publishing = machine(
        Look={"Type": "Task", "Next": "Done"},
        Done={"Type": "Choice", "Choices": rules, "Default": "Look"},
        NotifyFirst={**publish, "Next": "Done"},
        NotifyLast={**publish, "Next": "End"},
        End={"Type": "Succeed"},
    )
    assert Machine(publishing).ways_from("Look") == [("done", "End"), ("otherwise", "Look")]
    assert [step.name for step in steps(publishing)] == ["Look", "End"]


#: A Map in a Map, and a path behind them.
ROTATION = {
    "Comment": "Recycles nodes.",
    **machine(
        Select={"Type": "Task", "Arguments": {"FunctionName": "${select_nodes}"}, "Comment": "Which?", "Next": "EachGroup"},
        EachGroup={
            "Type": "Map",
            "ItemProcessor": machine(
                EachNode={
                    "Type": "Map",
                    "ItemProcessor": machine(
                        MayStart={"Type": "Task", "Resource": "arn:aws:states:::a:b", "Next": "May"},
                        May={"Type": "Choice", "Choices": [{"Condition": "{% $yes %}", "Next": "Recycle"}], "Default": "Pause"},
                        Pause={"Type": "Wait", "Next": "MayStart"},
                        Recycle={"Type": "Task", "Resource": "arn:aws:states:::states:startExecution.sync:2", "End": True},
                    ),
                    "End": True,
                }
            ),
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Stopped"}],
            "Next": "Report",
        },
        Report={"Type": "Succeed"},
        Stopped={"Type": "Fail"},
    ),
}


def test_the_main_path_goes_through_a_map_and_continues_behind_it():
    assert steps(ROTATION) == [
        Step("Select", "task", 0),
        Step("MayStart", "task", 0),
        Step("Pause", "wait", 1),
        Step("Recycle", "task", 0),
        Step("Report", "end", 0),
        Step("Stopped", "end", 1),
    ]


def test_the_states_of_a_map_are_drawn_in_it_and_errors_lead_out_of_it():
    assert (
        list(draw(ROTATION))
        == """\
flowchart TD
  start(["an execution"])
  Select["<b>Select</b><br/>Which?"]
  Report(["Report: SUCCEEDED"])
  Stopped(["Stopped: FAILED"])
  subgraph EachGroup
    subgraph EachNode
      MayStart["MayStart"]
      Pause[/Pause/]
      Recycle["Recycle"]
    end
  end
  start --> Select
  Select --> MayStart
  MayStart -->|"$yes"| Recycle
  MayStart -->|"otherwise"| Pause
  Pause --> MayStart
  EachGroup ----> Report
  EachGroup -...->|"any error"| Stopped
""".splitlines()
    )


def test_a_link_goes_to_a_crate_where_there_is_one():
    assert "| `Select` | Which? | [`select-nodes`](../crates/functions/select-nodes/src/lib.rs) |" in list_tasks(ROTATION)
    assert "| `Recycle` |  | none: `states:startExecution.sync:2` |" in list_tasks(ROTATION)


def test_a_failure_is_drawn_unless_something_around_it_catches_it():
    branch = machine(Begin={"Type": "Pass", "Next": "Broken"}, Broken={"Type": "Fail"})
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "Repair"}]
    around = {"Type": "Parallel", "Branches": [branch], "End": True}
    repair = {"Type": "Task", "End": True}
    assert [step.name for step in steps(machine(Around=around))] == ["Broken"]
    assert [step.name for step in steps(machine(Around={**around, "Catch": catch}, Repair=repair))] == ["Repair"]
