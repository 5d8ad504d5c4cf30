//! Load balancers of an Auto Scaling group: counts the other targets that remain when the instance leaves, for pre-flight and the queue.
//!
//! Load balancers that find nodes by themselves are not counted (the AWS Load Balancer Controller's instance targets). They follow the
//! label that is set at the end of a drain ([`crate::disposal::next_step`]).

use crate::base::ids::InstanceId;
use crate::cluster::group::Group;

/// The load balancers that a group is attached to (DescribeAutoScalingGroups).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attachments {
    /// Target groups, by ARN.
    pub target_groups: Vec<String>,
    /// Classic Load Balancers, by name.
    pub classic: Vec<String>,
    /// Other sources of traffic, such as target groups of VPC Lattice, by identifier.
    pub others: Vec<String>,
}

/// A load balancer, or a target group of one, in which the instance has a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balancer {
    /// The name that operators know.
    pub name: String,
    /// The number of other instances that serve there.
    pub others: usize,
}

/// A target of a target group (DescribeTargetHealth).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// An instance id, or an address in target groups of that type.
    pub id: String,
    /// `TargetHealth.State`.
    pub state: String,
}

/// Returns the target group that the instance leaves, with its other healthy targets. None if the instance gets no traffic there.
pub fn judge_target_group(arn: &str, instance: &InstanceId, targets: &[Target]) -> Option<Balancer> {
    let is_own = |target: &&Target| target.id == instance.as_str();
    // `unused`: no listener sends traffic there. `draining`: the target is on its way out already.
    let gets_traffic = |target: &Target| !matches!(target.state.as_str(), "unused" | "draining");
    let can_serve = |target: &&Target| !is_own(target) && target.state == "healthy";
    let is_served = targets.iter().filter(is_own).any(gets_traffic);
    is_served.then(|| Balancer {
        name: format!("target group {}", name_target_group(arn)),
        others: targets.iter().filter(can_serve).count(),
    })
}

/// Returns classic and other balancers with the other members in service, whose health is not read.
/// Only members in service are in these balancers, so the list is empty for any other instance.
pub fn judge_other_balancers(
    attachments: &Attachments,
    group: &Group,
    instance: &InstanceId,
) -> Vec<Balancer> {
    let in_service = group.members.iter().filter(|member| member.is_in_service());
    let (own, others): (Vec<_>, Vec<_>) = in_service.partition(|member| member.instance == *instance);
    if own.is_empty() {
        return Vec::new();
    }
    let classic = attachments.classic.iter();
    let classic = classic.map(|name| format!("load balancer {name}"));
    let sources = attachments.others.iter();
    let sources = sources.map(|identifier| format!("traffic source {}", last_part(identifier)));
    let names = classic.chain(sources);
    let others = others.len();
    names.map(|name| Balancer { name, others }).collect()
}

/// `arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/0123456789abcdef` is known as `web`.
fn name_target_group(arn: &str) -> &str {
    arn.rsplit_once(":targetgroup/")
        .map_or(arn, |(_, rest)| rest.split('/').next().unwrap_or(rest))
}

fn last_part(identifier: &str) -> &str {
    identifier.rsplit(['/', ':']).next().unwrap_or(identifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{OLD, OTHER, group, id, member};

    const ARN: &str = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/0123456789abcdef";

    fn targets(states: &[(&str, &str)]) -> Vec<Target> {
        states
            .iter()
            .map(|(id, state)| Target {
                id: (*id).to_owned(),
                state: (*state).to_owned(),
            })
            .collect()
    }

    #[test]
    fn only_other_healthy_targets_count() {
        let cases = [
            ("one of two", vec![(OLD, "healthy"), (OTHER, "healthy")], Some(1)),
            ("the only one", vec![(OLD, "healthy")], Some(0)),
            (
                "the other is not ready yet",
                vec![(OLD, "healthy"), (OTHER, "initial")],
                Some(0),
            ),
            (
                "the other is sick",
                vec![(OLD, "healthy"), (OTHER, "unhealthy")],
                Some(0),
            ),
            (
                "the other leaves",
                vec![(OLD, "healthy"), (OTHER, "draining")],
                Some(0),
            ),
            // If no target is healthy, traffic goes to the unhealthy ones.
            (
                "all are sick",
                vec![(OLD, "unhealthy"), (OTHER, "unhealthy")],
                Some(0),
            ),
            ("on two ports", vec![(OLD, "healthy"), (OLD, "healthy")], Some(0)),
            (
                "no listener sends traffic",
                vec![(OLD, "unused"), (OTHER, "unused")],
                None,
            ),
            ("it leaves already", vec![(OLD, "draining")], None),
            ("it is not registered", vec![(OTHER, "healthy")], None),
            ("by address", vec![("10.0.0.1", "healthy")], None),
        ];
        for (name, states, others) in cases {
            let found = judge_target_group(ARN, &id(OLD), &targets(&states));
            let expected = others.map(|others| Balancer {
                name: "target group web".to_owned(),
                others,
            });
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn in_other_balancers_the_other_members_in_service_count() {
        let attachments = Attachments {
            target_groups: vec![ARN.to_owned()],
            classic: vec!["front".to_owned()],
            others: vec!["arn:aws:vpc-lattice:eu-west-1:123456789012:targetgroup/tg-1".to_owned()],
        };
        let judged = |old: &str, other: &str| {
            let members = vec![member(OLD, old), member(OTHER, other)];
            let found = judge_other_balancers(&attachments, &Group { members, ..group() }, &id(OLD));
            found
                .into_iter()
                .map(|balancer| (balancer.name, balancer.others))
                .collect::<Vec<_>>()
        };
        let both = |others| {
            vec![
                ("load balancer front".to_owned(), others),
                ("traffic source tg-1".to_owned(), others),
            ]
        };
        assert_eq!(judged("InService", "InService"), both(1));
        assert_eq!(judged("InService", "Pending"), both(0));
        assert_eq!(judged("Standby", "InService"), []);
        assert_eq!(
            judge_other_balancers(&Attachments::default(), &group(), &id(OLD)),
            []
        );
    }
}
