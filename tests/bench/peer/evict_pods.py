"""Evicts the pods of a node, except awaited ones, one after the other.

Written for the comparison after `k8s_utils.py` of amazon-k8s-node-drainer. It lists the pods of all namespaces with the node's
name as field selector, and posts an Eviction for each. Here it also has a label selector, because some pods are awaited. A
budget's refusal is counted.
"""

import cluster
from kubernetes import client
from kubernetes.client.rest import ApiException

TOO_MANY_REQUESTS = 429


def handler(event, context):
    api = cluster.connect(event["cluster_name"])
    pods = api.list_pod_for_all_namespaces(
        field_selector=f"spec.nodeName={event['node_name']}", label_selector=event["label_selector"]
    )
    evicted = blocked = 0
    for pod in pods.items:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=name, namespace=namespace))
        try:
            api.create_namespaced_pod_eviction(name, namespace, eviction)
            evicted += 1
        except ApiException as refusal:
            if refusal.status != TOO_MANY_REQUESTS:
                raise
            blocked += 1
    return {**event, "evicted": evicted, "blocked": blocked}
