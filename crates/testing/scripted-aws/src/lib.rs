//! An AWS that answers from a script and records the calls, below the clients of the SDK. It is only for tests of adapters, and only for
//! the services that they call: EC2, Auto Scaling, Elastic Load Balancing, EKS and Step Functions. The local world models how AWS behaves.
//!
//! The SDK has test clients of its own, but their features would compile the whole SDK a second time for tests.

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

/// The API version in EC2's requests. EC2's answers have another shape than those of the other services with this protocol.
const EC2_VERSION: &str = "Version=2016-11-15";
/// The header that names the action of a Step Functions request.
const TARGET: &str = "x-amz-target";
/// The path of EKS's clusters. The only EKS calls of the functions are `GET` of a cluster and `GET` of a node group.
const CLUSTERS: &str = "/clusters/";

/// AWS with a script of answers.
#[derive(Debug, Clone, Default)]
pub struct ScriptedAws {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    script: VecDeque<Exchange>,
    calls: Vec<String>,
    actions: Vec<String>,
}

#[derive(Debug)]
struct Exchange {
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
    Silence,
}

/// The wire protocol of a service.
#[derive(Debug, Clone, Copy)]
enum Protocol {
    Query,
    Ec2Query,
    RestJson,
    Json,
}

impl ScriptedAws {
    /// Creates an AWS with an empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers one call of `action` with this content of its result. The content is XML, or the whole JSON for EKS and Step Functions.
    /// Answers to the same action are given in order.
    pub fn on(self, action: &'static str, content: &str) -> Self {
        self.add(action, Answer::Result(content.to_owned()))
    }

    /// Refuses one call of `action`.
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
    pub fn breaks_on(self, action: &'static str) -> Self {
        self.add(action, Answer::BrokenConnection)
    }

    /// Never answers one call of `action`.
    pub fn hangs_on(self, action: &'static str) -> Self {
        self.add(action, Answer::Silence)
    }

    /// Returns the configuration for clients of this AWS. The clients make only one attempt of every call.
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

    /// Returns the calls so far, in order. A call is its body, such as `Action=StopInstances&Version=…`, or `GET /clusters/world`.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// Returns the actions of the calls so far, in order.
    pub fn actions(&self) -> Vec<String> {
        self.state().actions.clone()
    }

    /// Returns the calls so far that are not reads (`Describe…` or `List…`).
    pub fn writes(&self) -> Vec<String> {
        let is_read = |action: &str| action.starts_with("Describe") || action.starts_with("List");
        let state = self.state();
        let calls = state.calls.iter().zip(&state.actions);
        let writes = calls.filter(|(_, action)| !is_read(action));
        writes.map(|(call, _)| call.clone()).collect()
    }

    /// Counts the answers that no call has used.
    pub fn exchanges_left(&self) -> usize {
        self.state().script.len()
    }

    fn add(self, action: &'static str, answer: Answer) -> Self {
        self.state().script.push_back(Exchange { action, answer });
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &HttpRequest) -> HttpConnectorFuture {
        let (protocol, action, call) = read(request);
        let mut state = self.state();
        state.calls.push(call.clone());
        state.actions.push(action.clone());
        let position = state.script.iter().position(|exchange| exchange.action == action);
        let exchange = position.and_then(|position| state.script.remove(position));
        HttpConnectorFuture::ready(match exchange.map(|exchange| exchange.answer) {
            Some(Answer::Result(content)) => respond(200, "", protocol.result(&action, &content)),
            Some(Answer::Refusal {
                status,
                code,
                message,
            }) => respond(status, &code, protocol.refusal(&code, &message)),
            Some(Answer::BrokenConnection) => Err(broken("the connection broke")),
            Some(Answer::Silence) => return HttpConnectorFuture::new(std::future::pending()),
            None => Err(broken(&format!("the script has no answer to {call}"))),
        })
    }
}

impl HttpConnector for ScriptedAws {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.answer(&request)
    }
}

impl Protocol {
    fn result(self, action: &str, content: &str) -> String {
        match self {
            Self::Query => {
                format!("<{action}Response><{action}Result>{content}</{action}Result></{action}Response>")
            }
            Self::Ec2Query => format!("<{action}Response>{content}</{action}Response>"),
            Self::RestJson | Self::Json => content.to_owned(),
        }
    }

    fn refusal(self, code: &str, message: &str) -> String {
        let error = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
        match self {
            Self::Query => format!("<ErrorResponse>{error}</ErrorResponse>"),
            Self::Ec2Query => format!("<Response><Errors>{error}</Errors></Response>"),
            Self::RestJson => format!("{{\"message\": {message:?}}}"),
            Self::Json => format!("{{\"__type\": {code:?}, \"message\": {message:?}}}"),
        }
    }
}

/// Reads a request: its protocol, its action, and the text that `calls` returns for it.
fn read(request: &HttpRequest) -> (Protocol, String, String) {
    if let Some((_, cluster)) = request.uri().split_once(CLUSTERS) {
        let call = format!("{} {CLUSTERS}{cluster}", request.method());
        let action = if cluster.contains("/node-groups/") {
            "DescribeNodegroup"
        } else {
            "DescribeCluster"
        };
        return (Protocol::RestJson, action.to_owned(), call);
    }
    let body = String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).into_owned();
    if let Some((_, action)) = request
        .headers()
        .get(TARGET)
        .and_then(|target| target.split_once('.'))
    {
        return (Protocol::Json, action.to_owned(), body);
    }
    let action = body
        .strip_prefix("Action=")
        .and_then(|rest| rest.split('&').next())
        .unwrap_or_default()
        .to_owned();
    let protocol = if body.contains(EC2_VERSION) {
        Protocol::Ec2Query
    } else {
        Protocol::Query
    };
    (protocol, action, body)
}

/// Builds a response. EKS names an error in a header, which the other protocols ignore.
fn respond(status: u16, error: &str, body: String) -> Result<HttpResponse, ConnectorError> {
    let status = status
        .try_into()
        .map_err(|_| broken("the script's status is none of HTTP"))?;
    let mut response = HttpResponse::new(status, SdkBody::from(body));
    response
        .headers_mut()
        .insert("x-amzn-errortype", error.to_owned());
    Ok(response)
}

/// Builds EC2's answer about one running instance. `more` are additional elements.
pub fn running_instance(id: &str, more: &str) -> String {
    format!(
        "<reservationSet><item><instancesSet><item><instanceId>{id}</instanceId><instanceState><name>running</name>\
         </instanceState>{more}</item></instancesSet></item></reservationSet>"
    )
}

/// Builds Auto Scaling's answer about one group. `more` are additional elements, `members` are ids with lifecycle states.
pub fn one_group(more: &str, members: &[(&str, &str)]) -> String {
    let member = |(id, state): &(&str, &str)| {
        format!(
            "<member><InstanceId>{id}</InstanceId><LifecycleState>{state}</LifecycleState>\
             <ProtectedFromScaleIn>false</ProtectedFromScaleIn></member>"
        )
    };
    let members: String = members.iter().map(member).collect();
    format!(
        "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize>\
         <MaxSize>4</MaxSize><DesiredCapacity>2</DesiredCapacity>{more}<Instances>{members}</Instances></member></AutoScalingGroups>"
    )
}

fn broken(text: &str) -> ConnectorError {
    ConnectorError::io(io::Error::other(text.to_owned()).into())
}
