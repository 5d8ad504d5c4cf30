//! Builds the answers of the functions.

pub mod admission;
pub mod envelope;
pub mod start;
