//! Durations as an operator writes them: `20h`, `1d12h`, `45s`, or a number of seconds.
//!
//! The input of an execution, the terms of a rotation, the command line and Terraform share this grammar.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::base::text::cut_given;

/// The units, from the longest to the shortest, and their lengths in seconds. A day has 24 hours: daylight saving time does not count.
const UNITS: [(char, u32); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Durations below this number of seconds are written in seconds: `60s` and `90s`, as `kubectl` writes ages.
const WRITTEN_IN_SECONDS: u32 = 120;

/// The examples in error messages. A range lists those that it allows.
const EXAMPLES: [Duration; 2] = [Duration(20 * 3_600), Duration(10 * 86_400)];

/// The example for a range that allows none of [`EXAMPLES`].
const SHORT_EXAMPLE: &str = "10m";

/// A duration in whole seconds. Its text has days, hours, minutes and seconds in this order, such as `1d12h`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(u32);

impl Duration {
    pub const fn as_seconds(self) -> u32 {
        self.0
    }

    /// Reads a JSON number of seconds or a text. None if the value is not a duration.
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Some(Self(number.as_u64()?.try_into().ok()?)),
            Value::String(text) => parse_seconds(text).map(Self),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// A text or value that is not a duration, or a duration that is out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be {expected}, but is {given}")]
pub struct InvalidDuration {
    expected: DurationRange,
    /// The value as it was given, cut if it is long.
    given: String,
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        DurationRange::ANY.parse(text)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        if rest < WRITTEN_IN_SECONDS {
            return write!(f, "{rest}s");
        }
        for (unit, length) in UNITS {
            let count = rest / length;
            rest %= length;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        DurationRange::ANY.read(&value).map_err(serde::de::Error::custom)
    }
}

/// The durations from `least` to `most`, both included. Its text says what is allowed, for an error message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationRange {
    least: Duration,
    most: Duration,
}

impl DurationRange {
    /// Every duration.
    pub const ANY: Self = Self::new(0, u32::MAX);

    /// Creates a range from its bounds in seconds.
    pub const fn new(least: u32, most: u32) -> Self {
        Self {
            least: Duration(least),
            most: Duration(most),
        }
    }

    pub const fn least(self) -> Duration {
        self.least
    }

    pub const fn most(self) -> Duration {
        self.most
    }

    pub fn parse(self, text: &str) -> Result<Duration, InvalidDuration> {
        self.read(&text.into())
    }

    /// Reads a JSON number of seconds or a text, and checks the range.
    pub fn read(self, value: &Value) -> Result<Duration, InvalidDuration> {
        let is_allowed = |duration: &Duration| (self.least..=self.most).contains(duration);
        Duration::read(value)
            .filter(is_allowed)
            .ok_or_else(|| InvalidDuration {
                expected: self,
                given: cut_given(&value.to_string()),
            })
    }
}

impl fmt::Display for DurationRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.least, self.most);
        match (least.0, most.0) {
            (0, u32::MAX) => f.write_str("a duration such as ")?,
            (_, u32::MAX) => write!(f, "a duration of at least {least}, such as ")?,
            (_, _) => write!(f, "a duration from {least} to {most}, such as ")?,
        }
        let allowed = EXAMPLES.into_iter().filter(|each| (least..=most).contains(each));
        let allowed: Vec<String> = allowed.map(|each| each.to_string()).collect();
        let examples = if allowed.is_empty() {
            SHORT_EXAMPLE.to_owned()
        } else {
            allowed.join(", ")
        };
        write!(f, "{examples} or a number of seconds")
    }
}

/// Parses a number of seconds, or counts with their units in the order of [`UNITS`]. None on overflow.
fn parse_seconds(text: &str) -> Option<u32> {
    if let Some(seconds) = parse_count(text) {
        return Some(seconds);
    }
    let (mut rest, mut seconds) = (text, 0_u32);
    for (unit, length) in UNITS {
        if let Some((count, after)) = rest.split_once(unit) {
            seconds = seconds.checked_add(parse_count(count)?.checked_mul(length)?)?;
            rest = after;
        }
    }
    (rest.is_empty() && !text.is_empty()).then_some(seconds)
}

/// Parses digits. [`u32::from_str`] alone would also accept a sign.
fn parse_count(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_duration_is_a_text_with_units_or_a_number_of_seconds() {
        for (given, seconds) in [
            (json!("20h"), 72_000),
            (json!("10d"), 864_000),
            (json!("90m"), 5_400),
            (json!("45s"), 45),
            (json!("1d12h"), 129_600),
            (json!("1d2h3m4s"), 93_784),
            (json!("1d4s"), 86_404),
            (json!("36h"), 129_600),
            (json!("0s"), 0),
            (json!("007m"), 420),
            (json!("3600"), 3_600),
            (json!("0"), 0),
            (json!(3_600), 3_600),
            (json!(0), 0),
            (json!(u32::MAX), u32::MAX),
            (json!("4294967295"), u32::MAX),
            (json!("49710d6h28m15s"), u32::MAX),
        ] {
            assert_eq!(Duration::read(&given), Some(Duration(seconds)), "{given}");
        }
    }

    #[test]
    fn other_values_are_refused() {
        for given in [
            json!(""),
            json!("d"),
            json!("h30m"),
            json!("2 days"),
            json!("1d 2h"),
            json!(" 1d"),
            json!("1d "),
            json!("-1h"),
            json!("+1h"),
            json!("+5"),
            json!("1.5h"),
            json!("1,5h"),
            json!("2h1d"),
            json!("1h2h"),
            json!("1d30"),
            json!("1D"),
            json!("1w"),
            json!("1ms"),
            json!("PT4H"),
            json!("P1D"),
            json!("٣h"),
            json!("4294967296"),
            json!("4294967296s"),
            json!("49710d6h28m16s"),
            json!("71582789m"),
            json!("99999999999999999999d"),
            json!(4_294_967_296_u64),
            json!(-1),
            json!(1.5),
            json!(3_600.0),
            json!(null),
            json!(true),
            json!(["1h"]),
            json!({"hours": 1}),
        ] {
            assert_eq!(Duration::read(&given), None, "{given}");
        }
    }

    #[test]
    fn a_duration_is_written_in_its_units() {
        for (seconds, text) in [
            (0, "0s"),
            (1, "1s"),
            (60, "60s"),
            (90, "90s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (840, "14m"),
            (1_800, "30m"),
            (3_600, "1h"),
            (3_660, "1h1m"),
            (86_399, "23h59m59s"),
            (86_400, "1d"),
            (129_600, "1d12h"),
            (172_800, "2d"),
            (2_592_000, "30d"),
            (u32::MAX, "49710d6h28m15s"),
        ] {
            assert_eq!(Duration(seconds).to_string(), text);
        }
    }

    #[test]
    fn a_refusal_says_what_is_allowed_and_what_was_given() {
        let of = |least, most| DurationRange::new(least, most);
        for (range, given, expected) in [
            (
                of(60, 2_592_000),
                json!("2 days"),
                "must be a duration from 60s to 30d, such as 20h, 10d or a number of seconds, but is \"2 days\"",
            ),
            (
                of(300, 86_400),
                json!(299),
                "must be a duration from 5m to 1d, such as 20h or a number of seconds, but is 299",
            ),
            (
                of(0, 3_600),
                json!("2h"),
                "must be a duration from 0s to 1h, such as 10m or a number of seconds, but is \"2h\"",
            ),
            (
                of(1, u32::MAX),
                json!(0),
                "must be a duration of at least 1s, such as 20h, 10d or a number of seconds, but is 0",
            ),
            (
                DurationRange::ANY,
                json!(null),
                "must be a duration such as 20h, 10d or a number of seconds, but is null",
            ),
        ] {
            let refused = range.read(&given).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
        let long = "9".repeat(20_000).parse::<Duration>().unwrap_err().to_string();
        assert!(long.len() < 300, "{long}");
        let read = serde_json::from_value::<Duration>;
        assert_eq!(read(json!("14d")).unwrap(), Duration(1_209_600));
        assert!(
            read(json!("soon"))
                .unwrap_err()
                .to_string()
                .starts_with("must be a duration such as")
        );
    }

    #[test]
    fn both_ends_of_a_range_are_allowed() {
        let range = DurationRange::new(60, 3_600);
        for (given, is_allowed) in [("59s", false), ("1m", true), ("1h", true), ("1h1s", false)] {
            assert_eq!(range.parse(given).is_ok(), is_allowed, "{given}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same_duration(seconds in any::<u32>()) {
            let duration = Duration(seconds);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
            prop_assert_eq!(seconds.to_string().parse(), Ok(duration));
            prop_assert_eq!(serde_json::from_value::<Duration>(json!(duration)).ok(), Some(duration));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9dhms +.PT-]{0,12}") {
            if let Ok(duration) = text.parse::<Duration>() {
                prop_assert!(text.bytes().all(|byte| byte.is_ascii_digit() || b"dhms".contains(&byte)));
                prop_assert_eq!(duration.to_string().parse(), Ok(duration));
            }
        }
    }
}
