//! Signs an EKS token: the presigned URL of a GetCallerIdentity call, which the cluster's authenticator makes with the identity of the
//! function.
//!
//! The token has the same bytes as that of botocore's signer (`aws eks get-token`) for the same credentials, region, cluster and time.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sdk_sts::config::endpoint::{DefaultResolver, Params, ResolveEndpoint};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign};
use aws_sigv4::sign::v4;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use recycle::base::ids::ClusterName;

use crate::Error;
use crate::error::Source;

const PREFIX: &str = "k8s-aws-v1.";
/// The signed header that ties the token to one cluster. The authenticator sends the name of its own cluster in it.
const CLUSTER_HEADER: &str = "x-k8s-aws-id";
const QUERY: &str = "Action=GetCallerIdentity&Version=2011-06-15";
/// The expiry that `aws eks get-token` writes. The authenticator accepts a token for 15 minutes, whatever the expiry says.
const EXPIRES: Duration = Duration::from_secs(60);
/// All characters except RFC 3986's unreserved ones, as Signature Version 4 requires.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Signs a token for `cluster` as of the moment `at`.
pub async fn sign_token(
    cluster: &ClusterName,
    region: &str,
    credentials: Credentials,
    at: SystemTime,
) -> Result<String, Error> {
    let url = presign(&regional_sts(region).await?, cluster, region, credentials, at)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(url)))
}

/// Returns the plain regional STS endpoint from the SDK's own table of partitions. A configured endpoint, FIPS and dual stack are ignored.
/// The cluster calls this URL, and its authenticator only knows the plain endpoints.
async fn regional_sts(region: &str) -> Result<String, Error> {
    let failed = |source: Source| Error::Endpoint {
        region: region.to_owned(),
        source,
    };
    let params = Params::builder()
        .region(region.to_owned())
        .use_global_endpoint(false)
        .build()
        .map_err(|source| failed(source.into()))?;
    let endpoint = DefaultResolver::new().resolve_endpoint(&params).await;
    Ok(endpoint.map_err(failed)?.url().to_owned())
}

fn presign(
    endpoint: &str,
    cluster: &ClusterName,
    region: &str,
    credentials: Credentials,
    at: SystemTime,
) -> Result<String, Error> {
    let sign_failed = |source: aws_sigv4::http_request::SigningError| Error::Sign(source.into());
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(EXPIRES);
    let identity = credentials.into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("sts")
        .time(at)
        .settings(settings)
        .build()
        .map_err(|source| Error::Sign(source.into()))?
        .into();

    let url = format!("{endpoint}/?{QUERY}");
    let headers = [(CLUSTER_HEADER, cluster.as_str())];
    let request = SignableRequest::new("GET", url.as_str(), headers.into_iter(), SignableBody::Bytes(&[]))
        .map_err(sign_failed)?;
    let (instructions, signature) = sign(request, &params).map_err(sign_failed)?.into_parts();

    // The parameters are reordered. botocore puts the session token before the signature, the Rust signer puts it after.
    let (_, mut signed) = instructions.into_parts();
    signed.retain(|(_, value)| *value != signature);
    signed.push(("X-Amz-Signature", signature.into()));
    let parameters = signed
        .iter()
        .map(|(name, value)| format!("&{name}={}", utf8_percent_encode(value, ENCODED)));
    Ok(std::iter::once(url.clone()).chain(parameters).collect())
}
