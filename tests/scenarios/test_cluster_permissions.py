"""The API server refuses each function everything that its Kubernetes groups do not allow."""

from prepare import LAMBDAS
from scenarios.permissions import GROUPS, NAMESPACES, OF_EVERY_USER, RBAC, credentials, rules
from world.aws.identity import REGION
from world.deployment import CLUSTER
from world.kubernetes.eks_token import eks_token
from world.kubernetes.kube_client import KubeClient


def every_verb(world):
    """Every verb of every resource that the API server has."""
    groups = [("", "/api/v1")]
    for group in world.kubernetes.must("GET", "/apis")["groups"]:
        groups.append((group["name"], f"/apis/{group['preferredVersion']['groupVersion']}"))
    for group, path in groups:
        for resource in world.kubernetes.must("GET", path)["resources"]:
            for verb in resource["verbs"]:
                yield group, resource["name"], verb


def test_a_group_may_do_nothing_else(world):
    def is_allowed(groups, namespace, group, resource, verb):
        name, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": name, "subresource": subresource, "verb": verb, "namespace": namespace}
        asked = {"user": "somebody", "groups": [*groups, "system:authenticated"], "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
        return world.kubernetes.must("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]

    every = set(every_verb(world))
    assert len(every) > 300
    for namespace in NAMESPACES:
        # RBAC only adds: a user in all groups may do everything that a user in one of them may do.
        together = {each for each in every if is_allowed(GROUPS, namespace, *each)}
        assert together == set().union(*(rules(world, role, namespace) for role in GROUPS)) | OF_EVERY_USER, namespace
        for role in GROUPS:
            alone = {each for each in together if is_allowed([role], namespace, *each)}
            assert alone == rules(world, role, namespace) | OF_EVERY_USER, (role, namespace)


NODE = "/api/v1/nodes/{node}"


#: Calls that no function may make.
ELSE = [
    ("PUT", NODE),
    ("PATCH", f"{NODE}/status"),
    ("GET", f"{NODE}/proxy/"),
    ("POST", "/api/v1/nodes"),
    ("DELETE", "/api/v1/nodes"),
    ("GET", "/api/v1/nodes?watch=true"),
    ("GET", "/api/v1/namespaces/default/pods/web"),
    ("DELETE", "/api/v1/namespaces/default/pods"),
    ("PATCH", "/api/v1/namespaces/default/pods/web"),
    ("POST", "/api/v1/namespaces/default/pods/web/exec"),
    ("GET", "/api/v1/namespaces/default/secrets"),
    ("GET", "/api/v1/namespaces/kube-system/configmaps/aws-auth"),
    ("GET", "/apis/apps/v1/deployments"),
    ("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"),
    ("PATCH", f"{RBAC}/clusterroles/recycle-eks-evict"),
]


def client_of(world, function):
    token = eks_token(CLUSTER, REGION, *credentials(world, function))
    return KubeClient(world.kubernetes.proxy.port, world.kubernetes.control_plane.authority.file, token=token)


def call(client, method, path):
    body = {} if method in ("PUT", "PATCH", "POST") else None
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return client.call(method, path, body, content_type)


def test_the_api_server_refuses_a_function_everything_else(world):
    node = world.group("workers", size=1).nodes[0]
    client = client_of(world, "evict-pods")

    answers = {(method, path): call(client, method, path.format(node=node.name)) for method, path in ELSE}

    assert {row: answer for row, answer in answers.items() if answer.status != 403} == {}
    assert {row: answer for row, answer in answers.items() if "forbidden" not in answer.body["message"]} == {}


POD = "/api/v1/namespaces/default/pods/web"
EVICTION = f"{POD}/eviction"
#: A call of each group, and a function that is not in the group.
NOT_IN_THE_GROUP = [
    ("evict-pods", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ("select-nodes", "PATCH", NODE),
    ("select-nodes", "POST", "/api/v1/namespaces/default/events"),
    *((function, "DELETE", POD) for function in LAMBDAS if function not in ("evict-pods", "start-rotation")),
    *((function, "POST", EVICTION) for function in LAMBDAS if function not in ("evict-pods", "start-rotation")),
]


def test_the_api_server_refuses_a_function_the_calls_of_other_groups(world):
    node = world.group("workers", size=1).nodes[0]
    answers = {row: call(client_of(world, row[0]), row[1], row[2].format(node=node.name)) for row in NOT_IN_THE_GROUP}
    assert {row: answer.status for row, answer in answers.items() if answer.status != 403} == {}


def test_a_function_that_does_not_call_kubernetes_has_no_access(world):
    assert client_of(world, "start-rotation").call("GET", "/api/v1/nodes").status == 401
