//! Whether the next node of a group may start.

use recycle::answer::envelope::Answer;
use recycle::base::ids::InstanceId;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::{Members, SelectRequest};
use recycle::contract::verdicts::SelectVerdict;
use recycle::rotation::admission::{
    Gate, Holdup, Stop, Turn, check_group, check_turn, comes_after_others, find_execution, find_machine,
    judge_end_before, name_try,
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

use crate::group::{Case, Sight, count_failed, read_case};
use crate::{Error, SelectNodes};

impl SelectNodes {
    /// May the next node start?
    pub(crate) async fn may_start(&self, request: SelectRequest) -> Result<Answer<SelectVerdict>, Error> {
        let case = read_case(&request)?;
        let members = request.members.clone().ok_or(Error::NotAsked("members"))?;
        let mut turn = request.turn.clone().ok_or(Error::NotAsked("turn"))?;
        let gate = match self.catch_up(&case, &mut turn).await? {
            Some(gate) => gate,
            None => self.judge(&request, &case, &members, &turn).await?,
        };
        Ok(gate.answer(&case.rotation, &case.part, &turn))
    }

    async fn judge(
        &self,
        request: &SelectRequest,
        case: &Case,
        members: &Members,
        turn: &Turn,
    ) -> Result<Gate, Error> {
        let (terms, now) = (&case.terms, request.context.now());
        if let Some(gate) = check_turn(terms, &case.part, turn, now) {
            return Ok(gate);
        }
        let fleet = self.groups.fetch_fleet(&case.part.group).await?;
        let gate = check_group(terms, turn, members.at_once, fleet.as_ref(), now);
        let Some(fleet) = fleet else {
            return Ok(gate.unwrap_or(Gate::Start));
        };
        if let Some(gate) = gate {
            return self.give_up(case, members, turn, &fleet, gate).await;
        }
        let client = self.connect(&request.cluster_name).await?;
        let claimed = kubernetes::list_group(&client, &case.part.group).await?;
        let replacements = kubernetes::list_replacements(&client, &members.nodes).await?;
        let begun = find_begun(&members.nodes, &claimed, &replacements, &case.part.execution);
        let canary = find_canary(turn, &begun);
        if let Some(gate) = check_canary(&canary, turn, members.at_once) {
            return Ok(gate);
        }
        let earlier = members.nodes.get(..turn.index).unwrap_or_default();
        let mut pasts = Vec::new();
        if let Some(budget) = terms.failure_budget {
            let mut doubtful = find_doubtful(earlier, &fleet, &begun);
            doubtful.extend(self.find_lost(case, earlier, &fleet).await?);
            pasts = self.ask_pasts(case, &fleet, doubtful, turn).await?;
            if let Some(gate) = check_failures(budget, count_failed(&pasts)) {
                return Ok(gate);
            }
        }
        let sight = Sight {
            fleet: &fleet,
            earlier,
            pasts: &pasts,
            members,
            now,
        };
        if let Some(gate) = self.judge_canary(&client, case, &sight, turn, &canary).await? {
            return Ok(gate);
        }
        if terms.wait_for_pending_pods && has_evicted(&begun) {
            let pending = kubernetes::list_pending_pods(&client).await?;
            let displaced = find_displaced(&begun, &pending, case.part.began_at);
            if let Some(gate) = check_displaced(&displaced, turn) {
                return self.give_up(case, members, turn, &fleet, gate).await;
            }
        }
        Ok(Gate::Start)
    }

    /// Where executions of the node's names are there already, the turn is that of the next name. A rotation that was redriven has them.
    async fn catch_up(&self, case: &Case, turn: &mut Turn) -> Result<Option<Gate>, Error> {
        while turn.exists && turn.attempt <= case.terms.retries.saturating_add(1) {
            let execution =
                find_execution(&case.part, case.rotation.trigger, &turn.instance_id, turn.attempt)?;
            let described = self.executions.describe(&execution).await?;
            let (status, output) = described.unzip();
            match status.as_deref() {
                None => return Ok(None),
                Some("SUCCEEDED") => {
                    turn.status = None;
                    return Ok(Some(Gate::Skip(judge_end_before(output.flatten().as_ref()))));
                }
                Some(status @ ("FAILED" | "TIMED_OUT" | "ABORTED")) => {
                    turn.status = Some(status.to_owned());
                    turn.attempt += 1;
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

    /// The earlier nodes that are gone, and whose first try did not end well: one question for all of them.
    pub(crate) async fn find_lost<'a>(
        &self,
        case: &Case,
        earlier: &'a [InstanceId],
        fleet: &Fleet,
    ) -> Result<Vec<&'a InstanceId>, Error> {
        let gone = find_gone(earlier, fleet);
        if gone.is_empty() {
            return Ok(gone);
        }
        let machine = find_machine(&case.part);
        let ended_badly = self
            .executions
            .list_ended_badly(&machine, case.part.began_at)
            .await?;
        let has_failed =
            |node: &&InstanceId| ended_badly.contains(&name_try(&case.part, case.rotation.trigger, node, 1));
        Ok(gone.into_iter().filter(has_failed).collect())
    }

    /// Waits no longer where nodes before this one have waited in vain: a group would take a day, or an hour, for each of its nodes, and keep
    /// other rotations out for so long.
    async fn give_up(
        &self,
        case: &Case,
        members: &Members,
        turn: &Turn,
        fleet: &Fleet,
        gate: Gate,
    ) -> Result<Gate, Error> {
        let Gate::Wait(_, reason) = &gate else {
            return Ok(gate);
        };
        if !comes_after_others(turn, members.at_once) {
            return Ok(gate);
        }
        let earlier = members.nodes.get(..turn.index).unwrap_or_default();
        let mut not_begun = 0;
        for node in earlier.iter().rev().filter(|id| is_in_service(id, fleet)) {
            if is_one_left(not_begun, members.at_once) {
                break;
            }
            let execution = find_execution(&case.part, case.rotation.trigger, node, 1)?;
            let status = self.executions.find_status(&execution).await?;
            not_begun += usize::from(status.is_none());
        }
        if is_one_left(not_begun, members.at_once) {
            return Ok(Gate::stop(reason));
        }
        Ok(gate)
    }

    /// What became of the executions of these nodes.
    async fn ask_pasts<'a>(
        &self,
        case: &Case,
        fleet: &Fleet,
        nodes: Vec<&'a InstanceId>,
        turn: &Turn,
    ) -> Result<Vec<(&'a InstanceId, Past)>, Error> {
        let mut pasts = Vec::new();
        for node in nodes {
            let mut attempt = 1;
            let past = loop {
                let execution = find_execution(&case.part, case.rotation.trigger, node, attempt)?;
                let status = self.executions.find_status(&execution).await?;
                let is_there = is_in_service(node, fleet);
                if let Some(past) = judge_try(status.as_deref(), attempt, case.terms.retries, is_there) {
                    break past;
                }
                attempt += 1;
            };
            pasts.push((node, settle_past(past, turn, &case.terms)));
        }
        Ok(pasts)
    }

    /// What the group's first replacement says about all that would follow.
    async fn judge_canary(
        &self,
        client: &kube::Client,
        case: &Case,
        scene: &Sight<'_>,
        turn: &Turn,
        canary: &Canary<'_>,
    ) -> Result<Option<Gate>, Error> {
        match canary {
            Canary::First | Canary::Passed | Canary::Await(_) => Ok(None),
            Canary::Ask => {
                let is_known = |id: &InstanceId| scene.pasts.iter().any(|(known, _)| *known == id);
                let unknown = scene.earlier.iter().filter(|id| !is_known(id)).collect();
                let mut pasts = self.ask_pasts(case, scene.fleet, unknown, turn).await?;
                pasts.extend_from_slice(scene.pasts);
                let budget = case.terms.failure_budget;
                Ok(budget
                    .and_then(|budget| check_failures(budget, count_failed(&pasts)))
                    .or_else(|| check_pasts(&pasts, scene.fleet, turn, scene.members.at_once)))
            }
            Canary::Judge(replacement) => {
                let control_plane = kubernetes::read_release(client).await?;
                if let Some(gate) = check_kubelet(replacement, control_plane) {
                    return Ok(Some(gate));
                }
                self.judge_replacement(case, scene, replacement, control_plane)
                    .await
            }
        }
    }

    /// Whether it meets the criteria that the old node met. A template that has changed since the group was begun says nothing of what was
    /// launched before. One that cannot be read any more launches nothing.
    async fn judge_replacement(
        &self,
        case: &Case,
        scene: &Sight<'_>,
        replacement: &NodeFacts,
        control_plane: Option<Release>,
    ) -> Result<Option<Gate>, Error> {
        let criteria = match &case.rotation.selection {
            Selection::Outdated(outdated) => outdated.for_replacement(),
            Selection::InstanceIds(_) | Selection::Alarm(_) => None,
        };
        let mut members = scene.fleet.members.iter();
        let member = members.find(|member| replacement.instance.as_ref() == Some(&member.instance));
        let (Some(criteria), Some(member)) = (criteria, member) else {
            return Ok(None);
        };
        let (templates, unreadable) = self.fetch_readable(&[scene.fleet]).await?;
        if let Some(why) = unreadable.first().filter(|_| criteria.asks_templates()) {
            return Ok(Some(Gate::stop(why)));
        }
        if describe_aim(scene.fleet, &templates) != scene.members.aim {
            return Ok(None);
        }
        let machines = self
            .instances
            .fetch_machines(std::slice::from_ref(&member.instance))
            .await?;
        let judged = Scene {
            machines: &machines,
            templates: &templates,
            nodes: std::slice::from_ref(replacement),
            control_plane,
            now: scene.now,
        };
        if !is_outdated(&criteria, scene.fleet, member, &judged) {
            return Ok(None);
        }
        let named = scene.fleet.template_of(&member.instance_type);
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
