//! What each answer of Auto Scaling becomes, as far as pre-flight and the looks of a drain ask it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use group_record::autoscaling::{Groups, Membership};
use recycle::failure::{Failure, NamedFailure as _};
use scripted_aws::ScriptedAws;

const ID: &str = "i-0123456789abcdef0";
const ARN: &str = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/0123456789abcdef";

fn described(more: &str) -> String {
    format!(
        "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize><MaxSize>5</MaxSize>\
         <DesiredCapacity>3</DesiredCapacity>{more}</member></AutoScalingGroups>"
    )
}

async fn find(lifecycle_state: &str, more: &str) -> Membership {
    let instance = format!(
        "<AutoScalingInstances><member><InstanceId>{ID}</InstanceId><AutoScalingGroupName>workers</AutoScalingGroupName>\
         <LifecycleState>{lifecycle_state}</LifecycleState></member></AutoScalingInstances>"
    );
    let aws = ScriptedAws::new()
        .on("DescribeAutoScalingInstances", &instance)
        .on("DescribeAutoScalingGroups", &described(more));
    let groups = Groups::new(&aws.config());
    groups
        .find_membership(&ID.parse().unwrap())
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn a_warm_instance_belongs_to_a_group_without_being_a_member() {
    let found = find("Warmed:Stopped", "").await;
    assert_eq!(found.lifecycle_state, "Warmed:Stopped");
    assert_eq!(found.group.member(&ID.parse().unwrap()), None);
}

#[tokio::test]
async fn attachments_are_sorted_whichever_list_they_stand_in_and_each_counts_once() {
    let more = format!(
        "<TargetGroupARNs><member>{ARN}</member></TargetGroupARNs><LoadBalancerNames><member>front</member></LoadBalancerNames>\
         <TrafficSources><member><Identifier>{ARN}</Identifier><Type>elbv2</Type></member>\
         <member><Identifier>back</Identifier><Type>elb</Type></member>\
         <member><Identifier>arn:aws:vpc-lattice:eu-west-1:1:targetgroup/tg-1</Identifier><Type>vpc-lattice</Type></member>\
         </TrafficSources>"
    );
    let attachments = find("InService", &more).await.attachments;
    assert_eq!(attachments.target_groups, [ARN]);
    assert_eq!(attachments.classic, ["front", "back"]);
    assert_eq!(
        attachments.others,
        ["arn:aws:vpc-lattice:eu-west-1:1:targetgroup/tg-1"]
    );
    assert_eq!(find("InService", "").await.attachments, Default::default());
}

#[tokio::test]
async fn a_group_whose_capacity_is_not_a_number_of_instances_is_weighted() {
    let overrides = |weight: &str| {
        format!(
            "<MixedInstancesPolicy><LaunchTemplate><Overrides><member><InstanceType>m7i.large</InstanceType>{weight}</member>\
             </Overrides></LaunchTemplate></MixedInstancesPolicy>"
        )
    };
    let cases = [
        (String::new(), false),
        (overrides(""), false),
        (overrides("<WeightedCapacity>2</WeightedCapacity>"), true),
        (
            "<DesiredCapacityType>units</DesiredCapacityType>".to_owned(),
            false,
        ),
        ("<DesiredCapacityType>vcpu</DesiredCapacityType>".to_owned(), true),
    ];
    for (more, weighted) in cases {
        assert_eq!(find("InService", &more).await.is_weighted, weighted, "{more}");
    }
}

#[tokio::test]
async fn a_refresh_is_under_way_until_it_has_ended_one_way_or_the_other() {
    let cases = [
        (vec![], None),
        (
            vec![
                "Successful",
                "Failed",
                "Cancelled",
                "RollbackFailed",
                "RollbackSuccessful",
            ],
            None,
        ),
        (vec!["Pending", "Successful"], Some("Pending")),
        (vec!["InProgress"], Some("InProgress")),
        (vec!["Cancelling"], Some("Cancelling")),
        (vec!["RollbackInProgress"], Some("RollbackInProgress")),
        (vec!["Baking", "Failed"], Some("Baking")),
    ];
    for (statuses, expected) in cases {
        let members: Vec<String> = statuses
            .iter()
            .map(|status| format!("<member><Status>{status}</Status></member>"))
            .collect();
        let answer = format!("<InstanceRefreshes>{}</InstanceRefreshes>", members.concat());
        let aws = ScriptedAws::new().on("DescribeInstanceRefreshes", &answer);
        let found = Groups::new(&aws.config())
            .find_refresh(&"workers".parse().unwrap())
            .await;
        assert_eq!(found.unwrap().as_deref(), expected, "{statuses:?}");
    }
}

#[tokio::test]
async fn a_refresh_that_may_not_be_asked_for_is_an_error() {
    let aws = ScriptedAws::new().refuses("DescribeInstanceRefreshes", 403, "AccessDenied", "not authorized");
    let groups = Groups::new(&aws.config());
    let error = groups
        .find_refresh(&"workers".parse().unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.failure(), Failure::ServiceRefused);
}
