//! Notifies pods that their node is being retired: an annotation and an Event on each.
//!
//! The annotation is written through the subresource `pods/status`, because the API server then keeps the spec of the pod as it is.
//! The permission to patch whole pods would also be the permission to change their images.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, future};
use k8s_openapi::api::core::v1;
use recycle::base::failure::with_causes;
use recycle::base::ids::{Fence, NodeName};
use recycle::base::names::WAITS_UNTIL_ANNOTATION;
use recycle::cluster::pod::PodFacts;
use recycle::drain::notice::{Notice, find_notices, withdraw_notices};
use recycle::drain::progress::describe_end;
use recycle::drain::survey::PodSurvey;
use recycle::drain::terms::Terms;
use serde_json::json;

use crate::call::{Call, CallFailure, attempt};
use crate::object::Objects;
use crate::{Error, Occasion, list_pods, record_event};

/// The number of pods that are notified at once. The API server answers ten requests in a tenth of a second.
const AT_ONCE: usize = 10;

/// The real time after which no further pod is notified. The next check notifies the others.
const NOTIFYING: Duration = Duration::from_secs(20);

/// Notifies the awaited pods until when their node waits for them, and removes the annotation from pods that are no longer awaited.
/// A pod that cannot be changed is logged. Errors: the first removal that failed, after all pods.
pub async fn notify_pods(
    client: &kube::Client,
    node: &NodeName,
    listed: &[PodFacts],
    survey: &PodSurvey,
    terms: &Terms<'_>,
    fence: &Fence,
) -> Result<(), Error> {
    let end = Instant::now() + NOTIFYING;
    let then = describe_end(survey, terms);
    let mut notified = futures::stream::iter(find_notices(listed, survey, terms))
        .take_while(|_| future::ready(Instant::now() < end))
        .map(|notice| {
            let then = &then;
            async move {
                let annotated = annotate(client, &notice).await;
                if let (Ok(()), Some(until)) = (&annotated, notice.until) {
                    let text = format!("Node {node} is being retired. It waits for this pod until {until}. At the end: {then}");
                    let occasion = Occasion::Notice(until);
                    record_event(client, &notice.pod, occasion, &text, terms.now, fence).await;
                }
                (annotated, notice.until.is_none())
            }
        })
        .buffer_unordered(AT_ONCE);
    let mut removed = Ok(());
    while let Some((annotated, is_removal)) = notified.next().await {
        if let Err(error) = annotated {
            tracing::warn!(
                error = with_causes(&error),
                "failed to notify a pod that its node is being retired"
            );
            if is_removal && removed.is_ok() {
                removed = Err(error);
            }
        }
    }
    removed
}

/// Removes the annotation from all pods of a node that is restored.
pub async fn remove_notices(client: &kube::Client, node: &NodeName) -> Result<(), Error> {
    let notices = withdraw_notices(&list_pods(client, node).await?);
    futures::stream::iter(notices)
        .map(|notice| async move { annotate(client, &notice).await })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// Sets or removes the annotation. The uid in the patch makes the API server refuse it for a later pod of the same name.
async fn annotate(client: &kube::Client, notice: &Notice) -> Result<(), Error> {
    let pod = &notice.pod;
    let name = pod.full_name();
    let call = Call::new("patch", "pods/status", &name);
    let annotations = json!({ WAITS_UNTIL_ANNOTATION: notice.until.map(|until| until.to_string()) });
    let change = json!({"metadata": {"uid": pod.uid, "annotations": annotations}});
    let pods = Objects::of::<v1::Pod>(client, Some(&pod.namespace));
    match attempt(pods.patch(&pod.name, Some("status"), change)).await {
        Ok(_) => Ok(()),
        // The pod is gone, or another one has its name.
        Err(CallFailure::Status(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
        // A missing permission must not keep a node from being restored.
        Err(CallFailure::Status(status)) if status.code == 403 => {
            tracing::warn!(
                pod = name,
                refusal = status.message,
                "the annotation of a pod may not be changed"
            );
            Ok(())
        }
        Err(failure) => Err(Error::from_failure(call, failure)),
    }
}
