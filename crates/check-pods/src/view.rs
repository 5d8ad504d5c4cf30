//! What is seen at this moment: the pods by class, the deadline, and what a person should know.

use jiff::Timestamp;
use node_record::{Occasion, read_progress, tainted_since, tell, tell_progress};
use recycle::blocked::{describe_blockers, describe_news};
use recycle::contract::Run;
use recycle::drain::{Progress, Terms, describe_pods, tell_pods, write_progress};
use recycle::ids::Fence;
use recycle::names::DRAINING_TAINT;
use recycle::node::{NodeFacts, is_draining_taint};
use recycle::pods::{PodFacts, PodSurvey, survey_pods};

use crate::Error;

/// What is seen at this moment.
pub(crate) struct View<'a> {
    pub(crate) survey: PodSurvey,
    pub(crate) terms: Terms<'a>,
    /// The story for people.
    pub(crate) progress: Progress,
    /// What was told at the last look.
    before: Option<Progress>,
    /// One sentence each.
    remarks: Vec<String>,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        node: &NodeFacts,
        pods: &[PodFacts],
        run: &'a Run,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let tainted_since = tainted_since(node, run.draining_since)?;
        let (terms, remark) = Terms::find(&run.input, Some(node), tainted_since, run.draining_since, now);
        let survey = survey_pods(pods, &terms);
        let before = read_progress(node);
        // What blocks evictions is known to `evict-pods`; it holds as long as there is something to evict.
        let still_blocked = before.as_ref().filter(|_| !survey.evictable.is_empty());
        let blocked = still_blocked.map_or_else(Vec::new, |progress| progress.blocked.clone());
        let news = describe_news(&blocked, now);
        let is_tainted = node.taints.iter().any(is_draining_taint);
        let taint_gone = (!is_tainted).then(|| format!("somebody removed the taint {DRAINING_TAINT}"));
        Ok(Self {
            progress: write_progress(&survey, blocked, &terms),
            survey,
            terms,
            before,
            remarks: [news, remark, taint_gone].into_iter().flatten().collect(),
        })
    }

    /// Why the verdict is what it is.
    pub(crate) fn reason(&self) -> String {
        let pods = describe_pods(&self.survey);
        std::iter::once(pods)
            .chain(self.remarks.iter().cloned())
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Why the node could not be drained: what is left, and everything that stood in the way.
    pub(crate) fn describe_failure(&self, reason: String) -> String {
        std::iter::once(reason)
            .chain(describe_blockers(&self.progress.blocked))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Tells people: the whole story in the annotation, and by an Event if there are pods of a class that had none.
    pub(crate) async fn tell(
        &self,
        client: &kube::Client,
        node: &NodeFacts,
        me: &Fence,
    ) -> Result<(), Error> {
        if self.progress.has_news(self.before.as_ref()) {
            let classes: Vec<&str> = self.progress.names.keys().map(String::as_str).collect();
            let occasion = classes.join(" ");
            let story = tell_pods(&self.survey, &self.terms);
            tell(
                client,
                &node.name,
                Occasion::Pods(&occasion),
                &story,
                self.terms.now,
                me,
            )
            .await;
        }
        Ok(tell_progress(client, node, &self.progress).await?)
    }
}
