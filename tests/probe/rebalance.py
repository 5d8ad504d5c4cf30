"""A rebalance recommendation for one instance, sent by AWS Fault Injection Service. It also interrupts the instance, later."""

from __future__ import annotations

import json
from typing import Any

from probe.account import PREFIX, TAG, Account
from probe.state import State

#: Dollars a minute of an action of AWS Fault Injection Service, and the minutes from the recommendation to the interruption.
PRICE, MINUTES = 0.10, 5
#: Seconds until a new role can be used.
ROLE_DELAY = 15.0
#: The name of the role's policy.
POLICY = "interrupt"


class Rebalance:
    """Sends recommendations with a role of the run."""

    def __init__(self, account: Account, state: State) -> None:
        self._account, self._state = account, state
        self._name = f"{PREFIX}{state.run}-fis"

    def recommend(self, instance: str) -> None:
        fis = self._account.client("fis")
        arn = f"arn:aws:ec2:{self._account.region}:{self._state.account}:instance/{instance}"
        role = self._create_role()
        template = fis.create_experiment_template(
            clientToken=f"{self._name}-{instance}",
            description="A rebalance recommendation for a member in Standby",
            roleArn=role,
            stopConditions=[{"source": "none"}],
            targets={"one": {"resourceType": "aws:ec2:spot-instance", "resourceArns": [arn], "selectionMode": "ALL"}},
            actions={
                "recommend": {
                    "actionId": "aws:ec2:send-spot-instance-interruptions",
                    "parameters": {"durationBeforeInterruption": f"PT{MINUTES}M"},
                    "targets": {"SpotInstances": "one"},
                }
            },
            tags={TAG: self._state.run},
        )["experimentTemplate"]["id"]
        token = f"{self._name}-{instance}-start"
        fis.start_experiment(clientToken=token, experimentTemplateId=template, tags={TAG: self._state.run})

    def _create_role(self) -> str:
        iam = self._account.client("iam")
        trust = {
            "Effect": "Allow",
            "Principal": {"Service": "fis.amazonaws.com"},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": {"aws:SourceAccount": self._state.account}},
        }
        interrupt = {
            "Effect": "Allow",
            "Action": "ec2:SendSpotInstanceInterruptions",
            "Resource": "arn:aws:ec2:*:*:instance/*",
            "Condition": {"StringEquals": {f"aws:ResourceTag/{TAG}": self._state.run}},
        }
        look = {"Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"}
        self._state.note_created("role", self._name)
        role = iam.create_role(
            RoleName=self._name, AssumeRolePolicyDocument=_document(trust), Tags=[{"Key": TAG, "Value": self._state.run}]
        )["Role"]["Arn"]
        iam.put_role_policy(RoleName=self._name, PolicyName=POLICY, PolicyDocument=_document(interrupt, look))
        self._account.clock.sleep(ROLE_DELAY)
        return role


def _document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
