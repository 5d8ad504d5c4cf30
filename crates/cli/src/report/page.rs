//! Renders a report as one HTML document that loads nothing. maud escapes every text.

use std::collections::BTreeSet;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use recycle::report::event::Stage;
use recycle::report::history::{Report, RotationReport};
use recycle::report::parts::{Look, NodeReport, SeenPod, Span, Summary};

use crate::base::times::{moment, shortly};

/// The style sheet of the page: light or dark according to the browser's setting, and one column on a phone.
const STYLE: &str = include_str!("page.css");
/// The Content Security Policy. The page may load nothing and run nothing, for any text in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
/// The height and the width of the picture of the counts, in units of the picture.
const HEIGHT: f64 = 100.0;
const WIDTH: f64 = 1_000.0;

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

fn title_of(node: &NodeReport) -> &str {
    let name = node.node.as_deref().or(node.instance.as_deref());
    name.unwrap_or("An unknown node")
}

fn rotation_body(rotation: &RotationReport, now: Timestamp) -> Markup {
    let end = end_of(&rotation.summary, now);
    html! {
        (summary(&rotation.summary, now, html! {
            dt { "Selection" } dd { code { (rotation.selection) } }
            dt { "Nodes" } dd { (rotation.nodes.len()) }
        }))
        section aria-labelledby="nodes" {
            h2 id="nodes" { "Nodes" }
            ul class="legend" aria-label="Colours of the stages" { @for stage in Stage::ALL { li { (chip(stage)) } } }
            div class="scroll" tabindex="0" role="region" aria-labelledby="nodes" {
                table {
                    caption { "One row for each node, in the order in which the executions began" }
                    thead { tr { th scope="col" { "Node" } th scope="col" { "Group" } th scope="col" { "Outcome" } th scope="col" { "Took" } th scope="col" class="wide" { "Stages" } } }
                    tbody {
                        @for (number, node) in rotation.nodes.iter().enumerate() {
                            tr {
                                th scope="row" { a href=(format!("#node-{number}")) { (title_of(node)) } }
                                td { (node.group.as_deref().unwrap_or("")) }
                                td { (outcome(&node.summary)) }
                                td { (took(&node.summary, now)) }
                                td { (bars(&node.stages, rotation.summary.started_at, end, now)) }
                            }
                        }
                    }
                }
            }
        }
        @for (number, node) in rotation.nodes.iter().enumerate() {
            article id=(format!("node-{number}")) {
                h2 { (title_of(node)) }
                (node_body(node, now))
            }
        }
    }
}

fn node_body(node: &NodeReport, now: Timestamp) -> Markup {
    let end = end_of(&node.summary, now);
    html! {
        (summary(&node.summary, now, html! {
            @if let Some(instance) = &node.instance { dt { "Instance" } dd { (instance) } }
            @if let Some(group) = &node.group { dt { "Group" } dd { (group) } }
            @if let Some(cluster) = &node.cluster { dt { "Cluster" } dd { (cluster) } }
            dt { "Checks of the pods" } dd { (node.polls) }
        }))
        @if !node.plan.is_empty() { section { h3 { "Plan" } ol { @for step in &node.plan { li { (step) } } } } }
        @if !node.stages.is_empty() { (timeline(node, end, now)) }
        @if !node.looks.is_empty() { (pods_over_time(&node.looks, node.summary.started_at, end)) }
        @if !node.pods.is_empty() { (named_pods(&node.pods, now)) }
        @if !node.blocked.is_empty() { (blocked(&node.blocked, now)) }
        @if !node.notifications.is_empty() {
            section {
                h3 { "Notifications" }
                (table("Notifications that were sent", &["When", "Event", "Severity", "Subject"], html! {
                    @for notification in &node.notifications {
                        tr { th scope="row" { (time(notification.at)) } td { (notification.event) } td { (notification.severity) } td { (notification.subject) } }
                    }
                }))
            }
        }
        @if !node.failed_attempts.is_empty() {
            section {
                h3 { "Failed attempts" }
                (table("Attempts that failed; most are retried", &["When", "State", "Error", "Why"], html! {
                    @for attempt in &node.failed_attempts {
                        tr { th scope="row" { (time(attempt.at)) } td { (attempt.state) } td { (attempt.error) } td { (attempt.cause) } }
                    }
                }))
            }
        }
    }
}

fn end_of(summary: &Summary, now: Timestamp) -> Timestamp {
    summary.ended_at.unwrap_or(now).max(summary.started_at)
}

fn summary(summary: &Summary, now: Timestamp, more: Markup) -> Markup {
    html! {
        dl class="summary" {
            dt { "Outcome" } dd { (outcome(summary)) }
            @if !summary.reason.is_empty() { dt { "Why" } dd { (summary.reason) } }
            dt { "Began" } dd { (time(summary.started_at)) }
            @if let Some(end) = summary.ended_at { dt { "Ended" } dd { (time(end)) } }
            dt { "Took" } dd { (took(summary, now)) }
            (more)
            dt { "Execution" } dd { code { (summary.execution) } }
            dt { "History" } dd { (summary.events) " of 25,000 events" }
        }
    }
}

fn outcome(summary: &Summary) -> Markup {
    let class = if summary.is_well { "well" } else { "ill" };
    html! { strong class=(class) { (summary.outcome) } }
}

fn took(summary: &Summary, now: Timestamp) -> String {
    shortly(end_of(summary, now).duration_since(summary.started_at))
}

fn time(at: Timestamp) -> Markup {
    html! { time datetime=(at) { (moment(at)) } }
}

/// Renders a stage with its colour.
fn chip(stage: Stage) -> Markup {
    html! { span class=(format!("chip {}", stage.describe())) {} (stage.describe()) }
}

/// Returns the place of `at` between `from` and `to`, in percent from 0 to 100. If `from` and `to` are equal, the place is 0.
fn share(at: Timestamp, from: Timestamp, to: Timestamp) -> f64 {
    let whole = to.duration_since(from).as_secs_f64();
    if whole <= 0.0 {
        0.0
    } else {
        (at.duration_since(from).as_secs_f64() / whole * 100.0).clamp(0.0, 100.0)
    }
}

fn bars(stages: &[Span<Stage>], from: Timestamp, to: Timestamp, now: Timestamp) -> Markup {
    let described = stages.iter();
    let described = described.map(|span| format!("{} {}", span.what.describe(), lasted(span, now)));
    html! {
        div class="bars" role="img" aria-label=(described.collect::<Vec<_>>().join(", ")) {
            @for span in stages {
                @let left = share(span.since, from, to);
                @let width = share(span.until.unwrap_or(now), from, to) - left;
                span class=(span.what.describe()) style=(format!("left:{left:.3}%;width:{width:.3}%")) {}
            }
        }
    }
}

fn lasted<What>(span: &Span<What>, now: Timestamp) -> String {
    shortly(span.until.unwrap_or(now).duration_since(span.since))
}

/// Renders three cells: since when, until when, and how long.
fn times<What>(span: &Span<What>, now: Timestamp) -> Markup {
    html! {
        td { (time(span.since)) }
        td { @if let Some(at) = span.until { (time(at)) } @else { em { "ongoing" } } }
        td { (lasted(span, now)) }
    }
}

fn timeline(node: &NodeReport, end: Timestamp, now: Timestamp) -> Markup {
    html! {
        section {
            h3 { "Stages" }
            (bars(&node.stages, node.summary.started_at, end, now))
            (table("Each stage, one after the other", &["Stage", "Since", "Until", "Took"], html! {
                @for span in &node.stages { tr { th scope="row" { (chip(span.what)) } (times(span, now)) } }
            }))
        }
    }
}

/// Renders a table that scrolls sideways on a screen that is too narrow for it.
fn table(caption: &str, head: &[&str], rows: Markup) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for title in head { th scope="col" { (title) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// Renders one picture for each class of pods, because the classes are not parts of one whole.
fn pods_over_time(looks: &[Look], from: Timestamp, to: Timestamp) -> Markup {
    let classes: BTreeSet<&String> = looks.iter().flat_map(|look| look.counts.keys()).collect();
    html! {
        section {
            h3 { "Pods over time" }
            div class="charts" {
                @for class in classes {
                    @let counts: Vec<(Timestamp, u32)> = looks.iter().map(|look| (look.at, look.counts.get(class).copied().unwrap_or(0))).collect();
                    @let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
                    figure {
                        figcaption { (class.replace('_', " ")) ": at most " (most) }
                        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(describe(class, &counts)) {
                            title { (describe(class, &counts)) }
                            path d=(draw(&counts, most, from, to)) {}
                        }
                    }
                }
            }
        }
    }
}

fn describe(class: &str, counts: &[(Timestamp, u32)]) -> String {
    let first = counts.first().map_or(0, |(_, count)| *count);
    let last = counts.last().map_or(0, |(_, count)| *count);
    let class = class.replace('_', " ");
    format!("{class}: {first} at the first check, {last} at the last")
}

/// Draws steps, because the counts between two checks are unknown. The count of the last check is drawn until `to`.
fn draw(counts: &[(Timestamp, u32)], most: u32, from: Timestamp, to: Timestamp) -> String {
    let across = |at: Timestamp| share(at, from, to) / 100.0 * WIDTH;
    let height = |count: u32| HEIGHT - f64::from(count) / f64::from(most.max(1)) * HEIGHT;
    let start = counts.first().map_or(0.0, |(at, _)| across(*at));
    let steps = counts.iter();
    let steps = steps.map(|(at, count)| format!("H{:.1}V{:.1}", across(*at), height(*count)));
    let steps: String = steps.collect();
    format!("M{start:.1} {HEIGHT}{steps}H{WIDTH}V{HEIGHT}Z")
}

fn named_pods(pods: &[Span<SeenPod>], now: Timestamp) -> Markup {
    html! {
        section {
            h3 { "Pods" }
            p class="note" { "Each check names the first five pods of a class." }
            (table("Pods and their classes", &["Pod", "Class", "Since", "Until", "For"], html! {
                @for span in pods {
                    tr { th scope="row" { (span.what.name) } td { (span.what.class.replace('_', " ")) } (times(span, now)) }
                }
            }))
        }
    }
}

fn blocked(spans: &[Span<Vec<String>>], now: Timestamp) -> Markup {
    html! {
        section {
            h3 { "Blockers" }
            (table("Blockers of the drain", &["Blocker", "Since", "Until", "For"], html! {
                @for span in spans {
                    tr {
                        th scope="row" {
                            @if span.what.is_empty() { "unknown" } @else { ul { @for what in &span.what { li { (what) } } } }
                        }
                        (times(span, now))
                    }
                }
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use recycle::report::parts::{FailedAttempt, SentNotification};
    use serde_json::json;

    use super::*;

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
                started_at: at(0),
                ended_at: Some(at(100)),
                events: 12,
            },
            instance: Some(text.clone()),
            node: Some(text.clone()),
            group: Some(text.clone()),
            cluster: Some(text.clone()),
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
            nodes: vec![node(HOSTILE)],
        };
        for report in [Report::Node(Box::new(node(HOSTILE))), Report::Rotation(rotation)] {
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
        for stage in Stage::ALL.map(Stage::describe) {
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
            nodes: vec![node("a"), node("b")],
        };
        let page = render(&Report::Rotation(rotation), at(100));
        for number in 0..2 {
            assert!(
                page.contains(&format!("href=\"#node-{number}\""))
                    && page.contains(&format!("id=\"node-{number}\""))
            );
        }
    }
}
