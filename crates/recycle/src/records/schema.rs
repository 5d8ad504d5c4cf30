//! The version of records and answers.

/// The version of all records and answers. A reader stops at a schema that is newer than its own.
pub const SCHEMA: u32 = 1;
