//! Reads and changes Kubernetes objects: a Node, the Lease with its claim and records, its pods, and its Events.
//!
//! This crate only fetches and writes. The decisions are in `recycle`. Every write to a Node or a Lease carries the resourceVersion that was read, so
//! that no change of another client is lost. No call is repeated, except where the documentation of a function says so.

mod access;
mod budgets;
mod call;
mod devices;
mod error;
mod events;
mod find;
mod keep;
mod leases;
mod marks;
mod node_change;
mod nodes;
mod notices;
mod object;
mod permissions;
mod pods;
mod progress;
mod request;
mod retire;
mod shallow;
mod survey;
mod volumes;

pub use access::{open, open_beside};
pub use budgets::list_budgets;
pub use devices::{add_drivers, list_drivers};
pub use error::{Error, StepError};
pub use events::{Occasion, record_event};
pub use find::{Wanted, find_node, find_node_and_lease, find_nodes};
pub use keep::{keep_new_member, keep_old_node, let_go, let_go_of_all};
pub use leases::{
    change_without_node, end_lease, find_size_without_place, forget_without_node, get_lease, list_group,
    list_leases,
};
pub use marks::{mark_nodes, unmark_nodes};
pub use node_change::NodeChange;
use nodes::list_labelled;
pub use nodes::{
    amend_node, change_node, check_claim, check_phase, get_node, is_another_ready, list_all_replacements,
    list_claimed_nodes, list_nodes, list_replacements, read_release,
};
pub use notices::{notify_pods, remove_notices};
pub use permissions::{missing_permissions, server_version};
pub use pods::{Eviction, delete_pod, evict_pod, list_pending_pods, list_pods};
pub use progress::{read_progress, write_progress};
pub use request::answer_request;
pub use retire::{retire_detached, retire_stopped};
pub use survey::{DrainFacts, NodeSurvey, tainted_since};
pub use volumes::hold_back;
