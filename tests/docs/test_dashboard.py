"""docs/dashboard.svg and docs/messages.md show a run on the local world."""

import json
import re

import pytest

from dashboard.insights import Entry, run
from dashboard.run import live_through, pages
from dashboard.svg import draw
from dashboard.widgets import Line, read_widgets
from prepare import ROOT
from world.aws.metrics import Measurement


def measured(moment: float, name: str, value: float, **dimensions: str) -> Measurement:
    return Measurement(moment, "recycle-eks", name, "Count", {"cluster": "world", **dimensions}, value)


def logged(moment: float, group: str = "/aws/lambda/a", **line: str | int) -> Entry:
    return Entry(moment, group, line)


#: The module's query of the graph, for one function.
COUNT = "SOURCE '/aws/lambda/a' | filter ispresent(Executions) and cluster = 'world' | stats sum(Executions) by outcome, bin(1h)"


def body(*metrics: list) -> dict:
    about = {"title": "A graph", "view": "timeSeries", "stacked": False, "period": 900, "stat": "Sum", "metrics": list(metrics)}
    return {"widgets": [{"type": "metric", "x": 0, "y": 0, "width": 12, "height": 6, "properties": about}]}


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


def test_drains_are_shown_in_hours_and_executions_as_bars_and_by_name():
    widgets = json.loads((ROOT / "terraform" / "dashboard.json").read_text())["widgets"]
    shown = {each["properties"].get("title"): each["properties"] for each in widgets}
    drains = shown["Duration of drains in hours"]
    assert drains["yAxis"]["left"]["label"] == "hours" and drains["metrics"][0][0]["expression"] == "longest / 3600"
    assert shown["Executions that ended in each hour, by outcome"]["view"] == "bar"
    labels = {metric[-1]["label"] for title in ("Now", "In the chosen time") for metric in shown[title]["metrics"]}
    assert {"nodes in progress", "restored after a failure", "need an operator"} <= labels
    assert "fields @timestamp, verdict, instance, reason, execution" in shown["Last ends of executions, with the reason"]["query"]


def test_every_kind_of_message_is_shown(shown):
    world, _ = shown
    kinds = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "notifications.md").read_text().split("## Events")[1], re.MULTILINE)
    assert {notification["event"] for notification in world.all_notifications} == set(kinds) - {"info", "warning", "critical"}


def test_a_line_has_one_value_for_each_period():
    values = [measured(0, "Restores", 1), measured(899, "Restores", 2), measured(900, "Restores", 4), measured(0, "Other", 9)]
    (widget,) = read_widgets(body(["recycle-eks", "Restores", "cluster", "world", {"label": "restored"}]), values)
    assert widget.lines == [Line("restored", [(0, 3), (900, 4)])]


def test_a_quotient_is_drawn_instead_of_the_metric():
    seconds = ["recycle-eks", "DrainSeconds", "cluster", "world", {"id": "longest", "visible": False}]
    hours = [{"expression": "longest / 3600", "label": "longest"}]
    (widget,) = read_widgets(body(hours, seconds), [measured(0, "DrainSeconds", 7_200)])
    assert widget.lines == [Line("longest", [(0, 2)])]
    with pytest.raises(ValueError, match="not known"):
        read_widgets(body([{"expression": "FILL(m1, 0)"}]), [])


def test_numbers_are_of_the_whole_time_or_of_the_last_period_and_may_be_missing():
    restores = ["recycle-eks", "Restores", "cluster", "world", {"label": "restored"}]
    values = [measured(0, "Restores", 1), measured(5_000, "Restores", 2)]
    for whole, expected in ((True, 3), (False, 2)):
        about = body(restores, ["recycle-eks", "Other", "cluster", "world"])
        about["widgets"][0]["properties"] |= {"view": "singleValue", "setPeriodToTimeRange": whole}
        (widget,) = read_widgets(about, values)
        assert widget.numbers == [("restored", expected), ("Other", None)]
        assert ">--<" in draw([widget], 0, 86_400)


def test_a_query_counts_by_hour_and_outcome_and_lists_the_last_decisions():
    lines = [
        logged(0, Executions=1, cluster="world", outcome="recycled"),
        logged(3_599, Executions=1, cluster="world", outcome="recycled"),
        logged(3_600, Executions=1, cluster="world", outcome="NodeLost"),
        logged(0, Executions=1, cluster="other", outcome="recycled"),
        logged(0, "/aws/lambda/b", Executions=1, cluster="world", outcome="recycled"),
    ]
    assert run(COUNT, lines).sums == {"recycled": {0: 2}, "NodeLost": {3_600: 1}}

    decisions = [
        logged(1, verdict="recycled", reason="first"),
        logged(3, verdict="untouched", reason="refused", execution="arn:…:x-recycle-node:one"),
        logged(4, verdict="untouched", reason="swept", execution="arn:…:x-sweep:one"),
        logged(2, verdict="wait", reason="waits"),
    ]
    table = (
        "SOURCE '/aws/lambda/a' | filter verdict in ['recycled'] or (verdict = 'untouched' and execution like /-recycle-node:/)"
        " | fields @timestamp, verdict, reason | sort @timestamp desc | limit 2"
    )
    assert run(table, decisions).rows == [[3, "untouched", "refused"], [1, "recycled", "first"]]
    with pytest.raises(ValueError, match="not known"):
        run("SOURCE '/aws/lambda/a' | dedup node", [])


def test_bars_of_an_hour_lie_on_top_of_each_other():
    about = {"title": "Ends", "view": "bar", "query": COUNT}
    widget = {"type": "log", "x": 0, "y": 0, "width": 12, "height": 6, "properties": about}
    lines = [logged(0, Executions=count, cluster="world", outcome=outcome) for outcome, count in (("a", 1), ("b", 3))]
    picture = draw(read_widgets({"widgets": [widget]}, [], lines), 0, 86_400)
    bars = re.findall(r'<rect x="57.0" y="([\d.]+)" width="\S+" height="([\d.]+)"', picture)
    (low, short), (high, tall) = ((float(y), float(height)) for y, height in bars)
    assert tall == pytest.approx(3 * short, abs=0.2) and high + tall == pytest.approx(low, abs=0.2)


def test_texts_are_escaped_and_a_value_without_neighbours_is_a_dot():
    (widget,) = read_widgets(
        body(["recycle-eks", "Restores", "cluster", "world", {"label": "a < b"}]),
        [measured(moment, "Restores", 1) for moment in (0, 900, 1_800, 5_000)],
    )
    picture = draw([widget], 0, 86_400)
    assert "a &lt; b" in picture and picture.count("<circle") == 1
