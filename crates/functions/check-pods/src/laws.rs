//! Property tests: a node that a pod holds is not disposed of, and the phase of its claim changes only if the answers permit it.

use aws_config::SdkConfig;
use bad_input::{beyond, block_on, each_gap, each_gap_of_xml, few_cases, spoiled, spoiled_xml};
use proptest::prelude::*;
use recycle::base::failure::NamedFailure as _;
use scripted_aws::{ScriptedAws, one_group};
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use super::*;
use crate::tests::{awaited, claim, list, node, request};

const BEFORE: &str = "2027-01-01T00:00:00Z";

/// Returns a tainted node that is Ready, and that does not only wait yet.
fn whole_node() -> Value {
    let mut node = node(&[("recycle-eks/claim", &claim("draining"))]);
    node["spec"]["providerID"] = json!("aws:///eu-west-1a/i-0123456789abcdef0");
    node["status"] =
        json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": BEFORE}]});
    node
}

/// Returns a pod that holds the node, and one that has finished.
fn whole_pods() -> Value {
    let mut finished = tests::pod("finished", "web", BEFORE);
    finished["status"]["phase"] = json!("Succeeded");
    list(&[awaited(), finished])
}

fn whole_group() -> String {
    one_group("", &[("i-0123456789abcdef0", "Standby")])
}

fn config(group: &str) -> SdkConfig {
    let refreshes = "<InstanceRefreshes><member><Status>Successful</Status></member></InstanceRefreshes>";
    ScriptedAws::new()
        .on("DescribeAutoScalingGroups", group)
        .on("DescribeInstanceRefreshes", refreshes)
        .config()
}

/// Makes one check, and returns the verdict, if there is one, and what was written of the claim.
fn check_by(node: &Value, pods: &Value, group: &str) -> (Option<CheckVerdict>, Vec<String>) {
    let kube = ScriptedKube::new()
        .on("GET", "/nodes/a", 200, node.clone())
        .on("GET", "/pods?", 200, pods.clone())
        .on("PATCH", "/nodes/a", 200, whole_node())
        .on("PATCH", "/nodes/a", 200, whole_node());
    let checked = block_on(async {
        let StepRequest { context, mut run } = request("2027-01-01T07:00:00Z");
        let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id).await?;
        let aws = config(group);
        let outside = Outside::new(&aws, Access::new(&aws, &run.input.cluster_name), false);
        let group = read_group(&outside, &run).await;
        group.note_hook(&mut run);
        check(&kube.client(), node, &context, run, 1, &outside, &group).await
    });
    if let Err(error) = &checked {
        let _ = error.failure();
    }
    let claims = kube.calls().into_iter().filter_map(|call| {
        let claim = call.body["metadata"]["annotations"].get("recycle-eks/claim")?;
        Some(format!("{} {} {claim}", call.method, call.path))
    });
    (checked.ok().map(|answer| answer.verdict), claims.collect())
}

/// Checks whether the pod that holds the node is in the answer, created before the taint.
fn is_held(pods: &Value) -> bool {
    let mut pods = pods["items"].as_array().into_iter().flatten();
    pods.any(|pod| pod["metadata"]["uid"] == "train" && pod["metadata"]["creationTimestamp"] == BEFORE)
}

fn gives_up(verdict: Option<CheckVerdict>) -> bool {
    matches!(verdict, Some(CheckVerdict::Dispose | CheckVerdict::Lost))
}

#[test]
fn an_incomplete_answer_disposes_of_no_node_and_changes_no_phase() {
    let (node, pods, group) = (whole_node(), whole_pods(), whole_group());
    let (verdict, whole) = check_by(&node, &pods, &group);
    assert_eq!((verdict, whole.len()), (Some(CheckVerdict::Wait), 1), "{whole:?}");
    let nodes = each_gap(&node)
        .into_iter()
        .map(|(_, gap)| (gap, pods.clone(), group.clone()));
    let lists = each_gap(&pods)
        .into_iter()
        .map(|(_, gap)| (node.clone(), gap, group.clone()));
    let groups = each_gap_of_xml(&group)
        .into_iter()
        .map(|(_, gap)| (node.clone(), pods.clone(), gap));
    for (node, pods, group) in nodes.chain(lists).chain(groups) {
        let (verdict, claims) = check_by(&node, &pods, &group);
        let more = beyond(claims, &whole);
        assert!(more.is_empty(), "{node} {pods} {group}: {more:?}");
        assert!(
            !is_held(&pods) || !gives_up(verdict),
            "{node} {pods} {group}: {verdict:?}"
        );
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn an_existing_pod_holds_the_node(pods in spoiled(vec![whole_pods()]), group in spoiled_xml(&whole_group())) {
        let (verdict, _) = check_by(&whole_node(), &pods, &group);
        prop_assert!(!is_held(&pods) || !gives_up(verdict), "{} {}: {:?}", pods, group, verdict);
    }

    #[test]
    fn only_the_phase_of_the_own_claim_changes(node in spoiled(vec![whole_node()])) {
        let (_, claims) = check_by(&node, &whole_pods(), &whole_group());
        let answered = node["metadata"]["annotations"]["recycle-eks/claim"].as_str().unwrap_or_default();
        let is_own = answered.contains("execution:recycle-node:one#0");
        prop_assert!(claims.is_empty() || is_own, "{}: {:?}", node, claims);
    }
}
