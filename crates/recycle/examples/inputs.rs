//! Prints the page of inputs and outcomes, from the tables of the code: `docs/inputs-and-outcomes.md`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::fmt::Write as _;

use recycle::base::failure::{Failure, Outcome};
use recycle::input::fields::{Choice, FIELDS, Field, Kind, choices};

/// The text above the tables. `make generate` writes the page, so the text warns against changes by hand.
const INTRODUCTION: &str = "\
# Inputs and outcomes

<!-- Generated from crates/recycle/src/input/fields.rs and crates/recycle/src/base/failure.rs by `make generate`. -->

An execution needs `instance_id` and `cluster_name`. If a field is unknown, wrong, or makes no sense with another field,
the execution fails before it touches anything. The error names the field.
";

/// The text below the tables.
const END: &str = "
A node that a [lifecycle hook](hooks.md) holds is never restored, because its group is terminating it. After any failure except
`DrainTimedOut` and `NodeLost`, the sweep starts another execution for it.
";

fn main() {
    print!("{}", render_page());
}

/// Renders all tables, each under its heading.
fn render_page() -> String {
    format!(
        "{INTRODUCTION}\n## Inputs\n\n{}\n## Outcomes\n\n{}{END}",
        render_inputs(),
        render_outcomes()
    )
}

/// Renders one row for each field. Its meaning includes the values of a closed list.
fn render_inputs() -> String {
    let mut table = String::from("| field | default | allowed | meaning |\n|---|---|---|---|\n");
    for field in &FIELDS {
        let (name, default, allowed) = (field.name, render_default(field), render_allowed(field));
        let meaning = render_meaning(field);
        let _ = writeln!(table, "| `{name}` | {default} | {allowed} | {meaning} |");
    }
    table
}

fn render_default(field: &Field) -> String {
    match (field.required, field.default) {
        (true, _) => "required".to_owned(),
        (false, "") => "absent".to_owned(),
        (false, default) => format!("`{default}`"),
    }
}

fn render_allowed(field: &Field) -> String {
    match field.kind {
        Kind::Identifier => "a text".to_owned(),
        Kind::Selector => "a label selector, `\"\"` or `*`".to_owned(),
        Kind::Namespaces => "a list of names".to_owned(),
        Kind::Duration(range) => format!("{} to {}", range.least(), range.most()),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Time => "a time".to_owned(),
        Kind::Hook => "an object".to_owned(),
        Kind::OneOf(values) => list_values(values),
        Kind::SomeOf(values) => format!("a list of {}", list_values(values)),
    }
}

fn list_values(values: &[Choice]) -> String {
    let quote = |choice: &Choice| format!("`{}`", choice.value);
    values.iter().map(quote).collect::<Vec<_>>().join(", ")
}

fn render_meaning(field: &Field) -> String {
    let values: Vec<String> = choices(field)
        .iter()
        .map(|choice| format!("`{}`: {}", choice.value, choice.meaning))
        .collect();
    if values.is_empty() {
        field.meaning.to_owned()
    } else {
        format!("{}. {}", field.meaning, values.join("; "))
    }
}

fn render_outcomes() -> String {
    let mut table = String::from("| outcome | ends | the node is |\n|---|---|---|\n");
    let succeeded = Outcome::ALL.map(|outcome| (outcome.name(), "SUCCEEDED", outcome.describe_node()));
    let failures = Failure::ALL.into_iter().filter(|failure| failure.ends_failed());
    let failed = failures.map(|failure| (failure.name(), "FAILED", failure.describe_node()));
    for (name, ends, node) in succeeded.into_iter().chain(failed) {
        let _ = writeln!(table, "| `{name}` | {ends} | {node} |");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_value_and_outcome_is_on_the_page() {
        let tables = render_page();
        for field in &FIELDS {
            assert!(
                tables.contains(&format!("| `{}` |", field.name)),
                "{}",
                field.name
            );
            for choice in choices(field) {
                assert!(
                    tables.contains(&format!("`{}`: {}", choice.value, choice.meaning)),
                    "{}",
                    choice.value
                );
            }
        }
        for name in Outcome::ALL.map(Outcome::name).into_iter().chain(
            Failure::ALL
                .into_iter()
                .filter(|failure| failure.ends_failed())
                .map(Failure::name),
        ) {
            assert!(tables.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    #[test]
    fn every_row_has_as_many_cells_as_its_heading() {
        for table in [render_inputs(), render_outcomes()] {
            let mut bars = table.lines().map(|line| line.matches('|').count());
            let heading = bars.next().unwrap();
            assert!(bars.all(|count| count == heading), "{table}");
        }
    }
}
