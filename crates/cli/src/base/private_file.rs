//! Writes files that only their owner can read. Histories and reports name nodes and pods.

use std::fs::OpenOptions;
use std::io::{Result, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const OWNER_ONLY: u32 = 0o600;

/// Replaces the contents of a file. A file that exists keeps its mode.
pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true);
    options.mode(OWNER_ONLY).open(file)?.write_all(text.as_bytes())
}

/// Writes a new file. It is an error if there is one already.
pub(crate) fn write_new(file: &Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true);
    options.mode(OWNER_ONLY).open(file)?.write_all(text.as_bytes())
}
