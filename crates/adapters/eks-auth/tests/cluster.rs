//! Requests and answers of DescribeCluster and DescribeNodegroup.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::{Duration, SystemTime};

use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eks_auth::{Access, Cluster, Error};
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::ClusterName;
use scripted_aws::ScriptedAws;
use serde_json::{Value, json};

/// A CA's certificate, without its private key.
const CA: &str = include_str!("ca.pem");

const DESCRIBE: &str = "DescribeCluster";

fn eks_answers(body: &Value) -> Access {
    Access::new(
        &ScriptedAws::new().on(DESCRIBE, &body.to_string()).config(),
        &world(),
    )
}

fn authority() -> String {
    STANDARD.encode(CA)
}

fn world() -> ClusterName {
    "world".parse().unwrap()
}

/// Builds EKS's description of a cluster.
fn described(endpoint: &str, authority: &str) -> Value {
    json!({"cluster": {"endpoint": endpoint, "certificateAuthority": {"data": authority}}})
}

#[tokio::test]
async fn endpoint_and_authority_are_taken_from_the_description() {
    let answer = described("https://127.0.0.1:1", &authority());
    let aws = ScriptedAws::new().on(DESCRIBE, &answer.to_string());
    let access = Access::new(&aws.config(), &world());
    let cluster = Cluster {
        endpoint: "https://127.0.0.1:1".to_owned(),
        certificate_authority: authority(),
    };
    assert_eq!(access.describe_cluster().await.unwrap(), cluster);
    assert_eq!(aws.calls(), ["GET /clusters/world"]);
    access.connect().await.unwrap();
    assert_eq!(aws.calls().len(), 1, "it is remembered");
}

#[tokio::test]
async fn each_failure_of_eks_has_a_name_and_a_cause() {
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
        let aws = ScriptedAws::new().refuses(DESCRIBE, status, code, "what EKS says");
        let error = Access::new(&aws.config(), &world())
            .describe_cluster()
            .await
            .unwrap_err();
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
    let timeouts = TimeoutConfig::builder()
        .operation_timeout(Duration::from_millis(20))
        .build();
    let config = ScriptedAws::new()
        .hangs_on(DESCRIBE)
        .config()
        .to_builder()
        .timeout_config(timeouts)
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .build();
    let error = Access::new(&config, &world())
        .describe_cluster()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::DescribeUnavailable { .. }), "{error:?}");
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
}

#[tokio::test]
async fn a_cluster_that_is_being_created_has_no_api_server() {
    let access = eks_answers(&json!({"cluster": {"status": "CREATING"}}));
    let error = access.describe_cluster().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to find the API server of cluster world, which is CREATING"
    );
    assert_eq!(error.failure(), Failure::ServiceRefused);
}

#[tokio::test]
async fn a_client_needs_a_readable_authority_and_endpoint() {
    let connect =
        async |endpoint: &str, authority: &str| eks_answers(&described(endpoint, authority)).connect().await;
    connect("https://127.0.0.1:1", &authority()).await.unwrap();
    for (authority, cause) in [
        ("not base64!", "Invalid symbol"),
        ("", "there is no certificate in it"),
    ] {
        let error = connect("https://127.0.0.1:1", authority).await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "failed to read the certificate authority of cluster world"
        );
        assert!(with_causes(&error).contains(cause), "{}", with_causes(&error));
    }
    let error = connect("not a URL", &authority()).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "failed to read the endpoint \"not a URL\" of cluster world"
    );
}

#[tokio::test]
async fn no_token_is_sent_over_an_unencrypted_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let plain = format!("http://{}", listener.local_addr().unwrap());
    let client = eks_answers(&described(&plain, &authority()))
        .connect()
        .await
        .unwrap();
    client.apiserver_version().await.unwrap_err();
    assert!(listener.accept().is_err(), "it has connected");
}

#[test]
fn a_request_for_another_cluster_is_refused() {
    let access = Access::new(&ScriptedAws::new().config(), &world());
    access.check(&world()).unwrap();
    let error = access.check(&"other".parse().unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "this installation recycles nodes of cluster world, but the request names other"
    );
    assert_eq!(error.failure(), Failure::InvalidInput);
}

#[tokio::test]
async fn a_token_needs_a_region_and_credentials() {
    let nowhere = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .build();
    let error = Access::new(&nowhere, &world())
        .token(SystemTime::UNIX_EPOCH)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoRegion), "{error:?}");
    let without_credentials = nowhere.to_builder().region(Region::new("eu-west-1")).build();
    let error = Access::new(&without_credentials, &world())
        .token(SystemTime::UNIX_EPOCH)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoCredentials), "{error:?}");
}

#[tokio::test]
async fn the_managed_node_group_of_an_auto_scaling_group_is_read() {
    let of_group = |name: &str| {
        let resources = json!({"autoScalingGroups": [{"name": name}]});
        json!({"nodegroup": {"status": "UPDATING", "resources": resources}}).to_string()
    };
    let aws = ScriptedAws::new()
        .on("DescribeNodegroup", &of_group("workers"))
        .on("DescribeNodegroup", &of_group("others"))
        .refuses(
            "DescribeNodegroup",
            404,
            "ResourceNotFoundException",
            "no such group",
        )
        .refuses(
            "DescribeNodegroup",
            403,
            "AccessDeniedException",
            "not authorized",
        )
        .refuses("DescribeNodegroup", 429, "ThrottlingException", "slow down")
        .breaks_on("DescribeNodegroup");
    let access = Access::new(&aws.config(), &world());
    let group = "workers".parse().unwrap();
    let ask = async || access.describe_node_group("blue", &group).await;
    let found = ask().await.unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.status.as_str()), ("blue", "UPDATING"));
    assert_eq!(ask().await.unwrap(), None);
    assert_eq!(ask().await.unwrap(), None);
    for expected in [
        Failure::ServiceRefused,
        Failure::ServiceUnavailable,
        Failure::ServiceUnavailable,
    ] {
        let error = ask().await.unwrap_err();
        assert_eq!(error.failure(), expected, "{error:?}");
        assert!(
            with_causes(&error)
                .starts_with("failed to describe the managed node group blue of cluster world: ")
        );
    }
    assert_eq!(aws.calls()[0], "GET /clusters/world/node-groups/blue");
}
