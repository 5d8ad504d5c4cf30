//! Decides which nodes a rotation recycles, and when each of them starts.

pub mod admission;
pub mod alarm;
pub mod attempts;
pub mod canary;
pub mod fleet;
pub mod hold;
pub mod marks;
pub mod outdated;
pub mod passes;
pub mod request;
pub mod selection;
pub mod start;
pub mod terms;
