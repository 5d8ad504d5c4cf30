"""docs/cost.md: its figures. With `-s` the test prints the table."""

from prepare import ROOT

PAGE = ROOT / "docs" / "cost.md"
ENDS = ["1h", "20h"]
TASKS = ["ClaimNode", "StandbyNode", "TaintNode", "CheckPods", "EvictPods", "DetachTerminate", "RestoreNode"]


def count(world, job_ends: str) -> dict[str, int]:
    """Returns the calls of one recycle, with a job that ends so late."""
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


def test_the_page_has_the_counts(world):
    counts = [count(world, job_ends) for job_ends in ENDS]
    rows = [f"| {what} | " + " | ".join(f"{each[what]:,}" for each in counts) + " |" for what in counts[0]]
    print("\n".join(["", *rows]))
    text = PAGE.read_text()
    assert [row for row in rows if row not in text] == []
