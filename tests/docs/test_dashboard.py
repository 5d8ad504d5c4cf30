"""docs/dashboard.svg and docs/messages.md show a run on the local world."""

import re

import pytest

from dashboard.run import live_through, pages
from dashboard.svg import draw
from dashboard.widgets import Line, read_widgets
from prepare import ROOT
from world.aws.metrics import Measurement


def measured(moment: float, name: str, value: float, **dimensions: str) -> Measurement:
    return Measurement(moment, "recycle-eks", name, "Count", {"cluster": "world", **dimensions}, value)


def body(*metrics: list) -> dict:
    about = {"title": "A graph", "stacked": False, "period": 900, "stat": "Sum", "metrics": list(metrics)}
    return {"widgets": [{"x": 0, "y": 0, "width": 12, "height": 6, "properties": about}]}


@pytest.fixture(scope="module")
def shown(deployed_world):
    deployed_world.reset()
    live_through(deployed_world)
    return deployed_world, pages(deployed_world)


def test_picture_and_messages_are_those_of_the_run(shown):
    for page, text in shown[1].items():
        assert page.read_text() == text, "stale: run `make dashboard`"


def test_every_widget_of_the_module_shows_something_that_the_run_has_counted(shown):
    world, _ = shown
    body = (ROOT / "terraform" / "dashboard.json").read_text()
    names = {each.name for each in world.metrics}
    assert {name for name in re.findall(r'"recycle-eks", "(\w+)"|MetricName=\\"(\w+)', body) for name in name if name} <= names


def test_every_kind_of_message_is_shown(shown):
    world, _ = shown
    kinds = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "notifications.md").read_text().split("## Events")[1], re.MULTILINE)
    assert {notification["event"] for notification in world.all_notifications} == set(kinds) - {"info", "warning", "critical"}


def test_a_line_has_one_value_for_each_period():
    values = [measured(0, "Restores", 1), measured(899, "Restores", 2), measured(900, "Restores", 4), measured(0, "Other", 9)]
    (widget,) = read_widgets(body(["recycle-eks", "Restores", "cluster", "world", {"label": "restored"}]), values)
    assert widget.lines == [Line("restored", [(0, 3), (900, 4)])]


def test_a_search_finds_the_metrics_with_exactly_these_dimensions():
    search = 'SEARCH(\'{"recycle-eks",cluster,outcome} MetricName="Executions" cluster="world"\', \'Sum\', 3600)'
    values = [
        measured(0, "Executions", 1, outcome="recycled"),
        measured(3_599, "Executions", 1, outcome="recycled"),
        measured(0, "Executions", 1, outcome="duplicate"),
        measured(0, "Executions", 3),
    ]
    (widget,) = read_widgets(body([{"expression": search}]), values)
    assert widget.lines == [Line("duplicate", [(0, 1)]), Line("recycled", [(0, 2)])]
    with pytest.raises(ValueError, match="not known"):
        read_widgets(body([{"expression": "FILL(m1, 0)"}]), values)


def test_texts_are_escaped_and_a_value_without_neighbours_is_a_dot():
    (widget,) = read_widgets(
        body(["recycle-eks", "Restores", "cluster", "world", {"label": "a < b"}]),
        [measured(moment, "Restores", 1) for moment in (0, 900, 1_800, 5_000)],
    )
    picture = draw([widget], 0, 86_400)
    assert "a &lt; b" in picture and picture.count("<circle") == 1
