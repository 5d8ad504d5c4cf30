"""The run that docs/dashboard.svg is drawn from."""

import json

from dashboard.svg import draw
from dashboard.widgets import read_widgets
from prepare import ROOT
from world.deployment import CLUSTER
from world.world import World

PICTURE = ROOT / "docs" / "dashboard.svg"
DAYS = 3


def draw_a_run(world: World) -> str:
    """Nodes that are recycled, one that waits 20 hours for its job, one that is blocked and goes back, one that is refused."""
    started = world.clock.now()
    live_through(world)
    (name,) = [each["DashboardName"] for each in world.aws.client("cloudwatch").list_dashboards()["DashboardEntries"]]
    body = json.loads(world.aws.client("cloudwatch").get_dashboard(DashboardName=name)["DashboardBody"])
    assert name.endswith(CLUSTER)
    return draw(read_widgets(body, world.metrics), started, started + DAYS * 86_400)


def live_through(world: World) -> None:
    workers = world.group("workers", size=4, minimum=2, maximum=8)
    plain, long, blocked, protected = workers.nodes
    train = long.job("train", labels={"app": "train"})
    web = blocked.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    workers.protect(protected)
    world.let_sweep()
    world.at("2h", lambda: world.recycle(plain))
    world.at("6h", lambda: world.recycle(long, label_selector="app=train"))
    world.at("30h", lambda: world.recycle(protected))
    world.at("32h", lambda: world.recycle(blocked, drain_timeout_seconds=36_000))
    world.at("26h", train.finishes)
    world.run(f"{DAYS}d")
