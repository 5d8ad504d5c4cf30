//! Finds what blocks evictions: which budget, for which pods, and since when.
//!
//! The API server names a budget only in the text of its refusal. This module reads the name from that text, so recycle-eks needs no
//! permission to list budgets.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::base::named::named;
use crate::base::text::{NAMES_PER_CLASS, cut_text, fit_names};
use crate::records::blocker::Blocker;

/// The number of blockers that are recorded. At most as many budgets block a node as it has workloads.
const MOST_BLOCKERS: usize = 20;

/// The number of characters to which the API server's text is cut. The API server's own sentences are shorter.
const LONGEST_TEXT: usize = 300;

/// The bytes that the names of one blocker may have together.
const NAMES_BUDGET: usize = 300;

named! {
    /// The reason why a pod may not go now, as the API server reports it. Its name is the key in the answer of `evict-pods`.
    pub enum RefusalKind {
        /// A disruption budget is full (429 with the cause `DisruptionBudget`).
        BudgetFull = "blocked",
        /// The controller of budgets has not seen the budget yet (429 with the same cause, and `Retry-After`).
        BudgetNotReady = "budget_not_ready",
        /// Several budgets select the pod. The API server refuses such an eviction whatever the budgets allow (500).
        SeveralBudgets = "several_budgets",
        /// An admission webhook or an admission policy of the cluster refuses the eviction, or the webhook does not answer.
        Admission = "admission",
        /// The pod's namespace is being deleted, and nothing can be created in it any more (403 with the cause `NamespaceTerminating`).
        NamespaceTerminating = "namespace_terminating",
        /// The permission is missing (403).
        Forbidden = "forbidden",
        /// The API server has too many requests (429 without a budget among its causes).
        Throttled = "throttled",
        /// The API server does not accept the request (400 or 422).
        Invalid = "invalid",
        /// Anything else, such as no answer.
        Failed = "failed",
    }
}

impl RefusalKind {
    /// The kinds that block a pod until something changes. A throttled request is repeated at the next check.
    pub const BLOCKING: [Self; 8] = [
        Self::BudgetFull,
        Self::BudgetNotReady,
        Self::SeveralBudgets,
        Self::Admission,
        Self::NamespaceTerminating,
        Self::Forbidden,
        Self::Invalid,
        Self::Failed,
    ];
}

/// A pod that may not go now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// The pod's namespace, which is also the namespace of its budgets.
    pub namespace: String,
    /// `namespace/name`.
    pub pod: String,
    /// The API server's own text.
    pub says: String,
}

impl Refusal {
    /// Names the blocker.
    /// The name stays the same as long as the cause does, unlike the API server's text, which has figures in it.
    fn obstacle(&self) -> String {
        let namespace = &self.namespace;
        match self.kind {
            RefusalKind::BudgetFull | RefusalKind::BudgetNotReady => match read_budget(&self.says) {
                Some(budget) => format!("budget {namespace}/{budget}"),
                None => format!("a budget in {namespace}"),
            },
            RefusalKind::SeveralBudgets => format!("more than one budget in {namespace}"),
            RefusalKind::Admission => match read_admission(&self.says) {
                Some((kind, name)) => format!("{kind} {name}"),
                None => "an admission webhook".to_owned(),
            },
            RefusalKind::NamespaceTerminating => format!("the deletion of namespace {namespace}"),
            RefusalKind::Forbidden => "a missing permission".to_owned(),
            RefusalKind::Throttled => "the API server's limit of requests".to_owned(),
            RefusalKind::Invalid => "an invalid request".to_owned(),
            RefusalKind::Failed => "an error".to_owned(),
        }
    }
}

/// Reads the budget's name from the API server's text.
/// Examples are `The disruption budget web needs 2 healthy pods and has 2 currently`
/// and `The disruption budget web is still being processed …`.
fn read_budget(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("disruption budget ")?;
    rest.split_whitespace().next()
}

/// Reads what refused an eviction from the API server's text.
/// Examples are `admission webhook "pods.example.com" denied the request: no`, `failed calling webhook "pods.example.com": …`
/// and `ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: no` (Kubernetes' `apiserver/pkg/admission`).
pub fn read_admission(text: &str) -> Option<(&'static str, &str)> {
    [
        ("webhook", "webhook \"", '"'),
        ("admission policy", "ValidatingAdmissionPolicy '", '\''),
    ]
    .into_iter()
    .find_map(|(kind, before, end)| {
        let (_, rest) = text.split_once(before)?;
        let (name, _) = rest.split_once(end)?;
        (!name.is_empty()).then_some((kind, name))
    })
}

/// Describes the first five, one short sentence each: the end of a failure's text.
pub fn describe_blockers(blockers: &[Blocker]) -> Vec<String> {
    let first = blockers.iter().take(NAMES_PER_CLASS);
    first.map(Blocker::describe_shortly).collect()
}

/// Returns the present blockers, the one that has lasted longest first.
/// `before` are the blockers of the last check. A blocker that was there before keeps its start time.
pub fn find_blockers(refusals: &[Refusal], before: &[Blocker], now: Timestamp) -> Vec<Blocker> {
    let mut by_obstacle: BTreeMap<String, Vec<&Refusal>> = BTreeMap::new();
    for refusal in refusals {
        by_obstacle.entry(refusal.obstacle()).or_default().push(refusal);
    }
    let mut blockers: Vec<Blocker> = by_obstacle
        .into_iter()
        .map(|(what, refusals)| sum_up(what, refusals, before, now))
        .collect();
    blockers.sort_by(|one, other| (one.since, &one.what).cmp(&(other.since, &other.what)));
    blockers.truncate(MOST_BLOCKERS);
    blockers
}

fn sum_up(mut what: String, mut refusals: Vec<&Refusal>, before: &[Blocker], now: Timestamp) -> Blocker {
    refusals.sort_by(|one, other| one.pod.cmp(&other.pod));
    cut_text(&mut what, LONGEST_TEXT);
    let known = before.iter().find(|blocker| blocker.what == what);
    let mut says = refusals
        .first()
        .map(|refusal| refusal.says.clone())
        .unwrap_or_default();
    cut_text(&mut says, LONGEST_TEXT);
    let first = refusals.iter().take(NAMES_PER_CLASS);
    let mut names: Vec<String> = first.map(|refusal| refusal.pod.clone()).collect();
    fit_names(&mut names.iter_mut().collect::<Vec<_>>(), NAMES_BUDGET);
    Blocker {
        since: known.map_or(now, |blocker| blocker.since),
        reported: known.is_some_and(|blocker| blocker.reported),
        count: u32::try_from(refusals.len()).unwrap_or(u32::MAX),
        what,
        says,
        names,
    }
}

/// Describes in one sentence the oldest blocker that is reported ([`Blocker::is_long_enough`]), and counts the others.
/// None if there is no such blocker.
pub fn describe_update(blockers: &[Blocker], now: Timestamp) -> Option<String> {
    let mut reported = blockers.iter().filter(|blocker| blocker.is_long_enough(now));
    let first = reported.next()?.describe_shortly();
    Some(match reported.count() {
        0 => first,
        more => format!("{first}; and {more} more"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;
    use crate::records::blocker::count_all;

    const FULL: &str = "The disruption budget web needs 2 healthy pods and has 2 currently";

    fn refusal(kind: RefusalKind, pod: &str, says: &str) -> Refusal {
        Refusal {
            kind,
            namespace: "shop".to_owned(),
            pod: format!("shop/{pod}"),
            says: says.to_owned(),
        }
    }

    fn full(pod: &str) -> Refusal {
        refusal(RefusalKind::BudgetFull, pod, FULL)
    }

    #[test]
    fn counts_of_blocked_pods_are_added_up_without_overflow() {
        let blocks = |count: u32| Blocker {
            what: "budget shop/web".to_owned(),
            says: String::new(),
            since: at(0),
            count,
            names: Vec::new(),
            reported: false,
        };
        for (counts, all) in [(vec![], 0), (vec![1, 2], 3), (vec![u32::MAX, 1], u32::MAX)] {
            let blockers: Vec<Blocker> = counts.iter().copied().map(blocks).collect();
            assert_eq!(count_all(&blockers), all, "{counts:?}");
        }
    }

    #[test]
    fn a_blocker_is_named_after_the_answer_of_the_api_server() {
        use RefusalKind::{
            Admission, BudgetFull, BudgetNotReady, Failed, Forbidden, Invalid, NamespaceTerminating,
            SeveralBudgets, Throttled,
        };
        let cases = [
            (BudgetFull, FULL, "budget shop/web"),
            (
                BudgetNotReady,
                "The disruption budget web is still being processed by the server.",
                "budget shop/web",
            ),
            (BudgetFull, "in other words", "a budget in shop"),
            (BudgetFull, "the disruption budget ", "a budget in shop"),
            (
                SeveralBudgets,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                "more than one budget in shop",
            ),
            (
                Admission,
                "admission webhook \"pods.example.com\" denied the request: not on Fridays",
                "webhook pods.example.com",
            ),
            (
                Admission,
                "Internal error occurred: failed calling webhook \"pods.example.com\": context deadline exceeded",
                "webhook pods.example.com",
            ),
            (
                Admission,
                "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'all' denied request: no",
                "admission policy keep",
            ),
            (Admission, "webhook \"\" says no", "an admission webhook"),
            (
                NamespaceTerminating,
                "because it is being terminated",
                "the deletion of namespace shop",
            ),
            (Forbidden, "cannot create resource", "a missing permission"),
            (
                Throttled,
                "too many requests",
                "the API server's limit of requests",
            ),
            (Invalid, "is invalid", "an invalid request"),
            (Failed, "failed to create pods/eviction shop/a: no", "an error"),
        ];
        for (kind, says, expected) in cases {
            let blockers = find_blockers(&[refusal(kind, "a", says)], &[], at(0));
            assert_eq!(blockers[0].what, expected, "{says}");
            assert_eq!(blockers[0].says, says);
        }
    }

    #[test]
    fn a_budget_keeps_its_start_time_as_long_as_it_blocks_a_pod() {
        let first = find_blockers(&[full("b"), full("a")], &[], at(0));
        assert_eq!((first.len(), first[0].count, first[0].since), (1, 2, at(0)));
        assert_eq!(first[0].names, ["shop/a", "shop/b"]);
        // The pod and the figures differ, the budget is the same.
        let other = Refusal {
            says: FULL.replace("has 2", "has 1"),
            ..full("c")
        };
        let second = find_blockers(std::slice::from_ref(&other), &first, at(600));
        assert_eq!((second[0].since, second[0].count), (at(0), 1));
        let error = refusal(RefusalKind::Failed, "z", "no");
        let third = find_blockers(&[error, other.clone()], &second, at(900));
        assert_eq!(
            third
                .iter()
                .map(|blocker| blocker.what.as_str())
                .collect::<Vec<_>>(),
            ["budget shop/web", "an error"],
            "the longest first"
        );
        assert!(find_blockers(&[], &third, at(1_200)).is_empty());
        assert_eq!(find_blockers(&[other], &[], at(1_500))[0].since, at(1_500));
    }

    #[test]
    fn a_blocker_is_reported_after_five_minutes_in_one_sentence() {
        let blockers = find_blockers(&[full("a")], &[], at(0));
        assert_eq!(describe_update(&blockers, at(299)), None);
        assert_eq!(
            describe_update(&blockers, at(300)).as_deref(),
            Some(
                "budget shop/web has blocked 1 pod since 2027-01-01T00:00:00Z: The disruption budget web needs 2 healthy pods and \
                 has 2 currently (shop/a)"
            )
        );
        let many: Vec<Refusal> = ["f", "e", "d", "c", "b", "a"].map(full).to_vec();
        let two = find_blockers(
            &[many.as_slice(), &[refusal(RefusalKind::Failed, "z", "no")]].concat(),
            &[],
            at(0),
        );
        let text = describe_update(&two, at(300)).unwrap();
        assert!(
            text.starts_with("an error has blocked 1 pod since 2027-01-01T00:00:00Z: no (shop/z)")
                && text.ends_with("; and 1 more"),
            "{text}"
        );
        assert!(
            two[1]
                .describe()
                .ends_with("(shop/a, shop/b, shop/c, shop/d, shop/e, …)")
        );
    }

    #[test]
    fn a_reported_blocker_stays_reported() {
        let mut before = find_blockers(&[full("a")], &[], at(0));
        before[0].reported = true;
        assert!(find_blockers(&[full("a")], &before, at(600))[0].reported);
        assert!(!find_blockers(&[full("a")], &[], at(600))[0].reported);
    }

    #[test]
    fn long_texts_are_cut_and_the_number_of_blockers_is_limited() {
        let refusals: Vec<Refusal> = (0..250)
            .map(|number| Refusal {
                namespace: format!("{:n<60}{number:03}", ""),
                pod: format!("{:n<60}{number:03}/{:p<253}", "", ""),
                says: format!("The disruption budget {:b<253} {}", "", "x".repeat(2_000)),
                kind: RefusalKind::BudgetFull,
            })
            .collect();
        let blockers = find_blockers(&refusals, &[], at(0));
        assert_eq!(blockers.len(), MOST_BLOCKERS);
        let described = describe_blockers(&blockers);
        let bytes: usize = described.iter().map(String::len).sum();
        assert!(
            described.len() == NAMES_PER_CLASS && bytes < 1_600,
            "{bytes} bytes"
        );
        let bytes = serde_json::to_string(&blockers).unwrap().len();
        assert!(bytes < 24_000, "{bytes} bytes");
        let again = find_blockers(&refusals, &blockers, at(600));
        assert_eq!(again[0].since, at(0), "a name that was cut is recognised again");
    }
}
