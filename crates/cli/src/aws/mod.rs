//! Calls to AWS.

pub(crate) mod access;
mod choice;
pub(crate) mod configuration;
pub(crate) mod events;
pub(crate) mod functions;
pub(crate) mod groups;
pub(crate) mod installation;
mod kube_context;
pub(crate) mod nodes;
pub(crate) mod past;
pub(crate) mod rotations;
pub(crate) mod step_functions;
