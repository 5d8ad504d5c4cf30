//! Reads what an execution has done from its history.

pub mod event;
pub mod history;
pub mod parts;
pub mod reader;
