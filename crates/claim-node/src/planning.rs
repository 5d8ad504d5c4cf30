//! A dry run: what would be done, from what was read. Nothing is written.

use recycle::contract::{Answer, ClaimVerdict, describe_instance};
use recycle::input::Input;
use recycle::plan::write_plan;
use recycle::pods::survey_pods;

use crate::Error;
use crate::surroundings::Target;

impl Target {
    pub(crate) async fn plan(
        &self,
        input: &Input,
        notes: Vec<String>,
    ) -> Result<Answer<ClaimVerdict>, Error> {
        let pods = node_record::list_pods(&self.client, &self.node.name).await?;
        // Nobody has looked at a taint of this run yet: there is none.
        let tainted_since = node_record::tainted_since(&self.node, None)?;
        let survey = survey_pods(&pods, &input.awaited, input.evict, tainted_since);
        let subject = describe_instance(&self.instance.id, Some(&self.node.name));
        let reason = format!("{subject} can be recycled; nothing was touched");
        Ok(Answer {
            counts: survey.counts(),
            names: survey.names(),
            plan: Some(write_plan(input, &self.group, &self.node, &survey, notes)),
            ..Answer::new(ClaimVerdict::Planned, reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use recycle::contract::Cluster;
    use recycle::ids::InstanceId;
    use recycle::input::{Settings, parse_input};
    use recycle::names::RECORD_ANNOTATION;
    use recycle::node::{Group, Instance, NodeFacts};
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;

    fn id() -> InstanceId {
        "i-0123456789abcdef0".parse().unwrap()
    }

    fn target(kube: &ScriptedKube, node: NodeFacts) -> Target {
        Target {
            cluster: Cluster {
                name: "world".parse().unwrap(),
                endpoint: String::new(),
                certificate_authority: String::new(),
            },
            client: kube.client(),
            instance: Instance {
                id: id(),
                state: "running".to_owned(),
                private_dns_name: None,
                tags: BTreeMap::new(),
                is_spot: false,
            },
            group: Group {
                name: "workers".parse().unwrap(),
                min: 0,
                desired: 1,
                max: 2,
                members: Vec::new(),
                suspended: Vec::new(),
            },
            node,
        }
    }

    fn input() -> Input {
        let settings = Settings {
            cluster_name: "world".parse().unwrap(),
            defaults: serde_json::Map::new(),
        };
        parse_input(
            &json!({"instance_id": id(), "cluster_name": "world", "dry_run": true}),
            &settings,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn pods_count_that_came_since_an_earlier_run_took_its_taint_away() {
        let pod = json!({
            "metadata": {"name": "train", "namespace": "jobs", "creationTimestamp": "2027-01-01T05:50:00Z"},
            "spec": {"restartPolicy": "Never", "containers": []},
        });
        let node = json!({
            "metadata": {
                "name": "a",
                "resourceVersion": "7",
                "annotations": {RECORD_ANNOTATION: r#"{"schema": 1, "tainted_at": "2027-01-01T05:00:00Z"}"#},
            },
            "spec": {"providerID": format!("aws:///eu-west-1a/{}", id())},
        });
        let kube = ScriptedKube::new().on("GET", "/nodes/a", 200, node).on(
            "GET",
            "/pods?",
            200,
            json!({"metadata": {}, "items": [pod]}),
        );
        let name = "a".parse().unwrap();
        let node = node_record::get_node(&kube.client(), &name).await.unwrap();
        let answer = target(&kube, node.unwrap())
            .plan(&input(), Vec::new())
            .await
            .unwrap();
        assert_eq!(answer.verdict, ClaimVerdict::Planned);
        assert_eq!(answer.names["awaited"], ["jobs/train"], "{answer:?}");
        assert_eq!(kube.requests(), ["GET /api/v1/nodes/a", "GET /api/v1/pods"]);
    }
}
