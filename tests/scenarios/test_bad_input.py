"""Each field wrong in each way: one clear sentence that names it, and no write call."""

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
    ("evict", {**GOOD, "evict": "every"}, ["evict", "others", "none", "every"]),
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
    ("hook with stop", {**GOOD, "hook": {"name": "drain"}, "dispose": "stop"}, ["hook"]),
    ("hook with detach", {**GOOD, "hook": {}, "dispose": "detach"}, ["hook"]),
    ("after with stop", {**GOOD, "replacement": "after", "dispose": "stop"}, ["replacement", 'allows only dispose "terminate"']),
    ("after with detach", {**GOOD, "replacement": "after", "dispose": "detach"}, ['allows only dispose "terminate"']),
    ("a list", [GOOD], ["object"]),
    ("a text", "i-0123456789abcdef0", ["object"]),
]


def test_bad_input_gets_one_clear_sentence_and_touches_nothing(world):
    for what, given, words in WRONG:
        end = world.recycle(given).finishes()

        assert (end.status, end.error) == ("FAILED", "InvalidInput"), what
        for word in words:
            assert word in end.cause, (what, end.cause)
        assert end.cause.splitlines()[1:] == ["The node is untouched."], what
        assert not world.writes(), what


def test_an_instance_that_is_not_to_be_recycled_is_refused_or_already_gone(world):
    workers = world.group("workers", size=2, minimum=1, maximum=3)
    gone = workers.nodes[0]
    workers.terminate(gone)
    world.run("10m")
    elsewhere = world.group("elsewhere", size=1, minimum=1, maximum=2, cluster="production").instances[0]
    refused = {
        "is unknown": (GOOD["instance_id"], GOOD["instance_id"], ""),
        "is in no group": (world.instance_without_group().id, "group", ""),
        "is of another cluster": (elsewhere, "production", "another_cluster: "),
    }
    world.forget_calls()

    for what, (instance, word, beginning) in refused.items():
        end = world.recycle({"instance_id": instance, "cluster_name": "world"}).finishes()
        assert (end.status, end.error) == ("FAILED", "PreflightRefused"), what
        assert word in end.cause and end.cause.startswith(beginning), (what, end.cause)
    assert world.recycle(gone).finishes().outcome == "already_gone"
    assert not world.writes()
