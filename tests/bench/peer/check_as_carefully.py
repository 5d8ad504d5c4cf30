"""Makes the reads of a check of recycle-eks, one after the other: the Node, its Lease, its group, the group's instance refreshes,
and the pods. It judges and writes nothing."""

import boto3
import cluster
from kubernetes import client

autoscaling = boto3.client("autoscaling", region_name=cluster.REGION)


def handler(event, context):
    api = cluster.connect(event["cluster_name"])
    node = api.read_node(event["node_name"])
    instance = node.spec.provider_id.rpartition("/")[2]
    client.CoordinationV1Api(api.api_client).read_namespaced_lease(instance, "recycle-eks")
    autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[event["group"]])
    autoscaling.describe_instance_refreshes(AutoScalingGroupName=event["group"])
    pods = api.list_pod_for_all_namespaces(
        field_selector=f"spec.nodeName={node.metadata.name}", label_selector=event["label_selector"]
    )
    return {**event, "activePodCount": len(pods.items)}
