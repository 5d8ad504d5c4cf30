"""Checks of the documentation that run nothing: links lead somewhere, names exist."""

import json
import re
from pathlib import Path

import pytest

from docs.pages import LEFT_OUT, anchor, blocks, prose, says, sections
from prepare import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
PAGES.append(ROOT / "tests" / "README.md")
PAGES += sorted((ROOT / "docs").glob("*.md"))
INDEX = ROOT / "docs" / "README.md"
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"
#: The sources of texts that a user may see: errors, refusals, and messages of Terraform.
SOURCES = [*ROOT.glob("crates/**/src/**/*.rs"), *ROOT.glob("terraform/*.tf")]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[str]:
    """Returns the targets of the page's links within the repository."""
    without_code = re.sub(r"`[^`\n]*`(?!\])", "", prose(page))
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    broken = []
    for link in links(page):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in sections(target)):
            broken.append(link)
    assert broken == []


def test_the_index_names_every_page():
    # The generated page of the module's inputs is reached from the folder of the module.
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {INDEX.name, "module.md"}
    assert pages - set(links(INDEX)) == set()
    assert "docs/README.md" in links(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_exists(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = [block.text for block in blocks(page)] + re.findall(r"`([^`]+)`", prose(page))
    named = {target for text in code for target in re.findall(r"\bmake ([a-z]+)", text)}
    assert named <= targets


def test_every_error_has_a_section():
    contract = json.loads((ROOT / "tests" / "contract" / "contract.json").read_text())
    failures = [name for name in contract["failures"] if name.lower() not in contract["outcomes"]]
    missing = [failure for failure in failures if anchor(failure) not in sections(TROUBLESHOOTING)]
    assert missing == []


def test_every_text_in_the_tables_of_errors_is_in_the_sources():
    source = "\n".join(file.read_text() for file in SOURCES)
    # A string of Rust goes on in the next line after a backslash; quotes within a string have one, too.
    source = re.sub(r"\\\n\s*", "", source).replace('\\"', '"').replace("\\`", "`")
    source = re.sub(r"\s+", " ", source)
    phrases = [phrase for cell in first_cells(TROUBLESHOOTING) for phrase in re.findall(r"`([^`]+)`", cell)]
    unknown = [phrase for phrase in phrases for part in phrase.split(LEFT_OUT) if part.strip() and part.strip() not in source]
    assert len(phrases) > 20
    assert unknown == []


def first_cells(page: Path) -> list[str]:
    """The first cells of every table whose head speaks of what is said."""
    cells, wanted = [], False
    for line in page.read_text().splitlines():
        if re.match(r"\| the (cause|text|message|name)\b", line):
            wanted = True
        elif not line.startswith("|"):
            wanted = False
        elif wanted and not line.startswith("|---"):
            cells.append(line.split(" | ")[0])
    return cells


def test_a_page_says_what_was_printed_or_leaves_it_out():
    for documented, printed, expected in [
        ("a b\nc", "a   b\nc\n", True),
        ("a\nb", "a\nc", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…\nd", "a\nd", True),
        ("a\n…\nd", "a\nb\nc", False),
        ("a …", "b a", False),
        ("… a", "a b", False),
        ("a … b … c", "a c b", False),
        ("i-0123456789abcdef0 web-6bb9c8cdcf-fmsxp 3m2s", "i-00000000000000000 web-5d9f8b7c44-xk2vz <invalid>", True),
        ("2027-01-01T00:00:00Z", "2027-05-05T10:11:12.345000+00:00", True),
    ]:
        assert says(documented, printed) == expected, (documented, printed)
