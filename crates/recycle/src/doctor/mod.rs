//! Checks an installation, and returns findings with their remedies.

pub mod access;
pub mod checks;
pub mod events;
pub mod facts;
pub mod finding;
pub mod functions;
pub mod groups;
pub mod inside;
