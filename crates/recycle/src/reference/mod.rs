//! Generates reference pages and the manifest of the permissions in the cluster.

pub mod permissions;
pub mod pods;
pub mod tables;
