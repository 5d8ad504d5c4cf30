//! Opening a cluster: which refusals are worth asking EKS again. Over real connections, on 127.0.0.1.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_http_client::test_util::{ReplayEvent, StaticReplayClient};
use aws_smithy_types::body::SdkBody;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eks_auth::Access;
use node_record::{Error, open};
use recycle::contract::Cluster;
use recycle::failure::{Failure, NamedFailure as _};
use recycle::ids::NodeName;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Some CA's certificate; the connections here are plain, but a client needs one.
const CA: &str = include_str!("../../eks-auth/tests/ca.pem");

/// An API server that gives these answers, one a connection, and returns the tokens that it saw.
async fn api_server(answers: Vec<(u16, serde_json::Value)>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let mut tokens = Vec::new();
        for (status, body) in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut head = String::new();
            while !head.contains("\r\n\r\n") {
                let mut buffer = [0; 4096];
                let length = connection.read(&mut buffer).await.unwrap();
                head.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
            }
            let token = head
                .lines()
                .find_map(|line| line.strip_prefix("authorization: Bearer "));
            tokens.push(token.unwrap_or_default().to_owned());
            let body = body.to_string();
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
        tokens
    });
    (endpoint, serving)
}

/// Access to an EKS that describes the cluster at these endpoints, one a call.
fn access(endpoints: &[&str]) -> Access {
    let events = endpoints.iter().map(|endpoint| {
        let body =
            json!({"cluster": {"endpoint": endpoint, "certificateAuthority": {"data": STANDARD.encode(CA)}}});
        let request = http::Request::builder()
            .uri("https://eks")
            .body(SdkBody::empty())
            .unwrap();
        let response = http::Response::builder()
            .status(200)
            .body(SdkBody::from(body.to_string()))
            .unwrap();
        ReplayEvent::new(request, response)
    });
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .retry_config(RetryConfig::disabled())
        .credentials_provider(SharedCredentialsProvider::new(Credentials::for_tests()))
        .http_client(StaticReplayClient::new(events.collect()))
        .build();
    Access::new(&config)
}

fn cluster(endpoint: &str) -> Cluster {
    Cluster {
        name: "world".parse().unwrap(),
        endpoint: endpoint.to_owned(),
        certificate_authority: STANDARD.encode(CA),
    }
}

fn name() -> NodeName {
    "a".parse().unwrap()
}

fn unauthorized() -> (u16, serde_json::Value) {
    (401, scripted_kube::refusal(401, "Unauthorized", "Unauthorized"))
}

fn node() -> (u16, serde_json::Value) {
    (200, json!({"metadata": {"name": "a", "resourceVersion": "7"}}))
}

#[tokio::test]
async fn a_cluster_that_answers_is_not_described_again() {
    let (endpoint, serving) = api_server(vec![node()]).await;
    let mut cluster = cluster(&endpoint);
    let (_client, found) = open(&access(&[]), &mut cluster, &name()).await.unwrap();
    assert_eq!(found.unwrap().name, name());
    let tokens = serving.await.unwrap();
    assert!(tokens[0].starts_with("k8s-aws-v1."), "{tokens:?}");
}

#[tokio::test]
async fn a_refused_token_is_worth_one_more_try() {
    let (endpoint, serving) = api_server(vec![unauthorized(), node()]).await;
    let mut cluster = cluster(&endpoint);
    let (_client, found) = open(&access(&[&endpoint]), &mut cluster, &name()).await.unwrap();
    assert!(found.is_some());
    assert_eq!(serving.await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_token_that_is_refused_twice_is_an_error_that_the_machine_tries_again() {
    let (endpoint, serving) = api_server(vec![unauthorized(), unauthorized()]).await;
    let error = open(&access(&[&endpoint]), &mut cluster(&endpoint), &name())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
    assert_eq!(serving.await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_cluster_that_has_moved_is_found_again() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let old = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let (endpoint, serving) = api_server(vec![node()]).await;
    let mut cluster = cluster(&old);
    let (_client, found) = open(&access(&[&endpoint]), &mut cluster, &name()).await.unwrap();
    assert!(found.is_some());
    assert_eq!(cluster.endpoint, endpoint, "what is carried on is up to date");
    serving.await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_no_refusal_of_us_is_not_asked_for_again() {
    let busy = (503, scripted_kube::refusal(503, "ServiceUnavailable", "later"));
    let (endpoint, serving) = api_server(vec![busy]).await;
    let error = open(&access(&[]), &mut cluster(&endpoint), &name())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(serving.await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_eks_that_does_not_answer_then_is_the_error() {
    let (endpoint, serving) = api_server(vec![unauthorized()]).await;
    let error = open(&access(&[]), &mut cluster(&endpoint), &name())
        .await
        .err()
        .unwrap();
    assert!(
        matches!(error, Error::Access(eks_auth::Error::DescribeUnavailable { .. })),
        "{error:?}"
    );
    serving.await.unwrap();
}
