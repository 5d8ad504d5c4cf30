//! The claim: which execution works on a node, in which phase, and how urgently. A node has one claim.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::base::failure::{Failure, NamedFailure};
use crate::base::ids::{ExecutionArn, Fence, GroupName};
use crate::base::strict::read_value;
use crate::base::text::cut_given;
use crate::input::urgency::Urgency;
use crate::records::owner::Owner;
use crate::records::schema::SCHEMA;

/// The phase that the work on a node has reached. In later phases more was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Claimed; nothing was touched.
    Claimed,
    /// The node may be admitted ([`crate::claim::queue`]); nothing was touched.
    Admitted,
    /// EnterStandby was or is about to be called.
    Standby,
    /// The node is tainted and cordoned, pods are leaving.
    Draining,
    /// All pods that could leave have left. The node only waits for pods that end by themselves.
    Waiting,
    /// The instance is being taken out of balancers, stopped or terminated.
    Disposing,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The claim of the execution that works on this node. Stored in the Lease of the instance as JSON, with copies on the Node and, as a tag, on the instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// The execution that holds the claim, and how often it had been redriven.
    pub fence: Fence,
    pub group: GroupName,
    pub phase: Phase,
    pub urgency: Urgency,
    /// The time at which this owner took the claim.
    pub claimed_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredClaim {
    Known(Claim),
    /// A claim of a newer schema, whose owner this version cannot read.
    Newer(u32),
    /// A value that is not a claim, because it was edited.
    Unreadable(String),
}

impl StoredClaim {
    /// Returns the claim, if this version can read it.
    pub fn known(self) -> Option<Claim> {
        match self {
            Self::Known(claim) => Some(claim),
            Self::Newer(_) | Self::Unreadable(_) => None,
        }
    }

    /// Reads the claim in `document`. If there is none, keeps as much of its `text` as a sentence has room for.
    fn read(document: &Value, text: &str) -> Self {
        let schema = document["schema"].as_u64();
        match schema.and_then(|schema| u32::try_from(schema).ok()) {
            Some(schema) if schema > SCHEMA => Self::Newer(schema),
            Some(_) | None => {
                read_value(document).map_or_else(|_| Self::Unreadable(cut_given(text)), Self::Known)
            }
        }
    }
}

/// The decision about a claim that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimDecision {
    /// No execution holds the claim: take it.
    Take,
    /// This execution already holds the claim: go on.
    AlreadyHeld(Claim),
    /// The owner of the claim no longer runs: take the claim over and go on from the phase that it reached.
    Resume(Claim),
    /// The owner of the claim runs, but is less urgent: take the claim over and go on from the phase that it reached.
    /// The owner ends by itself when it finds that.
    TakeOver(Claim),
    /// Ask Step Functions whether the owner of the claim still runs.
    AskOwner(ExecutionArn),
    /// Another execution works on this node; the text says which.
    Duplicate(String),
    /// The claim was not written by an execution of this installation and version; the text says what it is.
    /// Only a more urgent execution takes such a claim over, and only if it can read the claim.
    Foreign(String),
    /// The annotation or tag does not hold a claim; an operator has to remove it.
    Unreadable(String),
}

impl Claim {
    /// Creates a claim whose execution has touched nothing yet.
    pub fn new(fence: Fence, group: GroupName, urgency: Urgency, claimed_at: Timestamp) -> Self {
        Self {
            schema: SCHEMA,
            fence,
            group,
            phase: Phase::Claimed,
            urgency,
            claimed_at,
        }
    }

    /// Checks whether the claim's owner may be an execution of the installation that the execution `me` belongs to.
    pub fn is_of_installation(&self, me: &ExecutionArn) -> bool {
        self.fence.execution.may_claim_beside(me)
    }

    /// Returns the value of the tag `recycle-eks:claim`: `schema urgency phase claimed-at fence`. The group has its own tag.
    /// The value has at most 256 characters, as EC2 demands. The module keeps the state machine's name short enough for that.
    pub fn to_tag(&self) -> String {
        format!(
            "{} {} {} {} {}",
            self.schema, self.urgency, self.phase, self.claimed_at, self.fence
        )
    }

    /// Reads a claim from its tag, given the name of the group, which has its own tag.
    pub fn from_tag(value: &str, group: &GroupName) -> StoredClaim {
        let parts: Vec<&str> = value.split(' ').collect();
        let schema = parts[0].parse::<u32>().ok();
        let document = match parts[..] {
            [_, urgency, phase, claimed_at, fence] => json!({
                "schema": schema,
                "urgency": urgency,
                "phase": phase,
                "claimed_at": claimed_at,
                "fence": fence,
                "group": group,
            }),
            _ => json!({"schema": schema}),
        };
        StoredClaim::read(&document, value)
    }

    pub fn from_annotation(value: &str) -> StoredClaim {
        StoredClaim::read(&serde_json::from_str(value).unwrap_or_default(), value)
    }
}

/// Seconds around the time of a claim in which an unknown owner counts as running. A claim far in the future was written by hand.
///
/// Step Functions says of DescribeExecution that it is eventually consistent, without a bound. An execution claims its node in its first
/// step, so it is at most minutes older than its claim.
const UNKNOWN_YET: i64 = 600;

/// Checks whether an execution of this time may still be unknown to Step Functions, although it runs.
pub fn has_just_begun(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at).as_secs().abs() < UNKNOWN_YET
}

/// Decides what an execution does about the claim that it found. `owner` is the answer of Step Functions, if it was asked.
pub fn decide_claim(
    found: Option<&StoredClaim>,
    me: &Fence,
    urgency: Urgency,
    owner: Option<&Owner>,
    now: Timestamp,
) -> ClaimDecision {
    let claim = match found {
        None => return ClaimDecision::Take,
        Some(StoredClaim::Newer(schema)) => {
            return ClaimDecision::Foreign(format!(
                "of schema {schema}, and this version reads up to {SCHEMA}"
            ));
        }
        Some(StoredClaim::Unreadable(text)) => return ClaimDecision::Unreadable(text.clone()),
        Some(StoredClaim::Known(claim)) => claim,
    };
    if claim.fence == *me {
        return ClaimDecision::AlreadyHeld(claim.clone());
    }
    // Both executions would end an instance that is already being disposed of in the same way.
    let is_more_urgent = claim.urgency < urgency && claim.phase < Phase::Disposing;
    if !claim.is_of_installation(&me.execution) {
        // This execution may not ask Step Functions about an execution of another installation.
        return if is_more_urgent {
            ClaimDecision::TakeOver(claim.clone())
        } else {
            ClaimDecision::Foreign(format!("of the execution {}", claim.fence.execution))
        };
    }
    let Some(owner) = owner.filter(|owner| owner.execution == claim.fence.execution) else {
        return ClaimDecision::AskOwner(claim.fence.execution.clone());
    };
    let is_unknown_yet = is_forgotten(&owner.status) && has_just_begun(claim.claimed_at, now);
    if has_ended(&owner.status) && !is_unknown_yet {
        return ClaimDecision::Resume(claim.clone());
    }
    if is_more_urgent {
        return ClaimDecision::TakeOver(claim.clone());
    }
    let status = if is_unknown_yet {
        "not known to Step Functions yet"
    } else {
        &owner.status
    };
    ClaimDecision::Duplicate(format!(
        "{} ({status}) has worked on this node since {}",
        owner.execution, claim.claimed_at
    ))
}

/// The status of an execution that runs (API reference of DescribeExecution).
pub const RUNNING: &str = "RUNNING";

/// Checks whether a status, or the error of the request for it, means that the execution no longer runs.
/// Anything unknown, above all a missing permission, means that it still runs. A claim is never taken over on a guess.
pub fn has_ended(status: &str) -> bool {
    matches!(status, "SUCCEEDED" | "FAILED" | "TIMED_OUT" | "ABORTED") || is_forgotten(status)
}

/// Checks whether a status means that Step Functions does not know the execution: it ended 90 days ago or earlier, or has just begun.
pub fn is_forgotten(status: &str) -> bool {
    status.ends_with("ExecutionDoesNotExist") || status.ends_with("ExecutionDoesNotExistException")
}

/// Checks whether a step may act: the claim, read again, is still that of its execution.
pub fn holds_claim(found: Option<&StoredClaim>, me: &Fence) -> bool {
    matches!(found, Some(StoredClaim::Known(claim)) if claim.fence == *me)
}

/// The error that this execution does not hold the claim, or no longer holds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this execution no longer holds the claim on {subject}: {holder}")]
pub struct ClaimLost {
    subject: String,
    holder: String,
    superseded: bool,
}

impl NamedFailure for ClaimLost {
    fn failure(&self) -> Failure {
        if self.superseded {
            Failure::Superseded
        } else {
            Failure::ClaimLost
        }
    }
}

/// Returns the claim, read again, if this execution still holds it. Every step that acts calls this first.
/// `urgency` is this execution's. If a more urgent execution has taken the claim over, the error says so, and the execution does not fail.
pub fn check_claim(
    found: Option<StoredClaim>,
    me: &Fence,
    urgency: Urgency,
    subject: &str,
) -> Result<Claim, ClaimLost> {
    let mut superseded = false;
    let holder = match found {
        Some(StoredClaim::Known(claim)) if claim.fence == *me => return Ok(claim),
        Some(StoredClaim::Known(claim)) => {
            superseded = claim.fence.execution != me.execution
                && claim.urgency > urgency
                && claim.is_of_installation(&me.execution);
            let why = if superseded { " and is more urgent" } else { "" };
            format!("{} holds the claim{why}", claim.fence)
        }
        None => format!("there is no claim; {}", describe_sweep(urgency)),
        Some(StoredClaim::Newer(schema)) => {
            format!("a newer version of recycle-eks (schema {schema}) holds the claim")
        }
        Some(StoredClaim::Unreadable(text)) => format!("its claim cannot be read: {text}"),
    };
    Err(ClaimLost {
        subject: subject.to_owned(),
        holder,
        superseded,
    })
}

/// Describes what the next sweep does about a node without a claim. It restores no node that its group is terminating.
fn describe_sweep(urgency: Urgency) -> &'static str {
    match urgency {
        Urgency::Hook => {
            "the next sweep starts another execution, as long as the lifecycle hook holds the node"
        }
        Urgency::Planned | Urgency::Spot | Urgency::Interruption => {
            "the next sweep restores the node, or reports what an operator has to do"
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{ARN, at, claim, fence};

    fn owner(execution: &str, status: &str) -> Owner {
        Owner {
            execution: execution.parse().unwrap(),
            status: status.to_owned(),
            ended_at: None,
        }
    }

    fn known(fence: Fence) -> StoredClaim {
        StoredClaim::Known(Claim {
            fence,
            ..claim(Phase::Draining)
        })
    }

    fn other_fence() -> Fence {
        Fence {
            execution: ARN.replace("run-1", "run-2").parse().unwrap(),
            redrive_count: 0,
        }
    }

    fn foreign_fence() -> Fence {
        Fence {
            execution: ARN.replace("recycle-eks-", "other-").parse().unwrap(),
            redrive_count: 0,
        }
    }

    #[test]
    fn only_a_more_urgent_execution_takes_over_the_claim_of_another_installation() {
        let found = |phase| {
            StoredClaim::Known(Claim {
                fence: foreign_fence(),
                ..claim(phase)
            })
        };
        for (phase, urgency, expected) in [
            (Phase::Draining, Urgency::Planned, "foreign"),
            (Phase::Draining, Urgency::Spot, "take over"),
            (Phase::Disposing, Urgency::Spot, "foreign"),
        ] {
            let decision = decide_claim(Some(&found(phase)), &fence(0), urgency, None, at(600));
            assert_eq!(name_of(&decision), expected, "{phase} {urgency}");
        }
    }

    #[test]
    fn an_execution_decides_by_the_claim_that_it_finds() {
        let me = fence(1);
        let dead = owner(other_fence().execution.as_str(), "ABORTED");
        let alive = owner(other_fence().execution.as_str(), "RUNNING");
        let forbidden = owner(other_fence().execution.as_str(), "Sfn.AccessDeniedException");
        let gone = owner(
            other_fence().execution.as_str(),
            "Sfn.ExecutionDoesNotExistException",
        );
        let another = owner(ARN, "SUCCEEDED");
        let cases: [(&str, Option<StoredClaim>, Option<&Owner>, &str); 12] = [
            ("no claim is taken", None, None, "take"),
            (
                "its own claim is kept",
                Some(known(fence(1))),
                None,
                "already held",
            ),
            (
                "the owner is asked for about a claim from before its own redrive",
                Some(known(fence(0))),
                None,
                "ask",
            ),
            (
                "the owner is asked for about the claim of another execution",
                Some(known(other_fence())),
                None,
                "ask",
            ),
            (
                "an answer about a third execution does not count",
                Some(known(other_fence())),
                Some(&another),
                "ask",
            ),
            (
                "the claim of an owner that has ended is resumed",
                Some(known(other_fence())),
                Some(&dead),
                "resume",
            ),
            (
                "the claim of an unknown execution is resumed",
                Some(known(other_fence())),
                Some(&gone),
                "resume",
            ),
            (
                "a running owner keeps it",
                Some(known(other_fence())),
                Some(&alive),
                "duplicate",
            ),
            (
                "without the permission to ask the owner counts as running",
                Some(known(other_fence())),
                Some(&forbidden),
                "duplicate",
            ),
            (
                "a claim of a newer schema is not taken over",
                Some(StoredClaim::Newer(2)),
                Some(&dead),
                "foreign",
            ),
            (
                "another installation's execution is not asked about",
                Some(known(foreign_fence())),
                None,
                "foreign",
            ),
            (
                "a text that is no claim is left to an operator",
                Some(StoredClaim::Unreadable("x".to_owned())),
                None,
                "unreadable",
            ),
        ];
        for (name, found, owner, expected) in cases {
            let decision = decide_claim(found.as_ref(), &me, Urgency::Planned, owner, at(600));
            assert_eq!(name_of(&decision), expected, "{name}");
        }
    }

    fn name_of(decision: &ClaimDecision) -> &'static str {
        match decision {
            ClaimDecision::Take => "take",
            ClaimDecision::AlreadyHeld(_) => "already held",
            ClaimDecision::Resume(_) => "resume",
            ClaimDecision::TakeOver(_) => "take over",
            ClaimDecision::AskOwner(_) => "ask",
            ClaimDecision::Duplicate(_) => "duplicate",
            ClaimDecision::Foreign(_) => "foreign",
            ClaimDecision::Unreadable(_) => "unreadable",
        }
    }

    /// DescribeExecution is eventually consistent (its API reference), so that an execution which has just begun may be unknown.
    #[test]
    fn an_unknown_owner_counts_as_running_for_ten_minutes_after_its_claim() {
        let unknown = owner(
            other_fence().execution.as_str(),
            "Sfn.ExecutionDoesNotExistException",
        );
        for (now, urgency, expected) in [
            (1, Urgency::Planned, "duplicate"),
            (599, Urgency::Planned, "duplicate"),
            (599, Urgency::Spot, "take over"),
            (600, Urgency::Planned, "resume"),
            (-5, Urgency::Planned, "duplicate"),
            (-600, Urgency::Planned, "resume"),
        ] {
            let found = known(other_fence());
            let decision = decide_claim(Some(&found), &fence(0), urgency, Some(&unknown), at(now));
            assert_eq!(name_of(&decision), expected, "{now} {urgency}");
        }
    }

    #[test]
    fn a_more_urgent_execution_takes_over_from_a_running_owner_before_the_disposal() {
        use Urgency::{Hook, Interruption, Planned, Spot};
        let alive = owner(other_fence().execution.as_str(), "RUNNING");
        let dead = owner(other_fence().execution.as_str(), "FAILED");
        let cases = [
            (Planned, Hook, "take over"),
            (Planned, Spot, "take over"),
            (Spot, Hook, "take over"),
            (Spot, Interruption, "take over"),
            (Hook, Interruption, "take over"),
            (Planned, Planned, "duplicate"),
            (Hook, Hook, "duplicate"),
            (Spot, Spot, "duplicate"),
            (Hook, Planned, "duplicate"),
            (Hook, Spot, "duplicate"),
            (Interruption, Hook, "duplicate"),
        ];
        for (found_urgency, own_urgency, expected) in cases {
            for phase in Phase::ALL {
                let found = StoredClaim::Known(Claim {
                    urgency: found_urgency,
                    fence: other_fence(),
                    ..claim(phase)
                });
                let decide =
                    |owner| name_of(&decide_claim(Some(&found), &fence(0), own_urgency, owner, at(1)));
                let expected = if phase == Phase::Disposing {
                    "duplicate"
                } else {
                    expected
                };
                assert_eq!(
                    decide(Some(&alive)),
                    expected,
                    "{found_urgency} {own_urgency} {phase}"
                );
                assert_eq!(
                    decide(Some(&dead)),
                    "resume",
                    "{found_urgency} {own_urgency} {phase}"
                );
                assert_eq!(decide(None), "ask", "{found_urgency} {own_urgency} {phase}");
            }
        }
    }

    #[test]
    fn a_duplicate_names_the_owner_and_the_time_of_its_claim() {
        let found = known(other_fence());
        let alive = owner(other_fence().execution.as_str(), "RUNNING");
        let decision = decide_claim(Some(&found), &fence(0), Urgency::Planned, Some(&alive), at(1));
        let ClaimDecision::Duplicate(text) = decision else {
            panic!()
        };
        assert!(
            text.contains("run-2 (RUNNING)") && text.contains("2027-01-01T00:00:00Z"),
            "{text}"
        );
    }

    #[test]
    fn only_a_final_status_or_an_unknown_execution_means_that_it_ended() {
        for status in [
            "SUCCEEDED",
            "FAILED",
            "TIMED_OUT",
            "ABORTED",
            "Sfn.ExecutionDoesNotExistException",
        ] {
            assert!(has_ended(status), "{status}");
        }
        for status in [
            "RUNNING",
            "PENDING_REDRIVE",
            "",
            "Sfn.AccessDeniedException",
            "States.Timeout",
            "aborted",
        ] {
            assert!(!has_ended(status), "{status}");
        }
    }

    #[test]
    fn a_step_acts_only_under_its_own_fence() {
        assert!(holds_claim(Some(&known(fence(1))), &fence(1)));
        for found in [
            None,
            Some(known(fence(0))),
            Some(known(other_fence())),
            Some(StoredClaim::Newer(2)),
            Some(StoredClaim::Unreadable(String::new())),
        ] {
            assert!(!holds_claim(found.as_ref(), &fence(1)), "{found:?}");
        }
    }

    #[test]
    fn a_claim_of_another_execution_is_lost_and_of_a_more_urgent_one_superseded() {
        let own = known(fence(0));
        let urgent = |fence| {
            Some(StoredClaim::Known(Claim {
                urgency: Urgency::Hook,
                fence,
                ..claim(Phase::Draining)
            }))
        };
        let check = |found, urgency| check_claim(found, &fence(0), urgency, "node a");
        assert_eq!(
            check(Some(own), Urgency::Planned).unwrap(),
            claim(Phase::Draining)
        );
        let cases = [
            (
                None,
                Urgency::Planned,
                Failure::ClaimLost,
                "there is no claim; the next sweep restores the node, or reports what an operator has to do",
            ),
            (
                None,
                Urgency::Hook,
                Failure::ClaimLost,
                "there is no claim; the next sweep starts another execution, as long as the lifecycle hook holds the node",
            ),
            (
                Some(known(other_fence())),
                Urgency::Planned,
                Failure::ClaimLost,
                "run-2#0 holds the claim",
            ),
            (
                Some(known(fence(1))),
                Urgency::Planned,
                Failure::ClaimLost,
                "run-1#1 holds the claim",
            ),
            (
                urgent(other_fence()),
                Urgency::Planned,
                Failure::Superseded,
                "run-2#0 holds the claim and is more urgent",
            ),
            (
                urgent(other_fence()),
                Urgency::Hook,
                Failure::ClaimLost,
                "run-2#0 holds the claim",
            ),
            (
                urgent(fence(1)),
                Urgency::Planned,
                Failure::ClaimLost,
                "run-1#1 holds the claim",
            ),
            (
                Some(StoredClaim::Newer(99)),
                Urgency::Planned,
                Failure::ClaimLost,
                "a newer version of recycle-eks (schema 99) holds the claim",
            ),
            (
                Some(StoredClaim::Unreadable("mine!".to_owned())),
                Urgency::Planned,
                Failure::ClaimLost,
                "its claim cannot be read: mine!",
            ),
        ];
        for (found, urgency, failure, holder) in cases {
            let lost = check(found, urgency).unwrap_err();
            assert_eq!(lost.failure(), failure, "{lost}");
            let text = lost.to_string();
            assert!(
                text.starts_with("this execution no longer holds the claim on node a: "),
                "{text}"
            );
            assert!(text.ends_with(holder), "{text}");
        }
    }

    #[test]
    fn a_tag_fits_into_ec2s_limit_with_the_longest_names() {
        // The longest partition and region names that AWS has, the longest state machine name that the module allows,
        // and an execution name of 80 characters.
        let execution = format!(
            "arn:aws-iso-b:states:us-isob-east-1:123456789012:execution:{}:{}",
            "m".repeat(40),
            "e".repeat(80)
        );
        let claim = Claim {
            schema: 99,
            fence: Fence {
                execution: execution.parse().unwrap(),
                redrive_count: u32::MAX,
            },
            phase: Phase::Disposing,
            claimed_at: "2027-01-01T00:00:00.123456789Z".parse().unwrap(),
            ..claim(Phase::Claimed)
        };
        assert!(
            claim.to_tag().len() <= 256,
            "{} characters: {}",
            claim.to_tag().len(),
            claim.to_tag()
        );
    }

    #[test]
    fn a_newer_schema_is_recognised_although_the_rest_is_unknown() {
        let group = "workers".parse().unwrap();
        assert_eq!(
            Claim::from_tag("2 anything at all", &group),
            StoredClaim::Newer(2)
        );
        assert_eq!(
            Claim::from_annotation(r#"{"schema": 2, "who": "knows"}"#),
            StoredClaim::Newer(2)
        );
    }

    #[test]
    fn an_edited_claim_is_unreadable_and_kept_as_text() {
        let group = "workers".parse().unwrap();
        for text in [
            "",
            "1",
            "1 planned",
            "x planned claimed y z",
            "1 planned claimed 2027-01-01T00:00:00Z nobody",
        ] {
            assert_eq!(
                Claim::from_tag(text, &group),
                StoredClaim::Unreadable(text.to_owned())
            );
        }
        assert!(matches!(
            Claim::from_annotation(&"x".repeat(200_000)),
            StoredClaim::Unreadable(text) if text.chars().count() == 120
        ));
        for text in ["", "{}", "null", r#"{"schema":1}"#, r#"{"schema":"1"}"#] {
            assert_eq!(
                Claim::from_annotation(text),
                StoredClaim::Unreadable(text.to_owned())
            );
        }
    }

    #[test]
    fn phases_and_urgencies_are_written_as_serde_writes_them() {
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.to_string());
        }
        for urgency in Urgency::ALL {
            assert_eq!(serde_json::to_value(urgency).unwrap(), urgency.to_string());
        }
        let phases = [
            "claimed",
            "admitted",
            "standby",
            "draining",
            "waiting",
            "disposing",
        ];
        assert_eq!(Phase::ALL.map(|phase| phase.to_string()), phases);
        let mut urgencies = Urgency::ALL.map(|urgency| urgency.to_string());
        urgencies.sort();
        assert_eq!(urgencies, ["hook", "interruption", "planned", "spot"]);
        assert!(serde_json::from_value::<Phase>(json!("Claimed")).is_err());
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        (
            prop::sample::select(Phase::ALL.to_vec()),
            prop::sample::select(Urgency::ALL.to_vec()),
            any::<u32>(),
            0_i64..4_000_000_000,
        )
            .prop_map(|(phase, urgency, redrives, seconds)| Claim {
                urgency,
                fence: fence(redrives),
                claimed_at: at(seconds),
                ..claim(phase)
            })
    }

    proptest! {
        #[test]
        fn a_claim_survives_tag_and_annotation(claim in any_claim()) {
            prop_assert_eq!(Claim::from_tag(&claim.to_tag(), &claim.group), StoredClaim::Known(claim.clone()));
            let annotation = serde_json::to_string(&claim).unwrap();
            prop_assert_eq!(Claim::from_annotation(&annotation), StoredClaim::Known(claim));
        }

        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,60}") {
            let _ = Claim::from_tag(&text, &"workers".parse().unwrap());
            let _ = Claim::from_annotation(&text);
        }
    }
}
