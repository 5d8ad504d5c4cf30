"""The permissions of functions, machines and an operator, as they stand in IAM and on the API server."""

import json

from world.aws.identity import ACCOUNT, PARTITION, REGION


def short(principal):
    return principal.rpartition("/")[2].removeprefix("recycle-eks-").removesuffix(f"-{REGION}")


def granted(world):
    """Role or user, statement, action: everything that the policies allow as they stand in IAM."""
    iam = world.aws.client("iam")
    world.operators_environment()
    documents = {
        role["RoleName"]: [
            *(
                iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
                for name in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
            ),
            *(
                iam.get_policy_version(PolicyArn=policy["PolicyArn"], VersionId="v1")["PolicyVersion"]["Document"]
                for policy in iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"]
            ),
        ]
        for role in iam.list_roles()["Roles"]
        if role["RoleName"].startswith("recycle-eks-")
    }
    documents["operator"] = [json.loads(world.deployment.outputs["operator_policy_json"])]
    return {
        (short(name), statement["Sid"], action)
        for name, policies in documents.items()
        for policy in policies
        for statement in policy["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }


def credentials(world, who):
    if who == "operator":
        known = world.operators_environment()
        return known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"]
    return world.aws.session(f"arn:{PARTITION}:iam::{ACCOUNT}:role/recycle-eks-{who}-{REGION}", "somebody")


RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUPS = ("recycle-eks-read", "recycle-eks-write", "recycle-eks-lease", "recycle-eks-evict", "recycle-eks-review")
#: The namespace of recycle-eks, and another one.
NAMESPACES = ("recycle-eks", "default")


def rules(world, group, *namespaces):
    """(API group, resource, verb) of a group's ClusterRole and of its Roles in namespaces, as they stand on the API server."""
    roles = world.kubernetes.must("GET", f"{RBAC}/clusterroles")["items"]
    for namespace in namespaces:
        roles += world.kubernetes.must("GET", f"{RBAC}/namespaces/{namespace}/roles")["items"]
    return {
        (api_group, resource, verb)
        for role in roles
        if role["metadata"]["name"] == group
        for rule in role["rules"]
        for api_group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


#: Calls that every user of the cluster may make (Kubernetes documentation, "Discovery roles").
OF_EVERY_USER = {
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
}
