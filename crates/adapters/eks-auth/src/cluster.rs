//! Reads the endpoint and CA of a cluster (EKS DescribeCluster), and the status of its managed node groups (EKS DescribeNodegroup).

use aws_sdk_eks::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_eks::operation::describe_cluster::DescribeClusterError;
use aws_sdk_eks::operation::describe_nodegroup::DescribeNodegroupError;
use recycle::base::ids::{ClusterName, GroupName};
use recycle::cluster::node_group::NodeGroup;

use crate::Error;
use crate::error::Source;

/// The address of a cluster's API server, and the CA to trust there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// `cluster.endpoint`, such as `https://…eks.amazonaws.com`.
    pub endpoint: String,
    /// `cluster.certificateAuthority.data`: base64 of PEM.
    pub certificate_authority: String,
}

pub(crate) async fn describe(eks: &aws_sdk_eks::Client, name: &ClusterName) -> Result<Cluster, Error> {
    let answer = eks
        .describe_cluster()
        .name(name.as_str())
        .send()
        .await
        .map_err(|error| classify(name, error))?;
    let cluster = answer.cluster();
    let endpoint = cluster.and_then(|cluster| cluster.endpoint());
    let authority = cluster
        .and_then(|cluster| cluster.certificate_authority())
        .and_then(|ca| ca.data());
    match (endpoint, authority) {
        (Some(endpoint), Some(authority)) => Ok(Cluster {
            endpoint: endpoint.to_owned(),
            certificate_authority: authority.to_owned(),
        }),
        // The cluster is still being created, or its creation failed.
        _ => {
            let status = cluster.and_then(|cluster| cluster.status());
            let status = status.map_or("without a status", |status| status.as_str());
            Err(Error::NotReady {
                cluster: name.clone(),
                status: status.to_owned(),
            })
        }
    }
}

/// Returns the managed node group with its status. None if there is no such group, or if `group` is not its Auto Scaling group.
pub(crate) async fn describe_node_group(
    eks: &aws_sdk_eks::Client,
    cluster: &ClusterName,
    name: &str,
    group: &GroupName,
) -> Result<Option<NodeGroup>, Error> {
    let failed = |is_unavailable: bool, source: Source| Error::DescribeNodeGroup {
        cluster: cluster.clone(),
        name: name.to_owned(),
        is_unavailable,
        source,
    };
    let is_gone = DescribeNodegroupError::is_resource_not_found_exception;
    let answer = eks
        .describe_nodegroup()
        .cluster_name(cluster.as_str())
        .nodegroup_name(name)
        .send()
        .await;
    match answer {
        // A group that is being created, or could not be, has no nodes.
        Ok(answer) if answer.nodegroup().is_some_and(is_in_creation) => Ok(None),
        Ok(answer) => match answer.nodegroup().and_then(read_node_group) {
            Some((status, groups)) => Ok(groups.contains(&group.as_str()).then(|| NodeGroup {
                name: name.to_owned(),
                status: status.to_owned(),
            })),
            None => Err(failed(
                false,
                "the answer lacks the status or an Auto Scaling group".into(),
            )),
        },
        Err(error) if error.as_service_error().is_some_and(is_gone) => Ok(None),
        Err(error) => Err(failed(is_unavailable(&error), error.into())),
    }
}

fn is_in_creation(found: &aws_sdk_eks::types::Nodegroup) -> bool {
    let status = found.status();
    status.is_some_and(|status| ["CREATING", "CREATE_FAILED"].contains(&status.as_str()))
}

/// Returns the status, and the names of the Auto Scaling groups. None if one of them is missing.
fn read_node_group(found: &aws_sdk_eks::types::Nodegroup) -> Option<(&str, Vec<&str>)> {
    let groups = found.resources()?.auto_scaling_groups();
    let names: Option<Vec<&str>> = groups
        .iter()
        .map(aws_sdk_eks::types::AutoScalingGroup::name)
        .collect();
    let names = names.filter(|names| !names.is_empty())?;
    Some((found.status()?.as_str(), names))
}

/// Sorts an error into unknown cluster, EKS not available, or call refused, because the caller handles each differently.
fn classify(name: &ClusterName, error: SdkError<DescribeClusterError>) -> Error {
    let cluster = name.clone();
    let is_unknown = DescribeClusterError::is_resource_not_found_exception;
    if error.as_service_error().is_some_and(is_unknown) {
        return Error::UnknownCluster { cluster };
    }
    let is_unavailable = is_unavailable(&error);
    let source = error.into();
    if is_unavailable {
        Error::DescribeUnavailable { cluster, source }
    } else {
        Error::DescribeRefused { cluster, source }
    }
}

/// Checks whether EKS throttles the call or fails (5xx). An error without an answer of EKS also counts, such as a timeout.
fn is_unavailable<E: ProvideErrorMetadata>(source: &SdkError<E>) -> bool {
    let Some(refusal) = source.as_service_error() else {
        return true;
    };
    let status = source
        .raw_response()
        .map_or(0, |response| response.status().as_u16());
    let code = refusal.code().unwrap_or_default();
    code.contains("Throttl") || code == "TooManyRequestsException" || status == 429 || status >= 500
}
