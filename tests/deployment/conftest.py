"""An account for tests of what Terraform reads and creates there, without a Kubernetes control plane."""

from collections.abc import Iterator

import pytest

from world.aws.account import Aws
from world.aws.terraform_gaps import Eks
from world.base.clock import Clock
from world.deployment import CLUSTER


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    """An account and EKS's description of a cluster, with nothing of recycle-eks in them."""
    aws = Aws(Clock())
    eks = Eks(aws)
    aws.start()
    eks.create_cluster(CLUSTER, "https://127.0.0.1", "no certificate")
    yield aws
    aws.stop()
