//! Label selectors: the full syntax that the API server takes from `kubectl -l`, equality- and set-based; `*` for every pod.
//!
//! The comma is Kubernetes' "and". The predecessor passed its comma list to the API server as it was, so that its
//! `airflow_version=1.2.3,airflow-worker` means here what it meant there: both have to hold.
//!
//! There is no empty selector: Kubernetes reads it as "all", our input as "none" (`crate::input`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A parsed selector; written back as text. It has no requirement only if it is `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// A selector that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSelector(pub String);

/// What one label has to be like.
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

impl Selector {
    /// The selector `*`.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            requirements: Vec::new(),
        }
    }

    /// Whether a pod's labels match.
    #[must_use]
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
        for (position, requirement) in self.requirements.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
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
    values.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        if text.trim() == "*" {
            return Ok(Self::everything());
        }
        let mut parser = Parser {
            tokens: split_tokens(text),
            next: 0,
            end: text.chars().count(),
        };
        let mut requirements = vec![parser.read_requirement()?];
        while !parser.at_end() {
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

/// A word or a symbol, and where it begins (counted in characters from 1, for people).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    text: String,
    is_symbol: bool,
    position: usize,
}

/// Splits at white space and around the symbols `= == != ! ( ) , < >`.
fn split_tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut joins_previous = false;
    for (index, character) in text.chars().enumerate() {
        if character.is_whitespace() {
            joins_previous = false;
            continue;
        }
        let is_symbol = matches!(character, '=' | '!' | '(' | ')' | ',' | '<' | '>');
        match tokens.last_mut() {
            Some(previous) if joins_previous && continues(previous, character, is_symbol) => {
                previous.text.push(character);
            }
            Some(_) | None => {
                tokens.push(Token {
                    text: character.to_string(),
                    is_symbol,
                    position: index + 1,
                });
            }
        }
        joins_previous = true;
    }
    tokens
}

/// Whether a character goes on with the token before it: `==`, `!=`, or a longer word.
fn continues(previous: &Token, character: char, is_symbol: bool) -> bool {
    if is_symbol {
        character == '=' && matches!(previous.text.as_str(), "=" | "!")
    } else {
        !previous.is_symbol
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    /// How many characters the whole text has.
    end: usize,
}

impl Parser {
    fn at_end(&self) -> bool {
        self.next >= self.tokens.len()
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn peeks_symbol(&self, symbol: &str) -> bool {
        self.peek()
            .is_some_and(|token| token.is_symbol && token.text == symbol)
    }

    fn refuse<T>(&self, expected: &str) -> Result<T, InvalidSelector> {
        Err(InvalidSelector(match self.peek() {
            Some(token) => {
                format!(
                    "expected {expected} at character {}, but found {:?}",
                    token.position, token.text
                )
            }
            None if self.end == 0 => format!("expected {expected}, but found nothing"),
            None => format!(
                "expected {expected} after character {}, but found the end",
                self.end
            ),
        }))
    }

    fn read_symbol(&mut self, symbol: &str, expected: &str) -> Result<(), InvalidSelector> {
        if !self.peeks_symbol(symbol) {
            return self.refuse(expected);
        }
        self.next += 1;
        Ok(())
    }

    fn read_requirement(&mut self) -> Result<Requirement, InvalidSelector> {
        if self.peeks_symbol("!") {
            self.next += 1;
            return Ok(Requirement {
                key: self.read_key()?,
                condition: Condition::Absent,
            });
        }
        let key = self.read_key()?;
        let operator = match self.peek() {
            None => {
                return Ok(Requirement {
                    key,
                    condition: Condition::Exists,
                });
            }
            Some(token) if token.is_symbol && token.text == "," => {
                return Ok(Requirement {
                    key,
                    condition: Condition::Exists,
                });
            }
            Some(token) => token.text.clone(),
        };
        let position = self.next;
        self.next += 1;
        let condition = match operator.as_str() {
            "=" | "==" => Condition::Equals(self.read_value()?),
            "!=" => Condition::Differs(self.read_value()?),
            "in" => Condition::In(self.read_values()?),
            "notin" => Condition::NotIn(self.read_values()?),
            ">" => Condition::GreaterThan(self.read_number()?),
            "<" => Condition::LessThan(self.read_number()?),
            _ => {
                self.next = position;
                return self.refuse("one of =, ==, !=, in, notin, <, > or a comma");
            }
        };
        Ok(Requirement { key, condition })
    }

    fn read_key(&mut self) -> Result<String, InvalidSelector> {
        const EXPECTED: &str =
            "a label key (up to 63 letters, digits, -, _ and ., with an optional DNS name and / in front)";
        match self.peek() {
            Some(token) if !token.is_symbol && is_label_key(&token.text) => {
                let key = token.text.clone();
                self.next += 1;
                Ok(key)
            }
            Some(_) | None => self.refuse(EXPECTED),
        }
    }

    /// A value may be empty: `key=` asks for the label with an empty value.
    fn read_value(&mut self) -> Result<String, InvalidSelector> {
        match self.peek() {
            Some(token) if !token.is_symbol => {
                if !is_label_value(&token.text) {
                    return self
                        .refuse("a label value (up to 63 letters, digits, -, _ and ., a letter or digit at both ends)");
                }
                let value = token.text.clone();
                self.next += 1;
                Ok(value)
            }
            Some(_) | None => Ok(String::new()),
        }
    }

    fn read_values(&mut self) -> Result<BTreeSet<String>, InvalidSelector> {
        self.read_symbol("(", "a list of values in parentheses")?;
        if self.peeks_symbol(")") {
            return self.refuse("a value");
        }
        let mut values = BTreeSet::from([self.read_value()?]);
        while self.peeks_symbol(",") {
            self.next += 1;
            values.insert(self.read_value()?);
        }
        self.read_symbol(")", "a comma or )")?;
        Ok(values)
    }

    fn read_number(&mut self) -> Result<i64, InvalidSelector> {
        match self.peek().map(|token| token.text.parse()) {
            Some(Ok(number)) => {
                self.next += 1;
                Ok(number)
            }
            Some(Err(_)) | None => self.refuse("a whole number"),
        }
    }
}

/// `[DNS subdomain/]name` (Kubernetes, "Labels and Selectors").
fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && !name.is_empty() && is_label_value(name),
        None => !text.is_empty() && is_label_value(text),
    }
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

/// A DNS label, as namespaces are named: at most 63 lower-case letters, digits and hyphens, no hyphen at an end.
pub(crate) fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-')
}
