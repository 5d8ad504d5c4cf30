"""docs/dashboard.svg is what the module's dashboard shows of a run on the local world."""

import pytest

from dashboard.picture import PICTURE, draw_a_run
from dashboard.svg import draw
from dashboard.widgets import Line, read_widgets
from world.metrics import Measurement


def measured(moment: float, name: str, value: float, **dimensions: str) -> Measurement:
    return Measurement(moment, "recycle-eks", name, "Count", {"cluster": "world", **dimensions}, value)


def body(*metrics: list) -> dict:
    about = {"title": "A graph", "stacked": False, "period": 900, "stat": "Sum", "metrics": list(metrics)}
    return {"widgets": [{"x": 0, "y": 0, "width": 12, "height": 6, "properties": about}]}


def test_the_picture_is_of_the_run(world):
    assert PICTURE.read_text() == draw_a_run(world), "stale: run `PYTHONPATH=tests python -m dashboard`"


def test_a_line_has_one_value_for_each_period():
    values = [measured(0, "PutBacks", 1), measured(899, "PutBacks", 2), measured(900, "PutBacks", 4), measured(0, "Other", 9)]
    (widget,) = read_widgets(body(["recycle-eks", "PutBacks", "cluster", "world", {"label": "put back"}]), values)
    assert widget.lines == [Line("put back", [(0, 3), (900, 4)])]


def test_a_search_finds_the_metrics_with_exactly_these_dimensions():
    search = "SEARCH('{recycle-eks,cluster,outcome} MetricName=\"Executions\" cluster=\"world\"', 'Sum', 3600)"
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


def test_texts_are_escaped_and_every_value_is_a_dot():
    (widget,) = read_widgets(
        body(["recycle-eks", "PutBacks", "cluster", "world", {"label": "a < b"}]),
        [measured(moment, "PutBacks", 1) for moment in (0, 900, 5_000)],
    )
    picture = draw([widget], 0, 86_400)
    assert "a &lt; b" in picture and picture.count("<circle") == 3
