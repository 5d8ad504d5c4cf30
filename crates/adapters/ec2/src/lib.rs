//! The AWS half of a node: its EC2 instance with our tags ([`instances`]), and its Auto Scaling group ([`groups`]).
//!
//! A function of [`instances`] is one call to AWS, or one call for each page; one of [`protection`] makes two, to EC2 and to Auto
//! Scaling. How long a call may take and how often it is tried is the caller's configuration. What the answers mean is decided in
//! `recycle`.

pub mod instances;
#[cfg(test)]
mod laws;
pub mod protection;

pub use autoscaling::{Error, Reply, groups};
