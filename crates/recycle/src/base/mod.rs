//! The types and helpers that every other module uses: identifiers, names, durations, texts, JSON, polling and failures.

pub mod duration;
pub mod failure;
pub mod ids;
pub mod member_marks;
pub(crate) mod named;
pub mod names;
pub mod permissions;
pub mod poll;
pub mod printable;
pub mod selector;
pub mod shell;
pub mod strict;
pub mod text;
pub mod time;
