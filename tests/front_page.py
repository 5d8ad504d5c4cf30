"""The tables of permissions in README.md: the AWS calls and the Kubernetes groups of each function, and the rules of the groups.

`make generate` writes them. The calls come from terraform/tests/permissions.tftest.hcl, which holds the policies to them.
Those of lifecycle hooks come from terraform/iam.tf, the groups from terraform/access.tf, and their rules from the manifest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from prepare import LAMBDAS, ROOT

PAGE = ROOT / "README.md"
BEGIN, END = "<!-- permissions: make generate -->\n", "<!-- end of permissions -->"
POLICIES = ROOT / "terraform" / "iam.tf"
EXPECTED = ROOT / "terraform" / "tests" / "permissions.tftest.hcl"
GROUPS = ROOT / "terraform" / "access.tf"
MANIFEST = ROOT / "terraform" / "rbac" / "recycle-eks.yaml"
#: Calls that only read have names that begin so.
READS = ("Describe", "List")


def with_permissions(page: str) -> str:
    """The page with its tables of permissions as they are now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no place for the permissions"
    return "".join([before, begin, *(f"{line}\n" for line in [*aws_table(), "", *cluster_table()]), end, after])


def aws_table() -> Iterator[str]:
    """A row for each function. The logs, which all functions may write, are left out."""
    allowed = actions_of_functions()
    common = set.intersection(*map(set, allowed.values()))
    yield "| function | changes in AWS | reads in AWS | groups in the cluster |"
    yield "|---|---|---|---|"
    for function in LAMBDAS:
        own = [action for action in allowed[function] if action not in common]
        reads = [action for action in own if action.partition(":")[2].startswith(READS)]
        changes = [action for action in own if action not in reads]
        groups = groups_of_functions().get(function, [])
        yield f"| `{function}` | {_listed(changes)} | {_listed(reads)} | {_listed(groups)} |"


def cluster_table() -> Iterator[str]:
    """A column for each group: its verbs and resources."""
    groups: dict[str, list[str]] = {}
    for role in yaml.safe_load_all(MANIFEST.read_text()):
        place = role["metadata"].get("namespace")
        for rule in role.get("rules", []):
            text = f"{', '.join(rule['verbs'])} {_listed(rule['resources'])}" + (f" in `{place}`" if place else "")
            groups.setdefault(role["metadata"]["name"], []).append(text)
    yield f"| group {' | '.join(f'`{name}`' for name in groups)} |"
    yield f"{'|---' * len(groups)}|"
    yield f"| {' | '.join('; '.join(rules) for rules in groups.values())} |"


def groups_of_functions() -> dict[str, list[str]]:
    """The Kubernetes groups of each function that calls Kubernetes."""
    [listed] = re.findall(r"^  kubernetes_groups = \{\n(.*?)^  \}", GROUPS.read_text(), re.MULTILINE | re.DOTALL)
    return {name: re.findall(r'"([^"]+)"', groups) for name, groups in re.findall(r"^ +([a-z-]+) += (.*)$", listed, re.MULTILINE)}


def actions_of_functions() -> dict[str, list[str]]:
    """The calls that each function may make, those of lifecycle hooks included."""
    found = re.findall(r"^ +([a-z-]+) += tolist\(\[([^]]*)\]\)$", EXPECTED.read_text(), re.MULTILINE)
    actions = {function: re.findall(r'"([^"]+)"', listed) for function, listed in found}
    hooked = re.search(r"setproduct\(\[([^]]*)\]", POLICIES.read_text())
    assert hooked, f"{POLICIES.name} names no functions that complete lifecycle hooks"
    for function in re.findall(r'"([^"]+)"', hooked[1]):
        actions[function] = sorted([*actions[function], "autoscaling:CompleteLifecycleAction"])
    return actions


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"
