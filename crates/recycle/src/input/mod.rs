//! The input of an execution.

pub mod fields;
pub mod limits;
pub mod model;
pub mod parse;
pub mod path;
pub mod start;
pub mod suggest;
pub mod urgency;
