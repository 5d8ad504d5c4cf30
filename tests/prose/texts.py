"""The texts of a source file that Vale cannot read itself, with the line of each.

Vale reads the comments of Rust and Python and the prose of Markdown. This module finds what else a person reads:

- string literals of Rust that are prose: errors, notifications, output of the command line;
- comments, descriptions and error messages of Terraform;
- Comments, Causes and quoted prose of the state machines;
- string literals of Python that are prose, or that describe the attribute above them.

Strings in tests are left out: they are input, or quote a message of the product.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rooms import TESTS_ALONE

#: One word is a name or a key.
LEAST_WORDS = 2
#: Stands for an interpolated value.
VALUE = "X"


@dataclass(frozen=True)
class Text:
    """One text; `lines` are its lines, with the number that each has in the source."""

    lines: tuple[tuple[int, str], ...]

    @property
    def words(self) -> str:
        return " ".join(line for _, line in self.lines)


def texts_of(path: str, source: str) -> list[Text]:
    """`path` is relative to the root of the repository."""
    found = READERS.get(Path(path).suffix)
    return [text for text in found(path, source) if text.lines] if found else []


def as_markdown(texts: list[Text]) -> tuple[str, list[int]]:
    """Returns a paragraph for each text, and for each line of the result its line in the source."""
    written, places = [], []
    for text in texts:
        for number, line in text.lines:
            written.append(line)
            places.append(number)
        written.append("")
        places.append(text.lines[-1][0])
    return "\n".join(written), places


def prose(texts: Iterator[Text]) -> Iterator[Text]:
    return (text for text in texts if is_prose(text.words))


def is_prose(text: str) -> bool:
    """Returns false for names, JSON, commands and queries."""
    if re.search(r"[{}]", re.sub(r"`[^`]*`", "", text)):
        return False
    words = text.split()
    plain = [word for word in words if re.fullmatch(r"[(\"'`]*[A-Za-z][A-Za-z'’-]*[)\"'`.,:;!?]*", word)]
    return len(plain) >= LEAST_WORDS and len(plain) * 2 > len(words)


# Rust

RUST = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |b?r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)
    |b?"(?P<plain>(?:\\.|[^"\\])*)"
    |'(?:\\[^']+|[^'\\\n])'""",
    re.DOTALL | re.VERBOSE,
)


def rust_texts(path: str, source: str) -> Iterator[Text]:
    if TESTS_ALONE.search(path):
        return
    production = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", source, maxsplit=1, flags=re.MULTILINE)[0]
    for found in RUST.finditer(production):
        literal = found["raw"] if found["raw"] is not None else found["plain"]
        if literal is None:
            continue
        line = production.count("\n", 0, found.start()) + 1
        without_values = re.sub(r"([{}])\1", r"\1", re.sub(r"(?<!\{)\{(?!\{)[^{}\n]*\}", VALUE, literal))
        yield from prose(paragraphs(line, without_values))


# Terraform


def terraform_texts(path: str, source: str) -> Iterator[Text]:
    """Comments that follow each other are one text."""
    comment: list[tuple[int, str]] = []
    position, line = 0, 1
    for found in re.finditer(r"#[^\n]*|\"|\n", source):
        if found.start() < position:
            continue
        line = source.count("\n", 0, found.start()) + 1
        if found[0].startswith("#"):
            words = numbered(line, found[0])
            if comment and (not words or comment[-1][0] != line - 1):
                yield Text(tuple(comment))
                comment = []
            comment += words
        elif found[0] == '"':
            position, literal = terraform_string(source, found.end())
            yield from prose(paragraphs(line, literal))
    yield Text(tuple(comment))


def terraform_string(source: str, start: int) -> tuple[int, str]:
    """Reads a string from behind its opening quote. Returns the position behind it and its text, `VALUE` for interpolations."""
    position, text = start, ""
    while source[position] != '"':
        if source[position] == "\\":
            text += source[position : position + 2]
            position += 2
        elif source.startswith(("${", "%{"), position) and not source.startswith(("$${", "%%{"), position - 1):
            position = end_of_interpolation(source, position + 2)
            text += VALUE
        else:
            text += source[position]
            position += 1
    return position + 1, text


def end_of_interpolation(source: str, start: int) -> int:
    position, depth = start, 1
    while depth:
        if source[position] == '"':
            position, _ = terraform_string(source, position + 1)
            continue
        depth += {"{": 1, "}": -1}.get(source[position], 0)
        position += 1
    return position


# State machines


def asl_texts(path: str, source: str) -> Iterator[Text]:
    for number, line in enumerate(source.splitlines(), start=1):
        for key, literal in re.findall(r'(?:"(\w+)": )?("(?:\\.|[^"\\])*")', line):
            value = json.loads(literal)
            quoted = re.findall(r"'((?:\\.|[^'\\])*)'", value) if value.startswith("{%") else [value]
            for text in quoted:
                found = paragraphs(number, text.replace("\n", "\\n"))
                yield from found if key == "Comment" else prose(found)


# Python


def python_texts(path: str, source: str) -> Iterator[Text]:
    """Vale reads the docstrings of modules, classes and functions."""
    nodes = list(ast.walk(ast.parse(source)))
    described = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
    for node in nodes:
        for each in node.body[1:] if isinstance(node, ast.Module | ast.ClassDef) else []:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
                yield from paragraphs(each.lineno, joined(each.value.value))
    if Path(path).name.startswith("test_"):
        return
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    # A string that is split where it stands is a list of names.
    parts |= {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "split"}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | described:
            text = node.value
        else:
            continue
        yield from prose(paragraphs(node.lineno, text.replace("\\", "\\\\")))


def joined(text: str) -> str:
    """A description, whose paragraphs end with an empty line, as a literal."""
    return re.sub(r"(?<!\n)\n(?!\n)", "\\\\\n", text.replace("\\", "\\\\"))


READERS: dict[str, Callable[[str, str], Iterator[Text]]] = {
    ".rs": rust_texts,
    ".py": python_texts,
    ".tf": terraform_texts,
    ".hcl": terraform_texts,
    ".json": asl_texts,
}


def paragraphs(line: int, literal: str) -> Iterator[Text]:
    """The paragraphs of a string literal that begins in a line. `\\n` ends one, and so does a line without `\\` at its end."""
    current: list[tuple[int, str]] = []
    for number, row in enumerate(literal.split("\n"), start=line):
        *ended, last = row.split("\\n")
        for part in ended:
            yield Text((*current, *numbered(number, part)))
            current = []
        current += numbered(number, last.removesuffix("\\"))
        if not last.endswith("\\"):
            yield Text(tuple(current))
            current = []
    yield Text(tuple(current))


def numbered(number: int, text: str) -> list[tuple[int, str]]:
    words = plain_line(text)
    return [(number, words)] if words else []


def plain_line(text: str) -> str:
    """A line that Markdown reads as words of a paragraph."""
    text = re.sub(r"\\(.)", r"\1", re.sub(r"\\u\{\w+\}|\\[tr0]", " ", text))
    text = re.sub(r"<([\w -]*)>", r"\1", text).replace("<", " ").replace("&", " ")
    return text.strip().lstrip("#>|~=+*-/ ")
