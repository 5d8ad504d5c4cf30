//! The one observer: reads the node, its claim and its pods, and says what comes next. Tells people, too.
//!
//! Touches no pod. All it writes is annotations of the Node: the progress, and at its first look at a tainted node since
//! when pods on it tolerate the taint.

mod error;
mod outage;

use eks_auth::Access;
use jiff::Timestamp;
use node_record::{NodeChange, change_node, check_claim, is_draining_taint, list_pods, open, tainted_since};
use recycle::contract::{Answer, CheckVerdict, Context, Run, StepRequest};
use recycle::drain::{
    Deadline, DrainVerdict, Progress, describe_pods, find_deadline, judge_drain, write_progress,
};
use recycle::names::{DRAIN_UNTIL_ANNOTATION, PROGRESS_ANNOTATION};
use recycle::node::{NodeFacts, Record};
use recycle::pods::{PodFacts, PodSurvey, survey_pods};
use recycle::poll::POLL_BUDGET;

pub use error::Error;

/// One invocation. A cluster that cannot be asked is a reason to wait, as long as there is time.
pub async fn check_pods(access: &Access, request: StepRequest) -> Result<Answer<CheckVerdict>, Error> {
    let StepRequest { context, mut run } = request;
    let polls = run.polls;
    run.polls += 1;
    let opened = open(access, &mut run.cluster, &run.node).await;
    let checked = match opened {
        Ok((client, node)) => check(&client, node, &context, run.clone(), polls).await,
        Err(error) => Err(error.into()),
    };
    checked.or_else(|error| outage::wait_out(error, run, context.now()))
}

async fn check(
    client: &kube::Client,
    node: Option<NodeFacts>,
    context: &Context,
    mut run: Run,
    polls: u32,
) -> Result<Answer<CheckVerdict>, Error> {
    let node = node.ok_or_else(|| node_record::Error::NodeGone {
        node: run.node.to_string(),
    })?;
    let now = context.now();
    check_claim(&node, &context.fence())?;
    let pods = list_pods(client, &node.name).await?;
    let view = View::new(&node, &pods, &run, now)?;
    let last_eviction_tried = run.last_eviction.is_some();
    let drain_timeout = run.input.drain_timeout_seconds;
    let verdict = judge_drain(
        &view.survey,
        view.since,
        now,
        view.deadline,
        drain_timeout,
        polls,
        last_eviction_tried,
    );
    write_down(client, &node, &view, now).await?;

    let is_over = view.deadline.is_past(now) || polls >= POLL_BUDGET;
    let (verdict, wait_seconds) = match verdict {
        DrainVerdict::Dispose => (CheckVerdict::Dispose, 0),
        DrainVerdict::Wait(seconds) => (CheckVerdict::Wait, seconds),
        DrainVerdict::Evict(seconds) => {
            run.last_eviction = run.last_eviction.or_else(|| is_over.then_some(now));
            (CheckVerdict::Evict, seconds)
        }
        DrainVerdict::TimedOut(reason) => return Err(Error::TimedOut(reason)),
    };
    let mut answer = Answer::new(verdict, view.reason())
        .waiting(wait_seconds)
        .carrying(run);
    answer.counts = view.survey.counts();
    answer.names = view.survey.names();
    Ok(answer)
}

/// What is seen at this moment.
struct View {
    survey: PodSurvey,
    since: Timestamp,
    deadline: Deadline,
    /// Things that a person should know, one sentence each.
    remarks: Vec<String>,
}

impl View {
    fn new(node: &NodeFacts, pods: &[PodFacts], run: &Run, now: Timestamp) -> Result<Self, Error> {
        let survey = survey_pods(pods, &run.input.awaited, run.input.evict, tainted_since(node)?);
        let since = run.draining_since.unwrap_or(now);
        let drain_until = node.annotations.get(DRAIN_UNTIL_ANNOTATION).map(String::as_str);
        let (deadline, remark) = find_deadline(since, now, run.input.drain_timeout_seconds, drain_until);
        let taint_gone =
            (!is_tainted(node)).then(|| "somebody removed the taint recycle-eks/draining".to_owned());
        Ok(Self {
            survey,
            since,
            deadline,
            remarks: remark.into_iter().chain(taint_gone).collect(),
        })
    }

    fn reason(&self) -> String {
        std::iter::once(describe_pods(&self.survey))
            .chain(self.remarks.iter().cloned())
            .collect::<Vec<_>>()
            .join("; ")
    }
}

fn is_tainted(node: &NodeFacts) -> bool {
    node.taints.iter().any(is_draining_taint)
}

/// Writes what has changed since the last look. If somebody else changed the Node meanwhile, the next look writes it.
async fn write_down(
    client: &kube::Client,
    node: &NodeFacts,
    view: &View,
    now: Timestamp,
) -> Result<(), Error> {
    let mut change = NodeChange::new();
    let record = node.record()?;
    if record.tainted_at.is_none() && is_tainted(node) {
        change = change.record(&Record {
            tainted_at: Some(now),
            ..record
        })?;
    }
    let before = read_progress(node);
    // What blocks evictions is known to `evict-pods`; it holds as long as there is something to evict.
    let blocked = match &before {
        Some(progress) if !view.survey.evictable.is_empty() => progress.blocked_by.clone(),
        Some(_) | None => Vec::new(),
    };
    let progress = write_progress(&view.survey, &blocked, view.since, view.deadline);
    if before.as_ref() != Some(&progress) {
        change = change.progress(&progress)?;
    }
    if change.is_empty() {
        return Ok(());
    }
    match change_node(client, node, change).await {
        Ok(_) | Err(node_record::Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// None also if somebody edited it: it is written anew then.
fn read_progress(node: &NodeFacts) -> Option<Progress> {
    serde_json::from_str(node.annotations.get(PROGRESS_ANNOTATION)?).ok()
}
