//! Checks what the functions see: the cluster, its nodes and their tags.

use crate::base::ids::InstanceId;
use crate::base::names::NAMESPACE;
use crate::base::permissions::{AccessGroup, PERMISSIONS, Permission};
use crate::cluster::cluster_tag::{cluster_tag, tag_instances};
use crate::doctor::facts::{Inside, Installation, Nodes, Seen};
use crate::doctor::finding::{Check, Finding, MOST_IN_COMMAND, count, name_some};
use crate::doctor::functions::SAME_RELEASE;

/// The command that creates the namespace, and everything that the groups may do in the cluster.
const APPLY_MANIFEST: &str = "terraform output -raw rbac_manifest | kubectl apply -f -";

pub(crate) fn examine_inside(seen: &Installation, inside: &Seen<Inside>) -> Vec<Finding> {
    Check::only("serve-operator").judge_all(inside, |inside| {
        [
            vec![
                examine_code(seen, inside),
                examine_api_server(inside),
                examine_permissions(inside),
            ],
            examine_namespace(inside).into_iter().collect(),
            examine_endpoints(inside),
            Check::only("Nodes").judge_all(&inside.nodes, examine_nodes),
            examine_tags(seen, inside.untagged.as_ref()).into_iter().collect(),
            examine_given_up(inside.given_up.as_ref()).into_iter().collect(),
        ]
        .concat()
    })
}

fn examine_code(seen: &Installation, inside: &Inside) -> Finding {
    let check = Check::new("code", "serve-operator");
    let (version, own) = (&inside.version, &seen.version);
    if version == own {
        return check.ok(format!("version {version}"));
    }
    let found = format!("its code has version {version}, and this command line has version {own}");
    check.warning(found, SAME_RELEASE)
}

fn examine_api_server(inside: &Inside) -> Finding {
    let check = Check::only("API server");
    match &inside.api_server {
        Seen::Found(version) => check.ok(format!("reached by the functions, version {version}")),
        Seen::Denied(why) => check.problem(
            format!("it refuses the functions: {why}"),
            "Give the functions' roles access entries (create_access_entries, or for every role of the output role_arns).",
        ),
        Seen::Unanswered(why) => check.unanswered(why),
        Seen::Failed(why) => check.problem(
            format!("the functions cannot reach it: {why}"),
            "If the endpoint is private, give the functions subnets and a security group from which it is reached (variable vpc).",
        ),
    }
}

fn examine_permissions(inside: &Inside) -> Finding {
    let check = Check::only("permissions");
    check.judge(&inside.missing_permissions, |missing| {
        if missing.is_empty() {
            let groups = AccessGroup::ALL.map(AccessGroup::name).join(", ");
            return check.ok(format!("the groups {groups} may make every call that is used"));
        }
        check.problem(missing.join("; "), APPLY_MANIFEST)
    })
}

/// Checks for the namespace of the Leases. Without it there are no Roles in it, so the groups may use no Lease.
/// None if the groups may use Leases, or if their permissions are unknown.
fn examine_namespace(inside: &Inside) -> Option<Finding> {
    let missing = inside.missing_permissions.as_ref().found()?;
    let is_missing =
        |permission: &Permission| missing.iter().any(|text| text.contains(&permission.to_string()));
    let mut on_leases = PERMISSIONS
        .iter()
        .filter(|permission| permission.namespace.is_some());
    on_leases.all(is_missing).then(|| {
        let found =
            format!("the groups may use no Lease in {NAMESPACE}: the namespace or its Roles are missing");
        Check::only("namespace").problem(found, APPLY_MANIFEST)
    })
}

/// Checks that the functions reach each service. From a private subnet, each service needs a NAT gateway or an endpoint.
/// All functions are in the same subnets.
fn examine_endpoints(inside: &Inside) -> Vec<Finding> {
    let scaling = examine_endpoint("Auto Scaling", &inside.groups, |groups| {
        format!("answers: {} of the cluster", count(groups.len(), "group"))
    });
    let ec2 = examine_endpoint("EC2", &inside.instances, |known| {
        format!("answers: it knows {known} of their members")
    });
    let states = inside.step_functions.iter();
    let states = states.map(|seen| examine_endpoint("Step Functions", seen, |()| "answers".to_owned()));
    [scaling, ec2].into_iter().chain(states).collect()
}

fn examine_endpoint<T>(service: &'static str, seen: &Seen<T>, text: impl FnOnce(&T) -> String) -> Finding {
    let check = Check::new("endpoint", service);
    match seen {
        Seen::Found(found) => check.ok(text(found)),
        Seen::Unanswered(why) => check.unanswered(why),
        Seen::Denied(why) | Seen::Failed(why) => check.problem(
            format!("the functions cannot use it: {why}"),
            "Check that the functions' subnets have a route to it, and that their roles have the module's policies.",
        ),
    }
}

fn examine_nodes(nodes: &Nodes) -> Vec<Finding> {
    let check = Check::only("Nodes");
    let odd = [
        (
            &nodes.without_instance,
            "name no EC2 instance, and are never recycled",
            "Do nothing if they are Fargate's. Otherwise check their spec.providerID.",
        ),
        (
            &nodes.instance_gone,
            "have instances that are gone",
            "If the cluster's cloud controller does not delete them, use kubectl delete node.",
        ),
        (
            &nodes.without_group,
            "have instances in no group of the cluster, and are never recycled",
            "Do nothing if they are Karpenter's or EKS Auto Mode's. Otherwise tag their group kubernetes.io/cluster/<name> = owned.",
        ),
        (
            &nodes.unreadable,
            "cannot be read, and are left out of sweeps and rotations",
            "Find the tool that wrote the field: kubectl get node <name> --output yaml --show-managed-fields.",
        ),
    ];
    let odd = odd.into_iter().filter(|(names, _, _)| !names.is_empty());
    let found = odd.map(|(names, what, remedy)| {
        let nodes = count(names.len(), "Node");
        check.warning(format!("{nodes} {what}: {}", name_some(names)), remedy)
    });
    let all = count(nodes.count as usize, "Node");
    let all_are_well = format!("{all}, each with its instance and group");
    check.or_ok(found.collect(), all_are_well)
}

/// Checks that the members have the cluster's tag. Pre-flight refuses members without it, one node at a time.
/// None if the function does not check the tag.
/// None also if EC2 gave no answer, because the finding of its endpoint reports that.
fn examine_tags(seen: &Installation, untagged: Option<&Seen<Vec<InstanceId>>>) -> Option<Finding> {
    let (check, tag) = (Check::only("cluster tag"), cluster_tag(&seen.cluster));
    let untagged = untagged?.as_ref().found()?;
    if untagged.is_empty() {
        return Some(check.ok(format!("every member of the groups has {tag}")));
    }
    let names: Vec<String> = untagged.iter().map(ToString::to_string).collect();
    let members = count(names.len(), "member");
    let some = name_some(&names);
    let command = tag_instances(&untagged[..untagged.len().min(MOST_IN_COMMAND)], &seen.cluster);
    Some(check.problem(
        format!("{members} without {tag} cannot be recycled: {some}"),
        format!("{command} # also tag their groups with propagation, so that new members have the tag"),
    ))
}

/// Checks for members that recycle-eks could not restore, or whose drain under a hook is out of time. None if there are none, or if it is not known.
fn examine_given_up(given_up: Option<&Seen<Vec<InstanceId>>>) -> Option<Finding> {
    let given_up = given_up?.as_ref().found()?;
    let first = given_up.first()?;
    let names: Vec<String> = given_up.iter().map(ToString::to_string).collect();
    let members = count(names.len(), "member");
    Some(Check::only("restores").problem(
        format!("an operator must act on {members}: {}", name_some(&names)),
        format!("recycle-eks status {first} # prints the state and the commands"),
    ))
}
