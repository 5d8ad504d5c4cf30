//! Auto Scaling groups ([`groups`]), apart from the instances themselves: whoever only looks at a group need not link the SDK of EC2.
//!
//! Every function is one call to AWS, or one call for each page; how long it may take and how often it is tried is the caller's
//! configuration. What the answers mean is decided in `recycle`.

mod answers;
mod error;
pub mod groups;
mod whole;

pub use error::{Error, Reply};
