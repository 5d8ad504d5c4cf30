"""The resources of a run, its time, and its cost."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from probe import rebalance
from probe.account import PREFIX, TAG, Account
from probe.question import Question

#: Dollars an hour in eu-west-1, by AWS's list of 2026, and virtual processors.
PRICES = {"t4g.nano": 0.0046, "t3.nano": 0.0057, "t3a.nano": 0.0051, "t2.nano": 0.0063}
#: Dollars an hour for the smallest disk of an instance.
DISK = 0.001
#: "Running On-Demand Standard instances" in Service Quotas, counted in virtual processors. The smallest types have two.
QUOTA, PROCESSORS = "L-1216C47A", 2
#: Minutes for the removal at the end.
REMOVAL = 4.0


def minutes(questions: list[Question], most_instances: int) -> float:
    """Returns how long the questions take at most, played as `Stage` plays them."""
    waiting = sorted(questions, key=lambda each: -each.minutes)
    running: list[tuple[float, int]] = []
    now = 0.0
    while waiting:
        busy = sum(instances for _, instances in running)
        fits = next((each for each in waiting if not busy or busy + each.instances <= most_instances), None)
        if fits is not None:
            waiting.remove(fits)
            running.append((now + fits.minutes, fits.instances))
        else:
            now = min(end for end, _ in running)
            running = [each for each in running if each[0] > now]
    return max((end for end, _ in running), default=now) + REMOVAL


def instance_hours(questions: list[Question]) -> float:
    return sum(each.instances * (each.minutes + 1) for each in questions) / 60


def cost(questions: list[Question], instance_type: str) -> float | None:
    """Returns dollars, or None for a type without a known price."""
    if instance_type not in PRICES:
        return None
    more = rebalance.PRICE * rebalance.MINUTES if any(each.needs == "--rebalance" for each in questions) else 0.0
    return instance_hours(questions) * (PRICES[instance_type] + DISK) + more


def announcement(account: Account, number: str, questions: list[Question], instance_type: str, most_instances: int) -> str:
    price = cost(questions, instance_type)
    money = f"about ${price:.2f} (list prices of eu-west-1, 2026)" if price is not None else "its price is not known here"
    also = [", one IAM role, one experiment of AWS Fault Injection Service"] if any(each.needs for each in questions) else []
    return "\n".join(
        [
            f"Account {number}, region {account.region}. The probe asks {len(questions)} questions. It creates:",
            f"  {len(questions)} Auto Scaling groups with {instance_type}, at most {most_instances} instances at once,",
            f"  one or two launch templates, one queue, one rule of EventBridge{''.join(also)}.",
            f"  Names begin with {PREFIX}. The things that the probe creates have the tag {TAG}. No cluster is touched.",
            f"Time:  at most {minutes(questions, most_instances):.0f} minutes.",
            f"Cost:  {money}, for {instance_hours(questions):.1f} hours of instances.",
            "At the end it removes everything, also after Ctrl-C. If the machine dies: make probe ARGS=--clean-up",
        ]
    )


def limit_by_quota(account: Account, wanted: int, questions: list[Question]) -> tuple[int, list[Question]]:
    """Returns how many instances may run at once by the account's quota, and the questions that need more than it allows. Spot
    Instances do not count in it, instances of other owners do."""
    try:
        answer = account.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=QUOTA)
    except (ClientError, BotoCoreError):
        return wanted, []
    allowed = int(answer["Quota"]["Value"]) // PROCESSORS
    return min(wanted, allowed), [each for each in questions if each.instances > allowed and not each.setup.spot]
