"""docs/module.md, and the reference in the module's README, are what the Terraform sources say."""

import re

from module_page import PAGE, README, Block, blocks, default_of, description_of, in_one_line, render_page, with_reference
from prepare import ROOT

SOURCE = """\
variable "plain" {
  description = "Says \\"so\\" | or not."
  type        = string
  default     = null

  validation {
    condition     = true
    error_message = "no"
  }
}

variable "nested" {
  description = "Where."
  # Why.
  type = object({
    first  = optional(string) # a comment
    second = list(string)
  })
  nullable = false
}

output "result" {
  description = "It."
  value       = 1
}
"""


def test_the_page_is_what_the_sources_say():
    assert PAGE.read_text() == render_page(), "stale: run `make generate`"
    assert README.read_text() == with_reference(README.read_text()), "stale: run `make generate`"


def test_blocks_are_read_with_their_own_arguments_only():
    plain, nested, result = blocks(SOURCE)
    assert (plain.kind, plain.name, plain.arguments["type"]) == ("variable", "plain", "string")
    assert "condition" not in plain.arguments
    assert default_of(plain) == "none" and default_of(nested) == "required"
    assert description_of(plain) == 'Says "so" \\| or not.'
    assert in_one_line(nested.arguments["type"]) == "object({ first = optional(string), second = list(string) })"
    assert result == Block("output", "result", {"description": '"It."', "value": "1"})


def test_every_variable_and_output_of_the_module_has_its_row():
    for file in ("variables", "outputs"):
        text = (ROOT / "terraform" / f"{file}.tf").read_text()
        for name in re.findall(r'^(?:variable|output) "(\w+)"', text, re.MULTILINE):
            assert f"\n| `{name}` |" in PAGE.read_text(), name
