//! Reads and changes Auto Scaling groups ([`groups`]). It is separate from the `ec2` crate, so that a Lambda that only reads a group does
//! not link the SDK of EC2.
//!
//! Most functions are one call to AWS, or one call for each page. The caller configures the time limit and the retries of a call. The
//! decisions are in `recycle`.

mod answers;
mod error;
pub mod groups;
mod whole;

pub use error::{Error, Reply};
