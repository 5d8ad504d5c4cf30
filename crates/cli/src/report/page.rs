//! Renders a report as one HTML document that loads nothing. maud escapes every text.

use jiff::Timestamp;
use maud::{DOCTYPE, PreEscaped, html};
use recycle::report::history::Report;

use crate::report::node_page::node_body;
use crate::report::parts::title_of;
use crate::report::rotation_page::rotation_body;

/// The style sheet of the page: light or dark according to the browser's setting, and one column on a phone.
const STYLE: &str = include_str!("page.css");
/// The Content Security Policy. The page may load nothing and run nothing, for any text in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Renders the page of a report. An ongoing span is drawn until `now`.
pub(crate) fn render(report: &Report, now: Timestamp) -> String {
    let (title, body) = match report {
        Report::Node(node) => (title_of(node), node_body(node, now)),
        Report::Rotation(rotation) => ("Rotation", rotation_body(rotation, now)),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Without this line a browser requests an icon.
                link rel="icon" href="data:,";
                title { (title) " · recycle-eks" }
                style { (PreEscaped(STYLE)) }
            }
            body { main { h1 { (title) } (body) } }
        }
    };
    page.into_string()
}

#[cfg(test)]
mod tests {
    use recycle::report::event::Stage;
    use recycle::report::history::RotationReport;
    use recycle::report::parts::{FailedAttempt, Look, NodeReport, SeenPod, SentNotification, Span, Summary};
    use recycle::report::waits::GroupWait;
    use serde_json::json;

    use super::*;
    use crate::report::parts::share;

    const HOSTILE: &str = r#""><script>alert('1')</script><img src=x onerror=alert(1)>&amp;"#;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_798_761_600 + seconds).unwrap()
    }

    fn span<What>(what: What, since: i64, until: Option<i64>) -> Span<What> {
        Span {
            what,
            since: at(since),
            until: until.map(at),
        }
    }

    /// A node in which each text is `text`.
    fn node(text: &str) -> NodeReport {
        let text = text.to_owned();
        NodeReport {
            summary: Summary {
                execution: text.clone(),
                outcome: text.clone(),
                is_well: true,
                reason: text.clone(),
                settings: [(text.clone(), text.clone().into())].into(),
                started_at: at(0),
                ended_at: Some(at(100)),
                events: 12,
            },
            instance: Some(text.clone()),
            node: Some(text.clone()),
            group: Some(text.clone()),
            cluster: Some(text.clone()),
            replacement: Some(text.clone()),
            stages: vec![span(Stage::Queue, 0, Some(25)), span(Stage::Drain, 25, Some(100))],
            polls: 2,
            looks: vec![
                Look {
                    at: at(25),
                    counts: [(text.clone(), 4)].into(),
                },
                Look {
                    at: at(75),
                    counts: [(text.clone(), 1)].into(),
                },
            ],
            pods: vec![span(
                SeenPod {
                    class: text.clone(),
                    name: text.clone(),
                },
                25,
                None,
            )],
            blocked: vec![span(vec![text.clone()], 30, Some(60))],
            notifications: vec![SentNotification {
                at: at(1),
                event: text.clone(),
                severity: text.clone(),
                subject: text.clone(),
            }],
            failed_attempts: vec![FailedAttempt {
                at: at(2),
                state: text.clone(),
                error: text.clone(),
                cause: text.clone(),
            }],
            plan: vec![text],
        }
    }

    #[test]
    fn every_name_is_escaped() {
        let rotation = RotationReport {
            summary: node(HOSTILE).summary,
            selection: json!({"groups": [HOSTILE]}),
            groups: vec![HOSTILE.to_owned()],
            skipped: None,
            waits: vec![GroupWait {
                group: HOSTILE.to_owned(),
                why: HOSTILE.to_owned(),
                since: at(0),
                until: None,
                seconds: 7_200,
                nodes: 2,
            }],
            nodes: vec![node(HOSTILE)],
        };
        for report in [
            Report::Node(Box::new(node(HOSTILE))),
            Report::Rotation(Box::new(rotation)),
        ] {
            let page = render(&report, at(100));
            assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
            assert!(
                page.contains(
                    "&lt;script&gt;alert('1')&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;amp;"
                ),
                "{page}"
            );
            // The text does not end an attribute either.
            assert!(page.contains("aria-label=\"&quot;&gt;&lt;script&gt;"), "{page}");
        }
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = render(&Report::Node(Box::new(node("a"))), at(100));
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn each_stage_has_a_colour() {
        let page = render(&Report::Node(Box::new(node("a"))), at(100));
        for stage in Stage::ALL.map(Stage::name) {
            let rule = format!(".{stage} {{ background: var(--{stage}); }}");
            assert!(page.contains(&rule), "{rule}");
        }
    }

    #[test]
    fn bars_and_pictures_match_their_times() {
        let page = render(&Report::Node(Box::new(node("a"))), at(100));
        assert!(
            page.contains("left:0.000%;width:25.000%") && page.contains("left:25.000%;width:75.000%"),
            "{page}"
        );
        assert!(
            page.contains("M250.0 100H250.0V0.0H750.0V75.0H1000V100Z"),
            "{page}"
        );
    }

    #[test]
    fn a_running_span_is_ongoing_and_a_time_without_length_has_no_bars() {
        let mut running = node("a");
        running.summary.ended_at = None;
        let page = render(&Report::Node(Box::new(running)), at(40));
        assert!(
            page.contains("<em>ongoing</em>") && !page.contains("Ended"),
            "{page}"
        );
        assert_eq!(share(at(5), at(5), at(5)), 0.0);
    }

    #[test]
    fn a_rotation_links_to_each_of_its_nodes() {
        let rotation = RotationReport {
            summary: node("r").summary,
            selection: json!({"outdated": {"ami": true}}),
            groups: vec![],
            skipped: None,
            waits: vec![],
            nodes: vec![node("a"), node("b")],
        };
        let page = render(&Report::Rotation(Box::new(rotation)), at(100));
        for number in 0..2 {
            assert!(
                page.contains(&format!("href=\"#node-{number}\""))
                    && page.contains(&format!("id=\"node-{number}\""))
            );
        }
    }

    #[test]
    fn the_page_of_sixty_nodes_begins_with_the_result_and_the_failures_and_folds_each_history() {
        let nodes = (0..60).map(|number| {
            let mut node = node(&format!("node-{number}.internal"));
            node.summary.outcome = "recycled".to_owned();
            if number >= 57 {
                node.summary.is_well = false;
                node.summary.outcome = "DrainTimedOut".to_owned();
            }
            node
        });
        let rotation = RotationReport {
            summary: node("r").summary,
            selection: json!({"outdated": {"ami": true}}),
            groups: vec![],
            skipped: None,
            waits: vec![],
            nodes: nodes.collect(),
        };
        let page = render(&Report::Rotation(Box::new(rotation)), at(100));
        let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
        let order = [
            "class=\"headline\"",
            ">Failures<",
            "id=\"time\"",
            "id=\"nodes\"",
            "id=\"node-0\"",
            "id=\"node-59\"",
        ];
        let places = order.map(place);
        assert!(places.is_sorted(), "{places:?}");
        let headline = page.get(places[0]..places[1]).unwrap();
        assert!(headline.contains("57 nodes were replaced"), "{headline}");
        let failures = page.get(places[1]..places[2]).unwrap();
        assert_eq!(failures.matches("DrainTimedOut").count(), 3);
        // Each history is in an element that is closed at first.
        let histories = page.get(places[4]..).unwrap();
        assert_eq!(histories.matches("<details><summary>").count(), 60);
        assert_eq!(histories.matches("</details>").count(), 60);
        for history in histories.split("<article id=\"node-").skip(1) {
            let outside = history.split_once("</details>").unwrap().1;
            assert!(
                !outside.contains("<h2") && !outside.contains("<table"),
                "{outside}"
            );
        }
    }
}
