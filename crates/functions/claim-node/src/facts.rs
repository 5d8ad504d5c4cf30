//! Fetches the facts for pre-flight: cluster, instance, group, Node, and the permissions of this function in the cluster.

use std::collections::BTreeMap;

use ec2::groups::Membership;
use futures::future::try_join;
use recycle::base::ids::Fence;
use recycle::base::names::{CLAIM_ANNOTATION, NAMESPACE};
use recycle::claim::facts::{GroupState, PreflightFacts};
use recycle::claim::obstacle::Obstacle;
use recycle::claim::preflight::TRIES_OF_AN_ENDPOINT;
use recycle::cluster::group::Group;
use recycle::cluster::hook::{HeldByHook, PROCEEDING, WAITING, check_retain, find_release, is_held};
use recycle::cluster::instance::Instance;
use recycle::cluster::node::NodeFacts;
use recycle::contract::requests::ClaimRequest;
use recycle::input::model::{Input, Replacement, TO_EC2};
use recycle::input::urgency::Urgency;
use recycle::records::claim::{ClaimDecision, ClaimLost, Phase, StoredClaim};
use recycle::records::lease::Lease;
use recycle::records::node_record::Record;
use recycle::restore::manual_commands::is_untouched;

use crate::{ClaimNode, Error};

/// Facts before pre-flight; None for each that was not found.
pub(crate) struct FetchedFacts {
    pub(crate) client: kube::Client,
    /// The cluster's endpoint, if the cluster has never answered.
    unreachable: Option<String>,
    missing_permissions: Vec<String>,
    pub(crate) instance: Option<Instance>,
    pub(crate) membership: Option<Membership>,
    pub(crate) node: Option<NodeFacts>,
    lease: Option<Lease>,
}

/// Facts after pre-flight has passed: nothing is missing.
pub(crate) struct ClaimFacts {
    pub(crate) client: kube::Client,
    pub(crate) instance: Instance,
    pub(crate) lifecycle_state: String,
    pub(crate) group: Group,
    pub(crate) hook: Option<HeldByHook>,
    /// A remark for operators that stops nothing.
    pub(crate) remark: Option<String>,
    pub(crate) node: NodeFacts,
}

impl ClaimNode {
    /// Asks AWS and the cluster at the same time. Only the Node is looked up after that, under the name that EC2 knows.
    pub(crate) async fn fetch_facts(
        &self,
        input: &Input,
        request: &ClaimRequest,
    ) -> Result<FetchedFacts, Error> {
        let cluster = async {
            let endpoint = self.access.describe_cluster().await?.endpoint;
            let client = self.access.connect().await?;
            Ok::<_, Error>(ask_cluster(endpoint, client, request).await)
        };
        let ((instance, membership), cluster) = try_join(self.fetch_from_aws(input), cluster).await?;
        find_node(cluster, instance, membership, input, request).await
    }

    /// Fetches the instance from EC2 and its membership from Auto Scaling.
    pub(crate) async fn fetch_from_aws(
        &self,
        input: &Input,
    ) -> Result<(Option<Instance>, Option<Membership>), Error> {
        let id = &input.instance_id;
        Ok(try_join(self.instances.fetch(id), self.groups.find_membership(id)).await?)
    }

    /// Returns the hook of recycle-eks if the group has it and the member waits for a hook.
    pub(crate) async fn fetch_hook(
        &self,
        found: &FetchedFacts,
        input: &Input,
    ) -> Result<Option<HeldByHook>, Error> {
        let membership = found.membership.as_ref();
        let Some(waiting) = membership.filter(|membership| membership.lifecycle_state == WAITING) else {
            return Ok(None);
        };
        let timeout = self.groups.find_hook(&waiting.group.name).await?;
        let fired_at = input.hook.as_ref().and_then(|hook| hook.fired_at);
        Ok(timeout.map(|timeout| HeldByHook::new(timeout, fired_at, waiting.group.retains)))
    }
}

/// The cluster's answers that do not depend on the instance.
pub(crate) struct ClusterAnswer {
    endpoint: String,
    client: kube::Client,
    missing_permissions: Result<Vec<String>, kubernetes::Error>,
}

/// Asks the cluster about the permissions.
/// An execution that waits in the queue has asked about them before: fifty nodes in a queue would ask 23 times a second.
pub(crate) async fn ask_cluster(
    endpoint: String,
    client: kube::Client,
    request: &ClaimRequest,
) -> ClusterAnswer {
    let missing_permissions = if request.run.is_none() {
        kubernetes::missing_permissions(&client).await
    } else {
        Ok(Vec::new())
    };
    ClusterAnswer {
        endpoint,
        client,
        missing_permissions,
    }
}

/// Finds the instance's Node, unless the cluster cannot be read.
pub(crate) async fn find_node(
    cluster: ClusterAnswer,
    instance: Option<Instance>,
    membership: Option<Membership>,
    input: &Input,
    request: &ClaimRequest,
) -> Result<FetchedFacts, Error> {
    let (client, answer) = (cluster.client, cluster.missing_permissions);
    let is_claimed = instance.as_ref().and_then(Instance::claim).is_some();
    let is_unreachable =
        matches!(answer, Err(kubernetes::Error::Unreachable { .. })) && never_answered(request, is_claimed);
    let missing_permissions = if is_unreachable { Vec::new() } else { answer? };
    let (node, lease) = if missing_permissions.is_empty() && !is_unreachable {
        let instance = instance.as_ref();
        let hint = instance.and_then(|instance| instance.private_dns_name.as_deref());
        kubernetes::find_node_and_lease(&client, &input.instance_id, hint).await?
    } else {
        // Pre-flight refuses anyway. It names everything that is missing, instead of the first call that fails.
        (None, None)
    };
    Ok(FetchedFacts {
        client,
        unreachable: is_unreachable.then_some(cluster.endpoint),
        missing_permissions,
        instance,
        membership,
        node,
        lease,
    })
}

/// Checks whether the cluster has never answered, after enough attempts.
/// An execution that has claimed the node, or waits in the queue, has reached the cluster before. For it the outage is temporary.
fn never_answered(request: &ClaimRequest, is_claimed: bool) -> bool {
    let has_tried_enough = request.context.state.retry_count >= TRIES_OF_AN_ENDPOINT;
    has_tried_enough && request.run.is_none() && !is_claimed
}

impl FetchedFacts {
    /// Returns the claim in the Lease of the instance.
    pub(crate) fn claim(&self) -> Option<StoredClaim> {
        self.lease.as_ref()?.claim()
    }

    /// Decides on the claim of an execution that has waited in the queue: it must still hold the claim.
    /// Without a Node the claim does not matter. The instance may be gone, and pre-flight ends the execution in any case.
    pub(crate) fn decide_queued(&self, me: &Fence, urgency: Urgency) -> Result<ClaimDecision, ClaimLost> {
        match &self.node {
            Some(node) => kubernetes::check_claim(node, me, urgency).map(ClaimDecision::AlreadyHeld),
            None => Ok(ClaimDecision::Take),
        }
    }

    /// Returns the input with the replacement mode settled. A node that has its replacement, or still waits for it, continues in its mode,
    /// whatever the input says by now: `before` in Standby, `surge` after the desired capacity was raised.
    /// Warnings of EC2 do not queue. With `surge` they would read and write the desired capacity at the same time, so they use another mode.
    pub(crate) fn settle_path(&self, input: &Input, is_better_with_surge: bool) -> Input {
        let mut settled = input.clone();
        match self.member_state() {
            Some("Standby" | "EnteringStandby") => settled.replacement = Replacement::Before,
            // An interruption waits for no replacement.
            Some("InService") if self.was_raised() && input.interrupted_at.is_none() => {
                settled.replacement = Replacement::Surge;
            }
            Some(_) | None if input.urgency == Urgency::Spot && input.replacement == Replacement::Surge => {
                settled.replacement = if is_better_with_surge {
                    Replacement::After
                } else {
                    Replacement::Before
                };
            }
            Some(_) | None => {}
        }
        settled
    }

    /// Whether the group itself replaces Spot instances at risk.
    pub(crate) fn rebalances_capacity(&self) -> bool {
        let membership = self.membership.as_ref();
        membership.is_some_and(|membership| membership.group.rebalances_capacity)
    }

    /// Whether the record says that an execution has raised the desired capacity of the group for this node.
    pub(crate) fn was_raised(&self) -> bool {
        self.record().is_some_and(|record| record.was_raised())
    }

    /// Returns the record of the node, if there is one that can be read.
    pub(crate) fn record(&self) -> Option<Record> {
        self.lease.as_ref()?.record().ok()
    }

    /// Checks whether the holder of a claim in `phase` has touched the node, so that this execution resumes its work.
    /// In the queue nothing is touched yet, whatever happens to the member.
    /// A member in service whose replacement was not asked for yet, or that was brought back, gets the full pre-flight.
    pub(crate) fn has_begun(&self, phase: Phase, input: &Input) -> bool {
        let is_in_service = self.member_state() == Some("InService");
        let waits_for_none = match input.replacement {
            Replacement::Before => true,
            Replacement::Surge => !self.was_raised(),
            Replacement::After => false,
        };
        if phase <= Phase::Admitted || (is_in_service && waits_for_none) {
            return false;
        }
        self.was_raised() || !is_untouched(&[phase], self.member_state())
    }

    /// Returns the state of the group's member; None for an instance in a warm pool, which is not listed as a member.
    pub(crate) fn member_state(&self) -> Option<&str> {
        let group = &self.membership.as_ref()?.group;
        group.state_of(&self.instance.as_ref()?.id)
    }

    /// Returns the lifecycle state from Auto Scaling, even for an instance in a warm pool.
    fn lifecycle_state(&self) -> Option<&str> {
        let membership = self.membership.as_ref()?;
        Some(membership.lifecycle_state.as_str())
    }

    /// Checks whether the group keeps an instance whose hook was abandoned.
    fn retains(&self) -> bool {
        self.membership
            .as_ref()
            .is_some_and(|membership| membership.group.retains)
    }

    pub(crate) fn unreadable_claim(&self, text: &str) -> Error {
        let (place, removal) = self.locate_claim();
        let text = format!(
            "{place} is not readable but {text:?}; remove it if no execution works on the node: {removal}"
        );
        Error::refused(Obstacle::UnreadableClaim, text)
    }

    pub(crate) fn foreign_claim(&self, what: &str) -> Error {
        let (place, removal) = self.locate_claim();
        let text = format!(
            "{place} is a claim {what}, which this installation has not written; if no other installation or version of recycle-eks \
             works on the node, remove it: {removal}"
        );
        Error::refused(Obstacle::ForeignClaim, text)
    }

    /// Returns the place of the claim and the command that removes it.
    fn locate_claim(&self) -> (String, String) {
        let Some(Lease { instance, .. }) = &self.lease else {
            return ("the claim".to_owned(), String::new());
        };
        (
            format!("the claim in Lease {instance} of namespace {NAMESPACE}"),
            // The rest of the Lease stays: its record alone names the members that are protected from scale-in.
            format!("kubectl annotate lease --namespace {NAMESPACE} {instance} {CLAIM_ANNOTATION}-"),
        )
    }

    /// Returns the reason why the hook of recycle-eks has nothing to wait for; None if it may have.
    /// A missing Node counts only if the cluster was read.
    pub(crate) fn find_release(&self, input: &Input) -> Option<String> {
        let (hook, instance) = (input.hook.as_ref()?, self.instance.as_ref()?);
        let was_read = self.missing_permissions.is_empty() && self.unreachable.is_none();
        let state = self.lifecycle_state();
        let is_warm = state.is_some_and(|state| state.starts_with("Warmed:"));
        // Pre-flight lets such a member go on, because its group may retain it.
        let may_be_retained = self.retains() && state == Some(PROCEEDING);
        let is_going = is_held(state) || may_be_retained || is_warm || hook.destination != TO_EC2;
        let release = find_release(hook, input, instance, self.node.as_ref());
        release.filter(|_| was_read && is_going)
    }

    /// Returns a remark if the module says that the group retains instances, but the group does not.
    pub(crate) fn note_retention(&self, input: &Input) -> Option<String> {
        check_retain(input.hook.as_ref()?, self.retains())
    }

    pub(crate) fn for_preflight<'a>(
        &'a self,
        input: &'a Input,
        group_state: &'a GroupState,
        resuming: bool,
    ) -> PreflightFacts<'a> {
        static NO_TAGS: BTreeMap<String, String> = BTreeMap::new();
        let membership = self.membership.as_ref();
        PreflightFacts {
            input,
            instance: self.instance.as_ref(),
            lifecycle_state: self.lifecycle_state(),
            group: membership.map(|membership| &membership.group),
            group_tags: membership.map_or(&NO_TAGS, |membership| &membership.tags),
            group_propagates: membership.map_or(&[], |membership| membership.propagates.as_slice()),
            group_state,
            node: self.node.as_ref(),
            unreachable: self.unreachable.as_deref(),
            missing_permissions: &self.missing_permissions,
            resuming,
        }
    }

    pub(crate) fn into_claim_facts(
        self,
        hook: Option<HeldByHook>,
        remark: Option<String>,
    ) -> Result<ClaimFacts, Error> {
        let instance = self.instance.ok_or(Error::Incomplete("the instance"))?;
        let membership = self.membership.ok_or(Error::Incomplete("its group"))?;
        Ok(ClaimFacts {
            client: self.client,
            instance,
            lifecycle_state: membership.lifecycle_state,
            group: membership.group,
            hook,
            remark,
            node: self.node.ok_or(Error::Incomplete("its Node"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{request, run};

    #[test]
    fn an_endpoint_that_fails_many_attempts_in_a_row_never_answered() {
        let tried = |retries, run: &serde_json::Value| {
            let mut request = request(run);
            request.context.state.retry_count = retries;
            request
        };
        let (none, queued) = (json!({}), serde_json::to_value(run()).unwrap());
        let cases = [
            (0, &none, false, false),
            (TRIES_OF_AN_ENDPOINT - 1, &none, false, false),
            (TRIES_OF_AN_ENDPOINT, &none, false, true),
            (TRIES_OF_AN_ENDPOINT, &none, true, false),
            (TRIES_OF_AN_ENDPOINT, &queued, false, false),
        ];
        for (retries, run, is_claimed, expected) in cases {
            assert_eq!(
                never_answered(&tried(retries, run), is_claimed),
                expected,
                "{retries} {run} {is_claimed}"
            );
        }
    }
}
