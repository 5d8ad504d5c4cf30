//! EC2: instances, their tags, and stopping one. It launches and terminates nothing.

use aws_config::SdkConfig;
use aws_sdk_ec2::types::{Filter, Tag};
use jiff::Timestamp;
use recycle::base::ids::{ClusterName, InstanceId};
use recycle::cluster::cluster_tag::{CLUSTER_TAG_VALUES, cluster_tag};
use recycle::cluster::instance::Instance;
use recycle::rotation::fleet::{Machine, Template, TemplateFacts};

use crate::Error;

const DESCRIBE_INSTANCES: &str = "ec2:DescribeInstances";
const DESCRIBE_TEMPLATES: &str = "ec2:DescribeLaunchTemplateVersions";
const DESCRIBE_IMAGES: &str = "ec2:DescribeImages";
const CREATE_TAGS: &str = "ec2:CreateTags";
const DELETE_TAGS: &str = "ec2:DeleteTags";
const STOP_INSTANCES: &str = "ec2:StopInstances";

/// How many values a filter takes (EC2 API reference, "Filtering": FilterLimitExceeded above 200).
const MOST_FILTER_VALUES: usize = 200;

/// EC2's instances.
#[derive(Debug, Clone)]
pub struct Instances {
    client: aws_sdk_ec2::Client,
}

impl Instances {
    /// A client as `config` says.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        Self {
            client: aws_sdk_ec2::Client::new(config),
        }
    }

    /// The instance, or none if EC2 says that it does not know it. An answer that lacks what it was asked for says nothing: what is taken for
    /// gone is ended in its group, whoever waits on it.
    pub async fn fetch(&self, id: &InstanceId) -> Result<Option<Instance>, Error> {
        let answer = self
            .client
            .describe_instances()
            .instance_ids(id.as_str())
            .send()
            .await;
        match answer.map_err(|error| Error::from_sdk(DESCRIBE_INSTANCES, error)) {
            Ok(answer) => {
                let reservations = answer.reservations().iter();
                let mut found = reservations.flat_map(|reservation| reservation.instances());
                let instance = found.next().map(to_instance).transpose()?;
                match instance.filter(|instance| instance.id == *id) {
                    Some(instance) => Ok(Some(instance)),
                    None => Err(Error::Unintelligible {
                        call: DESCRIBE_INSTANCES,
                        what: format!("an answer without {id}"),
                    }),
                }
            }
            Err(error) if is_unknown_instance(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Those of the instances that EC2 knows. One that was launched a moment ago may still be missing.
    pub async fn fetch_all(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let mut instances = Vec::new();
        // A filter, because a list of ids fails as a whole if one of them is unknown.
        for page in ids.chunks(MOST_FILTER_VALUES) {
            let ids = page.iter().map(ToString::to_string).collect();
            instances.extend(self.fetch_where(vec![("instance-id".to_owned(), ids)]).await?);
        }
        Ok(instances)
    }

    /// The cluster's instances that carry at least one of these tags, whatever its value.
    pub async fn fetch_marked(&self, cluster: &ClusterName, tags: &[&str]) -> Result<Vec<Instance>, Error> {
        let keys = tags.iter().map(ToString::to_string).collect();
        let belongs = CLUSTER_TAG_VALUES.map(str::to_owned).to_vec();
        let filters = vec![
            ("tag-key".to_owned(), keys),
            (format!("tag:{}", cluster_tag(cluster.as_str())), belongs),
        ];
        self.fetch_where(filters).await
    }

    /// The instances with this value of a tag.
    pub async fn fetch_tagged(&self, tag: &str, value: &str) -> Result<Vec<Instance>, Error> {
        self.fetch_where(vec![(format!("tag:{tag}"), vec![value.to_owned()])])
            .await
    }

    /// Those of the instances that EC2 knows, with what they were launched as.
    pub async fn fetch_machines(&self, ids: &[InstanceId]) -> Result<Vec<Machine>, Error> {
        let mut machines = Vec::new();
        for page in ids.chunks(MOST_FILTER_VALUES) {
            let ids = page.iter().map(ToString::to_string).collect();
            let found = self.describe_where(vec![("instance-id".to_owned(), ids)]).await?;
            for instance in &found {
                machines.push(to_machine(instance)?);
            }
        }
        Ok(machines)
    }

    /// The same of the instances with this value of a tag.
    pub async fn fetch_tagged_machines(&self, tag: &str, value: &str) -> Result<Vec<Machine>, Error> {
        let filters = vec![(format!("tag:{tag}"), vec![value.to_owned()])];
        self.describe_where(filters)
            .await?
            .iter()
            .map(to_machine)
            .collect()
    }

    /// The version of a launch template, also behind `$Latest` and `$Default`.
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
        let data = version.and_then(|version| version.launch_template_data());
        Ok(TemplateFacts {
            version: number
                .ok_or_else(|| Error::Unintelligible {
                    call: DESCRIBE_TEMPLATES,
                    what: format!("{} has no version {}", template.id, template.version),
                })?
                .to_string(),
            // `resolve:ssm:…` names a parameter: which image that is, only EC2's launch finds out.
            image: data
                .and_then(|data| data.image_id())
                .filter(|image| image.starts_with("ami-"))
                .map(str::to_owned),
        })
    }

    /// The name of an image; none if EC2 does not know it.
    pub async fn fetch_image_name(&self, image: &str) -> Result<Option<String>, Error> {
        let belongs = Filter::builder().name("image-id").values(image).build();
        let answer = self
            .client
            .describe_images()
            .filters(belongs)
            .send()
            .await
            .map_err(|error| Error::from_sdk(DESCRIBE_IMAGES, error))?;
        Ok(answer
            .images()
            .first()
            .and_then(|image| image.name())
            .map(str::to_owned))
    }

    async fn fetch_where(&self, filters: Vec<(String, Vec<String>)>) -> Result<Vec<Instance>, Error> {
        self.describe_where(filters)
            .await?
            .iter()
            .map(to_instance)
            .collect()
    }

    async fn describe_where(
        &self,
        filters: Vec<(String, Vec<String>)>,
    ) -> Result<Vec<aws_sdk_ec2::types::Instance>, Error> {
        let filters = filters
            .into_iter()
            .map(|(name, values)| Filter::builder().name(name).set_values(Some(values)).build());
        let mut pages = self
            .client
            .describe_instances()
            .set_filters(Some(filters.collect()))
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

    /// Sets tags; the instance's other tags stay.
    pub async fn tag(&self, id: &InstanceId, tags: &[(&str, String)]) -> Result<(), Error> {
        self.tag_all(std::slice::from_ref(id), tags).await
    }

    /// The same for several instances.
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
            .map(|_| ())
            .map_err(|error| Error::from_sdk(CREATE_TAGS, error))
    }

    /// Removes tags, whatever their values; missing ones, and a missing instance, are no error.
    pub async fn untag(&self, id: &InstanceId, keys: &[&str]) -> Result<(), Error> {
        match self.untag_all(std::slice::from_ref(id), keys).await {
            Err(error) if !is_unknown_instance(&error) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The same for several instances, all of which EC2 has to know: it refuses the call as a whole otherwise.
    pub async fn untag_all(&self, ids: &[InstanceId], keys: &[&str]) -> Result<(), Error> {
        let tags = keys.iter().map(|key| Tag::builder().key(*key).build()).collect();
        self.client
            .delete_tags()
            .set_resources(Some(ids.iter().map(ToString::to_string).collect()))
            .set_tags(Some(tags))
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(DELETE_TAGS, error))
    }

    /// Begins to stop the instance; one that is stopping or stopped stays so.
    pub async fn stop(&self, id: &InstanceId) -> Result<(), Error> {
        self.client
            .stop_instances()
            .instance_ids(id.as_str())
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk(STOP_INSTANCES, error))
    }
}

/// EC2's two ways to say that it knows no such instance.
fn is_unknown_instance(error: &Error) -> bool {
    matches!(
        error.code(),
        Some("InvalidInstanceID.NotFound" | "InvalidInstanceID.Malformed")
    )
}

fn to_instance(instance: &aws_sdk_ec2::types::Instance) -> Result<Instance, Error> {
    let missing = |what: &str| Error::Unintelligible {
        call: DESCRIBE_INSTANCES,
        what: what.to_owned(),
    };
    let id = instance.instance_id().and_then(|id| id.parse().ok());
    let state = instance.state().and_then(|state| state.name());
    Ok(Instance {
        id: id.ok_or_else(|| missing("an instance without a valid InstanceId"))?,
        state: state
            .ok_or_else(|| missing("an instance without State.Name"))?
            .as_str()
            .to_owned(),
        // EC2 empties the name, rather than leaving it out, once the instance is gone.
        private_dns_name: instance
            .private_dns_name()
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
        tags: instance
            .tags()
            .iter()
            .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned())))
            .collect(),
        is_spot: instance
            .spot_instance_request_id()
            .is_some_and(|request| !request.is_empty()),
    })
}

fn to_machine(instance: &aws_sdk_ec2::types::Instance) -> Result<Machine, Error> {
    let missing = |what: &str| Error::Unintelligible {
        call: DESCRIBE_INSTANCES,
        what: format!("an instance without {what}"),
    };
    let launched_at = instance
        .launch_time()
        .and_then(|time| Timestamp::from_second(time.secs()).ok());
    // Without it every instance would run another image than its template names.
    let image = instance.image_id().filter(|image| !image.is_empty());
    Ok(Machine {
        instance: to_instance(instance)?,
        launched_at: launched_at.ok_or_else(|| missing("LaunchTime"))?,
        image: image.ok_or_else(|| missing("ImageId"))?.to_owned(),
    })
}
