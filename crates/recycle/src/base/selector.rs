//! Label selectors in the full syntax of `kubectl -l`, equality-based and set-based. The selector `*` matches every pod.
//!
//! A comma means "and", as in Kubernetes. The predecessor of recycle-eks passed its list to the API server unchanged, so
//! `airflow_version=1.2.3,airflow-worker` has the same meaning here: both requirements have to be met.
//!
//! There is no empty selector. Kubernetes reads it as "all", and the input of an execution as "none" (`crate::input::model`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::text::cut_given;

/// A parsed selector, which is written back as text. Only `*` has no requirements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSelector(pub String);

/// The condition that one label has to meet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    condition: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Exists,
    Absent,
    Equals(String),
    /// Also holds if the label is absent.
    Differs(String),
    In(BTreeSet<String>),
    /// Also holds if the label is absent.
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

/// A requirement as objects of Kubernetes have it, such as in `matchExpressions`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Expression {
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, or `Gt` or `Lt` for nodes.
    pub operator: String,
    pub values: Vec<String>,
}

impl Expression {
    /// Writes the requirement in the syntax of `kubectl -l`. None if label selectors do not have its operator.
    pub fn write(&self) -> Option<String> {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator.as_str() {
            "In" => Some(format!("{key} in ({values})")),
            "NotIn" => Some(format!("{key} notin ({values})")),
            "Exists" => Some(key.clone()),
            "DoesNotExist" => Some(format!("!{key}")),
            _ => None,
        }
    }
}

impl Selector {
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            requirement.condition.holds(value.map(String::as_str))
        })
    }
}

impl Condition {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Equals(wanted) => value == Some(wanted.as_str()),
            Self::Differs(unwanted) => value != Some(unwanted.as_str()),
            Self::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
            Self::NotIn(unwanted) => value.is_none_or(|value| !unwanted.contains(value)),
            Self::GreaterThan(bound) => as_number(value).is_some_and(|number| number > *bound),
            Self::LessThan(bound) => as_number(value).is_some_and(|number| number < *bound),
        }
    }
}

fn as_number(value: Option<&str>) -> Option<i64> {
    value.and_then(|value| value.parse().ok())
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.requirements.is_empty() {
            return f.write_str("*");
        }
        let requirements: Vec<String> = self.requirements.iter().map(Requirement::to_string).collect();
        f.write_str(&requirements.join(","))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.condition {
            Condition::Exists => f.write_str(key),
            Condition::Absent => write!(f, "!{key}"),
            Condition::Equals(value) => write!(f, "{key}={value}"),
            Condition::Differs(value) => write!(f, "{key}!={value}"),
            Condition::In(values) => write!(f, "{key} in ({})", join(values)),
            Condition::NotIn(values) => write!(f, "{key} notin ({})", join(values)),
            Condition::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Condition::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

fn join(values: &BTreeSet<String>) -> String {
    if values.iter().all(String::is_empty) {
        // `()` is refused, so a list of nothing but the empty value needs its comma.
        return ",".to_owned();
    }
    values.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let mut requirements = Vec::new();
        if text.trim() == "*" {
            return Ok(Self { requirements });
        }
        let mut parser = Parser {
            text,
            left: text.trim_start(),
        };
        requirements.push(parser.read_requirement()?);
        while !parser.left.is_empty() {
            parser.read_symbol(",", "a comma or the end")?;
            requirements.push(parser.read_requirement()?);
        }
        Ok(Self { requirements })
    }
}

impl TryFrom<String> for Selector {
    type Error = InvalidSelector;

    fn try_from(text: String) -> Result<Self, InvalidSelector> {
        text.parse()
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

struct Parser<'a> {
    text: &'a str,
    /// The text that has not been read yet, from the next word or symbol on.
    left: &'a str,
}

impl<'a> Parser<'a> {
    /// Returns the next word, or the next of the symbols `= == != ! ( ) , < >`. Empty at the end.
    fn peek(&self) -> &'a str {
        let ends_word = |c: char| c.is_whitespace() || is_symbol(c);
        let length = if self.left.starts_with("==") || self.left.starts_with("!=") {
            2
        } else if self.left.starts_with(is_symbol) {
            1
        } else {
            self.left.find(ends_word).unwrap_or(self.left.len())
        };
        self.left.get(..length).unwrap_or_default()
    }

    fn skip(&mut self, token: &str) -> &mut Self {
        self.left = self.left.strip_prefix(token).unwrap_or_default().trim_start();
        self
    }

    /// Creates an error that says what was expected and what was found. Positions are counted in characters from 1.
    fn refuse<T>(&self, expected: &str) -> Result<T, InvalidSelector> {
        let end = self.text.chars().count();
        Err(InvalidSelector(match self.peek() {
            "" if end == 0 => format!("expected {expected}, but found nothing"),
            "" => format!("expected {expected} after character {end}, but found the end"),
            token => format!(
                "expected {expected} at character {}, but found {:?}",
                end - self.left.chars().count() + 1,
                cut_given(token)
            ),
        }))
    }

    fn read_symbol(&mut self, symbol: &str, expected: &str) -> Result<(), InvalidSelector> {
        if self.peek() != symbol {
            return self.refuse(expected);
        }
        self.skip(symbol);
        Ok(())
    }

    fn read_requirement(&mut self) -> Result<Requirement, InvalidSelector> {
        if self.peek() == "!" {
            self.skip("!");
            return Ok(Requirement {
                key: self.read_key()?,
                condition: Condition::Absent,
            });
        }
        let key = self.read_key()?;
        let operator = self.peek();
        let condition = match operator {
            "" | "," => Condition::Exists,
            "=" | "==" => Condition::Equals(self.skip(operator).read_value()?),
            "!=" => Condition::Differs(self.skip(operator).read_value()?),
            "in" => Condition::In(self.skip(operator).read_values()?),
            "notin" => Condition::NotIn(self.skip(operator).read_values()?),
            ">" => Condition::GreaterThan(self.skip(operator).read_number()?),
            "<" => Condition::LessThan(self.skip(operator).read_number()?),
            _ => return self.refuse("one of =, ==, !=, in, notin, <, > or a comma"),
        };
        Ok(Requirement { key, condition })
    }

    fn read_key(&mut self) -> Result<String, InvalidSelector> {
        let key = self.peek();
        if !is_label_key(key) {
            return self.refuse(
                "a label key (up to 63 letters, digits, -, _ and ., with an optional DNS name and / in front)",
            );
        }
        self.skip(key);
        Ok(key.to_owned())
    }

    /// Reads a value, which may be empty: `key=` asks for the label with an empty value.
    fn read_value(&mut self) -> Result<String, InvalidSelector> {
        let value = self.peek();
        if value.starts_with(is_symbol) {
            return Ok(String::new());
        }
        if !is_label_value(value) {
            return self.refuse(
                "a label value (up to 63 letters, digits, -, _ and ., a letter or digit at both ends)",
            );
        }
        self.skip(value);
        Ok(value.to_owned())
    }

    fn read_values(&mut self) -> Result<BTreeSet<String>, InvalidSelector> {
        self.read_symbol("(", "a list of values in parentheses")?;
        if self.peek() == ")" {
            return self.refuse("a value");
        }
        let mut values = BTreeSet::from([self.read_value()?]);
        while self.peek() == "," {
            self.skip(",");
            values.insert(self.read_value()?);
        }
        self.read_symbol(")", "a comma or )")?;
        Ok(values)
    }

    fn read_number(&mut self) -> Result<i64, InvalidSelector> {
        let number = self.peek();
        let Ok(value) = number.parse() else {
            return self.refuse("a whole number");
        };
        self.skip(number);
        Ok(value)
    }
}

fn is_symbol(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '<' | '>')
}

/// Checks for the form `[DNS subdomain/]name` (Kubernetes, "Labels and Selectors").
fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text
        .split_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_dns_subdomain) && !name.is_empty() && is_label_value(name)
}

fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || (text.len() <= 63
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
            && text.starts_with(|first: char| first.is_ascii_alphanumeric())
            && text.ends_with(|last: char| last.is_ascii_alphanumeric()))
}

fn is_dns_subdomain(text: &str) -> bool {
    (1..=253).contains(&text.len()) && text.split('.').all(is_dns_label)
}

/// Checks for a DNS label, such as the name of a namespace: at most 63 lower-case letters, digits and hyphens, no hyphen at an end.
pub(crate) fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::strings;

    #[test]
    fn a_selector_matches_the_pods_that_the_api_server_would_list() {
        let web = strings([
            ("app", "web"),
            ("tier", "front"),
            ("size", "12"),
            ("example.com/team", "a"),
            ("empty", ""),
        ]);
        let cases = [
            ("*", true),
            ("app=web", true),
            ("app==web", true),
            (" app = web ", true),
            ("app=batch", false),
            ("app!=batch", true),
            ("app!=web", false),
            ("missing!=web", true),
            ("app in (web,batch)", true),
            ("app in(batch)", false),
            ("app notin (batch)", true),
            ("app notin (web)", false),
            ("missing notin (web)", true),
            ("missing in (web)", false),
            ("app", true),
            ("missing", false),
            ("!missing", true),
            ("! app", false),
            ("example.com/team=a", true),
            ("example.com/team", true),
            ("empty=", true),
            ("app=", false),
            ("empty in (,a)", true),
            ("empty in (,)", true),
            ("size>11", true),
            ("size>12", false),
            ("size<12", false),
            ("app>1", false),
            ("app=web,tier=front", true),
            ("app=web,tier=back", false),
            ("app=web,tier", true),
            ("app in (web), tier notin (back), !missing", true),
            ("in", false),
            ("in in (in)", false),
        ];
        for (text, expected) in cases {
            let selector: Selector = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.matches(&web), expected, "{text}");
        }
    }

    #[test]
    fn the_comma_list_of_the_predecessor_has_the_same_meaning() {
        // The example of the predecessor's README. The predecessor passed the text to the API server as it was.
        let selector: Selector = "airflow_version=1.2.3,airflow-worker".parse().unwrap();
        assert!(selector.matches(&strings([("airflow_version", "1.2.3"), ("airflow-worker", "")])));
        assert!(!selector.matches(&strings([("airflow_version", "1.2.3")])));
        assert!(!selector.matches(&strings([("airflow-worker", "")])));
    }

    #[test]
    fn a_refusal_of_a_selector_says_where_and_what_was_expected() {
        let cases = [
            ("", "but found nothing"),
            ("app=web,", "expected a label key"),
            (",app", "at character 1, but found \",\""),
            ("app web", "at character 5, but found \"web\""),
            (
                "app in web",
                "expected a list of values in parentheses at character 8",
            ),
            (
                "app in (web",
                "expected a comma or ) after character 11, but found the end",
            ),
            ("app in ()", "expected a value at character 9"),
            ("app=web tier=front", "expected a comma or the end at character 9"),
            ("app=we/b", "expected a label value"),
            ("-app=web", "expected a label key"),
            ("a/b/c=web", "expected a label key"),
            ("UPPER.com/a=b", "expected a label key"),
            ("app=!", "expected a comma or the end at character 5"),
            ("!app=web", "expected a comma or the end at character 5"),
            ("app===web", "expected a comma or the end at character 6"),
            ("size>big", "expected a whole number at character 6"),
            ("*,app", "expected a label key"),
            ("app=ä", "expected a label value"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Selector>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = "a".repeat(64);
        assert!(long.parse::<Selector>().is_err());
        assert!(format!("a={long}").parse::<Selector>().is_err());
        assert!(format!("{}/a", "a".repeat(254)).parse::<Selector>().is_err());
    }

    fn any_key() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("a".to_owned()),
            Just("b".to_owned()),
            Just("in".to_owned()),
            "([a-z]{1,5}\\.)?[a-z]{1,5}/[A-Za-z0-9]{1,5}"
        ]
    }

    fn any_value() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            Just("x".to_owned()),
            Just("notin".to_owned()),
            "[A-Za-z0-9]([-._]?[A-Za-z0-9]){0,5}"
        ]
    }

    fn any_condition() -> impl Strategy<Value = Condition> {
        let values = || prop::collection::btree_set(any_value(), 1..4);
        prop_oneof![
            Just(Condition::Exists),
            Just(Condition::Absent),
            any_value().prop_map(Condition::Equals),
            any_value().prop_map(Condition::Differs),
            values().prop_map(Condition::In),
            values().prop_map(Condition::NotIn),
            any::<i64>().prop_map(Condition::GreaterThan),
            any::<i64>().prop_map(Condition::LessThan),
        ]
    }

    fn any_selector() -> impl Strategy<Value = Selector> {
        let requirement =
            (any_key(), any_condition()).prop_map(|(key, condition)| Requirement { key, condition });
        prop::collection::vec(requirement, 0..5).prop_map(|requirements| Selector { requirements })
    }

    /// Matches a selector's text without the types above, as an independent model.
    fn naive_match(text: &str, labels: &BTreeMap<String, String>) -> bool {
        if text == "*" {
            return true;
        }
        let mut depth = 0;
        let pieces = text.split(|character: char| {
            depth += match character {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            character == ',' && depth == 0
        });
        pieces.into_iter().all(|piece| naive_requirement(piece, labels))
    }

    fn naive_requirement(piece: &str, labels: &BTreeMap<String, String>) -> bool {
        let list = |text: &str| -> Vec<String> {
            text.trim_start_matches('(')
                .trim_end_matches(')')
                .split(',')
                .map(str::to_owned)
                .collect()
        };
        if let Some(key) = piece.strip_prefix('!') {
            !labels.contains_key(key)
        } else if let Some((key, values)) = piece.split_once(" in ") {
            labels.get(key).is_some_and(|value| list(values).contains(value))
        } else if let Some((key, values)) = piece.split_once(" notin ") {
            !labels.get(key).is_some_and(|value| list(values).contains(value))
        } else if let Some((key, value)) = piece.split_once("!=") {
            labels.get(key).map(String::as_str) != Some(value)
        } else if let Some((key, value)) = piece.split_once('=') {
            labels.get(key).map(String::as_str) == Some(value)
        } else if let Some((key, bound)) = piece.split_once('>') {
            labels.get(key).is_some_and(|value| {
                value
                    .parse::<i64>()
                    .is_ok_and(|value| value > bound.parse().unwrap())
            })
        } else if let Some((key, bound)) = piece.split_once('<') {
            labels.get(key).is_some_and(|value| {
                value
                    .parse::<i64>()
                    .is_ok_and(|value| value < bound.parse().unwrap())
            })
        } else {
            labels.contains_key(piece)
        }
    }

    proptest! {
        #[test]
        fn a_written_selector_is_read_as_the_same(selector in any_selector()) {
            prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
        }

        #[test]
        fn matching_agrees_with_a_naive_model(
            selector in any_selector(),
            labels in prop::collection::btree_map(any_key(), any_value(), 0..5),
        ) {
            prop_assert_eq!(selector.matches(&labels), naive_match(&selector.to_string(), &labels), "{}", selector);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-z0-9=!(),<> ./*-]{0,30}|\\PC{0,20}") {
            let _ = text.parse::<Selector>();
        }
    }
}
