//! Calls to AWS.

pub(crate) mod configuration;
mod events;
pub(crate) mod functions;
pub(crate) mod groups;
pub(crate) mod installation;
pub(crate) mod nodes;
pub(crate) mod rotations;
pub(crate) mod step_functions;
