//! Notifications, metrics and status.

pub mod blockage;
pub mod metrics;
pub mod notification;
pub mod status;
