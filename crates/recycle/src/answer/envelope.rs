//! Defines the answer of every function.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::ids::ExecutionArn;
use crate::contract::run::Run;
pub use crate::contract::verdicts::{ClaimBody, GroupBody, RestoreBody, SelectBody, Verdict};
use crate::notify::metrics::{Metric, measure_drain};
use crate::notify::notification::{About, Notification, build_finished_notification};
use crate::records::schema::SCHEMA;

/// The one envelope of all answers. `V` is the function's verdict, which names the machine's next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer<V: Verdict> {
    /// [`SCHEMA`].
    pub schema: u32,
    pub verdict: V,
    /// Seconds that a Wait state waits if it comes next; 0 otherwise.
    pub wait_seconds: u32,
    /// The reason, in one sentence for an operator.
    pub reason: String,
    /// The number of pods of each class ([`crate::drain::classify`]).
    pub counts: BTreeMap<String, u32>,
    /// The first five names of each class, `namespace/name`.
    pub names: BTreeMap<String, Vec<String>>,
    /// The notification that the state machine publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification: Option<Box<Notification>>,
    /// The metrics. They go into the log and not to the state machine.
    #[serde(skip)]
    pub metrics: Vec<Metric>,
    /// The state to carry; None (`{}` on the wire) if nothing was fetched.
    #[serde(serialize_with = "none_is_empty_object")]
    pub run: Option<Run>,
    /// The fields of this function alone. On the wire they are at the same level as the others.
    #[serde(flatten)]
    pub body: V::Body,
}

impl<V: Verdict> Answer<V> {
    /// Builds an answer without counts, names or a state to carry.
    pub fn new(verdict: V, reason: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA,
            verdict,
            wait_seconds: 0,
            reason: reason.into(),
            counts: BTreeMap::new(),
            names: BTreeMap::new(),
            notification: None,
            metrics: Vec::new(),
            run: None,
            body: V::Body::default(),
        }
    }

    pub fn with(mut self, body: V::Body) -> Self {
        self.body = body;
        self
    }

    pub fn carrying(mut self, run: Run) -> Self {
        self.run = Some(run);
        self
    }

    /// Adds the pods that ended with the node, if there are any.
    pub fn naming_ended(mut self, run: &Run) -> Self {
        for (class, ended) in [
            ("ended", &run.drain.ended_pods),
            ("tolerates_taint", &run.drain.late_pods),
            ("skipped", &run.drain.skipped_pods),
        ] {
            if let Some(ended) = ended.as_ref().filter(|ended| ended.count > 0) {
                self.counts.insert(class.to_owned(), ended.count);
                self.names.insert(class.to_owned(), ended.names.clone());
            }
        }
        self
    }

    pub fn with_notification(mut self, notification: Option<Notification>) -> Self {
        self.notification = notification.map(Box::new);
        self
    }

    /// Adds the notification about a recycled node and the metrics of its drain if the verdict is `end`.
    pub fn with_end_notification(self, execution: &ExecutionArn, end: V) -> Self
    where
        V: PartialEq,
    {
        let Some(run) = self.run.as_ref().filter(|_| self.verdict == end) else {
            return self;
        };
        let finished = build_finished_notification(About::run(execution, run), run, &self.reason);
        let drain = measure_drain(run);
        self.with_notification(Some(finished)).counting(drain)
    }

    pub fn counting(mut self, metrics: impl IntoIterator<Item = Metric>) -> Self {
        self.metrics.extend(metrics);
        self
    }

    pub fn waiting(mut self, seconds: u32) -> Self {
        self.wait_seconds = seconds;
        self
    }
}

fn none_is_empty_object<S: serde::Serializer>(run: &Option<Run>, serializer: S) -> Result<S::Ok, S::Error> {
    match run {
        Some(run) => run.serialize(serializer),
        None => serde_json::Map::new().serialize(serializer),
    }
}
