"""A pytest plugin: a test fails if a request to the world's AWS, or an answer of it, is not as AWS's models have it.

A test that makes such a request on purpose says so: `@pytest.mark.not_in_the_models("the error Nonsense")`, with a part of each
sentence. It fails if no such sentence comes.

A request may end after its test, as the function that made it may run on. Then it fails the session, and no other test.

The end of a session sums up all sentences that failed tests, each with the number of tests.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from world.base.shapes import VIOLATIONS

#: The name under which a report has the sentences of its test, also in the report of another process.
PROPERTY = "not in the models"
#: The sentences about requests that ended after their test, by that test; in the controller of pytest-xdist of all workers.
LATE: dict[str, list[str]] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "not_in_the_models(part, …): parts of sentences about requests and answers that AWS does not have"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    VIOLATIONS.begin(item.nodeid)
    return (yield from _watched(item, None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    mark = item.get_closest_marker("not_in_the_models")
    return (yield from _watched(item, list(mark.args) if mark else None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _watched(item, None))


def _watched(item: pytest.Item, expected: list[str] | None) -> Generator[None, Any, Any]:
    try:
        result = yield
    except BaseException:
        found = unexpected(VIOLATIONS.take(), expected or [])
        if found:
            item.add_report_section("call", "AWS's models", told(found))
            item.user_properties += [(PROPERTY, sentence) for sentence in found]
        raise
    taken = VIOLATIONS.take()
    found = unexpected(taken, expected or [])
    item.user_properties += [(PROPERTY, sentence) for sentence in found]
    if found:
        pytest.fail(told(found), pytrace=False)
    missing = [part for part in expected or [] if not any(part in sentence for sentence in taken)]
    if missing:
        pytest.fail(f"no request and no answer was as not_in_the_models says: {missing}", pytrace=False)
    return result


def unexpected(found: dict[str, int], expected: list[str]) -> dict[str, int]:
    return {sentence: count for sentence, count in found.items() if not any(part in sentence for part in expected)}


def told(found: dict[str, int]) -> str:
    """All sentences, each with its count."""
    lines = [f"  {sentence}{f' ({count} times)' if count > 1 else ''}" for sentence, count in found.items()]
    return "\n".join(["Not as AWS's models (botocore) have it:", *lines])


def pytest_sessionfinish(session: pytest.Session) -> None:
    VIOLATIONS.begin("")
    LATE.update(VIOLATIONS.take_late())
    if LATE and hasattr(session.config, "workeroutput"):
        session.config.workeroutput[PROPERTY] = LATE
    elif LATE and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended."""
    LATE.update(getattr(node, "workeroutput", {}).get(PROPERTY, {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    told_by: dict[str, set[str]] = {}
    for test, sentences in LATE.items():
        for sentence in sentences:
            told_by.setdefault(sentence, set()).add(test)
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, sentence in getattr(report, "user_properties", []):
            if name == PROPERTY:
                told_by.setdefault(sentence, set()).add(report.nodeid)
    if told_by:
        terminalreporter.section("not as AWS's models have it")
        for sentence, tests in sorted(told_by.items(), key=lambda each: -len(each[1])):
            terminalreporter.line(f"{len(tests)} test{'s' if len(tests) > 1 else ''}: {sentence}")
