//! A Kubernetes API server that answers from a script and records the calls. It is only for tests of adapters. The local world runs a real
//! API server.
//!
//! It keeps the Leases of instances by itself, so that a script names Nodes only. The Lease of an instance has the records that the
//! Node of the instance had as annotations when it was read last. Calls about Leases are recorded only if the script has an answer to them.

use std::collections::{BTreeMap, VecDeque};
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
    /// The annotations of each Lease, by its name.
    leases: BTreeMap<String, Value>,
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
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers one call of this method whose path contains `path`. Answers that match the same call are given in order.
    pub fn on(self, method: &'static str, path: &str, status: u16, body: Value) -> Self {
        self.add(method, path, Answer::Response(status, body))
    }

    /// Answers one call by breaking the connection.
    pub fn breaks_on(self, method: &'static str, path: &str) -> Self {
        self.add(method, path, Answer::BrokenConnection)
    }

    /// Never answers one call.
    pub fn hangs_on(self, method: &'static str, path: &str) -> Self {
        self.add(method, path, Answer::Silence)
    }

    /// Answers one call with a `Status`, as the API server does when it refuses a call.
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

    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the calls so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Returns the calls so far as `METHOD /path`, without queries.
    pub fn requests(&self) -> Vec<String> {
        let path = |call: &Call| call.path.split('?').next().unwrap_or_default().to_owned();
        self.calls()
            .iter()
            .map(|call| format!("{} {}", call.method, path(call)))
            .collect()
    }

    /// Returns the calls so far that change something, as `METHOD /path body`. Reads, access reviews and Events do not count.
    pub fn writes(&self) -> Vec<String> {
        let is_no_change = |path: &str| path.contains("/events") || path.contains("/subjectaccessreviews");
        let calls = self.calls().into_iter();
        let writes = calls.filter(|call| call.method != "GET" && !is_no_change(&call.path));
        writes
            .map(|call| format!("{} {} {}", call.method, call.path, call.body))
            .collect()
    }

    /// Returns the annotations of an instance's Lease, as it is now. Null if there is none.
    pub fn lease(&self, instance: &str) -> Value {
        let state = self.state();
        let lease = state.leases.get(instance);
        let lease = lease.and_then(|records| lease_of(instance, records));
        lease.map_or(Value::Null, |lease| lease["metadata"]["annotations"].clone())
    }

    /// Counts the answers that no call has used.
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
        let Some(exchange) = position.and_then(|position| state.script.remove(position)) else {
            if let Some((_, path)) = call.path.split_once(LEASES) {
                return state.answer_lease(path, &call);
            }
            if call.path.contains(SLICES) {
                return Answer::Response(
                    404,
                    refusal(
                        404,
                        "NotFound",
                        "the server could not find the requested resource",
                    ),
                );
            }
            state.calls.push(call);
            return Answer::Response(501, refusal(501, "NotImplemented", &missing));
        };
        state.calls.push(call);
        if let ("GET", Answer::Response(_, body)) = (exchange.method, &exchange.answer) {
            state.keep_leases(body);
        }
        exchange.answer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LEASES: &str = "/namespaces/recycle-eks/leases";
/// ResourceSlices, which an API server before 1.34 does not have. Calls for them are not recorded either, unless they are scripted.
const SLICES: &str = "/resourceslices";

/// The records that Nodes of a script have as annotations.
const RECORDS: [&str; 3] = ["recycle-eks/claim", "recycle-eks/record", "recycle-eks/restoring"];

impl State {
    /// Keeps the records of the Nodes in an answer as Leases. A Lease without records is none.
    fn keep_leases(&mut self, body: &Value) {
        let items = body["items"].as_array();
        for node in items.into_iter().flatten().chain([body]) {
            if let Some((name, records)) = read_records(node) {
                self.leases.insert(name, records);
            }
        }
    }

    fn answer_lease(&mut self, path: &str, call: &Call) -> Answer {
        let name = path.split('?').next().unwrap_or_default().trim_start_matches('/');
        // The Lease may be read before the Node.
        let mut script = self.script.iter();
        let next = script.find(|exchange| exchange.method == "GET" && exchange.path.contains("/nodes"));
        let next = next.map(|exchange| match &exchange.answer {
            Answer::Response(_, body) => body.clone(),
            Answer::BrokenConnection | Answer::Silence => Value::Null,
        });
        if call.method == "GET" && !self.leases.contains_key(name) {
            self.keep_leases(&next.unwrap_or_default());
        }
        let name = match call.method.as_str() {
            "POST" => call.body["metadata"]["name"].as_str().unwrap_or_default(),
            _ => name,
        };
        if name.is_empty() {
            let leases = self
                .leases
                .iter()
                .filter_map(|(name, records)| lease_of(name, records));
            return Answer::Response(200, json!({"metadata": {}, "items": leases.collect::<Vec<_>>()}));
        }
        let written = call.body["metadata"]["annotations"].as_object();
        match call.method.as_str() {
            "POST" | "PATCH" => {
                let records = self.leases.entry(name.to_owned()).or_insert_with(|| json!({}));
                for (key, value) in written.into_iter().flatten() {
                    records[key] = value.clone();
                }
            }
            "DELETE" => {
                self.leases.remove(name);
                return Answer::Response(200, json!({"kind": "Status", "status": "Success"}));
            }
            _ => {}
        }
        match self.leases.get(name).and_then(|records| lease_of(name, records)) {
            Some(lease) => Answer::Response(200, lease),
            None => Answer::Response(404, refusal(404, "NotFound", "there is no such Lease")),
        }
    }
}

/// Reads the instance of a Node, and its annotations that are records. None if it is no Node.
fn read_records(node: &Value) -> Option<(String, Value)> {
    let (_, instance) = node["spec"]["providerID"].as_str()?.rsplit_once('/')?;
    let annotations = node["metadata"]["annotations"].as_object();
    let records = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| RECORDS.contains(&key.as_str()));
    let records: serde_json::Map<String, Value> =
        records.map(|(key, value)| (key.clone(), value.clone())).collect();
    Some((instance.to_owned(), Value::Object(records)))
}

/// Builds the Lease with these records; None if there is none.
fn lease_of(name: &str, records: &Value) -> Option<Value> {
    let there = records
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null());
    let annotations: serde_json::Map<String, Value> =
        there.map(|(key, value)| (key.clone(), value.clone())).collect();
    (!annotations.is_empty())
        .then(|| json!({"metadata": {"name": name, "resourceVersion": "5", "annotations": annotations}}))
}

/// Builds a `Status`, as the API server returns it when it refuses a call.
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
