//! Decides which pods of a node a drain evicts, waits for or ignores, and how the drain goes on.

pub mod blocked;
pub mod budgets;
pub mod classify;
pub mod disruption;
pub mod end;
pub mod evicted;
pub mod holding;
pub mod lost;
pub mod notice;
pub mod progress;
pub mod survey;
pub mod terms;
pub mod verdict;
pub mod volumes;
