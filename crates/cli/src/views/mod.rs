//! The output: tables, pictures on a terminal, and JSON.

pub(crate) mod details;
pub(crate) mod fleet;
pub(crate) mod node;
pub(crate) mod output;
pub(crate) mod row;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod viewer;
pub(crate) mod watch;
