//! Defines the requests, the verdicts and the state that the functions exchange with the state machine.

pub mod context;
pub mod requests;
pub mod run;
pub mod verdicts;

#[cfg(test)]
mod tests;
