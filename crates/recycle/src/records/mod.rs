//! The records that the functions write on Nodes and instances and read back.

pub mod blockage;
pub mod blocker;
pub mod claim;
pub mod lease;
pub mod node_record;
pub mod owner;
pub mod progress;
pub mod restore_log;
pub mod schema;
