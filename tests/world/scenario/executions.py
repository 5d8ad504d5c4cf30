"""Executions of the deployed state machines, as a scenario handles them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from world.base.clock import seconds
from world.stepfunctions.engine import Engine
from world.stepfunctions.executions import Execution as EngineExecution

#: An execution may take this long, in virtual seconds, before a scenario gives it up: the longest drain and a day more.
PATIENCE = 31 * 86_400


@dataclass(frozen=True)
class End:
    """The end of an execution."""

    status: str
    outcome: str | None
    """The outcome's name, if it SUCCEEDED."""
    output: Any
    error: str | None
    cause: str
    at: float
    """Virtual seconds since the scenario began."""
    history_events: int

    @property
    def groups(self) -> dict[str, dict[str, Any]]:
        """The reports of a rotation's groups by their names, from its output or its error's cause."""
        return {group["group"]: group for group in (self.output or json.loads(self.cause))["groups"]}


class Execution:
    """One execution of the state machine."""

    def __init__(self, engine: Engine, arn: str) -> None:
        self._engine = engine
        self.arn = arn

    @property
    def _execution(self) -> EngineExecution:
        return self._engine.execution(self.arn)

    @property
    def status(self) -> str:
        """RUNNING, SUCCEEDED, FAILED, ABORTED or TIMED_OUT."""
        return self._execution.status

    def finishes(self, within: str | float = PATIENCE) -> End:
        """Lets time pass until it has ended."""
        limit = self._engine.clock.elapsed() + seconds(within)
        self._engine.clock.run(until=lambda: self.status != "RUNNING", limit=limit)
        ended = self._execution
        output = ended.output
        return End(
            status=ended.status,
            outcome=output.get("outcome") if isinstance(output, dict) else None,
            output=output,
            error=ended.error,
            cause=ended.cause or "",
            at=ended.stop - self._engine.clock.start,
            history_events=len(ended.events),
        )

    def stop(self) -> None:
        """A person stops it."""
        self._engine.stop_execution(self.arn)

    def redrive(self) -> None:
        """A person redrives it: it goes on where it ended."""
        self._engine.redrive_execution(self.arn)

    @property
    def steps(self) -> list[tuple[float, str]]:
        """The states that it entered, each with the moment in virtual seconds since the scenario began."""
        return [
            (event["timestamp"] - self._engine.clock.start, event["stateEnteredEventDetails"]["name"])
            for event in self._execution.events
            if "stateEnteredEventDetails" in event
        ]

    @property
    def path(self) -> list[str]:
        """The names of the states that it entered."""
        return [name for _, name in self.steps]

    def entered(self, state: str) -> list[float]:
        """Returns the times at which it entered a state, in virtual seconds since the scenario began."""
        return [moment for moment, name in self.steps if name == state]

    def answers(self, state: str) -> list[Any]:
        """Returns the answers of a Task state, one for each success: the payload of a function, or the result of another call."""
        results = [json.loads(event["taskSucceededEventDetails"]["output"]) for event in self._events(state, "TaskSucceeded")]
        return [result.get("Payload", result) for result in results]

    def errors(self, state: str) -> list[str]:
        """The names of the errors that the attempts at a Task state failed with, including those that were tried again."""
        failed = self._events(state, "TaskFailed", "TaskTimedOut")
        return [next(value for key, value in event.items() if key.endswith("EventDetails"))["error"] for event in failed]

    def _events(self, state: str, *kinds: str) -> list[dict[str, Any]]:
        """The events of these kinds that belong to a state: each leads back to the one with which its state was entered."""
        history = self._execution.events
        found = []
        for event in history:
            if event["type"] in kinds:
                origin = event
                while "stateEnteredEventDetails" not in origin:
                    origin = history[origin["previousEventId"] - 1]
                if origin["stateEnteredEventDetails"]["name"] == state:
                    found.append(event)
        return found
