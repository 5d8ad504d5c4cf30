"""The linter of prose: every rule fires, plain English passes, and a violation names its place in the source."""

import re

import pytest
import yaml

from prepare import ROOT
from prose.__main__ import GENERATED, STYLE, check, sources

GLOSSARY = ROOT / "docs" / "glossary.md"
RULES = {file.stem: yaml.safe_load(file.read_text()) for file in STYLE.glob("*.yml")}
LONG = "The sweep restores " + ", ".join(f"node {number}" for number in range(18)) + "."

#: rule -> sentences that violate it and no other rule: at least one for each pattern of the rule
BAD = {
    "Actor": [
        "Nobody works on the node.",
        "The node is claimed by no one.",
        "Somebody cordoned the node.",
        "If someone starts it, it stops.",
        "The annotation is for anybody with kubectl.",
        "It works for anyone.",
        "This notification is for everybody.",
        "It goes to everyone.",
        "The hook holds whoever comes.",
        "The sweep asks whomever it finds.",
        "The taint is ours.",
        "Then we remove the taint.",
        "It was tainted before us.",
        "The topic sends messages to people.",
    ],
    "Chain": ["The group is full: no member may join; the sweep waits: it starts again later."],
    "Headless": [
        "Who waits says so.",
        "Whom the function evicts is listed.",
        "Whose claim it is decides.",
        "What pods remain is listed.",
        "Whatever it finds is listed.",
        "Whichever comes first wins.",
        "Where that is not possible, the drain starts without.",
        "Wherever it stops, the sweep starts.",
        "What differs:",
    ],
    "Inverted": [
        "Of a node that was resumed, the checks are skipped.",
        "About what it did, it writes a log.",
        "Without what it needs, it stops.",
        "To whom it belongs is a tag.",
    ],
    "OldTerms": [
        "RestoreNode puts the node back.",
        "The put-back failed.",
        "There is no way back.",
        "The hook is a third way in.",
        "The tag was left behind.",
        "It leaves one tag behind.",
        "The notification lists what is left.",
        "The node waits for its turn.",
        "The executions take turns.",
        "The gate is closed.",
        "The holdup has a name.",
        "Its pasts are listed.",
        "Each try lasts an hour.",
        "There are three tries.",
        "The deed is recorded.",
        "The newcomer is protected.",
        "This happening has a severity.",
        "The doctor has a mend.",
        "The launch template is its aim.",
        "The fate of the drain is known.",
        "It was interrupted midway.",
        "The next look is in a minute.",
    ],
    "OldWords": ["The former claim is read.", "The story of the node.", "There is news.", "The trouble is recorded."],
    "Personification": ["The node tells its state.", "The topic hears of it."],
    "Pronoun": ["Those that carry the tag are skipped.", "One that ended is restored.", "The one that ended is restored."],
    "SentenceLength": [LONG],
    "World": ["It asks the world again."],
}

GOOD = """\
# What a node costs

# Where it runs

What is wrong? An operator is asked what to do. The function returns what it found.

Each check reads live state. A queued node records what it waits for. After 24 hours it fails with `QueueTimedOut`.

Protect the other members in turn, in the same way in both groups. Turn the feature gate on and put the file in the folder.

The code `put_back` and `nobody` stays, and ids tell the two nodes apart. The execution tries to start in us-east-1 in the US.

Of course the group may be full. The local world is ready. Use scheduling gates and readiness gates.

The message has a colon: the group is full; wait.

Values `a`; `b`; `c`; `d`; `e`.
"""


@pytest.mark.parametrize("rule", BAD)
def test_every_pattern_of_a_rule_has_an_example(rule):
    of = RULES[rule]
    patterns = [*of.get("swap", []), *of.get("tokens", [])] if of["extends"] != "occurrence" else []
    for pattern in patterns:
        found = [each for each in BAD[rule] if re.search(pattern.replace("(?-i:us)", "us"), each, re.IGNORECASE)]
        assert found, f"no example has {pattern}"


def test_every_bad_sentence_violates_its_rule_and_no_other(tmp_path):
    sentences = [(rule, sentence) for rule, all_bad in BAD.items() for sentence in all_bad]
    (tmp_path / "page.md").write_text("\n\n".join(sentence for _, sentence in sentences))
    found: dict[int, set[str]] = {}
    for each in check(["page.md"], tmp_path):
        found.setdefault(each.line, set()).add(each.rule)
    expected = {number * 2 + 1: {rule} for number, (rule, _) in enumerate(sentences)}
    assert found == expected


def test_plain_english_passes(tmp_path):
    (tmp_path / "page.md").write_text(GOOD)
    assert [str(each) for each in check(["page.md"], tmp_path)] == []


#: file -> its text and where it violates which rule
FILES = {
    "crates/recycle/src/a.rs": (
        """\
//! Decides the start.
//!
//! It reads two lines. Nobody
//! reads it, and `nobody` is code.

/// What is wrong.
const WRONG: &str = "the group {group:?} is full: \\
    nobody may join it";
const FINE: &str = "nobody";
const ENDED: &str = "the group is full now\\nwhat to do about it: wait until {it} is not";
const RAW: &str = r#"{"nobody": "in JSON nobody reads the names of fields"}"#;
fn quote(c: char) -> bool { c == '"' } // the queue of nobody
/// Returns the world that a check reads.
fn read() {}

#[cfg(test)]
mod tests {
    const INPUT: &str = "nobody reads the strings of tests";
}
""",
        {(3, "Actor"), (6, "Headless"), (8, "Actor"), (10, "HeadlessText"), (12, "Actor"), (13, "World")},
    ),
    "terraform/a.tf": (
        """\
# The first line of a comment,
# and its second, which nobody reads.
variable "a" {
  description = "The name of a group. Nobody else uses `nobody`." # of the world
  validation {
    condition     = var.a != "nobody"
    error_message = "a is ${join(", ", [for each in var.a : "nobody ${each}"])}, and the group has nobody in it."
  }
}
""",
        {(2, "Actor"), (4, "Actor"), (4, "World"), (7, "Actor")},
    ),
    "terraform/tests/a.tftest.hcl": ('error_message = "what is created is not there"\n', {(1, "HeadlessText")}),
    "state-machine/a.asl.json": (
        """\
{
  "Comment": "Nobody.",
  "States": {
    "Nobody": {"Type": "Fail", "Cause": "{% 'nobody works on the node ' & $states.input.nobody %}"}
  }
}
""",
        {(2, "Actor"), (4, "Actor")},
    ),
    "tests/printed.py": ("def say(name):\n    print(f'the node {name} is read by nobody')\n", {(2, "Actor")}),
    "tests/test_a.py": (
        '''\
"""Reads the world.

Nobody else does.
"""

# Who waits says so.
NAME = "nobody reads the strings of tests"
#: What the name means.
OTHER = 1
"""The text of a value

for nobody.
"""
''',
        {(3, "Actor"), (6, "Headless"), (8, "Headless"), (12, "Actor")},
    ),
}


def test_every_rule_has_examples():
    assert set(BAD) | {rule for _, expected in FILES.values() for _, rule in expected} == set(RULES)


@pytest.mark.parametrize("path", FILES)
def test_a_violation_names_its_place_in_the_source(path, tmp_path):
    text, expected = FILES[path]
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert {(each.line, each.rule) for each in check([path], tmp_path)} == expected


def test_what_replaces_an_old_term_is_a_term_of_the_glossary():
    terms = set(re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(), re.MULTILINE))
    replacing = {term for replacement in RULES["OldTerms"]["swap"].values() for term in replacement.split(" / ")}
    assert sorted(replacing - terms) == []


def test_all_kinds_of_sources_are_checked():
    found = sources()
    for path in ("README.md", "crates/recycle/src/lib.rs", "state-machine/sweep.asl.json", "terraform/iam.tf", "tests/run.py"):
        assert path in found
    assert [path for path in GENERATED if not (ROOT / path).is_file()] == []
