"""The formats of Step Functions for times and JSON values."""

from __future__ import annotations

import datetime
import functools
from typing import Any

import orjson


@functools.lru_cache(1024)
def iso(moment: float) -> str:
    """A moment (epoch seconds) as in contexts and results: 2027-01-01T00:00:00.000Z."""
    instant = datetime.datetime.fromtimestamp(round(moment * 1000) / 1000, datetime.UTC)
    return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant.microsecond // 1000:03d}Z"


def text_of(value: Any) -> str:
    """A JSON value as compact text."""
    return orjson.dumps(value).decode()
