"""The module's resources beside the schema of AWS provider 6. `terraform validate` compares them with a 5."""

from __future__ import annotations

import json
import re

import pytest

from prepare import ROOT
from provider_schema import FILE, PACKAGE, VERSION, Block, Reader, problems, problems_of, resources, type_of, written

SCHEMA = json.loads(FILE.read_text())

QUEUE = {"arguments": ["name", "tags"], "blocks": {"timeouts": {"arguments": ["create"], "blocks": {}, "required": ["create"]}}}
QUEUE = {**QUEUE, "required": ["name"], "attributes": ["arn", "name", "tags"]}


def test_every_argument_block_and_attribute_is_one_of_provider_6():
    assert list(problems(SCHEMA)) == []


def test_the_schema_has_the_types_of_the_module_and_its_examples_alone():
    """Else: `make provider`."""
    assert sorted(SCHEMA["types"]) == sorted({type_of(each) for each in resources()})
    assert SCHEMA["from"] == f"{PACKAGE} {VERSION}"
    assert FILE.read_text() == written(SCHEMA)


def test_the_module_allows_the_provider_that_the_schema_is_of():
    allowed = re.search(r'version = ">= ([\d.]+), < (\d+)"', (ROOT / "terraform" / "versions.tf").read_text())
    least, below = tuple(map(int, allowed[1].split("."))), int(allowed[2])
    version = tuple(map(int, SCHEMA["provider"].split(".")))
    assert least < version and version[0] == 6 and version[0] < below


def test_each_resource_that_terraform_writes_is_read():
    """As many as a search for their first lines finds."""
    lines = [
        line
        for path in (ROOT / "terraform").rglob("*.tf")
        if ".terraform" not in path.parts
        for line in path.read_text().splitlines()
        if re.match(r'(resource|data) "aws_', line)
    ]
    assert len(resources()) == len(lines) > 50
    assert all(each.arguments or each.blocks or each.kind == "data" for each in resources())


@pytest.mark.parametrize(
    "text, problem",
    [
        ('name = "a"', None),
        ('name = "a"\n  for_each = local.each\n  lifecycle {\n    ignore_changes = [tags]\n  }', None),
        ('name = "a"\n  timeouts {\n    create = "5m"\n  }', None),
        ('name = "a"\n  dynamic "timeouts" {\n    for_each = [1]\n    content {\n      create = "5m"\n    }\n  }', None),
        ('name = "a${b["c"]}}"\n  tags = {\n    colour = "red" # { not an argument\n  }', None),
        ('name = <<-EOT\n    arn = "x" {\n  EOT\n  tags = {}', None),
        ('name = "a"\n  colour = "red"', "aws_sqs_queue.this.colour is no argument; allowed are name, tags, timeouts"),
        ('name = "a"\n  arn = "a"', "aws_sqs_queue.this.arn is computed, so it cannot be set"),
        ("tags = {}", "aws_sqs_queue.this has no name; it is required"),
        ('name = "a"\n  tags {\n  }', "aws_sqs_queue.this.tags is an argument, not a block"),
        ('name = "a"\n  timeouts = {}', "aws_sqs_queue.this.timeouts is a block, not an argument"),
        (
            'name = "a"\n  timeouts {\n    change = "5m"\n    create = "5m"\n  }',
            "aws_sqs_queue.this.timeouts.change is no argument",
        ),
        ('name = "a"\n  timeouts {\n  }', "aws_sqs_queue.this.timeouts has no create; it is required"),
        ('name = "a"\n  weather {\n  }', "aws_sqs_queue.this.weather is no block"),
    ],
)
def test_what_the_schema_does_not_have_is_found(text, problem):
    top = Reader(f'resource "aws_sqs_queue" "this" {{\n  {text}\n}}\n', "a.tf").body(Block("", [], ""))
    (block,) = top.blocks
    found = [each.partition(": ")[2] for each in problems_of(block, QUEUE, "aws_sqs_queue.this", QUEUE["attributes"])]
    assert len(found) == (0 if problem is None else 1), found
    assert problem is None or found[0].startswith(problem)
