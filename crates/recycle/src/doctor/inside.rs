//! Checks what the functions see: the cluster, its nodes and their tags.

use crate::base::ids::InstanceId;
use crate::cluster::cluster_tag::{cluster_tag, tag_instances};
use crate::doctor::facts::{Inside, Installation, Nodes, Seen};
use crate::doctor::finding::Finding;
use crate::doctor::finding::{MOST_IN_COMMAND, count, judge, name_some, unanswered};

pub(crate) fn examine_inside(seen: &Installation, inside: &Seen<Inside>) -> Vec<Finding> {
    judge("select-nodes", "", inside, |inside| {
        [
            vec![examine_code(seen, inside)],
            examine_api_server(inside),
            examine_permissions(inside),
            examine_endpoints(inside),
            judge("Nodes", "", &inside.nodes, examine_nodes),
            examine_tags(seen, inside.untagged.as_ref()),
        ]
        .concat()
    })
}

fn examine_code(seen: &Installation, inside: &Inside) -> Finding {
    if inside.version == seen.version {
        return Finding::ok("code", "select-nodes", format!("version {}", inside.version));
    }
    let found = format!(
        "its code is of version {}, this command line of {}",
        inside.version, seen.version
    );
    Finding::warning(
        "code",
        "select-nodes",
        found,
        "Take module, packages and command line from the same release.",
    )
}

fn examine_api_server(inside: &Inside) -> Vec<Finding> {
    let check = "API server";
    match &inside.api_server {
        Seen::Found(version) => vec![Finding::ok(
            check,
            "",
            format!("reached by the functions, version {version}"),
        )],
        Seen::Denied(why) => vec![Finding::problem(
            check,
            "",
            format!("the functions are not let in: {why}"),
            "Give the functions' roles access entries (create_access_entries, or for every role of the output role_arns).",
        )],
        Seen::Unanswered(why) => vec![unanswered(check, "", why)],
        Seen::Failed(why) => vec![Finding::problem(
            check,
            "",
            format!("the functions cannot reach it: {why}"),
            "If the endpoint is private, give the functions subnets and a security group from which it is reached (variable vpc).",
        )],
    }
}

fn examine_permissions(inside: &Inside) -> Vec<Finding> {
    let check = "ClusterRole";
    judge(check, "", &inside.missing_permissions, |missing| {
        vec![if missing.is_empty() {
            Finding::ok(check, "", "allows every verb that is used")
        } else {
            Finding::problem(
                check,
                "",
                format!("does not allow {}", missing.join(", ")),
                "terraform output -raw rbac_manifest | kubectl apply -f -",
            )
        }]
    })
}

/// From a private subnet each service needs its way, by NAT or by an endpoint. All functions are in the same subnets.
fn examine_endpoints(inside: &Inside) -> Vec<Finding> {
    let step_functions = inside.step_functions.as_ref();
    [
        Some(examine_endpoint("Auto Scaling", &inside.groups, |groups| {
            format!("answers: {} of the cluster", count(groups.len(), "group"))
        })),
        Some(examine_endpoint("EC2", &inside.instances, |known| {
            format!("answers: it knows {known} of their members")
        })),
        step_functions.map(|seen| examine_endpoint("Step Functions", seen, |()| "answers".to_owned())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn examine_endpoint<T>(service: &'static str, seen: &Seen<T>, text: impl FnOnce(&T) -> String) -> Finding {
    match seen {
        Seen::Found(found) => Finding::ok("endpoint", service, text(found)),
        Seen::Unanswered(why) => unanswered("endpoint", service, why),
        Seen::Denied(why) | Seen::Failed(why) => Finding::problem(
            "endpoint",
            service,
            format!("the functions cannot use it: {why}"),
            "See that the functions' subnets have a way to it, and their roles the module's policies.",
        ),
    }
}

fn examine_nodes(nodes: &Nodes) -> Vec<Finding> {
    let odd = [
        (
            &nodes.without_instance,
            "name no EC2 instance, and are never recycled",
            "Nothing, if they are Fargate's; else see their spec.providerID.",
        ),
        (
            &nodes.instance_gone,
            "have instances that are gone",
            "kubectl delete node, if the cluster's cloud controller does not.",
        ),
        (
            &nodes.without_group,
            "have instances in no group of the cluster, and are never recycled",
            "Nothing, if they are Karpenter's or EKS Auto Mode's; else tag their group kubernetes.io/cluster/<name> = owned.",
        ),
        (
            &nodes.unreadable,
            "cannot be read, and are left out of sweeps and rotations",
            "See who wrote the field: kubectl get node <name> --output yaml --show-managed-fields.",
        ),
    ];
    let found: Vec<Finding> = odd
        .into_iter()
        .filter(|(names, _, _)| !names.is_empty())
        .map(|(names, what, mend)| {
            let found = format!("{} {what}: {}", count(names.len(), "Node"), name_some(names));
            Finding::warning("Nodes", "", found, mend)
        })
        .collect();
    if found.is_empty() {
        return vec![Finding::ok(
            "Nodes",
            "",
            format!(
                "{}, each with its instance and group",
                count(nodes.count as usize, "Node")
            ),
        )];
    }
    found
}

/// What stops their recycling is refused by pre-flight, node by node.
fn examine_tags(seen: &Installation, untagged: Option<&Seen<Vec<InstanceId>>>) -> Vec<Finding> {
    let (check, tag) = ("cluster tag", cluster_tag(&seen.cluster));
    // Of EC2 that does not answer the endpoint's finding tells.
    let Some(Seen::Found(untagged)) = untagged else {
        return Vec::new();
    };
    if untagged.is_empty() {
        return vec![Finding::ok(
            check,
            "",
            format!("every member of the groups has {tag}"),
        )];
    }
    let names: Vec<String> = untagged.iter().map(ToString::to_string).collect();
    let members = count(names.len(), "member");
    vec![Finding::problem(
        check,
        "",
        format!(
            "{members} without {tag}, which cannot be recycled: {}",
            name_some(&names)
        ),
        format!(
            "{}; and tag their groups with propagation, so that new members have it",
            tag_instances(&untagged[..untagged.len().min(MOST_IN_COMMAND)], &seen.cluster)
        ),
    )]
}
