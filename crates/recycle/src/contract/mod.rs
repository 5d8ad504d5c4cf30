//! The requests, verdicts and state that cross the state machine.

pub mod context;
pub mod requests;
pub mod run;
pub mod verdicts;

#[cfg(test)]
mod tests;
