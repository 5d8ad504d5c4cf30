//! Suggests a known field name for a misspelt one.

use crate::base::text::cut_given;
use crate::input::fields::{FIELDS, Field};

/// Returns the name that a user gave to a field: as it is if it could be a field's name, and quoted if not.
pub(crate) fn name_given(name: &str) -> String {
    let could_be_one = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    let name = cut_given(name);
    if could_be_one { name } else { format!("{name:?}") }
}

/// Returns "did you mean …", or all names.
pub(crate) fn suggest(name: &str, allowed: fn(&Field) -> bool) -> String {
    let fields = FIELDS.iter().filter(|field| allowed(field));
    let names: Vec<&str> = fields.map(|field| field.name).collect();
    let nearest = names.iter().min_by_key(|known| edit_distance(name, known));
    match nearest {
        // A name with a third of its letters wrong is still a typo. With more it is another word.
        Some(known) if edit_distance(name, known) * 3 <= known.len() => format!("did you mean {known}?"),
        Some(_) | None => format!("allowed are {}", names.join(", ")),
    }
}

/// Returns the Levenshtein distance.
pub(crate) fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, character) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let substituted = diagonal + usize::from(character != *other);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
