//! Reads the log lines of an installation from CloudWatch Logs, for a support bundle.

use std::collections::VecDeque;

use aws_config::SdkConfig;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::aws::installation::MACHINE_LOGS;
use crate::base::error::{Error, Result};
use crate::doctor::facts::{MACHINES, list_functions};

/// The maximum number of lines of a log group in a bundle, and of their bytes.
const MOST_LINES: usize = 5_000;
const MOST_BYTES: usize = 1_000_000;
/// The maximum number of pages of a log group that are read. A page may be empty although later pages have lines.
const MOST_PAGES: usize = 200;

/// The names of the log groups: one for each function and each state machine.
pub(super) fn list_log_groups(name: &str) -> Vec<String> {
    let functions = list_functions().map(|function| format!("/aws/lambda/{name}-{function}"));
    let machines = MACHINES.map(|machine| format!("{MACHINE_LOGS}{name}-{machine}"));
    functions.chain(machines).collect()
}

/// Reads the lines of a log group between two times, the oldest first. If there are too many, the oldest are left out, which the field
/// `cut` says.
pub(super) async fn read_lines(
    aws: &SdkConfig,
    group: &str,
    from: Timestamp,
    to: Timestamp,
) -> Result<Value> {
    let logs = aws_sdk_cloudwatchlogs::Client::new(aws);
    let filter = logs.filter_log_events().log_group_name(group);
    let filter = filter
        .start_time(from.as_millisecond())
        .end_time(to.as_millisecond());
    let (mut lines, mut token, mut pages) = (Lines::default(), None, 0);
    loop {
        let asked = filter.clone().set_next_token(token).send();
        let page = asked.await.map_err(Error::of("logs:FilterLogEvents"))?;
        let events = page.events.into_iter().flatten();
        let found = events.filter_map(|event| Some((event.timestamp?, event.message?)));
        found.for_each(|(at, line)| lines.add(at, line));
        (token, pages) = (page.next_token, pages + 1);
        if token.is_none() || pages == MOST_PAGES {
            lines.is_cut |= token.is_some();
            return Ok(lines.document());
        }
    }
}

#[derive(Debug, Default)]
struct Lines {
    /// Each with its bytes.
    lines: VecDeque<(usize, Value)>,
    bytes: usize,
    is_cut: bool,
}

impl Lines {
    /// Adds a line, with its time in milliseconds since 1970. The oldest lines make room for it, because the end of an execution says most.
    fn add(&mut self, at: i64, line: String) {
        let at = Timestamp::from_millisecond(at).unwrap_or_default();
        self.bytes += line.len();
        self.lines
            .push_back((line.len(), json!({"at": at, "line": line})));
        while self.lines.len() > MOST_LINES || self.bytes > MOST_BYTES {
            let Some((bytes, _)) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= bytes;
            self.is_cut = true;
        }
    }

    fn document(self) -> Value {
        let cut = self.is_cut.then(|| {
            format!(
                "the bundle has {} lines of this log group, the newest that were read: at most {MOST_LINES} lines, {MOST_BYTES} bytes and {MOST_PAGES} pages",
                self.lines.len()
            )
        });
        let lines: Vec<Value> = self.lines.into_iter().map(|(_, line)| line).collect();
        json!({"lines": lines, "cut": cut})
    }
}

#[cfg(test)]
mod tests {
    use scripted_aws::ScriptedAws;

    use super::*;

    async fn read(aws: &ScriptedAws) -> Result<Value> {
        read_lines(&aws.config(), "one", Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH).await
    }

    #[tokio::test]
    async fn every_page_is_read_also_after_an_empty_one() {
        let page = |lines: &[&str], token: Option<&str>| {
            let events: Vec<Value> = lines
                .iter()
                .map(|line| json!({"timestamp": 1_798_761_600_000_i64, "message": line}))
                .collect();
            json!({"events": events, "nextToken": token}).to_string()
        };
        let aws = ScriptedAws::new()
            .on("FilterLogEvents", &page(&["a"], Some("2")))
            .on("FilterLogEvents", &page(&[], Some("3")))
            .on("FilterLogEvents", &page(&["b"], None));
        let line = |text| json!({"at": "2027-01-01T00:00:00Z", "line": text});
        assert_eq!(
            read(&aws).await.unwrap(),
            json!({"lines": [line("a"), line("b")], "cut": null})
        );
        assert!(
            aws.calls()[2].contains("\"nextToken\":\"3\""),
            "{:?}",
            aws.calls()
        );
    }

    #[tokio::test]
    async fn pages_without_an_end_are_cut() {
        let mut aws = ScriptedAws::new();
        for _ in 0..MOST_PAGES {
            aws = aws.on("FilterLogEvents", r#"{"events": [], "nextToken": "more"}"#);
        }
        let cut = read(&aws).await.unwrap();
        assert!(
            cut["cut"].as_str().unwrap().contains("the bundle has 0 lines"),
            "{cut}"
        );
    }

    #[test]
    fn the_newest_lines_are_kept_up_to_their_number_and_their_bytes() {
        for (line, count) in [("a", MOST_LINES), ("b".repeat(1_000).as_str(), 1_000)] {
            let mut lines = Lines::default();
            for at in 0..count {
                lines.add(i64::try_from(at).unwrap(), line.to_owned());
            }
            assert!(!lines.is_cut);
            lines.add(1_798_761_600_000, line.to_owned());
            let document = lines.document();
            let kept = document["lines"].as_array().unwrap();
            assert_eq!(kept.len(), count);
            assert_eq!(kept.last().unwrap()["at"], "2027-01-01T00:00:00Z");
            let cut = document["cut"].as_str().unwrap();
            assert!(
                cut.contains(&format!("{count} lines of this log group, the newest")),
                "{cut}"
            );
        }
    }

    #[test]
    fn every_function_and_state_machine_has_a_log_group() {
        let groups = list_log_groups("r");
        for group in ["/aws/lambda/r-serve-operator", "/aws/vendedlogs/states/r-sweep"] {
            assert!(groups.iter().any(|found| found == group), "{groups:?}");
        }
    }
}
