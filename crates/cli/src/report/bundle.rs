//! `report --bundle`: writes a file to send with an issue. It has the histories that a report reads, the log lines of the installation, the
//! records of the instances, and the findings of `doctor`. A part that cannot be read says why.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use recycle::base::ids::InstanceId;
use recycle::report::event::{Event, Execution};
use recycle::report::reader::find_started;
use serde_json::{Value, json};

use crate::aws::installation::Installation;
use crate::aws::step_functions::StepFunctions;
use crate::base::clock;
use crate::base::error::{Error, Result, misuse};
use crate::base::exit::Exit;
use crate::base::private_file;
use crate::doctor::diagnose;
use crate::report::logs::{list_log_groups, read_lines};
use crate::report::redact::redact;
use crate::views::output::Output;

/// The time before and after an execution whose log lines are in its bundle: those of its start, and those of the sweep after it.
const MARGIN: SignedDuration = SignedDuration::from_mins(10);
/// Bytes of histories from which no other history is added.
const MOST_BYTES: usize = 50_000_000;

/// Refuses a file that exists or has no folder, before anything is read.
pub(super) fn check_new(file: &Path) -> Result<()> {
    if file.exists() {
        misuse!("--bundle must be a new file, but {} exists", file.display());
    }
    check_folder("--bundle", file)
}

/// Refuses a file without a folder, before anything is read.
pub(super) fn check_folder(flag: &str, file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(file);
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    misuse!(
        "{flag} must be a file in a folder that exists, but {} is none",
        folder.display()
    );
}

pub(super) async fn write_bundle(
    installation: &Installation,
    states: &StepFunctions,
    output: &Output,
    execution: Execution,
    file: &Path,
) -> Result<Exit> {
    let now = clock::now();
    let from = shift(execution.started_at, -MARGIN);
    let to = shift(execution.ended_at.unwrap_or(now), MARGIN);
    let arn = execution.arn.clone();
    let mut parts = Parts::default();
    parts.read_histories(states, execution).await?;
    let mut logs = Vec::new();
    for group in list_log_groups(&installation.name) {
        let lines = read_lines(&installation.aws, &group, from, to).await;
        let mut lines = parts.keep(&format!("the log lines of {group}"), lines);
        if let Some(cut) = lines["cut"].as_str() {
            parts.missing.push(format!("older lines of {group}: {cut}"));
        }
        lines["log_group"] = group.into();
        logs.push(lines);
    }
    let question =
        json!({"ask": "records", "cluster_name": installation.cluster, "instances": parts.instances});
    let records = installation.ask(&question).await;
    let records = parts.keep("the records", records);
    let bundle = json!({
        "about": "A support bundle of recycle-eks. Account ids are replaced by an example, and secrets are removed.",
        "version": env!("CARGO_PKG_VERSION"),
        "written_at": now,
        "execution_arn": arn,
        "cluster": installation.cluster,
        "installation": installation.name,
        "histories": parts.histories,
        "logs": logs,
        "records": records,
        "doctor": diagnose(installation).await,
    });
    write_new(file, &redact(bundle, installation.account()))?;
    output.say(format!(
        "wrote {}: the support bundle of {arn}. It names nodes, pods and groups, so read it before you send it",
        file.display()
    ))?;
    for missing in &parts.missing {
        output.say(format!("missing in it: {missing}"))?;
    }
    output.document(
        &json!({"bundle": file.display().to_string(), "execution_arn": arn, "missing": parts.missing}),
    )?;
    Ok(Exit::Done)
}

fn shift(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(time)
}

fn write_new(file: &Path, text: &str) -> Result<()> {
    private_file::write_new(file, text).map_err(|error| {
        Error::Usage(format!(
            "--bundle must be a new file, but {} cannot be written: {error}",
            file.display()
        ))
    })
}

/// The parts of a bundle that have been read so far.
#[derive(Debug, Default)]
struct Parts {
    histories: Vec<Value>,
    bytes: usize,
    /// The instances of the executions.
    instances: BTreeSet<InstanceId>,
    /// The parts that are missing, with the reasons.
    missing: Vec<String>,
}

impl Parts {
    /// Reads the history of the execution, and those of the executions that it has started. Only the first one must be readable.
    async fn read_histories(&mut self, states: &StepFunctions, execution: Execution) -> Result<()> {
        let events = states.read_history(&execution.arn).await?;
        let (started, map_runs) = self.add(&execution, &events);
        let mut started = BTreeSet::from_iter(started);
        for map_run in map_runs {
            let children = states.list_children(&map_run).await;
            let children = children.unwrap_or_else(|error| {
                self.missing.push(format!("the groups of {map_run}: {error}"));
                Vec::new()
            });
            for child in children {
                started.extend(self.read_history(states, &child.arn).await);
            }
        }
        for arn in &started {
            self.read_history(states, arn).await;
        }
        Ok(())
    }

    /// Reads one more history, if there is room. Returns the ARNs of the executions that it has started.
    async fn read_history(&mut self, states: &StepFunctions, arn: &str) -> Vec<String> {
        if self.bytes >= MOST_BYTES {
            let why = format!("the histories before it have {MOST_BYTES} bytes");
            self.missing.push(format!("the history of {arn}: {why}"));
            self.histories.push(json!({"execution_arn": arn, "missing": why}));
            return Vec::new();
        }
        let read = async {
            // An execution that could not be started does not exist.
            let Some(execution) = states.find(arn).await? else {
                return Ok(None);
            };
            Ok::<_, Error>(Some((execution, states.read_history(arn).await?)))
        };
        match read.await {
            Ok(Some((execution, events))) => self.add(&execution, &events).0,
            Ok(None) => Vec::new(),
            Err(error) => {
                let mut missing = self.keep(&format!("the history of {arn}"), Err(error));
                missing["execution_arn"] = arn.into();
                self.histories.push(missing);
                Vec::new()
            }
        }
    }

    /// Adds a history. Returns the executions and the Distributed Maps that it has started.
    fn add(&mut self, execution: &Execution, events: &[Event]) -> (Vec<String>, Vec<String>) {
        let instance = execution.input["instance_id"].as_str();
        self.instances
            .extend(instance.and_then(|id| id.parse::<InstanceId>().ok()));
        let history = json!({"execution": execution, "events": events});
        self.bytes += history.to_string().len();
        self.histories.push(history);
        find_started(events)
    }

    /// Returns a part, or the reason why it is missing.
    fn keep(&mut self, what: &str, part: Result<Value>) -> Value {
        part.unwrap_or_else(|error| {
            self.missing.push(format!("{what}: {error}"));
            json!({"missing": error.to_string()})
        })
    }
}

#[cfg(test)]
mod tests {
    use recycle::report::event::EventKind;

    use super::*;

    fn execution(input: Value) -> Execution {
        Execution {
            arn: "arn:aws:states:eu-west-1:123456789012:execution:r-recycle-node:one".to_owned(),
            input,
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: None,
            end: None,
        }
    }

    #[test]
    fn a_history_is_kept_in_full_with_its_instance_and_what_it_started() {
        let machine = "arn:aws:states:eu-west-1:123456789012:stateMachine:r-recycle-node:live";
        let event = |what| Event {
            id: 1,
            previous: 0,
            at: Timestamp::UNIX_EPOCH,
            what,
        };
        let events = [
            event(EventKind::Scheduled(
                json!({"StateMachineArn": machine, "Name": "two"}),
            )),
            event(EventKind::Entered("ClaimNode".to_owned())),
        ];
        let mut parts = Parts::default();
        let (started, _) = parts.add(&execution(json!({"instance_id": "i-0123456789abcdef0"})), &events);
        assert_eq!(
            started,
            ["arn:aws:states:eu-west-1:123456789012:execution:r-recycle-node:two"]
        );
        assert_eq!(
            parts.instances,
            BTreeSet::from(["i-0123456789abcdef0".parse().unwrap()])
        );
        assert_eq!(
            parts.histories[0]["events"][1]["what"],
            json!({"entered": "ClaimNode"})
        );
        assert!(parts.bytes > 0 && parts.missing.is_empty());
    }

    #[tokio::test]
    async fn a_history_without_room_is_named_and_no_call_is_made() {
        let aws = scripted_aws::ScriptedAws::new();
        let mut parts = Parts {
            bytes: MOST_BYTES,
            ..Parts::default()
        };
        let started = parts
            .read_history(&StepFunctions::new(&aws.config()), "arn:one")
            .await;
        assert!(started.is_empty() && aws.calls().is_empty());
        assert!(
            parts.histories[0]["missing"]
                .as_str()
                .unwrap()
                .contains("50000000 bytes")
        );
        assert!(
            parts.missing[0].starts_with("the history of arn:one: "),
            "{:?}",
            parts.missing
        );
    }

    #[tokio::test]
    async fn a_history_that_is_refused_says_why() {
        let aws = scripted_aws::ScriptedAws::new().refuses(
            "DescribeExecution",
            400,
            "AccessDeniedException",
            "not you",
        );
        let mut parts = Parts::default();
        parts
            .read_history(&StepFunctions::new(&aws.config()), "arn:one")
            .await;
        let missing = &parts.histories[0];
        assert_eq!(missing["execution_arn"], "arn:one");
        assert!(
            missing["missing"].as_str().unwrap().contains("not you"),
            "{missing}"
        );
    }

    #[test]
    fn a_file_that_exists_is_never_overwritten() {
        let file = std::env::temp_dir().join(format!("{}.json", clock::unique_name()));
        check_new(&file).unwrap();
        write_new(&file, "one").unwrap();
        for refusal in [check_new(&file), write_new(&file, "two")] {
            let refusal = refusal.unwrap_err().to_string();
            assert!(
                refusal.starts_with("--bundle must be a new file, but "),
                "{refusal}"
            );
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
        std::fs::remove_file(&file).unwrap();
    }
}
