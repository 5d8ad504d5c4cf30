#!/usr/bin/env python3
"""The arguments of the module's resources beside the schema of AWS provider 6, without that provider.

python3 tests/provider_schema.py     writes contract/provider_6.json again; `make provider` does it

`terraform validate` compares the module with the provider that is installed, which is a 5. The npm package of CDK for Terraform
has the schema of a 6, generated from the provider. It has 390 MB. The file keeps what the module's resource types need: their
arguments and blocks, which of them are required, and their attributes.

tests/contract/test_provider.py compares. The schema does not say how the provider validates values, how many blocks of a kind
may be there, and which arguments exclude each other, so this is not checked.

Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from prepare import ROOT, TESTS, fail, run

FILE = TESTS / "contract" / "provider_6.json"
PACKAGE, VERSION = "@cdktf/provider-aws", "21.22.1"
#: The hash that npm has of the package.
SHA512 = "BuSHeaQFUL9l33pBzIMRT7cTQ69AM2mLtijjteCPhVQRmvuhuj9Lvfymf7knAMhYqAT6+Lrls9jiGVW/Us3zrQ=="

#: Arguments and blocks that Terraform itself adds to each resource and data source.
META = {"count", "depends_on", "for_each", "lifecycle", "provider", "provisioner", "connection"}


# Terraform's language


@dataclass
class Block:
    """A block as it is written: its arguments by name, and the blocks in it."""

    kind: str
    labels: list[str]
    place: str
    arguments: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


_TOKEN = re.compile(r"\s+|#[^\n]*|//[^\n]*|/\*.*?\*/|(?P<word>[A-Za-z_][\w-]*)|(?P<other>.)", re.DOTALL)
_HEREDOC = re.compile(r"<<-?(\w+)\n.*?\n[ \t]*\1(?=\n)", re.DOTALL)


class Reader:
    """Reads the blocks of a file. An expression is skipped, whatever is in it."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.at, self.name = text, 0, name

    def body(self, block: Block) -> Block:
        """Reads up to the brace that ends the block, or to the end of the file."""
        while (word := self._next()) not in ("}", ""):
            place = f"{self.name}:{self.text.count(chr(10), 0, self.at) + 1}"
            labels = []
            while (token := self._next()) not in ("=", "{"):
                labels.append(token.strip('"'))
            if token == "{":
                block.blocks.append(self.body(Block(word, labels, place)))
            else:
                block.arguments.append(word)
                self._skip_expression()
        return block

    def _next(self) -> str:
        while self.at < len(self.text):
            if self.text[self.at] == '"':
                begin = self.at
                self._skip_text()
                return self.text[begin : self.at]
            found = _TOKEN.match(self.text, self.at)
            self.at = found.end()
            if found["word"] or found["other"]:
                return found[0]
        return ""

    def _skip_expression(self) -> None:
        """To the end of the line on which no bracket is open."""
        depth = 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == '"':
                self._skip_text()
                continue
            if heredoc := _HEREDOC.match(self.text, self.at):
                self.at = heredoc.end()
                continue
            if self.text.startswith(("#", "//"), self.at):
                self.at = self.text.index("\n", self.at)
                continue
            if depth == 0 and letter in "\n}":
                return
            depth += (letter in "([{") - (letter in ")]}")
            self.at += 1

    def _skip_text(self) -> None:
        """A text in quotes, whose `${…}` may have texts in them."""
        self.at += 1
        while self.text[self.at] != '"':
            if self.text[self.at] == "\\":
                self.at += 2
            elif self.text.startswith(("${", "%{"), self.at) and self.text[self.at - 1] != self.text[self.at]:
                self.at += 2
                depth = 1
                while depth:
                    if self.text[self.at] == '"':
                        self._skip_text()
                        continue
                    depth += (self.text[self.at] == "{") - (self.text[self.at] == "}")
                    self.at += 1
            else:
                self.at += 1
        self.at += 1


def files() -> list[Path]:
    """The module and its examples."""
    return sorted(path for path in (ROOT / "terraform").rglob("*.tf") if ".terraform" not in path.parts)


@cache
def resources() -> list[Block]:
    """All resources and data sources of the provider, as the module and its examples write them."""
    found = []
    for path in files():
        top = Reader(path.read_text(), str(path.relative_to(ROOT))).body(Block("", [], ""))
        found += [each for each in top.blocks if each.kind in ("resource", "data") and each.labels[0].startswith("aws_")]
    return found


def type_of(block: Block) -> str:
    """`aws_iam_role`, or `data.aws_region`."""
    return f"data.{block.labels[0]}" if block.kind == "data" else block.labels[0]


def references() -> Iterator[tuple[str, str, str]]:
    """Each attribute that an expression reads: the type, the attribute, the file."""
    for path in files():
        text = re.sub(r"^\s*(#|//).*$", "", path.read_text(), flags=re.MULTILINE)
        for data, kind, attribute in re.findall(r"\b(data\.)?(aws_\w+)\.\w+(?:\[[^\]]*\])?\.(\w+)", text):
            yield f"{data}{kind}", attribute, str(path.relative_to(ROOT))


# What is wrong with them


def problems(schema: dict[str, Any]) -> Iterator[str]:
    """One sentence for each thing that the schema does not have, or asks for."""
    for resource in resources():
        name = type_of(resource)
        known = schema["types"].get(name)
        if known is None:
            yield f"{resource.place}: {FILE.name} has no {name}; `make provider` writes it again"
            continue
        yield from problems_of(resource, known, f"{name}.{resource.labels[1]}", known["attributes"])
    for name, attribute, file in sorted(set(references())):
        known = schema["types"].get(name, {"attributes": [attribute]})
        if attribute not in known["attributes"]:
            yield f"{file}: {name} has no attribute {attribute}; it has {', '.join(known['attributes'])}"


def problems_of(block: Block, known: dict[str, Any], path: str, attributes: list[str]) -> Iterator[str]:
    arguments, blocks, given = known["arguments"], known["blocks"], set()
    for name in block.arguments:
        given.add(name)
        if name in META and attributes:
            continue
        if name in blocks:
            yield f"{block.place}: {path}.{name} is a block, not an argument"
        elif name not in arguments:
            only = "is computed, so it cannot be set" if name in attributes else f"is no argument; {_allowed(known)}"
            yield f"{block.place}: {path}.{name} {only}"
    for inner in block.blocks:
        name, content = inner.kind, inner
        if name == "dynamic":
            name, content = inner.labels[0], next(each for each in inner.blocks if each.kind == "content")
        given.add(name)
        if name in META and attributes:
            continue
        if name in arguments:
            yield f"{inner.place}: {path}.{name} is an argument, not a block"
        elif name not in blocks:
            yield f"{inner.place}: {path}.{name} is no block; {_allowed(known)}"
        else:
            yield from problems_of(content, blocks[name], f"{path}.{name}", [])
    for name in known["required"]:
        if name not in given:
            yield f"{block.place}: {path} has no {name}; it is required"


def _allowed(known: dict[str, Any]) -> str:
    return f"allowed are {', '.join(sorted([*known['arguments'], *known['blocks']]))}"


# The schema, from the npm package


def schema_of(package: Path, types: set[str]) -> dict[str, Any]:
    """`package`: the unpacked npm package, or the part of it that has these types."""
    found = {name: _type_in(package / "lib" / folder_of(name), name) for name in sorted(types)}
    provider = json.loads((package / "package.json").read_text())["cdktf"]["provider"]["version"]
    return {"from": f"{PACKAGE} {VERSION}", "provider": provider, "types": found}


def folder_of(name: str) -> str:
    kind = name.rpartition(".")[2].removeprefix("aws_").replace("_", "-")
    return f"data-aws-{kind}" if name.startswith("data.") else kind


def _type_in(folder: Path, name: str) -> dict[str, Any]:
    code, types = (folder / "index.js").read_text(), (folder / "index.d.ts").read_text()
    begin = re.search(r"^class \w+ extends cdktf\.Terraform(Resource|DataSource) \{$", code, re.MULTILINE).start()
    main = code[begin:]
    assert f'tfResourceType = "{name.rpartition(".")[2]}"' in code, f"{folder.name} is not {name}"
    config = re.search(r"^export interface (\w+) extends cdktf\.TerraformMetaArguments \{$", types, re.MULTILINE)[1]
    known = _fields(main[main.index("synthesizeHclAttributes()") :], config, code, types)
    attributes = set(re.findall(r"get\w+Attribute\('(\w+)'\)", main)) | set(re.findall(r'new \w+\(this, "(\w+)"', main))
    return {**known, "attributes": sorted(attributes)}


_FIELD = re.compile(r"^ +(\w+): \{\n +value: (.+),\n +isBlock: (true|false),", re.MULTILINE)


def _fields(code: str, interface: str, whole: str, types: str) -> dict[str, Any]:
    """Arguments, blocks and required ones of a function that writes HCL, and the interface that it writes."""
    listed = code[: code.index("// remove undefined attributes")] if "// remove undefined" in code else code
    arguments, blocks = [], {}
    declared = _declared(interface, types)
    for name, value, is_block in _FIELD.findall(listed):
        if is_block == "false" or not (writer := re.search(r"(\w+ToHclTerraform)\b(?!\w)", value.replace("cdktf.", ""))):
            arguments.append(name)
            continue
        body = re.search(rf"^function {writer[1]}\(struct\) \{{$.*?^\}}$", whole, re.MULTILINE | re.DOTALL)
        if body is None:
            arguments.append(name)
            continue
        blocks[name] = _fields(body[0], declared[name][0], whole, types)
    required = sorted(name for name, (_, optional) in declared.items() if not optional)
    return {"arguments": sorted(arguments), "blocks": blocks, "required": required}


def _declared(interface: str, types: str) -> dict[str, tuple[str, bool]]:
    """The fields of an interface by Terraform's names: their type, and whether they are optional."""
    body = re.search(rf"^export interface {interface}(?: extends [\w.]+)? \{{$(.*?)^\}}$", types, re.MULTILINE | re.DOTALL)[1]
    fields = re.findall(r"#(\w+) \w+#\w+\}(?:(?!readonly).)*?\*/\s+readonly \w+(\??): (\w+)", body, re.DOTALL)
    return {name: (of, optional == "?") for name, optional, of in fields}


def written(schema: dict[str, Any]) -> str:
    return f"{json.dumps(schema, indent=1)}\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(["npm", "pack", "--ignore-scripts", "--silent", f"{PACKAGE}@{VERSION}"], "npm pack", cwd=folder)
        (packed,) = Path(folder).glob("*.tgz")
        if base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode() != SHA512:
            fail(f"{packed.name} is not the package whose hash is in {Path(__file__).name}")
        types = {type_of(each) for each in resources()}
        folders = {f"package/lib/{folder_of(name)}" for name in types}
        wanted = {"package/package.json", *(f"{each}/index.{end}" for each in folders for end in ("js", "d.ts"))}
        with tarfile.open(packed) as archive:
            archive.extractall(folder, [each for each in archive if each.name in wanted], filter="data")
        FILE.write_text(written(schema_of(Path(folder) / "package", types)))
    print(f"wrote {FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
