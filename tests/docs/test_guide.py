"""docs/guide.md: each of its parts from the first command to the last, with the real command line."""

import pytest

from docs.pages import follow_page
from docs.watched import Watched
from prepare import ROOT
from world.aws.identity import ACCOUNT, PARTITION, REGION

PAGE = ROOT / "docs" / "guide.md"


@pytest.fixture
def part(world, cli, tmp_path):
    """Runs the part of the page below a heading."""

    def run(heading, actions=None, **environment):
        _, _, rest = PAGE.read_text().partition(f"\n## {heading}\n")
        page = tmp_path / PAGE.name
        page.write_text(rest.partition("\n## ")[0])
        shell = Watched(cli, tmp_path / "here", {**world.environment(), **environment})
        follow_page(page, shell, {"until": world.run, "pace": lambda time: shell.goes_at(world.seconds(time)), **(actions or {})})

    return run


@pytest.fixture
def subscribed(world):
    """The topic has a subscriber, and the sweep has run, so nothing is missing."""
    topics = world.aws.client("sns")
    queue = f"arn:{PARTITION}:sqs:{REGION}:{ACCOUNT}:recycle-eks-dead-letters"
    topic = world.deployment.outputs["notification_topic_arn"]
    subscription = topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)["SubscriptionArn"]
    world.sweep().finishes()
    yield
    topics.unsubscribe(SubscriptionArn=subscription)


def test_the_first_node(world, part, subscribed):
    node = world.group("workers", size=3, minimum=2, maximum=4).nodes[0]
    world.at("1h", node.job("training", labels={"app": "training"}).finishes)
    world.budget(node.deployment("web", replicas=3), min_available=2)
    node.daemon_set("log-shipper")

    part("The first node", NODE=node.name)

    assert not node.exists


def test_the_first_rotation(world, part):
    workers = world.group("workers", size=3, minimum=2, maximum=4)
    before = workers.instances
    second = sorted(workers.nodes, key=lambda node: node.instance_id)[1]
    world.at("2h", second.job("training", labels={"app": "training"}).finishes)

    part("The first rotation", {"template": lambda _: workers.gets_a_new_template()})

    assert not set(before) & set(workers.instances)


def test_the_day_of_an_upgrade(world, part):
    workers = world.group("workers", size=3, minimum=2, maximum=4, kubelet="v1.34.1-eks-0000000")

    def gets_the_new_image(_):
        workers.gets_a_new_template(ImageId="ami-1e749f67")
        workers.kubelet = "v1.35.4-eks-0000000"

    part("The day of an EKS upgrade", {"image": gets_the_new_image})


def test_something_is_stuck(world, part):
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.job("training", labels={"app": "training"})
    world.budget(node.deployment("web", replicas=2), min_available=2)
    world.let_sweep()
    world.recycle(node, label_selector="app=training")
    world.run("10m")

    part("Something is stuck", NODE=node.name)

    assert not node.unschedulable


def test_it_failed(world, part):
    for node in world.group("workers", size=2, minimum=1, maximum=4).nodes:
        node.job(f"training-{node.name}", labels={"app": "training"})
    recycle = {"label_selector": "app=training", "drain_timeout": 3600}
    rotation = world.rotate({"outdated": {"all": True}}, at_once=1, recycle=recycle)
    assert rotation.finishes().error == "RotationFailed"

    part("It failed")


def test_everything_is_stopped_and_restored(world, part):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    jobs = [node.job(f"training-{number}", labels={"app": "training"}) for number, node in enumerate(workers.nodes)]
    before = workers.instances
    world.let_sweep()
    world.rotate({"outdated": {"all": True}}, at_once=1, recycle={"label_selector": "app=training"})
    world.run("20m")

    part("Stop everything and restore it")

    assert not [node for node in workers.nodes if node.unschedulable or node.has_taint("recycle-eks/draining")]
    assert set(before) <= set(workers.instances) and [job.phase for job in jobs] == ["Running"] * 2
