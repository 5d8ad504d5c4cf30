//! Identifiers, names, texts, JSON, waiting and failures: what every other room uses.

pub mod failure;
pub mod ids;
pub mod names;
pub mod poll;
pub mod printable;
pub mod selector;
pub mod shell;
pub mod strict;
pub mod text;
pub mod time;
