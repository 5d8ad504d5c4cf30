"""Plays many questions at once: each in its group, all in one thread, with one description of all groups for each check."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from probe.account import Account
from probe.cleanup import RUNNING, CleanUp
from probe.group import Group, NotAnswered
from probe.question import Play, Question, Value
from probe.resources import Impossible, Resources
from probe.state import State

#: Seconds between two counts of the instances of removed groups.
COUNT = 30.0
#: Seconds without a running question after which the waiting ones are given up: instances that do not end take their room.
MOST_IDLE = 1_200.0
#: Seconds in which AWS may refuse to describe the groups before their questions are given up.
MOST_BLIND = 300.0


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
        #: The time of the first of the descriptions that AWS has refused in a row.
        self._blind_since: float | None = None

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
                # A refused count is made again. Without one for long, `_give_up` ends the waiting questions.
                with contextlib.suppress(ClientError, BotoCoreError):
                    self._count_leaving()

    def _admit(self, waiting: list[Question]) -> None:
        for question in list(waiting):
            busy = self._leaving + sum(each.question.instances for each in self._running)
            if busy and busy + question.instances > self._most:
                continue
            waiting.remove(question)
            created = len(self._state.created)
            try:
                group = self._resources.group(question)
            except Impossible:
                raise
            except Exception as error:
                self._not_begun(question, f"its group could not be created: {in_words(error)}")
                # AWS may have created it nevertheless.
                self._remove_groups([name for kind, name in self._state.created[created:] if kind == "group"], question)
                continue
            self._say(f"{question.name}: begins, in {group.name}")
            self._running.append(Running(question, group, question.play(group), self._account.clock.now()))

    def _give_up(self, waiting: list[Question]) -> None:
        problem = f"no room: {self._leaving} instances of other questions did not end within {MOST_IDLE / 60:.0f} minutes"
        for question in waiting:
            self._not_begun(question, problem)
        waiting.clear()

    def _not_begun(self, question: Question, problem: str) -> None:
        """A question that has no group is a finding, too. The other questions go on."""
        no_group = Group(self._account, "", question.setup)
        self._state.note_finding(question.name, describe(question, no_group, None, problem))
        self._say(f"{question.name}: {problem}")

    def _next_check(self) -> float:
        """Returns the time. If groups that go are all there is, their instances are looked for again after a while."""
        return min((each.due for each in self._running), default=self._account.clock.now() + 15)

    def _look(self) -> None:
        """Shows each group what AWS says of it. A strange answer ends its question. If AWS refuses for long, all end."""
        now = self._account.clock.now()
        try:
            described = self._describe_groups()
        except (ClientError, BotoCoreError) as error:
            self._blind_since = now if self._blind_since is None else self._blind_since
            if now >= self._blind_since + MOST_BLIND:
                for each in list(self._running):
                    self._conclude(each, None, f"its group was not described for {MOST_BLIND / 60:.0f} minutes: {error}")
            return
        self._blind_since = None
        for each in list(self._running):
            if each.group.name in described:
                try:
                    each.group.see(described[each.group.name])
                except Exception as error:
                    self._conclude(each, None, in_words(error))

    def _describe_groups(self) -> dict[str, dict[str, Any]]:
        names = [each.group.name for each in self._running]
        if not names:
            return {}
        pages = self._account.client("autoscaling").get_paginator("describe_auto_scaling_groups")
        found = pages.paginate(AutoScalingGroupNames=names)
        return {group["AutoScalingGroupName"]: group for page in found for group in page["AutoScalingGroups"]}

    def _step(self, running: Running) -> None:
        """A question that fails ends alone, whatever it fails with."""
        value = problem = None
        try:
            running.due = self._account.clock.now() + next(running.play)
            return
        except StopIteration as end:
            value = end.value
        except Exception as error:
            problem = in_words(error)
        self._conclude(running, value, problem)

    def _conclude(self, running: Running, value: Value | None, problem: str | None) -> None:
        self._running.remove(running)
        try:
            finding = describe(running.question, running.group, value, problem)
        except (ClientError, BotoCoreError) as error:
            problem = f"its activities were not described: {error}"
            finding = describe(running.question, running.group, None, problem)
        self._state.note_finding(running.question.name, finding)
        self._say(f"{running.question.name}: {problem or finding['found']}")
        self._remove_groups([running.group.name], running.question)
        # Detached members do not end with their group.
        for instance in sorted({seen.instance for seen in running.group.history}):
            self._cleanup.remove("instance", instance)

    def _remove_groups(self, names: list[str], question: Question) -> None:
        for name in names:
            self._leaving += question.instances
            self._going.append(name)
            self._cleanup.remove("group", name)

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


def in_words(error: Exception) -> str:
    """The answer of AWS, or the defect of a question."""
    return str(error) if isinstance(error, NotAnswered | ClientError | BotoCoreError) else repr(error)


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
