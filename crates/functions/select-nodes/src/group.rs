//! Selects the nodes of one group of a rotation, and returns the terms on which they are recycled.

use std::collections::BTreeSet;

use recycle::answer::envelope::{Answer, GroupBody, SelectBody};
use recycle::base::ids::{ExecutionArn, InstanceId};
use recycle::base::member_marks::mark_members;
use recycle::base::text::count;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::SelectRequest;
use recycle::contract::verdicts::SelectVerdict;
use recycle::rotation::admission::{Ended, Stop, find_execution, name_attempt};
use recycle::rotation::canary::{describe_newer, find_newer_members};
use recycle::rotation::fleet::Fleet;
use recycle::rotation::marks::{find_rotations, machine_of};
use recycle::rotation::outdated::{OutdatedFacts, Release, describe_launch_source, describe_undecided};
use recycle::rotation::passes::{MOST_LATER, PassSize};
use recycle::rotation::request::{Rotation, parse_rotation};
use recycle::rotation::selection::choose_members;
use recycle::rotation::terms::{Part, Terms};

use crate::rotation::list_members;
use crate::{Answered, Error, SelectNodes};

pub(crate) struct GroupRequest {
    pub(crate) part: Part,
    pub(crate) rotation: Rotation,
    pub(crate) terms: Terms,
}

pub(crate) fn read_group_request(request: &SelectRequest) -> Result<GroupRequest, Error> {
    let part = request.rotation.clone().ok_or(Error::NotAsked("rotation"))?;
    let rotation = parse_rotation(&part.input)?;
    Ok(GroupRequest {
        terms: rotation.terms.clone().ok_or(Error::NotAsked("terms"))?,
        rotation,
        part,
    })
}

impl GroupRequest {
    pub(crate) fn find_execution(&self, node: &InstanceId, attempt: u32) -> Result<ExecutionArn, Error> {
        Ok(find_execution(&self.part, self.rotation.trigger, node, attempt)?)
    }

    /// Returns the name of the execution that makes the first attempt at a node.
    pub(crate) fn name_first(&self, node: &InstanceId) -> String {
        name_attempt(&self.part, self.rotation.trigger, node, 1)
    }
}

impl SelectNodes {
    /// Selects the nodes of the group, in order, and the terms on which they are recycled.
    pub(crate) async fn select_group(&self, request: SelectRequest) -> Answered {
        let group_request = read_group_request(&request)?;
        let (part, selection, terms) = (
            &group_request.part,
            &group_request.rotation.selection,
            &group_request.terms,
        );
        let Some(fleet) = self.groups.fetch_fleet(&part.group).await? else {
            return Ok(answer_ended(Ended::left("the group is gone")));
        };
        // If no criterion needs the templates, they only show which image is launched, and may be unreadable.
        let (templates, unreadable) = self.fetch_readable(&[&fleet]).await?;
        if let Some(why) = unreadable.first().filter(|_| selection.asks_templates()) {
            return Ok(answer_ended(Ended::left(why)));
        }
        let client = self.connect(&request.cluster_name).await?;
        let (nodes, leases) = kubernetes::list_claimed_nodes(&client).await?;
        let control_plane = kubernetes::read_release(&client).await?;
        let ids = list_members(&[&fleet]);
        let machines = self.instances.fetch_machines(&ids).await?;
        let known = OutdatedFacts {
            machines: &machines,
            templates: &templates,
            nodes: &nodes.readable,
            leases: &leases,
            control_plane,
            now: request.context.now(),
        };
        let mut chosen = choose_members(selection, &fleet, &known, &part.execution);
        if part.earlier.passes > 0 {
            let failed = self.list_failed(&group_request).await?;
            chosen.leave_out_earlier(&machines, part.began_at, &failed, |node| {
                group_request.name_first(node)
            });
        }
        let claimed = chosen.claimed;
        let undecided = describe_undecided(&chosen.undecided, &nodes);
        if chosen.nodes.is_empty() {
            if let Some(why) = undecided {
                return Ok(answer_ended(Ended::stopping(Stop::NodeUnreadable, why)));
            }
            let why = format!("no node is left to recycle; executions already work on {claimed}");
            let is_done = part.earlier.passes > 0 && claimed == 0;
            let ended = if is_done {
                Ended::nothing_left(why)
            } else {
                Ended::left(why)
            };
            return Ok(answer_ended(ended));
        }
        if let Some(why) = self.find_newer(&fleet, &chosen.nodes, &known).await? {
            return Ok(answer_ended(Ended::stopping(Stop::KubeletTooNew, why)));
        }
        let (running, ended_rotations) = self.sort_rotations(part, &ids, &known).await?;
        if let Some(other) = running.filter(|_| !terms.dry_run) {
            return Ok(answer_ended(Ended::left(format!("{other} works on it"))));
        }
        let mut later = chosen.cut(PassSize::of(terms).nodes);
        let (later_nodes, undecided_nodes) = (later.len(), chosen.undecided.len());
        later.truncate(MOST_LATER);
        let mut reason = count(chosen.nodes.len(), "node");
        if claimed > 0 {
            reason = format!("{reason}; executions already work on {claimed} more");
        }
        if later_nodes > 0 {
            let next = if terms.dry_run {
                "a dry run leaves out"
            } else {
                "the next pass recycles"
            };
            reason = format!("{reason}; {next} {later_nodes} more");
        }
        for text in undecided.into_iter().chain(nodes.describe_unreadable()) {
            reason = format!("{reason}; {text}");
        }
        let verdict = if terms.dry_run {
            SelectVerdict::EachNode
        } else {
            SelectVerdict::MarkNodes
        };
        let recycle = group_request.rotation.fields();
        let at_once = terms.count_at_once(fleet.members.len(), self.most_at_once)?;
        let most_surging = fleet.surge_at_once(&recycle, &self.input_defaults);
        let group = GroupBody {
            nodes: chosen.nodes,
            criteria: terms.dry_run.then_some(chosen.criteria),
            at_once: most_surging.map_or(at_once, |most| most.min(at_once)),
            launch_source: describe_launch_source(&fleet, &templates),
            members_before: mark_members(&ids),
            mark: group_request.terms.mark,
            recycle,
            ended_rotations,
            // The next pass decides about these members again.
            more: later_nodes + undecided_nodes,
            later,
            error: (undecided_nodes > 0 && !terms.dry_run).then_some(Stop::NodeUnreadable),
        };
        Ok(Answer::new(verdict, reason).with(SelectBody::Group(Box::new(group))))
    }

    /// Finds a kubelet that is newer than the control plane: on the members that have what the group launches now, or in the image that
    /// it launches. The image counts only if its name shows the version.
    async fn find_newer(
        &self,
        fleet: &Fleet,
        selected: &[InstanceId],
        known: &OutdatedFacts<'_>,
    ) -> Result<Option<String>, Error> {
        let newer = find_newer_members(fleet, selected, known);
        if newer.is_some() {
            return Ok(newer);
        }
        let images = known.templates.values().filter_map(|facts| facts.image.as_ref());
        for image in images.collect::<BTreeSet<_>>() {
            let name = self.instances.fetch_image_name(image).await?.unwrap_or_default();
            let kubelet = Release::read_image(&name);
            let newer = describe_newer(&format!("{image} ({name})"), kubelet, known.control_plane);
            if newer.is_some() {
                return Ok(newer);
            }
        }
        Ok(None)
    }

    /// Finds another rotation that still runs and has marked nodes of the group, and the other rotations with marks that have ended.
    async fn sort_rotations(
        &self,
        part: &Part,
        members: &[InstanceId],
        known: &OutdatedFacts<'_>,
    ) -> Result<(Option<ExecutionArn>, BTreeSet<ExecutionArn>), Error> {
        let of_group = known.nodes.iter().filter(|node| is_one_of(node, members));
        let of_group: Vec<NodeFacts> = of_group.cloned().collect();
        let mut ended = BTreeSet::new();
        // Marks of another state machine keep no rotation from anything, because only its own account knows whether it runs.
        let is_other =
            |arn: &ExecutionArn| *arn != part.execution && machine_of(arn) == machine_of(&part.execution);
        let rotations = find_rotations(&of_group).into_iter();
        for (rotation, marks) in rotations.filter(|(arn, _)| is_other(arn)) {
            if self.executions.is_running(&rotation, &marks, known.now).await? {
                return Ok((Some(rotation), ended));
            }
            ended.insert(rotation);
        }
        Ok((None, ended))
    }
}

fn is_one_of(node: &NodeFacts, members: &[InstanceId]) -> bool {
    node.instance.as_ref().is_some_and(|id| members.contains(id))
}

/// Returns the answer for a group in which nothing is recycled.
fn answer_ended(ended: Ended) -> Answer<SelectVerdict> {
    Answer::new(SelectVerdict::NothingSelected, ended.why.clone()).with(SelectBody::Ended(ended))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use recycle::base::failure::{Failure, NamedFailure as _};
    use recycle::base::poll::spread;
    use scripted_aws::ScriptedAws;
    use serde_json::{Map, Value, json};

    use super::*;

    const NODE: &str = "i-0aaaaaaaaaaaaaaaa";
    const ROTATION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:one";

    fn request(input: &Value, waiting_node: &Value) -> SelectRequest {
        let mut asking = json!({"instance_id": NODE, "index": 0, "began_at": "2027-01-01T01:00:00Z", "waited": 0, "attempt": 1});
        asking
            .as_object_mut()
            .unwrap()
            .extend(waiting_node.as_object().unwrap().clone());
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
            "members": {"nodes": [NODE], "at_once": 1, "launch_source": "x", "members_before": ""},
            "waiting_node": asking,
        }))
        .unwrap()
    }

    async fn ask(
        aws: &ScriptedAws,
        input: Value,
        waiting_node: Value,
    ) -> Result<Answer<SelectVerdict>, Error> {
        SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5, Map::new())
            .handle(request(&input, &waiting_node))
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
    async fn a_decision_from_the_input_needs_no_call_and_a_pause_only_the_group() {
        let unused = ScriptedAws::new();
        let dry = ask(&unused, json!({"dry_run": true}), json!({})).await.unwrap();
        assert_eq!(dry.verdict, SelectVerdict::Start);
        let SelectBody::Start(start) = dry.body else {
            panic!("{dry:?}")
        };
        assert!(start.name.starts_with(&format!("manual-{NODE}-")));
        let late = ask(&unused, json!({"start_no_new_node_after": "1h"}), json!({})).await;
        assert_eq!(late.unwrap().verdict, SelectVerdict::Stop);
        assert!(unused.calls().is_empty());
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
    async fn a_node_behind_one_that_gave_up_is_left_for_the_next_pass() {
        const OTHER: &str = "i-0bbbbbbbbbbbbbbbb";
        let member = format!(
            "<member><InstanceId>{OTHER}</InstanceId><LifecycleState>InService</LifecycleState>\
             <ProtectedFromScaleIn>false</ProtectedFromScaleIn></member></Instances>"
        );
        let aws = ScriptedAws::new()
            .on(
                "DescribeAutoScalingGroups",
                &group("recycle-eks:paused").replace("</Instances>", &member),
            )
            .refuses("DescribeExecution", 400, "ExecutionDoesNotExist", "no");
        let mut asked = request(&json!({}), &json!({"instance_id": OTHER, "index": 41}));
        let gone = (0..40).map(|number| format!("i-{number:017x}"));
        let nodes = gone.chain([NODE.to_owned(), OTHER.to_owned()]);
        asked.members.as_mut().unwrap().nodes = nodes.map(|id| id.parse().unwrap()).collect();
        let function = SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5, Map::new());
        let answer = function.handle(asked).await.unwrap();
        let SelectBody::Ended(ended) = answer.body else {
            panic!("{answer:?}")
        };
        assert_eq!((answer.verdict, ended.end), (SelectVerdict::Skip, "next_pass"));
    }

    #[tokio::test]
    async fn an_outage_of_the_cluster_is_an_error() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &group("team"))
            .refuses("DescribeCluster", 503, "ServiceUnavailableException", "away");
        let error = ask(&aws, json!({}), json!({})).await.unwrap_err();
        assert_eq!(error.failure(), Failure::ServiceUnavailable);
    }

    #[tokio::test]
    async fn an_execution_name_that_exists_is_looked_up_and_the_next_one_used() {
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
            assert_eq!(aws.exchanges_left(), 0, "{statuses:?}");
        }
        let aws = ScriptedAws::new()
            .on("DescribeExecution", &execution("FAILED"))
            .refuses("DescribeExecution", 400, "ExecutionDoesNotExist", "no")
            .on("DescribeAutoScalingGroups", "<AutoScalingGroups/>");
        let answer = ask(&aws, json!({"retries": 1}), taken).await.unwrap();
        // The group is gone: there is no further attempt, and the last one failed.
        let SelectBody::Ended(ended) = answer.body else {
            panic!("{answer:?}")
        };
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
    async fn an_unreadable_template_ends_the_group_only_if_a_criterion_needs_it() {
        for (selection, is_left) in [
            (json!({"outdated": {"launch_template": true}}), true),
            (json!({"outdated": {"all": true, "ami": true}}), true),
            (json!({"outdated": {"all": true}}), false),
            (json!({"instance_ids": [NODE]}), false),
        ] {
            let mut asked = request(&json!({"selection": selection}), &json!({}));
            asked.select = recycle::contract::requests::Selection::Group;
            let aws =
                unreadable_group().refuses("DescribeCluster", 503, "ServiceUnavailableException", "away");
            let answer = SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5, Map::new())
                .handle(asked)
                .await;
            if is_left {
                let answer = answer.unwrap();
                assert_eq!(answer.verdict, SelectVerdict::NothingSelected);
                let SelectBody::Ended(Ended { why, .. }) = answer.body else {
                    panic!("{answer:?}")
                };
                assert!(
                    why.starts_with("the launch template of workers cannot be read: "),
                    "{why}"
                );
            } else {
                // The function has gone on to the cluster.
                assert_eq!(
                    answer.unwrap_err().failure(),
                    Failure::ServiceUnavailable,
                    "{selection}"
                );
                assert_eq!(aws.exchanges_left(), 0, "{selection}");
            }
        }
    }

    #[tokio::test]
    async fn a_node_that_is_gone_is_lost_if_its_first_attempt_did_not_succeed() {
        let group_request = read_group_request(&request(&json!({}), &json!({}))).unwrap();
        let gone: Vec<InstanceId> = (0..5)
            .map(|number| format!("i-{number:017x}").parse().unwrap())
            .collect();
        let fleet = Fleet {
            name: "workers".parse().unwrap(),
            tags: BTreeMap::new(),
            template: None,
            overrides: BTreeMap::new(),
            rebalances_capacity: false,
            room: 3,
            members: Vec::new(),
        };
        let listed: Vec<Value> = gone
            .iter()
            .zip(["FAILED", "TIMED_OUT", "ABORTED", "SUCCEEDED"])
            .map(|(node, status)| {
                let name = name_attempt(&group_request.part, group_request.rotation.trigger, node, 1);
                json!({"executionArn": "arn:e", "stateMachineArn": "arn:m", "name": name, "status": status, "startDate": 2_000_000_000})
            })
            .collect();
        let aws = ScriptedAws::new().on("ListExecutions", &json!({"executions": listed}).to_string());
        let step = SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5, Map::new());
        let lost = step.find_lost(&group_request, &gone, &fleet).await.unwrap();
        assert_eq!(lost, gone.iter().take(3).collect::<Vec<_>>());
        assert!(
            aws.calls()[0].contains("stateMachine:recycle-eks-recycle-node"),
            "{:?}",
            aws.calls()
        );
        let unused = ScriptedAws::new();
        let step = SelectNodes::new(&unused.config(), &"world".parse().unwrap(), 5, Map::new());
        assert!(
            step.find_lost(&group_request, &[], &fleet)
                .await
                .unwrap()
                .is_empty()
        );
        assert!(
            unused.calls().is_empty(),
            "without a node that is gone there is no call"
        );
    }

    #[tokio::test]
    async fn a_request_without_its_members_is_an_error() {
        let mut incomplete = request(&json!({}), &json!({}));
        incomplete.members = None;
        let aws = ScriptedAws::new();
        let error = SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5, Map::new())
            .handle(incomplete)
            .await
            .unwrap_err();
        assert_eq!(error.failure(), Failure::InternalError);
    }
}
