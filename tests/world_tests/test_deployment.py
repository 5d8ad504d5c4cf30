"""The record of Terraform's calls: of several processes that begin at once, one deploys. It outlives a change of the code."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from world import deployment
from world.aws.requests import ReplayedRequest
from world.deployment import Deployment, with_code_of_today
from world.process.folders import temporary_folder
from world.process.terraform import Terraform


class NoAccount:
    """An account that is asked nothing."""

    def start_recording(self) -> None:
        pass

    def stop_recording(self) -> list:
        return []

    def replay(self, requests: list) -> None:
        pass


class Counted(Deployment):
    """A deployment whose Terraform waits a second for another one to begin, which must not come."""

    applied: list[Deployment]
    another = threading.Event()

    def apply(self) -> Terraform:
        self.applied.append(self)
        if len(self.applied) > 1:
            self.another.set()
        self.another.wait(1)
        self.outputs = {"alias": "live"}
        # `forget` removes it.
        self._folder = temporary_folder("terraform")
        made = Terraform(self._folder)
        made.state.write_text(json.dumps({"outputs": {"alias": {"value": "live"}}}))
        return made


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(deployment, "ZIPS", tmp_path)
    Counted.applied = []


def test_two_runs_without_a_record_deploy_once_and_the_other_repeats_the_calls():
    both = [Counted(NoAccount(), lambda text: None) for _ in range(2)]
    threads = [threading.Thread(target=each.deploy) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Counted.applied) == 1
    assert [each.outputs for each in both] == [{"alias": "live"}] * 2


def test_a_failed_run_leaves_the_deployment_to_the_next():
    class Failing(Counted):
        def apply(self) -> None:
            raise RuntimeError("terraform has failed")

    with pytest.raises(RuntimeError, match="terraform has failed"):
        Failing(NoAccount(), lambda text: None).deploy()
    Counted(NoAccount(), lambda text: None).deploy()
    assert len(Counted.applied) == 1


class WithOneFunction(NoAccount):
    """An account in which Terraform has created a function from the zip, and which keeps what is repeated."""

    def __init__(self, zipped: Path) -> None:
        self._zipped = zipped
        self.repeated: list[bytes] = []

    def stop_recording(self) -> list[ReplayedRequest]:
        code = base64.b64encode(self._zipped.read_bytes()).decode()
        bodies = [json.dumps({"Code": {"ZipFile": code}, "Runtime": "any"}, separators=(",", ":")), "Action=CreateRole"]
        return [ReplayedRequest("POST", "/", "", {}, body.encode(), 200) for body in bodies]

    def replay(self, requests: Iterable[ReplayedRequest]) -> None:
        self.repeated = [request.body for request in requests]


def test_a_session_with_other_code_repeats_the_calls_with_that_code(tmp_path):
    zipped = tmp_path / "x86_64" / "check-pods.zip"
    zipped.parent.mkdir()
    zipped.write_bytes(b"first")
    account = WithOneFunction(zipped)
    Counted(account, lambda text: None).deploy()

    zipped.write_bytes(b"second code")
    Counted(account, lambda text: None).deploy()

    assert len(Counted.applied) == 1
    assert account.repeated == [b'{"Code":{"ZipFile":"c2Vjb25kIGNvZGU="},"Runtime":"any"}', b"Action=CreateRole"]
    assert b"Zmlyc3Q=" not in b"".join(file.read_bytes() for file in tmp_path.glob("deployment-*.calls"))


def test_a_deployment_whose_code_was_built_meanwhile_is_not_recorded(tmp_path):
    zipped = tmp_path / "x86_64" / "check-pods.zip"
    zipped.parent.mkdir()
    zipped.write_bytes(b"first")

    class BuiltMeanwhile(Counted):
        def apply(self) -> Terraform:
            zipped.write_bytes(b"second")
            return super().apply()

    BuiltMeanwhile(WithOneFunction(zipped), lambda text: None).deploy()
    assert list(tmp_path.glob("deployment-*.calls")) == []


def test_terraform_goes_on_with_the_code_of_today(tmp_path):
    zipped = tmp_path / "check-pods.zip"
    zipped.write_bytes(b"second code")
    old = {"filename": str(zipped), "code_sha256": "old", "source_code_hash": "old", "source_code_size": 5, "timeout": 60}
    others = [{"type": "aws_iam_role", "instances": [{"attributes": {"name": "check-pods"}}]}]
    state = {"resources": [{"type": "aws_lambda_function", "instances": [{"attributes": old}]}, *others]}

    function, *unchanged = json.loads(with_code_of_today(json.dumps(state)))["resources"]

    checksum = base64.b64encode(hashlib.sha256(b"second code").digest()).decode()
    new = {"code_sha256": checksum, "source_code_hash": checksum, "source_code_size": 11}
    assert function["instances"] == [{"attributes": {**old, **new}}]
    assert unchanged == others
