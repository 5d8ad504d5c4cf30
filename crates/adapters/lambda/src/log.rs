//! Writes log lines with the level and the format of the function's logging configuration, which Lambda passes in environment variables.
//!
//! The runtime's own subscriber is not used. Its filters by module need regular expressions, a twentieth of the size of a function.

use std::io::{self, Write as _};

use serde_json::Value;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// Starts logging to standard output.
pub(crate) fn start(variable: &dyn Fn(&str) -> Option<String>) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(level(variable("AWS_LAMBDA_LOG_LEVEL")))
        .with_target(false);
    if is_json(variable("AWS_LAMBDA_LOG_FORMAT")) {
        lines.json().init();
    } else {
        lines.without_time().init();
    }
}

/// Writes a decision to standard output as one line of JSON, whatever the log format is. The counts of a decision are an object, which a
/// `tracing` event cannot have. A line that cannot be written fails nothing.
pub(crate) fn decision(line: &Value) {
    let is_wanted = if line["level"] == "ERROR" {
        tracing::enabled!(tracing::Level::ERROR)
    } else {
        tracing::enabled!(tracing::Level::INFO)
    };
    if is_wanted {
        write_line(line);
    }
}

/// Writes a metric at every log level, because the metrics that CloudWatch extracts may not depend on the level.
pub(crate) fn metric(line: &Value) {
    write_line(line);
}

fn write_line(line: &Value) {
    let _ = writeln!(io::stdout(), "{}", with_timestamp(line));
}

/// Adds the time, as `tracing` does. Lambda gives a JSON line without a valid `timestamp` the level INFO, whatever its own level is
/// (Lambda developer guide, "Log-level filtering").
fn with_timestamp(line: &Value) -> Value {
    let (mut line, mut now) = (line.clone(), String::new());
    // An unreadable clock leaves the time out.
    if SystemTime.format_time(&mut Writer::new(&mut now)).is_ok()
        && let Some(fields) = line.as_object_mut()
    {
        fields.insert("timestamp".to_owned(), now.into());
    }
    line
}

/// Reads one of Lambda's levels: TRACE, DEBUG, INFO, WARN, ERROR or FATAL. Rust does not have FATAL, so it becomes ERROR.
/// A missing or unknown level becomes INFO.
fn level(configured: Option<String>) -> LevelFilter {
    match configured.as_deref() {
        Some("FATAL") => LevelFilter::ERROR,
        Some(name) => name.parse().unwrap_or(LevelFilter::INFO),
        None => LevelFilter::INFO,
    }
}

fn is_json(configured: Option<String>) -> bool {
    configured.is_some_and(|format| format.eq_ignore_ascii_case("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_that_of_lambda_or_info() {
        let cases = [
            (None, LevelFilter::INFO),
            (Some("TRACE"), LevelFilter::TRACE),
            (Some("WARN"), LevelFilter::WARN),
            (Some("FATAL"), LevelFilter::ERROR),
            (Some("LOUD"), LevelFilter::INFO),
        ];
        for (configured, expected) in cases {
            assert_eq!(level(configured.map(str::to_owned)), expected, "{configured:?}");
        }
    }

    #[test]
    fn a_line_has_the_time_in_rfc_3339_beside_its_own_fields() {
        let line = with_timestamp(&serde_json::json!({"level": "ERROR", "_aws": {"Timestamp": 1}}));
        let time: jiff::Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
        assert!(time > "2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(
            (&line["level"], &line["_aws"]["Timestamp"]),
            (&"ERROR".into(), &1.into())
        );
    }

    #[test]
    fn lines_are_json_only_if_lambda_is_configured_so() {
        for (configured, expected) in [(None, false), (Some("Text"), false), (Some("JSON"), true)] {
            assert_eq!(is_json(configured.map(str::to_owned)), expected, "{configured:?}");
        }
    }
}
