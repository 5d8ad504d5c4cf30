//! Decides how a node gets its replacement, and whether that is usable.

pub mod defect;
pub mod next_step;
pub mod old_node;
pub mod protection;
pub mod shortage;
pub mod usable;
