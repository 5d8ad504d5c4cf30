//! Errors, exit codes and times.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod exit;
pub(crate) mod times;
