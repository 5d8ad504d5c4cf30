"""`recycle-eks status`, `pause` and `abort --all`: what an operator at night asks, and how all of it is stopped."""

import json
import re

import jq
import jsonschema
import referencing

from prepare import ROOT
from world.deployment import CLUSTER

SCHEMA = json.loads((ROOT / "docs" / "status.schema.json").read_text())
WATCH = json.loads((ROOT / "docs" / "watch.schema.json").read_text())
#: The programs of the page that show what `jq` makes of the document.
OF_THE_PAGE = re.findall(
    r"^recycle-eks status --output json \| jq (?:-r )?'(.+)'$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE
)
REGISTRY = referencing.Registry().with_resource("status.schema.json", referencing.Resource.from_contents(SCHEMA))


VALIDATE = jsonschema.Draft202012Validator(WATCH, registry=REGISTRY, format_checker=jsonschema.FormatChecker()).validate


def document(cli, pace=60):
    """The JSON of `status`, which has the form of the schema."""
    printed = cli("status", "--output", "json", pace=pace)
    jsonschema.validate(printed.document, SCHEMA, format_checker=jsonschema.FormatChecker())
    return printed.document


def watched(printed):
    """The documents of a watch, each with the name of its form in the schema."""
    documents = [json.loads(line) for line in printed.text.splitlines()]
    for each in documents:
        VALIDATE(each)
    forms = {"pods": "node", "rotations": "rotation", "watched": "left", "state": "restore"}
    return documents, {forms[key] for each in documents for key in each if key in forms}


def test_every_document_of_a_watch_has_the_form_of_its_schema(world, cli, node):
    world.at("20m", node.job("train", labels={"app": "train"}).finishes)
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    world.at("10m", lambda: world.kubernetes.must("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"))
    documents, forms = watched(cli("recycle", node.name, "-l", "app=train", "-o", "json"))
    assert forms == {"node"} and documents[-1]["outcome"] == "recycled" and documents[-1]["exit"] == 0
    assert {"awaited", "blocked", "gone"} <= {state for each in documents for state in each["pods"].values()}

    documents, forms = watched(cli("rotate", "--all", "--yes", "-o", "json", pace=120))
    assert forms == {"rotation"} and (documents[-1]["outcome"], documents[-1]["exit"]) == ("rotated", 0)
    assert {"done"} == {each["step"] for each in documents[-1]["nodes"]}

    other = node.group.nodes[-1]
    other.job("other", labels={"app": "train"})
    watching = cli.start("recycle", other.name, "-l", "app=train", "-o", "json")
    watching.sees("awaited")
    documents, forms = watched(watching.is_interrupted())
    assert forms == {"node", "left"} and documents[-1]["execution_arn"] == world.executions()[-1].arn

    world.let_sweep()
    watching = cli.start("abort", "--yes", other.name, "-o", "json")
    watching.sees("state")
    documents, forms = watched(watching.is_interrupted())
    assert forms == {"restore", "left"} and documents[-1]["instance_id"] == other.instance_id
    world.wait("20m")
    documents, forms = watched(cli("restore", "--all", "-o", "json"))
    assert forms == {"restore"} and documents[-1]["state"] == "there was nothing to restore"
    # The schedule may have started one since.
    assert documents[-1]["execution_arn"] in [sweep.arn for sweep in world.executions("sweep")]


def test_status_names_the_pods_that_hold_a_node_with_the_reason_of_each_and_the_deadline(world, cli, node):
    node.job("train", labels={"app": "train"})
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    quiet = cli("status")
    assert (quiet.code, quiet.text.strip()) == (0, "no execution works on a node, and no node is to be restored")
    assert document(cli)["nodes"] == []
    execution = world.recycle(node, label_selector="app=train")
    world.wait("10m")

    whole = document(cli)
    (row,) = whole["nodes"]
    pods = [(pod["name"].split("-")[0], pod["state"], pod.get("blocked_by")) for pod in row["pods"]]
    blocked = ("default/web", "blocked", "budget default/web")
    assert pods == [blocked, blocked, ("default/train", "awaited", None)]
    assert row["what"] == "pods: 2 blocked by budget default/web, 1 awaited"
    assert (row["end"], row["started_by"]["kind"]) == ("restore", "other")
    assert (row["instance_id"], row["node"], row["group"], row["step"]) == (node.instance_id, node.name, "workers", "draining")
    assert row["execution_arn"] == execution.arn and row["until"].startswith("2027-01-03T00:")
    assert row["then"] == "the node is restored"
    answers, names_blocked = (jq.compile(program).input_value(whole).all() for program in OF_THE_PAGE)
    pods = [{field: pod.get(field) for field in ("name", "state", "why")} for pod in row["pods"]]
    assert answers == [{**{field: row[field] for field in ("node", "step", "until", "end")}, "pods": pods}]
    assert names_blocked == [node.name]
    table = cli("status").text
    assert table.splitlines()[0].split() == ["GROUP", "NODE", "STEP", "SINCE", "UNTIL", "THEN", "WHAT"]
    assert node.name in table and "░" in table and re.search(r"2027-01-03 00:\d\dZ  restore  pods: ", table)

    for arguments in ([], [node.name], [node.instance_id]):
        printed = cli("status", *arguments)
        assert printed.code == 0, printed
        assert re.search(r"default/train\S*  +awaited  a selector or an annotation asks to wait for it", printed.text), printed
        blocked = r"default/web\S+  +blocked  +by budget default/web for \d+m: The disruption budget web needs 2 healthy pods"
        assert len(re.findall(blocked, printed.text)) == 2, printed
        assert re.search(r"at the end, 2027-01-03 00:\d\dZ: the node is restored", printed.text), printed
        assert "started by a caller of StartExecution" in printed.text
    # The picture of the one node, once.
    assert "✔ ClaimNode ─ ✔ StandbyNode ─ ✔ TaintNode ─ ● CheckPods" in printed.text and "drain ░" in printed.text
    assert f"recycle-eks report {execution.arn.rsplit(':')[-1]}" in printed.text
    other = node.group.nodes[1]
    clean = cli("status", other.name)
    assert clean.code == 0 and "carries no mark of recycle-eks: no execution works on it" in clean.text, clean
    assert cli("status", other.name, "--output", "json").document["nodes"][0]["step"] == "-"

    def show(no_color: str | None) -> str:
        watching = cli.start("status", "--watch", node.name, terminal=True, NO_COLOR=no_color)
        watching.sees("awaited")
        watching.is_interrupted()
        assert watching.ends().code == 130
        return watching.raw

    is_coloured = re.compile(r"\x1b\[(?:\d+;)*3\d")
    assert is_coloured.search(show(None)) and not is_coloured.search(show("1"))

    # Control characters of a node do not reach the terminal.
    other.record("recycle-eks/claim", "\x1b]52;c;ZXZpbA==\x07\u202e")
    shown = cli("status")
    assert "ZXZpbA" in shown.text + shown.errors, shown
    assert not set("\x1b\x07\u202e") & set(shown.text + shown.errors)


def test_the_history_lists_what_failed_with_the_reason_also_by_node_and_by_rotation(world, cli):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    protected, other = workers.nodes
    workers.protect(protected)
    failed = world.recycle(protected)
    assert failed.finishes().error == "PreflightRefused"
    rotation = world.rotate({"instance_ids": [other.instance_id]})
    assert rotation.finishes().outcome == "rotated"

    quiet = cli("status")
    assert quiet.code == 0 and "no execution works on a node, and no node is to be restored" in quiet.text
    assert "in the last 24 hours 1 execution ended badly" in quiet.text and "recycle-eks status --history" in quiet.text
    assert [each["execution_arn"] for each in document(cli)["failed_executions"]] == [failed.arn]

    everything = cli("status", "--history")
    assert everything.code == 0, everything
    (line,) = [line for line in everything.text.splitlines() if other.instance_id in line]
    assert "recycled" in line, line
    (line,) = [line for line in everything.text.splitlines() if "PreflightRefused" in line]
    assert protected.instance_id in line and "scale_in_protection" in line
    assert len([line for line in everything.text.splitlines() if re.match(r"2027-", line)]) == 3
    by_node = cli("status", "--history", protected.name, "--output", "json").document["executions"]
    assert [(each["execution_arn"], each["outcome"]) for each in by_node] == [(failed.arn, "PreflightRefused")]
    by_rotation = cli("status", "--history", rotation.arn, "--output", "json").document["executions"]
    assert {each["instance_id"] for each in by_rotation} == {other.instance_id, None}
    assert {each["outcome"] for each in by_rotation} == {"rotated", "recycled"}
    # The node is gone, but not its history: by its instance, by the name of its Node, and by the name of its execution.
    (child,) = [each["execution_arn"].rpartition(":")[2] for each in by_rotation if each["instance_id"]]
    for name in (other.instance_id, other.name, child):
        gone = cli("status", "--history", name, "--output", "json")
        assert gone.code == 0 and [each["outcome"] for each in gone.document["executions"]] == ["recycled"], gone
    # A name that the list prints is accepted everywhere.
    name = rotation.arn.rpartition(":")[2]
    assert cli("status", "--history", name, "--output", "json").document["executions"] == by_rotation
    watched_again = cli("status", "--watch", name)
    assert watched_again.code == 0 and "rotated: 1 recycled, 0 failed, 0 skipped" in watched_again.text, watched_again
    alone = cli("status", name)
    assert alone.code == 2 and f"recycle-eks status --watch {name}" in alone.errors, alone
    unknown = cli("status", "--history", "ip-10-9-9-9.internal")
    assert unknown.code == 2 and "no node" in unknown.errors, unknown


def test_a_pause_is_visible_everywhere_and_names_the_queued_nodes_that_still_go(world, cli):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    first, queued, _ = workers.nodes
    first.job("train", labels={"app": "train"})
    web = first.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    world.recycle(first, label_selector="app=train")
    world.run("5m")
    world.recycle(queued)
    world.run("1m")

    printed = cli("pause", "workers")

    assert printed.code == 0 and "paused workers: rotations start no other node" in printed.text, printed
    assert f"1 queued node will still be recycled, because the executions have begun: {queued.instance_id}" in printed.text
    assert f"recycle-eks abort {queued.instance_id}" in printed.text
    assert "paused: workers. Rotations start no node there" in cli("status").text
    assert document(cli)["paused_groups"] == ["workers"]
    steps = {row["instance_id"]: (row["step"], row["what"]) for row in document(cli)["nodes"]}
    assert steps[queued.instance_id][0] == "queued" and first.name in steps[queued.instance_id][1]
    found = cli("doctor").text
    assert "warning  pause workers: the group is paused" in found, found
    started = cli("rotate", "--all", "--yes", "--no-wait", "--cluster", CLUSTER)
    paused = "group workers is paused: the rotation waits there for a day at most, or until you run: "
    assert f"{paused}recycle-eks resume workers --cluster {CLUSTER}" in started.text, started
    unasked = cli("finish", queued.instance_id)
    assert unasked.code == 8 and "may be disposed of with them: no check has said yet what happens" in unasked.errors, unasked
    assert "workers is paused already" in cli("pause", "workers").text
    assert "resumed workers" in cli("resume", "workers").text
    assert "workers is not paused" in cli("resume", "--all").text
    assert document(cli)["paused_groups"] == []


def test_a_plan_never_looks_like_a_rotation(world, cli):
    world.group("workers", size=2, minimum=1, maximum=4)
    plan = world.rotate({"outdated": {"all": True}}, dry_run=True)

    printed = cli("status", pace=0)
    shown = document(cli, pace=0)

    assert (shown["rotations"], shown["plans"]) == ([], [plan.arn])
    assert "rotation" not in printed.text and "a dry run, which changes nothing" in printed.text, printed
    alone = world.recycle(world.groups["workers"].nodes[0], dry_run=True)
    everything = cli("abort", "--all", pace=0)
    assert everything.code == 0 and "nothing runs that could be stopped" in everything.text, everything
    assert plan.status == "RUNNING" and alone.status != "ABORTED"
    name = plan.arn.rpartition(":")[2]
    aborted = cli("abort", name, pace=0)
    assert aborted.code == 0 and "a plan, which had changed nothing" in aborted.text, aborted
    again = cli("abort", name, pace=0)
    assert again.code == 8 and "has ended already (ABORTED)" in again.errors, again


def test_plans_that_have_ended_are_no_rotations_and_refused_ones_no_failures(world, cli):
    workers = world.group("workers", size=3, minimum=1, maximum=4)
    protected, other, recycled = workers.nodes
    workers.protect(protected)
    real = world.recycle(recycled)
    assert real.finishes().outcome == "recycled"
    world.run("1m")
    assert cli("plan", protected.name).code == 8
    chosen = cli("plan", "--instance", protected.instance_id, "--instance", other.instance_id, "-o", "json").document
    plan = chosen["execution_arn"]
    planned = {node["outcome"] for node in chosen["nodes"]}
    assert (chosen["outcome"], planned) == ("RotationFailed", {"planned", "PreflightRefused"})
    good = cli("plan", "--instance", other.instance_id, "-o", "json").document["execution_arn"]

    printed = cli("status")
    assert printed.code == 0 and "ended badly" not in printed.text, printed
    assert document(cli)["failed_executions"] == []
    listed = cli("status", "--history", "-o", "json").document["executions"]
    assert [each["execution_arn"] for each in listed if not each["is_plan"]] == [real.arn]
    assert not any(each["is_rotation"] for each in listed) and len(listed) == 7
    outcomes = {each["execution_arn"]: (each["outcome"], each["reason"]) for each in listed}
    assert outcomes[good][0] == "planned" and "recycled" not in outcomes[good][1], outcomes
    assert outcomes[plan][0] == "RotationFailed" and "recycled" not in outcomes[plan][1], outcomes
    shown = cli("status", "--history").text
    assert "a rotation" not in shown and "rotated" not in shown and "  recycled  " in shown, shown
    assert len(re.findall(r"  a plan  ", shown)) == 2 and f"plan of {other.instance_id}" in shown, shown
    # A plan of the selection has planned this node, which the name of the execution says.
    children = [each for each in listed if each["instance_id"] == other.instance_id]
    assert [each["outcome"] for each in children] == ["planned"] * 2
    # An execution that found nothing to do is not the last one, either.
    other.is_terminated_in_the_console()
    assert world.recycle(other).finishes().outcome == "already_gone"
    last = cli("report", "--last", "-o", "json").document
    assert last["node"]["summary"]["execution"] == real.arn


def test_everything_is_stopped_and_restored_after_one_question(world, cli):
    groups = [world.group(name, size=2, minimum=1, maximum=4) for name in ("workers", "batch")]
    nodes = [group.nodes[0] for group in groups]
    for number, node in enumerate(nodes):
        node.job(f"train-{number}", labels={"app": "train"})
    world.let_sweep()
    rotation = world.rotate({"instance_ids": [nodes[0].instance_id]}, recycle={"label_selector": "app=train"})
    alone = world.recycle(nodes[1], label_selector="app=train")
    world.run("20m")

    for arguments in (["--all"], [rotation.arn], [nodes[1].name]):
        refused = cli("abort", *arguments)
        assert refused.code == 8 and "--yes" in refused.errors and "sweep then restores" in refused.errors, refused
    assert (rotation.status, alone.status) == ("RUNNING", "RUNNING")
    refused = cli("abort", "--all")
    assert "This stops 1 rotation and 2 executions of nodes." in refused.errors, refused

    printed = cli("abort", "--all", "--yes")

    assert printed.code == 0 and "recycle-eks status --watch" in printed.text, printed
    world.run("90m")
    assert (rotation.status, alone.status) == ("ABORTED", "ABORTED")
    for node in nodes:
        assert not node.unschedulable and "recycle-eks/claim" not in node.annotations
    assert "nothing runs that could be stopped" in cli("abort", "--all").text
    assert "there was nothing to restore" in cli("restore", "--all").text


def test_every_document_of_a_command_that_does_not_watch_has_the_form_of_its_schema(world, cli):
    workers = world.group("workers", size=4, minimum=1, maximum=8)
    for number, node in enumerate(workers.nodes):
        node.job(f"train-{number}", labels={"app": "train"})
    first, second, third, _ = workers.nodes
    hold = ["-l", "app=train", "--no-wait"]

    def keys(*arguments):
        printed = cli(*arguments, "-o", "json")
        VALIDATE(printed.document)
        return printed.code, set(printed.document)

    started, stopped = {"execution_arn"}, {"stopped"}
    of_node = {"instance_id"}
    assert keys("recycle", first.name, *hold) == (0, started | of_node)
    world.wait("10m")
    assert keys("abort", first.name, "--yes", "--no-wait") == (0, stopped | of_node)
    assert keys("rotate", "--instance", second.instance_id, *hold) == (0, started)
    (rotation,) = world.executions("rotate-nodes")
    assert keys("abort", rotation.arn, "--yes") == (0, stopped)
    assert keys("restore", "--all", "--no-wait") == (0, started)
    assert keys("recycle", third.name, *hold) == (0, started | of_node)
    assert keys("abort", "--all", "--yes") == (0, stopped | {"not_stopped"})
    assert keys("abort", "--all", "--yes") == (0, stopped | {"not_stopped"})
    assert keys("status", "no-such-node") == (2, {"error", "exit"})


def test_the_sweep_that_restores_a_node_is_neither_aborted_nor_another_executions(world, cli):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    node = workers.nodes[0]
    node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("5m")
    world.let_sweep()
    execution.stop()
    world.clock.run(until=lambda: "-sweep:" in node.records.get("recycle-eks/claim", ""), limit=world.seconds("1h"))

    refused = cli("abort", node.instance_id, "--yes", pace=0)
    shown = cli("status", node.instance_id, pace=0)
    left = cli("restore", node.instance_id)

    assert refused.code == 8 and f"is restoring node {node.name}" in refused.errors, refused
    assert "it is being restored" in shown.text and "recycle-eks report" not in shown.text, shown
    assert left.code == 0 and "restored: it carries no mark of recycle-eks" in left.text, left
