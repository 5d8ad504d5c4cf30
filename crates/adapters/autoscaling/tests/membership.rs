//! Converts the answers of Auto Scaling that pre-flight and the checks of a drain need.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use autoscaling::groups::{Groups, Membership};
use recycle::base::failure::{Failure, NamedFailure as _};
use recycle::cluster::refresh::StandbyInstances;
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
async fn attachments_of_both_lists_are_sorted_and_each_counts_once() {
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
async fn a_refresh_is_under_way_until_it_has_ended() {
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
        let status = found.unwrap().map(|refresh| refresh.status);
        assert_eq!(status.as_deref(), expected, "{statuses:?}");
    }
}

#[tokio::test]
async fn the_preference_of_a_refresh_says_what_it_does_to_members_in_standby() {
    let cases = [
        (
            "<Preferences><StandbyInstances>Terminate</StandbyInstances></Preferences>",
            StandbyInstances::Terminate,
        ),
        (
            "<Preferences><StandbyInstances>Ignore</StandbyInstances></Preferences>",
            StandbyInstances::Ignore,
        ),
        ("<Preferences></Preferences>", StandbyInstances::Wait),
        ("", StandbyInstances::Wait),
    ];
    for (preferences, expected) in cases {
        let answer = format!(
            "<InstanceRefreshes><member><Status>InProgress</Status>{preferences}</member></InstanceRefreshes>"
        );
        let aws = ScriptedAws::new().on("DescribeInstanceRefreshes", &answer);
        let groups = Groups::new(&aws.config());
        let found = groups.find_refresh(&"workers".parse().unwrap()).await;
        assert_eq!(found.unwrap().unwrap().standby, expected, "{preferences}");
    }
}

#[tokio::test]
async fn a_refused_call_for_refreshes_is_an_error() {
    let aws = ScriptedAws::new().refuses("DescribeInstanceRefreshes", 403, "AccessDenied", "not authorized");
    let groups = Groups::new(&aws.config());
    let error = groups
        .find_refresh(&"workers".parse().unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.failure(), Failure::ServiceRefused);
}

const HOOK: &str = "<LifecycleHooks><member><LifecycleHookName>recycle-eks</LifecycleHookName><LifecycleTransition>\
    autoscaling:EC2_INSTANCE_TERMINATING</LifecycleTransition><HeartbeatTimeout>900</HeartbeatTimeout></member></LifecycleHooks>";

#[tokio::test]
async fn the_policy_of_a_group_shows_whether_it_retains_instances() {
    let policy = |action: &str| {
        format!(
            "<InstanceLifecyclePolicy><RetentionTriggers><TerminateHookAbandon>{action}</TerminateHookAbandon></RetentionTriggers>\
             </InstanceLifecyclePolicy>"
        )
    };
    for (more, expected) in [
        (policy("retain"), true),
        (policy("terminate"), false),
        (String::new(), false),
    ] {
        assert_eq!(
            find("Terminating:Wait", &more).await.group.retains,
            expected,
            "{more}"
        );
    }
}

#[tokio::test]
async fn the_hook_of_recycle_eks_is_recognized_by_name_and_transition() {
    let launching = HOOK.replace("TERMINATING", "LAUNCHING");
    let another = HOOK.replace("recycle-eks", "theirs");
    for (answer, expected) in [
        (HOOK, Some(900)),
        (&launching, None),
        (&another, None),
        ("<LifecycleHooks/>", None),
    ] {
        let aws = ScriptedAws::new().on("DescribeLifecycleHooks", answer);
        let found = Groups::new(&aws.config())
            .find_hook(&"workers".parse().unwrap())
            .await;
        assert_eq!(found.unwrap(), expected, "{answer}");
    }
}

#[tokio::test]
async fn a_member_that_does_not_wait_for_the_hook_is_no_error_and_other_refusals_are() {
    for (status, code, is_fine) in [
        (400, "ValidationError", true),
        (403, "AccessDenied", false),
        (500, "InternalFailure", false),
    ] {
        let aws = ScriptedAws::new().refuses("CompleteLifecycleAction", status, code, "no");
        let called = Groups::new(&aws.config())
            .complete_hook(&"workers".parse().unwrap(), &ID.parse().unwrap())
            .await;
        assert_eq!(called.is_ok(), is_fine, "{code}");
    }
    let aws = ScriptedAws::new().on("CompleteLifecycleAction", "");
    Groups::new(&aws.config())
        .complete_hook(&"workers".parse().unwrap(), &ID.parse().unwrap())
        .await
        .unwrap();
    let sent = &aws.calls()[0];
    for part in [
        "LifecycleActionResult=CONTINUE",
        "LifecycleHookName=recycle-eks",
        ID,
    ] {
        assert!(sent.contains(part), "{sent}");
    }
}

#[tokio::test]
async fn waiting_and_retained_members_of_groups_with_the_hook_are_held() {
    let member = |id: &str, state: &str| {
        format!(
            "<member><InstanceId>{id}</InstanceId><LifecycleState>{state}</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member>"
        )
    };
    let members = format!(
        "<Instances>{}{}{}</Instances>",
        member(ID, "Terminating:Wait"),
        member("i-0aaaaaaaaaaaaaaaa", "Terminating:Retained"),
        member("i-0bbbbbbbbbbbbbbbb", "InService")
    );
    for (hooks, expected) in [
        (HOOK, vec![ID, "i-0aaaaaaaaaaaaaaaa"]),
        ("<LifecycleHooks/>", vec![]),
    ] {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &described(&members))
            .on("DescribeLifecycleHooks", hooks);
        let held = Groups::new(&aws.config())
            .find_held(&"prod".parse().unwrap())
            .await
            .unwrap();
        let ids: Vec<&str> = held.iter().map(|id| id.as_str()).collect();
        assert_eq!(ids, expected);
        assert!(
            aws.calls()[0].contains("kubernetes.io%2Fcluster%2Fprod"),
            "{}",
            aws.calls()[0]
        );
    }
}
