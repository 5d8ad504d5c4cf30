//! Builds notifications, metrics and the status.

pub mod blockage;
pub mod metrics;
pub mod notification;
pub mod status;
