//! Selects the nodes or the groups of a rotation, from the facts that its selection needs.

use std::collections::BTreeMap;

use recycle::answer::envelope::{Answer, SelectBody};
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::InstanceId;
use recycle::cluster::node::NodeList;
use recycle::contract::requests::SelectRequest;
use recycle::contract::verdicts::SelectVerdict;
use recycle::rotation::alarm::{AlarmFacts, Alarmed, choose_alarmed, read_alarm};
use recycle::rotation::fleet::{Fleet, Machine, Template, TemplateFacts, fleet_of};
use recycle::rotation::outdated::{OutdatedFacts, choose_groups, describe_undecided, find_fleets};
use recycle::rotation::request::{Rotation, Selection, parse_rotation};
use recycle::rotation::selection::{Choice, choose_listed, choose_members};
use recycle::rotation::terms::Terms;

use crate::{Answered, Error, SelectNodes};

impl SelectNodes {
    pub(crate) async fn select_rotation(&self, request: SelectRequest) -> Answered {
        let rotation = parse_rotation(&request.context.execution.input)?;
        match &rotation.terms {
            Some(terms) => self.select_groups(&rotation, terms, &request).await,
            None => self.select_urgent(&rotation, &request).await,
        }
    }

    /// Selects the nodes that are started at once.
    async fn select_urgent(&self, rotation: &Rotation, request: &SelectRequest) -> Answered {
        let choice = self.choose(rotation, request).await?;
        if choice.chosen.is_empty() {
            return Ok(Answer::new(SelectVerdict::NothingSelected, choice.describe()));
        }
        let execution = request.context.execution.id.as_str();
        let starts = choice.chosen.iter().map(|id| rotation.start(id, execution));
        let body = SelectBody::Starts {
            starts: starts.collect(),
            recycle: rotation.fields(),
        };
        Ok(Answer::new(SelectVerdict::EachNode, choice.describe()).with(body))
    }

    /// Selects the groups that have nodes to recycle. Each group's own execution selects its nodes when it begins.
    async fn select_groups(&self, rotation: &Rotation, terms: &Terms, request: &SelectRequest) -> Answered {
        let cluster = &request.cluster_name;
        let fleets = self.groups.fetch_fleets(cluster).await?;
        let wanted = match &rotation.selection {
            Selection::Outdated(outdated) => find_fleets(outdated, &fleets, cluster)?,
            Selection::InstanceIds(_) | Selection::Alarm(_) => fleets.iter().collect(),
        };
        terms.count_at_once(0, self.most_at_once)?;
        let machines = self.instances.fetch_machines(&list_members(&wanted)).await?;
        let asked = if rotation.selection.asks_templates() {
            &wanted[..]
        } else {
            &[]
        };
        let (templates, mut unknown) = self.fetch_readable(asked).await?;
        if let Selection::InstanceIds(ids) = &rotation.selection {
            let outside = ids.iter().filter(|id| fleet_of(id, &fleets).is_none());
            unknown.extend(outside.map(|id| format!("{id} is in no group of cluster {cluster}")));
        }
        let (nodes, leases, control_plane) = if rotation.selection.asks_nodes() {
            let client = self.connect(cluster).await?;
            let release = kubernetes::read_release(&client).await?;
            let (nodes, leases) = kubernetes::list_claimed_nodes(&client).await?;
            (nodes, leases, release)
        } else {
            // The selection of each group's nodes reads the claims.
            (NodeList::default(), Vec::new(), None)
        };
        unknown.extend(nodes.describe_unreadable());
        let known = OutdatedFacts {
            machines: &machines,
            templates: &templates,
            nodes: &nodes.readable,
            leases: &leases,
            control_plane,
            now: request.context.now(),
        };
        let execution = &request.context.execution.id;
        let choose = |fleet: &&Fleet| choose_members(&rotation.selection, fleet, &known, execution);
        let found = wanted.iter().map(|fleet| (fleet.name.clone(), choose(fleet)));
        let found: Vec<_> = found.collect();
        let undecided: Vec<InstanceId> = found
            .iter()
            .flat_map(|(_, chosen)| chosen.undecided.clone())
            .collect();
        unknown.extend(describe_undecided(&undecided, &nodes));
        let choice = choose_groups(found, &unknown);
        if choice.groups.is_empty() {
            return Ok(Answer::new(SelectVerdict::NothingSelected, choice.reason));
        }
        Ok(Answer::new(SelectVerdict::EachGroup, choice.reason).with(SelectBody::Groups(choice.groups)))
    }

    async fn choose(&self, rotation: &Rotation, request: &SelectRequest) -> Result<Choice, Error> {
        let cluster = &request.cluster_name;
        let fleets = self.groups.fetch_fleets(cluster).await?;
        Ok(match &rotation.selection {
            Selection::InstanceIds(ids) => {
                let machines = self.instances.fetch_machines(ids).await?;
                choose_listed(rotation.trigger, ids, &machines, &fleets, cluster)
            }
            Selection::Alarm(terms) => {
                let alarmed = read_alarm(&rotation.event, terms)?;
                let machines = self.fetch_around(&alarmed, &fleets).await?;
                let (nodes, leases) = self.list_claimed_nodes(cluster).await?;
                let (nodes, now) = (nodes.readable, request.context.now());
                let facts = AlarmFacts {
                    fleets: &fleets,
                    machines: &machines,
                    nodes: &nodes,
                    leases: &leases,
                };
                choose_alarmed(&alarmed, terms, &facts, cluster, now)
            }
            // Only a rotation with terms has such a selection, and that selects groups.
            Selection::Outdated(_) => Choice::default(),
        })
    }

    /// Fetches the members of the group of the alarm. If the alarm's instance is in no group, fetches that instance alone.
    async fn fetch_around(&self, alarmed: &Alarmed, fleets: &[Fleet]) -> Result<Vec<Machine>, Error> {
        let (fleet, itself) = match alarmed {
            Alarmed::Instance(id) => (fleet_of(id, fleets), std::slice::from_ref(id)),
            Alarmed::OldestOf(group) => (fleets.iter().find(|fleet| fleet.name == *group), &[][..]),
        };
        let Some(fleet) = fleet else {
            return Ok(self.instances.fetch_machines(itself).await?);
        };
        Ok(self.instances.fetch_machines(&list_members(&[fleet])).await?)
    }

    /// Fetches the launch templates of the groups, and returns the groups whose template cannot be read.
    /// A deleted template does not affect the other groups. An outage of AWS is an error.
    pub(crate) async fn fetch_readable(
        &self,
        fleets: &[&Fleet],
    ) -> Result<(BTreeMap<Template, TemplateFacts>, Vec<String>), Error> {
        let (mut templates, mut unknown) = (BTreeMap::new(), Vec::new());
        for fleet in fleets.iter().filter(|fleet| !fleet.members.is_empty()) {
            match self.add_templates(&mut templates, fleet).await {
                Ok(()) => {}
                Err(error) if error.failure() == Failure::ServiceUnavailable => return Err(error),
                Err(error) => unknown.push(format!(
                    "the launch template of {} cannot be read: {}",
                    fleet.name,
                    with_causes(&error)
                )),
            }
        }
        Ok((templates, unknown))
    }

    async fn add_templates(
        &self,
        templates: &mut BTreeMap<Template, TemplateFacts>,
        fleet: &Fleet,
    ) -> Result<(), Error> {
        for template in fleet.template.iter().chain(fleet.overrides.values()) {
            if !templates.contains_key(template) {
                templates.insert(template.clone(), self.instances.fetch_template(template).await?);
            }
        }
        Ok(())
    }
}

pub(crate) fn list_members(fleets: &[&Fleet]) -> Vec<InstanceId> {
    let members = fleets.iter().flat_map(|fleet| &fleet.members);
    members.map(|member| member.instance.clone()).collect()
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;
    use serde_json::{Map, Value, json};

    use super::*;

    const OLD: &str = "i-0aaaaaaaaaaaaaaaa";
    const NEW: &str = "i-0bbbbbbbbbbbbbbbb";
    const OTHER: &str = "i-0cccccccccccccccc";
    const EXECUTION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:one";

    fn request(input: &Value) -> SelectRequest {
        serde_json::from_value(json!({
            "context": {
                "Execution": {"Id": EXECUTION, "Input": input},
                "State": {"EnteredTime": "2027-01-10T00:00:00Z"},
            },
            "select": "rotation",
            "cluster_name": "world",
        }))
        .unwrap()
    }

    fn step(aws: &ScriptedAws) -> SelectNodes {
        SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5, Map::new())
    }

    /// Returns a group whose template is at version 2, with members of version 1.
    fn group(name: &str, members: &[&str]) -> String {
        let version = |number: &str| {
            format!(
                "<LaunchTemplate><LaunchTemplateId>lt-1</LaunchTemplateId><Version>{number}</Version></LaunchTemplate>"
            )
        };
        let members: String = members
            .iter()
            .map(|id| {
                format!(
                    "<member><InstanceId>{id}</InstanceId><LifecycleState>InService</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn>\
                     <InstanceType>m7i.large</InstanceType>{}</member>",
                    version("1")
                )
            })
            .collect();
        format!(
            "<member><AutoScalingGroupName>{name}</AutoScalingGroupName><MinSize>1</MinSize><MaxSize>5</MaxSize>\
                     <DesiredCapacity>3</DesiredCapacity>{}<Instances>{members}</Instances></member>",
            version("$Latest")
        )
    }

    fn groups(groups: &[String]) -> String {
        format!("<AutoScalingGroups>{}</AutoScalingGroups>", groups.concat())
    }

    /// Returns running instances, each with the day in January on which it was launched.
    fn instances(launched: &[(&str, u32)]) -> String {
        let items: String = launched
            .iter()
            .map(|(id, day)| {
                format!(
                    "<item><instanceId>{id}</instanceId><instanceState><name>running</name></instanceState>\
                     <imageId>ami-1</imageId><launchTime>2027-01-{day:02}T00:00:00.000Z</launchTime></item>"
                )
            })
            .collect();
        format!("<reservationSet><item><instancesSet>{items}</instancesSet></item></reservationSet>")
    }

    fn started(answer: &Answer<SelectVerdict>) -> Vec<&str> {
        let SelectBody::Starts { starts, .. } = &answer.body else {
            panic!("{answer:?}")
        };
        starts.iter().map(|start| start.instance_id.as_str()).collect()
    }

    #[tokio::test]
    async fn an_invalid_rotation_makes_no_call() {
        let aws = ScriptedAws::new();
        let error = step(&aws)
            .select_rotation(request(&json!({"trigger": "manual", "selection": {}})))
            .await
            .unwrap_err();
        assert_eq!(error.failure(), Failure::InvalidInput);
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn listed_instances_are_looked_up_and_those_of_other_clusters_left_out() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &groups(&[group("workers", &[OLD])]))
            .on("DescribeInstances", &instances(&[(OLD, 1), (OTHER, 1)]));
        let input = json!({
            "trigger": "event", "selection": {"instance_ids": [OLD, OTHER]}, "recycle": {"evict": "none"}, "event": {"id": "e"},
        });
        let answer = step(&aws).select_rotation(request(&input)).await.unwrap();
        assert_eq!(started(&answer), [OLD]);
        assert_eq!(json!(answer)["recycle"]["evict"], "none");
        assert!(
            answer
                .reason
                .contains(&format!("{OTHER} is not an instance of cluster world")),
            "{}",
            answer.reason
        );
        assert!(
            aws.calls()[0].contains("kubernetes.io%2Fcluster%2Fworld"),
            "{:?}",
            aws.calls()
        );
        assert!(
            aws.calls()[1].contains(OLD) && aws.calls()[1].contains(OTHER),
            "{:?}",
            aws.calls()
        );
    }

    #[tokio::test]
    async fn only_the_selected_groups_are_read_and_each_template_once() {
        let template = "<launchTemplateVersionSet><item><versionNumber>2</versionNumber><launchTemplateData>\
            <imageId>ami-1</imageId></launchTemplateData></item></launchTemplateVersionSet>";
        let aws = ScriptedAws::new()
            .on(
                "DescribeAutoScalingGroups",
                &groups(&[group("a", &[NEW]), group("b", &[OLD]), group("others", &[OTHER])]),
            )
            .on("DescribeInstances", &instances(&[(NEW, 2), (OLD, 1)]))
            .on("DescribeLaunchTemplateVersions", template);
        let selection = json!({"outdated": {"groups": ["a", "b"], "launch_template": true}});
        let answer = step(&aws)
            .select_rotation(request(&json!({"trigger": "schedule", "selection": selection})))
            .await
            .unwrap();
        assert_eq!(json!(answer)["groups"], json!(["a", "b"]));
        assert!(!aws.calls()[1].contains(OTHER), "{:?}", aws.calls());
        assert_eq!(aws.exchanges_left(), 0);
    }

    #[tokio::test]
    async fn a_group_without_outdated_nodes_selects_nothing() {
        let aws = ScriptedAws::new()
            .on(
                "DescribeAutoScalingGroups",
                &groups(&[group("workers", &[OLD])]),
            )
            .on("DescribeInstances", &instances(&[(OLD, 9)]))
            .on(
                "DescribeLaunchTemplateVersions",
                "<launchTemplateVersionSet><item><versionNumber>1</versionNumber></item></launchTemplateVersionSet>",
            );
        let selection = json!({"outdated": {"ami": true, "older_than": "2d"}});
        let answer = step(&aws)
            .select_rotation(request(&json!({"trigger": "schedule", "selection": selection})))
            .await
            .unwrap();
        assert_eq!(answer.verdict, SelectVerdict::NothingSelected);
        assert_eq!(answer.body, SelectBody::Nothing);
    }

    #[tokio::test]
    async fn an_unreadable_template_does_not_affect_the_other_groups() {
        let template = "<launchTemplateVersionSet><item><versionNumber>2</versionNumber></item></launchTemplateVersionSet>";
        let other = group("b", &[OLD]).replace("lt-1", "lt-2");
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &groups(&[group("a", &[NEW]), other]))
            .on("DescribeInstances", &instances(&[(NEW, 2), (OLD, 1)]))
            .refuses(
                "DescribeLaunchTemplateVersions",
                400,
                "InvalidLaunchTemplateId.NotFound",
                "no",
            )
            .on("DescribeLaunchTemplateVersions", template);
        let selection = json!({"outdated": {"launch_template": true}});
        let input = json!({"trigger": "manual", "selection": selection});
        let answer = step(&aws).select_rotation(request(&input)).await.unwrap();
        assert_eq!(json!(answer)["groups"], json!(["b"]));
        assert!(
            answer.reason.contains("the launch template of a cannot be read"),
            "{}",
            answer.reason
        );
    }

    #[tokio::test]
    async fn listed_instances_need_no_template_and_those_without_a_group_are_named() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &groups(&[group("a", &[OLD])]))
            .on("DescribeInstances", &instances(&[(OLD, 1)]));
        let input = json!({"trigger": "manual", "selection": {"instance_ids": [OLD, OTHER]}});
        let answer = step(&aws).select_rotation(request(&input)).await.unwrap();
        assert_eq!(json!(answer)["groups"], json!(["a"]));
        let expected = format!("{OTHER} is in no group of cluster world");
        assert!(answer.reason.ends_with(&expected), "{}", answer.reason);
    }

    fn alarm(dimension: &str, value: &str) -> Value {
        let metrics = json!([{"metricStat": {"metric": {"dimensions": {dimension: value}}}}]);
        json!({
            "trigger": "alarm",
            "selection": {"alarm": {"pick": "oldest"}},
            "event": {"detail": {"configuration": {"metrics": metrics}}},
        })
    }

    #[tokio::test]
    async fn an_alarm_reads_the_members_of_its_group_and_the_claims() {
        for (dimension, value) in [("AutoScalingGroupName", "workers"), ("InstanceId", OLD)] {
            let aws = ScriptedAws::new()
                .on(
                    "DescribeAutoScalingGroups",
                    &groups(&[group("workers", &[OLD, NEW])]),
                )
                .on("DescribeInstances", &instances(&[(OLD, 1), (NEW, 2)]))
                .refuses("DescribeCluster", 503, "ServiceUnavailableException", "away");
            let error = step(&aws)
                .select_rotation(request(&alarm(dimension, value)))
                .await
                .unwrap_err();
            // Without the claims the time of the last admission in the group is unknown.
            assert_eq!(error.failure(), Failure::ServiceUnavailable, "{dimension}");
            let calls = aws.calls();
            assert!(calls[1].contains(OLD) && calls[1].contains(NEW), "{calls:?}");
            assert_eq!(aws.exchanges_left(), 0, "{dimension}");
        }
    }

    #[tokio::test]
    async fn an_alarm_of_an_instance_without_a_group_reads_that_instance() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &groups(&[group("workers", &[OLD])]))
            .on("DescribeInstances", &instances(&[(OTHER, 1)]))
            .refuses("DescribeCluster", 503, "ServiceUnavailableException", "away");
        let input = alarm("InstanceId", OTHER);
        assert!(step(&aws).select_rotation(request(&input)).await.is_err());
        assert!(
            aws.calls()[1].contains(OTHER) && !aws.calls()[1].contains(OLD),
            "{:?}",
            aws.calls()
        );
    }
}
