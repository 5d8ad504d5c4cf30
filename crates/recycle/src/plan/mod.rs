//! Writes the plan of a dry run.

pub mod dry_run;
