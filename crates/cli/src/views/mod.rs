//! The output: tables, pictures on a terminal, and JSON.

pub(crate) mod confirm;
pub(crate) mod fleet;
pub(crate) mod node;
pub(crate) mod output;
pub(crate) mod viewer;
pub(crate) mod watch;
