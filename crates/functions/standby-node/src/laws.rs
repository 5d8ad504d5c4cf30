//! Property tests: an instance enters Standby only if the answers contain everything that permits it.

use bad_input::{beyond, block_on, each_gap, each_gap_of_xml, few_cases, spoiled, spoiled_xml};
use proptest::prelude::*;
use recycle::base::failure::NamedFailure as _;
use recycle::records::claim::Phase;
use scripted_aws::{ScriptedAws, one_group};
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{NODE, id, me, no_nodes, run, step, stored_node};

/// Returns AWS's description of the group while the node is in service, with another member.
fn whole_group() -> String {
    one_group(
        "",
        &[(id().as_str(), "InService"), ("i-0bbbbbbbbbbbbbbbb", "InService")],
    )
}

fn whole_node() -> Value {
    let mut node = stored_node(Phase::Admitted);
    node["metadata"]["annotations"]["recycle-eks/record"] = json!(r#"{"schema":1,"was_unschedulable":true}"#);
    node["spec"]["taints"] = json!([{"key": "team", "value": "blue", "effect": "NoSchedule"}]);
    node["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    node
}

/// Makes the first call, and returns what it wrote on the Node and to AWS.
fn enter_by(node: &Value, group: &str) -> Vec<String> {
    let kube = ScriptedKube::new()
        .on("GET", NODE, 200, node.clone())
        .on("GET", "/api/v1/nodes?", 200, no_nodes())
        .on("PATCH", NODE, 200, stored_node(Phase::Standby));
    let aws = ScriptedAws::new()
        .on("DescribeAutoScalingGroups", group)
        .on("CreateTags", "")
        .on("EnterStandby", "");
    let entered = block_on(async {
        let context = json!({"Execution": {"Id": me().execution, "Input": {}}, "State": {"EnteredTime": "2027-01-01T00:01:00Z"}});
        let context = serde_json::from_value(context).unwrap();
        let node = kubernetes::get_node(&kube.client(), &run().node, &run().input.instance_id).await?;
        let group = step(&aws).groups.fetch(&run().group).await;
        step(&aws)
            .take_step_in(kube.client(), node, group, StepRequest { context, run: run() })
            .await
    });
    if let Err(error) = entered {
        let _ = error.failure();
    }
    kube.writes().into_iter().chain(aws.writes()).collect()
}

/// Checks whether a shorter member list explains the writes: only the answer shows the other members.
fn lists_fewer(group: &str) -> bool {
    group.matches("<InstanceId>").count() < 2 && group.contains(id().as_str())
}

#[test]
fn an_incomplete_answer_permits_no_other_write() {
    let whole = enter_by(&whole_node(), &whole_group());
    assert_eq!(whole.len(), 3, "{whole:?}");
    assert!(whole[2].starts_with("Action=EnterStandby"), "{whole:?}");
    for (_, node) in each_gap(&whole_node()) {
        let record = node["metadata"]["annotations"]["recycle-eks/record"]
            .as_str()
            .unwrap_or_default();
        // A record from before is optional.
        if record.contains("was_unschedulable\":true") {
            let more = beyond(enter_by(&node, &whole_group()), &whole);
            assert!(more.is_empty(), "{node}: {more:?}");
        }
    }
    for (gone, group) in each_gap_of_xml(&whole_group()) {
        let writes = enter_by(&whole_node(), &group);
        assert!(writes.is_empty() || lists_fewer(&group), "{gone}: {writes:?}");
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn only_a_member_that_the_answer_shows_in_service_enters_standby(
        node in spoiled(vec![whole_node()]), group in spoiled_xml(&whole_group()),
    ) {
        let writes = enter_by(&node, &group);
        let in_service = format!("<InstanceId>{}</InstanceId><LifecycleState>InService<", id());
        let claimed = node["metadata"]["annotations"]["recycle-eks/claim"].as_str().unwrap_or_default();
        let may = group.contains(&in_service) && claimed.contains(&me().to_string());
        prop_assert!(writes.is_empty() || may, "{} {}: {:?}", node, group, writes);
    }
}
