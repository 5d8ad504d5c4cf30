//! Finds the disruption budgets that would refuse an eviction now, for a plan. In a drain the API server decides.

use crate::base::selector::Selector;
use crate::base::text::{NAMES_PER_CLASS, count_and_name};
use crate::cluster::pod::PodFacts;
use crate::drain::survey::first_names;

/// A PodDisruptionBudget. A tenant may write any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub namespace: String,
    pub name: String,
    /// None for a budget that selects no pod.
    pub selector: Option<Selector>,
    /// Whether it allows an eviction now (`status.disruptionsAllowed`).
    pub allows: bool,
    /// Whether a pod that is not Ready may be evicted now (`unhealthyPodEvictionPolicy`).
    pub allows_unhealthy: bool,
}

impl Budget {
    fn selects(&self, pod: &PodFacts) -> bool {
        let selector = self.selector.as_ref();
        pod.namespace == self.namespace && selector.is_some_and(|selector| selector.matches(&pod.labels))
    }

    fn refuses(&self, pod: &PodFacts) -> bool {
        !(self.allows || (self.allows_unhealthy && !pod.containers.is_ready))
    }
}

/// Checks whether the API server would refuse the pod's eviction now. It refuses an eviction under several budgets, whatever they allow.
/// It asks no budget about a pod that is Pending or leaving (`canIgnorePDB` in Kubernetes' `registry/core/pod/storage/eviction.go`).
pub fn is_refused(pod: &PodFacts, budgets: &[Budget]) -> bool {
    let mut selecting = budgets.iter().filter(|budget| budget.selects(pod));
    let is_asked = pod.phase != "Pending" && pod.deletion_at.is_none();
    let Some(budget) = selecting.next().filter(|_| is_asked) else {
        return false;
    };
    selecting.next().is_some() || budget.refuses(pod)
}

/// Describes the budgets that would refuse the eviction of these pods now, one sentence each, at most five.
pub fn describe_refusing(pods: &[PodFacts], budgets: &[Budget]) -> Vec<String> {
    let of = |budget: &Budget| -> Vec<PodFacts> {
        let refused = pods
            .iter()
            .filter(|pod| budget.selects(pod) && is_refused(pod, budgets));
        refused.cloned().collect()
    };
    let described = budgets.iter().filter_map(|budget| {
        let pods = of(budget);
        let names = count_and_name(pods.len(), &first_names(&pods));
        let (namespace, name) = (&budget.namespace, &budget.name);
        (!pods.is_empty()).then(|| format!("budget {namespace}/{name} allows no eviction now of {names}"))
    });
    described.take(NAMES_PER_CLASS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, pod, strings};

    fn budget(name: &str, selector: &str, allows: bool, allows_unhealthy: bool) -> Budget {
        Budget {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            selector: (!selector.is_empty()).then(|| selector.parse().unwrap()),
            allows,
            allows_unhealthy,
        }
    }

    fn web() -> PodFacts {
        let mut pod = PodFacts {
            labels: strings([("app", "web")]),
            ..pod("web")
        };
        pod.containers.is_ready = true;
        pod
    }

    #[test]
    fn an_eviction_is_refused_as_the_api_server_refuses_it() {
        let unhealthy = || {
            let mut pod = web();
            pod.containers.is_ready = false;
            pod
        };
        let pending = PodFacts {
            phase: "Pending".to_owned(),
            ..web()
        };
        let leaving = PodFacts {
            deletion_at: Some(at(60)),
            ..web()
        };
        let elsewhere = PodFacts {
            namespace: "other".to_owned(),
            ..web()
        };
        let full = || vec![budget("full", "app=web", false, false)];
        let free = || budget("free", "app=web", true, false);
        for (name, pod, budgets, expected) in [
            ("no budget", web(), vec![], false),
            ("a full budget", web(), full(), true),
            ("a budget with room", web(), vec![free()], false),
            ("two budgets with room", web(), vec![free(), free()], true),
            (
                "a budget of other pods",
                web(),
                vec![budget("a", "app=api", false, false)],
                false,
            ),
            (
                "a budget of no pods",
                web(),
                vec![budget("a", "", false, false)],
                false,
            ),
            (
                "a budget of all pods",
                web(),
                vec![budget("a", "*", false, false)],
                true,
            ),
            ("another namespace", elsewhere, full(), false),
            ("a Pending pod", pending, full(), false),
            ("a leaving pod", leaving, full(), false),
            ("an unhealthy pod", unhealthy(), full(), true),
            (
                "an unhealthy pod that may go",
                unhealthy(),
                vec![budget("a", "app=web", false, true)],
                false,
            ),
            (
                "a healthy pod beside it",
                web(),
                vec![budget("a", "app=web", false, true)],
                true,
            ),
        ] {
            assert_eq!(is_refused(&pod, &budgets), expected, "{name}");
            let described = describe_refusing(&[pod], &budgets);
            assert_eq!(described.is_empty(), !expected, "{name}: {described:?}");
        }
        let described = describe_refusing(&[web(), web()], &full());
        let text = "budget default/full allows no eviction now of 2 pods (default/web, default/web)";
        assert_eq!(described, [text]);
        let many: Vec<Budget> = (0..9)
            .map(|number| budget(&number.to_string(), "*", false, false))
            .collect();
        assert_eq!(describe_refusing(&[web()], &many).len(), NAMES_PER_CLASS);
    }
}
