//! Writes the members of a group so shortly that an answer has room for all of them.

use crate::base::ids::InstanceId;

/// The number of hexadecimal digits at the end of an instance id that tell members apart.
/// A group has at most 500 members by default. In one case of 30,000 a new member of such a group has the same digits as an old one,
/// and is then not recognised as new.
const DIGITS: usize = 6;
/// The number of characters that write these digits, six bits each: 500 members take 2,000 bytes.
const MARK: usize = DIGITS * 4 / 6;
const SIX_BITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/// Returns four characters for each member, made of the end of its id.
pub fn mark_members(members: &[InstanceId]) -> String {
    members.iter().map(mark).collect()
}

/// Checks whether `marks` has the mark of an instance.
pub fn is_marked(marks: &str, id: &InstanceId) -> bool {
    let mark = mark(id);
    marks.as_bytes().chunks(MARK).any(|one| one == mark.as_bytes())
}

fn mark(id: &InstanceId) -> String {
    let digits: String = id.as_str().chars().rev().take(DIGITS).collect();
    let number = usize::from_str_radix(&digits, 16).unwrap_or_default();
    (0..MARK)
        .filter_map(|place| SIX_BITS.get((number >> (place * 6)) % SIX_BITS.len()))
        .map(|character| char::from(*character))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{NEW, OLD, OTHER, id};

    #[test]
    fn a_member_is_recognised_by_four_characters() {
        let marks = mark_members(&[id(OLD), id(OTHER)]);
        assert_eq!(marks.len(), 2 * MARK);
        assert!(is_marked(&marks, &id(OLD)) && is_marked(&marks, &id(OTHER)));
        assert!(!is_marked(&marks, &id(NEW)) && !is_marked("", &id(NEW)));
    }

    #[test]
    fn ids_that_differ_in_their_last_digits_have_different_marks() {
        let marks: std::collections::BTreeSet<String> = (0..5_000)
            .map(|n| mark(&id(&format!("i-{:017x}", n * 3_331))))
            .collect();
        assert_eq!(marks.len(), 5_000);
    }
}
