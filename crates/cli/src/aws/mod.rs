//! What is asked of AWS.

pub(crate) mod configuration;
pub(crate) mod executions;
pub(crate) mod functions;
pub(crate) mod installation;
pub(crate) mod nodes;
pub(crate) mod rotations;
