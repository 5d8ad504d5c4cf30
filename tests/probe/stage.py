"""Plays many questions at once: each in its group, all in one thread, with one description of all groups for each check."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from probe.account import Account
from probe.cleanup import RUNNING, CleanUp
from probe.group import Group, NotAnswered
from probe.question import Play, Question, Value
from probe.resources import Resources
from probe.state import State

#: Seconds between two counts of the instances of removed groups.
COUNT = 30.0
#: Seconds without a running question after which the waiting ones are given up: instances that do not end take their room.
MOST_IDLE = 1_200.0


@dataclass
class Running:
    """A question that is being played. `due` is the time of its next check."""

    question: Question
    group: Group
    play: Play
    due: float


class Stage:
    """`most_instances` is the most instances that may run at once."""

    def __init__(self, account: Account, state: State, resources: Resources, most_instances: int, say: Callable[[str], None]):
        self._account, self._state, self._resources, self._say = account, state, resources, say
        self._most = most_instances
        self._cleanup = CleanUp(account, [state.run])
        self._running: list[Running] = []
        #: Groups that are being removed, and the number of their instances.
        self._going: list[str] = []
        self._leaving = 0
        #: Instances that belonged to no running question at the last count.
        self._strays: set[str] = set()
        self._counted = 0.0

    def run(self, questions: list[Question]) -> None:
        """Plays the questions that the state does not answer yet, the longest first."""
        waiting = sorted((q for q in questions if not self._state.is_answered(q.name)), key=lambda q: -q.minutes)
        busy = self._account.clock.now()
        while waiting or self._running:
            self._admit(waiting)
            if self._running:
                busy = self._account.clock.now()
            elif self._account.clock.now() >= busy + MOST_IDLE:
                self._give_up(waiting)
            self._account.clock.sleep(max(0.0, self._next_check() - self._account.clock.now()))
            self._look()
            now = self._account.clock.now()
            for running in [each for each in self._running if each.due <= now]:
                self._step(running)
            if (self._leaving or self._going) and now >= self._counted + COUNT:
                self._counted = now
                self._count_leaving()

    def _admit(self, waiting: list[Question]) -> None:
        for question in list(waiting):
            busy = self._leaving + sum(each.question.instances for each in self._running)
            if busy and busy + question.instances > self._most:
                continue
            waiting.remove(question)
            group = self._resources.group(question)
            self._say(f"{question.name}: begins, in {group.name}")
            self._running.append(Running(question, group, question.play(group), self._account.clock.now()))

    def _give_up(self, waiting: list[Question]) -> None:
        problem = f"no room: {self._leaving} instances of other questions did not end within {MOST_IDLE / 60:.0f} minutes"
        for question in waiting:
            no_group = Group(self._account, "", question.setup)
            self._state.note_finding(question.name, describe(question, no_group, None, problem))
            self._say(f"{question.name}: {problem}")
        waiting.clear()

    def _next_check(self) -> float:
        """Returns the time. If groups that go are all there is, their instances are looked for again after a while."""
        return min((each.due for each in self._running), default=self._account.clock.now() + 15)

    def _look(self) -> None:
        names = [each.group.name for each in self._running]
        if names:
            pages = self._account.client("autoscaling").get_paginator("describe_auto_scaling_groups")
            found = pages.paginate(AutoScalingGroupNames=names)
            described = {group["AutoScalingGroupName"]: group for page in found for group in page["AutoScalingGroups"]}
            for each in self._running:
                if each.group.name in described:
                    each.group.see(described[each.group.name])

    def _step(self, running: Running) -> None:
        """A question that fails ends alone, whatever it fails with."""
        value = problem = None
        try:
            running.due = self._account.clock.now() + next(running.play)
            return
        except StopIteration as end:
            value = end.value
        except (NotAnswered, ClientError) as error:
            problem = str(error)
        except Exception as error:
            problem = repr(error)
        self._conclude(running, value, problem)

    def _conclude(self, running: Running, value: Value | None, problem: str | None) -> None:
        self._running.remove(running)
        finding = describe(running.question, running.group, value, problem)
        self._state.note_finding(running.question.name, finding)
        self._say(f"{running.question.name}: {problem or finding['found']}")
        self._leaving += running.question.instances
        self._going.append(running.group.name)
        self._cleanup.remove("group", running.group.name)
        # Detached members do not end with their group.
        for instance in sorted({seen.instance for seen in running.group.history}):
            self._cleanup.remove("instance", instance)

    def _count_leaving(self) -> None:
        """EC2 counts an instance in the quota until it has terminated. Groups and instances that did not go are removed again."""
        groups = [thing.identifier for thing in self._cleanup.listed("group")]
        self._going = [name for name in self._going if name in groups]
        for name in self._going:
            self._cleanup.remove("group", name)
        every = self._cleanup.instances([*RUNNING, "shutting-down"])
        strays = {each["InstanceId"] for each in every if each["State"]["Name"] in RUNNING and not self._is_played(each)}
        # A new instance may not show its group yet, so it has to be a stray twice.
        for instance in sorted(strays & self._strays):
            self._cleanup.remove("instance", instance)
        self._strays = strays
        members = {instance for each in self._running for instance in each.group.states}
        self._leaving = len({each["InstanceId"] for each in every} - members)

    def _is_played(self, instance: dict[str, Any]) -> bool:
        """Returns whether a running question has the instance in its group, or had it there."""
        groups = {each.group.name for each in self._running}
        seen = {seen.instance for each in self._running for seen in each.group.history}
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        return instance["InstanceId"] in seen or tags.get("aws:autoscaling:groupName") in groups


def describe(question: Question, group: Group, value: Value | None, problem: str | None) -> dict[str, Any]:
    """Returns what is written down of a question."""
    finding: dict[str, Any] = {
        "question": question.asks,
        "row": question.row,
        "switch": question.switch,
        "expectation": question.answer(question.expected).text,
        "expected": question.expected,
        "value": value,
        "problem": problem,
        "at": datetime.datetime.fromtimestamp(group.account.clock.now(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(group.elapsed()),
        "calls": group.calls,
        "seen": [[round(seen.at, 1), seen.instance, seen.state] for seen in group.history],
        "activities": [] if problem else [_short(each, group.began) for each in group.activities()],
    }
    if value is not None:
        answer = question.answer(value)
        finding |= {"found": answer.text, "consequence": answer.consequence, "setting": question.setting(value)}
        finding["agrees"] = value == question.expected
    return finding


def _short(activity: dict[str, Any], began: float) -> dict[str, Any]:
    return {
        "at": round(activity["StartTime"].timestamp() - began, 1),
        "what": activity["Description"],
        "cause": activity["Cause"],
        "status": activity["StatusCode"],
    }
