"""docs/troubleshooting.md: the causes that it quotes are those that executions end with, and its commands do what it says."""

import json
import re
from pathlib import Path

from docs.pages import Block, Shell, assert_says, blocks, follow_page
from docs.watched import Watched
from prepare import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/recycle-eks-evict"


def quoted(heading: str) -> list[Block]:
    """The texts that are quoted below a heading: blocks of text without a command above."""
    lines = PAGE.read_text().splitlines()
    begin = lines.index(f"## {heading}") + 1
    end = next((number for number, line in enumerate(lines, 1) if number > begin and line.startswith("## ")), len(lines))
    inside = [block for block in blocks(PAGE) if begin < block.line < end]
    return [block for block in inside if block.language == "text" and not block.follows_directly]


def test_every_error_that_is_raised_is_shown_here():
    contract = json.loads((ROOT / "tests" / "contract" / "contract.json").read_text())
    shown = set(re.findall(r'ends\(.*?"(\w+)"', Path(__file__).read_text()))
    tables = (ROOT / "docs" / "inputs-and-outcomes.md").read_text()
    failed = set(re.findall(r"^\| `(\w+)` \| FAILED", tables, re.MULTILINE))
    assert shown == failed == set(contract["failures"]) - {"Superseded"}  # whose execution ends SUCCEEDED


def ends(end, name: str, quote: Block) -> None:
    """The execution has failed under this name, with what the page quotes."""
    assert (end.status, end.error) == ("FAILED", name), end.cause
    assert_says(quote, end.cause)


def test_the_page_begins_with_the_status():
    assert blocks(PAGE)[0].text == "recycle-eks status\n"


def test_a_field_is_misspelt_the_cluster_cannot_be_reached_and_a_member_is_protected(world, node):
    """Nothing of it changes the node, so one is enough for all."""
    (quote,) = quoted("InvalidInput")
    ends(world.recycle(node, lable_selector="app=train").finishes(), "InvalidInput", quote)
    assert world.calls() == []

    (quote,) = quoted("The cluster cannot be reached")
    began, world.kubernetes.proxy.is_reachable = world.clock.elapsed(), False
    end = world.recycle(node).finishes()
    world.kubernetes.proxy.is_reachable = True
    ends(end, "PreflightRefused", quote)
    assert world.seconds("30s") < end.at - began < world.seconds("9m")

    unknown, unauthorised = quoted("Access denied in Kubernetes")
    entries = world.eks.access_entries()
    world.kubernetes.set_access_entries([])
    try:
        ends(world.recycle(node).finishes(), "ServiceUnavailable", unknown)
    finally:
        world.kubernetes.set_access_entries(entries)

    world.kubernetes.must("DELETE", RIGHTS)
    try:
        ends(world.recycle(node).finishes(), "PreflightRefused", unauthorised)
    finally:
        world.kubernetes.apply(world.deployment.outputs["rbac_manifest"])

    (quote,) = quoted("PreflightRefused")
    node.group.protect(node)
    ends(world.recycle(node).finishes(), "PreflightRefused", quote)
    assert world.writes() == []


def test_a_node_object_is_deleted_a_claim_is_removed_and_a_record_is_edited(world):
    lost, unclaimed, edited = (world.group(name, size=2, maximum=4).nodes[0] for name in ("lost", "unclaimed", "workers"))
    executions = []
    for node, job in ((lost, "train"), (unclaimed, "report"), (edited, "index")):
        node.job(job, labels={"app": "train"})
        executions.append(world.recycle(node, label_selector="app=train"))
    world.at("8m", lambda: world.kubernetes.remove_node(lost.name))
    world.at("8m", lambda: unclaimed.record("recycle-eks/claim", None))
    world.at("8m", lambda: edited.record("recycle-eks/record", "mine"))

    of_lost, of_unclaimed, of_edited = (execution.finishes() for execution in executions)

    ends(of_lost, "NodeLost", *quoted("NodeLost"))
    ends(of_unclaimed, "ClaimLost", *quoted("ClaimLost"))
    ends(of_edited, "InternalError", *quoted("InternalError"))


def test_another_node_of_the_group_is_admitted_for_a_day(world, node, job):
    (quote,) = quoted("QueueTimedOut")
    stopped = world.recycle(node, evict="others_and_jobs")
    world.run("1m")
    stopped.stop()
    queued = node.group.nodes[1]
    other = queued.job("other", labels={"app": "train"})
    execution = world.recycle(queued)
    end = execution.finishes()
    ends(end, "QueueTimedOut", quote)
    assert 0 <= execution.entered("RestoreNode")[0] - execution.entered("ClaimNode")[0] - 86_400 <= 2
    assert end.history_events < 4_000
    assert not [key for key in {**queued.annotations, **queued.labels} if key.startswith("recycle-eks/")]
    assert not [key for key in world.instance(queued.instance_id).tags if key.startswith("recycle-eks:")]
    assert not queued.unschedulable and not queued.has_taint("recycle-eks/draining")
    assert (queued.group.states[queued.instance_id], other.phase) == ("InService", "Running")
    assert node.name in end.cause and "recycle-eks/claim" in node.annotations


def test_nothing_is_launched(world, node, job):
    (quote,) = quoted("ReplacementTimedOut")
    node.group.next_launch(fails="We currently do not have sufficient m7i.2xlarge capacity")
    ends(world.recycle(node, label_selector="app=train").finishes(), "ReplacementTimedOut", quote)
    assert not node.unschedulable and job.phase == "Running"


def test_a_budget_never_lets_go(world, node):
    (quote,) = quoted("DrainTimedOut")
    world.budget(node.deployment("web", replicas=2), min_available=2)
    ends(world.recycle(node, drain_timeout=600).finishes(), "DrainTimedOut", quote)


def test_a_group_has_no_place_and_the_commands_of_the_cause_make_one(world, tmp_path):
    (quote,) = quoted("LeftInStandby")
    workers = world.group("workers", size=2, minimum=2, maximum=2)
    node = workers.nodes[0]
    workers.next_launch(fails="We currently do not have sufficient m7i.2xlarge capacity")
    end = world.recycle(node).finishes()
    ends(end, "LeftInStandby", quote)

    shell = Shell(tmp_path / "here", world.environment())
    protected = []
    for command in end.cause.splitlines():
        if command.startswith("for look "):
            protected = protected_members(world)
            world.run(end.at + 300)
        if command.startswith(("aws ", "MEMBERS=", "for ", "state_is", "while ")):
            shell.run(command)
    world.run(end.at + 600)
    assert protected == sorted(workers.states) and protected_members(world) == []
    assert workers.states[node.instance_id] == "InService"
    assert not [key for key in {**node.annotations, **node.labels} if key.startswith("recycle-eks/")]
    assert not [key for key in world.instance(node.instance_id).tags if key.startswith("recycle-eks:")]


def protected_members(world):
    members = world.autoscaling.group("workers").instance_states
    return sorted(member.instance_id for member in members if member.protected_from_scale_in)


def test_the_cluster_goes_away_for_good(world, node, job):
    (quote,) = quoted("ServiceUnavailable")
    execution = world.recycle(node, label_selector="app=train", drain_timeout=1200)
    world.run("8m")
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=503, times=None)
    ends(execution.finishes(), "ServiceUnavailable", quote)


def test_a_call_is_denied_and_a_taint_is_removed(world, node, job):
    denied, untainted = quoted("ServiceRefused")
    world.faults.refuse("autoscaling:EnterStandby", code="AccessDenied", message="not authorized", status=403)
    ends(world.recycle(node, label_selector="app=train").finishes(), "ServiceRefused", denied)

    execution = world.recycle(node, label_selector="app=train")
    world.run("8m")
    node.kubernetes.remove_taints("recycle-eks/draining")
    job.finishes()
    ends(execution.finishes(), "ServiceRefused", untainted)


def test_every_command_of_the_page_prints_what_it_says(world, cli, node, tmp_path):
    job = node.job("training", labels={"app": "training"})
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    execution = world.recycle(node, label_selector="app=training")
    world.run("5m")
    variables = {"NODE": node.name, "INSTANCE": node.instance_id, "GROUP": "workers", "EXECUTION": execution.arn}
    shell = Watched(cli, tmp_path / "here", {**world.environment(), **variables})

    follow_page(PAGE, shell, {"until": world.run, "stop": lambda _: execution.stop()})

    world.run("30m")
    assert node.group.states[node.instance_id] == "InService"
    assert not node.unschedulable and not node.has_taint("recycle-eks/draining")
    assert not [key for key in {**node.annotations, **node.labels} if key.startswith("recycle-eks/")]
    assert not [key for key in world.instance(node.instance_id).tags if key.startswith("recycle-eks:")]
    assert (job.phase, job.node_name) == ("Running", node.name)
