//! The limits on how many nodes of a group are worked on at the same time.

use crate::input::model::Replacement;

/// The number of nodes of a group that may be worked on at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `max_parallel_per_group`: nodes that are being replaced, or whose pods are being moved.
    pub parallel: usize,
    /// `max_surge_per_group`: the nodes above, and nodes that only wait for pods or are on their way out.
    /// Each of the latter already has its replacement.
    pub surge: usize,
}

impl Default for Limits {
    /// One node is replaced at a time, so that pods that were moved have time to start before more are moved.
    /// Up to five nodes are underway, of which the others only wait.
    /// With pods of 20 hours a group of 50 nodes is through in about nine days, and never pays for more than five extra instances.
    fn default() -> Self {
        Self {
            parallel: 1,
            surge: 5,
        }
    }
}

impl Limits {
    /// Returns the limits for a node with this replacement mode.
    /// With `after` a node is missing from the moment that it is tainted until the end.
    /// No node underway has its replacement already, so all of them count as being replaced.
    /// With `surge` one node of a group is replaced at a time, because the desired capacity is read and then written.
    pub fn of(self, replacement: Replacement) -> Self {
        match replacement {
            Replacement::Before => self,
            Replacement::After => Self {
                surge: self.surge.min(self.parallel),
                ..self
            },
            Replacement::Surge => Self { parallel: 1, ..self },
        }
    }

    /// Checks whether there is room for one more node in addition to `busy` and `underway` ones.
    pub(crate) fn allow(self, busy: usize, underway: usize) -> bool {
        busy < self.parallel && underway < self.surge
    }
}
