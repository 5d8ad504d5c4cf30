#!/usr/bin/env python3
"""Runs the checks and tests of the whole project, one step after the other, and sums them up.

Commands:

    run.py test              everything
    run.py check             what needs no long scenario: under two minutes once built
    run.py scenario FILE …   one scenario file; further arguments go to pytest
    run.py generate          writes again what is generated from the code
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from picture import with_pictures

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
        Step("A first scenario", [*PYTEST, "scenarios/test_first_node.py"], count_pytest, TESTS),
    ]


def tests() -> list[Step]:
    """Everything."""
    slow = [
        Step("Tests of the local world", [*PYTEST, "world_tests"], count_pytest, TESTS),
        Step("Terraform on the local world", [*PYTEST, "deployment"], count_pytest, TESTS),
        Step("A second interpreter", [*PYTEST, "second_interpreter"], count_pytest, TESTS),
        Step("Scenarios", [*PYTEST, "scenarios"], count_pytest, TESTS),
    ]
    return checks()[:-1] + slow


def run(steps: list[Step]) -> int:
    passed = failed = broken = 0
    rows = []
    for number, step in enumerate(steps, 1):
        print(f"[{number}/{len(steps)}] {step.name}: {' '.join(map(str, step.command[-4:]))}", flush=True)
        started = time.monotonic()
        code, output = stream(step)
        p, f = step.count(output) if step.count else (0, 0)
        passed, failed = passed + p, failed + f
        broken += code != 0 and f == 0
        counted = f"{p} passed, {f} failed" if step.count else ("ok" if code == 0 else "failed")
        rows.append((step.name, counted, "" if code == 0 else "  <-- failed", time.monotonic() - started))
    print("\nSummary")
    for name, counted, mark, seconds in rows:
        print(f"  {name:28} {counted:24} {seconds:6.0f} s{mark}")
    print(f"\n{passed} passed, {failed + broken} failed")
    return 1 if failed or broken else 0


def stream(step: Step) -> tuple[int, str]:
    """Runs a step, shows its output as it comes, and returns it."""
    process = subprocess.Popen(
        step.command, cwd=step.cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
    )
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            print("    " + line, end="", flush=True)
        return process.wait(), "".join(lines)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


#: example of the crate `recycle` that prints it -> file
GENERATED = {
    "rbac": "terraform/rbac/recycle-eks.yaml",
    "contract": "tests/contract/contract.json",
    "inputs": "docs/inputs-and-outcomes.md",
}

#: Writes the tokens that botocore signs, which ours are held to.
VECTORS = "crates/eks-auth/tests/botocore_vectors.py"


def generate() -> int:
    """Everything that is generated from the code: each has a test that fails on a difference."""
    for example, file in GENERATED.items():
        (ROOT / file).write_text(printed_by(example))
        print(f"wrote {file}")
    subprocess.run([sys.executable, VECTORS], cwd=ROOT, check=True)
    print(f"ran {VECTORS}")
    readme = ROOT / "README.md"
    readme.write_text(with_pictures(readme.read_text()))
    print("drew the state machine in README.md")
    return 0


def printed_by(example: str) -> str:
    command = ["cargo", "run", "--locked", "--quiet", "--package", "recycle", "--example", example]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    what, *rest = sys.argv[1:] or ["test"]
    if what == "generate":
        return generate()
    if what == "scenario":
        return subprocess.run([*PYTEST, *[str(Path(rest[0]).resolve()), *rest[1:]]], cwd=TESTS, check=False).returncode
    return run({"test": tests, "check": checks}[what]())


if __name__ == "__main__":
    sys.exit(main())
