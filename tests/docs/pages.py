"""The pages of the documentation as tests read them: links, blocks of commands, and the output of commands against the page.

A block ```` ```sh ```` is run; a block ```` ```text ```` right below it is its output. `…` stands for omitted text. Values that
change from run to run (ids, times, ages, the random ends of pods' names) may differ; spaces between columns do not count. A line

    <!-- local world: until 20h -->

lets time pass, or runs the action that the test of the page has under that name.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from docs.aws_cli import folder_with_aws
from world.kubernetes import kube_binaries
from world.process.processes import run_to_its_end

LEFT_OUT = "…"

_STEP = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$|^<!-- local world: (?P<action>.+?) -->$", re.DOTALL | re.MULTILINE)
#: The values that differ from run to run, and their replacements.
_DIFFERENT_EACH_TIME = [
    (r"\x1b\[[0-9;]*m", ""),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    # The names of executions that the command line starts.
    (r"\brecycle-eks-\d{19}-\d+\b", "<name>"),
    (r"\bi-[0-9a-f]{17}\b", "<instance>"),
    (r"\bip-\d+-\d+-\d+-\d+\b", "<host>"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)", "<time>"),
    # Times and durations as the command line writes them.
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\dZ", "<time>"),
    (r"\b\d+:\d\d:\d\d\b", "<clock>"),
    # kubectl prints <invalid> for a virtual time that is in the future of the machine's clock.
    (r"(?<![\w.-])(\d+[dhms])+(?![\w.-])|<invalid>", "<age>"),
    # The alphabet of Kubernetes' random names has no vowels.
    (r"(-[bcdf0-9]{8,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-<random>"),
    (r"[ \t]+", " "),
    (r" $", ""),
]


@dataclass(frozen=True)
class Block:
    """A fenced block; `action` is set instead of `language` for a comment that lets something happen."""

    page: Path
    line: int
    language: str
    text: str
    action: str | None
    follows_directly: bool
    """Whether only blank lines separate this block from the one before."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All blocks and actions of a page, in order."""
    text = page.read_text()
    found, end = [], 0
    for match in _STEP.finditer(text):
        between = text[end : match.start()]
        line = text.count("\n", 0, match.start()) + 1
        language, inside, action = match["language"] or "", match["text"] or "", match["action"]
        found.append(Block(page, line, language, inside, action, not between.strip()))
        end = match.end()
    return found


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _STEP.sub("", page.read_text())


def sections(page: Path) -> dict[str, str]:
    """The text below each heading, by the heading's anchor as GitHub makes it."""
    parts = re.split(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {anchor(heading): text for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def anchor(heading: str) -> str:
    """Returns the anchor of a heading: lower case, no punctuation, hyphens for spaces."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


def masked(text: str) -> str:
    """Returns the text without the parts that differ from run to run."""
    for pattern, replacement in _DIFFERENT_EACH_TIME:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text.strip()


def says(documented: str, printed: str) -> bool:
    """Checks that the page shows the output, except for omitted parts."""
    parts = [part.strip() for part in masked(documented).split(LEFT_OUT)]
    rest = masked(printed)
    if len(parts) == 1:
        return parts[0] == rest
    first, *middle, last = parts
    if not rest.startswith(first):
        return False
    rest = rest[len(first) :]
    for part in middle:
        before, found, rest = rest.partition(part) if part else ("", "found", rest)
        if not found:
            return False
    return rest.endswith(last)


def assert_says(block: Block, printed: str) -> None:
    assert says(block.text, printed), f"{block} says\n{block.text}\nbut it was\n{printed}"


def path_with_tools() -> str:
    """A PATH with the AWS CLI and kubectl."""
    places = [folder_with_aws(), kube_binaries.find()]
    return os.pathsep.join([*map(str, places), os.environ["PATH"]])


class Shell:
    """Runs the commands of a page, one block after the other. Variables and the folder remain."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Runs in a folder, with the AWS CLI and kubectl of the local world, and the given environment. Its own files are beside
        the folder."""
        folder.mkdir(exist_ok=True)
        config = folder.with_name("aws-config")
        # The time format of version 2.
        config.write_text("[default]\ncli_timestamp_format = iso8601\n")
        self._after = folder.with_name("environment")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_", "KUBE"))},
            "PATH": path_with_tools(),
            "AWS_CONFIG_FILE": str(config),
            "KUBECACHEDIR": str(folder.with_name("kube-cache")),
            "PWD": str(folder),
            **environment,
        }

    def environment(self) -> dict[str, str]:
        """Returns the variables that the last block has left."""
        return dict(self._environment)

    def set(self, name: str, value: str) -> None:
        """Sets a variable of the next blocks."""
        self._environment[name] = value

    def run(self, script: str) -> str:
        """Returns the output on both streams. A failing command ends the block."""
        command = ["bash", "-a", "-e", "-o", "pipefail", "-c", f"{script}\nenv -0 > '{self._after}'"]
        folder = Path(self._environment["PWD"])
        done = run_to_its_end(command, folder, environment=self._environment, stderr=subprocess.STDOUT)
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}"
        pairs = self._after.read_text().split("\0")
        self._environment = dict(pair.split("=", 1) for pair in pairs if pair)
        return done.stdout


def follow_page(page: Path, shell: Shell, actions: Mapping[str, Callable[[str], str | None]]) -> None:
    """Runs every command of a page, in order, and compares the output with the page. The first word of an action selects it, and
    its result is the content of the block below it."""
    different = []
    for block, below in with_output(page):
        if block.action is not None:
            word, _, rest = block.action.partition(" ")
            printed = actions[word](rest) or ""
        else:
            printed = shell.run(block.text)
        if not says(below.text if below else "", printed):
            different.append(f"{below or block} says\n{below.text if below else ''}\nbut it was\n{printed}")
    assert not different, "\n".join(different)


def with_output(page: Path) -> Iterator[tuple[Block, Block | None]]:
    """Returns every command and action of a page, with the block of its output."""
    all_blocks = blocks(page)
    for index, block in enumerate(all_blocks):
        if block.language == "sh" or block.action is not None:
            after = all_blocks[index + 1] if index + 1 < len(all_blocks) else None
            below = after if after and after.language == "text" and after.follows_directly else None
            yield block, below
