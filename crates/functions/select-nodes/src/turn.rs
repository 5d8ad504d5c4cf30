//! Whether the next node of a group may start.

use jiff::Timestamp;
use recycle::base::ids::{ClusterName, InstanceId};
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::{Members, SelectRequest};
use recycle::rotation::admission::{
    Gate, Holdup, Stop, Turn, check_group, check_turn, comes_after_others, find_machine, judge_end_before,
    name_try,
};
use recycle::rotation::attempts::{
    Past, check_failures, check_pasts, find_begun, find_doubtful, find_gone, is_in_service, is_one_left,
    judge_try, settle_past,
};
use recycle::rotation::canary::{
    Canary, check_canary, check_displaced, check_kubelet, find_canary, find_displaced, has_evicted,
};
use recycle::rotation::fleet::Fleet;
use recycle::rotation::outdated::{Release, Scene, describe_aim, describe_source, is_outdated};
use recycle::rotation::request::Selection;

use crate::group::{Case, read_case};
use crate::{Answered, Error, SelectNodes};

/// Facts that decide whether a node may start, and the node.
struct Asking {
    case: Case,
    members: Members,
    turn: Turn,
    now: Timestamp,
}

impl Asking {
    /// Returns the nodes before this one.
    fn earlier(&self) -> &[InstanceId] {
        self.members.nodes.get(..self.turn.index).unwrap_or_default()
    }
}

type Pasts<'a> = Vec<(&'a InstanceId, Past)>;

impl SelectNodes {
    /// Decides whether the next node may start.
    pub(crate) async fn may_start(&self, request: SelectRequest) -> Answered {
        let mut asking = Asking {
            case: read_case(&request)?,
            members: request.members.ok_or(Error::NotAsked("members"))?,
            turn: request.turn.ok_or(Error::NotAsked("turn"))?,
            now: request.context.now(),
        };
        let gate = match self.catch_up(&asking.case, &mut asking.turn).await? {
            Some(gate) => gate,
            None => self.judge(&asking, &request.cluster_name).await?,
        };
        Ok(gate.answer(&asking.case.rotation, &asking.case.part, &asking.turn))
    }

    async fn judge(&self, asking: &Asking, cluster: &ClusterName) -> Result<Gate, Error> {
        let (case, turn, now) = (&asking.case, &asking.turn, asking.now);
        let at_once = asking.members.at_once;
        if let Some(gate) = check_turn(&case.terms, &case.part, turn, now) {
            return Ok(gate);
        }
        let fleet = self.groups.fetch_fleet(&case.part.group).await?;
        let gate = check_group(&case.terms, turn, at_once, fleet.as_ref(), now);
        let Some(fleet) = fleet else {
            return Ok(gate.unwrap_or(Gate::Start));
        };
        if let Some(gate) = gate {
            return self.give_up(asking, &fleet, gate).await;
        }
        let client = self.connect(cluster).await?;
        let nodes = &asking.members.nodes;
        let claimed = kubernetes::list_group(&client, &case.part.group).await?;
        let replacements = kubernetes::list_replacements(&client, nodes).await?;
        let begun = find_begun(nodes, &claimed, &replacements, &case.part.execution);
        let canary = find_canary(turn, &begun);
        if let Some(gate) = check_canary(&canary, turn, at_once) {
            return Ok(gate);
        }
        let mut pasts = Vec::new();
        if let Some(budget) = case.terms.failure_budget {
            let mut doubtful = find_doubtful(asking.earlier(), &fleet, &begun);
            doubtful.extend(self.find_lost(case, asking.earlier(), &fleet).await?);
            pasts = self.ask_pasts(asking, &fleet, doubtful).await?;
            if let Some(gate) = check_failures(budget, count_failed(&pasts)) {
                return Ok(gate);
            }
        }
        let gate = self.judge_canary(&client, asking, &fleet, pasts, &canary).await?;
        if let Some(gate) = gate {
            return Ok(gate);
        }
        if case.terms.wait_for_pending_pods && has_evicted(&begun) {
            let pending = kubernetes::list_pending_pods(&client).await?;
            let displaced = find_displaced(&begun, &pending, case.part.began_at);
            if let Some(gate) = check_displaced(&displaced, turn) {
                return self.give_up(asking, &fleet, gate).await;
            }
        }
        Ok(Gate::Start)
    }

    /// Moves the turn on to the next free execution name of the node. Executions with its names exist, for example, after a redrive of the
    /// rotation. Returns an answer if one of them still runs or has succeeded.
    async fn catch_up(&self, case: &Case, turn: &mut Turn) -> Result<Option<Gate>, Error> {
        while turn.exists && turn.attempt <= case.terms.retries.saturating_add(1) {
            let execution = case.find_execution(&turn.instance_id, turn.attempt)?;
            let described = self.executions.describe(&execution).await?;
            let (status, output) = described.unzip();
            match status.as_deref() {
                None => return Ok(None),
                Some("SUCCEEDED") => {
                    turn.status = None;
                    return Ok(Some(Gate::Skip(judge_end_before(output.flatten().as_ref()))));
                }
                Some("FAILED" | "TIMED_OUT" | "ABORTED") => {
                    turn.attempt += 1;
                    turn.status = status;
                }
                Some(_) => {
                    let reason = format!("{execution} works on it");
                    return Ok(Some(Gate::Wait(Holdup::Execution, reason)));
                }
            }
            if turn.status.as_deref() == Some("ABORTED") {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Finds the earlier nodes that are gone and whose first try ended badly. One listing of executions covers them all.
    pub(crate) async fn find_lost<'a>(
        &self,
        case: &Case,
        earlier: &'a [InstanceId],
        fleet: &Fleet,
    ) -> Result<Vec<&'a InstanceId>, Error> {
        let mut lost = find_gone(earlier, fleet);
        if !lost.is_empty() {
            let (machine, since) = (find_machine(&case.part), case.part.began_at);
            let ended_badly = self.executions.list_ended_badly(&machine, since).await?;
            let name = |node: &InstanceId| name_try(&case.part, case.rotation.trigger, node, 1);
            lost.retain(|node| ended_badly.contains(&name(node)));
        }
        Ok(lost)
    }

    /// Turns a wait into a stop if earlier nodes have waited in vain.
    /// Otherwise a group would take a day, or an hour, for each of its nodes, and keep other rotations out all that time.
    async fn give_up(&self, asking: &Asking, fleet: &Fleet, gate: Gate) -> Result<Gate, Error> {
        let at_once = asking.members.at_once;
        let Gate::Wait(_, reason) = &gate else {
            return Ok(gate);
        };
        if !comes_after_others(&asking.turn, at_once) {
            return Ok(gate);
        }
        let earlier = asking.earlier().iter().rev();
        let mut not_begun = 0;
        for node in earlier.filter(|id| is_in_service(id, fleet)) {
            if is_one_left(not_begun, at_once) {
                break;
            }
            let execution = asking.case.find_execution(node, 1)?;
            let status = self.executions.find_status(&execution).await?;
            not_begun += usize::from(status.is_none());
        }
        if is_one_left(not_begun, at_once) {
            return Ok(Gate::stop(reason));
        }
        Ok(gate)
    }

    /// Asks Step Functions what became of the executions of these nodes.
    async fn ask_pasts<'a>(
        &self,
        asking: &Asking,
        fleet: &Fleet,
        nodes: Vec<&'a InstanceId>,
    ) -> Result<Pasts<'a>, Error> {
        let terms = &asking.case.terms;
        let mut pasts = Vec::new();
        for node in nodes {
            let is_there = is_in_service(node, fleet);
            let mut attempt = 1;
            let past = loop {
                let execution = asking.case.find_execution(node, attempt)?;
                let status = self.executions.find_status(&execution).await?;
                if let Some(past) = judge_try(status.as_deref(), attempt, terms.retries, is_there) {
                    break past;
                }
                attempt += 1;
            };
            pasts.push((node, settle_past(past, &asking.turn, terms)));
        }
        Ok(pasts)
    }

    /// Judges by the group's first replacement whether more nodes may start. `known` holds the pasts that were asked about before.
    async fn judge_canary(
        &self,
        client: &kube::Client,
        asking: &Asking,
        fleet: &Fleet,
        known: Pasts<'_>,
        canary: &Canary<'_>,
    ) -> Result<Option<Gate>, Error> {
        match canary {
            Canary::First | Canary::Passed | Canary::Await(_) => Ok(None),
            Canary::Ask => {
                let is_known = |id: &InstanceId| known.iter().any(|(known, _)| *known == id);
                let unknown = asking.earlier().iter().filter(|id| !is_known(id)).collect();
                let mut pasts = self.ask_pasts(asking, fleet, unknown).await?;
                pasts.extend(known);
                let budget = asking.case.terms.failure_budget;
                let gate = budget.and_then(|budget| check_failures(budget, count_failed(&pasts)));
                Ok(gate.or_else(|| check_pasts(&pasts, fleet, &asking.turn, asking.members.at_once)))
            }
            Canary::Judge(replacement) => {
                let control_plane = kubernetes::read_release(client).await?;
                if let Some(gate) = check_kubelet(replacement, control_plane) {
                    return Ok(Some(gate));
                }
                self.judge_replacement(asking, fleet, replacement, control_plane)
                    .await
            }
        }
    }

    /// Stops the group if the replacement meets the criteria that the old node met.
    /// A launch template that has changed since the group was begun says nothing about earlier launches, so the replacement is not judged.
    /// A template that cannot be read any more launches nothing, so the group stops if a criterion needs it.
    async fn judge_replacement(
        &self,
        asking: &Asking,
        fleet: &Fleet,
        replacement: &NodeFacts,
        control_plane: Option<Release>,
    ) -> Result<Option<Gate>, Error> {
        let criteria = match &asking.case.rotation.selection {
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
            return Ok(Some(Gate::stop(why)));
        }
        if describe_aim(fleet, &templates) != asking.members.aim {
            return Ok(None);
        }
        let ids = std::slice::from_ref(&member.instance);
        let machines = self.instances.fetch_machines(ids).await?;
        let scene = Scene {
            machines: &machines,
            templates: &templates,
            nodes: std::slice::from_ref(replacement),
            control_plane,
            now: asking.now,
        };
        if !is_outdated(&criteria, fleet, member, &scene) {
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
        let text = format!("the replacement {} is outdated, too: {why}", member.instance);
        Ok(Some(Gate::stop_with(Stop::ReplacementStillOutdated, text)))
    }
}

fn count_failed(pasts: &[(&InstanceId, Past)]) -> usize {
    pasts.iter().filter(|(_, past)| *past == Past::Failed).count()
}
