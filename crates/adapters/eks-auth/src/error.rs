//! What can go wrong on the way into a cluster.

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_eks::error::SdkError;
use aws_sdk_eks::operation::describe_cluster::DescribeClusterError;
use recycle::base::failure::{Failure, NamedFailure};
use recycle::base::ids::{ClusterName, InvalidId};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What can go wrong on the way into a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment does not name the cluster.
    #[error("failed to read the environment variable CLUSTER_NAME, which is {found:?}")]
    Environment {
        /// What it is, empty if it is not set.
        found: String,
        /// Why it is no name.
        source: InvalidId,
    },
    /// The request is about another cluster.
    #[error("this installation recycles nodes of cluster {cluster}, but the request names {named}")]
    AnotherCluster {
        /// The environment's.
        cluster: ClusterName,
        /// The request's.
        named: ClusterName,
    },
    /// The AWS configuration has no region.
    #[error("failed to find the AWS region in the environment")]
    NoRegion,
    /// The AWS configuration has no credentials provider.
    #[error("failed to find AWS credentials in the environment")]
    NoCredentials,
    /// The credentials provider could not deliver.
    #[error("failed to load AWS credentials")]
    Credentials(#[source] CredentialsError),
    /// The SDK does not know where STS is in this region.
    #[error("failed to find the STS endpoint of region {region}")]
    Endpoint {
        region: String,
        /// Why.
        source: Source,
    },
    /// The signer refused what it was given.
    #[error("failed to sign a token")]
    Sign(#[source] Source),
    /// EKS knows no such cluster.
    #[error("failed to find a cluster named {cluster} in this account and region")]
    UnknownCluster { cluster: ClusterName },
    /// EKS refused the question, most likely for a missing permission.
    #[error("failed to describe cluster {cluster}: EKS refused the call")]
    DescribeRefused {
        cluster: ClusterName,
        /// EKS's answer.
        source: Box<SdkError<DescribeClusterError>>,
    },
    /// EKS throttles, is in trouble, or cannot be reached.
    #[error("failed to describe cluster {cluster}: EKS is not available")]
    DescribeUnavailable {
        cluster: ClusterName,
        /// What happened.
        source: Box<SdkError<DescribeClusterError>>,
    },
    /// EKS did not say what a managed node group is at.
    #[error("failed to describe the managed node group {name} of cluster {cluster}")]
    DescribeNodeGroup {
        cluster: ClusterName,
        /// The node group.
        name: String,
        /// EKS throttles, is in trouble, or cannot be reached; else it refused the call.
        is_unavailable: bool,
        /// What happened.
        source: Source,
    },
    /// The cluster has no API server yet, or no more.
    #[error("failed to find the API server of cluster {cluster}, which is {status}")]
    NotReady { cluster: ClusterName, status: String },
    /// The endpoint is not a URL.
    #[error("failed to read the endpoint {endpoint:?} of cluster {cluster}")]
    UnreadableEndpoint {
        cluster: ClusterName,
        /// What was given.
        endpoint: String,
    },
    /// The certificate authority is not base64 of PEM.
    #[error("failed to read the certificate authority of cluster {cluster}")]
    UnreadableAuthority {
        cluster: ClusterName,
        /// What is wrong with it.
        source: Source,
    },
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
            Self::Environment { .. }
            | Self::NoRegion
            | Self::NoCredentials
            | Self::Endpoint { .. }
            | Self::Sign(_)
            | Self::UnreadableEndpoint { .. }
            | Self::UnreadableAuthority { .. } => Failure::InternalError,
        }
    }
}
