//! Starts `rotate-nodes` where EventBridge cannot: for an alarm that tells an SNS topic, and for `terraform apply`. Which nodes are meant,
//! and whether anything is done about them, it does not know, and it waits for nothing.

mod config;
mod error;
mod executions;

use aws_config::SdkConfig;
use recycle::answer::envelope::Answer;
use recycle::contract::verdicts::StartVerdict;
use recycle::rotation::start::{StartRequest, decide_starts};

use crate::executions::Rotations;

pub use config::{Settings, read_settings};
pub use error::Error;

/// The function.
#[derive(Debug)]
pub struct StartRotation {
    settings: Settings,
    rotations: Rotations,
}

impl StartRotation {
    /// The function with a client of `aws`.
    #[must_use]
    pub fn new(settings: Settings, aws: &SdkConfig) -> Self {
        let rotations = Rotations::new(aws, settings.machine.clone());
        Self { settings, rotations }
    }

    /// Starts what it is told to.
    pub async fn handle(&self, request: StartRequest) -> Result<Answer<StartVerdict>, Error> {
        let decided = decide_starts(&request, &self.settings.alarm_triggers)?;
        for start in &decided.starts {
            self.rotations.start(start).await?;
        }
        Ok(decided.answer())
    }
}
