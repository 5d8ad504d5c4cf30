//! Reports an execution from its history: its stages, pods, blockages and notifications.
//!
//! The history is the only source, so a report does not depend on whether the node still exists. The command line renders the report.

use serde::Serialize;
use serde_json::Value;

use crate::report::event::{Event, Execution};
use crate::report::parts::{NodeReport, Summary, summarize};
use crate::report::reader::Reader;
use crate::report::waits::GroupWait;

/// The report of an execution of `rotate-nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RotationReport {
    pub summary: Summary,
    /// The field `selection` of the input.
    pub selection: Value,
    /// A sentence for each group that has ended, as the rotation's output or error names it.
    pub groups: Vec<String>,
    /// Number of skipped nodes. A skipped node that was started has an execution, which succeeded without recycling it.
    /// None before the end of the rotation, for a dry run, and if the execution of a group broke.
    pub skipped: Option<u32>,
    /// Reasons for which nodes waited until they might start. The longest wait comes first.
    pub waits: Vec<GroupWait>,
    /// One report for each execution that the rotation has started, in the order in which they began.
    pub nodes: Vec<NodeReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Node(Box<NodeReport>),
    Rotation(Box<RotationReport>),
}

/// Returns the report of an execution of `recycle-node`, from the events of its history, beginning with the first.
pub fn report_node(execution: &Execution, events: &[Event]) -> NodeReport {
    let mut reader = Reader::new(execution, events);
    for event in events {
        reader.read(event);
    }
    reader.finish(execution)
}

/// Returns the report of a rotation. It takes the reports of its nodes, not their events, because a history has up to 25,000 events.
pub fn report_rotation(rotation: &Execution, events: &[Event], mut nodes: Vec<NodeReport>) -> RotationReport {
    nodes.sort_by_key(|node| (node.summary.started_at, node.summary.execution.clone()));
    RotationReport {
        summary: summarize(rotation, events),
        selection: rotation.input["selection"].clone(),
        groups: Vec::new(),
        skipped: None,
        waits: Vec::new(),
        nodes,
    }
}

#[cfg(test)]
mod tests;
