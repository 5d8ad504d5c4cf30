//! The version of records and answers.

/// The version of everything in this module and of the records; a reader of a newer schema than its own stops.
pub const SCHEMA: u32 = 1;
