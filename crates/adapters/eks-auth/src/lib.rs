//! Signs in to an EKS cluster: finds its endpoint and CA (DescribeCluster), signs a token for STS, and builds a Kubernetes client.
//! It also reads whether a node group of the cluster is being updated (DescribeNodegroup).
//!
//! The function's environment names the one cluster, so a payload cannot redirect a token. A process remembers the endpoint and the
//! CA. `kubernetes::open` asks EKS again if the cluster refuses the token or cannot be reached, because the CA rotates. Each invocation
//! signs its own token.

mod client;
mod cluster;
mod error;
#[cfg(test)]
mod laws;
mod token;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use aws_config::SdkConfig;
use aws_credential_types::provider::ProvideCredentials as _;
use recycle::base::ids::{ClusterName, GroupName};
use recycle::cluster::node_group::NodeGroup;

use client::Trust;
pub use cluster::Cluster;
pub use error::Error;
pub use token::sign_token;

/// An AWS identity, with what it needs to reach its cluster.
#[derive(Debug, Clone)]
pub struct Access {
    config: SdkConfig,
    name: ClusterName,
    described: Arc<Mutex<Option<Cluster>>>,
    trust: Arc<Trust>,
}

impl Access {
    /// Takes credentials, region and the timeouts of AWS calls from `config`.
    pub fn new(config: &SdkConfig, name: &ClusterName) -> Self {
        Self {
            config: config.clone(),
            name: name.clone(),
            described: Arc::default(),
            trust: Arc::default(),
        }
    }

    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    /// Rejects a request that names another cluster.
    pub fn check(&self, named: &ClusterName) -> Result<(), Error> {
        if *named == self.name {
            return Ok(());
        }
        Err(Error::AnotherCluster {
            cluster: self.name.clone(),
            named: named.clone(),
        })
    }

    /// Asks EKS for the endpoint of the cluster's API server and for its CA, and remembers both.
    pub async fn describe_cluster(&self) -> Result<Cluster, Error> {
        // The client is built only here. With it the SDK reads every root certificate of the system, and few invocations need one.
        let described = cluster::describe(&aws_sdk_eks::Client::new(&self.config), &self.name).await?;
        *self.described.lock().unwrap_or_else(PoisonError::into_inner) = Some(described.clone());
        Ok(described)
    }

    /// Asks EKS for a managed node group. None if there is no such group, or if `group` is not its Auto Scaling group.
    pub async fn describe_node_group(
        &self,
        name: &str,
        group: &GroupName,
    ) -> Result<Option<NodeGroup>, Error> {
        let eks = aws_sdk_eks::Client::new(&self.config);
        cluster::describe_node_group(&eks, &self.name, name, group).await
    }

    /// Returns the bearer token for the cluster as of the moment `at`. The cluster accepts it for 15 minutes.
    pub async fn token(&self, at: SystemTime) -> Result<String, Error> {
        let region = self.config.region().ok_or(Error::NoRegion)?;
        let provider = self.config.credentials_provider().ok_or(Error::NoCredentials)?;
        let credentials = provider.provide_credentials().await.map_err(Error::Credentials)?;
        sign_token(&self.name, region.as_ref(), credentials, at).await
    }

    /// Returns a client with a fresh token that trusts only the cluster's own CA. The client does not connect yet.
    /// It never repeats a call by itself, because its callers decide which calls are worth repeating.
    pub async fn connect(&self) -> Result<kube::Client, Error> {
        let remembered = self
            .described
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let cluster = match remembered {
            Some(cluster) => cluster,
            None => self.describe_cluster().await?,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a signature is valid from the real moment on, not the state machine's"
        )]
        let token = self.token(SystemTime::now()).await?;
        client::build(&self.name, &cluster, &self.trust, &token)
    }

    /// Asks EKS again for the endpoint and the CA, then connects. For callers that do not try again if the cluster refuses them.
    pub async fn connect_anew(&self) -> Result<kube::Client, Error> {
        self.describe_cluster().await?;
        self.connect().await
    }
}
