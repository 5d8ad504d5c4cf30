//! AWS that answers from a script and remembers what it was asked, below the SDK's clients. For tests of adapters only, and for
//! services of the query protocol (EC2, Auto Scaling): how real ones behave is the local world's business.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;

/// Tells EC2's requests from those of others: its answers have another shape.
const EC2_VERSION: &str = "Version=2016-11-15";

/// AWS with a script.
#[derive(Debug, Clone, Default)]
pub struct ScriptedAws {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    script: VecDeque<Scene>,
    calls: Vec<String>,
}

#[derive(Debug)]
struct Scene {
    action: &'static str,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Result(String),
    Refusal {
        status: u16,
        code: String,
        message: String,
    },
    BrokenConnection,
}

impl ScriptedAws {
    /// One that has nothing to say yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers one call of `action` with this content of its result. Scenes of one action are played in order.
    #[must_use]
    pub fn on(self, action: &'static str, content: &str) -> Self {
        self.add(action, Answer::Result(content.to_owned()))
    }

    /// Refuses one call of `action`.
    #[must_use]
    pub fn refuses(self, action: &'static str, status: u16, code: &str, message: &str) -> Self {
        self.add(
            action,
            Answer::Refusal {
                status,
                code: code.to_owned(),
                message: message.to_owned(),
            },
        )
    }

    /// Answers one call of `action` by breaking the connection.
    #[must_use]
    pub fn breaks_on(self, action: &'static str) -> Self {
        self.add(action, Answer::BrokenConnection)
    }

    /// The configuration of its clients, which try every call once.
    #[must_use]
    pub fn config(&self) -> SdkConfig {
        let connector = SharedHttpConnector::new(self.clone());
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-west-1"))
            .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
                "id", "key", None, None, "script",
            )))
            .retry_config(RetryConfig::disabled())
            .http_client(http_client_fn(move |_, _| connector.clone()))
            .build()
    }

    /// The bodies of what it was asked so far, such as `Action=StopInstances&Version=…`, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// How many scenes nobody asked for.
    #[must_use]
    pub fn scenes_left(&self) -> usize {
        self.state().script.len()
    }

    fn add(self, action: &'static str, answer: Answer) -> Self {
        self.state().script.push_back(Scene { action, answer });
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let body = String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).into_owned();
        let mut state = self.state();
        let fits = |scene: &Scene| body.starts_with(&format!("Action={}&", scene.action));
        let position = state.script.iter().position(fits);
        let scene = position.and_then(|position| state.script.remove(position));
        state.calls.push(body.clone());
        let Some(Scene { action, answer }) = scene else {
            return Err(broken(&format!("the script has no answer to {body}")));
        };
        let is_ec2 = body.contains(EC2_VERSION);
        match answer {
            Answer::Result(content) if is_ec2 => {
                respond(200, format!("<{action}Response>{content}</{action}Response>"))
            }
            Answer::Result(content) => {
                let result = format!("<{action}Result>{content}</{action}Result>");
                respond(200, format!("<{action}Response>{result}</{action}Response>"))
            }
            Answer::Refusal {
                status,
                code,
                message,
            } => {
                let error = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
                respond(
                    status,
                    if is_ec2 {
                        format!("<Response><Errors>{error}</Errors></Response>")
                    } else {
                        format!("<ErrorResponse>{error}</ErrorResponse>")
                    },
                )
            }
            Answer::BrokenConnection => Err(broken("the connection broke")),
        }
    }
}

impl HttpConnector for ScriptedAws {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::ready(self.answer(&request))
    }
}

fn respond(status: u16, body: String) -> Result<HttpResponse, ConnectorError> {
    let status = status
        .try_into()
        .map_err(|_| broken("the script's status is none of HTTP"))?;
    Ok(HttpResponse::new(status, SdkBody::from(body)))
}

fn broken(text: &str) -> ConnectorError {
    ConnectorError::io(io::Error::other(text.to_owned()).into())
}
