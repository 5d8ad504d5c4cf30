//! Builds a Kubernetes client with only the layers that are needed. It trusts only the cluster's own CA, sends a token with each request,
//! and never repeats a call by itself.
//!
//! `kube::Client::try_from(Config)` would also work. It would add kubeconfig files, command plugins and JSONPath, which are a tenth of the
//! size of each function.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use kube::client::middleware::BaseUriLayer;
use recycle::base::ids::ClusterName;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tower::{BoxError, ServiceBuilder};

use crate::{Cluster, Error};

/// The time limit for a connection to the API server. A connection that takes longer than a few round trips will not be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The TLS configuration of the last client. Clients with the same CA share their TLS sessions: a later connection to the same API server
/// needs no verification of its certificate, which costs processor time.
#[derive(Debug, Default)]
pub(crate) struct Trust(Mutex<Option<(String, ClientConfig)>>);

impl Trust {
    fn only(&self, authority: &str) -> Result<ClientConfig, BoxError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, config)) = last.as_ref().filter(|(trusted, _)| trusted == authority) {
            return Ok(config.clone());
        }
        let config = trust_only(authority)?;
        *last = Some((authority.to_owned(), config.clone()));
        Ok(config)
    }
}

/// Builds the client, which does not connect yet.
pub(crate) fn build(
    name: &ClusterName,
    cluster: &Cluster,
    trust: &Trust,
    token: &str,
) -> Result<kube::Client, Error> {
    let endpoint: Uri = cluster.endpoint.parse().map_err(|_| Error::UnreadableEndpoint {
        cluster: name.clone(),
        endpoint: cluster.endpoint.clone(),
    })?;
    let tls = trust
        .only(&cluster.certificate_authority)
        .map_err(|source| Error::UnreadableAuthority {
            cluster: name.clone(),
            source,
        })?;
    let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut bearer = bearer.map_err(|source| Error::Sign(source.into()))?;
    // A sensitive header value is not printed in logs.
    bearer.set_sensitive(true);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .build();
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let service = ServiceBuilder::new()
        .layer(BaseUriLayer::new(endpoint))
        .map_request(move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
            request
        })
        .map_err(BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(kube::Client::new(service, "default"))
}

/// Builds a TLS configuration that trusts only these certificates. EKS returns them as base64 of PEM.
fn trust_only(authority: &str) -> Result<ClientConfig, BoxError> {
    let pem = STANDARD.decode(authority)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it".into());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
