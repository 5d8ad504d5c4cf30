//! Every command and flag. What is written here is the help, and the reference in docs/cli.md.

use clap::{Arg, Args, Id, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use recycle::base::duration::{Duration, DurationRange, InvalidDuration};
use recycle::rotation::terms::End;
use serde::Serialize;

use crate::args::fields::{NodeFields, RotationFields};
use crate::base::exit::{Exit, list_exits};

/// Retires EKS worker nodes whose pods need hours to finish: starts, shows, changes and ends what the state machines do.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, disable_help_subcommand = true)]
#[command(after_help = list_exits())]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The flags that every command has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Where")]
pub(crate) struct Global {
    /// The profile of the AWS configuration to use
    #[arg(long, global = true, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// The region of the installation
    #[arg(long, global = true, value_name = "REGION")]
    pub region: Option<String>,
    /// The installation: the module's variable `name`
    #[arg(long, global = true, value_name = "NAME", default_value = "recycle-eks")]
    pub name: String,
    /// The cluster, if the installation does not tell it
    #[arg(long, global = true, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    /// Tables for people, or JSON
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences.
    Table,
    /// JSON: one document, or one a line while something is watched.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Recycle one node, and watch it
    ///
    /// Starts an execution of recycle-node and shows it until it ends. Ctrl-C ends the watching, never the execution.
    Recycle(Recycle),
    /// Recycle the nodes of a selection, group by group, and watch them
    ///
    /// Starts an execution of rotate-nodes. Started again with the same selection it goes on where the last one was left.
    Rotate(Rotate),
    /// Show what recycling would do, and touch nothing
    ///
    /// Of one node, or of every node of a selection: the steps, what becomes of each pod and by which rule, what pre-flight says, and how the
    /// node would be put back.
    Plan(Plan),
    /// Show every claim and every rotation: what it waits for, since when, until when, what happens then, what blocks
    Status(Status),
    /// Move the end of a running drain
    Extend(Extend),
    /// End a running drain now: what happens then, its on_drain_timeout says
    ///
    /// Where that ends pods (a lifecycle hook whose group does not keep the instance, an on_drain_timeout of evict or terminate), it names
    /// them and asks first.
    Finish(Finish),
    /// Stop the execution that works on a node, and watch the node being put back
    Abort(Abort),
    /// Put back what executions have left that no longer run
    Restore(Restore),
    /// Let no rotation begin another node of these groups
    Pause(Groups),
    /// Let rotations go on in these groups
    Resume(Groups),
    /// Look for everything that can be wrong with an installation
    Doctor {
        /// Show what is as it should be, too
        #[arg(long)]
        all: bool,
    },
    /// Tell the whole story of an execution in one page
    Report(Report),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the reference of all commands, for the documentation
    #[command(hide = true)]
    Reference,
}

impl Command {
    /// How an invocation ends if its output is closed. A command that watches has not shown the end then.
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
    /// The instance id, or the name of its Node
    #[arg(value_name = "INSTANCE|NODE")]
    pub node: String,
    #[command(flatten)]
    pub fields: NodeFields,
    /// Start it and come back
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    pub rotation: Rotation,
    /// Start it and come back
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// One node: the instance id, or the name of its Node; else write a selection
    #[arg(value_name = "INSTANCE|NODE", conflicts_with_all = selection_flags())]
    pub node: Option<String>,
    #[command(flatten)]
    pub rotation: Rotation,
}

/// A rotation: which nodes, how fast, and the fields of each node's execution.
#[derive(Debug, Args)]
pub(crate) struct Rotation {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub pace: Pace,
    #[command(flatten)]
    pub fields: RotationFields,
}

/// Which nodes a rotation means: any of the criteria, within the groups, and of the labels.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct Selection {
    /// This instance; repeat it for more. Not together with criteria
    #[arg(long = "instance", value_name = "INSTANCE")]
    pub instances: Vec<String>,
    /// Launched from another launch template, or version of it, than its group names now
    #[arg(long)]
    pub launch_template: bool,
    /// Runs another image than its group's launch template names
    #[arg(long)]
    pub ami: bool,
    /// Its kubelet is older than the control plane, by a minor version
    #[arg(long)]
    pub kubelet: bool,
    /// Nodes older than this duration, such as 14d
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<Duration>,
    /// Launched before this time, such as 2027-01-31T18:00:00Z
    #[arg(long, value_name = "TIME")]
    pub launched_before: Option<String>,
    /// Every node
    #[arg(long)]
    pub all: bool,
    /// Of this group only; repeat it for more
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// Of the groups with this tag only
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "groups")]
    pub group_tag: Option<String>,
    /// Of the nodes with these labels only, in the syntax of kubectl -l
    #[arg(long, value_name = "SELECTOR")]
    pub node_labels: Option<String>,
}

fn selection_flags() -> Vec<Id> {
    let selection = Selection::augment_args(clap::Command::new(""));
    let flags = selection.get_arguments().map(Arg::get_id);
    flags.cloned().collect()
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

/// How a rotation goes about it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Pace")]
pub(crate) struct Pace {
    /// How many nodes of a group at once: a number, or a percentage of its members such as 25%. Default: the module's max_surge_per_group
    #[arg(long, value_name = "NUMBER|PERCENT")]
    pub at_once: Option<String>,
    /// Pause between two nodes of a group, such as 10m [default: none]
    #[arg(long, value_name = "DURATION")]
    pub wait_between_nodes: Option<Duration>,
    /// Start no node after this time (2027-01-31T18:00:00Z), or this long after the rotation began (4h)
    #[arg(long, value_name = "TIME|DURATION", value_parser = parse_end)]
    pub start_no_new_node_after: Option<String>,
    /// Whether a group goes on after nodes of it have failed [default: stop]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_failure: Option<OnFailure>,
    /// How many nodes of a group may fail before it stops [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub failure_budget: Option<u32>,
    /// How often a node that failed is tried again [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub retries: Option<u32>,
    /// Begin the next node although pods that this rotation has evicted are still Pending
    #[arg(long)]
    pub ignore_pending_pods: bool,
    /// How outdated nodes are marked, so that pods do not move from one to the next [default: soft]
    #[arg(long, value_enum, value_name = "HOW")]
    pub mark: Option<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnFailure {
    /// It begins no other node once more than the budget have failed.
    Stop,
    /// It does, whatever fails.
    Continue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    /// By a taint PreferNoSchedule.
    Soft,
    /// By a taint NoSchedule.
    Hard,
    /// Not at all.
    None,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Only this node: an instance id, or the name of a Node; with --watch the ARN of an execution, too
    #[arg(value_name = "INSTANCE|NODE")]
    pub node: Option<String>,
    /// Show it again whenever something has changed, until nothing is left to watch or Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("end").required(true))]
pub(crate) struct Extend {
    /// The instance id, or the name of its Node
    #[arg(value_name = "INSTANCE|NODE")]
    pub node: String,
    /// Until this time, such as 2027-01-31T18:00:00Z
    #[arg(long, group = "end", value_name = "TIME")]
    pub until: Option<String>,
    /// Move the end back by this duration, such as 6h or 1d
    #[arg(long, group = "end", value_name = "DURATION", value_parser = parse_extension)]
    pub by: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Finish {
    /// The instance id, or the name of its Node
    #[arg(value_name = "INSTANCE|NODE")]
    pub node: String,
    /// End it also where that ends pods, without asking
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Abort {
    /// The instance id, or the name of its Node; or the ARN of an execution, of a rotation too
    #[arg(value_name = "INSTANCE|NODE|EXECUTION")]
    pub what: String,
    /// Stop it and come back: the sweep puts the node back by itself
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct Restore {
    /// The instance id, or the name of its Node
    #[arg(value_name = "INSTANCE|NODE", group = "which")]
    pub node: Option<String>,
    /// Everything that was left
    #[arg(long, group = "which")]
    pub all: bool,
    /// Start the sweep and come back
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
    /// Every group of the cluster
    #[arg(long, group = "which")]
    pub all: bool,
}

/// `report`: a page of HTML, or JSON with `--output json`.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The ARN of an execution, of a rotation too, or its name
    pub execution: String,
    /// Write it into this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub file: Option<std::path::PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn who_has_stopped_reading_what_is_watched_has_not_seen_its_end() {
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

    #[test]
    fn the_commands_make_sense() {
        CommandLine::command().debug_assert();
    }
}
