//! One group of a rotation: fetches what its nodes, and the question whether the next of them may start, are decided from.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use recycle::contract::{Answer, Members, SelectRequest, SelectVerdict};
use recycle::gate::{
    Canary, Ended, Gate, Holdup, Past, Stop, Turn, check_canary, check_displaced, check_failures,
    check_group, check_kubelet, check_pasts, check_turn, comes_after_others, find_begun, find_canary,
    find_displaced, find_doubtful, find_execution, find_gone, find_machine, has_evicted, is_in_service,
    is_one_left, judge_end_before, judge_try, name_try, settle_past,
};
use recycle::ids::{ExecutionArn, InstanceId};
use recycle::marks::{find_rotations, machine_of};
use recycle::node::NodeFacts;
use recycle::outdated::{Release, Scene, choose_members, describe_aim, describe_source, is_outdated};
use recycle::rotation::{Part, Terms};
use recycle::select::{Fleet, Rotation, Selection, Template, TemplateFacts, parse_rotation};

use crate::{Error, SelectNodes};

/// A request of a group's own execution.
struct Case {
    part: Part,
    rotation: Rotation,
    terms: Terms,
}

fn read_case(request: &SelectRequest) -> Result<Case, Error> {
    let part = request.rotation.clone().ok_or(Error::NotAsked("rotation"))?;
    let rotation = parse_rotation(&part.input)?;
    let terms = rotation.terms.clone().ok_or(Error::NotAsked("terms"))?;
    Ok(Case {
        part,
        rotation,
        terms,
    })
}

impl SelectNodes {
    /// The nodes of the group, in order, and on which terms they are gone through.
    pub(crate) async fn select_group(&self, request: SelectRequest) -> Result<Answer<SelectVerdict>, Error> {
        let Case {
            part,
            rotation,
            terms,
        } = read_case(&request)?;
        let Some(fleet) = self.groups.fetch_fleet(&part.group).await? else {
            return Ok(leave(Ended::left("the group is gone")));
        };
        // Where no criterion asks for the templates, they tell which image is launched, if they can be read.
        let (templates, unreadable) = self.fetch_readable(&[&fleet]).await?;
        if let Some(why) = unreadable.first().filter(|_| rotation.selection.asks_templates()) {
            return Ok(leave(Ended::left(why)));
        }
        let client = self.connect(&request.cluster_name).await?;
        let nodes = node_record::list_nodes(&client).await?;
        let control_plane = node_record::read_release(&client).await?;
        let ids: Vec<InstanceId> = fleet
            .members
            .iter()
            .map(|member| member.instance.clone())
            .collect();
        let machines = self.instances.fetch_machines(&ids).await?;
        let scene = Scene {
            machines: &machines,
            templates: &templates,
            nodes: &nodes.readable,
            control_plane,
            now: request.context.now(),
        };
        let mut chosen = choose_members(&rotation.selection, &fleet, &scene, &part.execution);
        let claimed = chosen.claimed;
        if chosen.nodes.is_empty() {
            return Ok(leave(Ended::left(format!(
                "none is left to recycle, {claimed} are worked on already"
            ))));
        }
        if let Some(why) = self.find_newer(&ids, &scene, &templates).await? {
            return Ok(leave(Ended::stopping(Stop::KubeletTooNew, why)));
        }
        let (running, ended) = self.sort_rotations(&part, &ids, scene.nodes).await?;
        if let Some(other) = running.filter(|_| !terms.dry_run) {
            return Ok(leave(Ended::left(format!("{other} is at work on it"))));
        }
        let more = chosen.cut(terms.most_nodes());
        let mut reason = format!(
            "{} nodes, {claimed} more are worked on already",
            chosen.nodes.len()
        );
        if more > 0 {
            reason = format!("{reason}, {more} more are for the next rotation");
        }
        if let Some(unreadable) = nodes.describe_unreadable() {
            reason = format!("{reason}; {unreadable}");
        }
        let verdict = if terms.dry_run {
            SelectVerdict::EachNode
        } else {
            SelectVerdict::MarkNodes
        };
        Ok(Answer {
            nodes: Some(chosen.nodes),
            criteria: terms.dry_run.then_some(chosen.criteria),
            at_once: Some(terms.count_at_once(fleet.members.len(), self.most_at_once)?),
            aim: Some(describe_aim(&fleet, &templates)),
            mark: Some(terms.mark),
            recycle: Some(rotation.fields()),
            ended_rotations: Some(ended),
            ..Answer::new(verdict, reason)
        })
    }

    /// Who would get, or has, a kubelet that is newer than the control plane: a member, or the image that the group launches from, where its
    /// name says so.
    async fn find_newer(
        &self,
        members: &[InstanceId],
        scene: &Scene<'_>,
        templates: &BTreeMap<Template, TemplateFacts>,
    ) -> Result<Option<String>, Error> {
        let Some(plane) = scene.control_plane else {
            return Ok(None);
        };
        for node in scene.nodes.iter().filter(|node| is_one_of(node, members)) {
            if let Some(kubelet) = Release::read(&node.kubelet).filter(|kubelet| *kubelet > plane) {
                return Ok(Some(format!(
                    "{} has kubelet {kubelet}, the control plane is {plane}",
                    node.name
                )));
            }
        }
        let images: BTreeSet<&String> = templates
            .values()
            .filter_map(|facts| facts.image.as_ref())
            .collect();
        for image in images {
            let name = self.instances.fetch_image_name(image).await?.unwrap_or_default();
            if let Some(release) = Release::read_image(&name).filter(|release| *release > plane) {
                return Ok(Some(format!(
                    "{image} ({name}) has kubelet {release}, the control plane is {plane}"
                )));
            }
        }
        Ok(None)
    }

    /// Another rotation that still runs and has marked nodes of the group, and those that have ended.
    async fn sort_rotations(
        &self,
        part: &Part,
        members: &[InstanceId],
        nodes: &[NodeFacts],
    ) -> Result<(Option<ExecutionArn>, BTreeSet<ExecutionArn>), Error> {
        let of_group: Vec<NodeFacts> = nodes
            .iter()
            .filter(|node| is_one_of(node, members))
            .cloned()
            .collect();
        let mut ended = BTreeSet::new();
        // What another machine has marked keeps nobody from anything: whether it runs, only its own account can tell.
        let is_other =
            |arn: &ExecutionArn| *arn != part.execution && machine_of(arn) == machine_of(&part.execution);
        for rotation in find_rotations(&of_group).into_iter().filter(is_other) {
            if self.executions.is_running(&rotation).await? {
                return Ok((Some(rotation), ended));
            }
            ended.insert(rotation);
        }
        Ok((None, ended))
    }

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
        let claimed = node_record::list_group(&client, &case.part.group).await?;
        let replacements = node_record::list_replacements(&client, &members.nodes).await?;
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
            let pending = node_record::list_pending_pods(&client).await?;
            let displaced = find_displaced(&begun, &pending, case.part.began_at);
            if let Some(gate) = check_displaced(&displaced, turn) {
                return self.give_up(case, members, turn, &fleet, gate).await;
            }
        }
        Ok(Gate::Start)
    }
}

impl SelectNodes {
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
    async fn find_lost<'a>(
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
                let control_plane = node_record::read_release(client).await?;
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

/// What the question is decided from.
struct Sight<'a> {
    fleet: &'a Fleet,
    earlier: &'a [InstanceId],
    /// What is known of them already.
    pasts: &'a [(&'a InstanceId, Past)],
    members: &'a Members,
    now: Timestamp,
}

fn count_failed(pasts: &[(&InstanceId, Past)]) -> usize {
    pasts.iter().filter(|(_, past)| *past == Past::Failed).count()
}

fn is_one_of(node: &NodeFacts, members: &[InstanceId]) -> bool {
    node.instance.as_ref().is_some_and(|id| members.contains(id))
}

/// The answer for a group of which nothing is recycled.
fn leave(ended: Ended) -> Answer<SelectVerdict> {
    Answer {
        ended: Some(ended.clone()),
        ..Answer::new(SelectVerdict::NothingSelected, ended.why)
    }
}

#[cfg(test)]
mod tests {
    use recycle::failure::{Failure, NamedFailure as _};
    use recycle::poll::spread;
    use scripted_aws::ScriptedAws;
    use serde_json::{Value, json};

    use super::*;

    const NODE: &str = "i-0aaaaaaaaaaaaaaaa";
    const ROTATION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:one";

    fn request(input: &Value, turn: &Value) -> SelectRequest {
        let mut asking = json!({"instance_id": NODE, "index": 0, "began_at": "2027-01-01T01:00:00Z", "waited": 0, "attempt": 1});
        asking
            .as_object_mut()
            .unwrap()
            .extend(turn.as_object().unwrap().clone());
        let mut rotation = json!({"trigger": "manual", "selection": {"outdated": {"all": true}}});
        rotation
            .as_object_mut()
            .unwrap()
            .extend(input.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "context": {
                "Execution": {"Id": ROTATION.replace(":one", "/group:one"), "Input": {}},
                "State": {"EnteredTime": "2027-01-01T01:00:00Z"},
            },
            "select": "may_start",
            "cluster_name": "world",
            "rotation": {"group": "workers", "execution": ROTATION, "began_at": "2027-01-01T00:00:00Z", "input": rotation},
            "members": {"nodes": [NODE], "at_once": 1, "aim": "x"},
            "turn": asking,
        }))
        .unwrap()
    }

    async fn ask(aws: &ScriptedAws, input: Value, turn: Value) -> Result<Answer<SelectVerdict>, Error> {
        SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5)
            .select(request(&input, &turn))
            .await
    }

    fn group(tag: &str) -> String {
        format!(
            "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize>\
            <MaxSize>5</MaxSize><DesiredCapacity>3</DesiredCapacity><Instances><member><InstanceId>{NODE}\
             </InstanceId><LifecycleState>InService</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member></Instances><Tags><member><Key>{tag}</Key>\
             <Value>true</Value></member></Tags></member></AutoScalingGroups>"
        )
    }

    fn execution(status: &str) -> String {
        json!({"executionArn": ROTATION, "stateMachineArn": "arn:m", "status": status, "startDate": 1.0})
            .to_string()
    }

    #[tokio::test]
    async fn what_the_input_says_needs_no_call_and_a_pause_only_the_group() {
        let nobody = ScriptedAws::new();
        let dry = ask(&nobody, json!({"dry_run": true}), json!({})).await.unwrap();
        assert_eq!(dry.verdict, SelectVerdict::Start);
        assert!(dry.start.unwrap().name.starts_with(&format!("manual-{NODE}-")));
        let late = ask(&nobody, json!({"start_no_new_node_after": "PT1H"}), json!({})).await;
        assert_eq!(late.unwrap().verdict, SelectVerdict::Stop);
        assert!(nobody.calls().is_empty());
        let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", &group("recycle-eks:paused"));
        let paused = ask(&aws, json!({}), json!({})).await.unwrap();
        // The shortest wait, spread by the instance.
        let seconds = 30 + spread(&NODE.parse().unwrap());
        assert_eq!(
            (paused.verdict, paused.wait_seconds),
            (SelectVerdict::Wait, seconds)
        );
        assert_eq!(aws.calls().len(), 1);
    }

    #[tokio::test]
    async fn without_the_cluster_nobody_knows_what_has_begun() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &group("team"))
            .refuses("DescribeCluster", 503, "ServiceUnavailableException", "away");
        let error = ask(&aws, json!({}), json!({})).await.unwrap_err();
        assert_eq!(error.failure(), Failure::ServiceUnavailable);
    }

    #[tokio::test]
    async fn a_name_that_is_taken_is_asked_about_and_the_next_one_used() {
        let taken = json!({"exists": true});
        for (statuses, expected) in [
            (&["SUCCEEDED"][..], SelectVerdict::Skip),
            (&["RUNNING"], SelectVerdict::Wait),
            (&["ABORTED"], SelectVerdict::Skip),
            (&["FAILED", "FAILED"], SelectVerdict::Skip),
        ] {
            let aws = statuses.iter().fold(ScriptedAws::new(), |aws, status| {
                aws.on("DescribeExecution", &execution(status))
            });
            let answer = ask(&aws, json!({"retries": 1}), taken.clone()).await.unwrap();
            assert_eq!(answer.verdict, expected, "{statuses:?}");
            assert!(
                aws.calls()[0].contains("recycle-eks-recycle-node:manual-i-"),
                "{:?}",
                aws.calls()
            );
            assert_eq!(aws.scenes_left(), 0, "{statuses:?}");
        }
        let aws = ScriptedAws::new()
            .on("DescribeExecution", &execution("FAILED"))
            .refuses("DescribeExecution", 400, "ExecutionDoesNotExist", "no")
            .on("DescribeAutoScalingGroups", "<AutoScalingGroups/>");
        let answer = ask(&aws, json!({"retries": 1}), taken).await.unwrap();
        // The group is gone: the next try does not come, and the last one failed.
        let ended = answer.ended.unwrap();
        assert_eq!(
            (answer.verdict, ended.end, ended.why.as_str()),
            (SelectVerdict::Stop, "failed", "FAILED")
        );
    }

    fn unreadable_group() -> ScriptedAws {
        let group = format!(
            "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize>\
            <MaxSize>5</MaxSize><DesiredCapacity>3</DesiredCapacity><LaunchTemplate><LaunchTemplateId>lt-1\
             </LaunchTemplateId><Version>$Latest</Version></LaunchTemplate><Instances><member><InstanceId>{NODE}</InstanceId>\
             <LifecycleState>InService</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn></member></Instances></member></AutoScalingGroups>"
        );
        ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &group)
            .refuses(
                "DescribeLaunchTemplateVersions",
                400,
                "InvalidLaunchTemplateId.NotFound",
                "no",
            )
    }

    #[tokio::test]
    async fn a_template_that_cannot_be_read_leaves_the_group_only_where_a_criterion_asks_for_it() {
        for (selection, is_left) in [
            (json!({"outdated": {"launch_template": true}}), true),
            (json!({"outdated": {"all": true, "ami": true}}), true),
            (json!({"outdated": {"all": true}}), false),
            (json!({"instance_ids": [NODE]}), false),
        ] {
            let mut asked = request(&json!({"selection": selection}), &json!({}));
            asked.select = recycle::contract::Selection::Group;
            let aws =
                unreadable_group().refuses("DescribeCluster", 503, "ServiceUnavailableException", "away");
            let answer = SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5)
                .select(asked)
                .await;
            if is_left {
                let answer = answer.unwrap();
                assert_eq!(answer.verdict, SelectVerdict::NothingSelected);
                let why = answer.ended.unwrap().why;
                assert!(
                    why.starts_with("the launch template of workers cannot be read: "),
                    "{why}"
                );
            } else {
                // It went on to the cluster.
                assert_eq!(
                    answer.unwrap_err().failure(),
                    Failure::ServiceUnavailable,
                    "{selection}"
                );
                assert_eq!(aws.scenes_left(), 0, "{selection}");
            }
        }
    }

    #[tokio::test]
    async fn a_node_that_is_gone_is_lost_if_its_first_try_ended_badly_in_any_way() {
        let case = read_case(&request(&json!({}), &json!({}))).unwrap();
        let gone: Vec<InstanceId> = (0..5)
            .map(|number| format!("i-{number:017x}").parse().unwrap())
            .collect();
        let fleet = Fleet {
            name: "workers".parse().unwrap(),
            tags: BTreeMap::new(),
            template: None,
            overrides: BTreeMap::new(),
            members: Vec::new(),
        };
        let listed: Vec<Value> = gone
            .iter()
            .zip(["FAILED", "TIMED_OUT", "ABORTED", "SUCCEEDED"])
            .map(|(node, status)| {
                let name = name_try(&case.part, case.rotation.trigger, node, 1);
                json!({"executionArn": "arn:e", "stateMachineArn": "arn:m", "name": name, "status": status, "startDate": 2_000_000_000})
            })
            .collect();
        let aws = ScriptedAws::new().on("ListExecutions", &json!({"executions": listed}).to_string());
        let step = SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5);
        let lost = step.find_lost(&case, &gone, &fleet).await.unwrap();
        assert_eq!(lost, gone.iter().take(3).collect::<Vec<_>>());
        assert!(
            aws.calls()[0].contains("stateMachine:recycle-eks-recycle-node"),
            "{:?}",
            aws.calls()
        );
        let nobody = ScriptedAws::new();
        let step = SelectNodes::new(&nobody.config(), &"world".parse().unwrap(), 5);
        assert!(step.find_lost(&case, &[], &fleet).await.unwrap().is_empty());
        assert!(nobody.calls().is_empty(), "where none is gone nobody is asked");
    }

    #[tokio::test]
    async fn what_the_state_machine_has_to_say_it_has_to_say() {
        let mut incomplete = request(&json!({}), &json!({}));
        incomplete.members = None;
        let aws = ScriptedAws::new();
        let error = SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5)
            .select(incomplete)
            .await
            .unwrap_err();
        assert_eq!(error.failure(), Failure::InternalError);
    }
}
