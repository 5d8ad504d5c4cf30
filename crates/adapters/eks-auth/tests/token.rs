//! The tokens equal those of botocore's signer, byte for byte, for the same time and credentials.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use jiff::Timestamp;
use serde::Deserialize;

/// The test vectors that `botocore_vectors.py` writes.
const VECTORS: &str = include_str!("botocore_vectors.json");

#[derive(Debug, Deserialize)]
struct Vector {
    region: String,
    cluster: String,
    at: Timestamp,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    token: String,
}

#[tokio::test]
async fn a_token_equals_that_of_botocore() {
    let vectors: Vec<Vector> = serde_json::from_str(VECTORS).unwrap();
    assert!(!vectors.is_empty());
    for vector in vectors {
        let credentials = Credentials::new(
            &vector.access_key_id,
            &vector.secret_access_key,
            vector.session_token.clone(),
            None,
            "the test",
        );
        let cluster = vector.cluster.parse().unwrap();
        let at = SystemTime::from(vector.at);
        let token = eks_auth::sign_token(&cluster, &vector.region, credentials, at)
            .await
            .unwrap();
        assert_eq!(token, vector.token, "{vector:?}");
    }
}

#[tokio::test]
async fn a_region_that_cannot_be_a_host_name_is_refused() {
    let credentials = Credentials::new("AKIAIOSFODNN7EXAMPLE", "secret", None, None, "the test");
    let error = eks_auth::sign_token(
        &"a".parse().unwrap(),
        "not a region",
        credentials,
        SystemTime::UNIX_EPOCH,
    )
    .await
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to find the STS endpoint of region not a region"
    );
}
