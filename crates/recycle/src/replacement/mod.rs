//! Decides whether the replacement of a node is usable.

pub mod defect;
pub mod old_node;
pub mod shortage;
pub mod usable;
