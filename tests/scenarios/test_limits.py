"""The limits of Step Functions and Lambda, counted on the real machine: events of the history, bytes of the answers."""

import itertools
import json
import re

import pytest

from prepare import ROOT

TASKS = ["ClaimNode", "StandbyNode", "TaintNode", "CheckPods", "EvictPods", "DetachTerminate", "RestoreNode"]
#: Step Functions ends an execution at 25,000 events; 1,900 are for retries.
ROOM = 23_100
HOUR = 3_600
#: The most checks of an execution, from the crate that counts a drain of 30 days, and its most notifications in 30 days.
CHECKS = int(re.search(r"POLL_BUDGET: u32 = ([\d_]+);", (ROOT / "crates/recycle/src/base/poll.rs").read_text())[1])
NOTIFICATIONS = 33
#: Events, as in the tests of the poll law: of a check (nine, and five more with an eviction), of a notification, of all else.
CHECK, NOTIFICATION, REST = 14, 7, 200


@pytest.mark.any_replacement
def test_the_history_has_room_for_30_days_of_evictions_at_every_check_and_a_restore(world):
    workers = world.group("workers", size=2, minimum=2, maximum=4)
    node = workers.nodes[0]
    web = node.deployment("web", replicas=2)
    world.budget(web, min_available=2)

    execution = world.recycle(node, drain_timeout=HOUR)
    end = execution.finishes()

    assert (end.status, end.error) == ("FAILED", "DrainTimedOut"), end
    assert "The node was restored" in end.cause
    checks = len(execution.entered("CheckPods"))
    assert len(execution.entered("EvictPods")) >= checks - 1 > 100
    # Its start, that it is blocked, its end; each further day, that it is blocked.
    sent = len([name for name in execution.path if name.startswith("Notify")])
    assert 3 <= sent <= 4 and len(world.all_notifications) == sent
    assert end.history_events - CHECK * checks - NOTIFICATION * sent < REST
    # No check costs more than the first, apart from a notification in it.
    entered = [event for event in world.engine.history(execution.arn) if "stateEnteredEventDetails" in event]
    names = [event["stateEnteredEventDetails"]["name"] for event in entered]
    checked = [number for number, name in enumerate(names) if name == "CheckPods"]
    for this, following in itertools.pairwise(checked):
        notified = any(name.startswith("Notify") for name in names[this:following])
        cost = entered[following]["id"] - entered[this]["id"]
        assert cost <= CHECK + NOTIFICATION * notified, (names[this:following], cost)
    assert CHECK * CHECKS + NOTIFICATION * NOTIFICATIONS + REST < ROOM


@pytest.mark.any_replacement
def test_every_answer_stays_below_8_kb_with_40_pods_of_the_longest_names(world):
    node = world.group("workers", size=2, minimum=1, maximum=4).nodes[0]
    awaited = [node.bare_pod(f"{'w' * 243}{number:010}", restart_policy="Never") for number in range(20)]
    for number in range(20):
        node.bare_pod(f"{'e' * 243}{number:010}", annotations={"recycle-eks/drain": "evict"})
    world.at("10m", lambda: [pod.finishes() for pod in awaited])

    execution = world.recycle(node)
    end = execution.finishes()

    assert end.outcome == "recycled"
    answers = [(task, answer) for task in TASKS for answer in execution.answers(task)]
    assert {task for task, _ in answers} == set(TASKS) - {"RestoreNode"}
    assert [task for task, answer in answers if len(json.dumps(answer, separators=(",", ":")).encode()) > 8_192] == []
