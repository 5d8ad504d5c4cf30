//! Identifiers. They are parsed once, where they enter the program, so every value of these types is well formed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::text::cut_given;

/// An identifier that is not well formed: what was expected and what was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be {expected}, but is {given:?}")]
pub struct InvalidId {
    /// The form that the identifier must have, in words.
    pub expected: &'static str,
    /// The text that was given, cut if it is long.
    pub given: String,
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { expected: $expected, given: cut_given(text) })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

identifier!(
    /// An EC2 instance id: `i-` and 8 or 17 hexadecimal digits (EC2 user guide, "Resource IDs").
    InstanceId,
    "an instance id (i- and 8 or 17 hexadecimal digits)",
    |text| {
        text.strip_prefix("i-").is_some_and(|digits| {
            matches!(digits.len(), 8 | 17) && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
    }
);

identifier!(
    /// An EKS cluster name: at most 100 characters, begins with a letter or digit (EKS API, CreateCluster).
    ClusterName,
    "a cluster name (1 to 100 letters, digits, hyphens and underscores, the first a letter or digit)",
    |text| {
        (1..=100).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    }
);

identifier!(
    /// An Auto Scaling group name: 1 to 255 characters (Auto Scaling API, CreateAutoScalingGroup).
    GroupName,
    "an Auto Scaling group name (1 to 255 characters, none of them a control character)",
    |text| (1..=255).contains(&text.chars().count()) && !text.chars().any(char::is_control)
);

identifier!(
    /// A Kubernetes Node name: a DNS subdomain of at most 253 characters.
    NodeName,
    "a Node name (1 to 253 lower-case letters, digits, hyphens and dots)",
    |text| {
        (1..=253).contains(&text.len())
            && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    }
);

identifier!(
    /// The ARN of a Step Functions execution, in any partition.
    /// The ARN of an item of a Distributed Map names its state machine and the Map, and in some cases the run of the Map.
    ExecutionArn,
    "the ARN of a Step Functions execution",
    |text| {
        let parts: Vec<&str> = text.split(':').collect();
        let is_of_map = parts.get(6).is_some_and(|machine| machine.contains('/'));
        is_arn(&parts, "execution") && (parts.len() == 8 || (is_of_map && parts.len() == 9))
    }
);

/// The state machines of an installation: the part of each name after the installation's name and a hyphen (`terraform/main.tf`).
const MACHINES: [&str; 3] = ["recycle-node", "rotate-nodes", "sweep"];
/// The state machines of an installation that write claims.
const CLAIMING_MACHINES: [&str; 2] = ["recycle-node", "sweep"];

impl ExecutionArn {
    /// Checks whether this is the ARN of an execution that writes claims, in the same installation as the execution `me`.
    /// An installation has one account, region and module name.
    /// If `me` belongs to no installation, other executions cannot be told apart, so all of them may claim.
    pub fn may_claim_beside(&self, me: &Self) -> bool {
        let mine = me.installation(&MACHINES);
        mine.is_none() || self.installation(&CLAIMING_MACHINES) == mine
    }

    /// Checks whether this is an execution of the state machine of this name, such as `recycle-node`, of any installation.
    pub fn is_of(&self, machine: &str) -> bool {
        self.installation(&[machine]).is_some()
    }

    /// Returns everything before one of these names at the end of the state machine's name. The label of a Distributed Map is cut off.
    fn installation(&self, machines: &[&str]) -> Option<&str> {
        let (last, _) = self.0.match_indices(':').nth(6)?;
        let machine = self.0.get(..last)?.split('/').next()?;
        machines.iter().find_map(|name| machine.strip_suffix(name))
    }
}

identifier!(
    /// The ARN of a Step Functions state machine, in any partition, without version or alias.
    StateMachineArn,
    "the ARN of a Step Functions state machine",
    |text| {
        let parts: Vec<&str> = text.split(':').collect();
        is_arn(&parts, "stateMachine") && parts.len() == 7
    }
);

/// Checks whether these are the parts of an ARN of Step Functions.
/// No part may have a space or `#`, which separate an ARN from the rest of a claim's tag.
fn is_arn(parts: &[&str], kind: &str) -> bool {
    let ends_it = |c: char| c.is_whitespace() || c.is_control() || c == '#';
    matches!(parts, ["arn", _, "states", _, _, found, ..] if *found == kind)
        && parts
            .iter()
            .all(|part| !part.is_empty() && !part.contains(ends_it))
}

/// The fence of a claim, `executionArn#redriveCount`: a redriven execution has another fence than its first run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fence {
    pub execution: ExecutionArn,
    /// The number of times that the execution had been redriven when it took the claim.
    pub redrive_count: u32,
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.execution, self.redrive_count)
    }
}

impl FromStr for Fence {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let read = || {
            let (execution, count) = text.rsplit_once('#')?;
            Some(Self {
                execution: execution.parse().ok()?,
                redrive_count: count.parse().ok()?,
            })
        };
        read().ok_or_else(|| InvalidId {
            expected: "executionArn#redriveCount",
            given: cut_given(text),
        })
    }
}

impl TryFrom<String> for Fence {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<Fence> for String {
    fn from(fence: Fence) -> Self {
        fence.to_string()
    }
}

/// Returns the first 8 hexadecimal digits of FNV-1a (64 bits). The hash is stable between versions. It does not protect against attacks.
pub fn short_hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{:08x}", hash >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::ARN;

    #[test]
    fn only_executions_of_the_same_installation_may_claim_beside_one() {
        let arn = |machine: &str| -> ExecutionArn {
            let arn = format!("arn:aws:states:eu-west-1:123456789012:execution:{machine}:one");
            arn.parse().unwrap()
        };
        let mine = [
            "recycle-eks-recycle-node",
            "recycle-eks-sweep",
            "recycle-eks-rotate-nodes",
            "recycle-eks-rotate-nodes/group",
        ];
        for mine in mine {
            for (theirs, expected) in [
                ("recycle-eks-recycle-node", true),
                ("recycle-eks-sweep", true),
                ("recycle-eks-rotate-nodes", false),
                ("other-recycle-node", false),
                ("more-recycle-eks-recycle-node", false),
                ("anything", false),
            ] {
                assert_eq!(
                    arn(theirs).may_claim_beside(&arn(mine)),
                    expected,
                    "{theirs} {mine}"
                );
            }
        }
        let elsewhere = ARN
            .replace("eu-west-1", "us-east-1")
            .parse::<ExecutionArn>()
            .unwrap();
        assert!(!elsewhere.may_claim_beside(&ARN.parse().unwrap()));
        assert!(arn("other-recycle-node").may_claim_beside(&arn("of-no-installation")));
    }

    fn check<T: FromStr>(valid: &[&str], invalid: &[&str]) {
        for text in valid {
            assert!(text.parse::<T>().is_ok(), "{text:?} is valid");
        }
        for text in invalid {
            assert!(text.parse::<T>().is_err(), "{text:?} is invalid");
        }
    }

    #[test]
    fn only_well_formed_identifiers_are_parsed() {
        check::<InstanceId>(
            &["i-01234567", "i-0123456789abcdef0"],
            &[
                "",
                "i-",
                "i-0123456",
                "i-0123456789",
                "I-01234567",
                "i-0123456G",
                "mi-01234567",
                "i-0123456789ABCDEF0",
            ],
        );
        let long = "a".repeat(101);
        check::<ClusterName>(
            &["prod", "Prod_1-a", "1"],
            &["", "-prod", "_prod", "pr od", "prod.eu", &long],
        );
        let long = "a".repeat(256);
        check::<GroupName>(&["workers", "eks blue/1 (ä)"], &["", "a\nb", &long]);
        let long = "a".repeat(254);
        check::<NodeName>(
            &["ip-10-0-0-1.ec2.internal", "i-01234567"],
            &["", ".a", "a-", "A", "a_b", &long],
        );
        check::<ExecutionArn>(
            &[
                ARN,
                "arn:aws-cn:states:cn-north-1:123456789012:execution:m:e",
                "arn:aws:states:eu-west-1:123456789012:execution:m/label:e",
                "arn:aws:states:eu-west-1:123456789012:execution:m/label:run:e",
            ],
            &[
                "",
                "arn:aws:states:eu-west-1:1:stateMachine:m:e",
                "arn:aws:states:eu-west-1:1:execution:m",
                "arn:aws:states:eu-west-1:1:execution:m:run:e",
                "arn:aws:states::1:execution:m:e",
                "arn:aws:states:eu-west-1:1:execution:m:e\n",
                "arn:aws:states:eu-west-1:1:execution:m:e#0",
                "arn:aws:states:\0eu-west-1:1:execution:m:e",
            ],
        );
        check::<StateMachineArn>(
            &["arn:aws-cn:states:cn-north-1:123456789012:stateMachine:m"],
            &[
                "",
                "arn:aws:states:eu-west-1:1:stateMachine:m:live",
                "arn:aws:states:eu-west-1:1:stateMachine:m\t",
                ARN,
            ],
        );
        check::<Fence>(
            &[&format!("{ARN}#0")],
            &[ARN, &format!("{ARN}#"), &format!("{ARN}#-1"), "x#1"],
        );
    }

    #[test]
    fn a_refusal_says_what_was_expected_and_what_was_given() {
        assert_eq!(
            "node-1".parse::<InstanceId>().unwrap_err().to_string(),
            "must be an instance id (i- and 8 or 17 hexadecimal digits), but is \"node-1\""
        );
        let long = "x".repeat(20_000).parse::<InstanceId>().unwrap_err().to_string();
        assert!(long.len() < 300, "{long}");
    }

    proptest! {
        #[test]
        fn a_fence_is_read_as_it_was_written(count in any::<u32>()) {
            let fence = Fence { execution: ARN.parse().unwrap(), redrive_count: count };
            prop_assert_eq!(fence.to_string().parse::<Fence>(), Ok(fence));
        }
    }
}
