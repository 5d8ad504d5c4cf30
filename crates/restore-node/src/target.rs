//! The node as it is now, and everything around it that a put-back looks at: read afresh for every step.

use jiff::Timestamp;
use node_record::draining_taint;
use recycle::claim::{StoredClaim, holds_claim};
use recycle::contract::{Answer, RestoreRequest, RestoreVerdict, describe_instance};
use recycle::failure::with_causes;
use recycle::ids::{Fence, GroupName, InstanceId};
use recycle::left_behind::{LeftBehind, describe_left_behind};
use recycle::names::{
    CLAIM_TAG, CORDONED_FOR_ANNOTATION, GAVE_UP_TAG, GROUP_TAG, PROTECTED_FOR_TAG, PUT_BACK_TAG,
};
use recycle::node::{Group, Instance, Member, NodeFacts};
use recycle::pods::is_empty_node;
use recycle::put_back::{
    Deeds, KubernetesHalf, Newcomer, PutBackStep, Situation, next_put_back_step, undo_kubernetes,
};
use recycle::replacement::newcomers;

use crate::request::{Subject, find_reason, write_report};
use crate::{Error, RestoreNode};

pub(crate) struct Target {
    pub(crate) subject: Subject,
    pub(crate) instance: Option<Instance>,
    pub(crate) group: Option<Group>,
    /// Why the cluster could not be asked, if it could not.
    pub(crate) cluster: Result<Cluster, String>,
    pub(crate) deeds: Deeds,
    pub(crate) me: Fence,
    /// The members that carry our protection and are still to be had.
    protected: Vec<InstanceId>,
    waited: i64,
    steps: u32,
}

/// The cluster's half.
pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    pub(crate) node: Option<NodeFacts>,
    /// Who came after EnterStandby; none without a record of who was there before.
    pub(crate) newcomers: Option<Vec<Newcomer>>,
    /// Other Nodes that a put-back of this node has cordoned; only a sweep looks for them.
    pub(crate) marked: Vec<Newcomer>,
}

impl RestoreNode {
    /// Reads both halves. A cluster that will not answer is left out: the AWS half stands by itself.
    pub(crate) async fn fetch(&self, subject: Subject, request: &RestoreRequest) -> Result<Target, Error> {
        let id = &subject.instance;
        let instance = self.instances.fetch(id).await?;
        let group = self.fetch_group(&subject, instance.as_ref(), request).await?;
        let members: Vec<InstanceId> = group
            .iter()
            .flat_map(|group| &group.members)
            .map(|member| member.instance.clone())
            .collect();
        let around = self.instances.fetch_all(&members).await?;
        let cluster = self
            .fetch_cluster(&subject, instance.as_ref(), group.as_ref(), &around, request)
            .await
            .map_err(|error| with_causes(&error));
        let (now, since) = (request.context.now(), request.put_back.since);
        Ok(Target {
            deeds: read_deeds(instance.as_ref())?,
            protected: find_protected(id, group.as_ref(), &around),
            me: request.context.fence(),
            waited: count_seconds(since, now),
            steps: request.put_back.steps,
            instance,
            group,
            cluster,
            subject,
        })
    }

    /// The group that it is a member of, or the one in which it was claimed, or the one of those that are protected for it.
    async fn fetch_group(
        &self,
        subject: &Subject,
        instance: Option<&Instance>,
        request: &RestoreRequest,
    ) -> Result<Option<Group>, Error> {
        let found = self.groups.find(&subject.instance).await?;
        match (found, instance.and_then(Instance::claim)) {
            (None, Some(StoredClaim::Known(claim))) => Ok(self.groups.fetch(&claim.group).await?),
            (None, _) if request.leftover.is_some() => {
                let owner = subject.instance.as_str();
                let protected = self.instances.fetch_tagged(PROTECTED_FOR_TAG, owner).await?;
                match protected.iter().find(|instance| !instance.is_gone()) {
                    Some(member) => Ok(self.groups.find(&member.id).await?),
                    None => Ok(None),
                }
            }
            (found, _) => Ok(found),
        }
    }

    async fn fetch_cluster(
        &self,
        subject: &Subject,
        instance: Option<&Instance>,
        group: Option<&Group>,
        around: &[Instance],
        request: &RestoreRequest,
    ) -> Result<Cluster, Error> {
        let cluster = self.access.describe_cluster(&subject.cluster).await?;
        let client = self.access.connect(&cluster).await?;
        let hint = instance.and_then(|instance| instance.private_dns_name.as_deref());
        let node = node_record::find_node(&client, &subject.instance, hint).await?;
        let before = node
            .as_ref()
            .and_then(|node| node.record().ok())
            .map(|record| record.members_before)
            .filter(|before| !before.is_empty());
        let newcomers = match (before, group) {
            (Some(before), Some(group)) => {
                Some(fetch_newcomers(&client, newcomers(group, &before), around).await?)
            }
            (None, _) | (_, None) => None,
        };
        let marked = match &request.leftover {
            Some(_) => find_cordoned(
                node_record::list_nodes(&client).await?,
                &subject.instance,
                newcomers.as_deref(),
            ),
            None => Vec::new(),
        };
        Ok(Cluster {
            client,
            node,
            newcomers,
            marked,
        })
    }
}

/// Those that carry our cordon for this instance, and came at a time that nobody remembers.
fn find_cordoned(nodes: Vec<NodeFacts>, old: &InstanceId, newcomers: Option<&[Newcomer]>) -> Vec<Newcomer> {
    let is_known =
        |id: &InstanceId| newcomers.is_some_and(|known| known.iter().any(|other| other.instance == *id));
    let cordoned_for = |node: &NodeFacts| {
        node.annotations
            .get(CORDONED_FOR_ANNOTATION)
            .is_some_and(|owner| owner == old.as_str())
    };
    nodes
        .into_iter()
        .filter(cordoned_for)
        .filter_map(|node| Some((node.instance.clone().filter(|id| !is_known(id))?, node)))
        .map(|(instance, node)| Newcomer {
            instance,
            lifecycle_state: String::new(),
            node: Some(node),
            has_pods: true,
        })
        .collect()
}

async fn fetch_newcomers(
    client: &kube::Client,
    members: Vec<&Member>,
    around: &[Instance],
) -> Result<Vec<Newcomer>, Error> {
    let mut found = Vec::new();
    for member in members {
        let instance = around.iter().find(|instance| instance.id == member.instance);
        let hint = instance.and_then(|instance| instance.private_dns_name.as_deref());
        let node = node_record::find_node(client, &member.instance, hint).await?;
        let has_pods = match &node {
            Some(node) => !is_empty_node(&node_record::list_pods(client, &node.name).await?),
            None => false,
        };
        found.push(Newcomer {
            instance: member.instance.clone(),
            lifecycle_state: member.lifecycle_state.clone(),
            node,
            has_pods,
        });
    }
    Ok(found)
}

fn read_deeds(instance: Option<&Instance>) -> Result<Deeds, Error> {
    let tag = instance.and_then(|instance| instance.tags.get(PUT_BACK_TAG));
    Ok(tag.map_or_else(|| Ok(Deeds::default()), |text| text.parse())?)
}

/// Members whose tag says that we protect them. One that is on its way out cannot be asked any more, and takes its tags with it.
fn find_protected(old: &InstanceId, group: Option<&Group>, around: &[Instance]) -> Vec<InstanceId> {
    let is_ours = |member: &&Member| {
        let tags = around
            .iter()
            .find(|instance| instance.id == member.instance)
            .map(|instance| &instance.tags);
        let owner = tags.and_then(|tags| tags.get(PROTECTED_FOR_TAG));
        owner.is_some_and(|owner| owner == old.as_str())
    };
    let members = group.iter().flat_map(|group| &group.members);
    members
        .filter(|member| !member.is_leaving())
        .filter(is_ours)
        .map(|member| member.instance.clone())
        .collect()
}

fn count_seconds(since: Option<Timestamp>, now: Timestamp) -> i64 {
    since.map_or(0, |since| now.duration_since(since).as_secs())
}

#[cfg(test)]
impl Target {
    pub(crate) fn new(
        subject: Subject,
        instance: Instance,
        group: Group,
        cluster: Cluster,
        me: Fence,
    ) -> Self {
        Self {
            subject,
            instance: Some(instance),
            group: Some(group),
            cluster: Ok(cluster),
            deeds: Deeds::default(),
            me,
            protected: Vec::new(),
            waited: 0,
            steps: 0,
        }
    }
}

impl Target {
    /// The claim: the Node's, and where there is none, or none to be seen, the instance's.
    pub(crate) fn claim(&self) -> Option<StoredClaim> {
        self.node()
            .and_then(NodeFacts::claim)
            .or_else(|| self.instance.as_ref().and_then(Instance::claim))
    }

    /// Whether the claim is this execution's.
    pub(crate) fn is_ours(&self) -> bool {
        holds_claim(self.claim().as_ref(), &self.me)
    }

    /// An earlier try of the last step took the claim away, and was not heard.
    pub(crate) fn has_been_released(&self, request: &RestoreRequest) -> bool {
        request.put_back.since.is_some()
            && self.claim().is_none()
            && matches!(self.next_step(), PutBackStep::Done(_))
    }

    /// It is gone, or on its way out of its group.
    pub(crate) fn is_going(&self) -> bool {
        let member = self
            .group
            .as_ref()
            .and_then(|group| group.member(&self.subject.instance));
        self.instance.as_ref().is_none_or(Instance::is_gone) || member.is_some_and(Member::is_leaving)
    }

    /// A person was told that it is hers.
    pub(crate) fn has_given_up(&self) -> bool {
        self.instance
            .as_ref()
            .is_some_and(|instance| instance.tags.contains_key(GAVE_UP_TAG))
    }

    pub(crate) fn next_step(&self) -> PutBackStep {
        next_put_back_step(&self.situation())
    }

    pub(crate) fn has_time(&self) -> bool {
        self.situation().has_time()
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            id: &self.subject.instance,
            instance: self.instance.as_ref(),
            group: self.group.as_ref(),
            kubernetes: self.kubernetes_half(),
            newcomers: self
                .cluster
                .as_ref()
                .ok()
                .and_then(|cluster| cluster.newcomers.as_deref()),
            marked: self
                .cluster
                .as_ref()
                .map_or(&[], |cluster| cluster.marked.as_slice()),
            protected: &self.protected,
            deeds: &self.deeds,
            waited: self.waited,
            steps: self.steps,
        }
    }

    fn kubernetes_half(&self) -> KubernetesHalf {
        let Ok(cluster) = &self.cluster else {
            return KubernetesHalf::Unseen;
        };
        let Some(node) = &cluster.node else {
            return KubernetesHalf::Vanished;
        };
        match undo_kubernetes(node, &draining_taint(&self.subject.instance)) {
            Some(_) => KubernetesHalf::Undo,
            None => KubernetesHalf::Clean,
        }
    }

    /// Goes on as if the cluster had not answered.
    pub(crate) fn lose_sight(&mut self, why: String) {
        self.cluster = Err(why);
    }

    /// The Node, if there is one and the cluster could be asked.
    pub(crate) fn node(&self) -> Option<&NodeFacts> {
        self.cluster.as_ref().ok()?.node.as_ref()
    }

    pub(crate) fn group_name(&self) -> Result<&GroupName, Error> {
        self.group
            .as_ref()
            .map(|group| &group.name)
            .ok_or_else(|| Error::NoGroup(self.say("is in no group any more")))
    }

    pub(crate) fn say(&self, state: &str) -> String {
        let subject = describe_instance(&self.subject.instance, self.node().map(|node| &node.name));
        format!("{subject} {state}")
    }

    /// After the claim was taken away: what is left is told without reading it again.
    pub(crate) fn forget_claim(&mut self, node: Option<NodeFacts>) {
        if let (Ok(cluster), Some(node)) = (&mut self.cluster, node) {
            cluster.node = Some(node);
        }
        if let Some(instance) = &mut self.instance {
            for tag in [CLAIM_TAG, GROUP_TAG, PUT_BACK_TAG] {
                instance.tags.remove(tag);
            }
        }
    }

    pub(crate) fn describe_what_is_left(&self) -> LeftBehind {
        let member = self
            .group
            .as_ref()
            .and_then(|group| group.member(&self.subject.instance));
        describe_left_behind(
            &self.subject.instance,
            self.group.as_ref(),
            member.map(|member| member.lifecycle_state.as_str()),
            self.instance.as_ref(),
            None,
            self.node(),
        )
    }

    /// A sweep says nothing of what a person was told before.
    pub(crate) fn tell_once(&self, verdict: RestoreVerdict, request: &RestoreRequest) -> RestoreVerdict {
        if request.leftover.is_some() && self.has_given_up() {
            RestoreVerdict::Untouched
        } else {
            verdict
        }
    }

    /// What is left, and the commands that take it away.
    pub(crate) fn write_report(&self, note: Option<String>, request: &RestoreRequest) -> String {
        let mut left = self.describe_what_is_left();
        if let Some(note) = note {
            left.state = format!("{}; {note}", left.state);
        }
        let unseen = self.cluster.as_ref().err().map(String::as_str);
        write_report(&find_reason(request), "", &left, unseen)
    }

    /// Nothing can be left on it; what was left of it on others is gone.
    pub(crate) fn forget(&self, request: &RestoreRequest) -> Answer<RestoreVerdict> {
        let verdict = match request.put_back.since {
            Some(_) => RestoreVerdict::Restored,
            None => RestoreVerdict::Untouched,
        };
        let state = self.say("is gone, and nothing of ours is left on the members of its group");
        Answer::new(verdict, format!("{}\n{state}.", find_reason(request)))
    }
}

#[cfg(test)]
mod tests {
    use recycle::names::{EXCLUDE_FROM_BALANCERS_LABEL, STANDBY_TAG};

    use super::*;
    use crate::fixtures::{OLD, claim, id, instance, member, node, target};

    #[tokio::test]
    async fn only_our_own_claims_count_and_the_nodes_before_the_instances() {
        let is_ours = |on_node: Option<&str>, on_instance: Option<&str>| {
            target(on_node.map(claim), on_instance.map(claim)).is_ours()
        };
        assert!(!is_ours(None, None));
        assert!(!is_ours(Some("two"), Some("two")));
        assert!(!is_ours(Some("two"), Some("one")));
        assert!(is_ours(None, Some("one")), "its Node is released already");
        assert!(is_ours(Some("one"), Some("one")));
        let mut unseen = target(Some(claim("two")), Some(claim("one")));
        unseen.lose_sight("away".to_owned());
        assert!(unseen.is_ours());
    }

    #[test]
    fn only_members_that_carry_our_tag_are_ours_to_unprotect() {
        let group = Group {
            members: vec![
                member("i-0aaaaaaaaaaaaaaa1", "InService"),
                member("i-0aaaaaaaaaaaaaaa2", "InService"),
                member("i-0aaaaaaaaaaaaaaa3", "Terminating:Wait"),
                member("i-0aaaaaaaaaaaaaaa4", "InService"),
            ],
            ..crate::fixtures::group()
        };
        let tagged = |id: &str, owner: &str| Instance {
            id: id.parse().unwrap(),
            tags: [(PROTECTED_FOR_TAG.to_owned(), owner.to_owned())].into(),
            ..instance(None)
        };
        let around = [
            tagged("i-0aaaaaaaaaaaaaaa1", OLD),
            tagged("i-0aaaaaaaaaaaaaaa2", "i-0bbbbbbbbbbbbbbbb"),
            tagged("i-0aaaaaaaaaaaaaaa3", OLD),
        ];
        let found = find_protected(&id(), Some(&group), &around);
        assert_eq!(found, ["i-0aaaaaaaaaaaaaaa1".parse().unwrap()]);
    }

    #[tokio::test]
    async fn after_the_release_the_report_tells_of_what_is_left_only() {
        let mut target = target(Some(claim("one")), Some(claim("one")));
        if let Some(instance) = &mut target.instance {
            instance
                .tags
                .insert(STANDBY_TAG.to_owned(), "2027-01-01T00:00:00Z".to_owned());
        }
        let mut released = node(None);
        released.labels = [(EXCLUDE_FROM_BALANCERS_LABEL.to_owned(), "theirs".to_owned())].into();
        target.forget_claim(Some(released));
        let left = target.describe_what_is_left();
        assert_eq!(
            left.commands,
            [
                format!(
                    "aws autoscaling exit-standby --auto-scaling-group-name workers --instance-ids {OLD}"
                ),
                format!("aws ec2 delete-tags --resources {OLD} --tags Key=recycle-eks:standby"),
            ]
        );
    }
}
