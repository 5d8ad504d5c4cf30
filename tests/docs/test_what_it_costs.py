"""docs/cost.md: its counts. With `-s` the test prints the tables."""

from collections import Counter

from prepare import ROOT

PAGE = ROOT / "docs" / "cost.md"
ENDS = ["1h", "20h"]
TASKS = ["ClaimNode", "StandbyNode", "TaintNode", "CheckPods", "EvictPods", "DetachTerminate", "RestoreNode"]


def count(world, job_ends: str) -> dict[str, int]:
    """Recycles one node, with a job that ends so late."""
    world.reset()
    node = world.group("workers", size=3, minimum=2, maximum=4).nodes[0]
    job = node.job("training", labels={"app": "training"})
    web = node.deployment("web", replicas=3)
    world.budget(web, min_available=2)
    node.daemon_set("log-shipper")
    world.at(job_ends, job.finishes)
    execution = world.recycle(node, label_selector="app=training")
    end = execution.finishes()
    assert end.outcome == "recycled", end.cause
    retries = sum(len(execution.errors(task)) for task in TASKS)
    return {
        "state transitions (states entered, and retries)": len(execution.path) + retries,
        "invocations of functions": sum(execution.path.count(task) for task in TASKS) + retries,
        "history events, of 25,000": end.history_events,
    }


def count_calls(world) -> list[str]:
    """Returns a row for each function that took part in the last recycle: its invocations, and its calls.

    A function's process asks for its cluster once, so these calls depend on what ran before, and do not count."""
    invocations = Counter(sample.function for sample in world.host.samples)
    calls = Counter(
        (call.function, call.action.startswith("kubernetes:")) for call in world.aws.calls if call.action != "eks:DescribeCluster"
    )
    return [
        f"| `{name.removeprefix('recycle-eks-')}` | {invocations[name]:,} | {calls[name, True]:,} | {calls[name, False]:,} |"
        for name in sorted(invocations)
    ]


def test_the_page_has_the_counts(world):
    counts = [count(world, job_ends) for job_ends in ENDS]
    rows = [f"| {what} | " + " | ".join(f"{each[what]:,}" for each in counts) + " |" for what in counts[0]]
    rows += count_calls(world)
    print("\n".join(["", *rows]))
    text = PAGE.read_text()
    assert [row for row in rows if row not in text] == []
