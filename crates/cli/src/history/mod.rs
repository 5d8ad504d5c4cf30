//! What executions have done, read from their histories.

pub(crate) mod boxes;
pub(crate) mod end;
pub(crate) mod group;
pub(crate) mod node;
pub(crate) mod rotation;
pub(crate) mod rotation_end;
pub(crate) mod unfinished;
