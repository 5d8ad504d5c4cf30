"""The processes of programs that tests run."""

from __future__ import annotations

import sys

import pytest

from prepare import TESTS
from world.process.processes import run_to_its_end

HANGS = """
import subprocess, sys, time

def where_it_hangs():
    time.sleep(600)

print("it has begun", flush=True)
subprocess.Popen(["sleep", "600"])
where_it_hangs()
"""


def test_a_command_that_hangs_is_ended_with_what_it_printed_and_where_it_was():
    with pytest.raises(AssertionError, match=r"(?s)hangs: within 10 s it printed\nit has begun.*in where_it_hangs"):
        run_to_its_end([sys.executable, "-S", "-c", HANGS], TESTS, patience=10)
