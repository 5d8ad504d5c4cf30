"""The tables of permissions in README.md: the AWS calls of each function, and the rules in the cluster.

`make generate` writes them. The calls come from terraform/tests/permissions.tftest.hcl, which holds the policies to them.
Those of lifecycle hooks come from terraform/iam.tf, and the rules in the cluster from the ClusterRole.
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
CLUSTER_ROLE = ROOT / "terraform" / "rbac" / "recycle-eks.yaml"
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
    yield "| function | changes in AWS | reads in AWS |"
    yield "|---|---|---|"
    for function in LAMBDAS:
        own = [action for action in allowed[function] if action not in common]
        reads = [action for action in own if action.partition(":")[2].startswith(READS)]
        changes = [action for action in own if action not in reads]
        yield f"| `{function}` | {_listed(changes)} | {_listed(reads)} |"


def cluster_table() -> Iterator[str]:
    """A column for each resource: one row of verbs."""
    [role] = [each for each in yaml.safe_load_all(CLUSTER_ROLE.read_text()) if each["kind"] == "ClusterRole"]
    rules = [(rule["resources"], rule["verbs"]) for rule in role["rules"]]
    yield f"| in the cluster | {' | '.join(_listed(resources) for resources, _ in rules)} |"
    yield f"|---{'|---' * len(rules)}|"
    yield f"| all functions but `start-rotation` | {' | '.join(', '.join(verbs) for _, verbs in rules)} |"


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
