//! The commands, one module each.

pub(crate) mod abort;
pub(crate) mod abort_all;
mod abortable;
mod confirm;
pub(crate) mod drain;
pub(crate) mod dry_run;
pub(crate) mod history;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod recycle;
pub(crate) mod restore;
mod room;
pub(crate) mod rotate;
mod start;
pub(crate) mod status;
