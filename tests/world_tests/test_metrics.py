"""The metrics in the logs of functions, as CloudWatch extracts them."""

import json
from datetime import UTC, datetime

from world.aws.metrics import Measurement, read_metrics
from world.world import World

#: 2027-01-01T00:00:00Z
MOMENT = 1_798_761_600


def counted(dimensions: list[list[str]], **values: object) -> str:
    """One line of the embedded metric format about the metric `Restores`."""
    about = {"Namespace": "recycle-eks", "Dimensions": dimensions, "Metrics": [{"Name": "Restores", "Unit": "Count"}]}
    return json.dumps({"_aws": {"Timestamp": MOMENT * 1000 + 500, "CloudWatchMetrics": [about]}, "Restores": 2, **values})


def test_a_line_is_one_measurement_for_each_set_of_dimensions():
    line = counted([["cluster"], ["cluster", "outcome"]], cluster="world", outcome="recycled")
    assert list(read_metrics([line])) == [
        Measurement(MOMENT + 0.5, "recycle-eks", "Restores", "Count", {"cluster": "world"}, 2),
        Measurement(MOMENT + 0.5, "recycle-eks", "Restores", "Count", {"cluster": "world", "outcome": "recycled"}, 2),
    ]


def test_other_lines_of_a_log_count_nothing():
    lines = ["START RequestId: 1", '{"level": "INFO", "reason": "waits"}', "", counted([["cluster"]], cluster="world")]
    assert len(list(read_metrics(lines))) == 1


def test_metrics_are_in_cloudwatch_after_they_are_put_there(world: World, monkeypatch):
    measured = list(read_metrics([counted([["cluster"]], cluster="world"), counted([["cluster"]], cluster="other")]))
    monkeypatch.setattr(World, "metrics", property(lambda _: measured))
    world.metrics_into_cloudwatch()
    answer = world.aws.client("cloudwatch").get_metric_statistics(
        Namespace="recycle-eks",
        MetricName="Restores",
        Dimensions=[{"Name": "cluster", "Value": "world"}],
        StartTime=datetime.fromtimestamp(MOMENT, UTC),
        EndTime=datetime.fromtimestamp(MOMENT + 60, UTC),
        Period=60,
        Statistics=["Sum"],
    )
    assert [point["Sum"] for point in answer["Datapoints"]] == [2]
