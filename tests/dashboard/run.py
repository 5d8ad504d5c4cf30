"""The run that docs/dashboard.svg and docs/messages.md are made of; `busy.py` has the numbers of docs/dashboard-200-nodes.svg."""

import json
from pathlib import Path

from dashboard import busy
from dashboard.insights import Entry
from dashboard.messages import steady, write_page
from dashboard.svg import draw
from dashboard.widgets import read_widgets
from prepare import ROOT
from world.deployment import CLUSTER
from world.world import World

PICTURE = ROOT / "docs" / "dashboard.svg"
CROWDED = ROOT / "docs" / "dashboard-200-nodes.svg"
MESSAGES = ROOT / "docs" / "messages.md"
DAYS = 1


def live_through(world: World) -> None:
    """One node is recycled, one waits three hours for its job, one is blocked and restored, one is refused, one stays in
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
    world.at("5h", train.finishes)
    world.at("13h", lambda: world.recycle(protected))
    world.at("14h", lambda: world.recycle(blocked, drain_timeout=3_600))
    world.at("15h", lambda: world.recycle(fixed, label_selector="app=index", drain_timeout=3_600))
    world.run(f"{DAYS}d")


def pages(world: World) -> dict[Path, str]:
    """All pages, after the run."""
    cloudwatch = world.aws.client("cloudwatch")
    (name,) = [each["DashboardName"] for each in cloudwatch.list_dashboards()["DashboardEntries"]]
    assert f"-{CLUSTER}-" in name
    body = json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])
    began = world.clock.now() - world.clock.elapsed()
    end = began + DAYS * 86_400
    picture = draw(read_widgets(body, world.metrics, entries(world)), began, end)
    crowded = draw(read_widgets(body, busy.measure(began), busy.log(began)), began, end)
    return {PICTURE: picture, CROWDED: crowded, MESSAGES: write_page(world.all_notifications)}


def entries(world: World) -> list[Entry]:
    """The lines of JSON in the functions' logs. A metric has the virtual time, a decision gets that of its execution's end."""
    found = []
    for function in world.host.functions_with_logs():
        for text in world.host.logs(function).splitlines():
            if not text.startswith("{"):
                continue
            line = json.loads(steady(text))
            if "_aws" in line:
                moment = line["_aws"]["Timestamp"] / 1000
            elif execution := json.loads(text).get("execution"):
                moment = world.engine.execution(execution).stop or world.clock.now()
            else:
                continue
            found.append(Entry(moment, f"/aws/lambda/{function}", line))
    return found
