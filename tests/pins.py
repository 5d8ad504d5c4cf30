#!/usr/bin/env python3
"""Pins the tests' Python packages: writes a `.txt` with versions and hashes beside each `.in`.

python3 tests/pins.py               keeps the versions that are pinned already
python3 tests/pins.py --upgrade     takes the newest ones that fit together
"""

import os
import shutil
import subprocess
import sys

from prepare import TESTS, fail

#: Others refer to the first one by `-c`.
SOURCES = sorted(TESTS.rglob("*.in"), key=lambda source: (source != TESTS / "requirements.in", source))
#: The oldest Python that runs the tests, and their system. Wheels alone, because building one runs code that no hash pins.
COMPILE = "uv pip compile --quiet --generate-hashes --only-binary :all: --python-version 3.11 --python-platform linux"


def main() -> None:
    if shutil.which("uv") is None:
        fail("uv is needed and not on the PATH (pip install uv)")
    environment = {**os.environ, "UV_CUSTOM_COMPILE_COMMAND": "make pins"}
    for source in SOURCES:
        command = [*COMPILE.split(), *sys.argv[1:], "--output-file", source.with_suffix(".txt").name, source.name]
        subprocess.run(command, cwd=source.parent, env=environment, check=True)
        print(f"wrote {source.with_suffix('.txt').relative_to(TESTS.parent)}")


if __name__ == "__main__":
    main()
