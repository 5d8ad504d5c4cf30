//! What people are told of a put-back, and what is counted: by its last answer, and by no other.

use node_record::Occasion;
use recycle::contract::{Answer, RestoreRequest, RestoreVerdict};
use recycle::metrics::measure_put_back;
use recycle::notification::{About, tell_put_back};
use recycle::sweep::is_by_request;

use crate::Error;
use crate::request::{find_reason, find_subject};
use crate::target::Target;

impl Target {
    /// An execution that a person's taint has started, and that ends before it has claimed the node: says why on the Node, and takes the
    /// taint away. Other executions leave it for the sweep.
    pub(crate) async fn turn_down(&self, request: &RestoreRequest) -> Result<(), Error> {
        let (Ok(cluster), Some(node)) = (&self.cluster, self.node()) else {
            return Ok(());
        };
        if !is_by_request(&self.me.execution) {
            return Ok(());
        }
        let reason = find_reason(request);
        let (client, now) = (&cluster.client, request.context.now());
        Ok(node_record::answer_request(client, node, Occasion::Refused, &reason, now, &self.me).await?)
    }
}

/// The last answer, with what there is to tell of it. `target` is what was looked at, if anything was; `what_to_do` is for a person.
pub(crate) fn tell(
    answer: Answer<RestoreVerdict>,
    target: Option<&Target>,
    request: &RestoreRequest,
    reason: &str,
    what_to_do: Vec<String>,
) -> Answer<RestoreVerdict> {
    let subject = find_subject(request);
    let claimed = target.and_then(Target::claimed_group);
    let group = target
        .and_then(|target| target.group.as_ref())
        .map(|group| &group.name);
    let about = About {
        execution: &request.context.execution.id,
        cluster: subject.as_ref().map(|subject| &subject.cluster),
        instance: subject.as_ref().map(|subject| &subject.instance),
        node: target.and_then(Target::node).map(|node| &node.name),
        group: group.or(claimed.as_ref()),
    };
    let since = request.put_back.since.unwrap_or_else(|| request.context.now());
    let error = request.failure.as_ref();
    let told = tell_put_back(about, answer.verdict, error, since, reason, what_to_do);
    let counted = measure_put_back(answer.verdict, error.map(|error| error.error.as_str()));
    answer.telling(told).counting(counted)
}
