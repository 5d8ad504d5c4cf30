//! Invokes `serve-operator`, the only function that operators call directly.

use aws_sdk_lambda::primitives::Blob;
use recycle::base::failure::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::aws::installation::Installation;
use crate::base::error::{Error, Result, misuse};

impl Installation {
    /// Invokes `serve-operator` and parses its answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, question: &Value) -> Result<T> {
        let name = format!("{}-serve-operator", self.name);
        let payload = Blob::new(question.to_string());
        let call = self.lambda.invoke().function_name(&name).payload(payload).send();
        let answer = match call.await.map_err(Error::of("lambda:InvokeFunction")) {
            Err(error) if error.code() == Some("ResourceNotFoundException") => {
                misuse!("there is no function {name}: check --name and --region")
            }
            answer => answer?,
        };
        let payload = answer.payload().map(Blob::as_ref).unwrap_or_default();
        let value: Value = serde_json::from_slice(payload)?;
        if answer.function_error().is_some() {
            return Err(failure(name, &value));
        }
        Ok(serde_json::from_value(value)?)
    }
}

/// Converts the answer of a function that failed (Lambda guide, "Function errors").
/// `InvalidInput` becomes a refusal: the command line has checked the command, so the state of the node does not allow it.
fn failure(function: String, value: &Value) -> Error {
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
    fn a_failed_function_is_named_and_invalid_input_is_a_plain_refusal() {
        for (name, text) in [
            (
                "ServiceRefused",
                "the function recycle-eks-serve-operator failed: ServiceRefused: no",
            ),
            ("InvalidInput", "no"),
        ] {
            let answer = json!({"errorType": name, "errorMessage": "no"});
            assert_eq!(
                failure("recycle-eks-serve-operator".to_owned(), &answer).to_string(),
                text
            );
        }
    }
}
