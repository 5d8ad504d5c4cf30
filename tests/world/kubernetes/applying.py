"""Server-side apply of manifests. At the end their permissions are in force."""

from __future__ import annotations

import time

import yaml

from world.kubernetes.kube_client import APPLY_PATCH, Json, KubeClient
from world.kubernetes.settled import NotSettled

_MANAGER = "world"


def apply(client: KubeClient, manifest: str, limit: float) -> None:
    """Applies all documents of a YAML text. `limit` is the number of real seconds until their permissions must be in force."""
    documents = [document for document in yaml.safe_load_all(manifest) if document]
    for document in documents:
        path = f"{_path_of(client, document)}?fieldManager={_MANAGER}&force=true"
        client.patch(path, document, APPLY_PATCH)
    _await_rights(client, documents, limit)


def _path_of(client: KubeClient, document: Json) -> str:
    version, kind = document["apiVersion"], document["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    for resource in client.get(root)["resources"]:
        if resource["kind"] == kind and "/" not in resource["name"]:
            namespace = f"/namespaces/{document['metadata'].get('namespace', 'default')}"
            return f"{root}{namespace if resource['namespaced'] else ''}/{resource['name']}/{document['metadata']['name']}"
    raise LookupError(f"the API server knows no {kind} in {version}")


def _await_rights(client: KubeClient, documents: list[Json], limit: float) -> None:
    """The API server's authorizer learns of roles and bindings a few milliseconds later than it stores them."""
    rules = {_name_of(each): each.get("rules") or [] for each in documents if each["kind"] in ("ClusterRole", "Role")}
    for binding in (each for each in documents if each["kind"] in ("ClusterRoleBinding", "RoleBinding")):
        namespace = binding["metadata"].get("namespace", "")
        for subject in binding.get("subjects") or ():
            for rule in rules.get((binding["roleRef"]["name"], namespace), []):
                if subject["kind"] == "Group" and rule.get("resources"):
                    _await_right(client, subject["name"], namespace, rule, limit)


def _name_of(document: Json) -> tuple[str, str]:
    return document["metadata"]["name"], document["metadata"].get("namespace", "")


def _await_right(client: KubeClient, group: str, namespace: str, rule: Json, limit: float) -> None:
    resource, _, subresource = rule["resources"][-1].partition("/")
    attributes = {
        "group": rule["apiGroups"][-1],
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
        "verb": rule["verbs"][-1],
        "name": (rule.get("resourceNames") or [""])[-1],
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "world", "groups": [group], "resourceAttributes": attributes},
    }
    deadline = time.monotonic() + limit
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    while not client.create(path, review)["status"]["allowed"]:
        if time.monotonic() > deadline:
            raise NotSettled(f"the group {group} may not {attributes}")
        time.sleep(0.005)
