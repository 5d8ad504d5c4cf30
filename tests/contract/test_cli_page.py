"""docs/cli.md has the reference of the commands as they are."""

from cli_page import PAGE, with_reference


def test_the_reference_of_the_commands_is_what_the_command_line_says():
    page = PAGE.read_text()
    assert page == with_reference(page), "stale: run `make generate`"
