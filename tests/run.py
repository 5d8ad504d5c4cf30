#!/usr/bin/env python3
"""Runs the checks and tests of the whole project, one step after the other, and sums them up.

Commands:

    run.py test              everything
    run.py check             what needs no long scenario: under two minutes once built
    run.py scenario FILE …   one scenario file; further arguments go to pytest
    run.py generate          writes again what is generated from the code
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cli_page import PAGE as CLI_PAGE
from cli_page import with_reference
from module_page import PAGE, render_page
from picture import with_pictures
from prepare import version

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
PYTEST = [sys.executable, "-m", "pytest", "--quiet", "--rootdir", str(TESTS), "-c", str(TESTS / "pytest.ini")]
RUFF = str(Path(sys.executable).with_name("ruff"))


@dataclass
class Step:
    """One command; `count` reads from its output how many tests passed and failed."""

    name: str
    command: list[str]
    count: Callable[[str], tuple[int, int]] | None = None
    cwd: Path = ROOT


def count_cargo(output: str) -> tuple[int, int]:
    results = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed", output)
    return sum(int(passed) for passed, _ in results), sum(int(failed) for _, failed in results)


def count_pytest(output: str) -> tuple[int, int]:
    lines = [line for line in output.splitlines() if re.search(r"\d+ (passed|failed|error)", line)]
    last = lines[-1] if lines else ""
    number = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|error)", last)}
    return number.get("passed", 0), number.get("failed", 0) + number.get("error", 0)


def count_terraform(output: str) -> tuple[int, int]:
    found = re.search(r"(\d+) passed, (\d+) failed", output)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def checks() -> list[Step]:
    """The fast part."""
    return [
        Step("Rust format", ["cargo", "fmt", "--all", "--check"]),
        Step(
            "Rust lints",
            ["cargo", "clippy", "--locked", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"],
        ),
        Step("Rust tests", ["cargo", "test", "--locked", "--workspace", "--quiet"], count_cargo),
        Step("Python lints", [RUFF, "check", "--quiet", "."], cwd=TESTS),
        Step("Python format", [RUFF, "format", "--quiet", "--check", "."], cwd=TESTS),
        Step("Terraform format", ["terraform", "fmt", "-check", "-recursive", "-diff", "terraform"]),
        Step("Terraform tests", [sys.executable, "-m", "world.terraform", "test"], count_terraform, TESTS),
        Step("Contract tests", [*PYTEST, "contract"], count_pytest, TESTS),
    ]


def long_tests() -> list[Step]:
    """The rest, the longest first. Each mostly waits, for one of its processes or another."""
    scenarios = sorted(str(file.relative_to(TESTS)) for file in TESTS.glob("scenarios/test_*.py"))
    return [
        *(Step(f"Scenarios, part {part + 1} of 4", [*PYTEST, *scenarios[part::4]], count_pytest, TESTS) for part in range(4)),
        Step("Tests of the local world", [*PYTEST, "world_tests"], count_pytest, TESTS),
        Step("Terraform, packages, demo", [*PYTEST, "deployment"], count_pytest, TESTS),
        Step("Documentation", [*PYTEST, "docs"], count_pytest, TESTS),
        Step("A second interpreter", [*PYTEST, "second_interpreter"], count_pytest, TESTS),
    ]


#: A line with which pytest, cargo, clippy or Terraform names what failed; the summary repeats it.
FAILURE = re.compile(r"(FAILED|ERROR) |---- .* ----$|error(:|\[)|\s+run \".*\"\.\.\. fail")


@dataclass
class Result:
    """What became of a step."""

    step: Step
    code: int
    passed: int
    failed: int
    seconds: float
    failures: list[str]

    @property
    def counted(self) -> str:
        return f"{self.passed} passed, {self.failed} failed" if self.step.count else ("failed" if self.code else "ok")


def shown(command: list[str]) -> str:
    """The end of a command, where its sense is."""
    return " ".join(command[-4:] if len(command) <= len(PYTEST) + 4 else ["pytest", *command[len(PYTEST) :]])


class Run:
    """Steps with their output as it comes; ends what still runs when it is ended itself."""

    def __init__(self, total: int) -> None:
        self._total, self._begun = total, 0
        self._processes: list[subprocess.Popen[str]] = []
        self.results: list[Result] = []

    def take(self, steps: list[Step], at_once: int) -> None:
        with ThreadPoolExecutor(at_once) as pool:
            try:
                self.results += pool.map(self._take, steps)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in self._processes:
                    process.terminate()
                raise

    def _take(self, step: Step) -> Result:
        self._begun += 1
        number = self._begun
        print(f"[{number}/{self._total}] {step.name}: {shown(step.command)}", flush=True)
        started = time.monotonic()
        process = subprocess.Popen(
            step.command, cwd=step.cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
        )
        self._processes.append(process)
        lines = []
        for line in process.stdout:
            lines.append(line)
            print(f"{number:>4}  {line}", end="", flush=True)
        code = process.wait()
        passed, failed = step.count("".join(lines)) if step.count else (0, 0)
        failures = [line.rstrip() for line in lines if FAILURE.match(line)]
        return Result(step, code, passed, failed or int(code != 0), time.monotonic() - started, failures)

    def sum_up(self) -> int:
        print("\nSummary")
        for each in self.results:
            mark = "  <-- failed" if each.failed else ""
            print(f"  {each.step.name:28} {each.counted:24} {each.seconds:6.0f} s{mark}")
            for line in each.failures if each.failed else []:
                print(f"      {line}")
        failed = sum(each.failed for each in self.results)
        print(f"\n{sum(each.passed for each in self.results)} passed, {failed} failed")
        return 1 if failed else 0


def check() -> int:
    """What needs no long scenario."""
    steps = [*checks(), Step("A first scenario", [*PYTEST, "scenarios/test_first_node.py"], count_pytest, TESTS)]
    run = Run(len(steps))
    run.take(steps, at_once=1)
    return run.sum_up()


def test() -> int:
    """Everything: first what uses every core by itself, then two of the long ones at a time."""
    run = Run(len(checks()) + len(long_tests()))
    run.take(checks(), at_once=1)
    run.take(long_tests(), at_once=2)
    return run.sum_up()


#: example of the crate `recycle` that prints it -> file
GENERATED = {
    "rbac": "terraform/rbac/recycle-eks.yaml",
    "contract": "tests/contract/contract.json",
    "inputs": "docs/inputs-and-outcomes.md",
    "notifications": "docs/notifications.md",
}

#: Where the version of Cargo.toml stands once more, for Terraform.
VERSIONED = ["terraform/version.txt", *(f"terraform/tests/artifacts/{each}/version.txt" for each in ("arm64", "x86_64"))]

#: Writes the tokens that botocore signs, which ours are held to.
VECTORS = "crates/eks-auth/tests/botocore_vectors.py"


def generate() -> int:
    """Everything that is generated from the code: each has a test that fails on a difference."""
    for example, file in GENERATED.items():
        (ROOT / file).write_text(printed_by(example))
        print(f"wrote {file}")
    subprocess.run([sys.executable, VECTORS], cwd=ROOT, check=True)
    print(f"ran {VECTORS}")
    for file in VERSIONED:
        (ROOT / file).write_text(f"{version()}\n")
        print(f"wrote {file}")
    PAGE.write_text(render_page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
    CLI_PAGE.write_text(with_reference(CLI_PAGE.read_text()))
    print(f"wrote the reference in {CLI_PAGE.relative_to(ROOT)}")
    readme = ROOT / "README.md"
    readme.write_text(with_pictures(readme.read_text()))
    print("drew the state machine in README.md")
    return 0


def printed_by(example: str) -> str:
    command = ["cargo", "run", "--locked", "--quiet", "--package", "recycle", "--example", example]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # On a machine that calls itself a CI, pytest explains a failed comparison by a whole diff, whose time has no bound (difflib):
    # of two long lists that differ it takes hours.
    for name in ("CI", "BUILD_NUMBER"):
        os.environ.pop(name, None)
    what, *rest = sys.argv[1:] or ["test"]
    if what == "generate":
        return generate()
    if what == "scenario":
        return subprocess.run([*PYTEST, *[str(Path(rest[0]).resolve()), *rest[1:]]], cwd=TESTS, check=False).returncode
    return {"test": test, "check": check}[what]()


if __name__ == "__main__":
    sys.exit(main())
