//! Warns before an abort that nodes may stay in Standby. A node leaves Standby only if its group has room for it, or if its replacement has
//! no pods and can go.

use aws_sdk_autoscaling::types::{AutoScalingGroup, LifecycleState};
use recycle::base::ids::InstanceId;
use recycle::base::shell::quote;

use crate::aws::groups::list_groups;
use crate::aws::installation::Installation;
use crate::base::printed::aws;

/// Returns a warning for each group that lacks room for those of the nodes that are in Standby. If the groups cannot be read, there is none.
pub(super) async fn warn_of_room(installation: &Installation, nodes: &[InstanceId]) -> Vec<String> {
    let client = aws_sdk_autoscaling::Client::new(&installation.aws);
    let groups = list_groups(&client, &installation.cluster)
        .await
        .unwrap_or_default();
    groups
        .iter()
        .filter_map(|group| find_shortage(group, nodes))
        .collect()
}

fn find_shortage(group: &AutoScalingGroup, nodes: &[InstanceId]) -> Option<String> {
    let (name, desired, max) = (
        group.auto_scaling_group_name()?,
        group.desired_capacity()?,
        group.max_size()?,
    );
    let in_standby = group.instances().iter().filter(|member| {
        matches!(
            member.lifecycle_state(),
            Some(LifecycleState::Standby | LifecycleState::EnteringStandby)
        ) && nodes
            .iter()
            .any(|node| member.instance_id() == Some(node.as_str()))
    });
    let count = i32::try_from(in_standby.count()).ok()?;
    let room = (max - desired).max(0);
    (count > room).then(|| {
        let has_room = match room {
            0 => "no room for another member".to_owned(),
            room => format!("room for only {room} of these {count} nodes"),
        };
        format!(
            "warning: group {name} has {has_room} (desired capacity {desired}, maximum {max}), so a node whose replacement has pods stays in \
             Standby until there is room. To make room first: {}",
            aws(format_args!("autoscaling update-auto-scaling-group --auto-scaling-group-name {} --max-size {}",
                quote(name),
                desired + count
            ))
        )
    })
}

#[cfg(test)]
mod tests {
    use aws_sdk_autoscaling::types::Instance;

    use super::*;

    #[test]
    fn a_group_without_room_for_its_nodes_in_standby_is_named_with_the_maximum_that_it_needs() {
        let ids = [
            "i-0aaaaaaaaaaaaaaaa",
            "i-0bbbbbbbbbbbbbbbb",
            "i-0cccccccccccccccc",
        ];
        let group = |max: i32| {
            let members = ids.iter().map(|id| {
                let instance = Instance::builder().instance_id(*id);
                instance.lifecycle_state(LifecycleState::Standby).build()
            });
            AutoScalingGroup::builder()
                .auto_scaling_group_name("a b")
                .desired_capacity(5)
                .max_size(max)
                .set_instances(Some(members.collect()))
                .build()
        };
        let both: Vec<InstanceId> = ids[..2].iter().map(|id| id.parse().unwrap()).collect();
        for (max, nodes, words) in [
            (5, both.as_slice(), Some("has no room for another member")),
            (6, &both, Some("has room for only 1 of these 2 nodes")),
            (7, &both, None),
            (5, &[], None),
        ] {
            let found = find_shortage(&group(max), nodes);
            assert_eq!(found.is_some(), words.is_some(), "{found:?}");
            if let (Some(text), Some(words)) = (found, words) {
                assert!(
                    text.contains(words) && text.ends_with("--auto-scaling-group-name 'a b' --max-size 7"),
                    "{text}"
                );
            }
        }
    }
}
