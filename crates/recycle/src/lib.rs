//! The domain of recycle-eks: the data that passes through the state machine, and every decision as a pure function.
//!
//! This crate does no I/O, reads no clock and draws no random numbers; time is an argument. A Lambda crate fetches facts, calls a function
//! of this crate, and acts on its answer.

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
pub mod replacement;
pub mod report;
pub mod restore;
pub mod rotation;
