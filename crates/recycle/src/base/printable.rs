//! Makes text from a node, a tenant or AWS safe for a terminal or a notification.

use std::borrow::Cow;

use serde_json::Value;

/// Replaces each character that controls a terminal or changes the direction of writing with U+FFFD, except line feeds
/// (Unicode Technical Report 36, "Bidirectional Text Spoofing").
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(is_unsafe) {
        Cow::Owned(text.replace(is_unsafe, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Makes every string and every name in a document printable.
pub fn printable_document(document: Value) -> Value {
    change_texts(document, &|text| printable(text).into_owned())
}

/// Changes every string and every name in a document.
pub fn change_texts(document: Value, change: &impl Fn(&str) -> String) -> Value {
    let each = |value| change_texts(value, change);
    match document {
        Value::String(text) => Value::String(change(&text)),
        Value::Array(values) => values.into_iter().map(each).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (change(&name), each(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => document,
    }
}

fn is_unsafe(character: char) -> bool {
    let changes_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    changes_direction || (character.is_control() && character != '\n')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn characters_that_control_a_terminal_or_the_direction_of_writing_are_replaced() {
        for (text, expected) in [
            (
                "it waits for 1 pod (jobs/train)\nsecond line, ü, 漢, …",
                "it waits for 1 pod (jobs/train)\nsecond line, ü, 漢, …",
            ),
            ("\u{1b}]52;c;eA==\u{7}", "\u{fffd}]52;c;eA==\u{fffd}"),
            ("\u{9b}2J", "\u{fffd}2J"),
            ("a\rb\tc", "a\u{fffd}b\u{fffd}c"),
            ("app-\u{202e}gpj\u{2066}", "app-\u{fffd}gpj\u{fffd}"),
        ] {
            assert_eq!(printable(text), expected);
        }
        let document = json!({"a\u{1b}": ["\u{7}", 1, null, {"b": "\u{202e}"}]});
        let expected = json!({"a\u{fffd}": ["\u{fffd}", 1, null, {"b": "\u{fffd}"}]});
        assert_eq!(printable_document(document), expected);
    }
}
