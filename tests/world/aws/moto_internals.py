"""moto's internals that the account reaches: a newer version of moto fails here first."""

from __future__ import annotations

import datetime
import logging
import threading
import types
from typing import Any

import moto
from moto.core import responses as moto_responses
from moto.core import utils as moto_utils
from moto.core.config import default_user_config
from moto.moto_api._internal import mock_random
from moto.moto_server.werkzeug_app import create_backend_app
from moto.utilities import aws_headers

from world.aws import moto_speed
from world.aws.identity import ACCOUNT, PARTITION, REGION
from world.base.clock import Clock

# Every internal of moto that this package reaches was read in this version.
MOTO_VERSION = "5.2.5"

# Held by code that reads moto's backends, or changes none of those that a scenario owns (account.py).
READING = threading.RLock()


class _Changing:
    """READING, held by code that may change a backend. `changes` counts how often that was."""

    def __init__(self) -> None:
        self.changes = 0

    def __enter__(self) -> None:
        READING.acquire()
        self.changes += 1

    def __exit__(self, *_: object) -> None:
        READING.release()


# Held while moto handles a request that changes something, and while other code of this process changes its backends.
LOCK = _Changing()

# The request id of every answer.
REQUEST_ID = "0" * 52


def backend_of(service: str) -> Any:
    """Returns the backend of the world's account, for its region or the global one."""
    backends = moto.backends.get_backend(service)[ACCOUNT]
    return backends[PARTITION if service in ("iam", "sts") else REGION]


def seed_identifiers() -> None:
    mock_random.seed(0)


def create_app(service: str) -> Any:
    """moto's application of one service, made at its first request, without Flask's help for developers and headers for browsers.

    Making it creates a backend in another region, which draws identifiers: the sequence goes on as if it had not.
    """
    state = mock_random.getstate()
    try:
        app = create_backend_app(service)
    finally:
        mock_random.setstate(state)
    app.debug = False
    app.after_request_funcs.clear()
    return app


class _VirtualDatetime(datetime.datetime):
    """moto's `utcnow` and `unix_time` read the time here and only here."""

    clock: Clock

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(cls.clock.now(), tz)


def install(clock: Clock) -> None:
    """Makes moto use virtual time, and separate random numbers for request ids and resource ids."""
    assert moto.__version__ == MOTO_VERSION, f"this world was written for moto {MOTO_VERSION}, not {moto.__version__}"
    for module, name in ((moto_utils, "datetime"), (moto_utils, "utcnow"), (aws_headers, "gen_amzn_requestid_long")):
        assert hasattr(module, name), f"moto {moto.__version__} has no {module.__name__}.{name}"
    default_user_config["lambda"] = {"use_docker": False}
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    _VirtualDatetime.clock = clock
    moto_utils.datetime = types.SimpleNamespace(datetime=_VirtualDatetime)
    moto_speed.install()
    _fix_request_ids()
    seed_identifiers()


def _fix_request_ids() -> None:
    """A request id is the same for every request: a repeated read must not shift the ids of what is created later."""

    def request_id(headers: dict[str, Any] | None = None) -> str:
        if headers is not None:
            headers["x-amzn-requestid"] = REQUEST_ID
        return REQUEST_ID

    aws_headers.gen_amzn_requestid_long = request_id
    assert hasattr(moto_responses, "gen_amzn_requestid_long")
    moto_responses.gen_amzn_requestid_long = request_id


def moto_original(owner: type, name: str) -> Any:
    """moto's own attribute, even if this process has replaced it before."""
    kept = owner.__dict__.get("_moto_originals")
    if kept is None:
        kept = {}
        owner._moto_originals = kept
    if name not in kept:
        assert hasattr(owner, name), f"moto has no {owner.__name__}.{name}"
        kept[name] = getattr(owner, name)
    return kept[name]
