"""`run.py` from outside: failures are repeated at the end, and a hanging test is named and ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import progress
import run
from prepare import TESTS

HANGS = """
import signal
import time

def test_that_works():
    pass

def test_that_hangs():
    # Not even a signal ends it, as with code that waits outside of Python.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])
    time.sleep(600)
"""

SLEEPS = """
import time

def test_that_waits_for_ever():
    time.sleep(600)
"""


def pytest_with(tests: str, folder: Path, *arguments: str, **constants: float) -> subprocess.CompletedProcess[str]:
    """Runs pytest with the plugin and other constants."""
    (folder / "test_it.py").write_text(tests)
    plugin = folder / "impatient.py"
    settings = "".join(f"progress.{name} = {value}\n" for name, value in constants.items())
    plugin.write_text(f"import progress\n{settings}from progress import *\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
        "-p",
        "impatient",
        *arguments,
        "test_it.py",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{folder}", progress.REPORT: str(folder / "report.json")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_test_that_takes_too_long_fails_by_its_name(tmp_path):
    done = pytest_with(SLEEPS, tmp_path, "--timeout", "1")
    assert done.returncode == 1
    assert "FAILED test_it.py::test_that_waits_for_ever" in done.stdout and "Timeout" in done.stdout


def test_a_failure_is_named_as_soon_as_it_happens(tmp_path):
    done = pytest_with("def test_one():\n    assert 1 == 2\n\ndef test_two():\n    pass\n", tmp_path)
    first, _, rest = done.stdout.partition("failed: test_it.py::test_one: assert 1 == 2\n")
    assert "Error" not in first and "FAILED test_it.py::test_one" in rest


def test_a_run_that_hangs_names_what_hangs_and_ends(tmp_path):
    done = pytest_with(HANGS, tmp_path, EVERY=0.2, PATIENCE=10.0, FAREWELL=0.5)
    assert done.returncode != 0
    assert re.search(r"1 of 2 tests done; at work: test_it.py::test_that_hangs \(\d+ s\)", done.stdout)
    assert "this run hangs and is ended" in done.stdout


BUSY = """
import subprocess, sys

def test_one():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.5: pass"])

def test_two():
    assert False
"""


def test_the_report_has_folders_and_the_time_of_each_test(tmp_path):
    done = pytest_with(BUSY, tmp_path)
    assert done.returncode == 1
    report = json.loads((tmp_path / "report.json").read_text())
    (folder,) = report["folders"].values()
    assert (folder["passed"], folder["failed"]) == (1, 1)
    (_, processor, slowest), (_, _, other) = report["tests"]
    assert (slowest, other) == ("test_it.py::test_one", "test_it.py::test_two")
    # The processor time of a child that has ended belongs to the test that started it.
    assert processor > 0.25 or not Path("/proc").exists()


def test_failures_are_printed_again_at_the_end_and_counted(capfd, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "REPORT", tmp_path / "report.json")
    good = run.Step("Good", [sys.executable, "-c", "print('3 passed, 0 failed')"], "1 s", run.count_terraform)
    bad = run.Step("Bad", [sys.executable, "-c", "print('the reason'); raise SystemExit(1)"], "1 s")
    assert run.Run([good], [bad]).result() == 1
    printed = capfd.readouterr().out
    assert "Bad has failed. Its output once more:\n\nthe reason" in printed
    assert printed.endswith("\n3 passed, 1 failed\n")


def test_a_step_that_prints_nothing_is_said_to_be_at_work_and_ended_when_it_hangs(capfd, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "REPORT", tmp_path / "report.json")
    monkeypatch.setattr(run, "EVERY", 0.2)
    monkeypatch.setattr(run, "PATIENCE", 3)
    silent = run.Step("Silent", [sys.executable, "-c", "import time; time.sleep(600)"], "1 s")
    assert run.Run([silent]).result() == 1
    printed = capfd.readouterr().out
    assert re.search(r"Silent: at work for \d+ s", printed) and "has printed nothing for 3 s: it hangs and is ended" in printed


def test_pytests_dots_are_not_printed_again():
    output = ["....F.. [ 12%]\n", "\n", "12 of 30 tests done; at work: a (3 s)\n", "E   assert 1 == 2\n"]
    assert run.without_progress(output) == ["E   assert 1 == 2\n"]


#: lint -> code that it warns of
CARELESS = {
    "needless_return": "pub fn is_empty(text: &str) -> bool {\n    return text.len() == 0;\n}\n",
    # Its text begins with a name in backticks, as Cargo's sum of the warnings does.
    "panic": "pub fn ends() {\n    panic!()\n}\n",
}


def test_a_warning_of_clippy_fails_the_step_of_the_rust_tests_each_time(capfd, monkeypatch, tmp_path):
    (tmp_path / "src").mkdir()
    lints = 'all = "allow"\n' + "".join(f'{lint} = {{level = "warn", priority = 1}}\n' for lint in CARELESS)
    (tmp_path / "Cargo.toml").write_text(f'[package]\nname = "careless"\nedition = "2024"\n[lints.clippy]\n{lints}')
    (tmp_path / "src" / "lib.rs").write_text("".join(CARELESS.values()))
    subprocess.run(["cargo", "generate-lockfile", "--offline"], cwd=tmp_path, capture_output=True, check=True)
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    monkeypatch.setattr(run, "REPORT", tmp_path / "report.json")
    *_, step = run.rust()
    step.cwd = tmp_path
    for _ in range(2):
        assert run.Run([step]).result() == 1
        printed = capfd.readouterr().out
        for lint in CARELESS:
            assert f"clippy::{lint}" in printed.replace("-", "_"), printed
        # Each warning counts.
        assert re.search(rf"^0 passed, {len(CARELESS)} failed$", printed, re.MULTILINE), printed
