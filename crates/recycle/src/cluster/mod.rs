//! Facts that AWS and Kubernetes report.

pub mod autoscaler;
pub mod balancers;
pub mod cluster_tag;
pub mod group;
pub mod hook;
pub mod instance;
pub mod node;
pub mod node_group;
pub mod pod;
pub mod refresh;
pub mod silence;
