use crate::rotation::canary::find_newer_members;
use crate::rotation::selection::choose_members;
use serde_json::{Value, json};

use super::*;
use crate::base::names::CLAIM_ANNOTATION;
use crate::cluster::instance::Instance;
use crate::cluster::node::UnreadableNode;
use crate::fixtures::{ARN, NEW, OLD, OTHER, at, claim, id, instance, leased, leases, node, strings};
use crate::records::claim::Phase;
use crate::rotation::request::Selection;

const HOUR: i64 = 3_600;

fn rotation() -> ExecutionArn {
    ARN.replace("recycle-node", "rotate-nodes").parse().unwrap()
}

fn machine(name: &str, launched: i64) -> Machine {
    Machine {
        instance: Instance {
            id: id(name),
            ..instance()
        },
        launched_at: at(launched),
        image: "ami-1".to_owned(),
    }
}

fn template(version: &str) -> Template {
    Template {
        id: "lt-1".to_owned(),
        version: version.to_owned(),
    }
}

/// Returns a group of members, each with its zone and the template version that it was launched from.
fn fleet(members: &[(&str, &str, &str)]) -> Fleet {
    Fleet {
        name: "workers".parse().unwrap(),
        tags: strings([("team", "batch")]),
        template: Some(template("$Latest")),
        overrides: BTreeMap::new(),
        rebalances_capacity: false,
        room: 3,
        members: members
            .iter()
            .map(|(name, version, zone)| FleetMember {
                instance: id(name),
                lifecycle_state: "InService".to_owned(),
                instance_type: "m7i.large".to_owned(),
                zone: (*zone).to_owned(),
                template: Some(template(version)),
            })
            .collect(),
    }
}

fn node_of(name: &str, kubelet: &str, labels: &[(&str, &str)]) -> NodeFacts {
    NodeFacts {
        instance: Some(id(name)),
        kubelet: kubelet.to_owned(),
        labels: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..node("a")
    }
}

fn outdated(json: Value) -> Outdated {
    serde_json::from_value(json).unwrap()
}

fn templates() -> BTreeMap<Template, TemplateFacts> {
    let facts = TemplateFacts {
        version: "2".to_owned(),
        image: Some("ami-2".to_owned()),
    };
    [(template("$Latest"), facts)].into()
}

#[test]
fn a_member_is_outdated_if_it_passes_the_filters_and_meets_a_criterion() {
    let found = fleet(&[(OLD, "1", "a"), (NEW, "2", "a")]);
    let machines = [
        machine(OLD, 0),
        Machine {
            image: "ami-2".to_owned(),
            ..machine(NEW, 5 * HOUR)
        },
    ];
    let nodes = [
        node_of(OLD, "v1.32.9-eks-1", &[("pool", "a")]),
        node_of(NEW, "v1.33.1-eks-1", &[("pool", "b")]),
    ];
    let templates = templates();
    for (selection, hour, expected) in [
        (json!({"launch_template": true}), 6, &[OLD][..]),
        (json!({"ami": true}), 6, &[OLD][..]),
        (json!({"kubelet": true}), 6, &[OLD][..]),
        (json!({"older_than": "5h"}), 6, &[OLD][..]),
        (json!({"older_than": "5h"}), 5, &[][..]),
        (json!({"older_than": "5h", "ami": true}), 11, &[OLD, NEW][..]),
        (json!({"launched_before": "2027-01-01T05:00:00Z"}), 6, &[OLD][..]),
        (json!({"all": true}), 6, &[OLD, NEW][..]),
        (
            json!({"all": true, "node_labels": "pool in (b, c)"}),
            6,
            &[NEW][..],
        ),
        (json!({"ami": true, "node_labels": "pool=b"}), 6, &[][..]),
    ] {
        let known = OutdatedFacts {
            leases: &[],
            machines: &machines,
            templates: &templates,
            nodes: &nodes,
            control_plane: Release::read("1.33"),
            now: at(hour * HOUR),
        };
        let selected = Selection::Outdated(outdated(selection.clone()));
        let chosen = choose_members(&selected, &found, &known, &rotation()).nodes;
        let names: Vec<&str> = chosen.iter().map(InstanceId::as_str).collect();
        assert_eq!(names, expected, "{selection}");
    }
}

#[test]
fn the_criteria_that_each_node_meets_are_listed() {
    let found = fleet(&[(OLD, "1", "a"), (NEW, "2", "a")]);
    let machines = [machine(OLD, 0), machine(NEW, 5 * HOUR)];
    let nodes = [
        node_of(OLD, "v1.32.9-eks-1", &[]),
        node_of(NEW, "v1.33.1-eks-1", &[]),
    ];
    let templates = templates();
    let known = OutdatedFacts {
        leases: &[],
        machines: &machines,
        templates: &templates,
        nodes: &nodes,
        control_plane: Release::read("1.33"),
        now: at(6 * HOUR),
    };
    let behind = outdated(json!({"launch_template": true}));
    let are = found
        .members
        .iter()
        .map(|member| is_outdated(&behind, &found, member, &known));
    assert_eq!(are.collect::<Vec<_>>(), [true, false]);
    let choose = |selection| choose_members(&selection, &found, &known, &rotation());
    let every = json!({"launch_template": true, "ami": true, "kubelet": true, "older_than": "5h",
        "launched_before": "2027-01-01T05:00:00Z", "all": true});
    let mut chosen = choose(Selection::Outdated(outdated(every)));
    let expected = json!({"launch_template": [0], "ami": [0, 1], "kubelet": [0], "older_than": [0], "launched_before": [0],
        "all": [0, 1]});
    assert_eq!(json!(chosen.criteria), expected);
    assert_eq!((chosen.cut(1).len(), chosen.nodes.len()), (1, 1));
    assert_eq!(json!(chosen.criteria)["ami"], json!([0]));
    let listed = choose(Selection::InstanceIds(vec![id(NEW)]));
    assert_eq!(json!(listed.criteria), json!({"instance_ids": [0]}));
}

#[test]
fn nodes_are_ordered_by_zone_and_age_without_those_of_other_executions() {
    const LAST: &str = "i-0dddddddddddddddd";
    let found = fleet(&[
        (OLD, "1", "b"),
        (NEW, "1", "a"),
        (OTHER, "1", "a"),
        (LAST, "1", "b"),
    ]);
    let machines = [
        machine(OLD, 30),
        machine(NEW, 20),
        machine(OTHER, 10),
        machine(LAST, 15),
    ];
    let templates = templates();
    let choose = |leases: &[Lease], selection: &Selection| {
        let known = OutdatedFacts {
            leases,
            machines: &machines,
            templates: &templates,
            nodes: &[],
            control_plane: None,
            now: at(HOUR),
        };
        choose_members(selection, &found, &known, &rotation())
    };
    let all = Selection::Outdated(outdated(json!({"all": true})));
    assert_eq!(choose(&[], &all).nodes, [OTHER, NEW, LAST, OLD].map(id));
    let listed = Selection::InstanceIds(vec![id(OLD), id(OTHER)]);
    assert_eq!(choose(&[], &listed).nodes, [OTHER, OLD].map(id));
    let own = serde_json::to_string(&claim(Phase::Draining)).unwrap();
    let foreign = own.replace("recycle-eks-", "other-");
    for (text, left_out) in [
        (own.as_str(), 1),
        (foreign.as_str(), 0),
        (r#"{"schema": 2}"#, 0),
        ("x", 0),
    ] {
        let other = NodeFacts {
            instance: Some(id(OTHER)),
            ..node("a")
        };
        let claimed = leases(&[leased(other, [(CLAIM_ANNOTATION, text)])]);
        let chosen = choose(&claimed, &all);
        let found = (chosen.nodes.contains(&id(OTHER)), chosen.claimed);
        assert_eq!(found, (left_out == 0, left_out), "{text}");
    }
}

#[test]
fn nodes_and_templates_are_read_for_the_criteria_that_need_them() {
    for (json, nodes, templates) in [
        (json!({"outdated": {"all": true}}), false, false),
        (json!({"outdated": {"older_than": "1d"}}), false, false),
        (json!({"outdated": {"kubelet": true}}), true, false),
        (
            json!({"outdated": {"all": true, "node_labels": "team=a"}}),
            true,
            false,
        ),
        (json!({"outdated": {"launch_template": true}}), false, true),
        (json!({"outdated": {"ami": true}}), false, true),
        (json!({"instance_ids": [OLD]}), false, false),
    ] {
        let selection: Selection = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(
            (selection.asks_nodes(), selection.asks_templates()),
            (nodes, templates),
            "{json}"
        );
    }
}

#[test]
fn outdated_nodes_are_searched_in_the_selected_groups() {
    let fleets = [fleet(&[])];
    let cluster = "world".parse().unwrap();
    let find = |json: Value| find_fleets(&outdated(json), &fleets, &cluster).map(|found| found.len());
    assert_eq!(find(json!({})), Ok(1));
    assert_eq!(find(json!({"groups": ["workers"]})), Ok(1));
    assert_eq!(
        find(json!({"group_tag": {"key": "team", "value": "batch"}})),
        Ok(1)
    );
    assert_eq!(find(json!({"group_tag": {"key": "team", "value": "web"}})), Ok(0));
    let refused = find(json!({"groups": ["wrokers"]})).unwrap_err().to_string();
    assert_eq!(refused, "selection: wrokers is not a group of cluster world");
}

#[test]
fn a_replacement_is_checked_by_the_criteria_that_a_good_one_does_not_meet() {
    for (given, left) in [
        (json!({"all": true}), None),
        (json!({"launched_before": "2027-01-01T00:00:00Z"}), None),
        (json!({"older_than": "12h"}), None),
        (
            json!({"all": true, "ami": true, "node_labels": "a"}),
            Some(json!({"ami": true})),
        ),
        (json!({"kubelet": true}), Some(json!({"kubelet": true}))),
    ] {
        assert_eq!(
            outdated(given.clone()).for_replacement(),
            left.map(outdated),
            "{given}"
        );
    }
}

#[test]
fn a_release_is_read_from_versions_and_image_names() {
    for (text, expected) in [
        ("v1.33.4-eks-1a2b3c4", Some("1.33")),
        ("1.33", Some("1.33")),
        ("v1.33+", Some("1.33")),
        ("", None),
        ("latest", None),
    ] {
        assert_eq!(
            Release::read(text).map(|release| release.to_string()).as_deref(),
            expected,
            "{text}"
        );
    }
    for (name, expected) in [
        (
            "amazon-eks-node-al2023-x86_64-standard-1.33-v20260101",
            Some("1.33"),
        ),
        ("amazon-eks-arm64-node-1.31-v20250601", Some("1.31")),
        ("bottlerocket-aws-k8s-1.34-x86_64-v1.40.0-1a2b3c4d", Some("1.34")),
        (
            "ubuntu-eks/k8s_1.32/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-20260101",
            Some("1.32"),
        ),
        ("my-image-1.99", None),
        ("amazon-eks-node-al2023-x86_64-standard", None),
    ] {
        assert_eq!(
            Release::read_image(name)
                .map(|release| release.to_string())
                .as_deref(),
            expected,
            "{name}"
        );
    }
    assert!(Release::read("1.9") < Release::read("1.10"));
}

#[test]
fn an_answer_lists_as_many_groups_with_nodes_to_recycle_as_fit() {
    let of = |count: usize| Chosen {
        nodes: vec![id(OLD); count],
        claimed: 1,
        ..Chosen::default()
    };
    let found = vec![("a".parse().unwrap(), of(2)), ("b".parse().unwrap(), of(0))];
    let groups = choose_groups(found, &[]);
    assert_eq!(groups.groups, ["a".parse().unwrap()]);
    assert_eq!(
        groups.reason,
        "2 nodes to recycle, in 1 of 2 groups; executions already work on 2 more"
    );
    // Each name counts with three characters more, and together they may have 6,000.
    let mut names: Vec<String> = (0..29).map(|number| format!("{number:a>197}")).collect();
    names.extend([format!("{:b>200}", ""), "c".to_owned()]);
    let found = names.iter().map(|name| (name.parse().unwrap(), of(1)));
    let groups = choose_groups(found.collect(), &[]);
    let fit: Vec<&str> = groups.groups.iter().map(GroupName::as_str).collect();
    assert_eq!(fit, names[..30]);
    assert!(
        groups
            .reason
            .starts_with("30 nodes to recycle, in 30 of 31 groups")
            && groups.reason.contains("1 group left for"),
        "{}",
        groups.reason
    );
    let idle = Chosen { claimed: 0, ..of(1) };
    assert_eq!(
        choose_groups(
            vec![("a".parse().unwrap(), idle)],
            &["cannot read group b".to_owned()]
        )
        .reason,
        "1 node to recycle, in 1 of 1 group; cannot read group b"
    );
    let many = (0..100).map(|n| (format!("{}{n}", "g".repeat(250)).parse().unwrap(), of(1)));
    let groups = choose_groups(many.collect(), &[]);
    let length: usize = groups.groups.iter().map(|name| name.as_str().len() + 3).sum();
    assert!(length < 7_000, "{length}");
    assert!(
        groups.reason.contains("groups left for the next rotation"),
        "{}",
        groups.reason
    );
}

#[test]
fn the_launch_source_is_described_and_its_change_is_detected() {
    let (found, mut facts) = (fleet(&[]), templates());
    let before = describe_launch_source(&found, &facts);
    assert_eq!(describe_launch_source(&found, &templates()), before);
    let used = TemplateFacts {
        version: "7".to_owned(),
        image: None,
    };
    let newest = TemplateFacts {
        version: "9".to_owned(),
        image: None,
    };
    let named = template("$Default");
    assert_eq!(
        describe_source(Some(&named), Some(&used), Some(&newest)),
        "group uses template version 7 = $Default; newest is 9"
    );
    facts.insert(template("$Latest"), newest);
    assert_ne!(describe_launch_source(&found, &facts), before);
}

#[test]
fn only_members_that_have_what_the_group_launches_and_agree_show_a_kubelet_that_is_too_new() {
    let found = fleet(&[(OLD, "1", "a"), (NEW, "2", "a"), (OTHER, "2", "a")]);
    let current = |name: &str| Machine {
        image: "ami-2".to_owned(),
        ..machine(name, 0)
    };
    let machines = [machine(OLD, 0), current(NEW), current(OTHER)];
    let templates = templates();
    let (new, fine) = ("v1.34.0", "v1.33.0");
    for (name, old, one, other, selected, is_found) in [
        ("all agree", fine, new, new, &[][..], true),
        ("one does not", fine, new, fine, &[], false),
        ("one does not say it", fine, new, "", &[], false),
        ("an old member", new, fine, fine, &[], false),
        ("a selected one", fine, fine, new, &[NEW], true),
        ("all are selected", new, new, new, &[OLD, NEW, OTHER], false),
    ] {
        let nodes = [
            node_of(OLD, old, &[]),
            node_of(NEW, one, &[]),
            node_of(OTHER, other, &[]),
        ];
        let known = OutdatedFacts {
            leases: &[],
            machines: &machines,
            templates: &templates,
            nodes: &nodes,
            control_plane: Release::read("1.33"),
            now: at(0),
        };
        let selected: Vec<InstanceId> = selected.iter().map(|name| id(name)).collect();
        let newer = find_newer_members(&found, &selected, &known);
        assert_eq!(newer.is_some(), is_found, "{name}");
        let unknown = OutdatedFacts {
            control_plane: None,
            nodes: &nodes[..0],
            ..known
        };
        assert_eq!(find_newer_members(&found, &selected, &unknown), None);
    }
}

#[test]
fn a_member_is_undecided_if_only_its_node_could_say_that_it_is_outdated() {
    let found = fleet(&[(OLD, "1", "a")]);
    let machines = [machine(OLD, 0)];
    let templates = templates();
    let labels = || vec![node_of(OLD, "v1.33.1", &[("pool", "a")])];
    let version = || vec![node_of(OLD, "new", &[("pool", "a")])];
    for (name, selection, nodes, now, chosen, undecided) in [
        (
            "AWS decides",
            json!({"launch_template": true}),
            vec![],
            HOUR,
            1,
            0,
        ),
        (
            "AWS decides first",
            json!({"launch_template": true, "kubelet": true}),
            vec![],
            HOUR,
            1,
            0,
        ),
        ("no version", json!({"kubelet": true}), vec![], HOUR, 0, 1),
        (
            "no version in its Node",
            json!({"kubelet": true}),
            version(),
            HOUR,
            0,
            1,
        ),
        ("a version", json!({"kubelet": true}), labels(), HOUR, 0, 0),
        (
            "no labels",
            json!({"all": true, "node_labels": "pool=a"}),
            vec![],
            HOUR,
            0,
            1,
        ),
        (
            "labels",
            json!({"all": true, "node_labels": "pool=a"}),
            labels(),
            HOUR,
            1,
            0,
        ),
        (
            "others",
            json!({"all": true, "node_labels": "pool=b"}),
            labels(),
            HOUR,
            0,
            0,
        ),
        (
            "neither",
            json!({"kubelet": true, "node_labels": "pool=a"}),
            vec![],
            HOUR,
            0,
            1,
        ),
        (
            "others, no version",
            json!({"kubelet": true, "node_labels": "pool=b"}),
            version(),
            HOUR,
            0,
            0,
        ),
        (
            "young enough",
            json!({"older_than": "1d", "node_labels": "pool=a"}),
            vec![],
            HOUR,
            0,
            0,
        ),
        ("just launched", json!({"kubelet": true}), vec![], 900, 0, 0),
        (
            "launched a while ago",
            json!({"kubelet": true}),
            vec![],
            901,
            0,
            1,
        ),
    ] {
        let known = OutdatedFacts {
            leases: &[],
            machines: &machines,
            templates: &templates,
            nodes: &nodes,
            control_plane: Release::read("1.33"),
            now: at(now),
        };
        let selection = Selection::Outdated(outdated(selection));
        let choice = choose_members(&selection, &found, &known, &rotation());
        assert_eq!(
            (choice.nodes.len(), choice.undecided.len()),
            (chosen, undecided),
            "{name}"
        );
        let claimed = leases(&[leased(
            node_of(OLD, "", &[]),
            [(
                CLAIM_ANNOTATION,
                serde_json::to_string(&claim(Phase::Draining)).unwrap().as_str(),
            )],
        )]);
        let known = OutdatedFacts {
            leases: &claimed,
            ..known
        };
        let choice = choose_members(&selection, &found, &known, &rotation());
        assert_eq!((choice.nodes.len(), choice.undecided.len()), (0, 0), "{name}");
    }
}

#[test]
fn an_undecided_member_is_named_with_its_reason_and_needs_its_group() {
    let nodes = NodeList {
        readable: vec![node_of(NEW, "new", &[])],
        unreadable: vec![UnreadableNode {
            name: "a".to_owned(),
            instance: Some(id(OLD)),
            why: "spec.taints: no".to_owned(),
        }],
    };
    assert_eq!(describe_undecided(&[], &nodes), None);
    assert_eq!(
        describe_undecided(&[id(OLD), id(NEW), id(OTHER)], &nodes).unwrap(),
        format!(
            "no Node says whether 3 members must be recycled: {OLD} (spec.taints: no), {NEW} (no version of its kubelet), {OTHER} (no Node)"
        )
    );
    let undecided = Chosen {
        undecided: vec![id(OLD)],
        ..Chosen::default()
    };
    let groups = choose_groups(vec![("a".parse().unwrap(), undecided)], &[]);
    assert_eq!(groups.groups.len(), 1);
}
