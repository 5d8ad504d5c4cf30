//! Times and durations in the form in which the output shows them.

use jiff::{SignedDuration, Timestamp};

/// Formats a duration as hours, minutes and seconds: `20:03:11`.
pub(crate) fn clock_face(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Formats a duration in its two largest units: `2d 4h`, `3h 20m`, `45s`. A second unit of zero is left out.
pub(crate) fn shortly(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let largest = units.iter().position(|(count, _)| *count > 0);
    let units = &units[largest.unwrap_or(units.len() - 1)..];
    let shown = units.iter().take(2);
    let shown = shown.filter(|(count, unit)| *count > 0 || *unit == units[0].1);
    let shown: Vec<String> = shown.map(|(count, unit)| format!("{count}{unit}")).collect();
    shown.join(" ")
}

/// Formats a time to the minute, in UTC: `2027-01-01 20:00Z`.
pub(crate) fn moment(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%MZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_in_their_two_largest_units() {
        for (seconds, short, face) in [
            (0, "0s", "0:00:00"),
            (45, "45s", "0:00:45"),
            (60, "1m", "0:01:00"),
            (12_000, "3h 20m", "3:20:00"),
            (187_200, "2d 4h", "52:00:00"),
            (172_801, "2d", "48:00:01"),
            (-5, "0s", "0:00:00"),
        ] {
            let duration = SignedDuration::from_secs(seconds);
            assert_eq!(
                (shortly(duration).as_str(), clock_face(duration).as_str()),
                (short, face)
            );
        }
    }

    #[test]
    fn times_are_formatted_to_the_minute() {
        let time = "2027-01-01T20:00:59.5Z".parse().unwrap();
        assert_eq!(moment(time), "2027-01-01 20:00Z");
    }
}
