//! The failures of signing in to a cluster.

use aws_credential_types::provider::error::CredentialsError;
use recycle::base::failure::{Failure, NamedFailure};
use recycle::base::ids::ClusterName;

pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("this installation recycles nodes of cluster {cluster}, but the request names {named}")]
    AnotherCluster {
        cluster: ClusterName,
        named: ClusterName,
    },
    #[error("failed to find the AWS region in the environment")]
    NoRegion,
    #[error("failed to find AWS credentials in the environment")]
    NoCredentials,
    #[error("failed to load AWS credentials")]
    Credentials(#[source] CredentialsError),
    /// The SDK does not know the STS endpoint of this region.
    #[error("failed to find the STS endpoint of region {region}")]
    Endpoint { region: String, source: Source },
    /// The signer rejected its input, or the token does not fit into an HTTP header.
    #[error("failed to sign a token")]
    Sign(#[source] Source),
    #[error("failed to find a cluster named {cluster} in this account and region")]
    UnknownCluster { cluster: ClusterName },
    /// EKS refused the call, most likely because a permission is missing, or its answer cannot be read.
    #[error("failed to describe cluster {cluster}: EKS refused the call")]
    DescribeRefused { cluster: ClusterName, source: Source },
    /// EKS throttles the call, fails, or cannot be reached.
    #[error("failed to describe cluster {cluster}: EKS is not available")]
    DescribeUnavailable { cluster: ClusterName, source: Source },
    /// EKS did not report the status of a managed node group.
    #[error("failed to describe the managed node group {name} of cluster {cluster}")]
    DescribeNodeGroup {
        cluster: ClusterName,
        name: String,
        /// Whether EKS throttles the call, fails, or cannot be reached. If not, EKS refused the call, or its answer is incomplete.
        is_unavailable: bool,
        source: Source,
    },
    /// The cluster has no API server yet, or no longer has one.
    #[error("failed to find the API server of cluster {cluster}, which is {status}")]
    NotReady { cluster: ClusterName, status: String },
    /// The endpoint is not a URL.
    #[error("failed to read the endpoint {endpoint:?} of cluster {cluster}")]
    UnreadableEndpoint { cluster: ClusterName, endpoint: String },
    /// The certificate authority is not base64 of PEM.
    #[error("failed to read the certificate authority of cluster {cluster}")]
    UnreadableAuthority { cluster: ClusterName, source: Source },
}

impl NamedFailure for Error {
    fn failure(&self) -> Failure {
        match self {
            Self::Credentials(_)
            | Self::DescribeUnavailable { .. }
            | Self::DescribeNodeGroup {
                is_unavailable: true, ..
            } => Failure::ServiceUnavailable,
            Self::UnknownCluster { .. }
            | Self::DescribeRefused { .. }
            | Self::DescribeNodeGroup {
                is_unavailable: false,
                ..
            }
            | Self::NotReady { .. } => Failure::ServiceRefused,
            Self::AnotherCluster { .. } => Failure::InvalidInput,
            Self::NoRegion
            | Self::NoCredentials
            | Self::Endpoint { .. }
            | Self::Sign(_)
            | Self::UnreadableEndpoint { .. }
            | Self::UnreadableAuthority { .. } => Failure::InternalError,
        }
    }
}
