//! Cuts names and texts so that answers, sentences and Events stay within their limits.

/// How many names of a class an answer gives.
pub const NAMES_PER_CLASS: usize = 5;

/// To how many characters names are cut, one after the other, until all fit into a budget. With the last, five names in each class do.
const CUT_NAMES: [usize; 8] = [120, 80, 60, 40, 28, 20, 16, 12];

/// Cuts all names if together they have more than so many bytes: answers are small by construction, whatever pods are called.
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

/// Cuts a text to so many characters, the last of which tells that it was cut.
pub(crate) fn cut_text(text: &mut String, length: usize) {
    if text.chars().count() > length {
        *text = text.chars().take(length - 1).chain(['…']).collect();
    }
}

/// How many characters of what somebody wrote are told again.
const LONGEST_GIVEN: usize = 120;

/// What somebody wrote, for a sentence about it: cut if it is long.
pub(crate) fn cut_given(text: &str) -> String {
    let mut text = text.to_owned();
    cut_text(&mut text, LONGEST_GIVEN);
    text
}

/// These names, and whether there are more: `count` in all.
pub(crate) fn list_names(names: &[String], count: usize) -> String {
    let more = if count > names.len() { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

pub(crate) fn count_and_name(count: usize, names: &[String]) -> String {
    let noun = if count == 1 { "pod" } else { "pods" };
    format!("{count} {noun} ({})", list_names(names, count))
}
