//! The AWS half of a node: its EC2 instance with our tags ([`ec2`]), and its Auto Scaling group ([`autoscaling`]).
//!
//! Every function is one call to AWS, or one call for each page, but for [`protection`], which is two; how long it may take and how often
//! it is tried is the caller's configuration. What the answers mean is decided in `recycle`.

pub mod ec2;
#[cfg(test)]
mod laws;
pub mod protection;

pub use group_record::{Error, Reply, autoscaling};
