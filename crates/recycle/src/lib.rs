//! The domain of recycle-eks: what crosses the state machine, and every decision as a pure function.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time is an argument. The Lambda crates fetch, call one
//! function of this crate, and act on its answer.

pub mod autoscaler;
pub mod balancers;
pub mod blocked;
pub mod claim;
pub mod cluster_tag;
pub mod contract;
pub mod disposal;
pub mod doctor;
pub mod drain;
pub mod drain_end;
pub mod evicted;
pub mod failure;
#[cfg(test)]
mod fixtures;
pub mod gate;
pub mod hook;
pub mod ids;
pub mod input;
#[cfg(test)]
mod laws;
pub mod left_behind;
pub mod lost;
pub mod marks;
pub mod metrics;
pub mod midway;
pub mod names;
pub mod node;
pub mod notification;
pub mod old_node;
pub mod outdated;
pub mod permissions;
pub mod plan;
pub mod pods;
pub mod poll;
pub mod preflight;
pub mod printable;
pub mod put_back;
pub mod replacement;
pub mod report;
pub mod rotation;
pub mod select;
pub mod selector;
pub mod shell;
pub mod shortage;
pub mod start;
pub mod status;
pub mod strict;
pub mod sweep;
pub mod tables;
pub mod turn;
pub mod zones;
