"""The lines of functions, read as CloudWatch Logs has them."""

import pytest

from world.aws.function_logs import FunctionLogs
from world_tests.test_lambda_host import Account

GROUP = "/aws/lambda/claim-node"


@pytest.fixture
def account():
    account = Account()
    FunctionLogs(account.host)
    account.aws.client("logs").create_log_group(logGroupName=GROUP)
    account.function()
    yield account
    account.host.stop()
    account.aws.stop()


def lines(account, **which):
    found = account.aws.client("logs").filter_log_events(logGroupName=GROUP, **which)
    return [(event["timestamp"], event["message"]) for event in found["events"]], found.get("nextToken")


def test_lines_have_the_virtual_time_of_their_invocation_and_are_read_in_pages(account):
    start = int(account.clock.now() * 1000)
    for number in (1, 2, 3):
        account.succeed({"x": number})
        account.clock.run(limit=account.clock.elapsed() + 60)
    every = [(start + 60_000 * (number - 1), f"event {{'x': {number}}}") for number in (1, 2, 3)]
    assert lines(account) == (every, None)
    # A line can be read more than once.
    first, token = lines(account, limit=2)
    assert first == every[:2] and lines(account, limit=2, nextToken=token) == (every[2:], None)
    assert lines(account, startTime=start + 1, endTime=start + 60_000) == (every[1:2], None)


def test_a_reset_forgets_the_lines(account):
    account.succeed({"x": 1})
    assert len(lines(account)[0]) == 1
    account.aws.reset()
    assert lines(account) == ([], None)
    account.succeed({"x": 2})
    assert [text for _, text in lines(account)[0]] == ["event {'x': 2}"]
