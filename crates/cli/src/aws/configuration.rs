//! The AWS configuration. It accepts the sources of the AWS CLI: profiles, single sign-on, `credential_process`, roles, instance and
//! container metadata, `AWS_ENDPOINT_URL`. It also applies `AWS_CA_BUNDLE` and the proxy variables, which the SDK does not read by itself.

use std::time::Duration;

use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sts::config::SharedCredentialsProvider;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder, Connector};

use crate::args::flags::Global;
use crate::aws::access::{check_profile, check_region};
use crate::base::error::{Result, misuse};

/// The longest time to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time of a call with all its attempts. `serve-operator` reads the whole cluster before it answers.
const CALL_TIMEOUT: Duration = Duration::from_secs(90);
/// Attempts of one call. Watching lasts for hours, so a throttle or a lost connection is retried instead of reported.
const ATTEMPTS: u32 = 5;
const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

pub(crate) async fn configure(global: &Global) -> Result<SdkConfig> {
    let trusted = read_trust()?;
    let client = Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder().proxy_config(ProxyConfig::from_env());
        connector.set_connector_settings(settings.cloned());
        if let Some(components) = components {
            connector.set_sleep_impl(components.sleep_impl());
        }
        connector
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .tls_context(trusted.clone())
            .build()
    });
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(client.clone())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS));
    if let Some(profile) = &global.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(region) = &global.region {
        loader = loader.region(Region::new(region.clone()));
    }
    let set = std::env::var("AWS_PROFILE")
        .ok()
        .filter(|profile| !profile.is_empty());
    if let Some(profile) = global.profile.as_ref().or(set.as_ref()) {
        check_profile(profile)?;
    }
    let config = loader.load().await;
    if let Some(region) = config.region() {
        check_region(region.as_ref())?;
    } else {
        misuse!("there is no region: use --region, set AWS_REGION, or add a region to the profile");
    }
    let Some(profile) = &global.profile else {
        return Ok(config);
    };
    // As in the AWS CLI, a profile that is given comes before credentials in the environment. The SDK by itself prefers the environment.
    let provider = ProviderConfig::without_region()
        .with_region(config.region().cloned())
        .with_http_client(client);
    let of_profile = ProfileFileCredentialsProvider::builder()
        .profile_name(profile)
        .configure(&provider)
        .build();
    let of_profile = SharedCredentialsProvider::new(of_profile);
    Ok(config.into_builder().credentials_provider(of_profile).build())
}

/// Returns the system's certificates, or those of the file in `AWS_CA_BUNDLE`, as the AWS CLI does.
fn read_trust() -> Result<TlsContext> {
    let mut store = TrustStore::default();
    if let Some(file) = std::env::var_os(CA_BUNDLE).filter(|file| !file.is_empty()) {
        store = match std::fs::read(&file) {
            Ok(bundle) => TrustStore::empty().with_pem_certificate(bundle),
            Err(error) => misuse!(
                "{CA_BUNDLE} must name a file with certificates, but {} cannot be read: {error}",
                file.display()
            ),
        };
    }
    match TlsContext::builder().with_trust_store(store).build() {
        Ok(context) => Ok(context),
        Err(error) => misuse!("{CA_BUNDLE} has no certificates that can be used: {error}"),
    }
}
