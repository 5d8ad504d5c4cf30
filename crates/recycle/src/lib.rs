//! The domain of recycle-eks: what crosses the state machine, and every decision as a pure function.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time is an argument. The Lambda crates fetch, call one
//! function of this crate, and act on its answer.

pub mod answer;
pub mod base;
pub mod claim;
pub mod cluster;
pub mod contract;
pub mod disposal;
pub mod doctor;
pub mod drain;
#[cfg(test)]
mod fixtures;
pub mod input;
pub mod notify;
pub mod plan;
#[cfg(test)]
mod properties;
pub mod records;
pub mod reference;
pub mod replacement;
pub mod report;
pub mod restore;
pub mod rotation;
