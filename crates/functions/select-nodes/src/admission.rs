//! Decides whether the next node of a group may start.

use std::collections::BTreeSet;

use jiff::Timestamp;
use recycle::base::ids::{ClusterName, InstanceId};
use recycle::base::member_marks::is_marked;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::{Members, SelectRequest};
use recycle::records::lease::Lease;
use recycle::rotation::admission::{
    Admission, Stop, WaitReason, WaitingNode, check_group, check_waiting_node, comes_after_others,
    find_machine, judge_end_before,
};
use recycle::rotation::attempts::{
    AttemptOutcome, check_failures, check_outcomes, find_begun, find_doubtful, find_gone, is_in_service,
    is_one_left, judge_attempt, keep_replacements, settle_outcome,
};
use recycle::rotation::canary::{
    Canary, check_canary, check_displaced, check_kubelet, find_canary, find_displaced, has_evicted,
};
use recycle::rotation::fleet::Fleet;
use recycle::rotation::hold::{FirstNode, check_alarms, check_first_node};
use recycle::rotation::outdated::{
    OutdatedFacts, Release, describe_launch_source, describe_source, is_outdated,
};
use recycle::rotation::passes::PassSize;
use recycle::rotation::request::Selection;

use crate::group::{GroupRequest, read_group_request};
use crate::{Answered, Error, SelectNodes};

/// Facts that decide whether a node may start, and the node.
struct AdmissionFacts {
    group_request: GroupRequest,
    members: Members,
    waiting_node: WaitingNode,
    now: Timestamp,
}

impl AdmissionFacts {
    /// Returns the nodes before this one.
    fn earlier(&self) -> &[InstanceId] {
        self.members
            .nodes
            .get(..self.waiting_node.index)
            .unwrap_or_default()
    }

    /// Counts the failed nodes of the group, with those of earlier passes.
    fn count_failed(&self, outcomes: &[(&InstanceId, AttemptOutcome)]) -> usize {
        let failed = outcomes
            .iter()
            .filter(|(_, outcome)| *outcome == AttemptOutcome::Failed);
        self.group_request.part.earlier.failed_executions + failed.count()
    }
}

type Outcomes<'a> = Vec<(&'a InstanceId, AttemptOutcome)>;

impl SelectNodes {
    /// Decides whether the next node may start.
    pub(crate) async fn may_start(&self, request: SelectRequest) -> Answered {
        let mut facts = AdmissionFacts {
            group_request: read_group_request(&request)?,
            members: request.members.ok_or(Error::NotAsked("members"))?,
            waiting_node: request.waiting_node.ok_or(Error::NotAsked("waiting_node"))?,
            now: request.context.now(),
        };
        let admission = match self
            .catch_up(&facts.group_request, &mut facts.waiting_node)
            .await?
        {
            Some(admission) => admission,
            None => self.judge(&facts, &request.cluster_name).await?,
        };
        let admission = PassSize::of(&facts.group_request.terms).limit_wait(admission, &facts.waiting_node);
        Ok(admission.answer(
            &facts.group_request.rotation,
            &facts.group_request.part,
            &facts.waiting_node,
        ))
    }

    async fn judge(&self, facts: &AdmissionFacts, cluster: &ClusterName) -> Result<Admission, Error> {
        let (group_request, waiting_node, now) = (&facts.group_request, &facts.waiting_node, facts.now);
        let at_once = facts.members.at_once;
        if let Some(admission) =
            check_waiting_node(&group_request.terms, &group_request.part, waiting_node, now)
        {
            return Ok(admission);
        }
        let fleet = self.groups.fetch_fleet(&group_request.part.group).await?;
        let admission = check_group(&group_request.terms, waiting_node, at_once, fleet.as_ref(), now);
        let Some(fleet) = fleet else {
            return Ok(admission.unwrap_or(Admission::Start));
        };
        if let Some(admission) = admission {
            return self.give_up(facts, &fleet, admission).await;
        }
        let client = self.connect(cluster).await?;
        let nodes = &facts.members.nodes;
        let leases = kubernetes::list_group(&client, &group_request.part.group).await?;
        let labelled = kubernetes::list_replacements(&client, nodes).await?;
        let rotation = &group_request.part.execution;
        let replacements = keep_replacements(labelled, &fleet, &leases, rotation, |id| {
            !is_marked(&facts.members.members_before, id)
        });
        let begun = find_begun(nodes, &leases, &replacements, rotation);
        let canary = find_canary(waiting_node, &begun);
        if let Some(admission) = check_canary(&canary, waiting_node, at_once) {
            return Ok(admission);
        }
        let mut outcomes = Vec::new();
        if let Some(budget) = group_request.terms.failure_budget {
            let mut doubtful = find_doubtful(facts.earlier(), &fleet, &begun);
            doubtful.extend(self.find_lost(group_request, facts.earlier(), &fleet).await?);
            outcomes = self.fetch_outcomes(facts, &fleet, doubtful).await?;
            if let Some(admission) = check_failures(budget, facts.count_failed(&outcomes)) {
                return Ok(admission);
            }
        }
        let admission = self
            .judge_canary(&client, facts, &fleet, outcomes, &canary)
            .await?;
        if let Some(admission) = admission {
            return Ok(admission);
        }
        let replacements = self
            .add_earlier(&client, group_request, &fleet, &leases, replacements)
            .await?;
        if group_request.terms.wait_for_pending_pods && has_evicted(&replacements) {
            let pending = kubernetes::list_pending_pods(&client).await?;
            let displaced = find_displaced(&replacements, &pending, group_request.part.began_at);
            if let Some(admission) = check_displaced(&displaced, waiting_node) {
                return self.give_up(facts, &fleet, admission).await;
            }
        }
        match check_alarms(&group_request.terms, waiting_node.alarms.as_ref()) {
            Some(admission) => self.give_up(facts, &fleet, admission).await,
            None => Ok(Admission::Start),
        }
    }

    /// Adds the replacements of earlier passes: members that replace a node and were launched since the rotation began.
    async fn add_earlier(
        &self,
        client: &kube::Client,
        group_request: &GroupRequest,
        fleet: &Fleet,
        leases: &[Lease],
        replacements: Vec<NodeFacts>,
    ) -> Result<Vec<NodeFacts>, Error> {
        if group_request.part.earlier.passes == 0 || !group_request.terms.wait_for_pending_pods {
            return Ok(replacements);
        }
        let (rotation, began_at) = (&group_request.part.execution, group_request.part.began_at);
        let labelled = kubernetes::list_all_replacements(client).await?;
        let found = keep_replacements(labelled, fleet, leases, rotation, |_| true);
        let ids: Vec<InstanceId> = found.iter().filter_map(|node| node.instance.clone()).collect();
        let machines = self.instances.fetch_machines(&ids).await?;
        let is_new = |id: &InstanceId| {
            let mut machines = machines.iter();
            machines.any(|machine| machine.instance.id == *id && machine.launched_at >= began_at)
        };
        Ok(keep_replacements(found, fleet, leases, rotation, is_new))
    }

    /// Moves `waiting_node` on to the next free execution name of the node. Executions with its names exist, for example, after a redrive
    /// of the rotation. Returns an answer if one of them still runs or has succeeded.
    async fn catch_up(
        &self,
        group_request: &GroupRequest,
        waiting_node: &mut WaitingNode,
    ) -> Result<Option<Admission>, Error> {
        while waiting_node.exists && waiting_node.attempt <= group_request.terms.retries.saturating_add(1) {
            let execution = group_request.find_execution(&waiting_node.instance_id, waiting_node.attempt)?;
            let Some(described) = self.executions.describe(&execution).await? else {
                return Ok(None);
            };
            match described.status.as_str() {
                "SUCCEEDED" => {
                    waiting_node.status = None;
                    return Ok(Some(Admission::Skip(judge_end_before(described.output.as_ref()))));
                }
                "FAILED" | "TIMED_OUT" | "ABORTED" => {
                    waiting_node.attempt += 1;
                    waiting_node.status = Some(described.status);
                }
                _ => {
                    let reason = format!("{execution} works on it");
                    return Ok(Some(Admission::Wait(WaitReason::Execution, reason)));
                }
            }
            if waiting_node.status.as_deref() == Some("ABORTED") {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Finds the earlier nodes that are gone and whose first attempt did not succeed. One listing of executions covers them all.
    pub(crate) async fn find_lost<'a>(
        &self,
        group_request: &GroupRequest,
        earlier: &'a [InstanceId],
        fleet: &Fleet,
    ) -> Result<Vec<&'a InstanceId>, Error> {
        let mut lost = find_gone(earlier, fleet);
        if !lost.is_empty() {
            let failed = self.list_failed(group_request).await?;
            lost.retain(|node| failed.contains(&group_request.name_first(node)));
        }
        Ok(lost)
    }

    /// Lists the names of the executions of `recycle-node` that ended badly since the rotation began.
    pub(crate) async fn list_failed(&self, group_request: &GroupRequest) -> Result<BTreeSet<String>, Error> {
        let (machine, since) = (find_machine(&group_request.part), group_request.part.began_at);
        Ok(self.executions.list_ended_badly(&machine, since).await?)
    }

    /// Turns a wait into a stop, or into the end of the pass, if earlier nodes have waited in vain.
    /// Otherwise a group would take a day, or an hour, for each of its nodes, and keep other rotations out all that time.
    async fn give_up(
        &self,
        facts: &AdmissionFacts,
        fleet: &Fleet,
        admission: Admission,
    ) -> Result<Admission, Error> {
        let at_once = facts.members.at_once;
        let Admission::Wait(_, reason) = &admission else {
            return Ok(admission);
        };
        if !comes_after_others(&facts.waiting_node, at_once) {
            return Ok(admission);
        }
        let earlier = facts.earlier().iter().rev();
        let mut not_begun = 0;
        for node in earlier.filter(|id| is_in_service(id, fleet)) {
            if is_one_left(not_begun, at_once) {
                break;
            }
            let execution = facts.group_request.find_execution(node, 1)?;
            let status = self.executions.find_status(&execution).await?;
            not_begun += usize::from(status.is_none());
        }
        if is_one_left(not_begun, at_once) {
            let size = PassSize::of(&facts.group_request.terms);
            return Ok(size.give_up(&facts.waiting_node, reason));
        }
        Ok(admission)
    }

    /// Fetches the outcomes of the executions of these nodes from Step Functions.
    async fn fetch_outcomes<'a>(
        &self,
        facts: &AdmissionFacts,
        fleet: &Fleet,
        nodes: Vec<&'a InstanceId>,
    ) -> Result<Outcomes<'a>, Error> {
        let terms = &facts.group_request.terms;
        let mut outcomes = Vec::new();
        for node in nodes {
            let is_there = is_in_service(node, fleet);
            let mut attempt = 1;
            let outcome = loop {
                let execution = facts.group_request.find_execution(node, attempt)?;
                let status = self.executions.find_status(&execution).await?;
                if let Some(outcome) = judge_attempt(status.as_deref(), attempt, terms.retries, is_there) {
                    break outcome;
                }
                attempt += 1;
            };
            outcomes.push((node, settle_outcome(outcome, &facts.waiting_node, terms)));
        }
        Ok(outcomes)
    }

    /// Judges by the group's first replacement whether more nodes may start. `known` holds the outcomes that were fetched before.
    async fn judge_canary(
        &self,
        client: &kube::Client,
        facts: &AdmissionFacts,
        fleet: &Fleet,
        known: Outcomes<'_>,
        canary: &Canary<'_>,
    ) -> Result<Option<Admission>, Error> {
        match canary {
            Canary::First | Canary::Passed | Canary::Await(_) => Ok(None),
            Canary::Ask => {
                let is_known = |id: &InstanceId| known.iter().any(|(known, _)| *known == id);
                let unknown = facts.earlier().iter().filter(|id| !is_known(id)).collect();
                let mut outcomes = self.fetch_outcomes(facts, fleet, unknown).await?;
                outcomes.extend(known);
                let budget = facts.group_request.terms.failure_budget;
                let admission =
                    budget.and_then(|budget| check_failures(budget, facts.count_failed(&outcomes)));
                Ok(admission
                    .or_else(|| check_outcomes(&outcomes, fleet, &facts.waiting_node, facts.members.at_once)))
            }
            Canary::Judge { first, replacement } => {
                let control_plane = kubernetes::read_release(client).await?;
                if let Some(admission) = check_kubelet(replacement, control_plane) {
                    return Ok(Some(admission));
                }
                let judged = self.judge_replacement(facts, fleet, replacement, control_plane);
                match judged.await? {
                    Some(admission) => Ok(Some(admission)),
                    None => self.judge_first_node(facts, first).await,
                }
            }
        }
    }

    /// Decides by `wait_after_first_node`. Without it, no call is made. A first node that another execution recycled holds no other.
    async fn judge_first_node(
        &self,
        facts: &AdmissionFacts,
        first: &InstanceId,
    ) -> Result<Option<Admission>, Error> {
        let terms = &facts.group_request.terms;
        if terms.wait_after_first_node == 0 {
            return Ok(None);
        }
        let mut last = None;
        for attempt in 1..=terms.retries.saturating_add(1) {
            let execution = facts.group_request.find_execution(first, attempt)?;
            let Some(described) = self.executions.describe(&execution).await? else {
                break;
            };
            last = Some(described.ended_at.map_or(FirstNode::Running, FirstNode::EndedAt));
        }
        Ok(last.and_then(|first| check_first_node(terms, first, facts.now)))
    }

    /// Stops the group if the replacement meets the criteria that the old node met.
    /// A launch template that has changed since the rotation reached the group says nothing about earlier launches, so the replacement is
    /// not judged.
    /// A template that can no longer be read launches nothing, so the group stops if a criterion needs it.
    async fn judge_replacement(
        &self,
        facts: &AdmissionFacts,
        fleet: &Fleet,
        replacement: &NodeFacts,
        control_plane: Option<Release>,
    ) -> Result<Option<Admission>, Error> {
        let criteria = match &facts.group_request.rotation.selection {
            Selection::Outdated(outdated) => outdated.for_replacement(),
            Selection::InstanceIds(_) | Selection::Alarm(_) => None,
        };
        let mut members = fleet.members.iter();
        let member = members.find(|member| replacement.instance.as_ref() == Some(&member.instance));
        let (Some(criteria), Some(member)) = (criteria, member) else {
            return Ok(None);
        };
        let (templates, unreadable) = self.fetch_readable(&[fleet]).await?;
        if let Some(why) = unreadable.first().filter(|_| criteria.asks_templates()) {
            return Ok(Some(Admission::stop(why)));
        }
        if describe_launch_source(fleet, &templates) != facts.members.launch_source {
            return Ok(None);
        }
        let ids = std::slice::from_ref(&member.instance);
        let machines = self.instances.fetch_machines(ids).await?;
        let known = OutdatedFacts {
            machines: &machines,
            templates: &templates,
            nodes: std::slice::from_ref(replacement),
            leases: &[],
            control_plane,
            now: facts.now,
        };
        if !is_outdated(&criteria, fleet, member, &known) {
            return Ok(None);
        }
        let named = fleet.template_of(&member.instance_type);
        let used = named.and_then(|named| templates.get(named));
        let why = match (unreadable.first(), named) {
            (Some(why), _) => why.clone(),
            (None, Some(named)) => {
                let newest = self.instances.fetch_template(&named.newest()).await?;
                describe_source(Some(named), used, Some(&newest))
            }
            (None, None) => describe_source(None, None, None),
        };
        let text = format!("the replacement {} is also outdated: {why}", member.instance);
        Ok(Some(Admission::stop_with(Stop::ReplacementStillOutdated, text)))
    }
}
