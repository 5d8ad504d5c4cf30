//! Restores the group: the instance leaves Standby, and the group gets its size back. Nodes of one group are restored one after the other.

use crate::base::ids::{InstanceId, NodeName};
use crate::base::names::{CORDONED_FOR_ANNOTATION, REPLACEMENT_FOR_ANNOTATION};
use crate::cluster::autoscaler::is_kept_for;
use crate::cluster::group::{Group, is_leaving};
use crate::cluster::instance::Instance;
use crate::cluster::node::NodeFacts;
use crate::restore::facts::{KubernetesHalf, NewMember, RestoreFacts};
use crate::restore::step::{
    LINE_PATIENCE, LONG_WAIT, MOST_STEPS, MOST_STEPS_FOR_MARKS, PATIENCE, Place, RestoreStep, STEP_WAIT,
    Stuck, count, wait_for_cluster,
};
use crate::restore::table::{Column, Row, Way, find_row, look_up};

/// Finds the Node of the group whose restore began first; None if no other Node is ahead of this one.
pub fn find_ahead(node: &NodeFacts, nodes: &[NodeFacts]) -> Option<NodeName> {
    let queued = |node: &NodeFacts| node.restoring_since().map(|since| (since, node.name.clone()));
    let group_of = |node: &NodeFacts| Some(node.claim()?.known()?.group);
    let group = group_of(node)?;
    let first = nodes
        .iter()
        .filter(|other| group_of(other).as_ref() == Some(&group))
        .filter_map(queued)
        .min()?;
    (first < queued(node)?).then_some(first.1)
}

impl RestoreFacts<'_> {
    /// Returns the step by which this restore waits for other restores of its group. None if it may continue, or if the cluster cannot
    /// be reached. The Node is marked as being restored before the other Nodes are read again, so that two restores see each other.
    pub(crate) fn wait_in_line(&self) -> Option<RestoreStep> {
        if self.kubernetes != KubernetesHalf::Clean {
            return None;
        }
        if self.restoring_since.is_none() {
            return Some(RestoreStep::Queue);
        }
        let node = self.ahead.filter(|_| self.waited < i64::from(LINE_PATIENCE))?;
        let why = format!("node {node} of the same group is restored first");
        Some(RestoreStep::Wait(STEP_WAIT, why))
    }

    /// Checks whether the restore has time and steps left to wait for the group.
    pub fn has_time(&self) -> bool {
        self.waited < i64::from(PATIENCE) && self.steps < MOST_STEPS
    }

    /// Checks whether the restore still removes marks from Nodes. It does so for a short time after its other steps have ended.
    pub(crate) fn may_remove_marks(&self) -> bool {
        self.steps < MOST_STEPS_FOR_MARKS
    }

    /// An instance that EC2 does not know counts as dead once its Node is gone, too: EC2 is eventually consistent.
    pub(crate) fn is_dead_in_standby(&self, group: &Group) -> bool {
        let has_no_node = self.kubernetes == KubernetesHalf::Vanished;
        self.instance.map_or(has_no_node, Instance::is_gone) && group.state_of(self.id) == Some("Standby")
    }

    pub(crate) fn place(&self, group: &Group) -> Place {
        let living = self.instance.filter(|instance| !instance.is_gone());
        let (Some(instance), Some(member)) = (living, group.member(self.id)) else {
            return Place::Lost;
        };
        let is_own = self.has_entered_standby;
        match member.lifecycle_state.as_str() {
            "Standby" if instance.was_stopped() => Place::Foreign,
            _ if self.kubernetes == KubernetesHalf::Vanished || self.is_lost => Place::Lost,
            "InService" => Place::InService,
            "Standby" if is_own => Place::Standby,
            "EnteringStandby" if is_own => Place::OnTheWay(member.lifecycle_state.clone()),
            state if state.starts_with("Pending") => Place::OnTheWay(state.to_owned()),
            "Standby" | "EnteringStandby" => Place::Foreign,
            _ => Place::Lost,
        }
    }

    pub(crate) fn leave_standby(&self, group: &Group) -> RestoreStep {
        let stay = |why| self.end(RestoreStep::LeaveInStandby(why), None);
        if let Some(instance) = self.instance.filter(|instance| instance.state != "running") {
            return stay(Stuck::NotRunning(instance.state.clone()));
        }
        if !self.has_time() {
            return stay(Stuck::TooLong);
        }
        let (row, replacement) = (find_row(group), self.find_replacement(group));
        let way = look_up(row, self.column(group, replacement));
        if way == Way::Stay {
            return stay(match row {
                Row::LaunchSuspended => Stuck::LaunchSuspended,
                Row::Free | Row::AtMaximum | Row::AtMinimum | Row::Fixed => Stuck::AtMaximum,
            });
        }
        // The replacement is kept empty until it is terminated. It is also the member that the group may terminate if it is too large.
        let dropped = replacement.filter(|_| matches!(way, Way::DropThenExit | Way::ExitThenDrop));
        let step = match (way, dropped) {
            (Way::LowerThenExit, _) => RestoreStep::Lower { from: group.desired },
            (Way::DropThenExit, Some(new_member)) => {
                RestoreStep::TerminateReplacement(new_member.instance.clone())
            }
            (Way::DropThenExit | Way::ExitThenLower | Way::ExitThenDrop | Way::Exit | Way::Stay, _) => {
                RestoreStep::ExitStandby { from: group.desired }
            }
        };
        self.prepare(group, dropped).unwrap_or(step)
    }

    /// Decides the steps once the instance is back in service.
    /// The group gets its earlier size, if that costs no pod. The marks of the restore are removed.
    pub(crate) fn settle(&self, group: &Group) -> RestoreStep {
        let replacement = self.find_replacement(group);
        let column = self.column(group, replacement);
        let exited_from = self.group_changes.exited_from();
        let is_larger = self.is_larger(group);
        if is_larger && group.min < group.desired && self.has_time() {
            match (column, replacement) {
                (Column::NotLaunched, _) if self.awaits_launch(group) => {
                    return RestoreStep::Wait(LONG_WAIT, "a replacement is still being launched".to_owned());
                }
                (Column::NotLaunched, _) => {
                    let lower = RestoreStep::Lower { from: group.desired };
                    return self.prepare(group, None).unwrap_or(lower);
                }
                (Column::Empty, Some(new_member)) => {
                    let terminate = RestoreStep::TerminateReplacement(new_member.instance.clone());
                    return self.prepare(group, replacement).unwrap_or(terminate);
                }
                (Column::Empty | Column::Stays, _) => {}
            }
        }
        // The desired capacity is lower than after ExitStandby. Without a step here, the group would choose the member to terminate.
        // Without a change of this restore, another client has lowered a raised capacity, and that stays.
        let lowered_to = self.raised_from.filter(|_| self.group_changes.has_paid(group));
        // If the place was given up before ExitStandby, it is missing now, even if the group has already ended a member that was on its way.
        let is_missing = count(group) > group.desired || self.group_changes.has_paid_before_exit(group);
        let has_trimmed = exited_from.or(lowered_to) == Some(group.desired) && is_missing;
        if has_trimmed && self.has_time() {
            let dropped = replacement.filter(|_| column == Column::Empty);
            if let Some(step) = self.prepare(group, dropped) {
                return step;
            }
            if dropped.is_none() && group.desired < group.max {
                let to = group.desired + 1;
                return RestoreStep::Raise { to };
            }
        }
        if !self.protected.is_empty() && count(group) > group.desired && self.has_time() {
            return RestoreStep::Wait(LONG_WAIT, "the group has one member too many".to_owned());
        }
        let note = is_larger.then(|| {
            let why = match (column, self.new_members) {
                (Column::Stays, None) => "it is unknown whether its replacement has pods",
                (Column::Stays, Some(_)) => "its replacement has pods",
                (Column::NotLaunched | Column::Empty, _) if group.min >= group.desired => {
                    "its minimum allows no fewer"
                }
                (Column::NotLaunched, _) => "its desired capacity could not be lowered in time",
                (Column::Empty, _) => "its replacement was not terminated in time",
            };
            format!(
                "group {} is one larger than before, desired capacity {}: {why}",
                group.name, group.desired
            )
        });
        self.end(RestoreStep::Done(note.clone()), note)
    }

    /// Whether ExitStandby or the execution has made the group one larger, and this restore has not made it smaller again.
    fn is_larger(&self, group: &Group) -> bool {
        let size_before = self.group_changes.exited_from().or(self.raised_from);
        size_before.is_some_and(|from| group.desired > from) && !self.group_changes.has_paid(group)
    }

    /// Writes that a node which is not restored leaves its group one larger. None if it does not.
    pub(crate) fn note_larger_group(&self, group: &Group) -> Option<String> {
        self.is_larger(group).then(|| group.describe_larger())
    }

    /// Returns the step that has to come before the group's size changes, if there is one.
    /// The replacement that is terminated next is cordoned, so that it stays empty. All other members are protected from scale-in.
    fn prepare(&self, group: &Group, dropped: Option<&NewMember>) -> Option<RestoreStep> {
        if let Some(new_member) = dropped.filter(|new_member| !new_member.is_cordoned()) {
            return Some(RestoreStep::CordonReplacement(new_member.instance.clone()));
        }
        let mut exposed = group.find_exposed(Some(self.id));
        exposed.retain(|id| dropped.is_none_or(|new_member| new_member.instance != *id));
        (!exposed.is_empty()).then_some(RestoreStep::Protect(exposed))
    }

    /// Ends the restore, unless the Node still has to be checked. `note` says how the group differs from before.
    pub(crate) fn end(&self, end: RestoreStep, note: Option<String>) -> RestoreStep {
        self.clean_up(match (self.kubernetes, self.has_time()) {
            (KubernetesHalf::Unseen, true) => wait_for_cluster(),
            (KubernetesHalf::Unseen, false) => RestoreStep::Report(note),
            (KubernetesHalf::Vanished | KubernetesHalf::Undo | KubernetesHalf::Clean, _) => end,
        })
    }

    /// Removes marks first and protection last. Every restore ends through this function.
    pub(crate) fn clean_up(&self, end: RestoreStep) -> RestoreStep {
        let id = self.id.as_str();
        let is_left = matches!(end, RestoreStep::LeaveInStandby(_));
        let marked: Vec<InstanceId> = self
            .new_members
            .unwrap_or_default()
            .iter()
            .chain(self.marked)
            .filter(|new_member| !is_leaving(&new_member.lifecycle_state))
            .filter(|new_member| {
                let is_cordoned = new_member.annotation(CORDONED_FOR_ANNOTATION) == Some(id);
                let is_reserved = new_member.annotation(REPLACEMENT_FOR_ANNOTATION) == Some(id);
                // Another execution can resume from Standby, with the reserved replacement.
                let node = new_member.node.as_ref();
                let is_kept = node.is_some_and(|node| is_kept_for(node, self.id));
                is_cordoned || is_kept || (is_reserved && !is_left)
            })
            .map(|new_member| new_member.instance.clone())
            .collect();
        if !marked.is_empty() && self.may_remove_marks() {
            return RestoreStep::ReleaseReplacements {
                new_members: marked,
                reservation: !is_left,
            };
        }
        let protected = self.group.map_or_else(
            || self.protected.to_vec(),
            |group| group.find_unprotectable(self.protected),
        );
        if protected.is_empty() {
            end
        } else {
            RestoreStep::Unprotect(protected)
        }
    }

    /// Returns the new member that replaces the node: it is in service, and not reserved for another node.
    /// A new member that is reserved for this node comes first, then an empty one.
    fn find_replacement(&self, group: &Group) -> Option<&NewMember> {
        let new_members = self.new_members.unwrap_or_default().iter();
        new_members
            .filter(|new_member| new_member.lifecycle_state == "InService")
            .filter(|new_member| group.member(&new_member.instance).is_some())
            .filter(|new_member| !self.is_reserved_for_others(new_member))
            .min_by_key(|new_member| {
                let is_free = new_member.annotation(REPLACEMENT_FOR_ANNOTATION).is_none();
                (is_free, is_free && new_member.has_pods)
            })
    }

    fn is_reserved_for_others(&self, new_member: &NewMember) -> bool {
        let owner = new_member.annotation(REPLACEMENT_FOR_ANNOTATION);
        owner.is_some_and(|owner| owner != self.id.as_str())
    }

    fn column(&self, group: &Group, replacement: Option<&NewMember>) -> Column {
        let Some(new_members) = self.new_members.filter(|_| !self.group_changes.has_paid(group)) else {
            return Column::Stays;
        };
        // A new member that is not in service yet may already have pods. The group would terminate it first if it were made smaller.
        let mut new_members = new_members.iter();
        let may_have_pods = new_members.any(|new_member| self.may_be_the_replacement(new_member));
        match replacement {
            Some(new_member) if new_member.has_pods => Column::Stays,
            Some(_) => Column::Empty,
            None if !may_have_pods && group.in_service() < group.desired => Column::NotLaunched,
            None => Column::Stays,
        }
    }

    fn may_be_the_replacement(&self, new_member: &NewMember) -> bool {
        new_member.has_pods
            && !is_leaving(&new_member.lifecycle_state)
            && !self.is_reserved_for_others(new_member)
    }

    fn awaits_launch(&self, group: &Group) -> bool {
        group
            .members
            .iter()
            .any(|member| member.instance != *self.id && member.lifecycle_state.starts_with("Pending"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names::{CLAIM_ANNOTATION, RESTORING_ANNOTATION};
    use crate::fixtures::{OLD, claim, id, leased, node};
    use crate::records::claim::{Claim, Phase};

    #[test]
    fn the_nodes_of_a_group_are_restored_in_order() {
        let queued = |name: &str, group: &str, since: Option<&str>| {
            let claim = Claim {
                group: group.parse().unwrap(),
                ..claim(Phase::Draining)
            };
            let claim = serde_json::to_string(&claim).unwrap();
            let node = NodeFacts {
                instance: Some(id(OLD)),
                ..node(name)
            };
            match since {
                Some(since) => leased(
                    node,
                    [
                        (CLAIM_ANNOTATION, claim.as_str()),
                        (RESTORING_ANNOTATION, &format!("2027-01-01T{since}Z")),
                    ],
                ),
                None => leased(node, [(CLAIM_ANNOTATION, claim.as_str())]),
            }
        };
        let me = queued("b", "workers", Some("01:00:00"));
        for (other, ahead) in [
            (queued("c", "workers", Some("00:59:59")), Some("c")),
            (queued("a", "workers", Some("01:00:00")), Some("a")),
            (queued("c", "workers", Some("01:00:00")), None),
            (queued("a", "others", Some("00:00:00")), None),
            (queued("a", "workers", None), None),
        ] {
            let found = find_ahead(&me, &[other.clone(), me.clone()]);
            assert_eq!(found.as_ref().map(NodeName::as_str), ahead, "{other:?}");
        }
        assert_eq!(find_ahead(&me, std::slice::from_ref(&me)), None);
    }
}
