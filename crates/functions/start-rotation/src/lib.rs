//! The Lambda `start-rotation`: starts `rotate-nodes` where EventBridge cannot, for an alarm on an SNS topic and for `terraform apply`.
//!
//! It selects no nodes, and it does not wait for the rotation.

mod config;
mod error;

use aws_config::SdkConfig;
use aws_sdk_sfn::Client;
use recycle::answer::envelope::Answer;
use recycle::contract::verdicts::StartVerdict;
use recycle::rotation::start::{RotationStart, StartRequest, decide_starts};

pub use config::{Settings, read_settings};
pub use error::Error;

const START_EXECUTION: &str = "states:StartExecution";

#[derive(Debug)]
pub struct StartRotation {
    settings: Settings,
    client: Client,
}

impl StartRotation {
    pub fn new(settings: Settings, aws: &SdkConfig) -> Self {
        let client = Client::new(aws);
        Self { settings, client }
    }

    /// Starts the rotations that the request asks for.
    pub async fn handle(&self, request: StartRequest) -> Result<Answer<StartVerdict>, Error> {
        let decided = decide_starts(&request, &self.settings.alarm_triggers)?;
        for start in &decided.starts {
            self.start(start).await?;
        }
        Ok(decided.answer())
    }

    /// Starts an execution of `rotate-nodes`. If an execution with this name exists already, that is not an error.
    async fn start(&self, start: &RotationStart) -> Result<(), autoscaling::Error> {
        let answer = self
            .client
            .start_execution()
            .state_machine_arn(self.settings.machine.as_str())
            .set_name(start.name.clone())
            .input(start.input.to_string())
            .send()
            .await
            .map_err(|error| autoscaling::Error::from_sdk(START_EXECUTION, error));
        match answer {
            Err(error) if error.code() == Some("ExecutionAlreadyExists") => Ok(()),
            answer => answer.map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use recycle::base::failure::{Failure, NamedFailure as _};
    use scripted_aws::ScriptedAws;
    use serde_json::{Value, json};

    use super::*;

    const ALARM: &str = "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:cpu";
    const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:operators";
    const STARTED: &str =
        r#"{"executionArn": "arn:aws:states:eu-west-1:123456789012:execution:m:e", "startDate": 1.0}"#;

    fn function(aws: &ScriptedAws) -> StartRotation {
        let variable = |name: &str| {
            Some(match name {
                "ROTATE_STATE_MACHINE_ARN" => "arn:aws:states:eu-west-1:123456789012:stateMachine:m".to_owned(),
                _ => json!({"busy": {"alarm_names": ["cpu"], "rotation": {"trigger": "alarm", "selection": {"alarm": {}}}}})
                    .to_string(),
            })
        };
        StartRotation::new(read_settings(variable).unwrap(), &aws.config())
    }

    fn alarm() -> StartRequest {
        let message = json!({
            "AlarmName": "cpu", "AlarmArn": ALARM, "AWSAccountId": "123456789012",
            "OldStateValue": "OK", "NewStateValue": "ALARM", "StateChangeTime": "1",
        });
        serde_json::from_value(
            json!({"Records": [{"Sns": {"TopicArn": TOPIC, "Message": message.to_string()}}]}),
        )
        .unwrap()
    }

    fn change(action: &str) -> StartRequest {
        let rotation = json!({"trigger": "apply", "selection": {"outdated": {"ami": true}}});
        let input = json!({"value": "2", "rotation": rotation, "tf": {"action": action, "prev_input": {"value": "1"}}});
        serde_json::from_value(input).unwrap()
    }

    #[tokio::test]
    async fn an_alarm_starts_an_execution_with_a_name_and_a_change_one_without() {
        let aws = ScriptedAws::new()
            .on("StartExecution", STARTED)
            .on("StartExecution", STARTED);
        function(&aws).handle(alarm()).await.unwrap();
        function(&aws).handle(change("update")).await.unwrap();
        let asked: Vec<Value> = aws
            .calls()
            .iter()
            .map(|call| serde_json::from_str(call).unwrap())
            .collect();
        assert!(asked[0]["name"].as_str().unwrap().starts_with("alarm-busy-1-"));
        assert!(asked[1].get("name").is_none());
        let input =
            |call: &Value| -> Value { serde_json::from_str(call["input"].as_str().unwrap()).unwrap() };
        assert_eq!(input(&asked[0])["event"]["resources"], json!([ALARM]));
        assert_eq!(input(&asked[1])["trigger"], "apply");
    }

    #[tokio::test]
    async fn a_change_that_starts_no_rotation_makes_no_call() {
        let aws = ScriptedAws::new();
        function(&aws).handle(change("create")).await.unwrap();
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn an_existing_execution_is_no_error_and_a_refusal_has_its_failure() {
        let aws = ScriptedAws::new().refuses("StartExecution", 400, "ExecutionAlreadyExists", "it is");
        assert!(function(&aws).handle(alarm()).await.is_ok());
        for (code, expected) in [
            ("ThrottlingException", Failure::ServiceUnavailable),
            ("AccessDeniedException", Failure::ServiceRefused),
            ("StateMachineDoesNotExist", Failure::ServiceRefused),
        ] {
            let aws = ScriptedAws::new().refuses("StartExecution", 400, code, "no");
            let error = function(&aws).handle(alarm()).await.unwrap_err();
            assert_eq!(error.failure(), expected, "{code}");
        }
        let aws = ScriptedAws::new().breaks_on("StartExecution");
        let error = function(&aws).handle(alarm()).await.unwrap_err();
        assert_eq!(error.failure(), Failure::ServiceUnavailable);
    }
}
