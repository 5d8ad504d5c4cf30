"""The run that docs/dashboard.svg and docs/messages.md are made of."""

import json
from pathlib import Path

from dashboard.messages import write_page
from dashboard.svg import draw
from dashboard.widgets import read_widgets
from prepare import ROOT
from world.deployment import CLUSTER
from world.world import World

PICTURE = ROOT / "docs" / "dashboard.svg"
MESSAGES = ROOT / "docs" / "messages.md"
DAYS = 1


def live_through(world: World) -> None:
    """One node is recycled, one waits ten hours for its job, one is blocked and restored, one is refused, one stays in
    Standby."""
    workers = world.group("workers", size=4, minimum=2, maximum=8)
    plain, long, blocked, protected = workers.nodes
    fixed = world.group("reserved", size=2, minimum=2, maximum=2).nodes[0]
    train = long.job("train", labels={"app": "train"})
    fixed.job("index", labels={"app": "index"})
    world.budget(blocked.deployment("web", replicas=2), min_available=2)
    workers.protect(protected)
    world.let_sweep()
    world.at("1h", lambda: world.recycle(plain))
    world.at("2h", lambda: world.recycle(long, label_selector="app=train"))
    world.at("12h", train.finishes)
    world.at("13h", lambda: world.recycle(protected))
    world.at("14h", lambda: world.recycle(blocked, drain_timeout=21_600))
    world.at("15h", lambda: world.recycle(fixed, label_selector="app=index", drain_timeout=7_200))
    world.run(f"{DAYS}d")


def pages(world: World) -> dict[Path, str]:
    """Both, after the run."""
    cloudwatch = world.aws.client("cloudwatch")
    (name,) = [each["DashboardName"] for each in cloudwatch.list_dashboards()["DashboardEntries"]]
    assert name.endswith(CLUSTER)
    body = json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])
    began = world.clock.now() - world.clock.elapsed()
    picture = draw(read_widgets(body, world.metrics), began, began + DAYS * 86_400)
    return {PICTURE: picture, MESSAGES: write_page(world.all_notifications)}
