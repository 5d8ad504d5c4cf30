//! Opening a cluster: which refusals are worth asking EKS again. Over real connections, on 127.0.0.1.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::thread::{JoinHandle, spawn};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eks_auth::Access;
use node_record::{Error, open};
use recycle::contract::Cluster;
use recycle::failure::{Failure, NamedFailure as _};
use recycle::ids::NodeName;
use scripted_aws::ScriptedAws;
use serde_json::json;

/// Some CA's certificate; the connections here are plain, but a client needs one.
const CA: &str = include_str!("../../eks-auth/tests/ca.pem");

/// An API server that gives these answers, one a connection, and returns the tokens that it saw.
fn api_server(answers: Vec<(u16, serde_json::Value)>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let answer = move |(status, body): (u16, serde_json::Value)| {
        let (mut connection, _) = listener.accept().unwrap();
        let head = BufReader::new(&connection)
            .lines()
            .map(Result::unwrap)
            .take_while(|line| !line.is_empty());
        let token = head
            .filter_map(|line| line.strip_prefix("authorization: Bearer ").map(str::to_owned))
            .last();
        let body = body.to_string();
        let length = body.len();
        write!(
            connection,
            "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
        token.unwrap_or_default()
    };
    (endpoint, spawn(move || answers.into_iter().map(answer).collect()))
}

/// Access to an EKS that describes the cluster at these endpoints, one a call.
fn access(endpoints: &[&str]) -> Access {
    let aws = endpoints.iter().fold(ScriptedAws::new(), |aws, endpoint| {
        let cluster =
            json!({"cluster": {"endpoint": endpoint, "certificateAuthority": {"data": STANDARD.encode(CA)}}});
        aws.on("DescribeCluster", &cluster.to_string())
    });
    Access::new(&aws.config())
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
    (
        200,
        json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}}),
    )
}

#[tokio::test]
async fn a_cluster_that_answers_is_not_described_again() {
    let (endpoint, serving) = api_server(vec![node()]);
    let mut cluster = cluster(&endpoint);
    let (_client, found) = open(&access(&[]), &mut cluster, &name()).await.unwrap();
    assert_eq!(found.unwrap().name, name());
    let tokens = serving.join().unwrap();
    assert!(tokens[0].starts_with("k8s-aws-v1."), "{tokens:?}");
}

#[tokio::test]
async fn a_refused_token_is_worth_one_more_try() {
    let (endpoint, serving) = api_server(vec![unauthorized(), node()]);
    let mut cluster = cluster(&endpoint);
    let (_client, found) = open(&access(&[&endpoint]), &mut cluster, &name()).await.unwrap();
    assert!(found.is_some());
    assert_eq!(serving.join().unwrap().len(), 2);
}

#[tokio::test]
async fn a_token_that_is_refused_twice_is_an_error_that_the_machine_tries_again() {
    let (endpoint, serving) = api_server(vec![unauthorized(), unauthorized()]);
    let error = open(&access(&[&endpoint]), &mut cluster(&endpoint), &name())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
    assert_eq!(serving.join().unwrap().len(), 2);
}

#[tokio::test]
async fn a_cluster_that_has_moved_is_found_again() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let old = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let (endpoint, serving) = api_server(vec![node()]);
    let mut cluster = cluster(&old);
    let (_client, found) = open(&access(&[&endpoint]), &mut cluster, &name()).await.unwrap();
    assert!(found.is_some());
    assert_eq!(cluster.endpoint, endpoint, "what is carried on is up to date");
    serving.join().unwrap();
}

#[tokio::test]
async fn an_answer_that_is_no_refusal_of_us_is_not_asked_for_again() {
    let busy = (503, scripted_kube::refusal(503, "ServiceUnavailable", "later"));
    let (endpoint, serving) = api_server(vec![busy]);
    let error = open(&access(&[]), &mut cluster(&endpoint), &name())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(serving.join().unwrap().len(), 1);
}

#[tokio::test]
async fn an_eks_that_does_not_answer_then_is_the_error() {
    let (endpoint, serving) = api_server(vec![unauthorized()]);
    let error = open(&access(&[]), &mut cluster(&endpoint), &name())
        .await
        .err()
        .unwrap();
    assert!(
        matches!(error, Error::Access(eks_auth::Error::DescribeUnavailable { .. })),
        "{error:?}"
    );
    serving.join().unwrap();
}
