//! Converts the answers of EC2 and Auto Scaling.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use ec2::Error;
use ec2::groups::Groups;
use ec2::instances::Instances;
use recycle::base::failure::{Failure, NamedFailure as _, with_causes};
use recycle::base::ids::{GroupName, InstanceId};
use scripted_aws::ScriptedAws;

const ID: &str = "i-0123456789abcdef0";

fn id() -> InstanceId {
    ID.parse().unwrap()
}

fn group() -> GroupName {
    "workers".parse().unwrap()
}

fn reservation(id: &str, more: &str) -> String {
    format!(
        "<reservationSet><item><instancesSet><item><instanceId>{id}</instanceId>\
         <instanceState><code>16</code><name>running</name></instanceState>{more}</item></instancesSet></item></reservationSet>"
    )
}

fn described_group(members: &str) -> String {
    format!(
        "<AutoScalingGroups><member>\
         <AutoScalingGroupName>workers</AutoScalingGroupName><MinSize>1</MinSize><MaxSize>5</MaxSize>\
         <DesiredCapacity>3</DesiredCapacity><Instances>{members}</Instances>\
         <SuspendedProcesses><member><ProcessName>Launch</ProcessName></member></SuspendedProcesses>\
         </member></AutoScalingGroups>"
    )
}

#[tokio::test]
async fn an_instance_is_read_with_its_name_tags_and_market() {
    let more = "<privateDnsName>ip-10-0-0-1.eu-west-1.compute.internal</privateDnsName>\
                <spotInstanceRequestId>sir-1</spotInstanceRequestId>\
                <tagSet><item><key>recycle-eks:group</key><value>workers</value></item></tagSet>";
    let aws = ScriptedAws::new().on("DescribeInstances", &reservation(ID, more));
    let instance = Instances::new(&aws.config()).fetch(&id()).await.unwrap().unwrap();
    assert_eq!(instance.id, id());
    assert_eq!(instance.state, "running");
    assert_eq!(
        instance.private_dns_name.as_deref(),
        Some("ip-10-0-0-1.eu-west-1.compute.internal")
    );
    assert_eq!(instance.tags["recycle-eks:group"], "workers");
    assert!(instance.is_spot);
}

#[tokio::test]
async fn the_empty_dns_name_of_a_dead_instance_is_no_name() {
    let aws = ScriptedAws::new().on("DescribeInstances", &reservation(ID, "<privateDnsName/>"));
    let instance = Instances::new(&aws.config()).fetch(&id()).await.unwrap().unwrap();
    assert_eq!(instance.private_dns_name, None);
    assert!(!instance.is_spot);
}

#[tokio::test]
async fn an_instance_that_ec2_does_not_know_is_none() {
    for code in ["InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"] {
        let aws = ScriptedAws::new().refuses("DescribeInstances", 400, code, "no such instance");
        assert_eq!(
            Instances::new(&aws.config()).fetch(&id()).await.unwrap(),
            None,
            "{code}"
        );
    }
}

#[tokio::test]
async fn an_answer_without_the_instance_does_not_mean_that_it_is_gone() {
    for answer in [
        "<reservationSet/>".to_owned(),
        reservation("i-0fedcba9876543210", ""),
    ] {
        let aws = ScriptedAws::new().on("DescribeInstances", &answer);
        let error = Instances::new(&aws.config()).fetch(&id()).await.unwrap_err();
        assert_eq!(error.failure(), Failure::InternalError);
        assert!(
            error.to_string().ends_with(&format!("an answer without {ID}")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn several_instances_are_fetched_by_a_filter_and_in_pages() {
    let second = "i-0fedcba9876543210";
    let first_page = format!("{}<nextToken>more</nextToken>", reservation(ID, ""));
    let aws = ScriptedAws::new()
        .on("DescribeInstances", &first_page)
        .on("DescribeInstances", &reservation(second, ""));
    let ids = [id(), second.parse().unwrap()];
    let instances = Instances::new(&aws.config()).fetch_all(&ids).await.unwrap();
    assert_eq!(
        instances
            .into_iter()
            .map(|instance| instance.id)
            .collect::<Vec<_>>(),
        ids
    );
    let calls = aws.calls();
    assert!(calls[0].contains("Filter.1.Name=instance-id"), "{}", calls[0]);
    assert!(calls[1].contains("NextToken=more"), "{}", calls[1]);
}

#[tokio::test]
async fn an_empty_list_of_instances_needs_no_call() {
    let aws = ScriptedAws::new();
    assert!(
        Instances::new(&aws.config())
            .fetch_all(&[])
            .await
            .unwrap()
            .is_empty()
    );
    assert!(aws.calls().is_empty());
}

#[tokio::test]
async fn tags_are_written_and_removed_by_key() {
    let aws = ScriptedAws::new().on("CreateTags", "").on("DeleteTags", "");
    let instances = Instances::new(&aws.config());
    instances
        .tag(&id(), &[("recycle-eks:group", "workers".to_owned())])
        .await
        .unwrap();
    instances
        .untag(&id(), &["recycle-eks:group", "recycle-eks:claim"])
        .await
        .unwrap();
    let [written, removed] = &aws.calls()[..] else {
        panic!("two calls")
    };
    assert!(
        written.contains("Tag.1.Key=recycle-eks%3Agroup&Tag.1.Value=workers"),
        "{written}"
    );
    assert!(removed.contains("Tag.2.Key=recycle-eks%3Aclaim"), "{removed}");
    // If the request gives a value, even an empty one, DeleteTags removes only a tag with this value.
    assert!(!removed.contains("Value"), "{removed}");
}

#[tokio::test]
async fn the_tags_of_a_missing_instance_are_removed() {
    let aws = ScriptedAws::new().refuses(
        "DeleteTags",
        400,
        "InvalidInstanceID.NotFound",
        "no such instance",
    );
    Instances::new(&aws.config())
        .untag(&id(), &["recycle-eks:claim"])
        .await
        .unwrap();
}

#[tokio::test]
async fn the_group_of_an_instance_is_read_with_its_members() {
    let member = format!(
        "<member><InstanceId>{ID}</InstanceId><LifecycleState>Terminating:Wait</LifecycleState>\
         <ProtectedFromScaleIn>true</ProtectedFromScaleIn></member>"
    );
    let found = "<AutoScalingInstances><member>\
                 <AutoScalingGroupName>workers</AutoScalingGroupName></member></AutoScalingInstances>";
    let aws = ScriptedAws::new()
        .on("DescribeAutoScalingInstances", found)
        .on("DescribeAutoScalingGroups", &described_group(&member));
    let found = Groups::new(&aws.config()).find(&id()).await.unwrap().unwrap();
    assert_eq!(
        (found.name.clone(), found.min, found.desired, found.max),
        (group(), 1, 3, 5)
    );
    assert_eq!(found.suspended, ["Launch"]);
    let member = found.member(&id()).unwrap();
    assert_eq!(member.lifecycle_state, "Terminating:Wait");
    assert!(member.protected_from_scale_in);
}

#[tokio::test]
async fn an_instance_in_no_group_and_a_group_that_is_gone_are_none() {
    let no_instance = "<AutoScalingInstances/>";
    let nothing = "<AutoScalingGroups/>";
    let aws = ScriptedAws::new()
        .on("DescribeAutoScalingInstances", no_instance)
        .on("DescribeAutoScalingGroups", nothing);
    let groups = Groups::new(&aws.config());
    assert_eq!(groups.find(&id()).await.unwrap(), None);
    assert_eq!(groups.fetch(&group()).await.unwrap(), None);
}

#[tokio::test]
async fn exit_standby_increases_the_desired_capacity_and_only_a_removal_lowers_it() {
    let aws = ScriptedAws::new()
        .on("ExitStandby", "")
        .on("SetDesiredCapacity", "")
        .on("TerminateInstanceInAutoScalingGroup", "");
    let groups = Groups::new(&aws.config());
    groups.exit_standby(&group(), &id()).await.unwrap();
    groups.set_desired_capacity(&group(), 3).await.unwrap();
    groups.remove(&id()).await.unwrap();
    let [exit, set, remove] = &aws.calls()[..] else {
        panic!("three calls")
    };
    assert!(exit.contains(&format!("InstanceIds.member.1={ID}")), "{exit}");
    assert!(set.contains("DesiredCapacity=3&HonorCooldown=false"), "{set}");
    assert!(remove.contains("ShouldDecrementDesiredCapacity=true"), "{remove}");
}

#[tokio::test]
async fn members_are_protected_fifty_at_a_time() {
    let members: Vec<InstanceId> = (0..51)
        .map(|number| format!("i-0{number:016x}").parse().unwrap())
        .collect();
    let aws = ScriptedAws::new()
        .on("SetInstanceProtection", "")
        .on("SetInstanceProtection", "");
    Groups::new(&aws.config())
        .protect(&group(), &members, true)
        .await
        .unwrap();
    let [first, second] = &aws.calls()[..] else {
        panic!("two calls")
    };
    assert!(
        first.contains("InstanceIds.member.50=") && first.contains("ProtectedFromScaleIn=true"),
        "{first}"
    );
    assert!(
        second.contains(&format!("InstanceIds.member.1={}&", members[50])),
        "{second}"
    );
}

#[tokio::test]
async fn tags_of_several_instances_are_removed_only_if_ec2_knows_all_of_them() {
    let aws = ScriptedAws::new().on("CreateTags", "").refuses(
        "DeleteTags",
        400,
        "InvalidInstanceID.NotFound",
        "no such instance",
    );
    let instances = Instances::new(&aws.config());
    let both = [id(), "i-0aaaaaaaaaaaaaaaa".parse().unwrap()];
    instances
        .tag_all(&both, &[("recycle-eks:protected-for", ID.to_owned())])
        .await
        .unwrap();
    assert!(
        aws.calls()[0].contains("ResourceId.2=i-0aaaaaaaaaaaaaaaa"),
        "{}",
        aws.calls()[0]
    );
    instances
        .untag_all(&both, &["recycle-eks:protected-for"])
        .await
        .unwrap_err();
}

#[tokio::test]
async fn standby_and_disposal_never_decrement_the_desired_capacity() {
    let aws = ScriptedAws::new()
        .on("EnterStandby", "")
        .on("TerminateInstanceInAutoScalingGroup", "");
    let groups = Groups::new(&aws.config());
    groups.enter_standby(&group(), &id()).await.unwrap();
    groups.terminate(&id()).await.unwrap();
    for call in aws.calls() {
        assert!(call.contains("ShouldDecrementDesiredCapacity=false"), "{call}");
    }
}

#[tokio::test]
async fn a_refusal_is_sorted_by_its_code() {
    let cases = [
        (400, "Throttling", Failure::ServiceUnavailable),
        (400, "ScalingActivityInProgress", Failure::ServiceUnavailable),
        (500, "ResourceContention", Failure::ServiceUnavailable),
        (503, "RequestLimitExceeded", Failure::ServiceUnavailable),
        (502, "SomethingNew", Failure::ServiceUnavailable),
        (429, "SomethingNew", Failure::ServiceUnavailable),
        (403, "AccessDenied", Failure::ServiceRefused),
        (403, "UnauthorizedOperation", Failure::ServiceRefused),
        (400, "ValidationError", Failure::ServiceRefused),
        (400, "InvalidParameterValue", Failure::ServiceRefused),
    ];
    for (status, code, failure) in cases {
        let aws = ScriptedAws::new().refuses("EnterStandby", status, code, "the reason");
        let error = Groups::new(&aws.config())
            .enter_standby(&group(), &id())
            .await
            .unwrap_err();
        assert_eq!(error.failure(), failure, "{status} {code}");
        let text = with_causes(&error);
        assert!(text.contains("autoscaling:EnterStandby"), "{text}");
        assert!(text.ends_with(&format!("the reason ({code})")), "{text}");
    }
}

#[tokio::test]
async fn a_missing_permission_names_the_action() {
    let aws = ScriptedAws::new().refuses(
        "StopInstances",
        403,
        "UnauthorizedOperation",
        "You are not authorized.",
    );
    let error = Instances::new(&aws.config()).stop(&id()).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Denied {
                call: "ec2:StopInstances",
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        with_causes(&error),
        "failed to call ec2:StopInstances because the role of this function lacks the permission: You are not authorized. (UnauthorizedOperation)"
    );
}

#[tokio::test]
async fn a_refusal_for_the_state_of_the_instance_is_recognized() {
    let aws = ScriptedAws::new()
        .refuses(
            "TerminateInstanceInAutoScalingGroup",
            400,
            "ValidationError",
            "not in InService",
        )
        .refuses(
            "StopInstances",
            400,
            "IncorrectInstanceState",
            "not in a state to be stopped",
        );
    let terminated = Groups::new(&aws.config()).terminate(&id()).await.unwrap_err();
    let stopped = Instances::new(&aws.config()).stop(&id()).await.unwrap_err();
    assert!(matches!(terminated, Error::WrongState { .. }), "{terminated:?}");
    assert!(matches!(stopped, Error::WrongState { .. }), "{stopped:?}");
}

#[tokio::test]
async fn a_broken_connection_counts_as_unavailable() {
    let aws = ScriptedAws::new().breaks_on("DescribeInstances");
    let error = Instances::new(&aws.config()).fetch(&id()).await.unwrap_err();
    assert_eq!(error.failure(), Failure::ServiceUnavailable);
    assert!(
        with_causes(&error).contains("the connection broke"),
        "{}",
        with_causes(&error)
    );
}

#[tokio::test]
async fn an_unintelligible_answer_is_an_internal_error() {
    let aws = ScriptedAws::new().on("DescribeInstances", &reservation("i-no-such-thing", ""));
    let error = Instances::new(&aws.config()).fetch(&id()).await.unwrap_err();
    assert_eq!(error.failure(), Failure::InternalError, "{error:?}");

    for size in ["<MinSize>many</MinSize>", "<MinSize>-1</MinSize>"] {
        let answer = format!(
            "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName>{size}\
             </member></AutoScalingGroups>"
        );
        let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", &answer);
        let error = Groups::new(&aws.config()).fetch(&group()).await.unwrap_err();
        assert_eq!(error.failure(), Failure::InternalError, "{size}: {error:?}");
    }
}

#[tokio::test]
async fn an_instance_is_read_with_its_image_and_launch_time() {
    let more = "<launchTime>2027-01-01T00:00:00.000Z</launchTime><imageId>ami-1</imageId>";
    let aws = ScriptedAws::new().on("DescribeInstances", &reservation(ID, more));
    let machines = Instances::new(&aws.config())
        .fetch_machines(&[id()])
        .await
        .unwrap();
    assert_eq!(machines[0].launched_at.to_string(), "2027-01-01T00:00:00Z");
    assert_eq!(
        (machines[0].instance.id.as_str(), machines[0].image.as_str()),
        (ID, "ami-1")
    );
}

#[tokio::test]
async fn the_template_and_overrides_of_a_group_and_the_templates_of_members_are_read() {
    let group = "<AutoScalingGroups><member><AutoScalingGroupName>workers</AutoScalingGroupName>\
        <MinSize>1</MinSize><MaxSize>5</MaxSize><DesiredCapacity>3</DesiredCapacity>\
        <MixedInstancesPolicy><LaunchTemplate>\
        <LaunchTemplateSpecification><LaunchTemplateId>lt-1</LaunchTemplateId></LaunchTemplateSpecification>\
        <Overrides><member><InstanceType>m7g.large</InstanceType><LaunchTemplateSpecification>\
        <LaunchTemplateId>lt-2</LaunchTemplateId><Version>3</Version></LaunchTemplateSpecification></member></Overrides>\
        </LaunchTemplate></MixedInstancesPolicy>\
        <Tags><member><Key>team</Key><Value>batch</Value></member></Tags>\
        <Instances><member><InstanceId>i-0123456789abcdef0</InstanceId><LifecycleState>InService</LifecycleState><ProtectedFromScaleIn>false</ProtectedFromScaleIn>\
        <InstanceType>m7g.large</InstanceType><LaunchTemplate><LaunchTemplateId>lt-2</LaunchTemplateId>\
        <Version>2</Version></LaunchTemplate></member></Instances></member></AutoScalingGroups>";
    let aws = ScriptedAws::new().on("DescribeAutoScalingGroups", group);
    let fleets = Groups::new(&aws.config())
        .fetch_fleets(&"world".parse().unwrap())
        .await
        .unwrap();
    let asked = &aws.calls()[0];
    assert!(asked.contains("kubernetes.io%2Fcluster%2Fworld"), "{asked}");
    let [fleet] = fleets.as_slice() else {
        panic!("{fleets:?}");
    };
    assert_eq!(fleet.tags["team"], "batch");
    let named = |kind: &str| {
        fleet
            .template_of(kind)
            .map(|named| (named.id.as_str(), named.version.as_str()))
    };
    assert_eq!(named("m7i.large"), Some(("lt-1", "$Default")));
    assert_eq!(named("m7g.large"), Some(("lt-2", "3")));
    assert_eq!(fleet.members[0].template.as_ref().unwrap().version, "2");
}

#[tokio::test]
async fn a_templates_version_is_read_as_a_number_and_one_without_is_an_error() {
    let wanted = recycle::rotation::fleet::Template {
        id: "lt-1".to_owned(),
        version: "$Latest".to_owned(),
    };
    let version = "<launchTemplateVersionSet><item><versionNumber>7</versionNumber><launchTemplateData>\
        <imageId>ami-7</imageId></launchTemplateData></item></launchTemplateVersionSet>";
    let aws = ScriptedAws::new()
        .on("DescribeLaunchTemplateVersions", version)
        .on("DescribeLaunchTemplateVersions", "<launchTemplateVersionSet/>");
    let instances = Instances::new(&aws.config());
    let facts = instances.fetch_template(&wanted).await.unwrap();
    assert_eq!(
        (facts.version.as_str(), facts.image.as_deref()),
        ("7", Some("ami-7"))
    );
    let error = instances.fetch_template(&wanted).await.unwrap_err();
    assert_eq!(error.failure(), Failure::InternalError);
    assert!(with_causes(&error).contains("lt-1 has no version $Latest"));
}
