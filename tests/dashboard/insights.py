"""Queries of CloudWatch Logs Insights on lines of JSON, as far as the module's dashboard has them.

Known: `SOURCE` for the log groups, `filter` on the presence of a field or on its value, `fields`, `sort @timestamp desc`,
`limit`, and `stats sum(…) by FIELD, bin(1h)` (CloudWatch Logs guide, "CloudWatch Logs Insights language query syntax").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

HOUR = 3_600
_SOURCE = re.compile(r"SOURCE '([^']+)'")
_PRESENT = re.compile(r"filter ispresent\((\w+)\) and (\w+) = '([^']*)'")
_AMONG = re.compile(r"filter (\w+) in \[([^\]]*)\] or \((\w+) = '([^']*)' and (\w+) like /([^/]+)/\)")
_STATS = re.compile(r"stats sum\((\w+)\) by (\w+), bin\(1h\)")
_FIELDS = re.compile(r"fields (@timestamp(?:, \w+)*)")
_LIMIT = re.compile(r"limit (\d+)")


@dataclass(frozen=True)
class Entry:
    """A line of JSON in the log of a function."""

    moment: float
    group: str
    line: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """The sums by value and hour, or the rows of a table."""

    sums: dict[str, dict[float, float]]
    columns: list[str]
    rows: list[list[Any]]


def run(query: str, entries: Iterable[Entry]) -> Result:
    """The result of a query."""
    commands = query.split(" | ")
    groups = {found[1] for command in commands if (found := _SOURCE.fullmatch(command))}
    kept = [each for each in entries if each.group in groups]
    result = Result({}, [], [])
    for command in commands[len(groups) :]:
        if found := _PRESENT.fullmatch(command):
            kept = [each for each in kept if found[1] in each.line and each.line.get(found[2]) == found[3]]
        elif found := _AMONG.fullmatch(command):
            names = re.findall(r"'([^']*)'", found[2])
            kept = [each for each in kept if each.line.get(found[1]) in names or _is_like(each.line, found)]
        elif found := _STATS.fullmatch(command):
            for each in kept:
                hours = result.sums.setdefault(str(each.line.get(found[2])), {})
                hour = each.moment // HOUR * HOUR
                hours[hour] = hours.get(hour, 0) + each.line[found[1]]
        elif found := _FIELDS.fullmatch(command):
            result.columns.extend(found[1].split(", "))
        elif command == "sort @timestamp desc":
            kept.sort(key=lambda each: each.moment, reverse=True)
        elif found := _LIMIT.fullmatch(command):
            kept = kept[: int(found[1])]
        else:
            raise ValueError(f"this command is not known: {command}")
    names = result.columns[1:]
    result.rows.extend([each.moment, *(each.line.get(name, "") for name in names)] for each in kept if names)
    return result


def _is_like(line: dict[str, Any], found: re.Match[str]) -> bool:
    return line.get(found[3]) == found[4] and re.search(found[6], str(line.get(found[5], ""))) is not None
