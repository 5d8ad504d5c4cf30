"""Counts the pods that a node has to wait for.

Written for the comparison after what terraform-aws-recycle-eks does in `checkNodesForRunningPods.py`: the pods of all namespaces
with the node's name as field selector and the awaited pods' label selector. It reads no claim and writes no progress.
"""

import cluster


def handler(event, context):
    api = cluster.connect(event["cluster_name"])
    pods = api.list_pod_for_all_namespaces(
        field_selector=f"spec.nodeName={event['node_name']}", label_selector=event["label_selector"]
    )
    return {**event, "activePodCount": len(pods.items)}
