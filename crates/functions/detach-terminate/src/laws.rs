//! Property tests: an instance is ended only if the answers contain everything that permits it.

use bad_input::{beyond, block_on, each_gap_beside, few_cases, spoiled, spoiled_xml};
use proptest::prelude::*;
use recycle::base::failure::NamedFailure as _;
use recycle::base::names::{CLAIM_TAG, GROUP_TAG};
use recycle::contract::run::Run;
use recycle::drain::lost::find_loss;
use recycle::records::claim::Phase;
use scripted_aws::{ScriptedAws, one_group, running_instance};
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{NODE, claim, id, me, run, stored_node};

const BEFORE: &str = "2027-01-01T00:00:00Z";
const END: &str = "Action=TerminateInstanceInAutoScalingGroup";

/// Answers about the Node, its pods, the instance and the group.
type Answers = [String; 4];

/// Returns the answers for a drained node in Standby, which has been out of the balancers for long enough.
fn whole() -> Answers {
    let mut node = stored_node(Phase::Draining);
    let record =
        json!({"schema": 1, "tainted_at": "2027-01-01T10:00:00Z", "excluded_at": "2027-01-01T19:00:00Z"});
    node["metadata"]["annotations"]["recycle-eks/record"] = json!(record.to_string());
    node["metadata"]["labels"] =
        json!({"node.kubernetes.io/exclude-from-external-load-balancers": "recycle-eks"});
    node["spec"]["taints"] = json!([{"key": "recycle-eks/draining", "value": id(), "effect": "NoSchedule"}]);
    node["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let pod = |name: &str, kind: &str, phase: &str| {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true});
        json!({
            "metadata": {"name": name, "namespace": "jobs", "uid": name, "creationTimestamp": BEFORE, "ownerReferences": [owner]},
            "spec": {"restartPolicy": "Never"},
            "status": {"phase": phase},
        })
    };
    let pods = [
        pod("log-agent", "DaemonSet", "Running"),
        pod("done", "Job", "Succeeded"),
    ];
    let tag = |key: &str, value: &str| format!("<item><key>{key}</key><value>{value}</value></item>");
    let tags = [
        tag(CLAIM_TAG, &claim(Phase::Draining).to_tag()),
        tag(GROUP_TAG, "workers"),
    ]
    .concat();
    [
        node.to_string(),
        json!({"metadata": {}, "items": pods}).to_string(),
        running_instance(id().as_str(), &format!("<tagSet>{tags}</tagSet>")),
        one_group("", &[(id().as_str(), "Standby")]),
    ]
}

/// Returns the same answers while a pod holds the node.
fn held() -> Answers {
    whole().map(|answer| answer.replace("Succeeded", "Running"))
}

/// Makes the next call, and returns what it wrote to AWS.
fn dispose_by(answers: &Answers) -> Vec<String> {
    dispose_with(ScriptedAws::new().on("DescribeInstances", &answers[2]), answers)
}

/// Makes the next call with EC2's answer about the instance in `aws`.
fn dispose_with(aws: ScriptedAws, answers: &Answers) -> Vec<String> {
    dispose_run(aws, answers, run("terminate"))
}

fn dispose_run(aws: ScriptedAws, [node, pods, _, group]: &Answers, mut run: Run) -> Vec<String> {
    let kube = ScriptedKube::new()
        .on("GET", NODE, 200, serde_json::from_str(node).unwrap())
        .on("GET", "/pods?", 200, serde_json::from_str(pods).unwrap())
        .on("PATCH", NODE, 200, stored_node(Phase::Disposing));
    let aws = aws
        .on("DescribeAutoScalingGroups", group)
        .on("CreateTags", "")
        .on("TerminateInstanceInAutoScalingGroup", "");
    let disposed = block_on(async {
        let context = json!({"Execution": {"Id": me().execution, "Input": {}}, "State": {"EnteredTime": "2027-01-01T19:20:00Z"}});
        let context = serde_json::from_value(context).unwrap();
        run.drain.draining_since = "2027-01-01T11:00:00Z".parse().ok();
        run.disposing_since = "2027-01-01T19:00:00Z".parse().ok();
        let node = kubernetes::get_node(&kube.client(), &run.node, &run.input.instance_id).await?;
        let step = DetachTerminate::new(&aws.config(), &"world".parse().unwrap());
        let found = step.ask_aws(&run).await;
        step.take_step_in(kube.client(), node, found, StepRequest { context, run })
            .await
    });
    if let Err(error) = disposed {
        let _ = error.failure();
    }
    aws.writes()
}

fn ends(writes: &[String]) -> bool {
    writes.iter().any(|write| write.starts_with(END))
}

/// Checks whether the pod that holds the node is in the answer, created before the taint.
fn is_held([_, pods, ..]: &Answers) -> bool {
    let pods: Value = serde_json::from_str(pods).unwrap();
    let mut pods = pods["items"].as_array().into_iter().flatten();
    pods.any(|pod| pod["metadata"]["uid"] == "done" && pod["metadata"]["creationTimestamp"] == BEFORE)
}

#[test]
fn an_incomplete_answer_ends_no_instance_that_a_whole_one_keeps() {
    let whole_writes = dispose_by(&whole());
    assert!(whole_writes.len() == 2 && ends(&whole_writes), "{whole_writes:?}");
    for (_, answers) in each_gap_beside(&whole()) {
        let more = beyond(dispose_by(&answers), &whole_writes);
        assert!(more.is_empty(), "{answers:?}: {more:?}");
    }
    assert!(dispose_by(&held()).is_empty());
    for (_, answers) in each_gap_beside(&held())
        .into_iter()
        .filter(|(_, answers)| is_held(answers))
    {
        let writes = dispose_by(&answers);
        assert!(!ends(&writes), "{answers:?}: {writes:?}");
    }
}

/// The developer guide of EC2, "Eventual consistency": NotFound does not mean that the instance does not exist.
#[test]
fn an_instance_that_ec2_does_not_know_is_kept_while_its_node_is_there() {
    let unknown = || ScriptedAws::new().refuses("DescribeInstances", 400, "InvalidInstanceID.NotFound", "no");
    for answers in [whole(), held()] {
        let not_ready = answers
            .clone()
            .map(|answer| answer.replace(r#""status":"True""#, r#""status":"Unknown""#));
        assert!(!ends(&dispose_with(unknown(), &answers)));
        assert!(!ends(&dispose_with(unknown(), &not_ready)));
        // Nor is a lost node marked as off, which would release the volumes of a machine that may run.
        let mut lost = run("terminate");
        lost.lost = find_loss(None, 0, "2027-01-01T19:00:00Z".parse().unwrap());
        assert_eq!(dispose_run(unknown(), &not_ready, lost), Vec::<String>::new());
    }
}

#[test]
fn a_node_without_a_provider_id_keeps_its_instance_until_the_balancers_have_removed_it() {
    let early = whole()
        .map(|answer| answer.replace("node.kubernetes.io/exclude-from-external-load-balancers", "zone"));
    assert!(!ends(&dispose_by(&early)));
    assert!(!ends(&dispose_by(
        &early.map(|answer| answer.replace("\"providerID\"", "\"other\""))
    )));
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn an_existing_pod_keeps_its_instance(
        node in spoiled(vec![serde_json::from_str(&whole()[0]).unwrap()]),
        pods in spoiled(vec![serde_json::from_str(&held()[1]).unwrap()]),
        instance in spoiled_xml(&whole()[2]),
    ) {
        let [_, _, _, group] = whole();
        let answers = [node.to_string(), pods.to_string(), instance, group];
        // EC2 may also answer that the instance is gone.
        let runs = answers[2].contains("<name>running</name>");
        let writes = dispose_by(&answers);
        prop_assert!(!ends(&writes) || !runs || !is_held(&answers), "{:?}: {:?}", answers, writes);
    }
}
