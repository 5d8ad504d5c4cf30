//! Checks the permissions of this function in the cluster before anything is touched.

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use recycle::reference::permissions::{PERMISSIONS, Permission};

use crate::Error;
use crate::call::{Call, send};

/// Lists the required permissions that this role lacks, each as `verb resource`. Every authenticated client may ask for this.
pub async fn missing_permissions(client: &kube::Client) -> Result<Vec<String>, Error> {
    let reviews = PERMISSIONS
        .iter()
        .map(|permission| is_allowed(client, *permission));
    let answers = try_join_all(reviews).await?;
    let missing = PERMISSIONS.iter().zip(answers).filter(|(_, allowed)| !allowed);
    Ok(missing.map(|(permission, _)| permission.to_string()).collect())
}

/// Fetches the API server's version, such as `v1.35.2-eks-1234567`. The call carries the token, so it also shows if the cluster accepts it.
pub async fn server_version(client: &kube::Client) -> Result<String, Error> {
    let call = Call::new("get", "version", "of the API server");
    Ok(send(call, client.apiserver_version()).await?.git_version)
}

async fn is_allowed(client: &kube::Client, permission: Permission) -> Result<bool, Error> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let call = Call::new("create", "selfsubjectaccessreviews", permission.resource);
    let answer = send(call, api.create(&PostParams::default(), &review(permission))).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn review(permission: Permission) -> SelfSubjectAccessReview {
    let (resource, subresource) = match permission.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (permission.resource, None),
    };
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(permission.group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(permission.verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}
