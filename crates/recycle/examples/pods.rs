//! Prints the page about pods with the table of the rules, from the rules themselves: `docs/pods.md`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::fmt::Write as _;

use recycle::drain::classify::{PodClass, Rule};
use recycle::input::model::Evict;

const BEGIN: &str = "<!-- rules: make generate -->\n";
const END: &str = "<!-- end of rules -->";

fn main() -> std::io::Result<()> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pods.md");
    let page = std::fs::read_to_string(page)?;
    print!("{}", with_rules(&page));
    Ok(())
}

/// Returns the page with the table as the rules are now. A page without the two marks gets the table at its end.
fn with_rules(page: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).unwrap_or((page, ""));
    let (_, after) = rest.split_once(END).unwrap_or_default();
    format!("{before}{BEGIN}{}{END}{after}", render_rules())
}

fn render_rules() -> String {
    let settings = [Evict::Others, Evict::OthersAndJobs, Evict::All, Evict::None];
    let mut table = String::from(
        "| the pod | `evict: others` | `others_and_jobs` | `all` | `none` |\n|---|---|---|---|---|\n",
    );
    for rule in Rule::ALL {
        let cells = settings.map(|evict| word(rule, rule.class(evict)));
        let _ = writeln!(table, "| {} | {} |", describe(rule), cells.join(" | "));
    }
    table
}

fn word(rule: Rule, class: PodClass) -> &'static str {
    match (rule, class) {
        (Rule::LeavesLast, PodClass::Evict) => "evicted last",
        (Rule::Late, PodClass::Evict) => "evicted at the end",
        (_, PodClass::Wait) => "waited for",
        (_, PodClass::Evict) => "evicted",
        (_, PodClass::Ignore) => "ignored",
    }
}

fn describe(rule: Rule) -> &'static str {
    match rule {
        Rule::Unreadable => "cannot be read ([below](#pods-that-cannot-be-read)); it is never evicted",
        Rule::Finished => "has finished",
        Rule::Mirror => "is a static pod of the kubelet, which the API server shows as a mirror pod",
        Rule::LeavesLast => "belongs to a DaemonSet and has the annotation `recycle-eks/drain: evict`",
        Rule::OfDaemonSet => {
            "belongs to a DaemonSet (of the API group `apps`, once `extensions`), or has `cluster-autoscaler.kubernetes.io/daemonset-pod: \"true\"`"
        }
        Rule::Marked(PodClass::Wait) => "has the annotation `recycle-eks/drain: wait`",
        Rule::Marked(PodClass::Evict) => "has the annotation `recycle-eks/drain: evict`",
        Rule::Marked(PodClass::Ignore) => "has the annotation `recycle-eks/drain: ignore`",
        Rule::Selected => "matches `label_selector`, in one of `namespaces` if there are any",
        Rule::OwnerProtected => {
            "is protected by its owner ([below](#what-owners-forbid)), unless the input has `override: [\"owner_protected\"]`"
        }
        Rule::Late => "came after the taint and tolerates it ([below](#pods-that-come-later))",
        Rule::SafeToEvict => "is bare, and has `cluster-autoscaler.kubernetes.io/safe-to-evict: \"true\"`",
        Rule::Bare => "is bare: no controller would start it again",
        Rule::ToCompletion => {
            "runs to completion: a pod of a Job, a workflow or a task (it has a controller, and a `restartPolicy` of `OnFailure` or `Never`)"
        }
        Rule::Other => "is any other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_rules_as_they_are() {
        let page = include_str!("../../../docs/pods.md");
        assert!(with_rules(page) == page, "stale: run `make generate`");
    }
}
