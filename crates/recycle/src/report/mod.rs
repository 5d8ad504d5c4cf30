//! Builds reports of executions from their histories.

pub mod event;
pub mod history;
pub mod parts;
pub mod reader;
pub mod waits;
