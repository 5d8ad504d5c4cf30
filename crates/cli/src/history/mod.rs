//! Reads the histories of executions. Each view is a fold over the events ([`recycle::report::event`]).

pub(crate) mod cursor;
pub(crate) mod end;
pub(crate) mod group;
pub(crate) mod node;
pub(crate) mod rotation;
pub(crate) mod rotation_end;
pub(crate) mod started_by;
