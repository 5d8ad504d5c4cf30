//! Where a cluster is: EKS DescribeCluster; and what its managed node groups are at: EKS DescribeNodegroup.

use aws_sdk_eks::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_eks::operation::describe_cluster::DescribeClusterError;
use aws_sdk_eks::operation::describe_nodegroup::DescribeNodegroupError;
use recycle::base::ids::ClusterName;

use crate::Error;

/// Where a cluster's API server is, and whom to trust there.
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
        .map_err(|source| classify(name, source))?;
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
        // A cluster that is still being created, or failed to be.
        _ => Err(Error::NotReady {
            cluster: name.clone(),
            status: cluster
                .and_then(|cluster| cluster.status())
                .map_or("without a status", |status| status.as_str())
                .to_owned(),
        }),
    }
}

/// `Nodegroup.status`, such as `ACTIVE` or `UPDATING`; none if there is no such group any more.
pub(crate) async fn describe_node_group(
    eks: &aws_sdk_eks::Client,
    cluster: &ClusterName,
    name: &str,
) -> Result<Option<String>, Error> {
    let answer = eks
        .describe_nodegroup()
        .cluster_name(cluster.as_str())
        .nodegroup_name(name)
        .send()
        .await;
    match answer {
        Ok(answer) => match answer.nodegroup().and_then(|group| group.status()) {
            Some(status) => Ok(Some(status.as_str().to_owned())),
            None => Err(Error::DescribeNodeGroup {
                cluster: cluster.clone(),
                name: name.to_owned(),
                is_unavailable: false,
                source: "the answer does not say its status".into(),
            }),
        },
        Err(source)
            if source
                .as_service_error()
                .is_some_and(DescribeNodegroupError::is_resource_not_found_exception) =>
        {
            Ok(None)
        }
        Err(source) => {
            let is_unavailable = is_unavailable(&source);
            Err(Error::DescribeNodeGroup {
                cluster: cluster.clone(),
                name: name.to_owned(),
                is_unavailable,
                source: source.into(),
            })
        }
    }
}

/// Unknown, refused, or out of reach: what a caller may do differs.
fn classify(name: &ClusterName, source: SdkError<DescribeClusterError>) -> Error {
    let cluster = name.clone();
    if source
        .as_service_error()
        .is_some_and(DescribeClusterError::is_resource_not_found_exception)
    {
        return Error::UnknownCluster { cluster };
    }
    if is_unavailable(&source) {
        Error::DescribeUnavailable {
            cluster,
            source: Box::new(source),
        }
    } else {
        Error::DescribeRefused {
            cluster,
            source: Box::new(source),
        }
    }
}

/// EKS throttles, is in trouble, or did not answer.
fn is_unavailable<E: ProvideErrorMetadata>(source: &SdkError<E>) -> bool {
    let Some(refusal) = source.as_service_error() else {
        return true;
    };
    let status = source
        .raw_response()
        .map_or(0, |response| response.status().as_u16());
    let throttled = refusal
        .code()
        .is_some_and(|code| code.contains("Throttl") || code == "TooManyRequestsException");
    throttled || status == 429 || status >= 500
}
