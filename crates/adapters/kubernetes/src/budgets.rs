//! Lists disruption budgets, for a plan.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use recycle::base::selector::{Expression, Selector};
use recycle::base::strict::read_value;
use recycle::drain::budgets::Budget;
use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use crate::call::{self, Call};
use crate::object::{Gap, Item, Metadata, Objects, given};

#[derive(Debug, Deserialize)]
struct Read {
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    selector: Option<LabelSelector>,
    unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LabelSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    disruptions_allowed: i64,
    current_healthy: i64,
    desired_healthy: i64,
}

/// A budget of a list. None if it cannot be read: a plan does without it, and the API server decides in any case.
struct Listed(Option<Budget>);

impl Item for Listed {
    fn read(object: &Value) -> Self {
        Self(read_budget(object).ok())
    }
}

pub async fn list_budgets(client: &kube::Client) -> Result<Vec<Budget>, Error> {
    let budgets = Objects::of::<PodDisruptionBudget>(client, None);
    let call = Call::new("list", "poddisruptionbudgets", "of the cluster");
    let listed: Vec<Listed> = call::list(&budgets, ListParams::default(), call).await?;
    Ok(listed.into_iter().filter_map(|Listed(budget)| budget).collect())
}

fn read_budget(object: &Value) -> Result<Budget, Gap> {
    let Read {
        metadata,
        spec,
        status,
    } = read_value(object)?;
    // The default policy lets an unhealthy pod go if the others are healthy enough (Kubernetes, "Specifying a Disruption Budget").
    let allows_unhealthy = spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow")
        || (status.current_healthy >= status.desired_healthy && status.desired_healthy > 0);
    Ok(Budget {
        namespace: given("metadata.namespace", metadata.namespace)?,
        name: given("metadata.name", metadata.name)?,
        selector: spec.selector.as_ref().and_then(to_selector),
        allows: status.disruptions_allowed > 0,
        allows_unhealthy,
    })
}

/// Writes a selector in the syntax of kubectl, and parses that. An empty selector selects every pod.
fn to_selector(selector: &LabelSelector) -> Option<Selector> {
    let labels = selector.match_labels.iter();
    let labels = labels.map(|(key, value)| Some(format!("{key} in ({value})")));
    let expressions = selector.match_expressions.iter().map(Expression::write);
    let text = labels.chain(expressions).collect::<Option<Vec<_>>>()?.join(",");
    if text.is_empty() { "*" } else { &text }.parse().ok()
}

#[cfg(test)]
mod tests {
    use recycle::base::selector::Selector;
    use scripted_kube::ScriptedKube;
    use serde_json::json;

    use super::*;

    fn budget(spec: Value, status: Value) -> Value {
        json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec, "status": status})
    }

    #[tokio::test]
    async fn budgets_are_listed_and_those_that_cannot_be_read_are_left_out() {
        let selector = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "stage", "operator": "NotIn", "values": ["test"]},
                {"key": "x", "operator": "Exists"},
                {"key": "y", "operator": "DoesNotExist"},
            ],
        });
        let full = json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2});
        let items = [
            budget(json!({ "selector": selector }), full.clone()),
            budget(
                json!({"selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
                full,
            ),
            budget(
                json!({"selector": {}}),
                json!({"currentHealthy": 2, "desiredHealthy": 2}),
            ),
            budget(json!({}), json!({"disruptionsAllowed": 1})),
            json!({"metadata": {"name": "no-namespace"}, "spec": {}}),
        ];
        let kube = ScriptedKube::new().on(
            "GET",
            "/poddisruptionbudgets?",
            200,
            json!({"metadata": {}, "items": items}),
        );
        let read: Vec<(Option<Selector>, bool, bool)> = list_budgets(&kube.client())
            .await
            .unwrap()
            .into_iter()
            .map(|budget| (budget.selector, budget.allows, budget.allows_unhealthy))
            .collect();
        let all = || Some("*".parse().unwrap());
        let first = Some(
            "app in (web),tier in (a,b),stage notin (test),x,!y"
                .parse()
                .unwrap(),
        );
        assert_eq!(
            read,
            [
                (first, false, false),
                (all(), false, true),
                (all(), false, true),
                (None, true, false),
            ]
        );
        assert_eq!(kube.requests(), ["GET /apis/policy/v1/poddisruptionbudgets"]);
    }
}
