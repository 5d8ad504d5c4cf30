//! Reads from Elastic Load Balancing which other targets are healthy in the target groups of the instance.
//!
//! Classic Load Balancers and VPC Lattice are not called. For them the other members of the group count instead.

use aws_config::SdkConfig;
use aws_sdk_elasticloadbalancingv2::Client;
use aws_sdk_elasticloadbalancingv2::types::TargetHealthDescription;
use ec2::Error;
use recycle::base::ids::InstanceId;
use recycle::cluster::balancers::{Attachments, Balancer, Target, judge_other_balancers, judge_target_group};
use recycle::cluster::group::Group;

const DESCRIBE_TARGET_HEALTH: &str = "elasticloadbalancing:DescribeTargetHealth";
/// Error codes for a target group that is deleted.
const DELETED: [&str; 2] = ["TargetGroupNotFound", "TargetGroupNotFoundException"];

/// Fetches the load balancers that send traffic to the instance through its group's attachments.
pub(crate) async fn fetch_balancers(
    config: &SdkConfig,
    attachments: &Attachments,
    group: &Group,
    instance: &InstanceId,
) -> Result<Vec<Balancer>, Error> {
    let mut balancers = Vec::new();
    if !attachments.target_groups.is_empty() {
        // Created only here, because few groups have target groups.
        let client = Client::new(config);
        for arn in &attachments.target_groups {
            let targets = fetch_targets(&client, arn).await?;
            balancers.extend(judge_target_group(arn, instance, &targets));
        }
    }
    balancers.extend(judge_other_balancers(attachments, group, instance));
    Ok(balancers)
}

/// Fetches all targets of a target group, including those of other Auto Scaling groups that share it. A deleted target group has no
/// targets.
async fn fetch_targets(client: &Client, arn: &str) -> Result<Vec<Target>, Error> {
    let answer = client
        .describe_target_health()
        .target_group_arn(arn)
        .send()
        .await
        .map_err(|error| Error::from_sdk(DESCRIBE_TARGET_HEALTH, error));
    match answer {
        Err(error) if error.code().is_some_and(|code| DELETED.contains(&code)) => Ok(Vec::new()),
        answer => {
            let answer = answer?;
            answer
                .target_health_descriptions()
                .iter()
                .map(to_target)
                .collect()
        }
    }
}

/// Reads a target. An incomplete one is an error, because it may be this instance or the last healthy target.
fn to_target(found: &TargetHealthDescription) -> Result<Target, Error> {
    let missing = |what: &str| Error::Unintelligible {
        call: DESCRIBE_TARGET_HEALTH,
        what: format!("a target without {what}"),
    };
    let id = found.target().and_then(|target| target.id());
    // The SDK fills in an empty id if the answer has none.
    let id = id.filter(|id| !id.is_empty());
    let state = found.target_health().and_then(|health| health.state());
    Ok(Target {
        id: id.ok_or_else(|| missing("Target.Id"))?.to_owned(),
        state: state
            .ok_or_else(|| missing("TargetHealth.State"))?
            .as_str()
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use recycle::base::failure::{Failure, NamedFailure as _};
    use recycle::cluster::group::Member;
    use scripted_aws::ScriptedAws;

    use super::*;
    use crate::fixtures::id;

    const ARN: &str = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/0123456789abcdef";

    fn health(targets: &[(&str, &str)]) -> String {
        let members: Vec<String> = targets
            .iter()
            .map(|(id, state)| {
                format!(
                    "<member><Target><Id>{id}</Id><Port>80</Port></Target><TargetHealth><State>{state}</State></TargetHealth></member>"
                )
            })
            .collect();
        format!(
            "<TargetHealthDescriptions>{}</TargetHealthDescriptions>",
            members.concat()
        )
    }

    fn group() -> Group {
        Group {
            name: "workers".parse().unwrap(),
            min: 0,
            desired: 1,
            max: 2,
            members: vec![Member {
                instance: id(),
                lifecycle_state: "InService".to_owned(),
                protected_from_scale_in: false,
            }],
            suspended: Vec::new(),
            protects_new_members: false,
            zones: 1,
            rebalances_capacity: false,
            retains: false,
        }
    }

    async fn fetch(aws: &ScriptedAws, attachments: &Attachments) -> Result<Vec<Balancer>, Error> {
        fetch_balancers(&aws.config(), attachments, &group(), &id()).await
    }

    fn one_target_group() -> Attachments {
        Attachments {
            target_groups: vec![ARN.to_owned()],
            ..Attachments::default()
        }
    }

    #[tokio::test]
    async fn healthy_targets_of_other_groups_count() {
        let answer = health(&[(id().as_str(), "healthy"), ("i-0fedcba9876543210", "healthy")]);
        let aws = ScriptedAws::new().on("DescribeTargetHealth", &answer);
        let found = fetch(&aws, &one_target_group()).await.unwrap();
        let names: Vec<(&str, usize)> = found
            .iter()
            .map(|balancer| (balancer.name.as_str(), balancer.others))
            .collect();
        assert_eq!(names, [("target group web", 1)]);
        assert!(
            aws.calls()[0].contains("TargetGroupArn=arn%3Aaws%3A"),
            "{:?}",
            aws.calls()
        );
    }

    #[tokio::test]
    async fn a_group_without_target_groups_needs_no_call() {
        let aws = ScriptedAws::new();
        let attachments = Attachments {
            classic: vec!["front".to_owned()],
            ..Attachments::default()
        };
        assert_eq!(fetch(&aws, &attachments).await.unwrap().len(), 1);
        assert_eq!(fetch(&aws, &Attachments::default()).await.unwrap(), []);
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn a_deleted_target_group_has_no_targets_and_a_failed_call_is_an_error() {
        let aws = ScriptedAws::new().refuses(
            "DescribeTargetHealth",
            400,
            "TargetGroupNotFound",
            "no such group",
        );
        assert_eq!(fetch(&aws, &one_target_group()).await.unwrap(), []);
        let aws = ScriptedAws::new().refuses("DescribeTargetHealth", 403, "AccessDenied", "not authorized");
        let error = fetch(&aws, &one_target_group()).await.unwrap_err();
        assert_eq!(error.failure(), Failure::ServiceRefused);
        let aws = ScriptedAws::new().breaks_on("DescribeTargetHealth");
        let error = fetch(&aws, &one_target_group()).await.unwrap_err();
        assert_eq!(error.failure(), Failure::ServiceUnavailable);
    }
}
