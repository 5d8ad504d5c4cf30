//! Reads objects of the API server: the metadata that this crate needs, and lists that are parsed one object at a time.
//!
//! A tenant may write most fields of a pod, and a kubelet those of its Node. An object that cannot be read does not affect the other
//! objects of its list. The reader of each kind decides how to treat an unreadable object.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};

use futures::{AsyncRead, AsyncReadExt as _};
use jiff::Timestamp;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{Request, Resource, request};
use recycle::base::names::{FIELD_MANAGER, is_read_annotation};
use recycle::base::strict::{Strict, Unreadable};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::call::CALL_TIMEOUT;
use crate::shallow::{LeftOut, Shallow};

/// The parts of `metadata` that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
    pub(crate) creation_timestamp: Option<Timestamp>,
    pub(crate) deletion_timestamp: Option<Timestamp>,
    pub(crate) owner_references: Vec<OwnerReference>,
    pub(crate) managed_fields: Vec<ManagedFields>,
}

/// Keeps the annotations that recycle-eks reads.
pub(crate) fn keep_read(annotations: Option<BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut kept = annotations.unwrap_or_default();
    kept.retain(|key, _| is_read_annotation(key));
    kept
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct OwnerReference {
    pub(crate) api_version: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) controller: Option<bool>,
}

/// The fields that a client wrote. Any client may write such entries, even in the name of another client.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ManagedFields {
    pub(crate) manager: Option<String>,
    #[serde(deserialize_with = "read_time")]
    pub(crate) time: Option<Timestamp>,
    pub(crate) fields_v1: Value,
}

/// Reads the time of a `managedFields` entry or of a condition. The API server stores any time there.
/// A time that cannot be represented, such as the last day of the year 9999, counts as [`Timestamp::MAX`].
pub(crate) fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(|text| text.parse().unwrap_or(Timestamp::MAX)))
}

/// The reason why an object cannot be read: the field and its defect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Gap(pub(crate) String);

impl From<Unreadable> for Gap {
    fn from(error: Unreadable) -> Self {
        Self(error.to_string())
    }
}

/// Returns the value of a field that every object of an API server has.
/// A missing value is an error, because the answer is incomplete and nothing may be written on a guess.
pub(crate) fn given(field: &str, value: Option<String>) -> Result<String, Gap> {
    value
        .filter(|value| !value.is_empty())
        .ok_or_else(|| Gap(format!("{field} is missing")))
}

/// Returns a text from an object that cannot be read as a whole. Empty if there is no such text.
pub(crate) fn text_at(object: &Value, pointer: &str) -> String {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// A value that is read from each object of a list. Reading never fails: the value itself says if the object cannot be read.
pub(crate) trait Item: Send + 'static {
    /// Large fields that [`Self::read`] does not need. They are not even kept until it is called.
    const LEFT_OUT: &'static [LeftOut] = &[];

    fn read(object: &Value) -> Self;
}

pub(crate) struct Objects<'a> {
    client: &'a kube::Client,
    request: Request,
}

impl<'a> Objects<'a> {
    /// Selects the objects of kind `K` in one namespace. Without a namespace, it selects those of the whole cluster.
    pub(crate) fn of<K>(client: &'a kube::Client, namespace: Option<&str>) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        let request = Request::new(K::url_path(&(), namespace));
        Self { client, request }
    }

    pub(crate) async fn get(&self, name: &str) -> kube::Result<Value> {
        self.send(self.request.get(name, &GetParams::default())).await
    }

    pub(crate) async fn create(&self, object: &Value) -> kube::Result<Value> {
        let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        self.send(self.request.create(&own_post(), body)).await
    }

    /// Deletes an object that still is as `preconditions` say, with this grace period in seconds instead of its own.
    pub(crate) async fn delete(
        &self,
        name: &str,
        preconditions: Preconditions,
        grace: Option<u32>,
    ) -> kube::Result<Value> {
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        self.send(self.request.delete(name, &params)).await
    }

    /// Merges `change` into an object, or into its subresource, such as `status`.
    pub(crate) async fn patch(
        &self,
        name: &str,
        subresource: Option<&str>,
        change: Value,
    ) -> kube::Result<Value> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let change = Patch::Merge(change);
        self.send(match subresource {
            Some(part) => self.request.patch_subresource(part, name, &params, &change),
            None => self.request.patch(name, &params, &change),
        })
        .await
    }

    async fn send(&self, request: Result<http::Request<Vec<u8>>, request::Error>) -> kube::Result<Value> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        read_object(&self.client.request_text(request).await?)
    }

    /// Fetches one page. It is parsed while it arrives, because a page of large objects would not fit into a function's memory.
    pub(crate) async fn list<T: Item>(&self, params: &ListParams) -> kube::Result<Page<T>> {
        let request = self.request.list(params).map_err(kube::Error::BuildRequest)?;
        let answer = self.client.request_stream(request).await?;
        let answer = Arriving {
            runtime: Handle::current(),
            answer: Box::pin(answer),
        };
        let page = spawn_blocking(|| read_page(BufReader::with_capacity(CHUNK, answer)));
        page.await
            .map_err(|error| kube::Error::ReadEvents(io::Error::other(error)))?
    }
}

/// The parameters of a request that creates something in the name of recycle-eks.
pub(crate) fn own_post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// The number of bytes that are taken at once from an answer that arrives.
const CHUNK: usize = 64 * 1024;

/// An answer that arrives, for a parser in a thread of its own. Each read has a time limit, because the thread goes on if its call is
/// given up.
struct Arriving<A> {
    runtime: Handle,
    answer: A,
}

impl<A: AsyncRead + Unpin> io::Read for Arriving<A> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.answer.read(buffer);
        let within = self.runtime.block_on(async { timeout(CALL_TIMEOUT, read).await });
        within.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

fn read_page<T: Item>(mut answer: impl BufRead) -> kube::Result<Page<T>> {
    while let Some(first) = answer.fill_buf().map_err(kube::Error::ReadEvents)?.first() {
        match first {
            b'{' => return serde_json::from_reader(answer).map_err(sort),
            first if first.is_ascii_whitespace() => answer.consume(1),
            _ => break,
        }
    }
    Err(no_object())
}

/// Distinguishes an answer that did not arrive from an answer that cannot be parsed.
fn sort(error: serde_json::Error) -> kube::Error {
    if error.is_io() {
        kube::Error::ReadEvents(error.into())
    } else {
        kube::Error::SerdeError(error)
    }
}

fn no_object() -> kube::Error {
    kube::Error::SerdeError(serde::de::Error::custom("the answer is not a JSON object"))
}

/// Parses one object. `Client::request` does the same, but logs the whole answer if it cannot be parsed.
fn read_object(text: &str) -> kube::Result<Value> {
    if !text.trim_start().starts_with('{') {
        return Err(no_object());
    }
    let read = serde_json::from_str(text).map_err(kube::Error::SerdeError);
    read.map(|Shallow(object)| object)
}

#[derive(Deserialize)]
#[serde(bound = "T: Item")]
pub(crate) struct Page<T> {
    #[serde(default)]
    metadata: Strict<PageMetadata>,
    #[serde(deserialize_with = "read_items")]
    items: Vec<Read<T>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMetadata {
    r#continue: Option<String>,
}

/// Reads the items of a list. An empty list may be null, but a list without `items` is an error.
fn read_items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// An object that is read before the next one is parsed.
struct Read<T>(T);

impl<'de, T: Item> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Shallow(object) = Shallow::without(T::LEFT_OUT, deserializer)?;
        Ok(Self(T::read(&object)))
    }
}

impl<T> Page<T> {
    /// Returns the items, and the token of the next page if there is one.
    /// The last page of a list with a field selector may be empty.
    pub(crate) fn into_items(self) -> (impl Iterator<Item = T>, Option<String>) {
        let items = self.items.into_iter().map(|Read(item)| item);
        let next = self.metadata.0.r#continue.filter(|token| !token.is_empty());
        (items, next)
    }
}

#[cfg(test)]
mod tests {
    use recycle::cluster::pod::PodFacts;

    use super::*;

    struct Broken;

    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }

    fn read(answer: impl io::Read) -> Result<usize, kube::Error> {
        let page = read_page::<PodFacts>(BufReader::new(answer))?;
        Ok(page.into_items().0.count())
    }

    #[test]
    fn an_answer_that_breaks_off_is_told_from_one_that_is_malformed() {
        assert_eq!(read(&b" \n{\"items\": [{}, {}]}"[..]).unwrap(), 2);
        for begun in [
            "",
            " ",
            "{\"items\": [",
            "{\"items\": [{\"metadata\": {\"name\": \"a",
        ] {
            let failure = read(io::Read::chain(begun.as_bytes(), Broken)).unwrap_err();
            assert!(
                matches!(failure, kube::Error::ReadEvents(_)),
                "{begun:?}: {failure}"
            );
        }
        for malformed in [
            "",
            "[null, []]",
            "<html>",
            "{\"items\": [",
            "{\"items\": []} {}",
            "{}",
        ] {
            let failure = read(malformed.as_bytes()).unwrap_err();
            assert!(
                matches!(failure, kube::Error::SerdeError(_)),
                "{malformed:?}: {failure}"
            );
        }
    }
}
