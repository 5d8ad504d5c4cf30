//! How many executions of a group may work at the same time.

use crate::input::model::Replacement;

/// How many nodes of a group may be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `max_parallel_per_group`: nodes being replaced, or whose pods are being moved.
    pub parallel: usize,
    /// `max_surge_per_group`: these, and nodes that only wait for pods or are on their way out. Each of them has its replacement already.
    pub surge: usize,
}

impl Default for Limits {
    /// One at a time, so that pods that were moved have time to start before more are. Five beside each other while they only wait:
    /// with pods of 20 hours a group of 50 nodes is through in about nine days, and never pays for more than five extra instances.
    fn default() -> Self {
        Self {
            parallel: 1,
            surge: 5,
        }
    }
}

impl Limits {
    /// Those of a node whose replacement comes so. With `after` a node is missing from the moment that it is tainted to the end: none beside
    /// it has its replacement already, so that all that are underway count as being replaced.
    #[must_use]
    pub fn of(self, replacement: Replacement) -> Self {
        match replacement {
            Replacement::Before => self,
            Replacement::After => Self {
                surge: self.surge.min(self.parallel),
                ..self
            },
        }
    }

    /// Whether there is room for one more beside so many.
    pub(crate) fn allow(self, busy: usize, underway: usize) -> bool {
        busy < self.parallel && underway < self.surge
    }
}
