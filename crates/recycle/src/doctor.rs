//! What can be wrong with an installation: facts in, findings out, each with its mend.
//!
//! Who gathers the facts, it does not know: `select-nodes` those that only a function sees, the command line the others.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cluster_tag::{cluster_tag, tag_instances};
use crate::hook::{SHORTEST_HEARTBEAT, longest_hold};
use crate::ids::InstanceId;
use crate::names::LIFECYCLE_HOOK;
use crate::node::NodeList;
use crate::permissions::GROUP;
use crate::shell::quote;
use crate::sweep::INTERVAL;

/// Of how many Nodes or groups a finding names those that it is about.
const MOST_NAMES: usize = 5;

/// Instances in a command to paste: 25 characters each. The next look has the others.
const MOST_IN_COMMAND: usize = 50;

/// What was asked for, or why it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen<T> {
    /// The answer.
    Found(T),
    /// Whoever asked is not allowed to; the text says to what.
    Denied(String),
    /// Nobody knows, this time: the call was throttled, or not answered. The text says why.
    Unanswered(String),
    /// What was answered is wrong, or nothing can answer; the text says why.
    Failed(String),
}

impl<T> Seen<T> {
    /// The answer, if there is one.
    pub fn found(self) -> Option<T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Denied(_) | Self::Unanswered(_) | Self::Failed(_) => None,
        }
    }

    /// The same by reference.
    pub fn as_ref(&self) -> Seen<&T> {
        match self {
            Self::Found(found) => Seen::Found(found),
            Self::Denied(what) => Seen::Denied(what.clone()),
            Self::Unanswered(why) => Seen::Unanswered(why.clone()),
            Self::Failed(why) => Seen::Failed(why.clone()),
        }
    }

    /// Another answer, made of this one.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Seen<U> {
        self.and_then(|found| Seen::Found(make(found)))
    }

    /// Another answer, for which more is asked.
    pub fn and_then<U>(self, ask: impl FnOnce(T) -> Seen<U>) -> Seen<U> {
        match self {
            Self::Found(found) => ask(found),
            Self::Denied(what) => Seen::Denied(what),
            Self::Unanswered(why) => Seen::Unanswered(why),
            Self::Failed(why) => Seen::Failed(why),
        }
    }
}

/// What `select-nodes` sees, with its own role, from its own network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// The version of its code.
    pub version: String,
    /// The version of the API server, asked with a token.
    pub api_server: Seen<String>,
    /// What our ClusterRole should allow and the API server does not.
    pub missing_permissions: Seen<Vec<String>>,
    /// The names of the cluster's groups, from Auto Scaling.
    pub groups: Seen<Vec<String>>,
    /// How many members these groups have that EC2 knows.
    pub instances: Seen<u32>,
    /// The cluster's Nodes.
    pub nodes: Seen<Nodes>,
    /// The members of these groups without the cluster's tag; none if the function is of a version that does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untagged: Option<Seen<Vec<InstanceId>>>,
    /// Whether Step Functions answers; none if the function is of a version that does not ask it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_functions: Option<Seen<()>>,
}

/// The Nodes of a cluster, as far as they look odd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// How many there are.
    pub count: u32,
    /// Those that name no EC2 instance.
    pub without_instance: Vec<String>,
    /// Those whose instance EC2 does not know, or has terminated.
    pub instance_gone: Vec<String>,
    /// Those whose instance is a member of no group of the cluster.
    pub without_group: Vec<String>,
    /// Those that cannot be read, each with the field and what is wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Which Nodes look odd: `members` are those of the cluster's groups, `there` the instances that EC2 knows and that have not ended.
#[must_use]
pub fn find_odd_nodes(
    nodes: &NodeList,
    members: &BTreeSet<InstanceId>,
    there: &BTreeSet<InstanceId>,
) -> Nodes {
    let mut odd = Nodes {
        count: u32::try_from(nodes.readable.len() + nodes.unreadable.len()).unwrap_or(u32::MAX),
        unreadable: nodes.unreadable.iter().map(ToString::to_string).collect(),
        ..Nodes::default()
    };
    for node in &nodes.readable {
        let list = match &node.instance {
            None => &mut odd.without_instance,
            Some(instance) if !there.contains(instance) => &mut odd.instance_gone,
            Some(instance) if !members.contains(instance) => &mut odd.without_group,
            Some(_) => continue,
        };
        list.push(node.name.to_string());
    }
    odd
}

/// What the command line sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The module's `name`.
    pub name: String,
    /// The cluster.
    pub cluster: String,
    /// Now.
    pub now: Timestamp,
    /// The version of the command line.
    pub version: String,
    /// The state machines, by what they are called without the module's name.
    pub machines: BTreeMap<String, Seen<Option<Machine>>>,
    /// The functions, by step.
    pub functions: BTreeMap<String, Seen<Option<Function>>>,
    /// The cluster's `authenticationMode`.
    pub authentication: Seen<String>,
    /// By step: the Kubernetes groups of the access entry of the function's role; none if it has no entry.
    pub entries: BTreeMap<String, Seen<Option<Vec<String>>>>,
    /// The cluster's groups.
    pub groups: Seen<Vec<Group>>,
    /// The module's rules.
    pub rules: Seen<Vec<Rule>>,
    /// The topic that people are told by.
    pub topic: Seen<Topic>,
    /// How many messages lie in the dead-letter queue; none if there is no queue.
    pub dead_letters: Seen<Option<u32>>,
    /// The log groups of functions and machines, with the days that they keep; none: for ever.
    pub logs: Seen<BTreeMap<String, Option<u32>>>,
    /// The last executions of the sweep, the newest first.
    pub sweeps: Seen<Vec<Sweep>>,
}

/// A state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// `status`.
    pub status: String,
    /// The version behind the alias `live`; none without the alias.
    pub live: Option<String>,
    /// The newest version.
    pub newest: Option<String>,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// `State`.
    pub state: String,
    /// `LastUpdateStatus`.
    pub last_update: String,
    /// The module's version, which its description begins with.
    pub version: Option<String>,
    /// `ApplicationLogLevel`, if it is set.
    pub log_level: Option<String>,
    /// `drain_timeout_seconds` that executions have by default.
    pub drain_timeout: u32,
}

/// An Auto Scaling group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Minimum, desired capacity, maximum.
    pub sizes: (u32, u32, u32),
    /// Processes that are suspended.
    pub suspended: Vec<String>,
    /// `MaxInstanceLifetime` in seconds.
    pub max_lifetime: Option<u32>,
    /// It keeps instances whose hook was abandoned.
    pub retains: bool,
    /// The status of an instance refresh that is under way.
    pub refresh: Seen<Option<String>>,
    /// Its lifecycle hooks.
    pub hooks: Seen<Vec<Hook>>,
}

/// A lifecycle hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// It holds members that are terminated.
    pub on_termination: bool,
    /// `DefaultResult`.
    pub default_result: String,
    /// `HeartbeatTimeout` in seconds.
    pub heartbeat: u32,
}

/// A rule of EventBridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// It is enabled.
    pub is_enabled: bool,
    /// How many targets it has.
    pub targets: Seen<usize>,
    /// The text of its pattern, if it has one.
    pub pattern: Option<String>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its ARN.
    pub arn: String,
    /// Subscriptions that are confirmed.
    pub confirmed: usize,
    /// Subscriptions that are not.
    pub pending: usize,
}

/// An execution of the sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Its ARN.
    pub execution: String,
    /// `status`.
    pub status: String,
    /// When it began.
    pub started_at: Timestamp,
}

/// How a finding is meant. The worst of them is the exit code's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It could not be looked at.
    Unknown,
    /// It works, but some day it will not, or not as one expects.
    Warning,
    /// Nodes are not recycled, or not safely.
    Problem,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: &'static str,
    /// In what: a group, a function, a rule; empty if there is only one of it.
    pub of: String,
    /// How it is meant.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, of: &str, found: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, of, found, None)
    }

    fn warning(check: &'static str, of: &str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::new(Level::Warning, check, of, found, Some(mend.into()))
    }

    fn problem(check: &'static str, of: &str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::new(Level::Problem, check, of, found, Some(mend.into()))
    }

    fn new(
        level: Level,
        check: &'static str,
        of: &str,
        found: impl Into<String>,
        mend: Option<String>,
    ) -> Self {
        Self {
            check,
            of: of.to_owned(),
            level,
            found: found.into(),
            mend,
        }
    }
}

/// Everything that is found, in the order in which one would look: the code first, the groups last.
#[must_use]
pub fn examine(seen: &Installation, inside: &Seen<Inside>) -> Vec<Finding> {
    [
        examine_functions(seen),
        examine_machines(seen),
        examine_inside(seen, inside),
        examine_entries(seen, is_let_in(inside)),
        examine_sweeps(seen),
        examine_rules(seen),
        examine_topic(seen),
        examine_dead_letters(seen),
        examine_logs(seen),
        examine_groups(seen),
    ]
    .concat()
}

/// The worst of them.
#[must_use]
pub fn worst(findings: &[Finding]) -> Level {
    findings
        .iter()
        .map(|finding| finding.level)
        .max()
        .unwrap_or(Level::Ok)
}

/// What is judged if it is known; if not, that is the finding.
fn judge<T>(
    check: &'static str,
    of: &str,
    seen: &Seen<T>,
    judge: impl FnOnce(&T) -> Vec<Finding>,
) -> Vec<Finding> {
    match seen {
        Seen::Found(found) => judge(found),
        Seen::Denied(what) => vec![Finding::new(
            Level::Unknown,
            check,
            of,
            format!("unknown: not allowed to {what}"),
            Some(
                "Let whoever runs this have the policy of the module's output operator_policy_json."
                    .to_owned(),
            ),
        )],
        Seen::Unanswered(why) => vec![unanswered(check, of, why)],
        Seen::Failed(why) => vec![Finding::problem(
            check,
            of,
            format!("could not be asked: {why}"),
            "See the text.",
        )],
    }
}

/// That a call was throttled, or not answered, says nothing of what was asked.
fn unanswered(check: &'static str, of: &str, why: &str) -> Finding {
    Finding::new(
        Level::Unknown,
        check,
        of,
        format!("unknown: {why}"),
        Some("Ask again in a while.".to_owned()),
    )
}

/// What a module's apply puts right.
const APPLY: &str = "Apply the Terraform module again, with packages of its own version.";

fn examine_functions(seen: &Installation) -> Vec<Finding> {
    let each = seen.functions.iter().flat_map(|(step, function)| {
        judge("function", step, function, |function| {
            vec![examine_function(seen, step, function.as_ref())]
        })
    });
    each.collect()
}

fn examine_function(seen: &Installation, step: &str, function: Option<&Function>) -> Finding {
    let Some(function) = function else {
        return Finding::problem(
            "function",
            step,
            format!("there is no function {}-{step}", seen.name),
            APPLY,
        );
    };
    let version = function.version.as_deref().unwrap_or("unknown");
    if !matches!(function.state.as_str(), "Active" | "Inactive") || function.last_update == "Failed" {
        let found = format!(
            "its state is {}, its last update {}",
            function.state, function.last_update
        );
        return Finding::problem("function", step, found, APPLY);
    }
    if version != seen.version {
        let found = format!(
            "it is of version {version}, this command line of {}",
            seen.version
        );
        return Finding::warning(
            "function",
            step,
            found,
            "Take module, packages and command line from the same release.",
        );
    }
    // What is counted is lines of the log, of level INFO.
    match function.log_level.as_deref() {
        None | Some("INFO" | "DEBUG" | "TRACE") => Finding::ok(
            "function",
            step,
            format!("version {version}, {}", function.state.to_lowercase()),
        ),
        Some(level) => Finding::warning(
            "function",
            step,
            format!(
                "its log level is {level}: decisions are not logged, and the dashboard and the alarms see nothing"
            ),
            format!(
                "aws lambda update-function-configuration --function-name {} --logging-config LogFormat=JSON,ApplicationLogLevel=INFO",
                quote(&format!("{}-{step}", seen.name))
            ),
        ),
    }
}

fn examine_machines(seen: &Installation) -> Vec<Finding> {
    let each = seen.machines.iter().flat_map(|(machine, facts)| {
        judge("state machine", machine, facts, |facts| {
            vec![examine_machine(seen, machine, facts.as_ref())]
        })
    });
    each.collect()
}

/// Only `recycle-node` has versions and an alias: it outlives applies.
fn examine_machine(seen: &Installation, name: &str, machine: Option<&Machine>) -> Finding {
    let check = "state machine";
    let Some(machine) = machine else {
        return Finding::problem(
            check,
            name,
            format!("there is no state machine {}-{name}", seen.name),
            APPLY,
        );
    };
    if machine.status != "ACTIVE" {
        return Finding::problem(check, name, format!("its status is {}", machine.status), APPLY);
    }
    match (&machine.live, &machine.newest) {
        (None, Some(_)) => Finding::problem(
            check,
            name,
            "it has no alias live, which is what is started",
            APPLY,
        ),
        (Some(live), Some(newest)) if live != newest => Finding::warning(
            check,
            name,
            format!(
                "the alias live starts {}, the newest version is {}",
                last_part(live),
                last_part(newest)
            ),
            APPLY,
        ),
        (Some(live), _) => Finding::ok(
            check,
            name,
            format!("active, live starts version {}", last_part(live)),
        ),
        (None, None) => Finding::ok(check, name, "active"),
    }
}

fn last_part(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

fn examine_inside(seen: &Installation, inside: &Seen<Inside>) -> Vec<Finding> {
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

fn count(number: usize, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

fn name_some(names: &[String]) -> String {
    let some: Vec<&str> = names.iter().take(MOST_NAMES).map(String::as_str).collect();
    let more = names.len().saturating_sub(MOST_NAMES);
    if more == 0 {
        some.join(", ")
    } else {
        format!("{} and {more} more", some.join(", "))
    }
}

/// The function that asks the API server for `doctor`.
const ASKER: &str = "select-nodes";

/// Whether the API server has let `select-nodes` in, however its role came in.
fn is_let_in(inside: &Seen<Inside>) -> bool {
    match inside {
        Seen::Found(inside) => match inside.api_server {
            Seen::Found(_) => true,
            Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_) => false,
        },
        Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_) => false,
    }
}

/// A role without an access entry may be mapped by the ConfigMap aws-auth, which we may not read: that it is one sees by `select-nodes`.
fn examine_entries(seen: &Installation, is_let_in: bool) -> Vec<Finding> {
    let has_entry = match seen.entries.get(ASKER) {
        Some(Seen::Found(entry)) => entry.is_some(),
        Some(Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_)) | None => true,
    };
    let is_mapped = is_let_in && !has_entry;
    let mode = judge("authentication", "", &seen.authentication, |mode| {
        vec![examine_mode(seen, mode, is_mapped)]
    });
    let entries = seen.entries.iter().flat_map(|(step, entry)| {
        judge("access entry", step, entry, |groups| {
            vec![examine_entry(step, groups.as_deref(), is_mapped)]
        })
    });
    mode.into_iter().chain(entries).collect()
}

fn examine_mode(seen: &Installation, mode: &str, is_mapped: bool) -> Finding {
    let check = "authentication";
    if mode != "CONFIG_MAP" {
        return Finding::ok(check, "", format!("mode {mode}"));
    }
    let mend = format!(
        "aws eks update-cluster-config --name {} --access-config authenticationMode=API_AND_CONFIG_MAP, then apply the Terraform module \
         again with create_access_entries = true",
        quote(&seen.cluster)
    );
    if is_mapped {
        return Finding::warning(
            check,
            "",
            "mode CONFIG_MAP: roles are let in by the ConfigMap aws-auth alone, which EKS has deprecated",
            mend,
        );
    }
    Finding::problem(
        check,
        "",
        "mode CONFIG_MAP has no access entries, and the functions are not let in otherwise",
        mend,
    )
}

fn examine_entry(step: &str, groups: Option<&[String]>, is_mapped: bool) -> Finding {
    let check = "access entry";
    let mend = "Apply the Terraform module again, or make the entry for the role (output role_arns).";
    match groups {
        None if is_mapped && step == ASKER => Finding::warning(
            check,
            step,
            "its role has none, and is let in all the same: by the ConfigMap aws-auth",
            mend,
        ),
        None if is_mapped => Finding::warning(
            check,
            step,
            format!(
                "its role has none: it is let in if the ConfigMap aws-auth maps it, as it does that of {ASKER}"
            ),
            mend,
        ),
        None => Finding::problem(
            check,
            step,
            "its role has none: the cluster does not know the function",
            mend,
        ),
        Some(groups) if groups.iter().any(|group| group == GROUP) => {
            Finding::ok(check, step, format!("in the group {GROUP}"))
        }
        Some(groups) => Finding::problem(
            check,
            step,
            format!(
                "its role is not in the group {GROUP}, but in [{}]",
                groups.join(", ")
            ),
            mend,
        ),
    }
}

fn examine_sweeps(seen: &Installation) -> Vec<Finding> {
    let check = "sweep";
    judge(check, "", &seen.sweeps, |sweeps| {
        let start = format!("See that the rule {}-sweep-clock is enabled.", seen.name);
        vec![match sweeps
            .iter()
            .find(|sweep| sweep.status != "RUNNING")
            .or(sweeps.first())
        {
            None => Finding::problem(check, "", "none has ever run", start),
            Some(last) if seen.now.duration_since(last.started_at).as_secs() > 3 * INTERVAL => {
                Finding::problem(
                    check,
                    "",
                    format!("the last one began at {}", last.started_at),
                    start,
                )
            }
            Some(last) if matches!(last.status.as_str(), "SUCCEEDED" | "RUNNING") => Finding::ok(
                check,
                "",
                format!("the last one began at {} and is {}", last.started_at, last.status),
            ),
            Some(last) => Finding::problem(
                check,
                "",
                format!(
                    "the last one {}: what executions leave is not put back",
                    last.status
                ),
                format!(
                    "aws stepfunctions describe-execution --execution-arn {}",
                    quote(&last.execution)
                ),
            ),
        }]
    })
}

/// What the module makes whatever its variables are, without its name.
const RULES: [&str; 5] = [
    "sweep-clock",
    "sweep-ended-badly",
    "recycle-node-untold",
    "rotate-nodes-untold",
    "sweep-untold",
];

fn examine_rules(seen: &Installation) -> Vec<Finding> {
    judge("rule", "", &seen.rules, |rules| {
        let is_there = |name: &str| rules.iter().any(|rule| rule.name == name);
        let missing = RULES
            .map(|rule| format!("{}-{rule}", seen.name))
            .into_iter()
            .filter(|name| !is_there(name))
            .map(|name| Finding::problem("rule", &name, "there is no such rule", APPLY));
        missing.chain(rules.iter().flat_map(examine_rule)).collect()
    })
}

fn examine_rule(rule: &Rule) -> Vec<Finding> {
    if !rule.is_enabled {
        let mend = format!("aws events enable-rule --name {}", quote(&rule.name));
        return vec![Finding::problem("rule", &rule.name, "is disabled", mend)];
    }
    judge("rule", &rule.name, &rule.targets, |targets| {
        vec![match targets {
            0 => Finding::problem("rule", &rule.name, "has no target: it starts nothing", APPLY),
            targets => Finding::ok(
                "rule",
                &rule.name,
                format!("enabled, {}", count(*targets, "target")),
            ),
        }]
    })
}

fn examine_topic(seen: &Installation) -> Vec<Finding> {
    let check = "notifications";
    judge(check, "", &seen.topic, |topic| {
        let subscribe = format!(
            "aws sns subscribe --topic-arn {} --protocol email --notification-endpoint <address>",
            quote(&topic.arn)
        );
        vec![match (topic.confirmed, topic.pending) {
            (0, 0) => Finding::warning(check, "", "nobody subscribes to the topic", subscribe),
            (0, pending) => Finding::warning(
                check,
                "",
                format!(
                    "{} waits to be confirmed, none is",
                    count(pending, "subscription")
                ),
                "Confirm it by the link in the message that SNS has sent.",
            ),
            (confirmed, _) => Finding::ok(check, "", count(confirmed, "confirmed subscription")),
        }]
    })
}

fn examine_dead_letters(seen: &Installation) -> Vec<Finding> {
    let check = "dead letters";
    judge(check, "", &seen.dead_letters, |messages| {
        vec![match messages {
            None => Finding::problem(
                check,
                "",
                format!("there is no queue {}-dead-letters", seen.name),
                APPLY,
            ),
            Some(0) => Finding::ok(check, "", "none"),
            Some(messages) => Finding::warning(
                check,
                "",
                format!(
                    "{}: what they would have started did not start",
                    count(*messages as usize, "message")
                ),
                format!(
                    "Look at the messages of the queue {}-dead-letters, start by hand what is missing, and purge it.",
                    seen.name
                ),
            ),
        }]
    })
}

fn examine_logs(seen: &Installation) -> Vec<Finding> {
    let check = "logs";
    judge(check, "", &seen.logs, |logs| {
        let functions = seen
            .functions
            .keys()
            .map(|step| format!("/aws/lambda/{}-{step}", seen.name));
        let machines = seen
            .machines
            .keys()
            .map(|name| format!("/aws/vendedlogs/states/{}-{name}", seen.name));
        let odd: Vec<Finding> = functions
            .chain(machines)
            .filter_map(|name| match logs.get(&name) {
                None => Some(Finding::warning(
                    check,
                    &name,
                    "there is no such log group",
                    APPLY,
                )),
                Some(None) => Some(Finding::warning(check, &name, "it is kept for ever", APPLY)),
                Some(Some(_)) => None,
            })
            .collect();
        if odd.is_empty() {
            return vec![Finding::ok(check, "", "every log group is there and has an end")];
        }
        odd
    })
}

fn examine_groups(seen: &Installation) -> Vec<Finding> {
    judge("group", "", &seen.groups, |groups| {
        if groups.is_empty() {
            return vec![Finding::problem(
                "group",
                "",
                format!("no group has the tag {}", cluster_tag(&seen.cluster)),
                "Tag the Auto Scaling groups of the cluster's nodes with it (value owned).",
            )];
        }
        groups
            .iter()
            .flat_map(|group| examine_group(seen, group))
            .collect()
    })
}

fn examine_group(seen: &Installation, group: &Group) -> Vec<Finding> {
    let odd: Vec<Finding> = [
        examine_processes(group),
        examine_sizes(group),
        judge("instance refresh", &group.name, &group.refresh, |refresh| {
            examine_refresh(group, refresh.as_deref())
        }),
        judge("lifecycle hook", &group.name, &group.hooks, |hooks| {
            examine_hooks(seen, group, hooks)
        }),
    ]
    .concat();
    if odd.is_empty() {
        let (min, desired, max) = group.sizes;
        return vec![Finding::ok(
            "group",
            &group.name,
            format!("min {min}, desired {desired}, max {max}{}", describe_hook(group)),
        )];
    }
    odd
}

fn describe_hook(group: &Group) -> &'static str {
    if group.retains {
        ", our hook is there, and it keeps what the hook gives up"
    } else {
        ", our hook is there"
    }
}

/// Other processes are the group's own affair.
fn examine_processes(group: &Group) -> Vec<Finding> {
    let what = |process: &str| match process {
        "Launch" => Some((
            Level::Problem,
            "no replacement is launched, and no way leads back from Standby",
        )),
        "Terminate" => Some((Level::Problem, "no instance is terminated, a drained one neither")),
        "AddToLoadBalancer" => Some((
            Level::Warning,
            "replacements get no traffic from the group's load balancers",
        )),
        _ => None,
    };
    group
        .suspended
        .iter()
        .filter_map(|process| {
            let (level, meaning) = what(process)?;
            let mend = format!(
                "aws autoscaling resume-processes --auto-scaling-group-name {} --scaling-processes {process}",
                quote(&group.name)
            );
            Some(Finding::new(
                level,
                "suspended process",
                &group.name,
                format!("{process} is suspended: {meaning}"),
                Some(mend),
            ))
        })
        .collect()
}

fn examine_sizes(group: &Group) -> Vec<Finding> {
    let (min, desired, max) = group.sizes;
    if max == 0 || min < desired || desired < max {
        return Vec::new();
    }
    vec![Finding::warning(
        "sizes",
        &group.name,
        format!("minimum, desired capacity and maximum are all {max}: from Standby there is no way back"),
        format!(
            "aws autoscaling update-auto-scaling-group --auto-scaling-group-name {} --max-size {}, or recycle its nodes with replacement: after",
            quote(&group.name),
            max.saturating_add(1)
        ),
    )]
}

fn examine_refresh(group: &Group, refresh: Option<&str>) -> Vec<Finding> {
    let under_way = refresh.map(|status| {
        Finding::warning(
            "instance refresh",
            &group.name,
            format!("one is under way ({status}): until it ends, executions of its nodes are refused"),
            "Wait for its end, or cancel it.",
        )
    });
    under_way.into_iter().collect()
}

fn examine_hooks(seen: &Installation, group: &Group, hooks: &[Hook]) -> Vec<Finding> {
    let check = "lifecycle hook";
    let ours = hooks.iter().find(|hook| hook.name == LIFECYCLE_HOOK);
    let foreign: Vec<String> = hooks
        .iter()
        .filter(|hook| hook.on_termination && hook.name != LIFECYCLE_HOOK)
        .map(|hook| hook.name.clone())
        .collect();
    let mut found = match ours {
        Some(hook) => examine_our_hook(seen, group, hook),
        None => vec![examine_absence(group)],
    };
    if !foreign.is_empty() {
        found.push(Finding::warning(
            check,
            &group.name,
            format!("other hooks hold terminated members, too: {}", foreign.join(", ")),
            "See that whoever answers them does not drain the nodes as well: their time runs beside ours.",
        ));
    }
    found
}

fn examine_absence(group: &Group) -> Finding {
    let mend = "Name the group in the module's variable lifecycle_hooks.";
    match group.max_lifetime {
        Some(seconds) => Finding::problem(
            "lifecycle hook",
            &group.name,
            format!(
                "it ends instances after {} hours, and our hook is not there: nobody waits for their pods",
                seconds / 3_600
            ),
            mend,
        ),
        None => Finding::warning(
            "lifecycle hook",
            &group.name,
            "our hook is not there: what the group terminates itself, such as a scale-in, does not wait for pods",
            mend,
        ),
    }
}

fn examine_our_hook(seen: &Installation, group: &Group, hook: &Hook) -> Vec<Finding> {
    let check = "lifecycle hook";
    let of = &group.name;
    let mut found = Vec::new();
    if !hook.on_termination {
        return vec![Finding::problem(
            check,
            of,
            "the hook of our name does not hold what is terminated",
            APPLY,
        )];
    }
    if hook.default_result != "ABANDON" {
        let text = format!(
            "its default result is {}: the group keeps no instance whose hook times out",
            hook.default_result
        );
        found.push(Finding::warning(check, of, text, APPLY));
    }
    if hook.heartbeat < SHORTEST_HEARTBEAT {
        let text = format!(
            "its heartbeat time-out is {} s: executions need {SHORTEST_HEARTBEAT} s",
            hook.heartbeat
        );
        found.push(Finding::problem(
            check,
            of,
            text,
            "Raise heartbeat_timeout_seconds in lifecycle_hooks.",
        ));
    }
    found.extend(examine_hook_time(seen, group, hook));
    found.extend(examine_hook_rule(seen, group));
    found
}

fn examine_hook_time(seen: &Installation, group: &Group, hook: &Hook) -> Option<Finding> {
    let lasts = longest_hold(hook.heartbeat);
    let claim_node = seen.functions.get("claim-node");
    let drain = match claim_node {
        Some(Seen::Found(Some(function))) => i64::from(function.drain_timeout),
        Some(Seen::Found(None) | Seen::Denied(_) | Seen::Unanswered(_) | Seen::Failed(_)) | None => {
            return None;
        }
    };
    (lasts < drain && !group.retains).then(|| {
        Finding::warning(
            "lifecycle hook",
            &group.name,
            format!("it lasts {} hours at most, a drain may take {}: then the node goes with its pods", lasts / 3_600, drain / 3_600),
            "Let the group keep what the hook gives up (instance lifecycle policy, TerminateHookAbandon = retain), raise heartbeat_timeout_seconds, or give drains less time.",
        )
    })
}

/// Without it the sweep finds the node all the same, up to a quarter of an hour later.
fn examine_hook_rule(seen: &Installation, group: &Group) -> Option<Finding> {
    let Seen::Found(rules) = &seen.rules else {
        return None;
    };
    let named = serde_json::Value::from(group.name.as_str()).to_string();
    let hears = |rule: &Rule| {
        let pattern = rule.pattern.as_deref().unwrap_or_default();
        rule.is_enabled && pattern.contains("LifecycleHookName") && pattern.contains(&named)
    };
    (!rules.iter().any(hears)).then(|| {
        Finding::warning(
            "lifecycle hook",
            &group.name,
            "no rule hears of it: only the sweep finds what it holds",
            APPLY,
        )
    })
}

#[cfg(test)]
mod tests;
