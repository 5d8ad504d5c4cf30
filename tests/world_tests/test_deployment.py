"""The record of Terraform's calls: of several processes that begin at once, one deploys."""

import json
import threading

import pytest

from world import deployment
from world.deployment import Deployment
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
