"""A moto server for tests of the Step Functions API and of events, in its own region.

The region differs from the world's, and everything is restored afterwards, so that these tests can share a process with a
deployed world.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto.events.models import events_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.scheduler.models import scheduler_backends
from moto.sns.models import sns_backends
from moto.stepfunctions.models import stepfunctions_backends

from world.aws import moto_corrections
from world.aws.account import MODELS, answer_of
from world.aws.events import Events
from world.aws.requests import identified
from world.aws.server import Answer, AwsServer
from world.base.clock import Clock
from world.stepfunctions.api import MotoMachines, install
from world.stepfunctions.engine import Engine
from world.stepfunctions.executions import Execution
from world.stepfunctions.in_memory import PythonFunctions
from world.stepfunctions.sdk_integrations import AwsServices

ACCOUNT = "123456789012"
REGION = "eu-central-1"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/machine"


class MotoRegion:
    """Engine, bus and moto's endpoint together."""

    def __init__(self, endpoint: str):
        self.endpoint = endpoint
        self.clock = Clock()
        self.functions = PythonFunctions()
        self.services = AwsServices(endpoint, REGION)
        machines = MotoMachines(self.clock, ACCOUNT, REGION)
        self.engine = Engine(self.clock, machines, self.functions, self.services, ACCOUNT, REGION)
        self.events = Events(self.clock, self.engine, ACCOUNT, REGION)
        self.sfn = self.client("stepfunctions")

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def create(self, name: str, definition: dict, **options: Any) -> str:
        text = json.dumps(definition)
        return self.sfn.create_state_machine(name=name, definition=text, roleArn=ROLE, **options)["stateMachineArn"]

    def run(self, definition: dict, value: Any = None) -> Execution:
        arn = self.create(f"machine-{len(self.engine.executions)}", definition)
        started = self.sfn.start_execution(stateMachineArn=arn, input=json.dumps(value or {}))
        self.clock.run()
        return self.engine.execution(started["executionArn"])


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    moto_corrections.install()
    moto = DomainDispatcherApplication(create_backend_app)

    def serve(environ: dict[str, Any], body: bytes) -> Answer:
        answer = answer_of(moto, environ)
        MODELS.check(identified(environ, body), environ, body, answer)
        return answer

    server = AwsServer(serve)
    server.start("moto")
    yield f"http://127.0.0.1:{server.server_port}"
    server.stop()


@pytest.fixture
def region(moto_endpoint: str) -> Iterator[MotoRegion]:
    region = MotoRegion(moto_endpoint)
    undo = [install(region.engine), region.events.install()]
    yield region
    for restore in undo:
        restore()
    for backends in (stepfunctions_backends, events_backends, sns_backends, scheduler_backends):
        backends[ACCOUNT][REGION].reset()
