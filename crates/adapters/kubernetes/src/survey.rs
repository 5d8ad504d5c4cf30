//! Reads and classifies the pods of a node. The dry run, the check, the eviction and the disposal all use this survey.

use jiff::Timestamp;
use recycle::base::ids::NodeName;
use recycle::cluster::hook::HeldByHook;
use recycle::cluster::node::{NodeFacts, is_draining_taint};
use recycle::cluster::pod::PodFacts;
use recycle::contract::run::Run;
use recycle::drain::survey::{PodSurvey, survey_pods};
use recycle::drain::terms::Terms;
use recycle::input::model::Input;
use recycle::records::lease::UnreadableRecord;

use crate::volumes::hold_back;
use crate::{Error, list_pods};

/// The facts that decide about the pods of a node, besides the node and the time.
#[derive(Debug, Clone, Copy)]
pub struct DrainFacts<'a> {
    pub input: &'a Input,
    /// The start of the drain. None before it has begun.
    pub draining_since: Option<Timestamp>,
    /// The hook that holds the instance.
    pub hook: Option<&'a HeldByHook>,
}

impl<'a> From<&'a Run> for DrainFacts<'a> {
    fn from(run: &'a Run) -> Self {
        Self {
            input: &run.input,
            draining_since: run.drain.draining_since,
            hook: run.hook.as_ref(),
        }
    }
}

/// The pods of a node at one moment.
#[derive(Debug, Clone)]
pub struct NodeSurvey<'a> {
    pub terms: Terms<'a>,
    /// The remark on the annotation that moves the end of the drain, if there is one to make.
    pub remark: Option<String>,
    /// The pods as the API server listed them.
    pub listed: Vec<PodFacts>,
    pub pods: PodSurvey,
}

impl<'a> NodeSurvey<'a> {
    /// Lists the pods and classifies them, but does not read their volumes. The pods of a deleted Node are still listed for a minute.
    pub async fn fetch<E: From<Error> + From<UnreadableRecord>>(
        client: &kube::Client,
        name: &NodeName,
        node: Option<&NodeFacts>,
        drain: DrainFacts<'a>,
        now: Timestamp,
    ) -> Result<Self, E> {
        let since = drain.draining_since;
        let tainted_since = node.map_or(Ok(since), |node| tainted_since(node, since))?;
        let (terms, remark) = Terms::find(drain.input, node, tainted_since, since, now);
        let terms = terms.held_by(drain.hook);
        let listed = list_pods(client, name).await?;
        let pods = survey_pods(&listed, &terms);
        Ok(Self {
            terms,
            remark,
            listed,
            pods,
        })
    }

    /// Holds back the pods whose volumes no other node can use. If EC2 takes the instance away, no pod is held back.
    pub async fn hold_back(self, client: &kube::Client, node: &NodeFacts) -> Result<Self, Error> {
        if self.terms.interrupted_at.is_some() {
            return Ok(self);
        }
        let pods = hold_back(client, node, self.pods).await?;
        Ok(Self { pods, ..self })
    }

    /// Fetches the survey of an existing Node and holds back pods ([`Self::hold_back`]).
    pub async fn of_node<E: From<Error> + From<UnreadableRecord>>(
        client: &kube::Client,
        node: &NodeFacts,
        drain: DrainFacts<'a>,
        now: Timestamp,
    ) -> Result<Self, E> {
        let survey = Self::fetch::<E>(client, &node.name, Some(node), drain, now).await?;
        Ok(survey.hold_back(client, node).await?)
    }
}

/// Returns the time since when a pod that comes to this Node tolerates the draining taint.
/// None if the Node does not have the taint, or no longer has it, or if no execution recorded it. Then any pod may come, and all of them
/// count.
///
/// The record holds the time of the decision to set the taint. Setting it may have taken a quarter of an hour of attempts, and a pod that
/// came in between tolerates nothing. `draining_since` is the time of the first check of `check-pods`, and the taint was there by then.
pub fn tainted_since(
    node: &NodeFacts,
    draining_since: Option<Timestamp>,
) -> Result<Option<Timestamp>, UnreadableRecord> {
    let record = node.record()?;
    let is_tainted = node.taints.iter().any(is_draining_taint);
    let recorded_at = record.tainted_at.filter(|_| is_tainted);
    Ok(recorded_at.map(|at| draining_since.map_or(at, |since| at.max(since))))
}
