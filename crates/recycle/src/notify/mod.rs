//! Builds notifications, metrics and the status.

pub mod blockage;
pub mod metrics;
pub mod notification;
pub mod records;
pub mod status;
