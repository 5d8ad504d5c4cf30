//! Checks the permissions of the functions' groups in the cluster before anything is touched.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use recycle::base::permissions::{PERMISSIONS, Permission, REVIEW, describe_missing};

use crate::Error;
use crate::call::{Call, send};

/// The group that the API server adds to each client with a valid token.
const AUTHENTICATED: &str = "system:authenticated";

/// The number of questions at the same time, so that two rounds are enough. Each needs a connection of its own.
const AT_ONCE: usize = 9;

/// Lists the permissions that the groups of the functions lack, in one text for each group.
/// A function that may not ask learns only that.
pub async fn missing_permissions(client: &kube::Client) -> Result<Vec<String>, Error> {
    let reviews = stream::iter(PERMISSIONS).map(|permission| is_allowed(client, *permission));
    let answers: Vec<bool> = match reviews.buffered(AT_ONCE).try_collect().await {
        Err(Error::Forbidden { .. }) => return Ok(describe_missing(&[REVIEW])),
        answers => answers?,
    };
    let missing = PERMISSIONS.iter().zip(answers).filter(|(_, allowed)| !allowed);
    let missing: Vec<Permission> = missing.map(|(permission, _)| *permission).collect();
    Ok(describe_missing(&missing))
}

/// Fetches the API server's version, such as `v1.35.2-eks-1234567`. The call carries the token, so it also shows if the cluster accepts it.
pub async fn server_version(client: &kube::Client) -> Result<String, Error> {
    let call = Call::new("get", "version", "of the API server");
    Ok(send(call, client.apiserver_version()).await?.git_version)
}

async fn is_allowed(client: &kube::Client, permission: Permission) -> Result<bool, Error> {
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let call = Call::new("create", "subjectaccessreviews", permission.resource);
    let answer = send(call, api.create(&PostParams::default(), &review(permission))).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Builds the question about a client that is in the permission's group, whatever its name.
fn review(permission: Permission) -> SubjectAccessReview {
    let (resource, subresource) = match permission.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (permission.resource, None),
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            groups: Some(vec![permission.group.to_string(), AUTHENTICATED.to_owned()]),
            resource_attributes: Some(ResourceAttributes {
                group: Some(permission.api_group.to_owned()),
                namespace: permission.namespace.map(str::to_owned),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(permission.verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
