//! The way into an EKS cluster: where it is (DescribeCluster), whether a node group of it is being updated (DescribeNodegroup), who we are (a token signed for STS), and a Kubernetes client.
//!
//! Nothing is cached: an invocation signs one token of its own, and a caller that is refused describes the cluster again
//! (its CA rotates). What is done with the client is not this crate's business.

mod client;
mod cluster;
mod error;
#[cfg(test)]
mod laws;
mod token;

use std::time::SystemTime;

use aws_config::SdkConfig;
use aws_credential_types::provider::ProvideCredentials as _;
use recycle::contract::Cluster;
use recycle::ids::ClusterName;

pub use error::Error;
pub use token::sign_token;

/// Our identity in AWS, and what it needs to reach clusters.
#[derive(Debug, Clone)]
pub struct Access {
    config: SdkConfig,
}

impl Access {
    /// Takes credentials, region and the time-outs of AWS calls from `config`.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        Self {
            config: config.clone(),
        }
    }

    /// Asks EKS where the cluster's API server is and whom to trust there.
    pub async fn describe_cluster(&self, name: &ClusterName) -> Result<Cluster, Error> {
        // Not made before: with its client the SDK reads every root certificate of the system, and few invocations need one.
        cluster::describe(&aws_sdk_eks::Client::new(&self.config), name).await
    }

    /// Asks EKS for the status of a managed node group; none if there is no such group.
    pub async fn describe_node_group(
        &self,
        cluster: &ClusterName,
        name: &str,
    ) -> Result<Option<String>, Error> {
        cluster::describe_node_group(&aws_sdk_eks::Client::new(&self.config), cluster, name).await
    }

    /// The bearer token for a cluster as of the moment `at`; the cluster accepts it for 15 minutes.
    pub async fn token(&self, cluster: &ClusterName, at: SystemTime) -> Result<String, Error> {
        let region = self.config.region().ok_or(Error::NoRegion)?;
        let provider = self.config.credentials_provider().ok_or(Error::NoCredentials)?;
        let credentials = provider.provide_credentials().await.map_err(Error::Credentials)?;
        sign_token(cluster, region.as_ref(), credentials, at).await
    }

    /// A client with a fresh token that trusts the cluster's own CA and nobody else. It does not connect yet, and it never
    /// repeats a call by itself: what is worth repeating, its callers decide.
    pub async fn connect(&self, cluster: &Cluster) -> Result<kube::Client, Error> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a signature is valid from the real moment on, not the state machine's"
        )]
        let token = self.token(&cluster.name, SystemTime::now()).await?;
        client::build(cluster, &token)
    }
}
