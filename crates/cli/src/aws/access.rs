//! Explains why AWS does not answer or does not accept the caller, and says what to type.

use std::collections::BTreeSet;
use std::path::PathBuf;

use aws_config::SdkConfig;

use crate::base::error::{Error, NO_CREDENTIALS, Result, misuse};

/// The codes of AWS for credentials that were valid before.
const EXPIRED: [&str; 4] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "TokenRefreshRequired",
];
/// The codes of AWS for credentials that it does not know, or not in this region.
const UNKNOWN: [&str; 5] = [
    "AuthFailure",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// The settings that an operator may have got wrong.
#[derive(Debug)]
pub(crate) struct Access {
    /// The profile, from the flag or the environment.
    pub profile: Option<String>,
    pub region: String,
    /// The endpoint of all services, if it is set.
    pub endpoint: Option<String>,
}

impl Access {
    pub(crate) fn of(profile: Option<&String>, aws: &SdkConfig) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            profile: profile.cloned().or_else(|| set("AWS_PROFILE")),
            region: aws.region().map(ToString::to_string).unwrap_or_default(),
            endpoint: set("AWS_ENDPOINT_URL").or_else(|| aws.endpoint_url().map(str::to_owned)),
        }
    }

    /// Converts the error of a first call. An error that needs no explanation stays as it is.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let Error::Aws { call, code, reason } = &error else {
            return error;
        };
        let endpoint = self.find_endpoint(call);
        let explained = match code.as_deref() {
            None => self.explain_silence(&endpoint, reason),
            Some(code) => self.explain_refusal(code, reason),
        };
        explained.map_or(error, Error::NoAccess)
    }

    fn explain_refusal(&self, code: &str, reason: &str) -> Option<String> {
        let (login, region) = (self.write_login(), &self.region);
        if EXPIRED.contains(&code) {
            return Some(format!("the AWS credentials have expired: {login} ({reason})"));
        }
        UNKNOWN.contains(&code).then(|| {
            format!(
                "AWS does not accept the credentials: {login}; if they are right, check that the region {region} is enabled in the account ({reason})"
            )
        })
    }

    fn explain_silence(&self, endpoint: &str, reason: &str) -> Option<String> {
        let reason = reason.trim_start_matches(NO_CREDENTIALS);
        let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        let (login, region) = (self.write_login(), &self.region);
        if has(&["dns error"]) {
            return Some(format!(
                "there is no endpoint {endpoint}: check that {region} is a region (--region, AWS_REGION), AWS_ENDPOINT_URL, and the network ({reason})"
            ));
        }
        if has(&["SSO", "access token"]) {
            return Some(format!(
                "the session of the single sign-on has expired, or was never begun: {login} ({reason})"
            ));
        }
        if has(&["external process"]) {
            return Some(format!("the credential_process of the profile failed: {reason}"));
        }
        if has(&["credential"]) {
            return Some(format!("there are no AWS credentials: {login} ({reason})"));
        }
        if has(&["Connect", "connect", "timeout", "timed out", "io error"]) {
            return Some(format!(
                "the endpoint {endpoint} does not answer: check AWS_ENDPOINT_URL, HTTPS_PROXY and the network ({reason})"
            ));
        }
        has(&["parsing", "expected", "unhandled"]).then(|| {
            format!(
                "the answer of the endpoint {endpoint} is not one of AWS: check AWS_ENDPOINT_URL, HTTPS_PROXY and --region ({reason})"
            )
        })
    }

    fn write_login(&self) -> String {
        match &self.profile {
            Some(profile) => {
                let profile = recycle::base::shell::quote(profile);
                format!(
                    "run aws sso login --profile {profile}, or get new ones in the way that this profile needs"
                )
            }
            None => "log in as for the AWS CLI, set AWS_PROFILE, or use --profile".to_owned(),
        }
    }

    /// Returns the endpoint of a call: that of the settings, or the one of the service in the region.
    fn find_endpoint(&self, call: &str) -> String {
        let (service, _) = call.split_once(':').unwrap_or((call, ""));
        let china = if self.region.starts_with("cn-") { ".cn" } else { "" };
        let own = format!("https://{service}.{}.amazonaws.com{china}", self.region);
        self.endpoint.clone().unwrap_or(own)
    }
}

/// Refuses a region that no endpoint can have. Another wrong region has no endpoint in the DNS.
pub(crate) fn check_region(region: &str) -> Result<()> {
    let is_label = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if region.is_empty() || !region.chars().all(is_label) {
        misuse!("--region must be a region such as eu-west-1, but is {region:?}");
    }
    Ok(())
}

/// Refuses a profile that no file of the AWS CLI has. A file that cannot be read counts as empty.
pub(crate) fn check_profile(profile: &str) -> Result<()> {
    let files = [
        find_file("AWS_CONFIG_FILE", ".aws/config"),
        find_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    ];
    let texts = files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let known: BTreeSet<String> = texts.flat_map(|text| list_profiles(&text)).collect();
    if profile == "default" || known.contains(profile) {
        return Ok(());
    }
    let [config, credentials] = files.map(|file| file.display().to_string());
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() {
        "no profile".to_owned()
    } else {
        known
    };
    misuse!(
        "there is no profile {profile:?}: check --profile or AWS_PROFILE; {config} and {credentials} have {known}"
    )
}

fn find_file(variable: &str, usual: &str) -> PathBuf {
    let set = std::env::var_os(variable).filter(|file| !file.is_empty());
    set.map_or_else(
        || std::env::home_dir().unwrap_or_default().join(usual),
        PathBuf::from,
    )
}

/// Lists the profiles of a file: `[profile name]`, `[name]`. The sections of single sign-on and of services are none.
fn list_profiles(text: &str) -> Vec<String> {
    let sections = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix('[')?.split_once(']'));
    let names = sections.filter_map(
        |(section, _)| match section.trim().split_once(char::is_whitespace) {
            None => Some(section.trim()),
            Some(("profile", name)) => Some(name.trim().trim_matches(['"', '\''])),
            Some(_) => None,
        },
    );
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(code: Option<&str>, reason: &str, profile: Option<&str>, endpoint: Option<&str>) -> String {
        let access = Access {
            profile: profile.map(str::to_owned),
            region: "eu-west-9".to_owned(),
            endpoint: endpoint.map(str::to_owned),
        };
        let error = Error::Aws {
            call: "sts:GetCallerIdentity",
            code: code.map(str::to_owned),
            reason: reason.to_owned(),
        };
        access.explain(error).to_string()
    }

    #[test]
    fn an_error_of_a_first_call_says_what_is_wrong_and_what_to_type() {
        for (code, reason, profile, endpoint, words) in [
            (
                Some("ExpiredToken"),
                "it expired",
                Some("a b"),
                None,
                "have expired: run aws sso login --profile 'a b', or",
            ),
            (
                Some("InvalidClientTokenId"),
                "no",
                None,
                None,
                "the region eu-west-9 is enabled in the account",
            ),
            (
                Some("ThrottlingException"),
                "slow",
                None,
                None,
                "failed to call sts:GetCallerIdentity: slow",
            ),
            (
                None,
                "failed to load the cached SSO token",
                Some("dev"),
                None,
                "run aws sso login --profile dev",
            ),
            (
                None,
                "the credential provider was not enabled",
                None,
                None,
                "log in as for the AWS CLI, set AWS_PROFILE, or use --profile",
            ),
            (
                None,
                "external process exited with code 1",
                None,
                None,
                "credential_process of the profile failed",
            ),
            (
                None,
                "dns error: no such host",
                None,
                None,
                "no endpoint https://sts.eu-west-9.amazonaws.com: check that eu-west-9 is a region",
            ),
            (
                None,
                "client error (Connect)",
                None,
                Some("http://127.0.0.1:9"),
                "endpoint http://127.0.0.1:9 does not answer",
            ),
            (
                None,
                "expected value",
                None,
                Some("http://here"),
                "the answer of the endpoint http://here is not one of AWS",
            ),
            (
                None,
                "something else",
                None,
                None,
                "failed to call sts:GetCallerIdentity: something else",
            ),
        ] {
            let text = explain(code, reason, profile, endpoint);
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn profiles_are_the_sections_of_both_files() {
        let text = "[default]\nregion = a\n[profile dev]\n [profile \"a b\"] # old\n[sso-session s]\n[services x]\n[other]\n";
        assert_eq!(list_profiles(text), ["default", "dev", "a b", "other"]);
    }

    #[test]
    fn a_region_has_letters_digits_and_hyphens() {
        assert!(check_region("us-gov-east-1").is_ok());
        for wrong in ["", "eu west", "eu-west-1/"] {
            assert!(matches!(check_region(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
