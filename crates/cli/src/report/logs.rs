//! Reads the log lines of an installation from CloudWatch Logs, for a support bundle.

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

/// Reads the lines of a log group between two times, the oldest first. If there are too many, the rest is left out, which the field `cut`
/// says.
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
        let mut found = events.filter_map(|event| Some((event.timestamp?, event.message?)));
        let has_room = found.all(|(at, line)| lines.add(at, line));
        (token, pages) = (page.next_token, pages + 1);
        if !has_room || token.is_none() || pages == MOST_PAGES {
            lines.is_cut = !has_room || token.is_some();
            return Ok(lines.document());
        }
    }
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<Value>,
    bytes: usize,
    is_cut: bool,
}

impl Lines {
    /// Adds a line, with its time in milliseconds since 1970. False if there is no room for it.
    fn add(&mut self, at: i64, line: String) -> bool {
        self.bytes += line.len();
        let has_room = self.lines.len() < MOST_LINES && self.bytes <= MOST_BYTES;
        if has_room {
            let at = Timestamp::from_millisecond(at).unwrap_or_default();
            self.lines.push(json!({"at": at, "line": line}));
        }
        has_room
    }

    fn document(self) -> Value {
        let cut = self.is_cut.then(|| {
            format!(
                "the bundle has the first {} lines of this log group: at most {MOST_LINES} lines, {MOST_BYTES} bytes and {MOST_PAGES} pages",
                self.lines.len()
            )
        });
        json!({"lines": self.lines, "cut": cut})
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
            cut["cut"].as_str().unwrap().contains("the first 0 lines"),
            "{cut}"
        );
    }

    #[test]
    fn lines_are_cut_by_their_number_and_by_their_bytes() {
        for (line, count) in [("a", MOST_LINES), ("b".repeat(1_000).as_str(), 1_000)] {
            let mut lines = Lines::default();
            let added = (0..).take_while(|at| lines.add(*at, line.to_owned())).count();
            assert_eq!((added, lines.lines.len()), (count, count));
            assert_eq!(lines.document()["cut"], Value::Null);
        }
        let mut cut = Lines::default();
        assert!(cut.add(1_798_761_600_000, "a".to_owned()));
        cut.is_cut = true;
        let document = cut.document();
        assert_eq!(
            document["lines"],
            json!([{"at": "2027-01-01T00:00:00Z", "line": "a"}])
        );
        assert!(
            document["cut"].as_str().unwrap().contains("the first 1 lines"),
            "{document}"
        );
    }

    #[test]
    fn every_function_and_state_machine_has_a_log_group() {
        let groups = list_log_groups("r");
        for group in ["/aws/lambda/r-serve-operator", "/aws/vendedlogs/states/r-sweep"] {
            assert!(groups.iter().any(|found| found == group), "{groups:?}");
        }
    }
}
