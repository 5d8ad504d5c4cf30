"""The AWS account that the probe asks, and the time that it waits by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import boto3
from botocore.config import Config

#: Prefix of the name of everything that the probe creates.
PREFIX = "recycle-eks-probe-"
#: Key of the tag on everything that the probe creates. Its value is the name of the run.
TAG = "recycle-eks-probe"


class Clock(Protocol):
    """Seconds since 1970, and a way to wait. The tests pass a virtual one."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Account:
    """One region of an account, with the ordinary credentials. Only tests give an `endpoint`."""

    def __init__(self, region: str | None = None, clock: Clock | None = None, endpoint: str | None = None) -> None:
        self.session = boto3.Session(region_name=region)
        self.region: str | None = self.session.region_name
        self.clock: Clock = clock or RealClock()
        self._endpoint = endpoint
        self._clients: dict[str, Any] = {}
        #: Sends a rebalance recommendation to an instance. None: the account was not asked for it.
        self.recommend_rebalance: Callable[[str], None] | None = None

    def client(self, service: str) -> Any:
        if service not in self._clients:
            retries = Config(retries={"mode": "standard", "total_max_attempts": 8})
            self._clients[service] = self.session.client(service, endpoint_url=self._endpoint, config=retries)
        return self._clients[service]

    def identity(self) -> str:
        """Returns the number of the account."""
        return self.client("sts").get_caller_identity()["Account"]
