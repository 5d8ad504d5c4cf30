//! Prints the names that the ASL and Terraform also use: `tests/contract/contract.json`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use recycle::base::failure::{Failure, Outcome};
use recycle::base::names;
use recycle::base::permissions::PERMISSIONS;
use recycle::contract::verdicts::{
    CheckVerdict, ClaimVerdict, DisposeVerdict, EvictVerdict, RestoreVerdict, SelectVerdict, StandbyVerdict,
    StartVerdict, TaintVerdict,
};
use recycle::input::fields;
use recycle::notify::notification;
use recycle::records::schema::SCHEMA;
use recycle::rotation::admission::Stop;
use recycle::rotation::terms;
use serde_json::json;

fn main() {
    let contract = json!({
        "schema": SCHEMA,
        "verdicts": {
            "ClaimNode": ClaimVerdict::ALL,
            "StandbyNode": StandbyVerdict::ALL,
            "TaintNode": TaintVerdict::ALL,
            "CheckPods": CheckVerdict::ALL,
            "EvictPods": EvictVerdict::ALL,
            "DetachTerminate": DisposeVerdict::ALL,
            "RestoreNode": RestoreVerdict::ALL,
            "SelectNodes": SelectVerdict::ALL,
            "StartRotation": StartVerdict::ALL,
        },
        "outcomes": Outcome::ALL,
        "failures": Failure::ALL,
        "notification": notification::FIELDS.map(|(name, ..)| name),
        "attributes": notification::ATTRIBUTES,
        "fields": fields::FIELDS.iter().map(|field| field.name).collect::<Vec<_>>(),
        "settings": fields::FIELDS.iter().filter(|field| field.setting).map(|field| field.name).collect::<Vec<_>>(),
        "terms": terms::FIELDS.into_iter().chain(["dry_run"]).collect::<Vec<_>>(),
        "stops": [Stop::ReplacementStillOutdated, Stop::KubeletTooNew, Stop::NodeUnreadable, Stop::PodsPending],
        "lifecycle_hook": names::LIFECYCLE_HOOK,
        "permissions": PERMISSIONS.iter().map(|permission| json!({
            "group": permission.group.name(),
            "namespace": permission.namespace,
            "api_group": permission.api_group,
            "resource": permission.resource,
            "verb": permission.verb,
            "functions": permission.functions,
        })).collect::<Vec<_>>(),
        "tags": [
            names::CLAIM_TAG,
            names::GROUP_TAG,
            names::STANDBY_TAG,
            names::RESTORE_LOG_TAG,
            names::PROTECTED_FOR_TAG,
            names::GAVE_UP_TAG,
            names::STOPPED_TAG,
            names::DETACHED_TAG,
        ],
    });
    println!("{contract:#}");
}
