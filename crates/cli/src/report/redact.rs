//! Removes secrets and account ids from a support bundle.

use std::sync::LazyLock;

use recycle::base::printable::change_texts;
use regex_lite::{Captures, Regex};
use serde_json::Value;

/// The account id that stands for all others.
const EXAMPLE: &str = "111122223333";
/// The word that stands for a secret.
const REMOVED: &str = "[removed]";

/// Secrets: a token of EKS, a token in a header, the parts of a signed URL or request, and a JSON Web Token. The id of an access key or a
/// role shows the account.
#[expect(
    clippy::unwrap_used,
    reason = "the expression is a constant, and the tests use it"
)]
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?x)
        (?i: k8s-aws-v1\. | bearer\s+ | credential= | signature= | x-amz-security-token(?: = | %3d | :\s* ) | eyJ ) [A-Za-z0-9\-._~+/=%]*
        | (?: AKIA | ASIA | AROA | AIDA ) [A-Z0-9]{16,}",
    )
    .unwrap()
});
/// Numbers, and before them the words in which a number of 12 digits is no account id: UUIDs and ids of EC2.
#[expect(
    clippy::unwrap_used,
    reason = "the expression is a constant, and the tests use it"
)]
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    let uuid = "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}";
    Regex::new(&format!(r"{uuid}|\b[a-z]+-[0-9a-f]{{17}}\b|[0-9]+")).unwrap()
});

/// Renders a document without secrets, and with an example in place of each account id. `account` is the id of the installation's account,
/// which is replaced even within a longer number.
pub(super) fn redact(document: Value, account: &str) -> String {
    let clean = change_texts(document, &|text| {
        let text = SECRET.replace_all(text, REMOVED);
        NUMBER.replace_all(&text, replace_account).into_owned()
    });
    let text = clean.to_string();
    if account.is_empty() {
        text
    } else {
        text.replace(account, EXAMPLE)
    }
}

fn replace_account(found: &Captures<'_>) -> String {
    let text = found.get(0).map_or("", |found| found.as_str());
    let is_account = text.len() == EXAMPLE.len() && text.bytes().all(|byte| byte.is_ascii_digit());
    let kept = if is_account { EXAMPLE } else { text };
    kept.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn account_ids_and_secrets_are_removed_and_everything_else_stays() {
        for (given, expected) in [
            (json!("nothing"), json!("nothing")),
            (
                json!("arn:aws:states:eu-west-1:210987654321:execution:recycle-node:one"),
                json!("arn:aws:states:eu-west-1:111122223333:execution:recycle-node:one"),
            ),
            (
                json!({"210987654321": ["210987654321.dkr.ecr", 1, null, true]}),
                json!({"111122223333": ["111122223333.dkr.ecr", 1, null, true]}),
            ),
            (
                json!("{\"account\":\"210987654321\",\"at\":1798761600000}"),
                json!("{\"account\":\"111122223333\",\"at\":1798761600000}"),
            ),
            (
                json!("i-0123456789abcdef0, 1798761600"),
                json!("i-0123456789abcdef0, 1798761600"),
            ),
            (
                json!("recycle-node:0a1b2c3d-0000-4000-8000-000000000001"),
                json!("recycle-node:0a1b2c3d-0000-4000-8000-000000000001"),
            ),
            (
                json!("bucket-0000-4000-8000-000000000001"),
                json!("bucket-0000-4000-8000-111122223333"),
            ),
            // The account of the installation.
            (json!(123_456_789_012_u64), json!(111_122_223_333_u64)),
            (json!("%20123456789012%20"), json!("%20111122223333%20")),
            (
                json!("token k8s-aws-v1.aHR0cHM6Ly9zdHM_LQ== of ip-1"),
                json!("token [removed] of ip-1"),
            ),
            (
                json!("Authorization: Bearer abc.DEF-1\nnext"),
                json!("Authorization: [removed]\nnext"),
            ),
            (
                json!(
                    "https://sts/?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=0a1b&X-Amz-Security-Token=IQo%3D&x=1"
                ),
                json!("https://sts/?X-Amz-[removed]&X-Amz-[removed]&[removed]&x=1"),
            ),
            (json!("a eyJhbGciOiJSUzI1NiJ9.e30.c2ln b"), json!("a [removed] b")),
            (json!("a eyJ0eXAiOiJKV1QifQ.e30.c2ln b"), json!("a [removed] b")),
            (
                json!("authorization: bearer abc"),
                json!("authorization: [removed]"),
            ),
            (json!("x-amz-security-token: IQo"), json!("[removed]")),
            (json!("X-Amz-Security-Token%3DIQo"), json!("[removed]")),
            (json!("AROAABCDEFGHIJKLMNOPQ:session"), json!("[removed]:session")),
            (json!("i-0a210987654321bcd"), json!("i-0a210987654321bcd")),
        ] {
            let clean = redact(given.clone(), "123456789012");
            assert_eq!(
                serde_json::from_str::<Value>(&clean).unwrap(),
                expected,
                "{given}"
            );
        }
        assert_eq!(redact(json!("unknown"), ""), "\"unknown\"");
    }
}
