//! Opens a cluster over real TLS connections on 127.0.0.1. Checks after which refusals EKS is called again.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::spawn;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eks_auth::Access;
use kubernetes::{Error, open};
use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::contract::run::Run;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use scripted_aws::ScriptedAws;
use serde_json::json;

/// The API server's certificate (base64 of PEM), which is also its authority, and the TLS configuration that serves it.
static IDENTITY: LazyLock<(String, Arc<ServerConfig>)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (STANDARD.encode(made.cert.pem()), Arc::new(config))
});

/// The tokens of the requests for the Node so far.
type Tokens = Arc<Mutex<Vec<String>>>;

/// Starts an API server that gives these answers, one for each request for the Node. There is no Lease. Each request has a connection.
fn api_server(answers: Vec<(u16, serde_json::Value)>) -> (String, Tokens) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let (tokens, answers) = (Tokens::default(), Arc::new(Mutex::new(answers.into_iter())));
    let seen = Arc::clone(&tokens);
    spawn(move || {
        for socket in listener.incoming() {
            let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
            // A client that has one error does not wait for its other answer, so the connection may break.
            spawn(move || answer(socket?, &seen, || answers.lock().unwrap().next().unwrap()));
        }
    });
    (endpoint, tokens)
}

fn answer(
    socket: TcpStream,
    seen: &Tokens,
    next: impl FnOnce() -> (u16, serde_json::Value),
) -> io::Result<()> {
    let session = ServerConnection::new(Arc::clone(&IDENTITY.1)).unwrap();
    let mut connection = StreamOwned::new(session, socket);
    let mut head = Vec::new();
    for line in BufReader::new(&mut connection).lines() {
        match line? {
            line if line.is_empty() => break,
            line => head.push(line),
        }
    }
    let (status, body) = if head[0].contains("/leases/") {
        (404, scripted_kube::refusal(404, "NotFound", "no Lease"))
    } else {
        let token = head
            .iter()
            .find_map(|line| line.strip_prefix("authorization: Bearer "));
        seen.lock().unwrap().push(token.unwrap_or_default().to_owned());
        next()
    };
    let body = body.to_string();
    let length = body.len();
    write!(
        connection,
        "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    connection.conn.send_close_notify();
    connection.flush()
}

/// Builds access to an EKS that describes the cluster at these endpoints, one for each call.
fn access(endpoints: &[&str]) -> Access {
    let aws = endpoints.iter().fold(ScriptedAws::new(), |aws, endpoint| {
        let cluster =
            json!({"cluster": {"endpoint": endpoint, "certificateAuthority": {"data": IDENTITY.0}}});
        aws.on("DescribeCluster", &cluster.to_string())
    });
    Access::new(&aws.config(), &"world".parse().unwrap())
}

/// Returns a run that is about node `a` of this cluster.
fn run(cluster: &str) -> Run {
    let input = json!({
        "instance_id": "i-0123456789abcdef0", "cluster_name": cluster, "awaited": {"selector": null}, "evict": "others",
        "replacement": "before", "dispose": "terminate", "replacement_timeout": 840, "node_lost_after": 1_800, "drain_timeout": 172_800,
        "on_drain_timeout": "restore", "load_balancer_grace": 60, "urgency": "planned", "dry_run": false, "override": [],
    });
    let run = json!({"input": input, "path": "before", "group": "workers", "node": "a", "claimed_at": "2027-01-01T05:00:00Z"});
    serde_json::from_value(run).unwrap()
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
    let (endpoint, seen) = api_server(vec![node(), node()]);
    let access = access(&[&endpoint]);
    for _ in 0..2 {
        let (_client, found) = open(&access, &run("world")).await.unwrap();
        assert_eq!(found.unwrap().name.as_str(), "a");
    }
    let tokens = seen.lock().unwrap();
    assert!(tokens[0].starts_with("k8s-aws-v1."), "{tokens:?}");
}

#[tokio::test]
async fn a_refused_token_leads_to_one_more_attempt() {
    let (endpoint, seen) = api_server(vec![unauthorized(), node()]);
    let (_client, found) = open(&access(&[&endpoint, &endpoint]), &run("world"))
        .await
        .unwrap();
    assert!(found.is_some());
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_token_that_is_refused_twice_is_an_error_that_the_state_machine_retries() {
    let (endpoint, seen) = api_server(vec![unauthorized(), unauthorized()]);
    let error = open(&access(&[&endpoint, &endpoint]), &run("world"))
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_cluster_with_a_new_endpoint_is_found_again() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let old = format!("https://{}", unused.local_addr().unwrap());
    drop(unused);
    let (endpoint, seen) = api_server(vec![node(), node()]);
    let access = access(&[&old, &endpoint]);
    for _ in 0..2 {
        let (_client, found) = open(&access, &run("world")).await.unwrap();
        assert!(found.is_some());
    }
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn any_other_answer_leads_to_no_second_attempt() {
    let busy = (503, scripted_kube::refusal(503, "ServiceUnavailable", "later"));
    let (endpoint, seen) = api_server(vec![busy]);
    let error = open(&access(&[&endpoint]), &run("world")).await.err().unwrap();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_failure_of_eks_at_the_second_attempt_is_the_error() {
    let (endpoint, seen) = api_server(vec![unauthorized()]);
    let error = open(&access(&[&endpoint]), &run("world")).await.err().unwrap();
    assert!(
        matches!(error, Error::Access(eks_auth::Error::DescribeUnavailable { .. })),
        "{error:?}"
    );
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_run_of_another_cluster_is_refused_before_any_call() {
    let aws = ScriptedAws::new();
    let access = Access::new(&aws.config(), &"world".parse().unwrap());
    let error = open(&access, &run("production")).await.err().unwrap();
    assert!(error.to_string().contains("failed to sign in"), "{error}");
    assert_eq!(error.failure(), Failure::InvalidInput);
    assert!(aws.calls().is_empty());
}
