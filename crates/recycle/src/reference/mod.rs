//! Generates reference pages and the ClusterRole.

pub mod permissions;
pub mod tables;
