//! What a rotation asks for: fetches what the choice is made from.

use std::collections::BTreeMap;

use recycle::contract::{Answer, SelectRequest, SelectVerdict};
use recycle::ids::InstanceId;
use recycle::names::GROUP_TAG;
use recycle::select::{
    Alarmed, Choice, Fleet, Machine, Rotation, Selection, Template, TemplateFacts, choose_alarmed,
    choose_listed, choose_outdated, find_fleets, fleet_of, parse_rotation, read_alarm,
};

use crate::{Error, SelectNodes};

impl SelectNodes {
    pub(crate) async fn select_rotation(
        &self,
        request: SelectRequest,
    ) -> Result<Answer<SelectVerdict>, Error> {
        let rotation = parse_rotation(&request.context.execution.input)?;
        let choice = self.choose(&rotation, &request).await?;
        if choice.chosen.is_empty() {
            return Ok(Answer::new(SelectVerdict::NothingSelected, choice.describe()));
        }
        let execution = request.context.execution.id.as_str();
        let starts = choice.chosen.iter().map(|id| rotation.start(id, execution));
        Ok(Answer {
            starts: Some(starts.collect()),
            recycle: Some(rotation.fields()),
            ..Answer::new(SelectVerdict::EachNode, choice.describe())
        })
    }

    async fn choose(&self, rotation: &Rotation, request: &SelectRequest) -> Result<Choice, Error> {
        let cluster = &request.cluster_name;
        let fleets = self.groups.fetch_fleets(cluster).await?;
        match &rotation.selection {
            Selection::InstanceIds(ids) => {
                let machines = self.instances.fetch_machines(ids).await?;
                Ok(choose_listed(rotation.trigger, ids, &machines, &fleets, cluster))
            }
            Selection::Alarm(terms) => {
                let alarmed = read_alarm(&rotation.event, terms)?;
                let (machines, nodes) = (
                    self.fetch_around(&alarmed, &fleets).await?,
                    self.list_nodes(cluster).await?,
                );
                let now = request.context.now();
                Ok(choose_alarmed(
                    &alarmed, terms, &fleets, &machines, &nodes, cluster, now,
                ))
            }
            Selection::Outdated(outdated) => {
                let wanted = find_fleets(outdated, &fleets, cluster)?;
                let machines = self.instances.fetch_machines(&members(&wanted)).await?;
                let templates = self.fetch_templates(&wanted).await?;
                let now = request.context.now();
                Ok(choose_outdated(outdated, &wanted, &machines, &templates, now))
            }
        }
    }

    /// The members of the group that the alarm is about, whoever was claimed in it, and the instance itself, whose it may be.
    async fn fetch_around(&self, alarmed: &Alarmed, fleets: &[Fleet]) -> Result<Vec<Machine>, Error> {
        let (fleet, itself) = match alarmed {
            Alarmed::Instance(id) => (fleet_of(id, fleets), Some(id.clone())),
            Alarmed::OldestOf(group) => (fleets.iter().find(|fleet| fleet.name == *group), None),
        };
        let mut ids: Vec<InstanceId> = fleet.into_iter().flat_map(|fleet| members(&[fleet])).collect();
        ids.extend(itself.filter(|id| fleet_of(id, fleets).is_none()));
        let mut machines = self.instances.fetch_machines(&ids).await?;
        if let Some(fleet) = fleet {
            let claimed = self
                .instances
                .fetch_tagged_machines(GROUP_TAG, fleet.name.as_str());
            machines.extend(claimed.await?);
        }
        Ok(machines)
    }

    async fn fetch_templates(&self, fleets: &[&Fleet]) -> Result<BTreeMap<Template, TemplateFacts>, Error> {
        let mut templates = BTreeMap::new();
        let named = fleets
            .iter()
            .flat_map(|fleet| fleet.template.iter().chain(fleet.overrides.values()));
        for template in named {
            if !templates.contains_key(template) {
                templates.insert(template.clone(), self.instances.fetch_template(template).await?);
            }
        }
        Ok(templates)
    }
}

fn members(fleets: &[&Fleet]) -> Vec<InstanceId> {
    let members = fleets.iter().flat_map(|fleet| &fleet.members);
    members.map(|member| member.instance.clone()).collect()
}

#[cfg(test)]
mod tests {
    use recycle::failure::{Failure, NamedFailure as _};
    use scripted_aws::ScriptedAws;
    use serde_json::{Value, json};

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
        SelectNodes::new(&aws.config())
    }

    /// A group whose template is at version 2, with members of version 1.
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
                    "<member><InstanceId>{id}</InstanceId><LifecycleState>InService</LifecycleState>\
                     <InstanceType>m7i.large</InstanceType>{}</member>",
                    version("1")
                )
            })
            .collect();
        format!(
            "<member><AutoScalingGroupName>{name}</AutoScalingGroupName>{}<Instances>{members}</Instances></member>",
            version("$Latest")
        )
    }

    fn groups(groups: &[String]) -> String {
        format!("<AutoScalingGroups>{}</AutoScalingGroups>", groups.concat())
    }

    /// Running instances, each with the day in January on which it was launched.
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
        let starts = answer.starts.iter().flatten();
        starts.map(|start| start.instance_id.as_str()).collect()
    }

    #[tokio::test]
    async fn a_rotation_that_makes_no_sense_asks_for_nothing() {
        let aws = ScriptedAws::new();
        let error = step(&aws)
            .select_rotation(request(&json!({"trigger": "manual", "selection": {}})))
            .await
            .unwrap_err();
        assert_eq!(error.failure(), Failure::InvalidInput);
        assert!(aws.calls().is_empty());
    }

    #[tokio::test]
    async fn listed_instances_are_looked_up_and_those_of_others_left_out() {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", &groups(&[group("workers", &[OLD])]))
            .on("DescribeInstances", &instances(&[(OLD, 1), (OTHER, 1)]));
        let input = json!({
            "trigger": "event", "selection": {"instance_ids": [OLD, OTHER]}, "recycle": {"evict": "none"}, "event": {"id": "e"},
        });
        let answer = step(&aws).select_rotation(request(&input)).await.unwrap();
        assert_eq!(started(&answer), [OLD]);
        assert_eq!(answer.recycle.unwrap()["evict"], "none");
        assert!(
            answer
                .reason
                .contains(&format!("{OTHER} is no instance of cluster world")),
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
    async fn of_outdated_members_only_the_wanted_groups_are_asked_for_and_a_template_once() {
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
        assert_eq!(started(&answer), [OLD, NEW]);
        assert!(!aws.calls()[1].contains(OTHER), "{:?}", aws.calls());
        assert_eq!(aws.scenes_left(), 0);
    }

    #[tokio::test]
    async fn nothing_that_is_outdated_is_nothing_selected() {
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
        let selection = json!({"outdated": {"ami": true, "older_than_hours": 48}});
        let answer = step(&aws)
            .select_rotation(request(&json!({"trigger": "schedule", "selection": selection})))
            .await
            .unwrap();
        assert_eq!(answer.verdict, SelectVerdict::NothingSelected);
        assert!(answer.starts.is_none());
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
    async fn an_alarm_asks_for_the_members_of_its_group_and_whoever_was_claimed_in_it() {
        for (dimension, value) in [("AutoScalingGroupName", "workers"), ("InstanceId", OLD)] {
            let aws = ScriptedAws::new()
                .on(
                    "DescribeAutoScalingGroups",
                    &groups(&[group("workers", &[OLD, NEW])]),
                )
                .on("DescribeInstances", &instances(&[(OLD, 1), (NEW, 2)]))
                .on("DescribeInstances", &instances(&[(OTHER, 1)]))
                .refuses("DescribeCluster", 503, "ServiceUnavailableException", "away");
            let error = step(&aws)
                .select_rotation(request(&alarm(dimension, value)))
                .await
                .unwrap_err();
            // Without the Nodes nobody knows when the group had its turn.
            assert_eq!(error.failure(), Failure::ServiceUnavailable, "{dimension}");
            let calls = aws.calls();
            assert!(calls[1].contains(OLD) && calls[1].contains(NEW), "{calls:?}");
            assert!(
                calls[2].contains("recycle-eks%3Agroup") && calls[2].contains("workers"),
                "{calls:?}"
            );
            assert_eq!(aws.scenes_left(), 0, "{dimension}");
        }
    }

    #[tokio::test]
    async fn an_alarm_of_an_instance_without_a_group_asks_for_that_one() {
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
