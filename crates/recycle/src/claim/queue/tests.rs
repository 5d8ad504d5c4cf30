//! The rules as tables, and random orders of the steps of up to four nodes of a group.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::base::ids::Fence;
use crate::base::names::CLAIM_ANNOTATION;
use crate::cluster::balancers::Balancer;
use crate::cluster::node::NodeFacts;
use crate::fixtures::{NEW, OLD, OTHER, at, claim, group, id, input, leased, leases, member, node};

const ONE: Limits = Limits {
    parallel: 1,
    surge: 2,
};
const TWO: Limits = Limits {
    parallel: 2,
    surge: 3,
};

/// Returns an instance for each name. The order of the instances is that of the last characters of the names.
fn instance_of(name: &str) -> InstanceId {
    format!("i-{:08x}", name.bytes().last().unwrap()).parse().unwrap()
}

fn claimed_at(phase: Phase, seconds: i64) -> Claim {
    Claim {
        claimed_at: at(seconds),
        ..claim(phase)
    }
}

fn rival(node: &str, phase: Phase, seconds: i64) -> Rival {
    Rival {
        node: Some(node.parse().unwrap()),
        instance: instance_of(node),
        claim: claimed_at(phase, seconds),
    }
}

/// Decides the step of node m, which claimed at second 10.
fn decide(phase: Phase, rivals: &[Rival], limits: Limits) -> QueueStep {
    decide_queue_step(&claimed_at(phase, 10), &instance_of("m"), rivals, limits)
}

#[test]
fn the_next_step_in_the_queue_depends_on_the_order_and_on_busy_nodes() {
    use Phase::{Admitted, Claimed, Disposing, Draining, Standby, Waiting};
    use QueueStep::{Swap, Wait};
    let cases: [(&str, Vec<Rival>, Limits, QueueStep); 14] = [
        ("alone", vec![], ONE, Swap),
        ("another is ahead", vec![rival("a", Claimed, 9)], ONE, Wait),
        ("another is behind", vec![rival("a", Claimed, 11)], ONE, Swap),
        (
            "at the same moment the name decides, ahead",
            vec![rival("a", Claimed, 10)],
            ONE,
            Wait,
        ),
        (
            "at the same moment the name decides, behind",
            vec![rival("z", Claimed, 10)],
            ONE,
            Swap,
        ),
        (
            "another has swapped, although it is behind",
            vec![rival("a", Admitted, 11)],
            ONE,
            Wait,
        ),
        (
            "another is being replaced",
            vec![rival("a", Standby, 9)],
            ONE,
            Wait,
        ),
        (
            "another's pods are being moved",
            vec![rival("a", Draining, 9)],
            ONE,
            Wait,
        ),
        (
            "another only waits for pods",
            vec![rival("a", Waiting, 9)],
            ONE,
            Swap,
        ),
        (
            "another is being disposed of",
            vec![rival("a", Disposing, 9)],
            ONE,
            Swap,
        ),
        (
            "the group is full of nodes that only wait for pods",
            vec![rival("a", Waiting, 8), rival("b", Disposing, 9)],
            ONE,
            Wait,
        ),
        (
            "one waits for pods, and one is ahead",
            vec![rival("a", Waiting, 8), rival("b", Claimed, 9)],
            ONE,
            Wait,
        ),
        (
            "two may be busy, one is",
            vec![rival("a", Draining, 8)],
            TWO,
            Swap,
        ),
        (
            "two may be busy, one is, one is ahead",
            vec![rival("a", Draining, 8), rival("b", Claimed, 9)],
            TWO,
            Wait,
        ),
    ];
    for (case, rivals, limits, expected) in cases {
        assert_eq!(decide(Claimed, &rivals, limits), expected, "{case}");
    }
}

#[test]
fn after_the_swap_all_swapped_claims_count_and_the_order_decides_which_steps_back() {
    use Phase::{Admitted, Claimed, Draining, Standby, Waiting};
    use QueueStep::{Go, StepBack, Wait};
    let cases: [(&str, Vec<Rival>, Limits, QueueStep); 11] = [
        ("alone", vec![], ONE, Go),
        (
            "one in the queue, ahead by a clock that was late",
            vec![rival("a", Claimed, 9)],
            ONE,
            Go,
        ),
        (
            "one ahead has also swapped",
            vec![rival("a", Admitted, 9)],
            ONE,
            StepBack,
        ),
        (
            "one behind has also swapped",
            vec![rival("a", Admitted, 11)],
            ONE,
            Wait,
        ),
        (
            "one behind was admitted and has gone on",
            vec![rival("a", Standby, 11)],
            ONE,
            StepBack,
        ),
        (
            "one ahead is busy, one behind has swapped",
            vec![rival("a", Draining, 9), rival("b", Admitted, 11)],
            ONE,
            StepBack,
        ),
        (
            "two only wait for pods",
            vec![rival("a", Waiting, 8), rival("b", Waiting, 9)],
            ONE,
            StepBack,
        ),
        (
            "of two places one is taken by one ahead",
            vec![rival("a", Admitted, 9)],
            TWO,
            Go,
        ),
        (
            "of two places one is taken by one behind",
            vec![rival("z", Admitted, 11)],
            TWO,
            Go,
        ),
        (
            "one behind may be admitted, and one ahead too",
            vec![rival("a", Admitted, 9), rival("z", Admitted, 11)],
            TWO,
            Wait,
        ),
        (
            "both are ahead",
            vec![rival("a", Admitted, 8), rival("b", Admitted, 9)],
            TWO,
            StepBack,
        ),
    ];
    for (case, rivals, limits, expected) in cases {
        assert_eq!(decide(Admitted, &rivals, limits), expected, "{case}");
    }
}

#[test]
fn a_claim_that_was_found_past_the_queue_goes_on_beside_others() {
    let rivals = [rival("a", Phase::Draining, 1), rival("b", Phase::Admitted, 2)];
    for phase in [Phase::Standby, Phase::Draining, Phase::Waiting, Phase::Disposing] {
        assert_eq!(decide(phase, &rivals, ONE), QueueStep::Go, "{phase}");
    }
}

#[test]
fn urgent_executions_do_not_wait_and_count_for_others() {
    let rivals = [rival("a", Phase::Draining, 1), rival("b", Phase::Admitted, 2)];
    for urgency in Urgency::ALL {
        let me = |phase| Claim {
            urgency,
            ..claimed_at(phase, 10)
        };
        let step = |phase| decide_queue_step(&me(phase), &instance_of("m"), &rivals, ONE);
        let expected = if urgency == Urgency::Planned {
            (QueueStep::Wait, QueueStep::StepBack)
        } else {
            (QueueStep::Swap, QueueStep::Go)
        };
        assert_eq!(
            (step(Phase::Claimed), step(Phase::Admitted)),
            expected,
            "{urgency}"
        );
        let other = Rival {
            claim: me(Phase::Admitted),
            ..rival("u", Phase::Admitted, 0)
        };
        assert_eq!(
            decide(Phase::Claimed, &[other], ONE),
            QueueStep::Wait,
            "{urgency}"
        );
    }
}

#[test]
fn rivals_are_claims_of_the_same_group_on_other_nodes() {
    let on = |text: &str, value: &str| {
        let instance = Some(instance_of(text));
        leased(
            NodeFacts {
                instance,
                ..node(text)
            },
            [(CLAIM_ANNOTATION, value)],
        )
    };
    let written = |claim: &Claim| serde_json::to_string(claim).unwrap();
    let of_group = written(&claimed_at(Phase::Admitted, 5));
    let of_another_group = written(&Claim {
        group: "gpu".parse().unwrap(),
        ..claim(Phase::Admitted)
    });
    let of_another_installation = of_group.replace("recycle-eks-", "other-");
    assert_ne!(of_another_installation, of_group);
    let nodes = [
        on("m", &of_group),
        on("a", &of_group),
        on("b", &of_another_group),
        node("c"),
        on("d", r#"{"schema": 2}"#),
        on("e", "mine!"),
        on("f", &of_another_installation),
    ];
    let rivals = find_rivals(&leases(&nodes), &instance_of("m"), &claimed_at(Phase::Claimed, 9));
    let names: Vec<&str> = rivals
        .iter()
        .filter_map(|rival| Some(rival.node.as_ref()?.as_str()))
        .collect();
    assert_eq!(names, ["a"]);
    assert_eq!(rivals[0].instance, instance_of("a"));
    assert_eq!(rivals[0].claim, claimed_at(Phase::Admitted, 5));
}

#[test]
fn the_wait_reason_names_the_nodes_that_are_recycled_or_ahead() {
    use Phase::{Claimed, Draining, Standby, Waiting};
    let describe = |rivals: &[Rival], limits| {
        describe_queue(&claimed_at(Claimed, 10), &instance_of("m"), rivals, limits)
    };
    let queue = [
        rival("c", Claimed, 2),
        rival("a", Draining, 1),
        rival("b", Claimed, 3),
        rival("z", Claimed, 11),
    ];
    assert_eq!(
        describe(&queue, ONE),
        "node a (i-00000061) is being recycled; 2 nodes are ahead"
    );
    assert_eq!(
        describe(&[rival("b", Standby, 2), rival("a", Draining, 1)], TWO),
        "node a (i-00000061) is being recycled; node b (i-00000062) is being recycled"
    );
    assert_eq!(
        describe(
            &[
                rival("a", Waiting, 1),
                rival("b", Waiting, 2),
                rival("c", Claimed, 3)
            ],
            ONE
        ),
        "2 nodes of the group are underway, and max_surge_per_group is 2; 1 node is ahead"
    );
    let full = Limits { surge: 2, ..TWO };
    let waiting = [rival("a", Waiting, 1), rival("b", Waiting, 2)];
    assert_eq!(
        describe(&waiting, full),
        "2 of the group's nodes are underway, and at most 2 may be"
    );
}

#[test]
fn the_wait_reason_of_a_long_queue_is_short() {
    let rivals: Vec<Rival> = (0..300)
        .map(|number| rival(&format!("{number:03}{}", "n".repeat(200)), Phase::Draining, 1))
        .collect();
    let text = describe_queue(&claimed_at(Phase::Claimed, 10), &instance_of("m"), &rivals, ONE);
    assert!(text.len() < 1_500, "{}", text.len());
}

#[test]
fn a_node_waits_in_the_queue_for_a_day_by_the_poll_law() {
    for (now, expected) in [
        (0, Some(30)),
        (600, Some(60)),
        (10_000, Some(120)),
        (86_390, Some(10)),
        (86_400, None),
        (90_000, None),
        (-5, Some(30)),
    ] {
        assert_eq!(pace_queue(at(0), at(now)), expected, "{now}");
    }
    let progress = write_queue_progress("it waits".to_owned(), at(0));
    assert_eq!((progress.since, progress.until), (at(0), at(86_400)));
}

/// A node of the group, with the execution that works on it.
#[derive(Debug, Clone)]
struct Worker {
    instance: InstanceId,
    urgency: Urgency,
    /// The claim in the Lease.
    claim: Option<Claim>,
    /// The time that the execution's next claim carries. It may be taken long before the claim is written.
    stamp: Option<i64>,
    doing: Doing,
    /// How often the execution has died. Each life has another fence.
    lives: u32,
}

/// The next step of a worker. Each step is one call, and other workers may act between two of them.
#[derive(Debug, Clone)]
enum Doing {
    /// Claims the node, or takes over the claim of its previous life.
    Claim,
    /// Reads the group's claims.
    List,
    /// Carries out the decision that it made from the list.
    Act(QueueStep),
    /// Is admitted. The next invocation begins the work.
    Begin,
    /// Works, phase by phase.
    Work,
    /// The instance is gone, and the Node with it.
    Ended,
}

struct Model {
    workers: Vec<Worker>,
    limits: Limits,
    clock: i64,
}

impl Model {
    pub(crate) fn new(urgencies: &[Urgency], limits: Limits) -> Self {
        let workers = urgencies.iter().enumerate().map(|(number, urgency)| Worker {
            // The names run against the order of claiming, so that a decision by name instead of by time is noticed.
            instance: instance_of(&format!("node-{}", urgencies.len() - number)),
            urgency: *urgency,
            claim: None,
            stamp: None,
            doing: Doing::Claim,
            lives: 0,
        });
        Self {
            workers: workers.collect(),
            limits,
            clock: 0,
        }
    }

    fn rivals_of(&self, number: usize) -> Vec<Rival> {
        let others = self
            .workers
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number);
        others
            .filter_map(|(_, worker)| {
                Some(Rival {
                    node: None,
                    instance: worker.instance.clone(),
                    claim: worker.claim.clone()?,
                })
            })
            .collect()
    }

    /// Ends the execution and starts another one for its node.
    /// The new one may be more urgent, and then may not have waited for the death of the first.
    fn die(&mut self, number: usize, urgency: Urgency) {
        let worker = &mut self.workers[number];
        if !matches!(worker.doing, Doing::Ended) {
            worker.lives += 1;
            worker.urgency = worker.urgency.max(urgency);
            worker.stamp = None;
            worker.doing = Doing::Claim;
        }
    }

    fn step(&mut self, number: usize) {
        self.clock += 1;
        let (clock, limits) = (self.clock, self.limits);
        let rivals = self.rivals_of(number);
        let worker = &mut self.workers[number];
        worker.doing = match (worker.doing.clone(), worker.stamp) {
            (Doing::Claim, None) => {
                worker.stamp = Some(clock);
                Doing::Claim
            }
            (Doing::Claim, Some(stamp)) => {
                let previous = worker.claim.as_ref().map_or(Phase::Claimed, |claim| claim.phase);
                let phase = if waits_in_queue(worker.urgency) {
                    previous
                } else {
                    previous.max(Phase::Admitted)
                };
                worker.claim = Some(Claim {
                    fence: Fence {
                        redrive_count: worker.lives,
                        ..claim(phase).fence
                    },
                    urgency: worker.urgency,
                    ..claimed_at(phase, stamp)
                });
                Doing::List
            }
            (Doing::List, _) => match &worker.claim {
                Some(claim) => Doing::Act(decide_queue_step(claim, &worker.instance, &rivals, limits)),
                None => panic!("it lists claims before it has claimed"),
            },
            (Doing::Act(QueueStep::Swap), _) => worker.swap(Phase::Admitted, Doing::List),
            (Doing::Act(QueueStep::StepBack), _) => worker.swap(Phase::Claimed, Doing::List),
            (Doing::Act(QueueStep::Wait), _) => Doing::List,
            (Doing::Act(QueueStep::Go), _) => Doing::Begin,
            (Doing::Begin, _) => match worker.phase() {
                Some(Phase::Admitted) => worker.swap(Phase::Standby, Doing::Work),
                _ => Doing::Work,
            },
            (Doing::Work, _) => match worker.phase() {
                Some(Phase::Standby) => worker.swap(Phase::Draining, Doing::Work),
                Some(Phase::Draining) => worker.swap(Phase::Waiting, Doing::Work),
                Some(Phase::Waiting) => worker.swap(Phase::Disposing, Doing::Work),
                _ => {
                    worker.claim = None;
                    Doing::Ended
                }
            },
            (Doing::Ended, _) => Doing::Ended,
        };
        self.check();
    }

    /// Checks that no more planned executions are admitted than the limits allow. Urgent ones may be admitted in addition at any time.
    fn check(&self) {
        let planned = || {
            self.workers
                .iter()
                .filter(|worker| waits_in_queue(worker.urgency))
        };
        let busy = planned().filter(|worker| {
            worker.is_admitted()
                && matches!(
                    worker.phase(),
                    Some(Phase::Admitted | Phase::Standby | Phase::Draining)
                )
        });
        let underway = planned().filter(|worker| worker.is_admitted());
        assert!(busy.count() <= self.limits.parallel, "{:#?}", self.workers);
        assert!(underway.count() <= self.limits.surge, "{:#?}", self.workers);
    }

    fn has_ended(&self) -> bool {
        self.workers
            .iter()
            .all(|worker| matches!(worker.doing, Doing::Ended))
    }

    /// Lets every worker take one step after the other. Returns whether all of them have ended.
    fn run_on(&mut self) -> bool {
        for _ in 0..200 {
            for number in 0..self.workers.len() {
                self.step(number);
            }
        }
        self.has_ended()
    }
}

impl Worker {
    fn phase(&self) -> Option<Phase> {
        self.claim.as_ref().map(|claim| claim.phase)
    }

    fn swap(&mut self, phase: Phase, next: Doing) -> Doing {
        if let Some(claim) = &mut self.claim {
            claim.phase = phase;
        }
        next
    }

    /// Whether the worker is admitted, or its claim was found past the queue.
    fn is_admitted(&self) -> bool {
        matches!(self.doing, Doing::Act(QueueStep::Go) | Doing::Begin)
            || self.phase().is_some_and(|phase| phase > Phase::Admitted)
    }
}

#[test]
fn a_node_that_was_admitted_although_it_came_last_counts_for_those_ahead() {
    // Two nodes may be busy. The last one is admitted.
    // Then the first, whose claim was written late, and the second swap.
    let mut model = Model::new(&[Urgency::Planned; 3], TWO);
    let (first, second, last) = (0, 1, 2);
    model.step(first); // the time of its claim, but not the claim
    for number in [second, last] {
        model.step(number);
        model.step(number);
    }
    for _ in 0..4 {
        model.step(last); // list, swap, list, admitted
    }
    assert!(matches!(model.workers[last].doing, Doing::Begin));
    model.step(second); // lists: there is room for one
    model.step(first); // claims
    model.step(first); // lists: there is room for one
    for number in [first, second] {
        model.step(number);
    }
    assert!(
        [first, second]
            .iter()
            .all(|number| model.workers[*number].phase() == Some(Phase::Admitted)),
        "all three have swapped"
    );
    for number in [second, first, second, first] {
        model.step(number);
    }
    assert!(model.run_on());
}

fn any_urgency() -> impl Strategy<Value = Urgency> {
    prop_oneof![
        5 => Just(Urgency::Planned),
        1 => Just(Urgency::Hook),
        1 => Just(Urgency::Spot),
    ]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    (1_usize..=2, 0_usize..=2).prop_map(|(parallel, more)| Limits {
        parallel,
        surge: (parallel + more).min(3),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn in_any_order_of_steps_the_limits_hold_and_all_nodes_end(
        urgencies in prop::collection::vec(any_urgency(), 2..=4),
        limits in any_limits(),
        steps in prop::collection::vec(0_usize..4, 0..160),
    ) {
        let mut model = Model::new(&urgencies, limits);
        for step in steps {
            model.step(step % urgencies.len());
        }
        prop_assert!(model.run_on(), "{:#?}", model.workers);
    }

    #[test]
    fn the_limits_hold_although_executions_die_anywhere_and_others_take_over(
        urgencies in prop::collection::vec(any_urgency(), 2..=4),
        limits in any_limits(),
        steps in prop::collection::vec((0_usize..4, prop::option::weighted(0.1, any_urgency())), 0..160),
    ) {
        let mut model = Model::new(&urgencies, limits);
        for (number, death) in steps {
            let number = number % urgencies.len();
            match death {
                Some(urgency) => model.die(number, urgency),
                None => model.step(number),
            }
        }
        prop_assert!(model.run_on(), "{:#?}", model.workers);
    }
}

#[test]
fn with_after_a_node_holds_its_place_to_the_end() {
    let limits = Limits {
        parallel: 2,
        surge: 5,
    };
    assert_eq!(limits.of(Replacement::Before), limits);
    let after = limits.of(Replacement::After);
    assert_eq!((after.parallel, after.surge), (2, 2));
    let surge = limits.of(Replacement::Surge);
    assert_eq!((surge.parallel, surge.surge), (1, 5));
    let fewer = Limits {
        parallel: 3,
        surge: 1,
    };
    assert_eq!(fewer.of(Replacement::After).surge, 1);
}

#[test]
fn with_after_no_node_begins_in_a_group_that_is_short_of_members() {
    let whole = group();
    let mut short = whole.clone();
    short.members.pop();
    short.members.push(member(NEW, "Pending"));
    let (before, after) = (input(json!({})), input(json!({"replacement": "after"})));
    let asked = |phase, group: &Group, input: &Input| {
        find_shortage(&claim(phase), group, input, &GroupState::default())
    };
    for phase in [Phase::Claimed, Phase::Admitted] {
        assert_eq!(asked(phase, &whole, &after), None);
        assert_eq!(asked(phase, &short, &before), None);
        let text = asked(phase, &short, &after).unwrap();
        assert!(text.starts_with("1 of its 2 members are in service"), "{text}");
    }
    for phase in [Phase::Standby, Phase::Draining, Phase::Waiting, Phase::Disposing] {
        assert_eq!(asked(phase, &short, &after), None, "it has begun");
    }
    let urgent = Claim {
        urgency: Urgency::Spot,
        ..claim(Phase::Claimed)
    };
    assert_eq!(
        find_shortage(&urgent, &short, &after, &GroupState::default()),
        None
    );
}

#[test]
fn a_group_that_counts_weights_is_short_while_a_member_comes_or_goes() {
    let weighted = GroupState {
        is_weighted: true,
        ..GroupState::default()
    };
    let after = input(json!({"replacement": "after"}));
    for (state, expected) in [
        ("InService", false),
        ("Pending:Wait", true),
        ("Terminating", true),
        ("Standby", false),
    ] {
        let mut group = group();
        group.desired = 8;
        group.members.push(member(NEW, state));
        let shortage = find_shortage(&claim(Phase::Claimed), &group, &after, &weighted);
        assert_eq!(shortage.is_some(), expected, "{state}: {shortage:?}");
    }
}

#[test]
fn with_after_the_last_healthy_target_of_several_members_waits_for_another() {
    let behind = |others| GroupState {
        balancers: vec![Balancer {
            name: "target group web".to_owned(),
            others,
        }],
        ..GroupState::default()
    };
    let after = input(json!({"replacement": "after"}));
    let overridden = input(json!({"replacement": "after", "override": ["last_target"]}));
    let mut alone = group();
    alone.desired = 1;
    alone.members.truncate(1);
    let cases = [
        ("another is healthy", &group(), &after, 1, false),
        ("none is", &group(), &after, 0, true),
        ("overridden", &group(), &overridden, 0, false),
        ("it is the only member", &alone, &after, 0, false),
    ];
    for (name, group, input, others, expected) in cases {
        let shortage = find_shortage(&claim(Phase::Claimed), group, input, &behind(others));
        assert_eq!(shortage.is_some(), expected, "{name}: {shortage:?}");
    }
}

#[test]
fn with_surge_a_node_waits_for_a_restore_for_a_protection_and_for_room() {
    let surge = input(json!({"replacement": "surge"}));
    let (free, full) = (
        group(),
        Group {
            desired: 4,
            ..group()
        },
    );
    let places = |added_places| GroupState {
        added_places,
        ..GroupState::default()
    };
    let protected = |cause| GroupState {
        protected_for: Some(id(cause)),
        ..GroupState::default()
    };
    let restored = |state| GroupState {
        restored: Some(id(OTHER)),
        ..state
    };
    let of_restore = format!("{OTHER} of the group is being restored");
    let of_protection = "another node is being restored or detached";
    for (name, group, state, expected) in [
        ("nothing is in the way", &free, GroupState::default(), None),
        (
            "another node is restored",
            &free,
            restored(places(0)),
            Some(of_restore.as_str()),
        ),
        (
            "a restore comes before room",
            &full,
            restored(places(1)),
            Some(of_restore.as_str()),
        ),
        (
            "protected for another node",
            &free,
            protected(OTHER),
            Some(of_protection),
        ),
        ("its own protection", &free, protected(OLD), None),
        (
            "full of places",
            &full,
            places(1),
            Some("the group has its maximum of 4 members, 1 of them"),
        ),
        (
            "full, and one place is its own",
            &full,
            GroupState {
                has_place: true,
                ..places(1)
            },
            None,
        ),
        ("full, which pre-flight refuses", &full, places(0), None),
        ("places, and room for more", &free, places(2), None),
    ] {
        for phase in Phase::ALL {
            let found = find_shortage(&claim(phase), group, &surge, &state);
            let expected = expected.filter(|_| phase <= Phase::Admitted);
            assert_eq!(found.is_some(), expected.is_some(), "{name} {phase}: {found:?}");
            assert!(
                expected.is_none_or(|start| found.unwrap().starts_with(start)),
                "{name}"
            );
        }
        let urgent = Claim {
            urgency: Urgency::Spot,
            ..claim(Phase::Claimed)
        };
        assert_eq!(find_shortage(&urgent, group, &surge, &state), None, "{name}");
    }
}
