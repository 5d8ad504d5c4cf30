//! Decides which execution may work on a node, and whether its work may begin.

pub mod facts;
pub mod group_checks;
pub mod instance_checks;
pub mod notes;
pub mod obstacle;
pub mod places;
pub mod preflight;
pub mod queue;
