//! What an execution has done, read from its history: phases, pods, what blocked, what people were told.
//!
//! The history is the only source: the report of an execution is the same years after its node is gone. How it looks, it does not know.

use serde::Serialize;
use serde_json::Value;

use crate::report::event::{Event, Execution};
use crate::report::parts::{NodeReport, Summary, summarize};
use crate::report::reader::Reader;

/// The report of an execution of `rotate-nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RotationReport {
    pub summary: Summary,
    /// What was to be recycled: the input's `selection`.
    pub selection: Value,
    /// One for each execution that it has started, in the order of their beginnings.
    pub nodes: Vec<NodeReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Node(Box<NodeReport>),
    Rotation(RotationReport),
}

/// The report of an execution of `recycle-node`, from its history from the beginning.
#[must_use]
pub fn report_node(execution: &Execution, events: &[Event]) -> NodeReport {
    let mut reader = Reader::new(execution, events);
    for event in events {
        reader.read(event);
    }
    reader.finish(execution)
}

/// The report of a rotation with those of its nodes. It takes the report of each node, because a history has up to 25,000 events.
#[must_use]
pub fn report_rotation(rotation: &Execution, events: &[Event], mut nodes: Vec<NodeReport>) -> RotationReport {
    nodes.sort_by_key(|node| (node.summary.started_at, node.summary.execution.clone()));
    RotationReport {
        summary: summarize(rotation, events),
        selection: rotation.input["selection"].clone(),
        nodes,
    }
}

#[cfg(test)]
mod tests;
