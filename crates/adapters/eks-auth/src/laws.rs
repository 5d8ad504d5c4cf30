//! Property tests: an answer of EKS is read as it is, or is an error with a name.

use bad_input::{any_json, block_on, each_gap, few_cases, spoiled};
use proptest::prelude::*;
use recycle::base::failure::{NamedFailure as _, with_causes};
use scripted_aws::ScriptedAws;
use serde_json::{Value, json};

use super::*;

fn whole_cluster() -> Value {
    json!({"cluster": {
        "name": "world", "status": "ACTIVE", "endpoint": "https://127.0.0.1:1", "certificateAuthority": {"data": "UEVN"},
    }})
}

fn access(aws: &ScriptedAws) -> Access {
    Access::new(&aws.config(), &"world".parse().unwrap())
}

fn describe(answer: &Value) -> Result<Cluster, Error> {
    let aws = ScriptedAws::new().on("DescribeCluster", &answer.to_string());
    block_on(access(&aws).describe_cluster())
}

fn describe_node_group(answer: &Value) -> Result<Option<NodeGroup>, Error> {
    let aws = ScriptedAws::new().on("DescribeNodegroup", &answer.to_string());
    block_on(access(&aws).describe_node_group("blue", &"workers".parse().unwrap()))
}

#[test]
fn an_incomplete_answer_is_no_other_cluster_and_no_missing_node_group() {
    let whole = describe(&whole_cluster()).unwrap();
    for (_, answer) in each_gap(&whole_cluster()) {
        if let Ok(cluster) = describe(&answer) {
            assert_eq!(cluster, whole, "{answer}");
        }
    }
    let resources = json!({"autoScalingGroups": [{"name": "workers"}]});
    let updating =
        json!({"nodegroup": {"nodegroupName": "blue", "status": "UPDATING", "resources": resources}});
    for (_, answer) in each_gap(&updating) {
        if let Ok(found) = describe_node_group(&answer) {
            assert_eq!(
                found.map(|found| found.status).as_deref(),
                Some("UPDATING"),
                "{answer}"
            );
        }
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn a_cluster_is_as_answered_or_an_error(answer in prop_oneof![6 => spoiled(vec![whole_cluster()]), 1 => any_json()]) {
        match describe(&answer) {
            Ok(cluster) => {
                prop_assert_eq!(answer["cluster"]["endpoint"].as_str(), Some(cluster.endpoint.as_str()));
                let aws = ScriptedAws::new().on("DescribeCluster", &answer.to_string());
                if let Err(error) = block_on(access(&aws).connect()) {
                    prop_assert!(with_causes(&error).starts_with("failed to "));
                    let _ = error.failure();
                }
            }
            Err(error) => {
                prop_assert!(with_causes(&error).starts_with("failed to "));
                let _ = error.failure();
            }
        }
    }
}
