//! One call to the API server, with a time limit and without a retry. Its failures are sorted by kind.

use std::fmt;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::Status;
use serde_json::Value;

use crate::Error;
use crate::error::Source;
use crate::object::{Item, Objects};

/// The time limit for one call. The API server answers within a second.
/// Three calls that hang still fit into the timeout of every function.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The number of objects in one page. kubectl asks for as many. The API server needs about 30 ms for 500 pods.
const PAGE: u32 = 500;

/// The maximum number of characters that are kept of the API server's text.
/// The API server's own sentences are shorter, but a proxy in front of the API server may answer with a whole page.
const LONGEST_TEXT: usize = 500;

/// The call that an error names, such as `patch nodes ip-10-0-0-1`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) name: &'a str,
}

impl<'a> Call<'a> {
    pub(crate) fn new(verb: &'static str, resource: &'static str, name: &'a str) -> Self {
        Self { verb, resource, name }
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb, self.resource, cut(self.name))
    }
}

/// The reason why a call brought no result.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The API server answered with a `Status`.
    Status(Box<Status>),
    /// No answer came, or only a part of one.
    NoAnswer(Source),
    /// The answer or the request is malformed.
    Malformed(Source),
}

pub(crate) async fn send<T>(
    call: Call<'_>,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    let answer = attempt(request).await;
    answer.map_err(|failure| Error::from_failure(call, failure))
}

/// Waits like [`send`], for a caller that handles the kinds of [`CallFailure`] differently.
pub(crate) async fn attempt<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, CallFailure> {
    send_within(CALL_TIMEOUT, request).await
}

async fn send_within<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallFailure> {
    match tokio::time::timeout(limit, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(sort(error)),
        Err(elapsed) => Err(CallFailure::NoAnswer(elapsed.into())),
    }
}

/// Sorts an error of kube. kube's own texts repeat their sources, so only the first cause with new information is kept.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "which other variants there are depends on the features of kube"
)]
fn sort(error: kube::Error) -> CallFailure {
    match error {
        kube::Error::Api(mut status) => {
            status.message = cut(&status.message);
            CallFailure::Status(status)
        }
        kube::Error::HyperError(cause) => CallFailure::NoAnswer(cause.into()),
        kube::Error::Service(cause) => CallFailure::NoAnswer(cause),
        kube::Error::ReadEvents(cause) => CallFailure::NoAnswer(cause.into()),
        kube::Error::SerdeError(cause) => CallFailure::Malformed(cut(&cause.to_string()).into()),
        other => CallFailure::Malformed(other.into()),
    }
}

pub(crate) fn cut(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

/// Fetches one object. None if there is no object with the name.
pub(crate) async fn get(objects: &Objects<'_>, call: Call<'_>) -> Result<Option<Value>, Error> {
    match attempt(objects.get(call.name)).await {
        Err(CallFailure::Status(status)) if status.code == 404 => Ok(None),
        answer => answer
            .map(Some)
            .map_err(|failure| Error::from_failure(call, failure)),
    }
}

/// Fetches every object of a list.
pub(crate) async fn list<T: Item>(
    objects: &Objects<'_>,
    params: ListParams,
    call: Call<'_>,
) -> Result<Vec<T>, Error> {
    let params = params.limit(PAGE);
    restart_if_expired(async || {
        let mut items = Vec::new();
        let keep = |item| {
            items.push(item);
            false
        };
        read_until(objects, params.clone(), call, keep).await?;
        Ok(items)
    })
    .await
}

/// Checks whether any object of a list meets `is_such`. The list is read page by page, and only as far as the first such object.
pub(crate) async fn any<T: Item>(
    objects: &Objects<'_>,
    params: ListParams,
    call: Call<'_>,
    is_such: impl Fn(T) -> bool,
) -> Result<bool, Error> {
    restart_if_expired(async || read_until(objects, params.clone(), call, &is_such).await).await
}

/// Starts the list again, once, if its continue token expired on the way (410).
async fn restart_if_expired<T>(read: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    match read().await {
        Err(Error::Expired { .. }) => read().await,
        finished => finished,
    }
}

/// Reads objects page by page until `is_last` accepts one. Returns whether it accepted one.
async fn read_until<T: Item>(
    objects: &Objects<'_>,
    mut params: ListParams,
    call: Call<'_>,
    mut is_last: impl FnMut(T) -> bool,
) -> Result<bool, Error> {
    loop {
        let (mut items, next) = send(call, objects.list(&params)).await?.into_items();
        if items.any(&mut is_last) {
            return Ok(true);
        }
        match next {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use recycle::base::failure::{Failure, NamedFailure as _};
    use scripted_kube::ScriptedKube;

    use super::*;

    #[tokio::test]
    async fn a_call_to_an_api_server_that_hangs_times_out() {
        let kube = ScriptedKube::new().hangs_on("GET", "/nodes/a");
        let client = kube.client();
        let nodes = Objects::of::<Node>(&client, None);
        let failure = send_within(Duration::from_millis(20), nodes.get("a"))
            .await
            .unwrap_err();
        assert_eq!(kube.requests(), ["GET /api/v1/nodes/a"]);
        let error = Error::from_failure(Call::new("get", "node", "a"), failure);
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert_eq!(error.failure(), Failure::ServiceUnavailable);
    }

    #[test]
    fn three_calls_that_hang_end_before_any_function_times_out() {
        let timeouts: Vec<u64> = include_str!("../../../../terraform/functions.tf")
            .split("timeout = ")
            .filter_map(|rest| rest.split([' ', '\n']).next()?.parse().ok())
            .collect();
        assert!(!timeouts.is_empty());
        for seconds in timeouts {
            assert!(CALL_TIMEOUT * 3 < Duration::from_secs(seconds), "{seconds}");
        }
    }
}
