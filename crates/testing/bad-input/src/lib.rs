//! Generates damaged input for property tests: any JSON, any text, and good documents that were edited or are incomplete.
//! It does not depend on any reader, nor on the types of recycle-eks.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

/// The number of cases of a property test. With it, each kind of damage occasionally hits each field of a document with twenty fields, and
/// all property tests together take seconds. An example next to the test keeps each finding, so no seeds are kept.
const CASES: u32 = 256;

/// Returns a configuration with `CASES` cases that writes no files.
pub fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES)
    }
}

/// Returns a configuration with half as many cases, for property tests of whole functions. One case of such a test makes many calls.
pub fn few_cases() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES / 2)
    }
}

/// Runs the future of a case to its end, because proptest does not run futures.
#[expect(clippy::expect_used, reason = "for tests only, which fail like this")]
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without threads and sockets")
        .block_on(work)
}

/// Returns the writes that are not among those with whole answers. These were made on a guess.
pub fn beyond(writes: Vec<String>, whole: &[String]) -> Vec<String> {
    let mut whole = whole.to_vec();
    let is_beyond = |write: &String| match whole.iter().position(|other| other == write) {
        Some(place) => {
            whole.remove(place);
            false
        }
        None => true,
    };
    writes.into_iter().filter(is_beyond).collect()
}

/// Lists values of other types than the expected one, and values at the ends of the expected type.
fn odd_values() -> Vec<Value> {
    let mut values = vec![
        Value::Null,
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(0.5),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(i32::MAX),
        json!(i64::from(i32::MAX) + 1),
        json!(i64::from(u32::MAX) + 1),
        json!(1e308),
        json!(-1e308),
        json!([]),
        json!([null]),
        json!([[]]),
        json!({}),
        json!({"": null}),
        json!({"a": {}}),
    ];
    values.extend(odd_texts().into_iter().map(Value::String));
    values
}

/// Lists texts that are empty, huge, in other scripts, or look like another type. Times and durations at their ends are among them.
fn odd_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "\u{0}",
        "\n",
        "ä€😀",
        "0",
        "-1",
        "4294967296",
        "9223372036854775808",
        "1e308",
        "NaN",
        "null",
        "[]",
        "{}",
        "now",
        "2027-01-01T00:00:00Z",
        "2027-01-01T00:00:00",
        "1970-01-01T00:00:00Z",
        "9999-12-30T22:00:00Z",
        "9999-12-30T21:59:59.999999999Z",
        "9999-12-31T23:59:59Z",
        "-009999-01-02T01:59:59Z",
        "+010000-01-01T00:00:00Z",
        "2027-02-30T00:00:00Z",
        "PT1S",
        "-PT1H",
        "P9999Y",
        "P99999999999D",
        "PT9223372036854775807S",
        "1d12h",
        "-1h",
        "49710d6h28m16s",
        "99999999999d",
        "100%",
        "v1.99999999999.0",
        "i-0123456789abcdef0",
        "aws:///eu-west-1a/i-0123456789abcdef0",
        "arn:aws:states:eu-west-1:123456789012:execution:recycle-node:one",
    ]
    .map(str::to_owned)
    .into();
    texts.push("x".repeat(20_000));
    texts.push("ä".repeat(700));
    texts
}

fn odd_text() -> impl Strategy<Value = String> {
    prop_oneof![4 => select(odd_texts()), 1 => any::<String>()]
}

/// Generates any text: one at the ends of what is possible, or one of any characters.
pub fn any_text() -> impl Strategy<Value = String> {
    odd_text()
}

/// Generates a value that is odd by itself.
pub fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => select(odd_values()),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => any::<String>().prop_map(Value::from),
    ]
}

pub fn any_json() -> impl Strategy<Value = Value> {
    odd_value().prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((any_text(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// The damage to a place in a document.
#[derive(Debug, Clone)]
enum Damage {
    /// The value is removed.
    Remove,
    /// The value is replaced with another one.
    Replace(Value),
    /// An unknown field or element is added to the value. A value that can have neither is replaced.
    Add(String, Value),
    /// The value becomes a list that contains it.
    Wrap,
    /// The text of the value is edited.
    Edit(Vec<Edit>),
}

/// A small edit of a text.
#[derive(Debug, Clone)]
enum Edit {
    Delete(Index),
    Insert(Index, char),
    Double(Index),
    CutAt(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let character = prop_oneof![
        3 => select(" \t\n\"'{}[]:,=!#-+./*0123456789zZTP%\u{0}ä€😀".chars().collect::<Vec<_>>()),
        1 => any::<char>(),
    ];
    prop_oneof![
        any::<Index>().prop_map(Edit::Delete),
        (any::<Index>(), character).prop_map(|(place, new)| Edit::Insert(place, new)),
        any::<Index>().prop_map(Edit::Double),
        any::<Index>().prop_map(Edit::CutAt),
    ]
}

impl Edit {
    fn apply(&self, text: &mut Vec<char>) {
        match self {
            Self::Insert(place, new) => text.insert(place.index(text.len() + 1), *new),
            Self::Delete(_) | Self::Double(_) | Self::CutAt(_) if text.is_empty() => {}
            Self::Delete(place) => {
                text.remove(place.index(text.len()));
            }
            Self::Double(place) => {
                let place = place.index(text.len());
                text.insert(place, text[place]);
            }
            Self::CutAt(place) => text.truncate(place.index(text.len())),
        }
    }
}

fn edit_text(text: &str, edits: &[Edit]) -> String {
    let mut characters = text.chars().collect();
    for edit in edits {
        edit.apply(&mut characters);
    }
    characters.into_iter().collect()
}

/// Generates one of these texts after at most three small edits.
pub fn spoiled_text(good: &[&str]) -> impl Strategy<Value = String> + use<> {
    let good: Vec<String> = good.iter().map(|text| (*text).to_owned()).collect();
    (select(good), vec(edit(), 0..4)).prop_map(|(text, edits)| edit_text(&text, &edits))
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => Just(Damage::Remove),
        4 => odd_value().prop_map(Damage::Replace),
        1 => (any_text(), odd_value()).prop_map(|(name, value)| Damage::Add(name, value)),
        1 => Just(Damage::Wrap),
        2 => vec(edit(), 1..3).prop_map(Damage::Edit),
    ]
}

/// Generates one of these documents, with damage in at most three places. A text that is a document itself, such as an annotation or a
/// message, may also be damaged inside.
pub fn spoiled(good: Vec<Value>) -> impl Strategy<Value = Value> {
    let places = vec((any::<Index>(), damage()), 0..=3);
    (select(good), places).prop_map(|(mut document, damages)| {
        for (place, damage) in damages {
            let mut place = place.index(count_places(&document));
            if !spoil(&mut document, &mut place, &damage) {
                document = Value::Null;
            }
        }
        document
    })
}

/// Returns the document in a text, if there is one.
fn inner(text: &str) -> Option<Value> {
    let document: Value = serde_json::from_str(text).ok()?;
    (document.is_object() || document.is_array()).then_some(document)
}

/// Counts the document itself and each value in it.
fn count_places(value: &Value) -> usize {
    let inside: usize = match value {
        Value::Array(elements) => elements.iter().map(count_places).sum(),
        Value::Object(fields) => fields.values().map(count_places).sum(),
        Value::String(text) => inner(text).map_or(0, |document| count_places(&document)),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    1 + inside
}

/// Does the damage at `place`, which is counted down on the way. Returns whether the value stays.
fn spoil(value: &mut Value, place: &mut usize, damage: &Damage) -> bool {
    if *place == 0 {
        *place = usize::MAX;
        return hit(value, damage);
    }
    *place -= 1;
    match value {
        Value::Array(elements) => elements.retain_mut(|element| go_in(element, place, damage)),
        Value::Object(fields) => fields.retain(|_, field| go_in(field, place, damage)),
        Value::String(text) => {
            if let Some(mut document) = inner(text)
                && spoil(&mut document, place, damage)
            {
                *text = document.to_string();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    true
}

/// Does the damage like [`spoil`], unless it was done already. Returns whether the value stays.
fn go_in(value: &mut Value, place: &mut usize, damage: &Damage) -> bool {
    *place == usize::MAX || spoil(value, place, damage)
}

fn hit(value: &mut Value, damage: &Damage) -> bool {
    match damage {
        Damage::Remove => return false,
        Damage::Replace(other) => value.clone_from(other),
        Damage::Add(name, more) => match value {
            Value::Object(fields) => {
                fields.insert(name.clone(), more.clone());
            }
            Value::Array(elements) => elements.push(more.clone()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone_from(more),
        },
        Damage::Wrap => *value = json!([value.clone()]),
        Damage::Edit(edits) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            *value = Value::String(edit_text(&text, edits));
        }
    }
    true
}

/// Lists every document that lacks a value of the good one, or has null or an empty list there, with the place. For tables.
pub fn each_gap(good: &Value) -> Vec<(usize, Value)> {
    let damages = [
        Damage::Remove,
        Damage::Replace(Value::Null),
        Damage::Replace(json!([])),
    ];
    (1..count_places(good))
        .flat_map(|place| damages.iter().map(move |damage| (place, damage)))
        .map(|(place, damage)| {
            let mut document = good.clone();
            spoil(&mut document, &mut { place }, damage);
            (place, document)
        })
        .collect()
}

/// The position of an element in a document without attributes: the whole element, and its content.
#[derive(Debug, Clone)]
struct Element {
    whole: Range<usize>,
    inside: Range<usize>,
}

/// Lists every element of an XML document of the kind that AWS answers.
fn list_elements(xml: &str) -> Vec<Element> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for (start, _) in xml.match_indices('<') {
        let Some(end) = xml
            .get(start..)
            .and_then(|rest| rest.find('>'))
            .map(|length| start + length + 1)
        else {
            continue;
        };
        let tag = xml.get(start..end).unwrap_or_default();
        if tag.ends_with("/>") {
            let (whole, inside) = (start..end, end..end);
            found.push(Element { whole, inside });
        } else if tag.starts_with("</") {
            if let Some((began, inside)) = open.pop() {
                let (whole, inside) = (began..end, inside..start);
                found.push(Element { whole, inside });
            }
        } else {
            open.push((start, end));
        }
    }
    found
}

fn with_inside(xml: &str, place: &Range<usize>, text: &str) -> String {
    let (before, after) = (xml.get(..place.start), xml.get(place.end..));
    format!(
        "{}{text}{}",
        before.unwrap_or_default(),
        after.unwrap_or_default()
    )
}

/// Lists every document that lacks an element of the good one, with the missing element. For tables.
pub fn each_gap_of_xml(good: &str) -> Vec<(String, String)> {
    let gone = |element: Element| {
        let text = good.get(element.whole.clone()).unwrap_or_default().to_owned();
        (text, with_inside(good, &element.whole, ""))
    };
    list_elements(good).into_iter().map(gone).collect()
}

/// Lists these answers (JSON or XML) with one gap in one of them. The first text is the missing element, or the place in JSON. For tables.
pub fn each_gap_beside<const N: usize>(whole: &[String; N]) -> Vec<(String, [String; N])> {
    let gaps = |text: &String| match serde_json::from_str(text) {
        Ok(document) => each_gap(&document)
            .into_iter()
            .map(|(place, gap)| (place.to_string(), gap.to_string()))
            .collect(),
        Err(_) => each_gap_of_xml(text),
    };
    let mut beside = Vec::new();
    for (place, text) in whole.iter().enumerate() {
        for (gone, gap) in gaps(text) {
            let mut answers = whole.clone();
            answers[place] = gap;
            beside.push((gone, answers));
        }
    }
    beside
}

/// Generates the document without some of its elements, or with other content in them.
pub fn spoiled_xml(good: &str) -> impl Strategy<Value = String> + use<> {
    let good = good.to_owned();
    let damages = vec((any::<Index>(), proptest::option::of(any_text())), 0..=3);
    damages.prop_map(move |damages| {
        damages.into_iter().fold(good.clone(), |xml, (place, text)| {
            let elements = list_elements(&xml);
            if elements.is_empty() {
                return xml;
            }
            let element = place.get(&elements);
            match text {
                None => with_inside(&xml, &element.whole, ""),
                Some(text) => with_inside(&xml, &element.inside, &escape(&text)),
            }
        })
    })
}

/// Escapes a text for XML, and drops control characters, because XML cannot hold most of them.
fn escape(text: &str) -> String {
    let text: String = text.chars().filter(|character| !character.is_control()).collect();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_document_is_reached_also_in_a_nested_text() {
        let good = json!({"a": [1, {"b": "x"}], "c": "{\"d\": [2]}"});
        assert_eq!(count_places(&good), 9);
        let gaps: Vec<Value> = each_gap(&good).into_iter().map(|(_, gap)| gap).collect();
        for gap in [
            json!({"c": "{\"d\": [2]}"}),
            json!({"a": [{"b": "x"}], "c": "{\"d\": [2]}"}),
            json!({"a": [1, {"b": null}], "c": "{\"d\": [2]}"}),
            json!({"a": [1, {"b": "x"}], "c": "{}"}),
            json!({"a": [1, {"b": "x"}], "c": "{\"d\":[[]]}"}),
        ] {
            assert!(gaps.contains(&gap), "{gap}: {gaps:?}");
        }
        assert_eq!(gaps.len(), 8 * 3);
    }

    #[test]
    fn a_new_or_repeated_write_is_beyond_those_of_whole_answers() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let whole = texts(&["a", "b", "c"]);
        assert!(beyond(texts(&["a", "c"]), &whole).is_empty());
        assert_eq!(beyond(texts(&["b", "b", "d"]), &whole), ["b", "d"]);
    }

    #[test]
    fn every_element_of_xml_is_reached() {
        let gaps: Vec<String> = each_gap_of_xml("<a><b>1</b><c/></a>")
            .into_iter()
            .map(|(_, gap)| gap)
            .collect();
        assert_eq!(gaps, ["<a><c/></a>", "<a><b>1</b></a>", ""]);
    }

    #[test]
    fn each_answer_has_its_gaps_while_the_others_are_whole() {
        let whole = [r#"{"a": 1}"#.to_owned(), "<a><b/></a>".to_owned()];
        let gaps: Vec<[String; 2]> = each_gap_beside(&whole).into_iter().map(|(_, gap)| gap).collect();
        assert_eq!(gaps.len(), 3 + 2);
        assert!(
            gaps.iter()
                .all(|gap| (gap[0] == whole[0]) != (gap[1] == whole[1])),
            "{gaps:?}"
        );
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_text_is_edited_by_characters(edits in vec(edit(), 0..6)) {
            let room = |text: &str| text.chars().count() + edits.len();
            for text in ["", "ä", "2027"] {
                prop_assert!(edit_text(text, &edits).chars().count() <= room(text));
            }
        }

        #[test]
        fn a_spoiled_document_is_valid_json(document in spoiled(vec![json!({"a": [1], "b": "{\"c\": 2}"})])) {
            prop_assert!(serde_json::from_str::<Value>(&document.to_string()).is_ok());
        }
    }
}
