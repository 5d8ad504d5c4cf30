//! Cuts names and texts, so that answers, messages and Events stay within their limits.

/// The number of names of a class that an answer gives.
pub const NAMES_PER_CLASS: usize = 5;

/// The lengths, in characters, to which names are cut, one after the other, until all fit into a budget.
/// With the last length, five names in each class fit.
const CUT_NAMES: [usize; 8] = [120, 80, 60, 40, 28, 20, 16, 12];

/// Cuts all names if together they have more than `budget` bytes. So answers stay small, however long the names of pods are.
pub(crate) fn fit_names(names: &mut [&mut String], budget: usize) {
    for length in CUT_NAMES {
        if names.iter().map(|name| name.len()).sum::<usize>() <= budget {
            return;
        }
        for name in &mut *names {
            cut_text(name, length);
        }
    }
}

/// Cuts a text to `length` characters, the last of which shows that it was cut.
pub(crate) fn cut_text(text: &mut String, length: usize) {
    if text.chars().count() > length {
        *text = text.chars().take(length - 1).chain(['…']).collect();
    }
}

/// The maximum number of characters of a given text that a message repeats.
const LONGEST_GIVEN: usize = 120;

/// Returns a text that a user or another system gave, for a sentence about it: cut if it is long.
pub(crate) fn cut_given(text: &str) -> String {
    let mut text = text.to_owned();
    cut_text(&mut text, LONGEST_GIVEN);
    text
}

/// Lists these names, and shows whether there are more. `count` is the number of all names.
pub(crate) fn list_names(names: &[String], count: usize) -> String {
    let more = if count > names.len() { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

/// Writes a number of things, such as `1 node` or `2 nodes`.
pub fn count(number: usize, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

pub(crate) fn count_and_name(count: usize, names: &[String]) -> String {
    let noun = if count == 1 { "pod" } else { "pods" };
    format!("{count} {noun} ({})", list_names(names, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_is_too_long_is_cut() {
        for (text, cut) in [("abc", "abc"), ("abcd", "ab…"), ("", "")] {
            let mut found = text.to_owned();
            cut_text(&mut found, 3);
            assert_eq!(found, cut);
        }
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(
            (count(1, "node"), count(2, "node"), count(0, "node")),
            ("1 node".to_owned(), "2 nodes".to_owned(), "0 nodes".to_owned())
        );
    }
}
