//! Errors, exit codes, times, files, and the commands that are printed.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod exit;
pub(crate) mod printed;
pub(crate) mod private_file;
pub(crate) mod times;
