"""`recycle-eks report`: the history of a real execution, as JSON, as a page in a real browser, and as a support bundle."""

import json
import re

from world.aws.identity import ACCOUNT
from world.process.browser import look


def test_a_report_has_the_history_of_the_execution_and_its_page_is_whole_in_every_window(world, cli, tmp_path):
    """A drain of forty minutes in which a budget blocks for a while."""
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    train = node.job("train-with-a-name-that-is-longer-than-a-phone-is-wide", labels={"app": "train"})
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)
    world.at("20m", lambda: world.kubernetes.must("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"))
    world.at("40m", train.finishes)
    execution = world.recycle(node, label_selector="app=train")
    assert execution.finishes().outcome == "recycled"

    printed = cli("report", execution.arn, "--output", "json", pace=0)
    assert printed.code == 0, printed.errors
    report = printed.document["node"]
    summary = report["summary"]
    assert (summary["outcome"], summary["execution"]) == ("recycled", execution.arn)
    assert (report["node"], report["instance"], report["group"]) == (node.name, node.instance_id, "workers")
    assert summary["events"] == len(world.engine.history(execution.arn))
    assert report["polls"] == len(execution.answers("CheckPods"))
    stages = [(span["what"], span["since"], span["until"]) for span in report["stages"]]
    assert [stage for stage, _, _ in stages] == ["queue", "replacement", "drain", "disposal"]
    assert all(one[2] == other[1] for one, other in zip(stages, stages[1:], strict=False))
    (awaited,) = [span for span in report["pods"] if span["what"]["class"] == "awaited"]
    assert awaited["until"] >= "2027-01-01T00:40:00Z"
    (blocked,) = report["blocked"]
    assert "web" in blocked["what"][0] and blocked["until"] >= "2027-01-01T00:20:00Z"
    # The notification has cut the reason of the budget. The report has it in full.
    assert world.all_notifications[1]["blocks"][0].endswith("…") and re.search(r"has \d currently .*web-", blocked["what"][0])
    assert report["replacement"] in world.groups["workers"].instances
    assert [each["event"] for each in report["notifications"]] == ["started", "blocked", "finished"]

    # The page is whole on a phone and on a desk, by day and by night.
    page = tmp_path / "report.html"
    printed = cli("report", execution.arn.rpartition(":")[2], "--file", str(page), pace=0)
    assert (printed.code, printed.text.split()) == (0, ["wrote", f"{page}:", "the", "report", "of", execution.arn]), (
        printed.errors
    )

    light, dark = "rgb(255, 255, 255)", "rgb(16, 21, 27)"
    for width, scheme, background in ((400, "light", light), (1400, "dark", dark), (400, "dark", dark), (1400, "light", light)):
        seen = look(page, width, scheme)
        assert seen["said"] == seen["requests"] == seen["overlapping"] == seen["cut"] == seen["broken_links"] == []
        assert not seen["wider_than_the_screen"]
        assert node.name in seen["title"] and "recycled" in seen["text"]
        assert seen["headings"] == [node.name, "Stages", "Pods over time", "Pods", "Blockers", "Notifications"]
        assert len(seen["captions"]) == 4 and all(seen["pictures"])
        assert len(re.findall(r"^\d\d:\d\d$", seen["text"], re.MULTILINE)) >= 2, seen["text"]
        assert [bar["stage"] for bar in seen["bars"]] == ["queue", "replacement", "drain", "disposal"]
        assert all(bar["width"] >= 2 and bar["height"] > 10 for bar in seen["bars"]), seen["bars"]
        assert len({bar["colour"] for bar in seen["bars"]}) == 4
        assert seen["background"] == background


def test_a_rotation_has_a_row_for_each_node_that_links_to_its_history(world, cli, tmp_path):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    instances = [node.instance_id for node in workers.nodes]
    given = {"trigger": "event", "selection": {"instance_ids": instances}, "event": {"id": "one"}}
    world.aws.client("stepfunctions").start_execution(
        stateMachineArn=world.deployment.outputs["rotate_state_machine_arn"], input=json.dumps(given)
    )
    (rotation,) = world.executions("rotate-nodes")
    assert rotation.finishes().outcome == "started"
    for execution in world.executions():
        assert execution.finishes().outcome == "recycled"

    printed = cli("report", rotation.arn, "--output", "json", pace=0)
    nodes = printed.document["rotation"]["nodes"]
    assert {node["instance"] for node in nodes} == set(instances)
    assert [node["summary"]["outcome"] for node in nodes] == ["recycled"] * 2
    page = tmp_path / "rotation.html"
    assert cli("report", rotation.arn, "--file", str(page), pace=0).code == 0
    # The next test has the other two.
    for width, scheme in ((400, "light"), (1400, "dark")):
        seen = look(page, width, scheme)
        assert seen["said"] == seen["requests"] == seen["overlapping"] == seen["cut"] == seen["broken_links"] == []
        assert not seen["wider_than_the_screen"] and len(seen["bars"]) > 8


def test_a_report_of_a_rotation_by_groups_has_the_nodes_of_every_group(world, cli, tmp_path):
    """Their executions are found in the histories of the Distributed Map's children."""
    groups = [world.group(name, size=size, minimum=1, maximum=4) for name, size in (("api", 1), ("batch", 2))]
    instances = {instance for group in groups for instance in group.instances}
    assert cli("pause", "batch", pace=0).code == 0
    rotation = world.rotate({"outdated": {"all": True}})
    world.run("1h")
    assert cli("resume", "batch", pace=0).code == 0
    assert rotation.finishes().outcome == "rotated"

    report = cli("report", rotation.arn, "--output", "json", pace=0).document["rotation"]
    paused = report["waits"][0]
    assert (paused["group"], paused["nodes"]) == ("batch", 2) and "paused" in paused["why"]
    assert 3500 < paused["seconds"] < 5000 and paused["until"]
    assert report["summary"]["outcome"] == "rotated" and report["selection"] == {"outdated": {"all": True}}
    nodes = report["nodes"]
    assert {node["instance"] for node in nodes} == instances
    assert sorted((node["group"], node["summary"]["outcome"]) for node in nodes) == [
        ("api", "recycled"),
        ("batch", "recycled"),
        ("batch", "recycled"),
    ]
    assert all(node["replacement"] for node in nodes) and report["groups"][0].startswith("group api: 1 recycled")
    page = tmp_path / "rotation.html"
    assert cli("report", "--last", "--file", str(page), pace=0).code == 0
    for width, scheme in ((400, "dark"), (1400, "light")):
        seen = look(page, width, scheme)
        assert seen["said"] == seen["requests"] == seen["overlapping"] == seen["cut"] == seen["broken_links"] == []
        assert not seen["wider_than_the_screen"]
        assert all(node["node"] in seen["text"] for node in nodes) and "rotated" in seen["text"]
        assert "3 nodes were replaced. The rotation took" in seen["text"] and "all nodes" in seen["text"]
        assert seen["headings"][:5] == ["Rotation", "Groups", "Waits before the start of a node", "Timeline", "Nodes"]

    # A node is found by its instance, and by the name of its Node, which is gone.
    for name in (nodes[1]["instance"], nodes[1]["node"]):
        found = cli("report", name, "--output", "json", pace=0)
        assert found.code == 0 and found.document["node"]["summary"]["execution"] == nodes[1]["summary"]["execution"], name


def test_a_failed_rotation_says_in_words_what_failed_and_how_the_node_was_restored(world, cli, tmp_path):
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.job("train", labels={"app": "train"})
    rotation = world.rotate({"outdated": {"all": True}}, recycle={"label_selector": "app=train", "drain_timeout": 600})
    assert rotation.finishes().error == "RotationFailed"

    report = cli("report", "--last", "--output", "json", pace=0).document["rotation"]
    assert report["summary"]["execution"] == rotation.arn
    assert "1 failed" in report["summary"]["reason"] and "{" not in report["summary"]["reason"]
    page = tmp_path / "rotation.html"
    assert cli("report", rotation.arn, "--file", str(page), pace=0).code == 0
    seen = look(page, 400, "dark")
    assert seen["said"] == seen["requests"] == seen["overlapping"] == seen["cut"] == seen["broken_links"] == []
    assert "1 node was restored after a failure" in seen["text"] and "{" not in seen["text"]
    assert {"Failures", "Longest waits"} <= set(seen["headings"])
    assert "DrainTimedOut" in seen["text"] and "default/train" in seen["text"] and "is in service" in seen["text"]
    assert "drain_timeout 600, label_selector app=train" in seen["text"]


def test_a_running_execution_is_reported_so_far_and_an_argument_that_is_none_is_refused_by_name(world, cli, tmp_path):
    for wanted in ("nobody", "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-sweep:one"):
        printed = cli("report", wanted, pace=0)
        assert printed.code == 2 and "EXECUTION must be" in printed.errors and wanted in printed.errors
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    node.job("train", labels={"app": "train"})
    execution = world.recycle(node, dry_run=True)
    execution.finishes()
    printed = cli("report", execution.arn, "--file", str(tmp_path / "nowhere" / "page.html"), pace=0)
    assert printed.code == 2 and "--file must be" in printed.errors
    plan = json.loads(cli("report", execution.arn, "--output", "json", pace=0).text)["node"]["plan"]
    assert any("Standby" in step for step in plan)

    execution = world.recycle(node, label_selector="app=train")
    world.run("10m")
    report = cli("report", execution.arn, "--output", "json", pace=0).document["node"]
    assert report["summary"]["outcome"] == "running" and report["summary"]["ended_at"] is None
    assert (report["stages"][-1]["what"], report["stages"][-1]["until"]) == ("drain", None)


def read_bundle(file):
    """A bundle, which has neither the account id nor a token."""
    text = file.read_text()
    assert ACCOUNT not in text and "k8s-aws-v1." not in text
    return json.loads(text)


def test_a_bundle_has_histories_logs_records_and_findings_without_account_ids_and_tokens(world, cli, tmp_path):
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    job = node.job("train", labels={"app": "train"})
    # A token that an operator has pasted into the wrong place.
    node.annotate("recycle-eks/drain-until", "k8s-aws-v1.aHR0cHM6Ly9zdHM")
    execution = world.recycle(node, label_selector="app=train")
    world.run("10m")
    file = tmp_path / "bundle.json"
    printed = cli("report", node.name, "--bundle", str(file), pace=0)
    assert file.stat().st_mode & 0o077 == 0, "only its owner reads a bundle"
    assert printed.code == 0 and printed.text.startswith(f"wrote {file}: the support bundle of {execution.arn}"), printed
    assert "missing" not in printed.text
    bundle = read_bundle(file)
    assert bundle["version"] and bundle["execution_arn"] == execution.arn.replace(ACCOUNT, "111122223333")
    (history,) = bundle["histories"]
    assert len(history["events"]) == len(world.engine.history(execution.arn))
    assert history["execution"]["input"]["instance_id"] == node.instance_id
    logs = {each["log_group"]: each for each in bundle["logs"]}
    assert len(logs) == 13 and all(each["cut"] is None for each in logs.values())
    for function in ("claim-node", "check-pods"):
        lines = logs[f"/aws/lambda/recycle-eks-{function}"]["lines"]
        assert len(lines) == len(world.host.logs(f"recycle-eks-{function}").splitlines()), function
        assert all("2027-01-01T00:00:00Z" <= line["at"] <= "2027-01-01T00:10:00Z" for line in lines)
        assert any(node.instance_id in line["line"] for line in lines)
    (records,) = bundle["records"]["instances"]
    assert json.loads(records["lease"]["annotations"]["recycle-eks/claim"])["phase"] in ("draining", "waiting")
    assert "recycle-eks/progress" in records["node"]["annotations"]
    assert records["node"]["annotations"]["recycle-eks/drain-until"] == "[removed]"
    assert [taint["key"] for taint in records["node"]["taints"]] == ["recycle-eks/draining"]
    assert "recycle-eks:claim" in records["instance"]["tags"]
    assert bundle["doctor"]["level"] and any(finding["check"] == "function" for finding in bundle["doctor"]["findings"])

    # A file is never overwritten.
    before = file.read_text()
    printed = cli("report", node.name, "--bundle", str(file), pace=0)
    assert printed.code == 2 and f"--bundle must be a new file, but {file} exists" in printed.errors
    assert file.read_text() == before
    printed = cli("report", "--last", "--bundle", str(tmp_path / "nowhere" / "bundle.json"), pace=0)
    assert printed.code == 2 and "--bundle must be a file in a folder that exists" in printed.errors

    # Afterwards there are no records.
    job.finishes()
    assert execution.finishes().outcome == "recycled"
    printed = cli("report", "--last", "--bundle", str(tmp_path / "after.json"), "--output", "json", pace=0)
    assert printed.document == {"bundle": str(tmp_path / "after.json"), "execution_arn": execution.arn, "missing": []}
    (records,) = read_bundle(tmp_path / "after.json")["records"]["instances"]
    assert records["lease"] is records["node"] is None


def test_a_bundle_of_a_rotation_has_every_history_and_a_part_that_cannot_be_read_says_why(world, cli, tmp_path):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    instances = workers.instances
    rotation = world.rotate({"outdated": {"all": True}})
    assert rotation.finishes().outcome == "rotated"
    # The right is missing, and the cluster is away.
    world.faults.refuse("logs:FilterLogEvents", code="AccessDeniedException", message="not you", status=400, times=None)
    world.faults.refuse("kubernetes:*", code="ServiceUnavailable", status=503, times=None)
    file = tmp_path / "bundle.json"
    printed = cli("report", "--last", "--bundle", str(file), pace=0)
    assert printed.code == 0 and printed.text.count("missing in it: the log lines of /aws/") == 13, printed
    bundle = read_bundle(file)
    started = [history["execution"]["input"].get("instance_id") for history in bundle["histories"]]
    # The rotation, its group, and the executions of the nodes.
    assert len(started) == 4 and set(started) == {None, *instances}
    assert all("AccessDeniedException: not you" in each["missing"] for each in bundle["logs"])
    assert [each["instance_id"] for each in bundle["records"]["instances"]] == sorted(instances)
    assert bundle["records"]["cluster_is_away"] and bundle["doctor"]["level"] == "problem"
