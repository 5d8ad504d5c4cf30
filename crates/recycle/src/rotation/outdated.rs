//! Selects the outdated members of a group by criteria, and the groups that a rotation covers.
//!
//! [`crate::rotation::admission`] decides whether the next of these nodes may start.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::duration::{Duration, DurationRange};
use crate::base::ids::{ClusterName, ExecutionArn, GroupName, InstanceId, short_hash};
use crate::base::selector::Selector;
use crate::base::text::{count, cut_given, cut_text, list_names};
use crate::cluster::node::{NodeFacts, NodeList};
use crate::input::model::InvalidInput;
use crate::records::claim::StoredClaim;
use crate::records::lease::Lease;
use crate::rotation::fleet::{Fleet, FleetMember, Machine, Template, TemplateFacts};

/// The ages that select a node. A shorter one would select the replacements of the rotation itself, and is most likely a number that was
/// meant as hours.
pub const AGES: DurationRange = DurationRange::new(3_600, u32::MAX);

/// The selection of outdated members: a member that passes all filters is outdated if it meets any of the criteria.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Outdated {
    /// Filter: only these groups. None: all groups of the cluster.
    pub groups: Option<Vec<GroupName>>,
    /// Filter: only groups with this tag.
    pub group_tag: Option<GroupTag>,
    /// Filter: only members whose Node has these labels.
    pub node_labels: Option<Selector>,
    /// Launched from another template, or another version of it, than the group names, or from no template.
    pub launch_template: bool,
    /// Launched from another image than the template names.
    pub ami: bool,
    /// The kubelet has an older minor version than the control plane.
    pub kubelet: bool,
    /// Launched longer ago than this.
    pub older_than: Option<Duration>,
    pub launched_before: Option<Timestamp>,
    pub all: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupTag {
    pub key: String,
    pub value: String,
}

impl Outdated {
    /// Refuses a selection without a criterion, and one with both `groups` and `group_tag`.
    pub(crate) fn check(&self) -> Result<(), InvalidInput> {
        let refuse = |text: &str| Err(InvalidInput(text.to_owned()));
        let by_age = self.older_than.is_some() || self.launched_before.is_some();
        let has_criterion = by_age || self.launch_template || self.ami || self.kubelet || self.all;
        if self.groups.is_some() && self.group_tag.is_some() {
            return refuse("selection: outdated has groups and group_tag; write one of them");
        }
        if let Some(age) = self.older_than.filter(|age| *age < AGES.least()) {
            return Err(InvalidInput(format!(
                "selection: outdated.older_than must be {AGES}, but is {age}"
            )));
        }
        if !has_criterion {
            return refuse(
                "selection: outdated needs at least one of launch_template, ami, kubelet, older_than, launched_before or all",
            );
        }
        Ok(())
    }

    pub fn asks_nodes(&self) -> bool {
        self.kubelet || self.node_labels.is_some()
    }

    /// Checks whether the groups' templates have to be read.
    pub fn asks_templates(&self) -> bool {
        self.launch_template || self.ami
    }

    /// Returns the criteria that show whether a replacement is as outdated as the old node: all but `node_labels`, `older_than`,
    /// `launched_before` and `all`. A good replacement also grows old during a long drain. None if no criterion is left.
    pub fn for_replacement(&self) -> Option<Self> {
        let same = Self {
            node_labels: None,
            older_than: None,
            launched_before: None,
            all: false,
            ..self.clone()
        };
        same.check().is_ok().then_some(same)
    }
}

/// A Kubernetes version: `major.minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    /// Reads `v1.33.4-eks-1a2b3c4`, `1.33` and similar texts. None if the text is not a version.
    pub fn read(text: &str) -> Option<Self> {
        let mut numbers = text.trim_start_matches('v').split('.');
        let major = numbers.next()?.parse().ok()?;
        let digits = numbers.next()?.split(|c: char| !c.is_ascii_digit()).next()?;
        let minor = digits.parse().ok()?;
        Some(Self { major, minor })
    }

    /// Reads the version from an image's name (EKS user guide, "Amazon Linux AMI" and "Bottlerocket AMI" names). Examples are
    /// `amazon-eks-node-al2023-x86_64-standard-1.33-v20260101`, `bottlerocket-aws-k8s-1.33-x86_64-v1.40.0-…` and
    /// `amazon-eks-node-1.33-v20260101`. None for other names.
    pub fn read_image(name: &str) -> Option<Self> {
        let is_known = ["amazon-eks-", "bottlerocket-aws-k8s-", "ubuntu-eks/"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        let parts = name.split(['-', '_', '/']).filter(|part| part.starts_with("1."));
        is_known.then(|| parts.filter_map(Self::read).next()).flatten()
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The facts by which members are judged.
#[derive(Debug, Clone, Copy)]
pub struct OutdatedFacts<'a> {
    pub machines: &'a [Machine],
    /// The current facts of the groups' templates.
    pub templates: &'a BTreeMap<Template, TemplateFacts>,
    /// Nodes of the cluster. Empty if no filter or criterion needs them.
    pub nodes: &'a [NodeFacts],
    pub leases: &'a [Lease],
    /// The control plane's version. None if no criterion needs it.
    pub control_plane: Option<Release>,
    pub now: Timestamp,
}

impl OutdatedFacts<'_> {
    pub(crate) fn machine(&self, id: &InstanceId) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.instance.id == *id)
    }

    pub(crate) fn node(&self, id: &InstanceId) -> Option<&NodeFacts> {
        self.nodes.iter().find(|node| node.instance.as_ref() == Some(id))
    }
}

/// A criterion that selected a member, in the words of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    InstanceIds,
    LaunchTemplate,
    Ami,
    Kubelet,
    OlderThan,
    LaunchedBefore,
    All,
}

pub fn is_outdated(
    outdated: &Outdated,
    fleet: &Fleet,
    member: &FleetMember,
    known: &OutdatedFacts<'_>,
) -> bool {
    !find_criteria(outdated, fleet, member, known).is_empty()
}

/// Returns the criteria that a member meets. Empty if the filter `node_labels` leaves it out, or its instance is unknown.
pub(crate) fn find_criteria(
    outdated: &Outdated,
    fleet: &Fleet,
    member: &FleetMember,
    known: &OutdatedFacts<'_>,
) -> Vec<Criterion> {
    let node = known.node(&member.instance);
    let has_labels = |selector: &Selector| node.is_some_and(|node| selector.matches(&node.labels));
    let is_meant = outdated.node_labels.as_ref().is_none_or(has_labels);
    if is_meant {
        find_criteria_without_labels(outdated, fleet, member, known)
    } else {
        Vec::new()
    }
}

/// Seconds after its launch in which a member may have no Node yet. Cluster Autoscaler waits as long for a Node by default.
const REGISTERS_WITHIN: i64 = 900;

/// Checks whether a member that no criterion selects may be outdated all the same: its Node would have to say so, but is missing, cannot be
/// read, or has no version of its kubelet. A member that was just launched is not asked.
pub(crate) fn is_undecided(
    outdated: &Outdated,
    fleet: &Fleet,
    member: &FleetMember,
    known: &OutdatedFacts<'_>,
) -> bool {
    let registers_within = SignedDuration::from_secs(REGISTERS_WITHIN);
    let is_old = |machine: &Machine| known.now.duration_since(machine.launched_at) > registers_within;
    // Auto Scaling lists an instance that has ended until its next health check.
    let may_register = |machine: &Machine| !machine.instance.is_gone() && is_old(machine);
    let node = known.node(&member.instance);
    let labels = outdated.node_labels.as_ref();
    let is_left_out = labels
        .zip(node)
        .is_some_and(|(selector, node)| !selector.matches(&node.labels));
    if is_left_out || !known.machine(&member.instance).is_some_and(may_register) {
        return false;
    }
    if find_criteria_without_labels(outdated, fleet, member, known).is_empty() {
        outdated.kubelet && node.and_then(|node| Release::read(&node.kubelet)).is_none()
    } else {
        labels.is_some() && node.is_none()
    }
}

/// Describes the members that are undecided ([`is_undecided`]), and what is wrong with their Nodes. None if there are none.
pub fn describe_undecided(undecided: &[InstanceId], nodes: &NodeList) -> Option<String> {
    let describe = |id: &InstanceId| {
        let has_node = nodes
            .readable
            .iter()
            .any(|node| node.instance.as_ref() == Some(id));
        let why = match nodes.find_unreadable(id) {
            Some(node) => cut_given(&node.why),
            None if has_node => "no version of its kubelet".to_owned(),
            None => "no Node".to_owned(),
        };
        format!("{id} ({why})")
    };
    let named: Vec<String> = undecided
        .iter()
        .take(MOST_UNDECIDED_NAMED)
        .map(describe)
        .collect();
    let names = list_names(&named, undecided.len());
    let members = count(undecided.len(), "member");
    (!undecided.is_empty()).then(|| format!("no Node says whether {members} must be recycled: {names}"))
}

/// The number of undecided members that one sentence names. A reason has 240 characters.
const MOST_UNDECIDED_NAMED: usize = 3;

fn find_criteria_without_labels(
    outdated: &Outdated,
    fleet: &Fleet,
    member: &FleetMember,
    known: &OutdatedFacts<'_>,
) -> Vec<Criterion> {
    let node = known.node(&member.instance);
    let Some(machine) = known.machine(&member.instance) else {
        return Vec::new();
    };
    let named = fleet.template_of(&member.instance_type);
    let facts = named.and_then(|template| known.templates.get(template));
    // A group with a launch configuration names no template, so no member is behind one.
    let is_behind = named.zip(facts).is_some_and(|(named, facts)| {
        let launched = member.template.as_ref();
        launched.is_none_or(|from| from.id != named.id || from.version != facts.version)
    });
    let wanted_image = facts.and_then(|facts| facts.image.as_ref());
    let has_another = wanted_image.is_some_and(|image| *image != machine.image);
    let kubelet = node.and_then(|node| Release::read(&node.kubelet));
    let versions = kubelet.zip(known.control_plane);
    let is_older = versions.is_some_and(|(kubelet, plane)| kubelet < plane);
    let launched = machine.launched_at;
    let is_old = outdated.older_than.is_some_and(|age| {
        known.now.duration_since(launched) > SignedDuration::from_secs(i64::from(age.as_seconds()))
    });
    let is_from_before = outdated.launched_before.is_some_and(|moment| launched < moment);
    [
        (Criterion::LaunchTemplate, outdated.launch_template && is_behind),
        (Criterion::Ami, outdated.ami && has_another),
        (Criterion::Kubelet, outdated.kubelet && is_older),
        (Criterion::OlderThan, is_old),
        (Criterion::LaunchedBefore, is_from_before),
        (Criterion::All, outdated.all),
    ]
    .into_iter()
    .filter_map(|(criterion, is_met)| is_met.then_some(criterion))
    .collect()
}

/// Returns a short hash of the templates and versions that a group launches from, which the state machine carries. A different hash means
/// that one of them has changed.
pub fn describe_launch_source(fleet: &Fleet, templates: &BTreeMap<Template, TemplateFacts>) -> String {
    let named = fleet.template.iter().chain(fleet.overrides.values());
    let versions = named.map(|template| {
        let facts = templates.get(template);
        let version = facts.map_or("?", |facts| &facts.version);
        format!("{}:{version} ", template.id)
    });
    short_hash(&versions.collect::<String>())
}

/// Describes the template version that a group uses, and the newest version, for an operator.
pub fn describe_source(
    named: Option<&Template>,
    used: Option<&TemplateFacts>,
    newest: Option<&TemplateFacts>,
) -> String {
    let (Some(named), Some(used), Some(newest)) = (named, used, newest) else {
        return "the group launches from a launch configuration".to_owned();
    };
    let (named, used, newest) = (&named.version, &used.version, &newest.version);
    let alias = if named == used {
        String::new()
    } else {
        format!(" = {named}")
    };
    format!("group uses template version {used}{alias}; newest is {newest}")
}

/// Returns the groups that a selection of outdated nodes covers.
/// Fails if an entry of `groups` is not a group of the cluster.
pub fn find_fleets<'a>(
    outdated: &Outdated,
    fleets: &'a [Fleet],
    cluster: &ClusterName,
) -> Result<Vec<&'a Fleet>, InvalidInput> {
    if let Some(names) = &outdated.groups {
        let find = |name: &GroupName| {
            let fleet = fleets.iter().find(|fleet| fleet.name == *name);
            fleet
                .ok_or_else(|| InvalidInput(format!("selection: {name} is not a group of cluster {cluster}")))
        };
        return names.iter().map(find).collect();
    }
    let tag = outdated.group_tag.as_ref();
    let has_tag = |fleet: &&Fleet| tag.is_none_or(|tag| fleet.tags.get(&tag.key) == Some(&tag.value));
    Ok(fleets.iter().filter(has_tag).collect())
}

/// The nodes of one group that a rotation covers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Nodes to recycle, zone by zone. The zone of the oldest node comes first.
    /// Within a zone the oldest node comes first.
    pub nodes: Vec<InstanceId>,
    /// Number of selected nodes that are left out of `nodes`, because an execution of this installation has claimed them.
    pub claimed: usize,
    /// Positions in `nodes`, from 0, of the nodes that meet each criterion. Positions are shorter than ids.
    pub criteria: BTreeMap<Criterion, Vec<usize>>,
    /// Members that may be outdated and are not in `nodes`, because only their Nodes could say so, and do not.
    pub undecided: Vec<InstanceId>,
}

impl Chosen {
    /// Keeps the first `most` nodes, and returns those that it removed.
    pub fn cut(&mut self, most: usize) -> Vec<InstanceId> {
        let removed = self.nodes.split_off(most.min(self.nodes.len()));
        for places in self.criteria.values_mut() {
            places.retain(|place| *place < most);
        }
        removed
    }
}

/// Checks whether an execution of the same installation has claimed the node.
/// A node with any other claim is not left out, so that a claim of unknown origin does not hide a node from every rotation.
/// `claim-node` refuses such a node and names the claim, and the rotation lists the node as failed.
pub(crate) fn is_worked_on(lease: &Lease, rotation: &ExecutionArn) -> bool {
    let claim = lease.claim().and_then(StoredClaim::known);
    claim.is_some_and(|claim| claim.is_of_installation(rotation))
}

/// Bytes of all groups' names in one answer, which has room for 8 KB.
const LONGEST_NAMES: usize = 6_000;

/// Characters of the reason that goes with the groups.
const LONGEST_REASON: usize = 1_200;

/// The groups that a rotation goes through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    pub groups: Vec<GroupName>,
    /// The numbers of nodes and groups, and those that this rotation does not recycle.
    pub reason: String,
}

/// Chooses the groups that have nodes to recycle or undecided members, as many as an answer has room for. The next rotation finds the rest.
/// `unknown` lists in sentences the objects that could not be read.
pub fn choose_groups(found: Vec<(GroupName, Chosen)>, unknown: &[String]) -> Groups {
    let all = found.len();
    let claimed: usize = found.iter().map(|(_, chosen)| chosen.claimed).sum();
    let (mut groups, mut nodes, mut length, mut left) = (Vec::new(), 0, 0, 0);
    let is_needed = |(_, chosen): &(_, Chosen)| !chosen.nodes.is_empty() || !chosen.undecided.is_empty();
    for (name, chosen) in found.into_iter().filter(is_needed) {
        if length + name.as_str().len() > LONGEST_NAMES {
            left += 1;
            continue;
        }
        length += name.as_str().len() + 3;
        nodes += chosen.nodes.len();
        groups.push(name);
    }
    let nodes = count(nodes, "node");
    let mut reason = format!(
        "{nodes} to recycle, in {} of {}",
        groups.len(),
        count(all, "group")
    );
    if claimed > 0 {
        reason = format!("{reason}; executions already work on {claimed} more");
    }
    if left > 0 {
        reason = format!("{reason}; {} left for the next rotation", count(left, "group"));
    }
    for text in unknown {
        reason = format!("{reason}; {text}");
    }
    cut_text(&mut reason, LONGEST_REASON);
    Groups { groups, reason }
}

#[cfg(test)]
mod tests;
