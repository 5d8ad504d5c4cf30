//! Reads and changes a node in AWS: its EC2 instance with the tags of recycle-eks ([`instances`]), and its Auto Scaling group ([`groups`]).
//!
//! A function of [`instances`] is one call to AWS, or one call for each page. A function of [`protection`] calls EC2 and Auto Scaling. The
//! caller configures the time limit and the retries of a call. The decisions are in `recycle`.

pub mod instances;
#[cfg(test)]
mod laws;
pub mod protection;

pub use autoscaling::{Error, Reply, groups};
