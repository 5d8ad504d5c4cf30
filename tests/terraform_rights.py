"""The permissions in AWS that Terraform needs for the module: the table of docs/install.md, and a comparison with calls."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prepare import ROOT
from world.aws.iam import ACTION

PAGE = ROOT / "docs" / "install.md"
HEADING = "### Permissions for Terraform\n"
#: "No permissions are required to perform this operation" (API reference of STS).
FREE = {"sts:GetCallerIdentity"}


def listed() -> set[str]:
    """The actions in the page's table, such as `iam:CreateRole`."""
    section = PAGE.read_text().partition(HEADING)[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `([a-z0-9]+)` \| (.+?) \| [^|]*\|$", section, re.MULTILINE)
    return {f"{service}:{action}" for service, actions in rows for action in re.findall(r"`(\w+)`", actions)}


def unlisted(actions: Iterable[str]) -> set[str]:
    """Returns the permissions that Terraform needs for these calls and that the page lacks."""
    return {ACTION.get(action, action) for action in actions} - listed() - FREE
