//! Generates pages and manifests.

pub mod permissions;
pub mod tables;
