//! Property tests: a node is selected only if the answers contain everything that selects it.

use bad_input::{beyond, block_on, each_gap_of_xml, few_cases, spoiled_xml};
use proptest::prelude::*;
use recycle::base::failure::NamedFailure as _;
use scripted_aws::ScriptedAws;
use serde_json::{Map, json};

use super::*;

const OLD: &str = "i-0aaaaaaaaaaaaaaaa";
const NEW: &str = "i-0bbbbbbbbbbbbbbbb";
const ROTATION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:one";

/// Returns a group whose member was launched from this version of its template, which is at 2.
fn group(name: &str, member: &str, version: &str) -> String {
    let template = |version: &str| {
        format!(
            "<LaunchTemplate><LaunchTemplateId>lt-1</LaunchTemplateId><Version>{version}</Version></LaunchTemplate>"
        )
    };
    format!(
        "<member><AutoScalingGroupName>{name}</AutoScalingGroupName><MinSize>1</MinSize><MaxSize>5</MaxSize>\
         <DesiredCapacity>1</DesiredCapacity>{}<Instances><member><InstanceId>{member}</InstanceId>\
         <LifecycleState>InService</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn>\
         <InstanceType>m7i.large</InstanceType>{}</member></Instances></member>",
        template("$Latest"),
        template(version)
    )
}

/// Returns AWS's answers about groups, instances and the launch template. One group is outdated in template and image, the other is
/// current.
fn whole() -> [String; 3] {
    let groups = [group("behind", OLD, "1"), group("current", NEW, "2")].concat();
    let instance = |id: &str, image: &str| {
        format!(
            "<item><instanceId>{id}</instanceId><instanceState><name>running</name></instanceState><imageId>{image}</imageId>\
             <launchTime>2027-01-01T00:00:00.000Z</launchTime></item>"
        )
    };
    let instances = [instance(OLD, "ami-1"), instance(NEW, "ami-2")].concat();
    [
        format!("<AutoScalingGroups>{groups}</AutoScalingGroups>"),
        format!("<reservationSet><item><instancesSet>{instances}</instancesSet></item></reservationSet>"),
        "<launchTemplateVersionSet><item><versionNumber>2</versionNumber><launchTemplateData><imageId>ami-2</imageId>\
         </launchTemplateData></item></launchTemplateVersionSet>"
            .to_owned(),
    ]
}

/// Returns the groups that a rotation selects, and the nodes that a trigger starts at once.
fn select_by([groups, instances, template]: &[String; 3]) -> Vec<String> {
    let outdated =
        json!({"trigger": "manual", "selection": {"outdated": {"launch_template": true, "ami": true}}});
    let listed = json!({"trigger": "event", "selection": {"instance_ids": [OLD]}, "event": {"id": "e"}});
    let mut selected = Vec::new();
    for input in [outdated, listed] {
        let aws = ScriptedAws::new()
            .on("DescribeAutoScalingGroups", groups)
            .on("DescribeInstances", instances)
            .on("DescribeLaunchTemplateVersions", template)
            .on("DescribeLaunchTemplateVersions", template);
        let request = json!({
            "context": {"Execution": {"Id": ROTATION, "Input": input}, "State": {"EnteredTime": "2027-01-10T00:00:00Z"}},
            "select": "rotation",
            "cluster_name": "world",
        });
        let request = serde_json::from_value(request).unwrap();
        match block_on(
            SelectNodes::new(&aws.config(), &"world".parse().unwrap(), 5, Map::new()).handle(request),
        ) {
            Ok(answer) => {
                let body = json!(answer);
                let starts = body["starts"].as_array().into_iter().flatten();
                let started = starts.map(|start| &start["instance_id"]);
                let groups = body["groups"].as_array().into_iter().flatten();
                let names = started.chain(groups).filter_map(Value::as_str);
                selected.extend(names.map(str::to_owned));
            }
            Err(error) => {
                let _ = error.failure();
            }
        }
    }
    selected
}

#[test]
fn an_incomplete_answer_selects_no_other_node() {
    assert_eq!(select_by(&whole()), ["behind", OLD]);
    for place in 0..3 {
        for (gone, answer) in each_gap_of_xml(&whole()[place]) {
            // A member that was launched from a launch configuration has no template.
            if gone.starts_with("<LaunchTemplate>") {
                continue;
            }
            let mut answers = whole();
            answers[place] = answer;
            let more = beyond(select_by(&answers), &["behind".to_owned(), OLD.to_owned()]);
            assert!(more.is_empty(), "{gone}: {more:?}");
        }
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn a_selected_node_is_in_the_answer(groups in spoiled_xml(&whole()[0]), instances in spoiled_xml(&whole()[1])) {
        let [_, _, template] = whole();
        for name in select_by(&[groups.clone(), instances.clone(), template]) {
            let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            prop_assert!(groups.contains(&format!(">{name}<")), "{}: {}", name, groups);
        }
    }
}
