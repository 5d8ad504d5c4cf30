//! Reads the histories of a rotation and of its groups.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::aws::step_functions::StepFunctions;
use crate::base::error::{Error, Result};
use crate::history::rotation::{RotationHistory, describe_unread};

/// A watch reads the groups only at every sixth check, because each group has its own history.
const CHECKS: u32 = 6;

/// How many histories are read at the same time.
const AT_ONCE: usize = 4;

impl RotationHistory {
    /// Reads the new events of the rotation. The groups are read only once in [`CHECKS`] checks, and at the end.
    pub(crate) async fn read_on(&mut self, states: &StepFunctions) -> Result<()> {
        states.read_on(&self.arn, &mut self.history).await?;
        if self.checks.is_multiple_of(CHECKS) || self.history.end.is_some() {
            // The rotation is shown even if its groups cannot be read, for lack of permission or because of an outage.
            let unread = self.read_groups(states).await.err();
            self.unread = unread.map(|error| describe_unread("its groups", &error));
        }
        self.checks += 1;
        Ok(())
    }

    /// Reads the new events of the rotation and of its groups. An outage of AWS hides the progress, but is not returned as an error.
    pub(crate) async fn read_all(&mut self, states: &StepFunctions) -> Result<()> {
        self.checks = 0;
        match self.read_on(states).await {
            Err(error) if error.is_outage() => {
                self.unread = Some(describe_unread("its history", &error));
                Ok(())
            }
            read => read,
        }
    }

    async fn read_groups(&mut self, states: &StepFunctions) -> Result<()> {
        let mut running = BTreeMap::new();
        for map_run in &self.history.map_runs {
            for child in states.list_children(map_run).await? {
                self.groups.entry(child.arn.clone()).or_default();
                let is_running = ["RUNNING", "PENDING_REDRIVE"].contains(&child.status.as_str());
                running.insert(child.arn, is_running);
            }
        }
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for (arn, group) in &mut self.groups {
            if let Some(is_running) = running.remove(arn)
                && (is_running || !group.has_ended)
            {
                let is_first = group.cursor.last_id == 0;
                let reads = if is_first { &mut first } else { &mut later };
                reads.push(async move {
                    states.read_on(arn, group).await?;
                    // The status shows that the execution has ended, even if its history does not.
                    group.has_ended |= !is_running;
                    Ok::<_, Error>(())
                });
            }
        }
        // Whole histories are read one after the other, with a pause before each call.
        for read in first {
            read.await?;
        }
        stream::iter(later).buffer_unordered(AT_ONCE).try_collect().await
    }
}
