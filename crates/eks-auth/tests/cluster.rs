//! DescribeCluster, on the wire: what EKS answers, and what becomes of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::SystemTime;

use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_http_client::test_util::{NeverClient, ReplayEvent, StaticReplayClient};
use aws_smithy_types::body::SdkBody;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eks_auth::{Access, Error};
use recycle::contract::Cluster;
use recycle::failure::{Failure, NamedFailure as _, with_causes};
use recycle::ids::ClusterName;
use serde_json::{Value, json};

/// Some CA's certificate; nobody has its key.
const CA: &str = include_str!("ca.pem");

fn config() -> aws_types::sdk_config::Builder {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .retry_config(RetryConfig::disabled())
        .credentials_provider(SharedCredentialsProvider::new(Credentials::for_tests()))
}

fn eks_answers(status: u16, error: &str, body: &Value) -> Access {
    let request = http::Request::builder()
        .uri("https://eks")
        .body(SdkBody::empty())
        .unwrap();
    let response = http::Response::builder()
        .status(status)
        .header("x-amzn-errortype", error)
        .body(SdkBody::from(body.to_string()))
        .unwrap();
    let replay = StaticReplayClient::new(vec![ReplayEvent::new(request, response)]);
    Access::new(&config().http_client(replay).build())
}

fn authority() -> String {
    STANDARD.encode(CA)
}

fn world() -> ClusterName {
    "world".parse().unwrap()
}

fn cluster(certificate_authority: &str) -> Cluster {
    Cluster {
        name: world(),
        endpoint: "https://127.0.0.1:1".to_owned(),
        certificate_authority: certificate_authority.to_owned(),
    }
}

#[tokio::test]
async fn endpoint_and_authority_are_taken_from_the_description() {
    let answer = json!({"cluster": {"endpoint": "https://127.0.0.1:1", "certificateAuthority": {"data": authority()}}});
    let access = eks_answers(200, "", &answer);
    assert_eq!(
        access.describe_cluster(&world()).await.unwrap(),
        cluster(&authority())
    );
}

#[tokio::test]
async fn what_eks_refuses_has_a_name_and_a_cause() {
    let cases = [
        (
            404,
            "ResourceNotFoundException",
            Failure::ServiceRefused,
            "failed to find a cluster named world",
        ),
        (
            403,
            "AccessDeniedException",
            Failure::ServiceRefused,
            "failed to describe cluster world: EKS refused the call",
        ),
        (
            400,
            "InvalidParameterException",
            Failure::ServiceRefused,
            "failed to describe cluster world: EKS refused",
        ),
        (
            400,
            "ThrottlingException",
            Failure::ServiceUnavailable,
            "failed to describe cluster world: EKS is not",
        ),
        (
            429,
            "TooManyRequestsException",
            Failure::ServiceUnavailable,
            "failed to describe cluster world: EKS is not",
        ),
        (
            503,
            "ServiceUnavailableException",
            Failure::ServiceUnavailable,
            "failed to describe cluster world: EKS is",
        ),
    ];
    for (status, code, failure, text) in cases {
        let access = eks_answers(status, code, &json!({"message": "what EKS says"}));
        let error = access.describe_cluster(&world()).await.unwrap_err();
        assert_eq!(error.failure(), failure, "{code}");
        assert!(error.to_string().starts_with(text), "{code}: {error}");
        let says_why = with_causes(&error).contains("what EKS says");
        assert!(
            says_why || matches!(error, Error::UnknownCluster { .. }),
            "{code}: {}",
            with_causes(&error)
        );
    }
}

#[tokio::test]
async fn an_eks_that_does_not_answer_is_not_available() {
    let timeouts = aws_config::timeout::TimeoutConfig::builder()
        .operation_timeout(std::time::Duration::from_millis(20))
        .build();
    let sleep =
        aws_smithy_async::rt::sleep::SharedAsyncSleep::new(aws_smithy_async::rt::sleep::TokioSleep::new());
    let config = config()
        .http_client(NeverClient::new())
        .timeout_config(timeouts)
        .sleep_impl(sleep)
        .build();
    let error = Access::new(&config).describe_cluster(&world()).await.unwrap_err();
    assert!(matches!(error, Error::DescribeUnavailable { .. }), "{error:?}");
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
}

#[tokio::test]
async fn a_cluster_that_is_being_created_has_no_api_server() {
    let access = eks_answers(200, "", &json!({"cluster": {"status": "CREATING"}}));
    let error = access.describe_cluster(&world()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to find the API server of cluster world, which is CREATING"
    );
    assert_eq!(error.failure(), Failure::ServiceRefused);
}

#[tokio::test]
async fn a_client_needs_a_readable_authority_and_endpoint() {
    let access = Access::new(&config().build());
    access.connect(&cluster(&authority())).await.unwrap();
    for (authority, cause) in [
        ("not base64!", "Invalid symbol"),
        ("", "there is no certificate in it"),
    ] {
        let error = access.connect(&cluster(authority)).await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "failed to read the certificate authority of cluster world"
        );
        assert!(with_causes(&error).contains(cause), "{}", with_causes(&error));
    }
    let elsewhere = Cluster {
        endpoint: "not a URL".to_owned(),
        ..cluster(&authority())
    };
    let error = access.connect(&elsewhere).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "failed to read the endpoint \"not a URL\" of cluster world"
    );
}

#[tokio::test]
async fn a_token_needs_a_region_and_credentials() {
    let nowhere = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .build();
    let error = Access::new(&nowhere)
        .token(&world(), SystemTime::UNIX_EPOCH)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoRegion), "{error:?}");
    let nobody = nowhere.to_builder().region(Region::new("eu-west-1")).build();
    let error = Access::new(&nobody)
        .token(&world(), SystemTime::UNIX_EPOCH)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoCredentials), "{error:?}");
}
