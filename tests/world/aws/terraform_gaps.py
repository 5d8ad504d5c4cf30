"""Calls of the Terraform provider hashicorp/aws 5.100 that moto 5.2.5 lacks or gets wrong.

EKS: an endpoint and a certificate authority that are a real cluster's, the authentication mode, access entries. Lambda:
the logging configuration, settings that an update must not lose, and versions that are published only when something
changed. EC2: the description of a rule that allows another security group.

Other modules fill the gaps of Step Functions (stepfunctions/api.py) and of Auto Scaling (autoscaling/).
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import moto.eks.urls as eks_urls
from moto.awslambda.models import LambdaBackend, LambdaFunction, LambdaStorage
from moto.awslambda.policy import Policy
from moto.awslambda.responses import LambdaResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.ec2.models.security_groups import SecurityGroupRule
from moto.eks.exceptions import ResourceInUseException, ResourceNotFoundException
from moto.eks.models import Cluster, eks_backends
from moto.eks.responses import EKSResponse
from moto.iam.models import iam_backends
from moto.moto_api._internal import mock_random

from world.aws.account import Aws
from world.aws.identity import ACCOUNT, PARTITION, REGION
from world.aws.moto_internals import LOCK, moto_original

# (ARN of a role or user, Kubernetes user name, Kubernetes groups): what the authenticator needs to know of an access
# entry.
AccessEntry = tuple[str, str, list[str]]

# CreateCluster API reference: "If you create a cluster by using the EKS API, … the default is CONFIG_MAP".
DEFAULT_AUTHENTICATION_MODE = "CONFIG_MAP"


class Eks:
    """The clusters of the account. Create one `Eks` before the first request: it adds routes to moto."""

    def __init__(self, aws: Aws):
        self.aws = aws
        # Called with all entries of all clusters whenever one changes, in the thread of the request.
        self.on_access_entries: Callable[[list[AccessEntry]], None] | None = None
        _install_eks(self)
        _install_lambda()
        _install_ec2()
        aws.on_reset.append(self._reset)

    def create_cluster(self, name: str, endpoint: str, ca_pem: str | bytes) -> None:
        """Creates a cluster that uses access entries, as another Terraform configuration would."""
        with LOCK:
            network = ec2_backends[ACCOUNT][REGION]
            vpc = network.get_default_vpc()
            eks_backends[ACCOUNT][REGION].create_cluster(
                name=name,
                role_arn=f"arn:{PARTITION}:iam::{ACCOUNT}:role/{name}-cluster",
                version="1.35",
                resources_vpc_config={
                    "subnetIds": [],
                    "vpcId": vpc.id,
                    "clusterSecurityGroupId": network.get_default_security_group(vpc.id).id,
                    "endpointPublicAccess": True,
                    "endpointPrivateAccess": True,
                },
            )
            self._cluster(name).access_config = access_config("API")
        self.set_cluster(name, endpoint, ca_pem)

    def set_cluster(self, name: str, endpoint: str, ca_pem: str | bytes) -> None:
        """Sets the address and the certificate authority of the API server in DescribeCluster."""
        pem = ca_pem.encode() if isinstance(ca_pem, str) else ca_pem
        with LOCK:
            cluster = self._cluster(name)
            cluster.endpoint = endpoint
            cluster.certificate_authority = {"data": base64.b64encode(pem).decode()}

    def add_node_group(self, cluster: str, name: str, group: str) -> None:
        """A managed node group of a cluster, to which this Auto Scaling group belongs."""
        with LOCK:
            role = f"arn:{PARTITION}:iam::{ACCOUNT}:role/{name}"
            backend = eks_backends[ACCOUNT][REGION]
            backend.create_nodegroup(cluster_name=cluster, node_role=role, nodegroup_name=name, subnets=[])
            backend.describe_nodegroup(cluster, name).resources = {"autoScalingGroups": [{"name": group}]}

    def set_node_group_status(self, cluster: str, name: str, status: str) -> None:
        """The status in DescribeNodegroup from now on: `ACTIVE`, `UPDATING` …"""
        with LOCK:
            eks_backends[ACCOUNT][REGION].describe_nodegroup(cluster, name).status = status

    def access_entries(self) -> list[AccessEntry]:
        """Returns all working entries of all clusters, in the order of their creation. The entry of a role that was deleted and
        created again under its ARN "won't work" (EKS user guide, "Create access entries")."""
        with LOCK:
            return [
                (entry.principal_arn, entry.username, list(entry.kubernetes_groups))
                for cluster in eks_backends[ACCOUNT][REGION].clusters.values()
                for entry in entries_of(cluster).values()
                if entry.principal_id == id_of(entry.principal_arn)
            ]

    def _cluster(self, name: str) -> Cluster:
        return eks_backends[ACCOUNT][REGION].describe_cluster(name)

    def _reset(self) -> None:
        for cluster in eks_backends[ACCOUNT][REGION].clusters.values():
            cluster.nodegroups.clear()
            cluster.fargate_profiles.clear()

    def changed(self) -> None:
        if self.on_access_entries is not None:
            self.on_access_entries(self.access_entries())


def id_of(principal: str) -> str | None:
    """The unique id of a role; None of a principal that is none, or is not there."""
    roles = iam_backends[ACCOUNT][PARTITION].roles.values()
    return next((role.id for role in roles if role.arn == principal), None)


def access_config(mode: str) -> dict[str, Any]:
    return {"authenticationMode": mode, "bootstrapClusterCreatorAdminPermissions": False}


@dataclass
class Entry:
    """An access entry; the names are those of the API, as moto writes them."""

    cluster_name: str
    principal_arn: str
    username: str
    kubernetes_groups: list[str]
    type: str
    tags: dict[str, str]
    access_entry_arn: str
    principal_id: str | None
    created_at: Any = field(default_factory=utcnow)
    modified_at: Any = field(default_factory=utcnow)


def entries_of(cluster: Cluster) -> dict[str, Entry]:
    """The access entries of a cluster by principal. They live and die with moto's cluster."""
    if not hasattr(cluster, "access_entries"):
        cluster.access_entries = {}
    return cluster.access_entries


def default_username(principal_arn: str) -> str:
    """Returns the ARN of a user, or for a role the ARN of a session, whose name the authenticator fills in."""
    if ":role/" not in principal_arn:
        return principal_arn
    account = principal_arn.split(":")[4]
    return f"arn:{PARTITION}:sts::{account}:assumed-role/{principal_arn.rsplit('/', 1)[1]}/{{{{SessionName}}}}"


# moto's internals: EKS

ENTRIES = "{0}/clusters/(?P<name>[^/]+)/access-entries"
ENTRY_ROUTES = (
    f"{ENTRIES}$",
    f"{ENTRIES}/(?P<principalArn>arn:.+)$",
    f"{ENTRIES}/(?P<principalArn>arn:.+)/access-policies$",
)


def _install_eks(eks: Eks) -> None:
    for route in ENTRY_ROUTES:
        eks_urls.url_paths[route] = eks_urls.response.dispatch
    create = moto_original(EKSResponse, "create_cluster")

    def create_cluster(response: EKSResponse) -> ActionResult:
        result = create(response)
        asked = response._get_param("accessConfig") or {}
        cluster = response.eks_backend.describe_cluster(response._get_param("name"))
        cluster.access_config = access_config(asked.get("authenticationMode", DEFAULT_AUTHENTICATION_MODE))
        return result

    def of(response: EKSResponse) -> dict[str, Entry]:
        return entries_of(response.eks_backend.describe_cluster(response._get_param("name")))

    def found(response: EKSResponse) -> Entry:
        principal = unquote(response._get_param("principalArn"))
        if principal not in of(response):
            raise ResourceNotFoundException(
                message="The specified principalArn could not be found. You can view your available access "
                "entries with 'list-access-entries'."
            )
        return of(response)[principal]

    def create_access_entry(response: EKSResponse) -> ActionResult:
        cluster, principal = response._get_param("name"), response._get_param("principalArn")
        if principal in of(response):
            raise ResourceInUseException(message="The specified access entry resource is already in use on this cluster.")
        kind, _, name = principal.split(":")[5].partition("/")
        entry = Entry(
            cluster_name=cluster,
            principal_arn=principal,
            username=response._get_param("username") or default_username(principal),
            kubernetes_groups=response._get_param("kubernetesGroups") or [],
            type=response._get_param("type") or "STANDARD",
            tags=response._get_param("tags") or {},
            access_entry_arn=(
                f"arn:{PARTITION}:eks:{REGION}:{ACCOUNT}:access-entry/{cluster}/{kind}/{ACCOUNT}/{name.rpartition('/')[2]}/"
                f"{mock_random.uuid4()}"
            ),
            principal_id=id_of(principal),
        )
        of(response)[principal] = entry
        eks.changed()
        return ActionResult({"accessEntry": entry})

    def describe_access_entry(response: EKSResponse) -> ActionResult:
        return ActionResult({"accessEntry": found(response)})

    def update_access_entry(response: EKSResponse) -> ActionResult:
        entry, groups, username = (
            found(response),
            response._get_param("kubernetesGroups"),
            response._get_param("username"),
        )
        entry.kubernetes_groups = entry.kubernetes_groups if groups is None else groups
        entry.username = username or entry.username
        entry.modified_at = utcnow()
        eks.changed()
        return ActionResult({"accessEntry": entry})

    def delete_access_entry(response: EKSResponse) -> EmptyResult:
        entry = found(response)
        del of(response)[entry.principal_arn]
        eks.changed()
        return EmptyResult()

    def list_access_entries(response: EKSResponse) -> ActionResult:
        return ActionResult({"accessEntries": list(of(response))})

    def list_associated_access_policies(response: EKSResponse) -> ActionResult:
        entry = found(response)
        return ActionResult(
            {"clusterName": entry.cluster_name, "principalArn": entry.principal_arn, "associatedAccessPolicies": []}
        )

    for operation in (
        create_cluster,
        create_access_entry,
        describe_access_entry,
        update_access_entry,
        delete_access_entry,
        list_access_entries,
        list_associated_access_policies,
    ):
        setattr(EKSResponse, operation.__name__, operation)


# moto's internals: Lambda

# Settings that moto's UpdateFunctionConfiguration drops, by the attribute that keeps them.
UPDATED_SETTINGS = {
    "TracingConfig": "tracing_config",
    "KMSKeyArn": "kms_key_arn",
    "LoggingConfig": "logging_config",
    "DeadLetterConfig": "dead_letter_config",
}

# The fields of a version: publishing without a change of these gives the last version again (PublishVersion
# API reference).
OF_A_VERSION = (
    "CodeSha256",
    "Description",
    "Handler",
    "MemorySize",
    "Role",
    "Runtime",
    "Timeout",
    "VpcConfig",
    "Layers",
    "TracingConfig",
    "Architectures",
    "EphemeralStorage",
    "Environment",
    "LoggingConfig",
    "DeadLetterConfig",
    "KMSKeyArn",
)


def _install_lambda() -> None:
    create = moto_original(LambdaFunction, "__init__")
    configuration = moto_original(LambdaFunction, "get_configuration")
    update = moto_original(LambdaFunction, "update_configuration")
    update_code = moto_original(LambdaFunction, "update_function_code")
    assert hasattr(LambdaStorage, "publish_version") and hasattr(LambdaBackend, "update_function_code")

    def __init__(function: LambdaFunction, account_id: str, spec: dict[str, Any], *arguments: Any, **named: Any) -> None:
        create(function, account_id, spec, *arguments, **named)
        function.logging_config = logging_config(function, spec.get("LoggingConfig"))
        function.dead_letter_config = spec.get("DeadLetterConfig")

    def get_configuration(function: LambdaFunction, *arguments: Any, **named: Any) -> dict[str, Any]:
        answer = configuration(function, *arguments, **named)
        answer["LoggingConfig"] = function.logging_config
        if function.dead_letter_config:
            answer["DeadLetterConfig"] = function.dead_letter_config
        return answer

    def update_configuration(function: LambdaFunction, changes: dict[str, Any]) -> dict[str, Any]:
        for setting, attribute in UPDATED_SETTINGS.items():
            if setting in changes:
                setattr(function, attribute, changes[setting])
        function.logging_config = logging_config(function, function.logging_config)
        if "EphemeralStorage" in changes:
            function.ephemeral_storage = changes["EphemeralStorage"]["Size"]
        return update(function, changes)

    def update_function_code(function: LambdaFunction, spec: dict[str, Any]) -> dict[str, Any]:
        if "Architectures" in spec:
            function.architectures = spec["Architectures"]
        return update_code(function, spec)

    def publish_version(storage: LambdaStorage, name_or_arn: str, description: str = "") -> LambdaFunction:
        """A numbered copy of $LATEST, unless it is what the last version is."""
        latest = storage.get_function_by_name_or_arn_forbid_qualifier(name_or_arn)
        known = storage._functions[latest.function_name]
        if known["versions"] and _is_same(known["versions"][-1], latest):
            return known["versions"][-1]
        version = copy.copy(latest)
        version.code = dict(latest.code)
        known["highest"] = known.get("highest", 0) + 1
        version.set_version(known["highest"])
        version.description = description or latest.description
        known["versions"].append(version)
        storage._arns[version.function_arn] = version
        return version

    def backend_update_function_code(backend: LambdaBackend, name: str, qualifier: str, body: dict[str, Any]) -> dict[str, Any]:
        function = backend.get_function(name, qualifier)
        answer = function.update_function_code(body)
        if body.get("Publish", False):
            return backend.publish_version(name).get_configuration()
        return answer

    def add_permission(backend: LambdaBackend, name: str, qualifier: str | None, raw: str) -> dict[str, Any]:
        policy = policy_of(backend, name, qualifier)
        statement, _ = policy.add_statement(raw, None)
        statement["Resource"] = f"{policy.parent.function_arn}:{qualifier}" if qualifier else policy.parent.function_arn
        return statement

    def remove_permission(response: LambdaResponse) -> tuple[int, dict[str, Any], str]:
        name, statement = unquote(response.path.split("/")[-3]), response.path.split("/")[-1].split("?")[0]
        qualifier = response.querystring.get("Qualifier", [None])[0]
        policy_of(response.backend, name, qualifier).del_statement(statement, response.querystring.get("RevisionId", [""])[0])
        return 204, {"status": 204}, "{}"

    def get_policy(backend: LambdaBackend, name: str, qualifier: str | None = None) -> str:
        return policy_of(backend, name, qualifier).wire_format()

    for owner, method in (
        (LambdaBackend, add_permission),
        (LambdaResponse, remove_permission),
        (LambdaBackend, get_policy),
    ):
        assert hasattr(owner, method.__name__)
        setattr(owner, method.__name__, method)
    for method in (__init__, get_configuration, update_configuration, update_function_code):
        setattr(LambdaFunction, method.__name__, method)
    LambdaStorage.publish_version = publish_version
    LambdaBackend.update_function_code = backend_update_function_code


def _install_ec2() -> None:
    def description(rule: SecurityGroupRule) -> str | None:
        return {**rule.source_group, **rule.ip_range}.get("Description")

    assert moto_original(SecurityGroupRule, "description")
    SecurityGroupRule.description = property(description)


def logging_config(function: LambdaFunction, given: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the settings with AWS's defaults."""
    return {"LogFormat": "Text", "LogGroup": f"/aws/lambda/{function.function_name}", **(given or {})}


def policy_of(backend: LambdaBackend, name: str, qualifier: str | None) -> Policy:
    """The resource policy of a function, a version or an alias: each has its own."""
    backend.get_function(name, qualifier)
    latest = backend.get_function(name)
    if not qualifier:
        return latest.policy
    if not hasattr(latest, "qualified_policies"):
        latest.qualified_policies = {}
    return latest.qualified_policies.setdefault(qualifier, Policy(latest))


def _is_same(version: LambdaFunction, latest: LambdaFunction) -> bool:
    def essence(function: LambdaFunction) -> str:
        settings = function.get_configuration()
        return json.dumps({name: settings.get(name) for name in OF_A_VERSION}, sort_keys=True, default=str)

    return essence(version) == essence(latest)
