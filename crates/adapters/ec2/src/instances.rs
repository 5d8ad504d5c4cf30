//! Calls EC2: reads instances, launch templates and images, writes tags, and stops an instance. It launches and terminates nothing.

use aws_config::SdkConfig;
use aws_sdk_ec2::types::{self, Filter, Tag};
use jiff::Timestamp;
use recycle::base::ids::{ClusterName, InstanceId};
use recycle::cluster::cluster_tag::{CLUSTER_TAG_VALUES, cluster_tag};
use recycle::cluster::instance::Instance;
use recycle::rotation::fleet::{Machine, Template, TemplateFacts};

use crate::Error;

const DESCRIBE_INSTANCES: &str = "ec2:DescribeInstances";
const DESCRIBE_TEMPLATES: &str = "ec2:DescribeLaunchTemplateVersions";

/// The maximum number of values in a filter (EC2 API reference, "Filtering": FilterLimitExceeded above 200).
const MOST_FILTER_VALUES: usize = 200;

#[derive(Debug, Clone)]
pub struct Instances {
    client: aws_sdk_ec2::Client,
}

impl Instances {
    pub fn new(config: &SdkConfig) -> Self {
        let client = aws_sdk_ec2::Client::new(config);
        Self { client }
    }

    /// Fetches the instance. None if EC2 says that it does not know the instance.
    /// Any other answer without the instance is an error, because an instance that counts as gone is terminated in its group, whatever
    /// still runs on it.
    pub async fn fetch(&self, id: &InstanceId) -> Result<Option<Instance>, Error> {
        let answer = self
            .client
            .describe_instances()
            .instance_ids(id.as_str())
            .send()
            .await;
        let answer = match answer.map_err(|error| Error::from_sdk(DESCRIBE_INSTANCES, error)) {
            Err(error) if is_unknown_instance(&error) => return Ok(None),
            answer => answer?,
        };
        let reservations = answer.reservations().iter();
        let mut found = reservations.flat_map(|reservation| reservation.instances());
        let instance = found.next().map(to_instance).transpose()?;
        let asked_for = instance.filter(|instance| instance.id == *id);
        asked_for
            .map(Some)
            .ok_or_else(|| Error::unintelligible(DESCRIBE_INSTANCES, format!("an answer without {id}")))
    }

    /// Fetches these instances, except those that EC2 does not know. An instance that was launched a moment ago may still be missing.
    pub async fn fetch_all(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        self.fetch_each(ids, to_instance).await
    }

    /// Fetches the cluster's instances that carry at least one of these tags, whatever its value.
    pub async fn fetch_marked(&self, cluster: &ClusterName, tags: &[&str]) -> Result<Vec<Instance>, Error> {
        let filters = vec![filter("tag-key", tags), of_cluster(cluster)];
        self.fetch_where(filters, to_instance).await
    }

    /// Fetches the cluster's instances with this value of a tag.
    pub async fn fetch_tagged(
        &self,
        cluster: &ClusterName,
        tag: &str,
        value: &str,
    ) -> Result<Vec<Instance>, Error> {
        let tagged = filter(format!("tag:{tag}"), &[value]);
        self.fetch_where(vec![tagged, of_cluster(cluster)], to_instance)
            .await
    }

    /// Fetches these instances with their launch time and image, except those that EC2 does not know.
    pub async fn fetch_machines(&self, ids: &[InstanceId]) -> Result<Vec<Machine>, Error> {
        self.fetch_each(ids, to_machine).await
    }

    /// Fetches a version of a launch template. `$Latest` and `$Default` are resolved to a version number.
    pub async fn fetch_template(&self, template: &Template) -> Result<TemplateFacts, Error> {
        let answer = self
            .client
            .describe_launch_template_versions()
            .launch_template_id(&template.id)
            .versions(&template.version)
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_TEMPLATES, error))?;
        let version = answer.launch_template_versions().first();
        let number = version.and_then(|version| version.version_number());
        let Some(number) = number else {
            let what = format!("{} has no version {}", template.id, template.version);
            return Err(Error::unintelligible(DESCRIBE_TEMPLATES, what));
        };
        let data = version.and_then(|version| version.launch_template_data());
        Ok(TemplateFacts {
            version: number.to_string(),
            // `resolve:ssm:…` names a parameter. Only EC2 resolves it to an image, at launch.
            image: data
                .and_then(|data| data.image_id())
                .filter(|image| image.starts_with("ami-"))
                .map(str::to_owned),
        })
    }

    /// Fetches the name of an image. None if EC2 does not know the image.
    pub async fn fetch_image_name(&self, image: &str) -> Result<Option<String>, Error> {
        let answer = self
            .client
            .describe_images()
            .filters(filter("image-id", &[image]))
            .send()
            .await
            .map_err(|error| Error::from_sdk("ec2:DescribeImages", error))?;
        let image = answer.images().first();
        Ok(image.and_then(|image| image.name()).map(str::to_owned))
    }

    async fn fetch_each<T>(&self, ids: &[InstanceId], read: Read<T>) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        // The call uses a filter, because a list of ids fails as a whole if one of them is unknown.
        for page in ids.chunks(MOST_FILTER_VALUES) {
            let ids: Vec<&str> = page.iter().map(InstanceId::as_str).collect();
            found.extend(self.fetch_where(vec![filter("instance-id", &ids)], read).await?);
        }
        Ok(found)
    }

    async fn fetch_where<T>(&self, filters: Vec<Filter>, read: Read<T>) -> Result<Vec<T>, Error> {
        self.describe_where(filters).await?.iter().map(read).collect()
    }

    async fn describe_where(&self, filters: Vec<Filter>) -> Result<Vec<types::Instance>, Error> {
        let mut pages = self
            .client
            .describe_instances()
            .set_filters(Some(filters))
            .into_paginator()
            .items()
            .send();
        let mut instances = Vec::new();
        while let Some(reservation) = pages.next().await {
            let reservation = reservation.map_err(|error| Error::from_sdk(DESCRIBE_INSTANCES, error))?;
            instances.extend(reservation.instances.unwrap_or_default());
        }
        Ok(instances)
    }

    /// Sets tags. The instance's other tags stay.
    pub async fn tag(&self, id: &InstanceId, tags: &[(&str, String)]) -> Result<(), Error> {
        self.tag_all(std::slice::from_ref(id), tags).await
    }

    /// Sets tags on several instances. Their other tags stay.
    pub async fn tag_all(&self, ids: &[InstanceId], tags: &[(&str, String)]) -> Result<(), Error> {
        let tags = tags
            .iter()
            .map(|(key, value)| Tag::builder().key(*key).value(value).build())
            .collect();
        self.client
            .create_tags()
            .set_resources(Some(ids.iter().map(ToString::to_string).collect()))
            .set_tags(Some(tags))
            .send()
            .await
            .map(drop)
            .map_err(|error| Error::from_sdk("ec2:CreateTags", error))
    }

    /// Removes tags, whatever their values. A missing tag or a missing instance is not an error.
    pub async fn untag(&self, id: &InstanceId, keys: &[&str]) -> Result<(), Error> {
        match self.untag_all(std::slice::from_ref(id), keys).await {
            Err(error) if !is_unknown_instance(&error) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes tags from several instances. If EC2 does not know one of them, it refuses the whole call.
    pub async fn untag_all(&self, ids: &[InstanceId], keys: &[&str]) -> Result<(), Error> {
        let tags = keys.iter().map(|key| Tag::builder().key(*key).build()).collect();
        self.client
            .delete_tags()
            .set_resources(Some(ids.iter().map(ToString::to_string).collect()))
            .set_tags(Some(tags))
            .send()
            .await
            .map(drop)
            .map_err(|error| Error::from_sdk("ec2:DeleteTags", error))
    }

    /// Starts to stop the instance. An instance that is stopping or stopped stays so.
    pub async fn stop(&self, id: &InstanceId) -> Result<(), Error> {
        self.client
            .stop_instances()
            .instance_ids(id.as_str())
            .send()
            .await
            .map(drop)
            .map_err(|error| Error::from_sdk("ec2:StopInstances", error))
    }
}

/// A function that reads EC2's description of an instance.
type Read<T> = fn(&types::Instance) -> Result<T, Error>;

fn filter(name: impl Into<String>, values: &[&str]) -> Filter {
    let values = values.iter().map(ToString::to_string).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

fn of_cluster(cluster: &ClusterName) -> Filter {
    filter(
        format!("tag:{}", cluster_tag(cluster.as_str())),
        &CLUSTER_TAG_VALUES,
    )
}

/// Checks for EC2's two ways to say that it does not know an instance.
fn is_unknown_instance(error: &Error) -> bool {
    matches!(
        error.code(),
        Some("InvalidInstanceID.NotFound" | "InvalidInstanceID.Malformed")
    )
}

fn missing(what: &str) -> Error {
    Error::unintelligible(DESCRIBE_INSTANCES, format!("an instance without {what}"))
}

fn to_instance(instance: &types::Instance) -> Result<Instance, Error> {
    let id = instance.instance_id().and_then(|id| id.parse().ok());
    let state = instance.state().and_then(|state| state.name());
    Ok(Instance {
        id: id.ok_or_else(|| missing("a valid InstanceId"))?,
        state: state.ok_or_else(|| missing("State.Name"))?.as_str().to_owned(),
        // Once the instance is gone, EC2 returns an empty name instead of none.
        private_dns_name: instance
            .private_dns_name()
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
        tags: instance
            .tags()
            .iter()
            .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned())))
            .collect(),
        is_spot: instance.instance_lifecycle() == Some(&types::InstanceLifecycleType::Spot)
            || instance
                .spot_instance_request_id()
                .is_some_and(|request| !request.is_empty()),
    })
}

fn to_machine(instance: &types::Instance) -> Result<Machine, Error> {
    let launched_at = instance
        .launch_time()
        .and_then(|time| Timestamp::from_second(time.secs()).ok());
    // Without an image, every instance would seem to run another image than its template names.
    let image = instance.image_id().filter(|image| !image.is_empty());
    Ok(Machine {
        instance: to_instance(instance)?,
        launched_at: launched_at.ok_or_else(|| missing("LaunchTime"))?,
        image: image.ok_or_else(|| missing("ImageId"))?.to_owned(),
    })
}
