"""Causes one fault at every place where one is possible, and checks the state of the local world afterwards.

    make campaign                                        all of it, in three processes; goes on where it stopped before
    make campaign ARGS="--only 'before/seed 7'"          the runs whose names begin with these words, from the beginning
    make campaign ARGS="--shard 2/4"                     the second quarter of it, for one of four machines
    make campaign ARGS="--every 30"                      each thirtieth run
    make campaign ARGS=--again                           from the beginning

It ends with 0 if nothing was violated, 1 if something was, 2 if no run has such a name, 130 or 143 if it was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import json
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from campaign.runs import IDLE, Run, all_runs, explored
from prepare import ROOT, TESTS
from world.deployment import ZIPS
from world.world import World

#: The folder of the results, which are written while the campaign runs. A file is named after the code that it tests.
NOTEBOOKS = ROOT / "target" / "campaign"
#: The files that influence the results, besides the functions.
FINGERPRINTED = {".go", ".json", ".mjs", ".mod", ".py", ".tf", ".txt", ".yaml"}
#: On two cores three workers are a fifth faster than two, because a world also waits.
WORKERS = 3


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = read_arguments()
    if given.worker:
        return work(given.worker)
    console = Console(stderr=True)
    code = fingerprint()
    notebook, places = NOTEBOOKS / f"{code}{'.only' * bool(given.only)}.jsonl", NOTEBOOKS / f"{code}.places"
    notebook.parent.mkdir(parents=True, exist_ok=True)
    if given.again:
        places.unlink(missing_ok=True)
    if given.again or given.only:
        notebook.unlink(missing_ok=True)
    began = time.monotonic()
    try:
        results, known = campaign(given, notebook, places, console)
    except LookupError as error:
        print(*error.args, file=sys.stderr)
        return 2
    return sum_up(results, known, time.monotonic() - began)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("make campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="the runs whose names begin so")
    parser.add_argument("--shard", type=read_shard, default=(1, 1), metavar="K/N", help="the Kth of N parts")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth run")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N", help="processes, each with a world of its own")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def read_shard(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"is K/N, with K from 1 to N, not {text!r}")
    return int(number), int(of)


def fingerprint() -> str:
    """Returns the fingerprint of all code that influences the results: functions, state machines, module, this campaign."""
    digest = hashlib.sha256()
    here = [
        *ROOT.glob("state-machine/*.json"),
        *ROOT.glob("terraform/**/*"),
        *TESTS.glob("campaign/*.py"),
        *TESTS.glob("world/**/*"),
        *TESTS.glob("iam/*"),
        *TESTS.glob("requirements*.txt"),
    ]
    tracked = [file for file in here if file.suffix in FINGERPRINTED and ".terraform" not in file.parts]
    for file in sorted([*tracked, *Path(ZIPS).rglob("*.zip")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


class Worker:
    """A process with a world, which makes one run after the other."""

    def __init__(self, places: Path) -> None:
        command = [sys.executable, "-m", "campaign", "--worker", str(places)]
        self._process = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def asked(self, name: str) -> Any:
        """Returns the answer to one line."""
        self._process.stdin.write(json.dumps(name) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the campaign has ended, see above")
        return json.loads(line)

    def ends(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def work(places: Path) -> int:
    """Prints the names of all runs, then makes each run that is requested.

    All processes, and the campaign when it goes on later, read the places of faults from one file. On a busy machine, two
    processes that look for them do not always find the same."""
    # Only answers may go to standard output. All other output goes to standard error.
    answers, sys.stdout = sys.stdout, sys.stderr
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    world = World()
    try:
        world.start()
        if not places.exists():
            fresh = places.with_suffix(".fresh")
            fresh.write_bytes(pickle.dumps(explored(world)))
            fresh.replace(places)
        # The campaign itself has written the file.
        runs = {run.name: run for run in all_runs(pickle.loads(places.read_bytes()))}
        print(json.dumps(list(runs)), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(made(world, runs[json.loads(line)])), file=answers, flush=True)
    finally:
        world.stop()
    return 0


def made(world: World, run: Run) -> dict[str, Any]:
    began = time.monotonic()
    try:
        end, found = run.make(world)
    except Exception as error:
        end, found = "", [f"the run did not come to its end: {type(error).__name__}: {error}"[:500]]
    return {"name": run.name, "end": end, "violations": found, "seconds": round(time.monotonic() - began, 2)}


def campaign(given: argparse.Namespace, notebook: Path, places: Path, console: Console) -> tuple[list[dict[str, Any]], int]:
    """Returns the result of each run, and how many of them come from an earlier start of the same campaign."""
    console.print("each scene once without any fault, to learn where faults can strike (half a minute the first time)")
    workers = [Worker(places)]
    try:
        every = workers[0].answer()
        workers += [Worker(places) for _ in range(given.workers - 1)]
        for other in workers[1:]:
            other.answer()
        (part, of), only = given.shard, given.only or ""
        chosen = [name for name in every if name.startswith(only)][part - 1 :: of * given.every]
        if not chosen:
            nearest = "".join(difflib.get_close_matches(only, every, 1, 0))
            raise LookupError(f"--only: no run's name begins with {only!r}; the nearest is {nearest!r}")
        known = {}
        if notebook.exists():
            known = {each["name"]: each for each in map(json.loads, notebook.read_text().splitlines())}
        left: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in chosen:
            if name not in known:
                left.put(name)
        before = [known[name] for name in chosen if name in known]
        return before + _made(workers, left, len(chosen), notebook, console), len(before)
    finally:
        for worker in workers:
            worker.ends()


def _made(workers: list[Worker], left: queue.SimpleQueue[str], of: int, notebook: Path, console: Console) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    failures: list[BaseException] = []
    with Progress(*columns, console=console) as progress, notebook.open("a") as book:
        bar = progress.add_task("runs", total=of, completed=of - left.qsize())

        def work_off(worker: Worker) -> None:
            with contextlib.suppress(queue.Empty):
                while not failures:
                    name = left.get_nowait()
                    try:
                        result = worker.asked(name)
                    except BaseException as error:
                        failures.append(error)
                        return
                    if failures:
                        return
                    results.append(result)
                    book.write(json.dumps(result) + "\n")
                    book.flush()
                    progress.advance(bar)
                    if result["violations"]:
                        progress.console.print(violation(result), markup=False, soft_wrap=True)

        threads = [threading.Thread(target=work_off, args=(worker,), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as stopped:
            failures.append(stopped)
            raise
    if failures:
        raise failures[0]
    return results


def violation(result: dict[str, Any]) -> str:
    """Describes a violation, with the command that repeats its run."""
    lines = [f"VIOLATION {result['name']} ({result['end']})", *(f"    {each}" for each in result["violations"])]
    return "\n".join([*lines, f"    make campaign ARGS=\"--only '{result['name']}'\""])


def sum_up(results: list[dict[str, Any]], known: int, seconds: float) -> int:
    """Prints the tables of scenes and of kinds of faults, and each violation with the command that repeats it."""
    table = Table("scene", "boundaries", "runs", "most often", "other last outcomes", "violations")
    scenes = list(dict.fromkeys(each["name"].partition("/")[0] for each in results))
    bad = [each for each in results if each["violations"]]
    for scene in scenes:
        mine = [each for each in results if each["name"].partition("/")[0] == scene]
        ends = Counter(each["end"].removesuffix(f", {IDLE}").rpartition(", ")[2] for each in mine)
        goal, good = ends.most_common(1)[0]
        faults = [each["name"].rpartition("/") for each in mine if " #" in each["name"] and "/pair " not in each["name"]]
        boundaries = {place for place, _, _ in faults}
        others = ", ".join(f"{end or 'nothing'} {count}" for end, count in ends.most_common() if end != goal)
        table.add_row(
            scene, str(len(boundaries)), str(len(mine)), f"{goal} {good}", others, str(sum(each in bad for each in mine))
        )
    kinds = Counter(kind_of(each["name"]) for each in results)
    by_kind = Table("fault", "runs", "too late to do anything", "violations")
    for kind, count in sorted(kinds.items()):
        idle = sum(kind_of(each["name"]) == kind and each["end"].endswith(IDLE) for each in results)
        by_kind.add_row(kind, str(count), str(idle or ""), str(sum(kind_of(each["name"]) == kind for each in bad)))
    console = Console(width=140)
    console.print(table, by_kind)
    for each in sorted(bad, key=lambda each: each["name"]):
        print(violation(each))
    earlier = f", {known} of them before" if known else ""
    print(f"{len(results)} runs{earlier}, {len(bad)} with violations; this took {seconds / 60:.0f} minutes")
    return 1 if bad else 0


def kind_of(name: str) -> str:
    """The last part of a run's name, without numbers."""
    what = name.partition("/")[2]
    if what.startswith(("pair", "seed", "lost event")):
        return "lost event" if what.startswith("lost") else what[:4]
    if "throttled at" in what:
        return "throttled for minutes"
    return what.rpartition("/")[2]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; start it again to continue", file=sys.stderr)
        sys.exit(130)
