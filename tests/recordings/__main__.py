"""Records requests, calls and answers of the functions in twenty scenario files, and compares them with the digests.

    make recordings                              records; ends with 1 if the recording of a test has changed
    make recordings ARGS=--accept                records, and writes the digests that were found
    make recordings ARGS="--against FOLDER"      shows the first difference of each test to an earlier recording

The recordings are in target/recordings, one file per test. A checkout of an earlier commit has a folder of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from prepare import ROOT, TESTS
from recordings.plugin import FOLDER
from run import PYTEST, WORKERS

RECORDED = ROOT / "target" / "recordings"
DIGESTS = TESTS / "recordings" / "digests.json"
SCENARIOS = """
after autoscaler balancers claims drain_timeouts faults groups hook node_lost notifications
people pods preflight queue replacement restore rotation starts stop_and_detach sweep
""".split()
#: Tests in which several executions or calls race, so that their order differs between runs.
RACING = (
    "test_hook/test_an_instance_that_never_registered",
    "test_hook/test_finish_names",
    "test_hook/test_without_retain_the_end",
    "test_preflight/test_an_api_server_that_comes_back",
    "test_preflight/test_an_endpoint_that_never_answers",
    "test_queue/test_an_outage",
    "test_queue/test_however_executions_race",
)


def main() -> int:
    parser = argparse.ArgumentParser("make recordings", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="write the digests that were found")
    parser.add_argument("--against", metavar="FOLDER", type=Path, help="an earlier target/recordings")
    given = parser.parse_args()
    shutil.rmtree(RECORDED, ignore_errors=True)
    files = [f"scenarios/test_{name}.py" for name in SCENARIOS]
    options = ["-p", "recordings.plugin", "--numprocesses", str(WORKERS), "--dist", "worksteal"]
    code = subprocess.call([*PYTEST, *options, *files], cwd=TESTS, env={**os.environ, FOLDER: str(RECORDED)})
    if code != 0:
        return code
    found = digests(RECORDED)
    if given.accept:
        DIGESTS.write_text(json.dumps(found, indent=1) + "\n")
    return compare(found, json.loads(DIGESTS.read_text()), given.against)


def digests(folder: Path) -> dict[str, str]:
    """Returns the digests by file and test."""
    found = {str(path.relative_to(folder)): digest(path) for path in sorted(folder.glob("*/*.txt"))}
    return {name: digest for name, digest in found.items() if not name.startswith(RACING)}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def compare(found: dict[str, str], expected: dict[str, str], earlier: Path | None) -> int:
    others = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    for name in others:
        print(f"is another: {name}")
        if earlier is not None:
            print(*first_difference(earlier / name, RECORDED / name), sep="\n")
    print(f"{len(found) - len(others)} of {len(expected)} recordings are as they were")
    return 1 if others else 0


def first_difference(before: Path, now: Path) -> Iterator[str]:
    if not (before.exists() and now.exists()):
        yield f"  only in {before if before.exists() else now}"
        return
    lines = zip(before.read_text().splitlines(), now.read_text().splitlines(), strict=False)
    for number, (one, other) in enumerate(lines, 1):
        if one != other:
            at = len(os.path.commonprefix([one, other]))
            yield f"  line {number}: …{one[max(0, at - 60) : at + 100]}\n      instead: …{other[max(0, at - 60) : at + 100]}"
            return
    yield "  one goes on where the other ends"


if __name__ == "__main__":
    sys.exit(main())
