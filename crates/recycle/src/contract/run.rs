//! Defines the state that the state machine carries from one function to the next.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::base::ids::{GroupName, NodeName};
use crate::base::strict::{At, read_value};
use crate::base::text::fit_names;
use crate::cluster::hook::HeldByHook;
use crate::cluster::instance::describe_instance;
use crate::cluster::pod::PodFacts;
use crate::drain::lost::{Holders, Lost};
use crate::drain::survey::{PodSurvey, first_names};
use crate::input::model::Input;
use crate::input::path::RecyclePath;
use crate::records::blockage::Blockage;
use crate::records::claim::Phase;
use crate::replacement::old_node::OldNode;

/// The state machine's variable `run`: facts that were fetched once.
/// If they differ from the records on Node and instance, the records count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Run {
    /// The input with every default filled in.
    pub input: Input,
    pub path: RecyclePath,
    pub group: GroupName,
    pub node: NodeName,
    pub claimed_at: Timestamp,
    /// The time at which this execution began to wait for the replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_since: Option<Timestamp>,
    /// The time since which the drained node has waited for its group to have enough usable members ([`crate::replacement::shortage`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_since: Option<Timestamp>,
    /// The time at which this execution began to dispose of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disposing_since: Option<Timestamp>,
    /// The finding that the node is lost: it is disposed of, whatever is on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// The facts by which the replacement is judged on the path `after`, where the node is gone before the replacement comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<OldNode>,
    /// The lifecycle hook of this installation that holds the member, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<HeldByHook>,
    /// The controllers whose pods were evicted while there was no replacement to note them on ([`crate::drain::evicted`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<String>,
    /// Whether this execution has terminated the instance together with the place that was added for its replacement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gave_place_up: bool,
    #[serde(flatten, skip_deserializing)]
    pub drain: DrainState,
}

/// The progress of a node's drain. On the wire its fields are at the same level as those of [`Run`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining_since: Option<Timestamp>,
    /// The operator's end of the drain at the last successful read of the Node. It counts while the Node cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_until: Option<Timestamp>,
    /// The number of times that the pods have been checked, for the poll budget.
    #[serde(default)]
    pub polls: u32,
    /// The time at which the one last eviction at the drain's deadline was asked for, if it was ([`crate::drain::verdict::judge_drain`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_eviction: Option<Timestamp>,
    /// The pods that end with the instance, because the drain timed out and the input says so.
    /// None: pods that matter hold the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_pods: Option<EndedPods>,
    /// The time since which only late pods are left: pods that came after the draining taint and tolerate it
    /// ([`crate::drain::terms::LATE_PATIENCE`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emptied_at: Option<Timestamp>,
    /// The late pods that end with the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_pods: Option<EndedPods>,
    /// The stuck pods that end with the instance, because they were skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_pods: Option<EndedPods>,
    /// The time since which the drain is blocked, and the time of the last notification about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blockage: Option<Blockage>,
    /// The time of the last notification that an instance refresh would terminate the member in Standby.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_reported_at: Option<Timestamp>,
    /// The pods that held the node at the last check. The error names them if the node is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<Holders>,
}

impl Run {
    /// Returns the state of an execution that has just taken the claim.
    pub fn new(
        input: Input,
        path: RecyclePath,
        group: GroupName,
        node: NodeName,
        claimed_at: Timestamp,
    ) -> Self {
        Self {
            input,
            path,
            group,
            node,
            claimed_at,
            replacement_since: None,
            short_since: None,
            disposing_since: None,
            lost: None,
            old: None,
            hook: None,
            evicted: None,
            gave_place_up: false,
            drain: DrainState::default(),
        }
    }

    pub fn describe_node(&self) -> String {
        describe_instance(&self.input.instance_id, Some(&self.node))
    }

    /// Describes the pods that end with the instance, for the text of an answer; empty if there are none.
    pub fn describe_ended(&self) -> String {
        let drain = &self.drain;
        [
            (&drain.ended_pods, "still ran on it when its drain timed out"),
            (
                &drain.late_pods,
                "tolerated its taint, came after it, and ended with it",
            ),
            (&drain.skipped_pods, "did not leave in time, and ended with it"),
        ]
        .into_iter()
        .filter_map(|(pods, what)| Some(pods.as_ref()?.describe(what)))
        .collect()
    }

    /// Returns the phase of this execution, as its claim names it. While the node only waits, the phase is also `draining`.
    pub fn phase(&self) -> Phase {
        if self.disposing_since.is_some() {
            Phase::Disposing
        } else if self.drain.draining_since.is_some() {
            Phase::Draining
        } else if self.replacement_since.is_some() {
            Phase::Standby
        } else {
            Phase::Claimed
        }
    }
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Reads the fields of both parts from one object. serde's own `flatten` would accept a list as a record,
/// which [`crate::base::strict`] refuses.
impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let run = Self::deserialize(At::whole(&value)).map_err(D::Error::custom)?;
        let drain = read_value(&value).map_err(D::Error::custom)?;
        Ok(Self { drain, ..run })
    }
}

/// Pods that end with the instance: the pods that still hold it with [`crate::input::model::OnDrainTimeout::Terminate`], or late pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedPods {
    /// The number of pods, as seen last.
    pub count: u32,
    /// The names of the first five.
    pub names: Vec<String>,
}

impl EndedPods {
    /// Lists the pods that hold the node now.
    pub fn of(survey: &PodSurvey) -> Self {
        Self::list(&survey.holding())
    }

    /// Lists the late pods, which tolerate the draining taint and came after it, so that they do not hold the node.
    /// None if there are none.
    pub fn late(survey: &PodSurvey) -> Option<Self> {
        (!survey.tolerates_taint.is_empty()).then(|| Self::list(&survey.tolerates_taint))
    }

    /// Lists the stuck pods that no longer hold the node. None if there are none.
    pub fn skipped(survey: &PodSurvey) -> Option<Self> {
        (!survey.skipped.is_empty()).then(|| Self::list(&survey.skipped))
    }

    fn list(pods: &[PodFacts]) -> Self {
        let mut names = first_names(pods);
        fit_names(&mut names.iter_mut().collect::<Vec<_>>(), ENDED_BUDGET);
        Self {
            count: u32::try_from(pods.len()).unwrap_or(u32::MAX),
            names,
        }
    }

    /// Writes the end of a sentence about them; empty if there are none.
    fn describe(&self, what: &str) -> String {
        let names = self.names.join(", ");
        match self.count {
            0 => String::new(),
            1 => format!("; 1 pod {what} ({names})"),
            count => format!("; {count} pods {what} ({names})"),
        }
    }
}

/// The bytes that the names of ended pods may have together: they travel in every answer from then on.
const ENDED_BUDGET: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod;

    #[test]
    fn only_a_survey_with_late_or_skipped_pods_lists_them() {
        let late = PodSurvey {
            tolerates_taint: vec![pod("late")],
            ..PodSurvey::default()
        };
        let names = EndedPods::late(&late).map(|pods| pods.names);
        assert_eq!(names, Some(vec!["default/late".to_owned()]));
        assert_eq!(EndedPods::late(&PodSurvey::default()), None);
        let skipped = PodSurvey {
            skipped: vec![pod("stuck")],
            ..PodSurvey::default()
        };
        let names = EndedPods::skipped(&skipped).map(|pods| pods.names);
        assert_eq!(names, Some(vec!["default/stuck".to_owned()]));
        assert_eq!(EndedPods::skipped(&PodSurvey::default()), None);
    }
}
