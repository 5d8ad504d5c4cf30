//! The Lambda `serve-operator`: answers `recycle-eks status`, `doctor` and `report --bundle`, and moves the end of a drain for
//! `recycle-eks extend` and `finish`.
//!
//! Only operators invoke it. No state machine does, so it acts under no claim. It cannot evict a pod, and it changes nothing in AWS.

mod doctor;
mod drain_end;
mod error;
mod records;
mod status;

use aws_config::SdkConfig;
use ec2::groups::Groups;
use ec2::instances::Instances;
use eks_auth::Access;
use lambda::Report;
use recycle::base::ids::ClusterName;
use recycle::contract::requests::OperatorRequest;
use serde_json::json;

pub use error::Error;

#[derive(Debug)]
pub struct ServeOperator {
    access: Access,
    groups: Groups,
    instances: Instances,
    step_functions: aws_sdk_sfn::Client,
}

impl ServeOperator {
    pub fn new(aws: &SdkConfig, cluster: &ClusterName) -> Self {
        Self {
            access: Access::new(aws, cluster),
            groups: Groups::new(aws),
            instances: Instances::new(aws),
            step_functions: aws_sdk_sfn::Client::new(aws),
        }
    }

    /// Answers a request from the command line. A request that names another cluster is refused.
    pub async fn handle(&self, request: OperatorRequest) -> Result<Report, Error> {
        self.access.check(request.cluster_name())?;
        let report = match request {
            OperatorRequest::Status(question) => self.build_status(question.node.as_deref()).await?,
            OperatorRequest::Doctor(question) => json!(self.examine(question.execution.as_ref()).await),
            OperatorRequest::Records(question) => self.collect_records(&question.instances).await?,
            OperatorRequest::MoveDrainEnd(asked) => self.move_drain_end(&asked).await?,
        };
        Ok(Report(report))
    }
}

#[cfg(test)]
mod tests {
    use recycle::base::failure::{Failure, NamedFailure as _};
    use scripted_aws::ScriptedAws;

    use super::*;

    #[tokio::test]
    async fn a_request_about_another_cluster_is_refused_before_any_call() {
        let aws = ScriptedAws::new();
        let server = ServeOperator::new(&aws.config(), &"world".parse().unwrap());
        for request in [
            json!({"ask": "status", "cluster_name": "production"}),
            json!({"ask": "doctor", "cluster_name": "production"}),
            json!({"ask": "records", "cluster_name": "production", "instances": []}),
            json!({"ask": "move_drain_end", "cluster_name": "production", "instance_id": "i-0123456789abcdef0", "until": "now"}),
        ] {
            let request: OperatorRequest = serde_json::from_value(request).unwrap();
            let refusal = server.handle(request).await.unwrap_err();
            assert!(
                refusal.to_string().contains("the request names production"),
                "{refusal}"
            );
            assert!(
                !matches!(refusal.failure(), Failure::ServiceUnavailable),
                "{refusal}"
            );
        }
        assert!(aws.calls().is_empty());
    }
}
