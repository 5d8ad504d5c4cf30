//! The input of an execution: its fields, limits and parsing, and the suggestions for misspelt names.

pub mod fields;
pub mod limits;
pub mod model;
pub mod parse;
pub mod path;
pub mod start;
pub mod suggest;
pub mod urgency;
