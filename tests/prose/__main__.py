"""Checks comments, texts and documentation for plain English, with Vale and the rules in `styles/RecycleEks`.

    python -m prose                 everything; fails if a rule is violated
    python -m prose PATH …          these files, or files below these folders
    python -m prose --count         how many violations each rule and each area has

Standard library only. Paths are relative to the current folder. A violation names the place in the source.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from go_build import CannotBuild
from go_programs import VALE
from prepare import ROOT
from prose.texts import as_markdown, texts_of

CONFIGURATION = Path(__file__).parent / ".vale.ini"
STYLE = Path(__file__).parent / "styles" / "RecycleEks"
#: Kinds of files that Vale reads itself.
DIRECT = {".rs", ".py", ".md"}
#: Everything that is checked.
SOURCES = [
    "crates/**/*.rs",
    "crates/**/*.py",
    "terraform/**/*.tf",
    "terraform/**/*.tftest.hcl",
    "terraform/dashboard.json",
    "state-machine/*.json",
    "tests/**/*.py",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "ROADMAP.md",
    "docs/*.md",
    "terraform/**/README.md",
]
#: Pages that are written from texts that are checked in their sources.
GENERATED = {"docs/inputs-and-outcomes.md", "docs/messages.md", "docs/notifications.md"}


@dataclass(frozen=True, order=True)
class Violation:
    """One place that violates a rule."""

    path: str
    line: int
    rule: str
    message: str
    words: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def sources() -> list[str]:
    """Paths from the root of the repository."""
    found = {file.relative_to(ROOT) for pattern in SOURCES for file in ROOT.glob(pattern)}
    # Folders such as .terraform hold what others wrote.
    own = {str(file) for file in found if not any(part.startswith(".") for part in file.parts)}
    return sorted(own - GENERATED)


def check(paths: Iterable[str], root: Path = ROOT) -> list[Violation]:
    """Checks files below a folder with the layout of the repository. It may have the same text under two rules."""
    paths = list(paths)
    program = VALE.find()
    with tempfile.TemporaryDirectory() as folder:
        places = {}
        for path in paths:
            texts = texts_of(path, (root / path).read_text())
            if texts:
                written, places[f"{path}.md"] = as_markdown(texts)
                extracted = Path(folder) / f"{path}.md"
                extracted.parent.mkdir(parents=True, exist_ok=True)
                extracted.write_text(written)
        direct = [path for path in paths if Path(path).suffix in DIRECT]
        # Vale reads one file after the other.
        shares = os.cpu_count() or 1
        runs = [(root, direct[share::shares]) for share in range(shares)] + [(Path(folder), list(places))]
        with ThreadPoolExecutor() as pool:
            reports = list(pool.map(lambda run: run_vale(program, *run), runs))
    violations = set()
    for report in reports:
        for file, alerts in report.items():
            for alert in alerts:
                line = places[file][alert["Line"] - 1] if file in places else alert["Line"]
                path = file.removesuffix(".md") if file in places else file
                rule = alert["Check"].removeprefix("RecycleEks.")
                violations.add(Violation(path, line, rule, alert["Message"], alert["Match"]))
    return sorted(violations)


def run_vale(program: Path, folder: Path, files: list[str]) -> dict[str, list[dict]]:
    """Vale's report by file. Without files it would read its input."""
    if not files:
        return {}
    # An empty HOME: the styles and settings of the person who runs it do not count.
    command = [str(program), f"--config={CONFIGURATION}", "--no-global", "--no-exit", "--output=JSON", *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"vale failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def area_of(path: str) -> str:
    parts = Path(path).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0] if len(parts) > 1 else path


def chosen(arguments: list[str]) -> list[str]:
    """The sources that these paths name, or that are below them."""
    wanted = [os.path.relpath(Path(each).resolve(), ROOT) for each in arguments]
    found = [path for path in sources() if any(path == each or path.startswith(f"{each}/") or each == "." for each in wanted)]
    if not found:
        sys.exit(f"nothing to check in {', '.join(arguments)}: SOURCES in {Path(__file__).relative_to(ROOT)} lists what is")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="prose", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--count", action="store_true", help="only count")
    arguments = parser.parse_args()
    paths = chosen(arguments.paths) if arguments.paths else sources()
    try:
        violations = check(paths)
    except CannotBuild as problem:
        sys.exit(f"error: {problem}")
    if arguments.count:
        counted = [Counter(each.rule for each in violations), Counter(area_of(each.path) for each in violations)]
        counted.append(Counter(each.path for each in violations))
        for counts in counted:
            print(*(f"{count:6}  {name}" for name, count in counts.most_common()), "", sep="\n")
    else:
        print(*violations, sep="\n", end="\n" if violations else "")
    print(f"{len(paths)} files checked for plain English: {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
