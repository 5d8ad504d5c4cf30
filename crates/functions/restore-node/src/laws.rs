//! Property tests: a group is changed only if the answer of AWS is complete.

use bad_input::{block_on, each_gap_of_xml, few_cases, spoiled_xml};
use ec2::groups::Groups;
use proptest::prelude::*;
use recycle::base::failure::NamedFailure as _;
use recycle::base::names::{CLAIM_TAG, GROUP_TAG, STANDBY_TAG};
use recycle::restore::next_step::CLUSTER_PATIENCE;
use scripted_aws::{ScriptedAws, one_group, running_instance};

use crate::RestoreNode;
use crate::fixtures::{OLD, claim, request};

/// Calls that change the group.
const CHANGES: [&str; 5] = [
    "SetDesiredCapacity",
    "ExitStandby",
    "SetInstanceProtection",
    "TerminateInstanceInAutoScalingGroup",
    "UpdateAutoScalingGroup",
];

fn whole_group() -> String {
    one_group("", &[(OLD, "Standby")])
}

/// Takes one step of a restore while the cluster cannot be read. Returns the changes that it called for, and whether the group was whole.
async fn restore(group: &str) -> (Vec<String>, bool) {
    let tag = |key: &str, value: &str| format!("<item><key>{key}</key><value>{value}</value></item>");
    let tags = [
        tag(CLAIM_TAG, &claim("one").to_tag()),
        tag(GROUP_TAG, "workers"),
        tag(STANDBY_TAG, "2027-01-01T00:00:00Z"),
    ];
    let instance = running_instance(OLD, &format!("<tagSet>{}</tagSet>", tags.concat()));
    let member = format!(
        "<AutoScalingInstances><member><InstanceId>{OLD}</InstanceId><AutoScalingGroupName>workers</AutoScalingGroupName>\
         <LifecycleState>Standby</LifecycleState></member></AutoScalingInstances>"
    );
    let aws = ScriptedAws::new()
        .on("DescribeInstances", &instance)
        .refuses("DescribeCluster", 503, "ServiceUnavailableException", "away")
        .on("DescribeAutoScalingInstances", &member)
        .on("DescribeAutoScalingGroups", group)
        .on("CreateTags", "")
        .on("SetDesiredCapacity", "")
        .on("ExitStandby", "");
    // The restore began so long ago that it no longer waits for the cluster.
    let mut late = request(Some(2 * CLUSTER_PATIENCE));
    // The step before has named the members that this one protects.
    late.restore.protected = vec![OLD.parse().unwrap()];
    if let Err(error) = RestoreNode::new(&aws.config(), &"world".parse().unwrap())
        .restore(late)
        .await
    {
        let _ = error.failure();
    }
    let changes = aws
        .actions()
        .into_iter()
        .filter(|action| CHANGES.contains(&action.as_str()));
    let asked_again = ScriptedAws::new().on("DescribeAutoScalingGroups", group);
    let found = Groups::new(&asked_again.config())
        .fetch(&"workers".parse().unwrap())
        .await;
    (changes.collect(), matches!(found, Ok(Some(_))))
}

#[tokio::test]
async fn a_complete_answer_changes_the_group_and_an_incomplete_one_does_not() {
    let (changes, _) = restore(&whole_group()).await;
    assert!(!changes.is_empty());
    let mut tried = 0;
    for (gone, group) in each_gap_of_xml(&whole_group()) {
        if gone.starts_with("<member>")
            || gone.starts_with("<Instances>")
            || gone.starts_with("<AutoScalingGroups>")
        {
            continue;
        }
        let (changes, is_whole) = restore(&group).await;
        assert!(changes.is_empty() && !is_whole, "{gone}: {changes:?}");
        tried += 1;
    }
    assert_eq!(tried, 7);
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn a_group_is_not_changed_on_a_guess(group in spoiled_xml(&whole_group())) {
        let (changes, is_whole) = block_on(restore(&group));
        prop_assert!(changes.is_empty() || is_whole, "{}: {:?}", group, changes);
    }
}
