"""A question about Capacity Rebalancing. It costs more than all others, so it is asked only with an option."""

from __future__ import annotations

from probe.group import Group, NotAnswered
from probe.question import Answer, Play, Setup, question


@question(
    asks="A rebalance recommendation for a Spot member in Standby: does Capacity Rebalancing end it, or launch another one?",
    row=34,
    expected=False,
    answers={
        False: Answer("The group did nothing.", "None. Nothing in the product guards against it."),
        True: Answer("The group ended the member in Standby.", "Refuse replacement: before where Capacity Rebalancing is on."),
        "launches": Answer("The group launched one more instance.", "A drain of a Spot node can cost one extra instance."),
    },
    switch="capacity_rebalancing_ends_standby",
    setup=Setup(minimum=1, desired=1, maximum=3, spot=True),
    instances=3,
    minutes=9,
    needs="--rebalance",
)
def capacity_rebalancing(group: Group) -> Play:
    (old,) = yield from group.until_in_service(1)
    yield from group.until_standby(old)
    if group.account.recommend_rebalance is None:
        raise NotAnswered("no rebalance recommendation can be sent")
    before = group.mark()
    group.account.recommend_rebalance(old)
    yield from group.watch(180, ends_early=lambda: group.states.get(old) != "Standby")
    if group.states.get(old) != "Standby":
        return True
    return "launches" if group.launched(before) else False
