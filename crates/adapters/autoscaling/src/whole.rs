//! Checks that an answer contains every value on which a change of a group depends.
//!
//! The SDK fills in missing values: 0 for a size, and not protected for a member. A group would then get a wrong capacity. This check does
//! not look at the values themselves.

use aws_sdk_autoscaling::config::interceptors::AfterDeserializationInterceptorContextRef;
use aws_sdk_autoscaling::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_autoscaling::error::BoxError;

/// The root element of an answer about groups.
const GROUPS: &str = "<DescribeAutoScalingGroupsResult>";

/// The elements that each group and each member has, after the element that occurs once in each of them. AWS documents all of them as
/// never missing (Auto Scaling API, AutoScalingGroup and Instance: "Required: Yes").
const WHOLE: [(&str, &[&str]); 2] = [
    ("AutoScalingGroupName", &["MinSize", "MaxSize", "DesiredCapacity"]),
    ("InstanceId", &["LifecycleState", "ProtectedFromScaleIn"]),
];

/// The interceptor that checks each answer before it is used.
#[derive(Debug)]
pub(crate) struct Whole;

/// The element that an answer lacks.
#[derive(Debug, thiserror::Error)]
#[error("a group or a member without {0}")]
pub(crate) struct NotWhole(&'static str);

impl Intercept for Whole {
    fn name(&self) -> &'static str {
        "Whole"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.response().body().bytes().unwrap_or_default();
        Ok(check(&String::from_utf8_lossy(body))?)
    }
}

fn check(answer: &str) -> Result<(), NotWhole> {
    if !answer.contains(GROUPS) {
        return Ok(());
    }
    let count = |element: &str| answer.matches(&format!("<{element}>")).count();
    for (each, fields) in WHOLE {
        if let Some(missing) = fields.iter().find(|field| count(field) < count(each)) {
            return Err(NotWhole(missing));
        }
    }
    Ok(())
}
