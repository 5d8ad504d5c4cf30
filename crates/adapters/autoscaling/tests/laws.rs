//! Property tests: an answer of Auto Scaling is read as it is, or is an error that names the missing value. Nothing is filled in.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use autoscaling::Error;
use autoscaling::groups::Groups;
use bad_input::{each_gap_of_xml, few_cases, spoiled_xml};
use proptest::prelude::*;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::cluster::group::Group;
use scripted_aws::ScriptedAws;

const WHOLE: &str = "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize>\
     <MaxSize>5</MaxSize><DesiredCapacity>3</DesiredCapacity><Instances><member><InstanceId>i-0123456789abcdef0</InstanceId>\
     <LifecycleState>InService</LifecycleState><ProtectedFromScaleIn>true</ProtectedFromScaleIn></member></Instances>\
     </member></AutoScalingGroups>";

async fn ask(answer: &str) -> Result<Option<Group>, Error> {
    let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", answer);
    Groups::new(&aws.config())
        .fetch(&"workers".parse().unwrap())
        .await
}

/// Checks whether an answer may lack this element. Without it, the answer says that there is no group or no member.
fn may_be_missing(gone: &str) -> bool {
    gone.starts_with("<member>") || gone.starts_with("<Instances>") || gone.starts_with("<AutoScalingGroups>")
}

#[tokio::test]
async fn an_incomplete_group_is_an_error() {
    let gaps: Vec<_> = each_gap_of_xml(WHOLE)
        .into_iter()
        .filter(|(gone, _)| !may_be_missing(gone))
        .collect();
    assert_eq!(gaps.len(), 7);
    for (gone, answer) in gaps {
        let error = ask(&answer).await.unwrap_err();
        assert_eq!(error.failure(), Failure::InternalError, "{gone}");
        let text = with_causes(&error);
        let field = gone.split(['<', '>']).nth(1).unwrap();
        let is_named = text.contains(field) || text.contains("must be an");
        assert!(is_named, "{gone}: {text}");
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn a_group_is_read_as_answered_or_is_an_error(answer in spoiled_xml(WHOLE)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        match runtime.block_on(ask(&answer)) {
            Ok(Some(group)) => {
                for (element, value) in [("MinSize", group.min), ("MaxSize", group.max), ("DesiredCapacity", group.desired)] {
                    let (_, rest) = answer.split_once(&format!("<{element}>")).unwrap();
                    let (said, _) = rest.split_once('<').unwrap();
                    prop_assert_eq!(said.trim().parse(), Ok(value), "{}", answer);
                }
                for member in &group.members {
                    let said = member.lifecycle_state.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                    prop_assert!(answer.contains(&format!("<LifecycleState>{said}<")), "{}", answer);
                }
            }
            Ok(None) => prop_assert!(!answer.contains("<AutoScalingGroupName>"), "{}", answer),
            Err(error) => {
                let text = with_causes(&error);
                prop_assert!(text.starts_with("failed to "), "{}", text);
                prop_assert_eq!(error.failure(), Failure::InternalError);
            }
        }
    }
}
