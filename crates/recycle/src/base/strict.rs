//! Reads JSON into types. An error names the place in the document that is wrong.
//!
//! A list is never read as a record. By default, serde reads `[]` as a record whose fields are all absent, which would hide a mistake.

use std::fmt;
use std::iter::Enumerate;
use std::slice;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Value, map};

use crate::base::text::cut_text;

/// The maximum number of characters of an error's text. The place is more helpful than the text.
const LONGEST: usize = 300;

/// JSON that is not what it should be: where, what was expected, what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The place, such as `run.input.evict`. Empty for the whole document.
    place: String,
    what: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.place, self.what)
        }
    }
}

impl std::error::Error for Unreadable {}

impl serde::de::Error for Unreadable {
    fn custom<T: fmt::Display>(what: T) -> Self {
        let mut what = what.to_string().replace(char::is_control, " ");
        cut_text(&mut what, LONGEST);
        Self {
            place: String::new(),
            what,
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        let found = if found == Unexpected::Unit {
            "null".to_owned()
        } else {
            found.to_string()
        };
        Self::custom(format!("invalid type: {found}, expected {expected}"))
    }
}

pub fn read_value<T: DeserializeOwned>(value: &Value) -> Result<T, Unreadable> {
    T::deserialize(At::whole(value))
}

pub fn read_text<T: DeserializeOwned>(text: &str) -> Result<T, Unreadable> {
    let value: Value = serde_json::from_str(text).map_err(serde::de::Error::custom)?;
    read_value(&value)
}

/// A part of a document that another reader goes through, read as strictly as by [`read_value`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strict<T>(pub T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Strict<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        read_value(&value).map(Self).map_err(serde::de::Error::custom)
    }
}

/// The place of a value in the document. It becomes a text only for an error, because most values have none.
#[derive(Clone, Copy)]
enum Place<'p> {
    Whole,
    Field(&'p Place<'p>, &'p str),
    Element(&'p Place<'p>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = |f: &mut fmt::Formatter<'_>, outer: &Self| match outer {
            Self::Whole => Ok(()),
            Self::Field(..) | Self::Element(..) => write!(f, "{outer}."),
        };
        match self {
            Self::Whole => Ok(()),
            Self::Element(outer, index) => {
                within(f, outer)?;
                write!(f, "{index}")
            }
            Self::Field(outer, name) => {
                within(f, outer)?;
                let mut name = (*name).to_owned();
                cut_text(&mut name, LONGEST / 3);
                f.write_str(&name)
            }
        }
    }
}

/// A value, and its place in the document.
pub(crate) struct At<'a, 'p> {
    value: &'a Value,
    place: Place<'p>,
}

impl<'a> At<'a, '_> {
    pub(crate) fn whole(value: &'a Value) -> Self {
        let place = Place::Whole;
        At { value, place }
    }

    /// Adds this place to an error, unless the error names a place further inside.
    fn here<T>(place: Place<'_>, read: Result<T, Unreadable>) -> Result<T, Unreadable> {
        read.map_err(|mut error| {
            if error.place.is_empty() {
                error.place = place.to_string();
            }
            error
        })
    }

    /// Reads the value with `seed`, and adds this place to its error.
    /// Some readers, such as those of identifiers, refuse a value only after they have read it.
    pub(crate) fn read<S: DeserializeSeed<'a>>(self, seed: S) -> Result<S::Value, Unreadable> {
        let place = self.place;
        Self::here(place, seed.deserialize(self))
    }
}

struct Elements<'a, 'p> {
    outer: &'p Place<'p>,
    left: Enumerate<slice::Iter<'a, Value>>,
}

impl<'a> SeqAccess<'a> for Elements<'a, '_> {
    type Error = Unreadable;

    fn next_element_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, Unreadable> {
        let Some((index, value)) = self.left.next() else {
            return Ok(None);
        };
        let place = Place::Element(self.outer, index);
        At { value, place }.read(seed).map(Some)
    }
}

struct Fields<'a, 'p> {
    outer: &'p Place<'p>,
    left: map::Iter<'a>,
    next: Option<(&'a str, &'a Value)>,
}

impl<'a, 'p> Fields<'a, 'p> {
    fn new(outer: &'p Place<'p>, fields: &'a Map<String, Value>) -> Self {
        Self {
            outer,
            left: fields.iter(),
            next: None,
        }
    }
}

impl<'a> MapAccess<'a> for Fields<'a, '_> {
    type Error = Unreadable;

    fn next_key_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, Unreadable> {
        let Some((name, value)) = self.left.next() else {
            return Ok(None);
        };
        self.next = Some((name, value));
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<S::Value, Unreadable> {
        match self.next.take() {
            Some((name, value)) => {
                let place = Place::Field(self.outer, name);
                At { value, place }.read(seed)
            }
            None => Err(serde::de::Error::custom("a value was read before its name")),
        }
    }
}

impl<'de> Deserializer<'de> for At<'de, '_> {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        let read = match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (None, Some(value)) => visitor.visit_i64(value),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(elements) => visitor.visit_seq(Elements {
                outer: &self.place,
                left: elements.iter().enumerate(),
            }),
            Value::Object(fields) => visitor.visit_map(Fields::new(&self.place, fields)),
        };
        Self::here(self.place, read)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        if self.value.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        if self.value.is_array() {
            let error = serde::de::Error::invalid_type(Unexpected::Seq, &visitor);
            return Self::here(self.place, Err(error));
        }
        self.deserialize_any(visitor)
    }

    /// Reads a word, or an object with a word as its only field.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        let read = match self.value {
            Value::String(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            Value::Object(fields) if fields.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Fields::new(&self.place, fields)))
            }
            Value::Object(_) => Err(serde::de::Error::invalid_value(
                Unexpected::Map,
                &"an object with one field",
            )),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                return self.deserialize_any(visitor);
            }
        };
        Self::here(self.place, read)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::base::ids::InstanceId;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Whole {
        #[serde(default)]
        inner: Inner,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        choice: Option<Choice>,
        #[serde(default)]
        by_name: BTreeMap<String, u32>,
        #[serde(default)]
        id: Option<InstanceId>,
        #[serde(default)]
        ids: Vec<InstanceId>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner {
        count: Option<i64>,
        share: f64,
        any: Value,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Choice {
        Word,
        With(Inner),
    }

    #[test]
    fn valid_documents_are_read_as_serde_json_reads_them() {
        for value in [
            json!({}),
            json!({"inner": {"count": -1, "share": 0.5, "any": {"a": [null, true]}}, "list": [{}, {"count": null}]}),
            json!({"choice": "word", "by_name": {"a": 1}, "more": [{}]}),
            json!({"choice": {"with": {"count": 3, "share": 1}}}),
        ] {
            let read: Whole = read_value(&value).unwrap();
            assert_eq!(read, serde_json::from_value(value).unwrap());
        }
    }

    #[test]
    fn an_error_names_its_place() {
        for (value, expected) in [
            (json!([]), "invalid type: sequence, expected struct Whole"),
            (json!(7), "invalid type: integer `7`, expected struct Whole"),
            (
                json!({"inner": []}),
                "inner: invalid type: sequence, expected struct Inner",
            ),
            (
                json!({"inner": null}),
                "inner: invalid type: null, expected struct Inner",
            ),
            (
                json!({"list": [{}, {"count": "1"}]}),
                "list.1.count: invalid type: string \"1\", expected i64",
            ),
            (
                json!({"by_name": {"a": -1}}),
                "by_name.a: invalid value: integer `-1`, expected u32",
            ),
            (
                json!({"id": "web-1"}),
                "id: must be an instance id (i- and 8 or 17 hexadecimal digits), but is \"web-1\"",
            ),
            (
                json!({"list": [{}], "ids": ["web-1"]}),
                "ids.0: must be an instance id",
            ),
            (
                json!({"choice": "words"}),
                "choice: unknown variant `words`, expected `word` or `with`",
            ),
            (json!({"choice": {}}), "choice: invalid value: map"),
            (
                json!({"choice": {"with": []}}),
                "choice.with: invalid type: sequence, expected struct Inner",
            ),
        ] {
            let error = read_value::<Whole>(&value).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{value}: {error}");
        }
        assert!(
            read_text::<Whole>("{")
                .unwrap_err()
                .to_string()
                .starts_with("EOF while parsing")
        );
    }

    #[test]
    fn a_part_of_a_document_is_also_read_strictly() {
        let read = serde_json::from_str::<BTreeMap<String, Strict<Inner>>>;
        assert!(read(r#"{"a": {}}"#).is_ok());
        assert!(read(r#"{"a": []}"#).is_err());
    }

    #[test]
    fn errors_are_short() {
        let error = read_value::<Whole>(&json!({"choice": "x".repeat(20_000)})).unwrap_err();
        assert!(error.to_string().chars().count() < 350, "{error}");
    }
}
