//! A Kubernetes API server that answers from a script and records the calls. It is only for tests of adapters. The local world runs a real
//! API server.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

/// An API server with a script of answers.
#[derive(Debug, Clone, Default)]
pub struct ScriptedKube {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    script: VecDeque<Exchange>,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Exchange {
    method: &'static str,
    path: String,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Response(u16, Value),
    BrokenConnection,
    Silence,
}

/// A call that the API server received.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub method: String,
    /// The path and the query, as received.
    pub path: String,
    /// `Content-Type`, empty if there was none.
    pub content_type: String,
    /// The body. Null if there was none.
    pub body: Value,
}

impl ScriptedKube {
    /// Creates an API server with an empty script.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers one call of this method whose path contains `path`. Answers that match the same call are given in order.
    #[must_use]
    pub fn on(self, method: &'static str, path: &str, status: u16, body: Value) -> Self {
        self.add(method, path, Answer::Response(status, body))
    }

    /// Answers one call by breaking the connection.
    #[must_use]
    pub fn breaks_on(self, method: &'static str, path: &str) -> Self {
        self.add(method, path, Answer::BrokenConnection)
    }

    /// Never answers one call.
    #[must_use]
    pub fn hangs_on(self, method: &'static str, path: &str) -> Self {
        self.add(method, path, Answer::Silence)
    }

    /// Answers one call with a `Status`, as the API server does when it refuses a call.
    #[must_use]
    pub fn refuses(self, method: &'static str, path: &str, status: u16, reason: &str, message: &str) -> Self {
        self.on(method, path, status, refusal(status, reason, message))
    }

    fn add(self, method: &'static str, path: &str, answer: Answer) -> Self {
        self.state().script.push_back(Exchange {
            method,
            path: path.to_owned(),
            answer,
        });
        self
    }

    #[must_use]
    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the calls so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Returns the calls so far as `METHOD /path`, without queries.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let path = |call: &Call| call.path.split('?').next().unwrap_or_default().to_owned();
        self.calls()
            .iter()
            .map(|call| format!("{} {}", call.method, path(call)))
            .collect()
    }

    /// Returns the calls so far that change something, as `METHOD /path body`. Reads, access reviews and Events do not count.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        let is_no_change = |path: &str| path.contains("/events") || path.contains("/subjectaccessreviews");
        let calls = self.calls().into_iter();
        let writes = calls.filter(|call| call.method != "GET" && !is_no_change(&call.path));
        writes
            .map(|call| format!("{} {} {}", call.method, call.path, call.body))
            .collect()
    }

    /// Counts the answers that no call has used.
    #[must_use]
    pub fn exchanges_left(&self) -> usize {
        self.state().script.len()
    }

    async fn answer(&self, request: Request<Body>) -> io::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await.map_err(io::Error::other)?;
        let call = Call {
            method: head.method.to_string(),
            path: head
                .uri
                .path_and_query()
                .map_or_else(String::new, ToString::to_string),
            content_type: head
                .headers
                .get(http::header::CONTENT_TYPE)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        let (status, body) = match self.play(call) {
            Answer::Response(status, body) => (status, body),
            Answer::BrokenConnection => return Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            Answer::Silence => std::future::pending().await,
        };
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
        Ok(response)
    }

    fn play(&self, call: Call) -> Answer {
        let mut state = self.state();
        let position = state
            .script
            .iter()
            .position(|exchange| exchange.method == call.method && call.path.contains(&exchange.path));
        let missing = format!("the script has no answer to {} {}", call.method, call.path);
        state.calls.push(call);
        match position.and_then(|position| state.script.remove(position)) {
            Some(exchange) => exchange.answer,
            None => Answer::Response(501, refusal(501, "NotImplemented", &missing)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Builds a `Status`, as the API server returns it when it refuses a call.
#[must_use]
pub fn refusal(status: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "reason": reason,
        "message": message,
    })
}
