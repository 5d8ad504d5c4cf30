//! The command line: commands, flags, and the inputs of executions that they become.

pub(crate) mod fields;
pub(crate) mod flags;
pub(crate) mod reference;
pub(crate) mod selection;
