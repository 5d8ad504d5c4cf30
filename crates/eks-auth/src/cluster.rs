//! Where a cluster is: EKS DescribeCluster.

use aws_sdk_eks::error::{ProvideErrorMetadata as _, SdkError};
use aws_sdk_eks::operation::describe_cluster::DescribeClusterError;
use recycle::contract::Cluster;
use recycle::ids::ClusterName;

use crate::Error;

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
            name: name.clone(),
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

/// Unknown, refused, or out of reach: what a caller may do differs.
fn classify(name: &ClusterName, source: SdkError<DescribeClusterError>) -> Error {
    let cluster = name.clone();
    let Some(refusal) = source.as_service_error() else {
        return Error::DescribeUnavailable {
            cluster,
            source: Box::new(source),
        };
    };
    if refusal.is_resource_not_found_exception() {
        return Error::UnknownCluster { cluster };
    }
    let status = source
        .raw_response()
        .map_or(0, |response| response.status().as_u16());
    let throttled = refusal
        .code()
        .is_some_and(|code| code.contains("Throttl") || code == "TooManyRequestsException");
    if throttled || status == 429 || status >= 500 {
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
