"""The metrics of the functions: lines of CloudWatch's embedded metric format in their logs, as CloudWatch Logs extracts them.

    for each in read_metrics(host.log_lines()):
        each.moment, each.namespace, each.name, each.dimensions, each.value

AWS docs, "Specification: CloudWatch embedded metric format": one measurement for each metric and each set of dimensions.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """One value; `moment` in seconds since 1970."""

    moment: float
    namespace: str
    name: str
    unit: str
    dimensions: dict[str, str]
    value: float

    def datum(self) -> dict[str, Any]:
        """Returns the measurement in the format of PutMetricData."""
        return {
            "MetricName": self.name,
            "Unit": self.unit,
            "Value": self.value,
            "Timestamp": datetime.datetime.fromtimestamp(self.moment, datetime.UTC),
            "Dimensions": [{"Name": name, "Value": value} for name, value in self.dimensions.items()],
        }


def read_metrics(lines: Iterable[str]) -> Iterator[Measurement]:
    """All measurements in these lines of a log."""
    for line in lines:
        if '"_aws"' not in line:
            continue
        record = json.loads(line)
        about = record["_aws"]
        for directive in about["CloudWatchMetrics"]:
            for metric in directive["Metrics"]:
                for names in directive["Dimensions"]:
                    yield Measurement(
                        moment=about["Timestamp"] / 1000,
                        namespace=directive["Namespace"],
                        name=metric["Name"],
                        unit=metric["Unit"],
                        dimensions={name: record[name] for name in names},
                        value=record[metric["Name"]],
                    )
