"""The module's inputs and outputs, from the Terraform sources. They are the page docs/module.md, and for registries also in the
module's README, between the markers that terraform-docs uses. `make generate` writes both.

The sources are in the form that `terraform fmt` gives them: a block begins and ends at the beginning of a line, an argument of
it is indented by two spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prepare import ROOT

PAGE = ROOT / "docs" / "module.md"
README = ROOT / "terraform" / "README.md"
_BEGIN, _END = "<!-- BEGIN_TF_DOCS -->\n", "<!-- END_TF_DOCS -->\n"

_INTRODUCTION = """\
# The module's inputs and outputs

<!-- Generated from terraform/variables.tf and outputs.tf by `make generate`. -->

How to use them is in [Install on a cluster](install.md).
"""
#: The versions of Terraform and of the provider in versions.tf.
_REQUIREMENT = re.compile(r'required_version = "(.+)"|source = "(.+)"|^ +version = "(.+)"', re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A variable or an output: its arguments as they are written."""

    kind: str
    name: str
    arguments: dict[str, str]


def blocks(text: str) -> Iterator[Block]:
    """The variables and outputs of a file in their order."""
    for kind, name, body in re.findall(r'^(variable|output) "(\w+)" \{\n(.*?)^\}$', text, re.MULTILINE | re.DOTALL):
        arguments = re.findall(r"^  (\w+) += (.*?)(?=\n  \w|\n  #|\n\n|\n\Z)", body, re.MULTILINE | re.DOTALL)
        yield Block(kind, name, dict(arguments))


def render_page() -> str:
    """The whole page docs/module.md."""
    return f"{_INTRODUCTION}\n{render_reference()}"


def with_reference(page: str) -> str:
    """The README with the reference between the markers. Links of descriptions begin in docs/."""
    before, _, rest = page.partition(_BEGIN)
    reference = re.sub(r"\]\((?=[\w-]+\.md)", "](../docs/", render_reference())
    return f"{before}{_BEGIN}{reference}{_END}{rest.partition(_END)[2]}"


def render_reference() -> str:
    """Requirements, inputs and outputs."""
    terraform, provider, versions = (
        "".join(match) for match in _REQUIREMENT.findall((ROOT / "terraform" / "versions.tf").read_text())
    )
    variables = [block for block in blocks((ROOT / "terraform" / "variables.tf").read_text()) if block.kind == "variable"]
    outputs = [block for block in blocks((ROOT / "terraform" / "outputs.tf").read_text()) if block.kind == "output"]
    inputs = "".join(
        f"| `{each.name}` | `{in_one_line(each.arguments['type'])}` | {default_of(each)} | {description_of(each)} |\n"
        for each in variables
    )
    results = "".join(f"| `{each.name}` | {description_of(each)} |\n" for each in outputs)
    return (
        f"## Requirements\n\n| name | version |\n|---|---|\n| terraform | {terraform} |\n| {provider} | {versions} |\n"
        f"\n## Inputs\n\n| input | type | default | meaning |\n|---|---|---|---|\n{inputs}"
        f"\n## Outputs\n\n| output | is |\n|---|---|\n{results}"
    )


def in_one_line(expression: str) -> str:
    """Without comments and needless spaces; a bar would end the table's cell."""
    lines = [re.sub(r"\s*#.*", "", line).strip() for line in expression.splitlines()]
    text = re.sub(r"\s+", " ", " ".join(lines))
    return re.sub(r"(?<=[\w)]) (?=\w+ = )", ", ", text).replace("|", "\\|")


def default_of(block: Block) -> str:
    if "default" not in block.arguments:
        return "required"
    default = in_one_line(block.arguments["default"])
    return "none" if default == "null" else f"`{default}`"


def description_of(block: Block) -> str:
    """The text of a quoted description."""
    return block.arguments["description"].strip().removeprefix('"').removesuffix('"').replace('\\"', '"').replace("|", "\\|")
