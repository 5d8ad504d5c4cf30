"""Compares two folders of recordings between which names changed: under the map of renames.json nothing else may differ.

    python -m recordings.renamed EARLIER NOW      with PYTHONPATH=tests

NOW is recorded at 48407f5, the commit that only renames, EARLIER at 84ade38, before the renames. Recordings sort keys and
calls by their names, which change. So objects are compared without the order of their keys, and recordings without the order of
their calls. The words of `renamed_later` were renamed after 48407f5.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

RENAMES: dict[str, str] = json.loads(Path(__file__).with_name("renames.json").read_text())["renamed"]


def renamed(text: str, renames: dict[str, str]) -> str:
    """Replaces whole words; a word may have `-`, `:` and `/` in it."""
    words = "|".join(sorted(map(re.escape, renames), key=len, reverse=True))
    return re.sub(rf"(?<!\w)({words})(?!\w)", lambda found: renames[found[0]], text)


def blocks_of(text: str) -> list[str]:
    """The invocations and calls of a recording, each canonical, without the order of one moment."""
    blocks = re.split(r"\n(?=\S)", text.strip("\n"))
    return sorted("\n".join(sorted(map(canonical_line, block.split("\n")))) for block in blocks)


def canonical_line(line: str) -> str:
    start = line.find("{")
    if start < 0:
        return line
    try:
        value, end = json.JSONDecoder().raw_decode(line, start)
    except ValueError:
        return line
    return line[:start] + json.dumps(canonical(value), sort_keys=True) + line[end:]


def canonical(value: Any) -> Any:
    """Objects within texts, such as an annotation's, have no order either."""
    if isinstance(value, dict):
        return {key: canonical(each) for key, each in value.items()}
    if isinstance(value, list):
        return [canonical(each) for each in value]
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.dumps(canonical(json.loads(value)), sort_keys=True)
        except ValueError:
            return value
    return value


def main(earlier: Path, now: Path) -> int:
    before = {renamed_path(path.relative_to(earlier)): path for path in earlier.glob("*/*.txt")}
    after = {str(path.relative_to(now)): path for path in now.glob("*/*.txt")}
    others = 0
    for name in sorted(before.keys() & after.keys()):
        old, new = blocks_of(renamed(before[name].read_text(), RENAMES)), blocks_of(after[name].read_text())
        if old != new:
            others += 1
            print(f"differs: {name}", *(f"  - {line[:400]}" for line in old if line not in new), sep="\n")
            print(*(f"  + {line[:400]}" for line in new if line not in old), sep="\n")
    common, single = len(before.keys() & after.keys()), len(before.keys() ^ after.keys())
    print(f"{common - others} of {common} recordings are the same under the map; {single} have no partner")
    return 1 if others else 0


def renamed_path(path: Path) -> str:
    return (
        str(path).replace("test_put_back/", "test_restore/").replace("test_turns/", "test_queue/").replace("put_back", "restore")
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
