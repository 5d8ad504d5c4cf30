//! The commands and flags. Their comments are the help, and the reference in docs/cli.md.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Arg, Args, Id, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use recycle::base::duration::{Duration, DurationRange, InvalidDuration};
use recycle::base::ids::InstanceId;
use recycle::rotation::outdated::AGES;
use recycle::rotation::terms::{End, PAUSES};
use serde::Serialize;

use crate::args::fields::{NodeFields, RotationFields, parse_selector};
use crate::base::exit::{Exit, list_exits};

/// Retires EKS worker nodes whose pods need hours to finish. Starts, shows, changes and stops the executions of the state machines.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
#[command(after_help = list_exits())]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The flags that every command has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Installation and output")]
pub(crate) struct Global {
    /// The AWS profile to use
    #[arg(long, global = true, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// The AWS region of the installation
    #[arg(long, global = true, value_name = "REGION")]
    pub region: Option<String>,
    /// The name of the installation, from the variable `name` of the module [default: RECYCLE_EKS_NAME, else that of the cluster]
    #[arg(long, global = true, value_name = "NAME")]
    pub name: Option<String>,
    /// The cluster, which chooses the installation [default: RECYCLE_EKS_CLUSTER, else the cluster of the kube context]
    #[arg(long, global = true, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Print tables or JSON
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences.
    Table,
    /// One JSON document, or one per line while an execution is watched.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Recycle one node, and watch it
    ///
    /// Starts an execution of recycle-node and shows it until it ends. Ctrl-C stops watching, but not the execution.
    Recycle(Recycle),
    /// Recycle the nodes of a selection, group by group, and watch them
    ///
    /// Starts an execution of rotate-nodes. If you start it again with the same selection, it continues where the last one stopped. With
    /// --all the command names the groups and the number of their instances, and asks first.
    ///
    /// A selection is --instance, or one or more of --launch-template, --ami, --kubelet, --older-than, --launched-before and --all. A node
    /// that meets one of them is selected. --group, --group-tag and --node-labels narrow them, and are refused alone.
    Rotate(Rotate),
    /// Show what recycling would do, without changing anything
    ///
    /// Shows the plan of one node, or a table of the nodes of a selection: the pods by class, the longest wait, what blocks, and the result
    /// of the pre-flight.
    Plan(Plan),
    /// Show every claim and every rotation: what it waits for, since when, until when, what happens then, and what blocks it
    Status(Status),
    /// Move the end of a running drain
    ///
    /// A drain lasts at most 30 days from its beginning. A lifecycle hook whose group does not retain the instance may end before, of which
    /// the command warns.
    Extend(Extend),
    /// End a running drain now, with the same result as when its time is over (on_drain_timeout)
    ///
    /// If this may end pods, the command names them and asks first. It does so with on_drain_timeout evict or terminate, with a lifecycle
    /// hook whose group does not retain the instance, and as long as no check has said what happens at the end.
    Finish(Finish),
    /// Stop the execution that works on a node, and watch the restore of the node
    ///
    /// Says what will happen and asks first. With --all it stops every rotation and every execution of a node, except those whose nodes
    /// could not be restored.
    Abort(Abort),
    /// Restore nodes whose executions no longer run
    Restore(Restore),
    /// Keep rotations from starting more nodes of these groups
    Pause(Groups),
    /// Let rotations continue in these groups
    Resume(Groups),
    /// Check an installation for problems
    Doctor {
        /// Also show the checks that found no problem
        #[arg(long)]
        all: bool,
    },
    /// Write a report of an execution on one page
    Report(Report),
    /// Print the completions for a shell
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
    /// Print the reference of all commands, for the documentation
    #[command(hide = true)]
    Reference,
}

impl Command {
    /// Returns the exit of an invocation whose output is closed. A command that watches has not shown the end then.
    pub(crate) fn exit_unread(&self) -> Exit {
        let watches = matches!(
            self,
            Self::Recycle(Recycle { no_wait: false, .. })
                | Self::Rotate(Rotate { no_wait: false, .. })
                | Self::Abort(Abort { no_wait: false, .. })
                | Self::Restore(Restore { no_wait: false, .. })
                | Self::Status(Status { watch: true, .. })
        );
        if watches { Exit::Unwatched } else { Exit::Done }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Recycle {
    /// The instance id or the name of the Node
    #[arg(value_name = "INSTANCE|NODE")]
    pub node: String,
    #[command(flatten)]
    pub fields: NodeFields,
    /// Start the execution and return without watching it
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// Do not ask before the nodes of --all are recycled
    #[arg(long)]
    pub yes: bool,
    /// Start the execution and return without watching it
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub rotation: Rotation,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// One node, by its instance id or the name of its Node. It excludes the flags of a selection. Without it, write a selection
    #[arg(value_name = "INSTANCE|NODE", conflicts_with_all = selection_flags())]
    pub node: Option<String>,
    /// Also show each step, each pod, and how the node would be restored
    #[arg(long)]
    pub details: bool,
    #[command(flatten)]
    pub rotation: Rotation,
}

/// A rotation: the selection, the pace, and the fields of each node's execution.
#[derive(Debug, Args)]
pub(crate) struct Rotation {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub pace: Pace,
    #[command(flatten)]
    pub fields: RotationFields,
}

/// The nodes that a rotation selects: those in the groups and with the labels that meet any of the criteria.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct Selection {
    /// This instance. Repeat the flag for more instances. It excludes the other flags of a selection
    #[arg(long = "instance", value_name = "INSTANCE", value_parser = parse_instance)]
    pub instances: Vec<String>,
    /// Nodes launched from another launch template, or another version of it, than their group uses now
    #[arg(long)]
    pub launch_template: bool,
    /// Nodes with another image than the launch template of their group
    #[arg(long)]
    pub ami: bool,
    /// Nodes whose kubelet has an older minor version than the control plane
    #[arg(long)]
    pub kubelet: bool,
    /// Nodes older than this duration, such as 14d
    #[arg(long, value_name = "DURATION", value_parser = |text: &str| AGES.parse(text))]
    pub older_than: Option<Duration>,
    /// Nodes launched before this time, such as 2027-01-31T18:00:00Z
    #[arg(long, value_name = "TIME")]
    pub launched_before: Option<String>,
    /// All nodes
    #[arg(long)]
    pub all: bool,
    /// Only nodes of this group. Repeat the flag for more groups. It needs a flag that selects, such as --ami or --all
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// Only nodes of groups with this tag. It needs a flag that selects, such as --ami or --all, and excludes --group
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "groups")]
    pub group_tag: Option<String>,
    /// Only nodes with these labels, in the syntax of kubectl -l. It needs a flag that selects, such as --ami or --all
    #[arg(long, value_name = "SELECTOR", value_parser = parse_selector)]
    pub node_labels: Option<String>,
}

fn selection_flags() -> Vec<Id> {
    let selection = Selection::augment_args(clap::Command::new(""));
    let flags = selection.get_arguments().map(Arg::get_id);
    flags.cloned().collect()
}

/// Checks an instance id, and returns it as it was written.
fn parse_instance(text: &str) -> Result<String, <InstanceId as FromStr>::Err> {
    Ok(text.parse::<InstanceId>()?.to_string())
}

/// Checks an end of a rotation, and returns it as it was written.
fn parse_end(text: &str) -> Result<String, String> {
    match End::read(&text.into()) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("must be {}, but is {text:?}", End::EXPECTED)),
    }
}

/// Parses the duration by which a drain becomes longer.
fn parse_extension(text: &str) -> Result<Duration, InvalidDuration> {
    DurationRange::new(1, u32::MAX).parse(text)
}

/// The terms of a rotation.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Pace")]
pub(crate) struct Pace {
    /// Number of nodes of a group at once, or a percentage of its members such as 25% [default: max_surge_per_group of the module]
    #[arg(long, value_name = "NUMBER|PERCENT")]
    pub at_once: Option<String>,
    /// Pause between two nodes of a group, such as 10m [default: none]
    #[arg(long, value_name = "DURATION", value_parser = |text: &str| PAUSES.parse(text))]
    pub wait_between_nodes: Option<Duration>,
    /// Pause after the first node of a group, in which no other node runs, such as 1h [default: none]
    #[arg(long, value_name = "DURATION", value_parser = |text: &str| PAUSES.parse(text))]
    pub wait_after_first_node: Option<Duration>,
    /// Name of a CloudWatch alarm that holds the next node while it is in ALARM. Repeat the flag for more alarms
    #[arg(long = "alarm", value_name = "NAME")]
    pub alarms: Vec<String>,
    /// Whether the next node waits for an alarm in ALARM, or the group stops. It needs --alarm [default: wait]
    #[arg(long, value_enum, value_name = "WHAT", requires = "alarms")]
    pub on_alarm: Option<OnAlarm>,
    /// Start no node after this time (2027-01-31T18:00:00Z), or this long after the rotation began (4h)
    #[arg(long, value_name = "TIME|DURATION", value_parser = parse_end)]
    pub start_no_new_node_after: Option<String>,
    /// Whether a group continues after more of its nodes than the failure budget have failed [default: stop]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_failure: Option<OnFailure>,
    /// Number of nodes of a group that may fail before the group stops [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub failure_budget: Option<u32>,
    /// Number of further attempts for a node that has failed [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub retries: Option<u32>,
    /// Start the next node even if pods that this rotation has evicted are still Pending
    #[arg(long)]
    pub ignore_pending_pods: bool,
    /// How nodes that are still to come are marked, so that evicted pods do not move to them [default: soft]
    #[arg(long, value_enum, value_name = "HOW")]
    pub mark: Option<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnAlarm {
    /// The next node waits until the alarm is over, for a day at most.
    Wait,
    /// The group starts no other node.
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnFailure {
    /// The group starts no other node once more of its nodes than the budget have failed.
    Stop,
    /// The group continues, however many nodes fail.
    Continue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    /// A taint with the effect PreferNoSchedule.
    Soft,
    /// A taint with the effect NoSchedule.
    Hard,
    /// No taint.
    None,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Only this node, by its instance id or the name of its Node. With --watch or --history also the name or the ARN of an execution
    #[arg(value_name = "INSTANCE|NODE|EXECUTION")]
    pub node: Option<String>,
    /// Show every change, until there is nothing left to watch or you press Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// List the executions of the last 30 days, also those that failed: of all nodes, of this node, or of this rotation. It excludes
    /// --watch
    #[arg(long, conflicts_with = "watch")]
    pub history: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("end").required(true))]
pub(crate) struct Extend {
    /// The instance id or the name of the Node
    #[arg(value_name = "INSTANCE|NODE")]
    pub node: String,
    /// Move the end to this time, such as 2027-01-31T18:00:00Z
    #[arg(long, group = "end", value_name = "TIME")]
    pub until: Option<String>,
    /// Extend the drain by this duration, such as 6h or 1d
    #[arg(long, group = "end", value_name = "DURATION", value_parser = parse_extension)]
    pub by: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Finish {
    /// The instance id or the name of the Node
    #[arg(value_name = "INSTANCE|NODE")]
    pub node: String,
    /// Do not ask, even if the end of the drain ends pods
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct Abort {
    /// The instance id, the name of the Node, or the ARN or the name of an execution or a rotation
    #[arg(value_name = "INSTANCE|NODE|EXECUTION", group = "which")]
    pub what: Option<String>,
    /// Every rotation and every node under way
    #[arg(long, group = "which")]
    pub all: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Stop the execution and return. The sweep restores the node
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct Restore {
    /// The instance id or the name of the Node
    #[arg(value_name = "INSTANCE|NODE", group = "which")]
    pub node: Option<String>,
    /// All nodes whose executions no longer run
    #[arg(long, group = "which")]
    pub all: bool,
    /// Start the sweep and return without watching it
    #[arg(long)]
    pub no_wait: bool,
}

/// `pause` and `resume`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct Groups {
    /// The Auto Scaling groups
    #[arg(value_name = "GROUP", group = "which")]
    pub groups: Vec<String>,
    /// All groups of the cluster
    #[arg(long, group = "which")]
    pub all: bool,
}

/// `report`: a page of HTML, or JSON with `--output json`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct Report {
    /// The ARN or the name of an execution or a rotation, or a node, by its instance id or the name of its Node. For a node, the report shows
    /// its last execution
    #[arg(value_name = "EXECUTION|INSTANCE|NODE", group = "which")]
    pub execution: Option<String>,
    /// The last rotation, or the last execution of recycle-node if that began after the last rotation ended. Plans do not count
    #[arg(long, group = "which")]
    pub last: bool,
    /// Write the report to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Write a support bundle to this new file instead: histories, logs, records and the findings of doctor as JSON, without secrets and
    /// account ids. It excludes --file
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub bundle: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::{ArgAction, CommandFactory as _};

    use super::*;

    #[test]
    fn a_watching_command_whose_output_is_closed_has_not_shown_the_end() {
        for (line, exit) in [
            ("recycle i-1", Exit::Unwatched),
            ("recycle i-1 --no-wait", Exit::Done),
            ("rotate --all", Exit::Unwatched),
            ("abort i-1", Exit::Unwatched),
            ("restore --all --no-wait", Exit::Done),
            ("status --watch", Exit::Unwatched),
            ("status", Exit::Done),
            ("doctor", Exit::Done),
        ] {
            let words = std::iter::once("recycle-eks").chain(line.split(' '));
            let parsed = CommandLine::try_parse_from(words).unwrap();
            assert_eq!(parsed.command.exit_unread(), exit, "{line}");
        }
    }

    /// The help is also the reference in docs/cli.md.
    #[test]
    fn the_help_of_a_flag_names_what_it_excludes_and_whether_it_may_be_repeated() {
        let mut line = CommandLine::command();
        line.build();
        let help = |argument: &Arg| argument.get_help().map(ToString::to_string).unwrap_or_default();
        let (mut excluding, mut repeated) = (0, 0);
        for command in line.get_subcommands() {
            let flags = command
                .get_arguments()
                .filter(|argument| argument.get_long().is_some());
            for flag in flags {
                for other in command.get_arg_conflicts_with(flag) {
                    excluding += 1;
                    let name = format!("excludes --{}", other.get_long().unwrap_or_default());
                    assert!(help(flag).contains(&name), "{}", help(flag));
                }
                if matches!(flag.get_action(), ArgAction::Append) {
                    repeated += 1;
                    assert!(help(flag).contains("Repeat the flag"), "{}", help(flag));
                }
            }
        }
        assert!(excluding >= 3 && repeated >= 8, "{excluding} {repeated}");
    }

    #[test]
    fn the_definition_of_the_commands_is_valid() {
        CommandLine::command().debug_assert();
    }
}
