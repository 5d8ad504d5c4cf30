"""The formats of Step Functions for times and JSON values."""

from __future__ import annotations

import datetime
import functools
from typing import Any

import orjson

#: The id of every request that a service refuses.
REQUEST_ID = "00000000-0000-4000-8000-000000000000"


def refusal_of(service: str, status: int, code: str, message: str) -> str:
    """The cause of an error of an optimized integration, as LocalStack's recordings have it (`test_no_such_function`)."""
    about = f"Service: {service}; Status Code: {status}; Error Code: {code}; Request ID: {REQUEST_ID}; Proxy: null"
    return f"{message} ({about})"


@functools.lru_cache(1024)
def iso(moment: float) -> str:
    """A moment (epoch seconds) as in contexts and results: 2027-01-01T00:00:00.250Z, or 2027-01-01T00:00:00Z at a full second."""
    instant = datetime.datetime.fromtimestamp(round(moment * 1000) / 1000, datetime.UTC)
    fraction = f".{instant.microsecond // 1000:03d}" if instant.microsecond else ""
    return instant.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"


def text_of(value: Any) -> str:
    """A JSON value as compact text."""
    return orjson.dumps(value).decode()
