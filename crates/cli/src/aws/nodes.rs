//! Nodes, as `select-nodes` tells of them.

use recycle::base::ids::InstanceId;
use recycle::notify::status::{NodeStatus, Status};
use serde_json::json;

use crate::aws::installation::Installation;
use crate::base::error::{Error, Result, refuse};

/// Fetches every node that carries a mark of recycle-eks, or one node whether it does or not.
pub(crate) async fn fetch_status(installation: &Installation, node: Option<&str>) -> Result<Status> {
    let question = json!({"select": "status", "cluster_name": installation.cluster, "node": node});
    installation.functions.ask("select-nodes", &question).await
}

/// How many looks of a watch share one answer of `select-nodes`, which reads the whole cluster: it is asked every twelve seconds.
const LOOKS: u32 = 6;

/// What `select-nodes` answers of the whole cluster while a command watches.
#[derive(Debug)]
pub(crate) struct Fleet<'a> {
    installation: &'a Installation,
    looks: u32,
    told: Status,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(installation: &'a Installation) -> Self {
        Self {
            installation,
            looks: 0,
            told: Status::default(),
        }
    }

    /// What it has told last.
    pub(crate) async fn look(&mut self) -> Result<&Status> {
        if self.looks.is_multiple_of(LOOKS) {
            self.told = fetch_status(self.installation, None).await?;
        }
        self.looks += 1;
        Ok(&self.told)
    }
}

/// One node by its instance id or its name.
pub(crate) async fn find_node(installation: &Installation, name: &str) -> Result<NodeStatus> {
    let status = fetch_status(installation, Some(name)).await?;
    if let Some(node) = status.nodes.into_iter().next() {
        return Ok(node);
    }
    let cluster = &installation.cluster;
    if let Some(why) = status.cluster_is_away {
        return Err(Error::Unreachable(format!(
            "{name:?} is not known, and the cluster {cluster} cannot be asked: {why}"
        )));
    }
    let unreadable = status.unreadable_nodes.map(|why| format!("; {why}"));
    refuse!(
        "there is no instance and no node {name:?} in cluster {cluster}: write an instance id or a Node's name{}",
        unreadable.unwrap_or_default()
    )
}

/// An instance id is taken as it is: whether there is one, the execution's pre-flight says. A name is looked up.
pub(crate) async fn find_instance(installation: &Installation, name: &str) -> Result<InstanceId> {
    match name.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(find_node(installation, name).await?.instance_id),
    }
}
