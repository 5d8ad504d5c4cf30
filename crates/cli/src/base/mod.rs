//! Errors, exit codes, times, and the commands that are printed.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod exit;
pub(crate) mod printed;
pub(crate) mod times;
