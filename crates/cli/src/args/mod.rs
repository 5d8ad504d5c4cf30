//! What is typed: commands, flags, and the input that they become.

pub(crate) mod fields;
pub(crate) mod flags;
pub(crate) mod reference;
pub(crate) mod selection;
