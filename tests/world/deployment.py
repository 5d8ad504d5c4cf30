"""recycle-eks in the local world, deployed by real Terraform from `terraform/examples/complete`.

A deployment is a function of the module, the state machine and the functions' zips. As long as module and state machine stay the
same, later sessions repeat the recorded calls of Terraform instead of running it, with the zips of today: a second instead of a
minute. Terraform can go on from there, because its state is recorded, too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prepare import ROOT, cargo_target, host_architecture, locked
from world.aws.account import Aws
from world.aws.identity import ACCOUNT, PARTITION, REGION, ROOT_ACCESS_KEY
from world.aws.requests import load_requests, save_requests
from world.process.folders import temporary_folder
from world.process.terraform import Terraform, copy_of_project
from world.scenario.groups import IMAGE

CLUSTER = "world"
#: The folder into which `prepare.py` puts the zips of the functions.
ZIPS = cargo_target() / "world"
#: The modules of `world/aws/` that a recorded deployment depends on.
ACCOUNT_MODULES = ("account", "identity", "moto_corrections", "moto_internals", "requests", "server", "terraform_gaps")

#: The groups that have the lifecycle hook of recycle-eks when a scenario creates them, and its heartbeat timeout. `retained`
#: retains instances, if the scenario configures it so.
HOOKED = {"held": 3600, "retained": 3600, "impatient": 900}


def variables() -> dict[str, object]:
    """The example's variables in the local world: this cluster, these zips, this machine's processor."""
    return {
        "cluster_name": CLUSTER,
        "artifacts_directory": str(ZIPS),
        "architecture": host_architecture(),
        "cancel_instance_refresh": True,
        "lifecycle_hooks": {
            group: {"auto_scaling_group_name": group, "heartbeat_timeout_seconds": seconds, "retain": group == "retained"}
            for group, seconds in HOOKED.items()
        },
        **TRIGGERS,
    }


#: An existing topic that alarms may notify.
ALARM_TOPIC = f"arn:{PARTITION}:sns:{REGION}:{ACCOUNT}:operators"

#: The triggers in the local world: alarms of these names, also through a topic, events of this source, Spot, schedules, a changed
#: value.
TRIGGERS: dict[str, object] = {
    "alarm_triggers": {
        "cpu": {"alarm_names": ["node-cpu", "group-cpu", "math"]},
        "oldest": {
            "alarm_names": ["busy"],
            "pick": "oldest",
            "recycle": {"label_selector": "app=train", "dispose": "detach", "evict": "none"},
        },
        "stop": {"alarm_names": ["busy-stop"], "pick": "oldest", "recycle": {"label_selector": "app=train", "dispose": "stop"}},
    },
    "alarm_topics": {"operators": ALARM_TOPIC},
    "event_triggers": {
        "sick": {
            "event_pattern": {"source": ["my.monitoring"], "detail-type": ["Node is sick"]},
            "instance_id_path": "$.detail.machine",
            "recycle": {"drain_timeout": 7200},
        }
    },
    "spot": True,
    "schedules": {
        "template": {
            "schedule_expression": "cron(30 3 ? * SUN *)",
            "timezone": "Europe/Berlin",
            "selection": {"outdated": {"launch_template": True}},
            "recycle": {"drain_timeout": 7200},
        },
        "ami": {"schedule_expression": "rate(1 day)", "selection": {"outdated": {"groups": ["workers"], "ami": True}}},
        "age": {"schedule_expression": "at(2027-01-04T03:00:00)", "selection": {"outdated": {"older_than": "3d"}}},
    },
    "rotate_on_change": {
        "workers": {"value": "1", "selection": {"outdated": {"groups": ["workers"], "launch_template": True}}},
    },
}


class Deployment:
    """One deployment into one account."""

    def __init__(self, aws: Aws, say: Callable[[str], None]) -> None:
        self._aws = aws
        self._say = say
        self._folder: Path | None = None
        self.outputs: dict[str, Any] = {}

    def deploy(self) -> None:
        """Repeats the recorded calls if nothing has changed since, or else runs Terraform. If several processes find no record,
        one runs Terraform, and the others wait for its record."""
        if not self._repeat():
            with locked("deployment", ZIPS):
                if not self._repeat():
                    self._deploy_and_record()

    def deploy_for_terraform(self) -> Terraform:
        """Deploys, and returns Terraform with the state of that. Its copy of the example remains until `forget`."""
        self.deploy()
        _, state = _record()
        if not state.exists():
            raise RuntimeError("a file of the deployment was edited meanwhile: begin again")
        terraform = self._terraform()
        terraform.state.write_text(with_code_of_today(state.read_text()))
        return terraform

    def _repeat(self) -> bool:
        """Makes the recorded calls again, if there is a record of exactly this."""
        calls, state = _record()
        if not (calls.exists() and state.exists()):
            return False
        self._aws.replay(load_requests(calls, lambda name: encoded(ZIPS / name)))
        self.outputs = outputs_of(state)
        return True

    def _deploy_and_record(self) -> None:
        calls, state = _record()
        self._say("deploying by Terraform (about a minute; until the module changes, later sessions repeat its calls)")
        packages = packages_of_today()
        self._aws.start_recording()
        made = self.apply().state.read_bytes()
        requests = self._aws.stop_recording()
        self.forget()
        if (_record(), packages_of_today()) != ((calls, state), packages):
            return  # a file was built or edited during the deployment, so the deployed content is unknown
        for stale in ZIPS.glob("deployment-*"):
            if stale not in (calls, state):
                stale.unlink(missing_ok=True)
        _write_whole(state, lambda file: file.write_bytes(made))
        _write_whole(calls, lambda file: save_requests(requests, file, packages))

    def apply(self) -> Terraform:
        """Runs Terraform in a copy of the example, with this account as all of AWS. The copy remains until `forget`."""
        terraform = self._terraform()
        self._make_hooked_groups()
        self._aws.client("sns").create_topic(Name=ALARM_TOPIC.rpartition(":")[2])
        terraform.apply_in_steps(self._say, **variables())
        self.outputs = outputs_of(terraform.state)
        return terraform

    def _terraform(self) -> Terraform:
        self._folder = temporary_folder("terraform")
        module = copy_of_project(self._folder)
        terraform = Terraform(module / "examples" / "complete", environment(self._aws.endpoint))
        terraform.init()
        return terraform

    def _make_hooked_groups(self) -> None:
        """A hook is put on a group that is there. The first scenario makes its own."""
        ec2, autoscaling = self._aws.client("ec2"), self._aws.client("autoscaling")
        for group in HOOKED:
            template = ec2.create_launch_template(
                LaunchTemplateName=f"{group}-of-the-deployment", LaunchTemplateData={"ImageId": IMAGE}
            )
            autoscaling.create_auto_scaling_group(
                AutoScalingGroupName=group,
                MinSize=0,
                MaxSize=0,
                AvailabilityZones=[f"{REGION}a"],
                LaunchTemplate={"LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"]},
            )

    def forget(self) -> None:
        """Removes Terraform's copy and its state."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def environment(endpoint: str) -> dict[str, str]:
    """Returns the environment variables that direct an AWS client to the local world."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ROOT_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": "world",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def fingerprint() -> str:
    """Returns the fingerprint of everything that Terraform's calls depend on. The zips count by their names only: a call has
    the content, and the content decides nothing else."""
    world = Path(__file__).parent
    files = [
        *sorted((ROOT / "terraform").rglob("*.tf")),
        ROOT / "terraform" / "dashboard.json",
        *sorted((ROOT / "terraform" / "rbac").iterdir()),
        *sorted((ROOT / "state-machine").iterdir()),
        *(world / "aws" / f"{name}.py" for name in ACCOUNT_MODULES),
        *(world / name for name in ("deployment.py", "stepfunctions/api.py")),
    ]
    digest = hashlib.sha256("".join(str(file.relative_to(ZIPS)) for file in zips()).encode())
    for file in files:
        digest.update(str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def packages_of_today() -> dict[bytes, str]:
    """Returns the names of the zips below `ZIPS`, by their content as a call has it."""
    return {encoded(file): str(file.relative_to(ZIPS)) for file in zips()}


def zips() -> list[Path]:
    return sorted(ZIPS.glob("*/*.zip"))


def encoded(zipped: Path) -> bytes:
    return base64.b64encode(zipped.read_bytes())


def with_code_of_today(state: str) -> str:
    """Returns Terraform's state as if it had deployed the functions' zips as they are now."""
    document = json.loads(state)
    functions = (each for each in document.get("resources", []) if each["type"] == "aws_lambda_function")
    for attributes in (instance["attributes"] for function in functions for instance in function["instances"]):
        code = Path(attributes["filename"]).read_bytes()
        checksum = base64.b64encode(hashlib.sha256(code).digest()).decode()
        attributes.update(code_sha256=checksum, source_code_hash=checksum, source_code_size=len(code))
    return json.dumps(document)


def _record() -> tuple[Path, Path]:
    """The files with Terraform's calls and its state for what is deployed now."""
    calls = ZIPS / f"deployment-{fingerprint()}.calls"
    return calls, calls.with_suffix(".tfstate")


def outputs_of(state: Path) -> dict[str, Any]:
    """Returns the outputs in a state file."""
    return {name: output["value"] for name, output in json.loads(state.read_text())["outputs"].items()}


def _write_whole(file: Path, write: Callable[[Path], Any]) -> None:
    """Writes the file at once, so that a parallel run sees all of it or nothing."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    write(temporary)
    temporary.replace(file)
