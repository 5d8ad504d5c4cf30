"""Asks an AWS account what its documentation leaves open. docs/probe.md describes it.

make probe [ARGS="--region eu-west-1 --yes"]
make probe ARGS=--validate-only
make probe ARGS="--cluster NAME --group NAME"
make probe ARGS=--clean-up
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from probe import cluster, plan, report, validators
from probe.account import Account
from probe.cleanup import CleanUp
from probe.documents import newest_record, read_documents
from probe.question import QUESTIONS, Question
from probe.questions import events, hooks, leaving, spot, standby  # noqa: F401 (each of them adds its questions)
from probe.rebalance import Rebalance
from probe.resources import Impossible, Resources
from probe.stage import Stage
from probe.state import State

TARGET = Path(__file__).resolve().parents[2] / "target"
FOLDER, RECORDS = TARGET / "probe", TARGET / "world"
#: Exit codes. UNFINISHED: a question has no answer, or a resource is left. REFUSED: the arguments or the account do not fit.
UNFINISHED, REFUSED, INTERRUPTED = 1, 2, 130


def read_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make probe", description="Asks an AWS account what its documentation leaves open.")
    parser.add_argument("--region", help="else the region of the AWS configuration")
    parser.add_argument("--yes", action="store_true", help="do not ask before anything is created or removed")
    parser.add_argument("--only", action="append", metavar="QUESTION", help=f"one or more of: {', '.join(QUESTIONS)}")
    parser.add_argument("--rebalance", action="store_true", help="ask about Capacity Rebalancing, too: about $0.50 and a role")
    parser.add_argument("--instance-type", default="t4g.nano")
    parser.add_argument("--subnets", type=lambda text: text.split(","), metavar="SUBNET,SUBNET", help="else the default ones")
    parser.add_argument("--at-once", type=int, default=16, metavar="N", help="the most instances at once")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the state and the findings")
    parser.add_argument("--new", action="store_true", help="forget the findings of an earlier run")
    parser.add_argument("--validate-only", action="store_true", help="create nothing, and ask AWS's validators instead")
    parser.add_argument("--record", type=Path, help="with --validate-only: a recorded deployment, else the newest one")
    parser.add_argument("--cluster", help="recycle one node of this cluster by the installed command line, and check it")
    parser.add_argument("--group", help="with --cluster: the Auto Scaling group of the node")
    parser.add_argument("--clean-up", action="store_true", help="list what all runs have left, ask, and remove it")
    return parser.parse_args(arguments)


def main(arguments: list[str], account: Account | None = None, ask: Callable[[str], str] = input) -> int:
    given = read_arguments(arguments)
    account = account or Account(given.region)
    if account.region is None:
        print("no region is configured: name it by --region", file=sys.stderr)
        return REFUSED
    try:
        if given.clean_up:
            return clean_up_all(account, given, ask)
        if given.validate_only:
            return validate(account, given)
        if given.cluster:
            return recycle(account, given, ask)
        return run(account, given, ask)
    except (Impossible, ClientError, BotoCoreError) as problem:
        print(problem, file=sys.stderr)
        return REFUSED


def clean_up(account: Account, runs: list[str], experiments: bool) -> int:
    left = CleanUp(account, runs, experiments, print).everything()
    print(f"still there: {', '.join(left)}" if left else "nothing of the probe is left in the account")
    return UNFINISHED if left else 0


def clean_up_all(account: Account, given: argparse.Namespace, ask: Callable[[str], str]) -> int:
    """Removes everything of all runs that are there now. A run that begins later keeps its things."""
    things = CleanUp(account, None, experiments=True).look()
    runs = sorted({thing.run for thing in things})
    for run in runs:
        print(f"run {run}: {', '.join(str(thing) for thing in things if thing.run == run)}")
    if things and not given.yes:
        print("A run that still goes on loses all this, also if it is of another person.")
        if ask("Remove it? Type yes: ").strip() != "yes":
            print("nothing was removed")
            return REFUSED
    code = clean_up(account, runs, experiments=True)
    state = State.read(given.folder / "state.json")
    if code == 0 and state is not None and (state.account, state.region) == (account.identity(), account.region):
        state.note_removed()
    return code


def validate(account: Account, given: argparse.Namespace) -> int:
    record = given.record or newest_record(RECORDS)
    if record is None:
        raise Impossible(f"there is no recorded deployment in {RECORDS}: make scenario FILE=tests/scenarios/test_first_node.py")
    calls = validators.read_calls(given.folder / "calls.json")
    checks = []
    for check in validators.check_everything(account, read_documents(record), calls):
        checks.append(check)
        verdict = {True: "ok", False: "PROBLEM", None: "not asked"}[check.ok]
        print(f"{verdict:9}  {check.validator:30}  {check.subject}{f': {check.detail}' if check.detail else ''}")
    given.folder.mkdir(parents=True, exist_ok=True)
    file = given.folder / "validated.json"
    file.write_text(json.dumps([asdict(each) for each in checks], indent=1) + "\n")
    count = Counter(each.ok for each in checks)
    print(f"{count[True]} ok, {count[False]} problems, {count[None]} not asked; wrote {file}. Nothing was created.")
    return 0 if all(each.ok for each in checks) else UNFINISHED


def recycle(account: Account, given: argparse.Namespace, ask: Callable[[str], str]) -> int:
    if given.group is None:
        raise Impossible("--cluster needs the Auto Scaling group of the node: --group NAME")
    one = cluster.Recycle(account, cluster.reader(account, given.cluster), given.cluster, given.group, cluster.run_command)
    print(one.announcement())
    if not given.yes and ask("Go on? Type yes: ").strip() != "yes":
        print("nothing was changed")
        return REFUSED
    verdicts = []
    for verdict in one.verdicts():
        verdicts.append(verdict)
        print(f"{'ok' if verdict.ok else 'PROBLEM':7}  {verdict.what}{f': {verdict.detail}' if verdict.detail else ''}")
    return 0 if all(each.ok for each in verdicts) else UNFINISHED


def run(account: Account, given: argparse.Namespace, ask: Callable[[str], str]) -> int:
    state = open_state(account, given)
    questions = [each for each in choose(given) if not state.is_answered(each.name)]
    code = 0
    if questions:
        most, too_big = plan.limit_by_quota(account, given.at_once, questions)
        if too_big:
            print(f"The quota for instances is too small for these questions: {', '.join(each.name for each in too_big)}.")
            questions, code = [each for each in questions if each not in too_big], UNFINISHED
    if questions:
        print(plan.announcement(account, state.account, questions, given.instance_type, most))
        if not given.yes and ask("Go on? Type yes: ").strip() != "yes":
            print("nothing was created")
            return REFUSED
        code = play(account, state, given, questions, most) or code
    print(report.text_table(state.findings.values(), shutil.get_terminal_size((160, 40)).columns))
    if any(each["problem"] for each in state.findings.values()):
        print("Some questions are not answered. The same command asks them again.")
        return code or UNFINISHED
    return code


def play(account: Account, state: State, given: argparse.Namespace, questions: list[Question], most: int) -> int:
    """Plays them, writes the findings, and removes everything, whatever happens."""
    experiments = state.has_created("role") or any(each.needs for each in questions)
    check = CleanUp(account, [state.run], experiments)
    check.look()
    if check.unlisted:
        raise Impossible(f"the probe could not remove what it creates: {'; '.join(check.unlisted.values())}")
    state.write()
    code, kinds = 0, {}
    try:
        if state.created:
            print("removing what an earlier attempt has left")
            if not CleanUp(account, [state.run], experiments, print).everything():
                state.note_removed()
        resources = Resources(account, state, given.instance_type, given.subnets)
        inbox = resources.collect_events()
        if any(each.needs for each in questions):
            account.recommend_rebalance = account.recommend_rebalance or Rebalance(account, state).recommend
        Stage(account, state, resources, most, print).run(questions)
        inbox.read()
        kinds = inbox.summary()
    except KeyboardInterrupt:
        print("interrupted: what is answered is kept, and everything is removed now")
        code = INTERRUPTED
    finally:
        removed = clean_up(account, [state.run], state.has_created("role"))
    if removed == 0:
        state.note_removed()
    for file in report.write(state, kinds, given.folder):
        print(f"wrote {file}")
    return code or removed


def open_state(account: Account, given: argparse.Namespace) -> State:
    """Returns the state of the run that is continued, or of a new one. Nothing is written before the questions begin."""
    file, number = given.folder / "state.json", account.identity()
    state = State.read(file)
    if given.new and state is not None and state.created:
        raise Impossible(
            f"the run {state.run} has left things in account {state.account}, region {state.region}: "
            f'make probe ARGS="--region {state.region} --clean-up"'
        )
    if given.new or state is None:
        now = datetime.datetime.fromtimestamp(account.clock.now(), datetime.UTC)
        return State(file, f"{now:%Y%m%d-%H%M%S}", str(account.region), number, f"{now:%Y-%m-%dT%H:%M:%SZ}")
    if (state.account, state.region) != (number, account.region):
        raise Impossible(f"{file} is of account {state.account} in {state.region}: use --new, or another --folder")
    return state


def choose(given: argparse.Namespace) -> list[Question]:
    unknown = [name for name in given.only or [] if name not in QUESTIONS]
    if unknown:
        raise Impossible(f"unknown question {', '.join(unknown)}: make probe ARGS=--help lists them")
    chosen = [QUESTIONS[name] for name in given.only or QUESTIONS]
    return [each for each in chosen if each.needs is None or given.rebalance]


def end_by_signals() -> None:
    """Lets SIGTERM and SIGHUP end the probe as Ctrl-C does, so that it removes everything."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` starts a program so that it ignores SIGHUP.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


def interrupt(number: int, _: object) -> None:
    if number == signal.SIGHUP:
        # The terminal is gone, and to print there would fail.
        sys.stdout = sys.stderr = open(os.devnull, "w")
    raise KeyboardInterrupt


if __name__ == "__main__":
    end_by_signals()
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted during the removal: run make probe ARGS=--clean-up", file=sys.stderr)
        sys.exit(INTERRUPTED)
