"""Each field wrong in each way: one clear sentence that names it, and no write call."""

import pytest

GOOD = {"instance_id": "i-0123456789abcdef0", "cluster_name": "world"}

#: (what is wrong, the input, words that the sentence must have)
WRONG = [
    ("no instance", {"cluster_name": "world"}, ["instance_id"]),
    ("no cluster", {"instance_id": GOOD["instance_id"]}, ["cluster_name"]),
    ("unknown field", {**GOOD, "lable_selector": "a=b"}, ["lable_selector", "label_selector"]),
    ("instance of another form", {**GOOD, "instance_id": "web-1"}, ["instance_id", "web-1"]),
    ("instance not text", {**GOOD, "instance_id": 7}, ["instance_id", "7"]),
    ("another cluster", {**GOOD, "cluster_name": "production"}, ["cluster_name", "world", "production"]),
    ("cluster not text", {**GOOD, "cluster_name": ["world"]}, ["cluster_name"]),
    ("bad selector", {**GOOD, "label_selector": "app in train"}, ["label_selector", "app in train"]),
    ("selector not text", {**GOOD, "label_selector": {"app": "train"}}, ["label_selector"]),
    ("namespaces alone", {**GOOD, "namespaces": ["batch"]}, ["namespaces", "label_selector", "*"]),
    ("namespaces not a list", {**GOOD, "label_selector": "*", "namespaces": "batch"}, ["namespaces"]),
    ("bad namespace", {**GOOD, "label_selector": "*", "namespaces": ["Batch Jobs"]}, ["namespaces", "Batch Jobs"]),
    ("evict", {**GOOD, "evict": "all"}, ["evict", "others", "none", "all"]),
    ("replacement", {**GOOD, "replacement": "during"}, ["replacement", "before", "during"]),
    ("dispose", {**GOOD, "dispose": "explode"}, ["dispose", "terminate", "stop", "explode"]),
    ("replacement time-out", {**GOOD, "replacement_timeout": 5}, ["replacement_timeout", "5"]),
    ("replacement time-out text", {**GOOD, "replacement_timeout": "14 minutes"}, ["replacement_timeout", "14 minutes"]),
    ("drain time-out", {**GOOD, "drain_timeout": 2592001}, ["drain_timeout", "from 60s to 30d", "2592001"]),
    ("drain time-out fraction", {**GOOD, "drain_timeout": 60.5}, ["drain_timeout", "60.5"]),
    ("drain time-out in ISO 8601", {**GOOD, "drain_timeout": "PT4H"}, ["drain_timeout", "such as 20h", "PT4H"]),
    ("drain time-out null", {**GOOD, "drain_timeout": None}, ["drain_timeout", "null"]),
    ("on_drain_timeout", {**GOOD, "on_drain_timeout": "panic"}, ["on_drain_timeout", "restore", "panic"]),
    ("terminate without override", {**GOOD, "on_drain_timeout": "terminate"}, ["on_drain_timeout", "terminate", "running_pods"]),
    ("grace", {**GOOD, "load_balancer_grace": -1}, ["load_balancer_grace", "-1"]),
    ("urgency", {**GOOD, "urgency": "high"}, ["urgency", "planned", "high"]),
    ("dry run", {**GOOD, "dry_run": "yes"}, ["dry_run", "true", "yes"]),
    ("override not a list", {**GOOD, "override": "scale_in_protection"}, ["override"]),
    ("override unknown", {**GOOD, "override": ["everything"]}, ["override", "scale_in_protection", "everything"]),
    ("hook with dispose", {**GOOD, "hook": {"name": "drain"}, "dispose": "stop"}, ["hook"]),
    ("after with stop", {**GOOD, "replacement": "after", "dispose": "stop"}, ["replacement", "dispose"]),
    ("a list", [GOOD], ["object"]),
    ("a text", "i-0123456789abcdef0", ["object"]),
]


@pytest.mark.parametrize(("given", "words"), [(g, w) for _, g, w in WRONG], ids=[what for what, _, _ in WRONG])
def test_bad_input_gets_one_clear_sentence_and_touches_nothing(world, given, words):
    end = world.recycle(given).finishes()

    assert (end.status, end.error) == ("FAILED", "InvalidInput")
    for word in words:
        assert word in end.cause, end.cause
    assert end.cause.splitlines()[1:] == ["The node is untouched."]
    assert not world.writes()


def test_an_unknown_instance_is_refused(world):
    end = world.recycle(GOOD).finishes()

    assert (end.status, end.error) == ("FAILED", "PreflightRefused")
    assert GOOD["instance_id"] in end.cause
    assert not world.writes()


def test_an_instance_in_no_group_is_refused(world):
    instance = world.instance_without_group()

    end = world.recycle({"instance_id": instance.id, "cluster_name": "world"}).finishes()

    assert (end.status, end.error) == ("FAILED", "PreflightRefused")
    assert "group" in end.cause
    assert not world.writes()


def test_an_instance_of_another_cluster_is_refused(world):
    node = world.group("elsewhere", size=1, minimum=1, maximum=2, cluster="production").instances[0]

    end = world.recycle({"instance_id": node, "cluster_name": "world"}).finishes()

    assert (end.status, end.error) == ("FAILED", "PreflightRefused")
    assert "production" in end.cause
    assert not world.writes()


def test_an_instance_that_is_gone_ends_already_gone(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    node = workers.nodes[0]
    workers.terminate(node)
    world.run("10m")
    world.forget_calls()

    end = world.recycle(node).finishes()

    assert end.outcome == "already_gone"
    assert not world.writes()
