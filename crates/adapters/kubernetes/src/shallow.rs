//! Parses JSON down to a fixed depth, and skips deeper values and fields that no reader needs.
//!
//! Any client may nest an entry of `managedFields` deeper than serde_json parses, and then the whole answer would fail. serde_json skips
//! values without a limit of depth.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The number of levels of an object that are kept. The deepest field that is read, a node selector's value in a PersistentVolume, is at
/// level 10. serde_json itself goes to level 128.
const LEVELS: u8 = 32;

/// A field that is left out: as a whole, or only the named fields inside it.
#[derive(Debug)]
pub(crate) struct LeftOut(pub(crate) &'static str, pub(crate) &'static [LeftOut]);

/// An object in which every value deeper than [`LEVELS`] is null.
#[derive(Debug)]
pub(crate) struct Shallow(pub(crate) Value);

impl<'de> Deserialize<'de> for Shallow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::without(&[], deserializer)
    }
}

impl Shallow {
    pub(crate) fn without<'de, D: Deserializer<'de>>(
        left_out: &'static [LeftOut],
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let levels = LEVELS;
        Reader { levels, left_out }.deserialize(deserializer).map(Self)
    }
}

#[derive(Clone, Copy)]
struct Reader {
    /// The number of levels that are left.
    levels: u8,
    left_out: &'static [LeftOut],
}

impl Reader {
    fn inside(self, left_out: &'static [LeftOut]) -> Self {
        Self { left_out, ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.levels.checked_sub(1) {
            Some(levels) => deserializer.deserialize_any(Self { levels, ..self }),
            None => IgnoredAny::deserialize(deserializer).map(|_| Value::Null),
        }
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = elements.next_element_seed(self.inside(&[]))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let left_out = self.left_out.iter().find(|field| field.0 == name);
            match left_out.map(|field| field.1) {
                Some([]) => {
                    fields.next_value::<IgnoredAny>()?;
                }
                inside => {
                    let value = fields.next_value_seed(self.inside(inside.unwrap_or_default()))?;
                    values.insert(name, value);
                }
            }
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (1..levels).fold(
            json!({"n": [1, -1, 0.5, true, null, "a"]}),
            |inner, _| json!({ "a": inner }),
        )
    }

    #[test]
    fn values_within_the_limit_are_read_and_deeper_ones_are_skipped() {
        let levels = usize::from(LEVELS);
        for (document, is_whole) in [
            (nested(1), true),
            (nested(levels - 2), true),
            (nested(levels), false),
        ] {
            let text = document.to_string();
            let Shallow(read) = serde_json::from_str(&text).unwrap();
            assert_eq!(read == document, is_whole, "{}", text.len());
        }
        let depth = 100_000;
        let deepest = "[".repeat(depth) + &"]".repeat(depth);
        assert!(serde_json::from_str::<Shallow>(&deepest).is_ok());
        assert!(serde_json::from_str::<Shallow>("{\"a\": ").is_err());
    }

    #[test]
    fn only_the_named_fields_are_left_out() {
        const LEFT_OUT: &[LeftOut] = &[
            LeftOut("spec", &[LeftOut("containers", &[])]),
            LeftOut("all", &[]),
        ];
        let document = json!({"containers": 1, "all": {"a": 1}, "spec": {"containers": [{"a": 1}], "all": 2, "spec": {"containers": 3}},
            "list": [{"all": 4}]});
        let document = document.to_string();
        let mut reader = serde_json::Deserializer::from_str(&document);
        let Shallow(read) = Shallow::without(LEFT_OUT, &mut reader).unwrap();
        assert_eq!(
            read,
            json!({"containers": 1, "spec": {"all": 2, "spec": {"containers": 3}}, "list": [{"all": 4}]})
        );
    }
}
