//! Removes secrets and account ids from a support bundle.

use recycle::base::printable::change_texts;
use serde_json::Value;

/// The account id that stands for all others.
const EXAMPLE: &str = "111122223333";
const DIGITS_OF_ACCOUNT: usize = 12;
/// The word that stands for a secret.
const REMOVED: &str = "[removed]";

/// The beginnings of secrets: a token of EKS, a token in a header, the parts of a signed URL, and a token of a service account.
const SECRETS: [&str; 6] = [
    "k8s-aws-v1.",
    "Bearer ",
    "X-Amz-Credential=",
    "X-Amz-Security-Token=",
    "X-Amz-Signature=",
    "eyJhbGciOi",
];

/// Renders a document without secrets, and with an example in place of each account id. `account` is the id of the installation's account,
/// which is replaced even within a longer number.
pub(super) fn redact(document: Value, account: &str) -> String {
    let clean = change_texts(document, &|text| replace_accounts(&remove_secrets(text)));
    let text = clean.to_string();
    if account.is_empty() {
        text
    } else {
        text.replace(account, EXAMPLE)
    }
}

fn remove_secrets(text: &str) -> String {
    let remove = |text: String, beginning: &&str| {
        let mut parts = text.split(beginning);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |clean, part| {
            clean + REMOVED + part.trim_start_matches(is_of_secret)
        })
    };
    SECRETS.iter().fold(text.to_owned(), remove)
}

fn is_of_secret(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-._~+/=%".contains(letter)
}

/// Replaces every number of 12 digits.
fn replace_accounts(text: &str) -> String {
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(begin) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, from) = rest.split_at(begin);
        let end = from.find(|letter: char| !letter.is_ascii_digit());
        let (number, after) = from.split_at(end.unwrap_or(from.len()));
        clean += before;
        clean += if number.len() == DIGITS_OF_ACCOUNT {
            EXAMPLE
        } else {
            number
        };
        rest = after;
    }
    clean + rest
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
                json!("https://sts/?[removed]&[removed]&[removed]&x=1"),
            ),
            (json!("a eyJhbGciOiJSUzI1NiJ9.e30.c2ln b"), json!("a [removed] b")),
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
