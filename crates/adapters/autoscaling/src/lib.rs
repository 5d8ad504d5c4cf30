//! Auto Scaling groups ([`groups`]), apart from the instances themselves: a Lambda that only looks at a group need not link the SDK of EC2.
//!
//! Most functions are one call to AWS, or one call for each page; how long a call may take and how often it is tried is the caller's
//! configuration. What the answers mean is decided in `recycle`.

mod answers;
mod error;
pub mod groups;
mod whole;

pub use error::{Error, Reply};
