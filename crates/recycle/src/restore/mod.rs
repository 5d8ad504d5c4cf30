//! Restores a node after a failure: on the Node, and in its group.

pub mod facts;
pub mod group_half;
pub mod manual_commands;
pub mod next_step;
pub mod step;
pub mod sweep;
pub mod table;
pub mod undo;
