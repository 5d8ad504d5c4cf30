"""AWS's published default quotas that a rotation could reach, and how near it came to them.

A token bucket with a size and a refill rate refuses a call when it is empty. The tokens missing from a full bucket are the level
of a leaky bucket: each call adds one, and time removes the rate. A quota is held if the level never exceeds the size.

Calls take no virtual time here. All calls at one moment of virtual time count as one burst, so the levels are the worst case. In
a real account the calls are spread over the seconds that functions take. The quotas are those of the three large regions
(us-east-1, us-west-2, eu-west-1) where a page distinguishes; `SMALL_REGIONS` has the others.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STEP_FUNCTIONS = "https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html"
EC2 = "https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html"
LAMBDA = "https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"
LAMBDA_SCALING = "https://docs.aws.amazon.com/lambda/latest/dg/scaling-behavior.html"
SNS = "https://docs.aws.amazon.com/general/latest/gr/sns.html"
EKS = "https://docs.aws.amazon.com/general/latest/gr/eks.html"
AUTO_SCALING = "https://docs.aws.amazon.com/autoscaling/ec2/APIReference/Welcome.html"

#: A call of DescribeInstances with neither a filter nor pages, as `drawing_action` names it.
UNFILTERED = "ec2:DescribeInstances unfiltered"


def drawing_action(action: str, parameters: Mapping[str, Any]) -> str:
    """Returns the name by which a call draws from a bucket: its action, except where the parameters decide the bucket."""
    if action == "ec2:DescribeInstances" and not {"Filters", "MaxResults", "NextToken"} & {*parameters}:
        return UNFILTERED
    return action


@dataclass(frozen=True)
class Quota:
    """One bucket: which actions draw from it, how many calls it holds, how many come back in a second; from which page."""

    name: str
    actions: tuple[str, ...]
    size: float
    refill: float
    source: str
    is_published: bool = True
    """False if AWS does not publish the size of its bucket. Then `size` and `refill` are only a comparison (EC2's for reads), and
    exceeding them is not a failure."""

    def draws(self, action: str) -> bool:
        """Checks whether a call that `drawing_action` names so takes from this bucket."""
        return any(fnmatch.fnmatchcase(action, pattern) for pattern in self.actions)


QUOTAS = (
    Quota("Step Functions StateTransition", ("states:StateTransition",), 5000, 5000, STEP_FUNCTIONS),
    Quota("Step Functions StartExecution", ("states:StartExecution",), 1300, 300, STEP_FUNCTIONS),
    Quota("Step Functions DescribeExecution", ("states:DescribeExecution",), 300, 15, STEP_FUNCTIONS),
    Quota("Step Functions ListExecutions", ("states:ListExecutions",), 200, 5, STEP_FUNCTIONS),
    Quota("Step Functions GetExecutionHistory", ("states:GetExecutionHistory",), 400, 20, STEP_FUNCTIONS),
    # Functions take less than a second, so no more of them run at once than begin in a second. The page says 1,000 at once
    # for an account in a region (new accounts have less), and `LAMBDA_SCALING` 1,000 more in each ten seconds for a function.
    Quota("Lambda concurrency", ("lambda:Invoke",), 1000, 1000, LAMBDA),
    # Each action of EC2 has a bucket of its own. DescribeInstances has a smaller one for calls with neither a filter nor pages.
    # A call by ids has neither.
    Quota("EC2 DescribeInstances by ids", (UNFILTERED,), 50, 10, EC2),
    Quota("EC2 DescribeInstances with a filter", ("ec2:DescribeInstances",), 100, 20, EC2),
    Quota("EC2 DescribeLaunchTemplateVersions", ("ec2:DescribeLaunchTemplateVersions",), 100, 20, EC2),
    Quota("EC2 DescribeImages", ("ec2:DescribeImages",), 100, 20, EC2),
    Quota("EC2 CreateTags", ("ec2:CreateTags",), 100, 10, EC2),
    Quota("EC2 DeleteTags", ("ec2:DeleteTags",), 100, 10, EC2),
    # "Publish API throttling per account": Oregon and Ireland; 30,000 in N. Virginia.
    Quota("SNS Publish", ("sns:Publish",), 9000, 9000, SNS),
    Quota("EKS DescribeCluster", ("eks:DescribeCluster",), 100, 20, EKS, is_published=False),
    # "Throttles API requests based on a shared API bucket", of no published size.
    Quota("Auto Scaling, all calls", ("autoscaling:*",), 100, 20, AUTO_SCALING, is_published=False),
)

SMALL_REGIONS = (
    Quota("Step Functions StateTransition, other regions", ("states:StateTransition",), 800, 800, STEP_FUNCTIONS),
    Quota("Step Functions StartExecution, other regions", ("states:StartExecution",), 800, 150, STEP_FUNCTIONS),
    Quota("Step Functions DescribeExecution, other regions", ("states:DescribeExecution",), 250, 10, STEP_FUNCTIONS),
    Quota("Step Functions ListExecutions, other regions", ("states:ListExecutions",), 100, 2, STEP_FUNCTIONS),
    # 1,500 in eight of them, 300 in "all other supported Regions".
    Quota("SNS Publish, other regions", ("sns:Publish",), 300, 300, SNS),
)


@dataclass(frozen=True)
class Use:
    """The use of a bucket: calls in total, the most in one virtual second, and the highest level of the leaky bucket."""

    quota: Quota
    calls: int
    most_in_a_second: int
    level: float

    @property
    def is_held(self) -> bool:
        """Checks that no call would have been refused."""
        return self.level <= self.quota.size


def use_of(quota: Quota, moments: Iterable[float]) -> Use:
    """Returns the levels of the bucket for calls at these moments (virtual seconds)."""
    ordered = sorted(moments)
    level = highest = 0.0
    most = first = 0
    for position, moment in enumerate(ordered):
        elapsed = moment - ordered[position - 1] if position else 0.0
        level = max(0.0, level - elapsed * quota.refill) + 1
        highest = max(highest, level)
        while moment - ordered[first] >= 1:
            first += 1
        most = max(most, position - first + 1)
    return Use(quota, len(ordered), most, highest)
