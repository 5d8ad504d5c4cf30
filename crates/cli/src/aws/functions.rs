//! Lambda: the functions that are asked directly.

use aws_config::SdkConfig;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::primitives::Blob;
use recycle::base::failure::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::base::error::{Error, Result};

/// The installation's functions.
#[derive(Debug)]
pub(crate) struct Functions {
    client: Client,
    prefix: String,
}

impl Functions {
    pub(crate) fn new(aws: &SdkConfig, name: &str) -> Self {
        Self {
            client: Client::new(aws),
            prefix: name.to_owned(),
        }
    }

    /// Asks a function, and reads its answer.
    pub(crate) async fn ask<Answer: DeserializeOwned>(
        &self,
        function: &str,
        question: &Value,
    ) -> Result<Answer> {
        let name = format!("{}-{function}", self.prefix);
        let payload = Blob::new(question.to_string());
        let call = self.client.invoke().function_name(&name).payload(payload).send();
        let answer = call.await.map_err(Error::of("lambda:InvokeFunction"));
        let answer = answer.map_err(|error| explain(error, &name))?;
        let payload = answer.payload().map(Blob::as_ref).unwrap_or_default();
        let value: Value = serde_json::from_slice(payload).map_err(unreadable)?;
        if answer.function_error().is_some() {
            return Err(refuse(name, &value));
        }
        serde_json::from_value(value).map_err(unreadable)
    }
}

fn unreadable(source: serde_json::Error) -> Error {
    Error::Unreadable {
        what: "a function's answer",
        source,
    }
}

fn explain(error: Error, name: &str) -> Error {
    if error.code() == Some("ResourceNotFoundException") {
        return Error::Refused(format!(
            "there is no function {name}: is --name right, and --region?"
        ));
    }
    error
}

/// What Lambda says of a function that failed (Lambda guide, "Function errors"). What it was asked may make no sense.
fn refuse(function: String, value: &Value) -> Error {
    let text = |name: &str| value[name].as_str().unwrap_or("unknown");
    if text("errorType") == Failure::InvalidInput.name() {
        return Error::Refused(text("errorMessage").to_owned());
    }
    Error::Function {
        function,
        name: text("errorType").to_owned(),
        reason: text("errorMessage").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_functions_failure_is_told_by_its_public_name_and_its_refusal_as_it_is() {
        for (name, told) in [
            (
                "ServiceRefused",
                "the function recycle-eks-select-nodes failed: ServiceRefused: no",
            ),
            ("InvalidInput", "no"),
        ] {
            let failure = json!({"errorType": name, "errorMessage": "no"});
            assert_eq!(
                refuse("recycle-eks-select-nodes".to_owned(), &failure).to_string(),
                told
            );
        }
    }
}
