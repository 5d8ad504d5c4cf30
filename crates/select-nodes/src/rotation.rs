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
