//! Property tests: a node is claimed only if the answers contain everything that permits the claim.

use bad_input::{beyond, block_on, each_gap_beside, few_cases, spoiled, spoiled_xml};
use proptest::prelude::*;
use recycle::base::failure::NamedFailure as _;
use recycle::base::permissions::PERMISSIONS;
use recycle::records::claim::Phase;
use scripted_aws::{ScriptedAws, one_group, running_instance};
use scripted_kube::ScriptedKube;
use serde_json::{Value, json};

use super::*;
use crate::facts::{ask_cluster, find_node};
use crate::fixtures::{LIST, NODE, claim, id, list, node, request, settings};

/// Answers about the Node, its managed node group, the instance, the member, the group, its refreshes, the health of targets, and the
/// execution.
type Answers = [String; 8];

/// Returns the answers for a free node in service, in a group with everything that can forbid a claim.
fn whole() -> Answers {
    let mut node = node(None);
    node["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] = json!("blue");
    let id = id();
    let target = |id: &str| {
        format!(
            "<member><Target><Id>{id}</Id></Target><TargetHealth><State>healthy</State></TargetHealth></member>"
        )
    };
    let targets = [target("i-0fedcba9876543210"), target(id.as_str())].concat();
    let instance_tags =
        "<tagSet><item><key>kubernetes.io/cluster/world</key><value>owned</value></item></tagSet>";
    let group_tags =
        "<Tags><member><Key>kubernetes.io/cluster/world</Key><Value>owned</Value></member></Tags>";
    let more = "<TargetGroupARNs><member>arn</member></TargetGroupARNs><SuspendedProcesses><member>\
                <ProcessName>AZRebalance</ProcessName></member></SuspendedProcesses>";
    [
        node.to_string(),
        json!({"nodegroup": {
            "nodegroupName": "blue",
            "status": "ACTIVE",
            "resources": {"autoScalingGroups": [{"name": "workers"}]},
        }})
        .to_string(),
        running_instance(
            id.as_str(),
            &format!("<privateDnsName>one</privateDnsName>{instance_tags}"),
        ),
        format!(
            "<AutoScalingInstances><member><InstanceId>{id}</InstanceId><AutoScalingGroupName>workers</AutoScalingGroupName>\
             <LifecycleState>InService</LifecycleState></member></AutoScalingInstances>"
        ),
        one_group(&format!("{more}{group_tags}"), &[(id.as_str(), "InService")]),
        "<InstanceRefreshes><member><Status>Successful</Status></member></InstanceRefreshes>".to_owned(),
        format!("<TargetHealthDescriptions>{targets}</TargetHealthDescriptions>"),
        json!({"executionArn": "arn:e", "status": RUNNING, "startDate": 1_798_000_000, "input": given().to_string()}).to_string(),
    ]
}

fn given() -> Value {
    let mut given = fixtures::input();
    // With replacement surge the load balancers would not matter.
    given["replacement"] = json!("before");
    given["override"] = json!(["standby_in_managed_group"]);
    given
}

/// Makes one call, and returns what it wrote on the Node and to AWS.
fn claim_by(
    [
        found,
        node_group,
        instance,
        member,
        group,
        refreshes,
        health,
        execution,
    ]: &Answers,
) -> Vec<String> {
    let found: Value = serde_json::from_str(found).unwrap();
    let allowed = json!({"metadata": {}, "spec": {}, "status": {"allowed": true}});
    let listed = list(std::slice::from_ref(&found));
    let nodes = json!({"metadata": {}, "items": [found.clone()]});
    let kube = ScriptedKube::new()
        .on("GET", NODE, 200, found)
        .refuses("GET", "/api/v1/nodes/i-", 404, "NotFound", "no")
        .on("GET", "/api/v1/nodes?", 200, nodes)
        .on("PATCH", NODE, 200, node(Some(&claim(Phase::Claimed))))
        .on("PATCH", NODE, 200, node(Some(&claim(Phase::Admitted))));
    let kube = (0..3).fold(kube, |kube, _| kube.on("GET", LIST, 200, listed.clone()));
    let review = "/subjectaccessreviews";
    let kube = PERMISSIONS
        .iter()
        .fold(kube, |kube, _| kube.on("POST", review, 201, allowed.clone()));
    let aws = ScriptedAws::new()
        .on("DescribeInstances", instance)
        .on("DescribeAutoScalingInstances", member)
        .on("DescribeAutoScalingGroups", group)
        .on("DescribeInstanceRefreshes", refreshes)
        .on("DescribeNodegroup", node_group)
        .on("DescribeTargetHealth", health)
        .on("DescribeExecution", execution)
        .on("CreateTags", "");
    let claimed = block_on(async {
        let step = ClaimNode::new(settings(), &aws.config());
        let given = given();
        let input = parse_input(&given, &settings())?;
        let mut request = request(&json!({}));
        request.context.execution.input = given;
        let (instance, membership) = step.fetch_from_aws(&input).await?;
        let client = kube.client();
        let cluster = ask_cluster(String::new(), client, &request).await;
        let found = find_node(cluster, instance, membership, &input, &request).await?;
        step.claim_in(found, &request, &input).await
    });
    if let Err(error) = claimed {
        let _ = error.failure();
    }
    kube.writes().into_iter().chain(aws.writes()).collect()
}

#[test]
fn an_incomplete_answer_permits_no_other_write() {
    let whole_writes = claim_by(&whole());
    assert_eq!(whole_writes.len(), 3, "{whole_writes:?}");
    for (_, answers) in each_gap_beside(&whole()) {
        let more = beyond(claim_by(&answers), &whole_writes);
        assert!(more.is_empty(), "{answers:?}: {more:?}");
    }
}

#[test]
fn an_obstacle_also_forbids_the_claim_in_an_incomplete_answer() {
    // A shorter list cannot be recognized as incomplete, nor can missing labels of the Node.
    let lists = [
        "<member>",
        "<InstanceRefreshes>",
        "<TargetHealthDescriptions>",
        "<SuspendedProcesses>",
        "<TargetGroupARNs>",
    ];
    for (good, forbidding) in [
        (">Successful<", ">InProgress<"),
        ("\"ACTIVE\"", "\"UPDATING\""),
        (
            "9876543210</Id></Target><TargetHealth><State>healthy<",
            "9876543210</Id></Target><TargetHealth><State>initial<",
        ),
        (">AZRebalance<", ">Launch<"),
        (">false<", ">true<"),
        (">InService<", ">Standby<"),
        (">running<", ">terminated<"),
        ("RUNNING", "ABORTED"),
    ] {
        let forbidding = whole().map(|answer| answer.replace(good, forbidding));
        assert!(
            forbidding != whole() && claim_by(&forbidding).is_empty(),
            "{forbidding:?}"
        );
        for (gone, answers) in each_gap_beside(&forbidding) {
            if answers[0] == forbidding[0] && !lists.iter().any(|list| gone.starts_with(list)) {
                let writes = claim_by(&answers);
                assert!(writes.is_empty(), "{answers:?}: {writes:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn a_claimed_node_belongs_to_a_member_in_service(
        node in spoiled(vec![serde_json::from_str(&whole()[0]).unwrap()]),
        instance in spoiled_xml(&whole()[2]),
        group in spoiled_xml(&whole()[4]),
    ) {
        let provider = node["spec"]["providerID"].as_str().unwrap_or_default();
        let is_this_instance = provider.starts_with("aws://") && provider.ends_with(&format!("/{}", id()));
        let in_service = format!("<InstanceId>{}</InstanceId><LifecycleState>InService<", id());
        let runs = instance.contains(&format!("<instanceId>{}</instanceId>", id()));
        let may = is_this_instance && runs && group.contains(&in_service);
        let [_, node_group, _, member, _, refreshes, health, execution] = whole();
        let answers = [node.to_string(), node_group, instance, member, group, refreshes, health, execution];
        let writes = claim_by(&answers);
        prop_assert!(writes.is_empty() || may, "{:?}: {:?}", answers, writes);
    }
}
