//! Chooses the marks of a time axis, and renders it.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::report::parts::share;

/// Seconds between two marks. A mark lies at a multiple of them since 1970, so that it has a round time.
const STEPS: [i64; 18] = [
    5, 15, 30, 60, 300, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000,
    2_592_000, 7_776_000,
];

/// The maximum number of marks. On a phone each of them then has the room that its text needs.
const MOST_MARKS: i64 = 5;

const DAY: i64 = 86_400;

/// Lists the marks between two times, each with its text.
fn mark(from: Timestamp, to: Timestamp) -> Vec<(Timestamp, String)> {
    let (begin, end) = (from.as_second(), to.as_second());
    let fits = |step: &&i64| (end - begin) / **step < MOST_MARKS;
    let step = *STEPS.iter().find(fits).unwrap_or(&STEPS[STEPS.len() - 1]);
    let first = begin + (step - begin.rem_euclid(step)) % step;
    let moments = (0..MOST_MARKS).map(|number| first + number * step);
    let moments = moments.take_while(|second| *second <= end);
    let times = moments.filter_map(|second| Timestamp::from_second(second).ok());
    let write = |at: Timestamp| {
        let form = match at.as_second() % DAY {
            0 => "%-d %b",
            _ if step < 60 => "%H:%M:%S",
            _ => "%H:%M",
        };
        at.strftime(form).to_string()
    };
    times.map(|at| (at, write(at))).collect()
}

/// Renders the axis below or above bars. Marks at its ends stay within it.
pub(super) fn axis(from: Timestamp, to: Timestamp) -> Markup {
    html! {
        div class="axis" aria-hidden="true" {
            @for (at, text) in mark(from, to) {
                @let place = share(at, from, to);
                @let class = if place < 8.0 { "first" } else if place > 92.0 { "last" } else { "" };
                @let place = if class == "last" { format!("right:{:.3}%", 100.0 - place) } else { format!("left:{place:.3}%") };
                span class=(class) style=(place) { (text) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_round_times_and_a_new_day_has_its_date() {
        let cases: [(&str, &str, &[&str]); 5] = [
            (
                "2027-01-01T00:00:10Z",
                "2027-01-01T00:00:50Z",
                &["00:00:15", "00:00:30", "00:00:45"],
            ),
            (
                "2027-01-01T00:00:00Z",
                "2027-01-01T00:47:00Z",
                &["1 Jan", "00:15", "00:30", "00:45"],
            ),
            (
                "2027-01-01T09:10:00Z",
                "2027-01-01T13:20:00Z",
                &["10:00", "11:00", "12:00", "13:00"],
            ),
            (
                "2027-01-01T20:00:00Z",
                "2027-01-02T20:00:00Z",
                &["2 Jan", "06:00", "12:00", "18:00"],
            ),
            ("2027-01-01T12:00:00Z", "2027-01-01T12:00:00Z", &["12:00:00"]),
        ];
        for (from, to, expected) in cases {
            let marks = mark(from.parse().unwrap(), to.parse().unwrap());
            let texts: Vec<String> = marks.into_iter().map(|(_, text)| text).collect();
            assert_eq!(texts, expected, "{from}");
        }
    }

    #[test]
    fn no_span_has_too_many_marks() {
        let from: Timestamp = "2027-01-01T00:07:00Z".parse().unwrap();
        for days in [1, 2, 7, 30, 90, 365] {
            let to = Timestamp::from_second(from.as_second() + days * DAY).unwrap();
            let count = mark(from, to).len();
            assert!((1..=5).contains(&count), "{days}: {count}");
        }
    }
}
