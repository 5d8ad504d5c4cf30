"""A group of two nodes for scenarios that need no other one. A file may have its own."""

import pytest


@pytest.fixture
def workers(world):
    return world.group("workers", size=2, minimum=1, maximum=4)


@pytest.fixture
def node(workers):
    return workers.nodes[0]


@pytest.fixture
def job(node):
    return node.job("train", labels={"app": "train"})
