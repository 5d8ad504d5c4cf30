//! Decides how an instance leaves its group.

pub mod next_step;
