//! The put-back: the one next step by which a node that could not be recycled becomes again what it was.
//!
//! Two halves that need not wait for each other: on the Node what we wrote is taken away; in the group the instance comes back into
//! service by the table [`TABLE`]. Each step looks at what is there now and at what was recorded before the calls ([`Deed`]), so that it
//! may be repeated after a crash at any point. Nothing here starts a pod's end: only a replacement without pods goes.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::autoscaler::{is_kept_for, let_go_of_old_node};
use crate::ids::{InstanceId, NodeName};
use crate::names::{
    CORDONED_FOR_ANNOTATION, DRAIN_UNTIL_ANNOTATION, EXCLUDE_FROM_BALANCERS_LABEL, PROGRESS_ANNOTATION,
    REPLACEMENT_FOR_ANNOTATION, STANDBY_TAG,
};
use crate::node::{
    Group, Instance, Member, NodeFacts, Record, Taint, is_leaving, is_out_of_service_taint, is_request_taint,
};
use crate::pods::cut_given;

/// Seconds that a put-back may take before the node is left where it is: half an hour, in which a launch that is under way comes or
/// fails, and a group that was busy has calmed down.
pub const PATIENCE: u32 = 1_800;
/// Seconds for which the cluster is asked before the group's half begins without it.
pub const CLUSTER_PATIENCE: u32 = 120;
/// Seconds for which other put-backs of the group are waited for. A crashed one is taken up by the sweep in that time.
pub const LINE_PATIENCE: u32 = 900;
/// Seconds between two steps, enough for Auto Scaling to show what the last one did.
pub const STEP_WAIT: u32 = 10;
/// Seconds between two looks at something that takes its time: half an hour of them is 30.
pub const LONG_WAIT: u32 = 60;
/// How many steps and looks a put-back may have before it is at the end of its patience: 30 looks and 10 steps, twice as many as any
/// way needs. The execution's history has no room for more.
pub const MOST_STEPS: u32 = 40;
/// The value of the balancers' label when it is we who set it.
pub const EXCLUDED: &str = "true";

/// Which sizes the group allows: m, d, M are its minimum, desired capacity and maximum at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// m < d < M
    Free,
    /// m < d = M
    AtMaximum,
    /// m = d < M
    AtMinimum,
    /// m = d = M
    Fixed,
    /// The process Launch is suspended: AWS lets nobody out of Standby.
    LaunchSuspended,
}

/// What became of the replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// It is not in service: not launched, or still on its way.
    NotLaunched,
    /// It is there, without pods other than those of DaemonSets and mirrors.
    Empty,
    /// It has pods or cannot be looked at, or there is none that is due: nothing is taken away.
    Stays,
}

/// By which sequence the instance comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// SetDesiredCapacity(d-1), then ExitStandby makes it d.
    LowerThenExit,
    /// Terminate the replacement with decrement, then ExitStandby makes it d.
    DropThenExit,
    /// ExitStandby makes it d+1, then SetDesiredCapacity(d) when nothing is Pending.
    ExitThenLower,
    /// ExitStandby makes it d+1, then terminate the replacement with decrement.
    ExitThenDrop,
    /// ExitStandby, and the group stays one larger.
    Exit,
    /// No legal sequence: it stays in Standby, schedulable.
    Stay,
}

/// The table of the put-back.
pub const TABLE: [(Row, [(Column, Way); 3]); 5] = [
    (
        Row::Free,
        [
            (Column::NotLaunched, Way::LowerThenExit),
            (Column::Empty, Way::DropThenExit),
            (Column::Stays, Way::Exit),
        ],
    ),
    (
        Row::AtMaximum,
        [
            (Column::NotLaunched, Way::LowerThenExit),
            (Column::Empty, Way::DropThenExit),
            (Column::Stays, Way::Stay),
        ],
    ),
    (
        Row::AtMinimum,
        [
            (Column::NotLaunched, Way::ExitThenLower),
            (Column::Empty, Way::ExitThenDrop),
            (Column::Stays, Way::Exit),
        ],
    ),
    (
        Row::Fixed,
        [
            (Column::NotLaunched, Way::Stay),
            (Column::Empty, Way::Stay),
            (Column::Stays, Way::Stay),
        ],
    ),
    (
        Row::LaunchSuspended,
        [
            (Column::NotLaunched, Way::Stay),
            (Column::Empty, Way::Stay),
            (Column::Stays, Way::Stay),
        ],
    ),
];

/// The cell of the table.
#[must_use]
pub fn look_up(row: Row, column: Column) -> Way {
    TABLE
        .iter()
        .filter(|(of, _)| *of == row)
        .flat_map(|(_, cells)| cells)
        .find(|(of, _)| *of == column)
        .map_or(Way::Stay, |(_, way)| *way)
}

/// The row that the group is in.
#[must_use]
pub fn find_row(group: &Group) -> Row {
    let is_suspended = group.suspended.iter().any(|process| process == "Launch");
    match (is_suspended, group.min < group.desired, group.desired < group.max) {
        (true, _, _) => Row::LaunchSuspended,
        (false, true, true) => Row::Free,
        (false, true, false) => Row::AtMaximum,
        (false, false, true) => Row::AtMinimum,
        (false, false, false) => Row::Fixed,
    }
}

/// A change of the group's size that was recorded before it was called for, in the tag `recycle-eks:put-back`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// SetDesiredCapacity to one less than this.
    Lower(u32),
    /// TerminateInstanceInAutoScalingGroup with decrement of this replacement.
    Terminate(InstanceId),
    /// ExitStandby while the desired capacity was this.
    Exit(u32),
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lower(from) => write!(f, "lower:{from}"),
            Self::Terminate(id) => write!(f, "terminate:{id}"),
            Self::Exit(from) => write!(f, "exit:{from}"),
        }
    }
}

/// All deeds of a put-back, the first one first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deeds(Vec<Deed>);

impl Deeds {
    /// The same with one more. One that had not taken effect, and is recorded anew with what is there now, counts once.
    #[must_use]
    pub fn with(&self, deed: Deed) -> Self {
        let mut deeds = self.0.clone();
        if deeds.last().is_some_and(|last| last.is_like(&deed)) {
            deeds.pop();
        }
        deeds.push(deed);
        Self(deeds)
    }

    /// The desired capacity before our ExitStandby, if we called it.
    fn exited_from(&self) -> Option<u32> {
        self.0.iter().rev().find_map(|deed| match deed {
            Deed::Exit(from) => Some(*from),
            Deed::Lower(_) | Deed::Terminate(_) => None,
        })
    }

    /// Whether the group was made one smaller again, as far as can be seen. After a call whose answer was lost, the capacity tells.
    fn has_paid(&self, group: &Group) -> bool {
        self.0.iter().enumerate().any(|(position, deed)| match deed {
            Deed::Lower(from) => position + 1 < self.0.len() || group.desired != *from,
            Deed::Terminate(id) => group.member(id).is_none_or(Member::is_leaving),
            Deed::Exit(_) => false,
        })
    }
}

impl Deed {
    fn is_like(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Lower(_), Self::Lower(_))
                | (Self::Terminate(_), Self::Terminate(_))
                | (Self::Exit(_), Self::Exit(_))
        )
    }
}

impl fmt::Display for Deeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(Deed::to_string).collect();
        f.write_str(&words.join(" "))
    }
}

/// The tag `recycle-eks:put-back` was edited by somebody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the tag recycle-eks:put-back: {0:?} is no step of a put-back")]
pub struct UnreadableDeed(String);

impl FromStr for Deeds {
    type Err = UnreadableDeed;

    fn from_str(text: &str) -> Result<Self, UnreadableDeed> {
        let read = |word: &str| {
            let (kind, value) = word.split_once(':')?;
            match kind {
                "lower" => value.parse().ok().map(Deed::Lower),
                "exit" => value.parse().ok().map(Deed::Exit),
                "terminate" => value.parse().ok().map(Deed::Terminate),
                _ => None,
            }
        };
        text.split_whitespace()
            .map(|word| read(word).ok_or_else(|| UnreadableDeed(cut_given(word))))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// A member that came after EnterStandby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newcomer {
    /// Its instance.
    pub instance: InstanceId,
    /// `LifecycleState`.
    pub lifecycle_state: String,
    /// Its Node, if it has registered.
    pub node: Option<NodeFacts>,
    /// Its Node has pods other than those of DaemonSets and mirrors.
    pub has_pods: bool,
}

impl Newcomer {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.node.as_ref()?.annotations.get(key).map(String::as_str)
    }

    fn is_cordoned(&self) -> bool {
        self.node.as_ref().is_none_or(|node| node.unschedulable)
    }
}

/// How the Node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubernetesHalf {
    /// The cluster cannot be asked.
    Unseen,
    /// There is no Node of this instance.
    Vanished,
    /// Something that we wrote is to be taken away ([`undo_kubernetes`]).
    Undo,
    /// Nothing of ours keeps pods away.
    Clean,
}

/// The tag `recycle-eks:gave-up`: people were told that the instance is theirs to see to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaveUp {
    /// When.
    pub at: Timestamp,
    /// AWS or Kubernetes refused the way back; otherwise there was none.
    pub was_refused: bool,
}

/// Seconds until a way back that was refused is tried again: such a try takes half an hour, in which nobody else can have the node, nor
/// its group the turn.
pub const REFUSED_PATIENCE: i64 = 6 * 3_600;

impl GaveUp {
    /// Whether another try makes no sense yet, `step` being the next one.
    #[must_use]
    pub fn is_final(self, step: &PutBackStep, now: Timestamp) -> bool {
        let is_end = matches!(step, PutBackStep::LeaveInStandby(_) | PutBackStep::Report(_));
        is_end || (self.was_refused && now.duration_since(self.at).as_secs() < REFUSED_PATIENCE)
    }
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.was_refused { " refused" } else { "" };
        write!(f, "{}{word}", self.at)
    }
}

impl FromStr for GaveUp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        let (at, word) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Self {
            at: at.parse()?,
            was_refused: word == "refused",
        })
    }
}

/// Everything that a put-back looks at.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The instance.
    pub id: &'a InstanceId,
    /// What EC2 says of it.
    pub instance: Option<&'a Instance>,
    /// Its group, or the one that it was claimed in.
    pub group: Option<&'a Group>,
    /// The Node.
    pub kubernetes: KubernetesHalf,
    /// It has not been Ready for so long that the node counts as lost ([`crate::lost`]).
    pub is_lost: bool,
    /// Who came after EnterStandby; none if nobody can say that.
    pub newcomers: Option<&'a [Newcomer]>,
    /// Others that carry our cordon for this instance.
    pub marked: &'a [Newcomer],
    /// Since when the Node says that it is being put back.
    pub queued_since: Option<Timestamp>,
    /// The Node of the group that is put back first.
    pub ahead: Option<&'a NodeName>,
    /// The members, and instances that were members, which we protected from scale-in.
    pub protected: &'a [InstanceId],
    /// What was done or about to be done.
    pub deeds: &'a Deeds,
    /// Seconds since the put-back began.
    pub waited: i64,
    /// Steps and looks before this one.
    pub steps: u32,
}

/// The next step of a put-back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutBackStep {
    /// Take from the Node what we wrote.
    UndoKubernetes,
    /// Write on the Node that it is being put back.
    Queue,
    /// Protect these members from scale-in.
    Protect(Vec<InstanceId>),
    /// Keep pods away from the replacement, so that it stays empty.
    CordonReplacement(InstanceId),
    /// Terminate the replacement, which has no pods, with decrement.
    TerminateReplacement(InstanceId),
    /// SetDesiredCapacity, one less than it is.
    Lower {
        /// As it is.
        from: u32,
    },
    /// SetDesiredCapacity, because the group would trim members of ours after ExitStandby.
    Raise {
        /// The new capacity.
        to: u32,
    },
    /// ExitStandby.
    ExitStandby {
        /// The desired capacity before it.
        from: u32,
    },
    /// Take our cordon from these members' Nodes, and the reservation, too, unless another execution may go on with it.
    ReleaseReplacements {
        /// Whose Nodes.
        newcomers: Vec<InstanceId>,
        /// The reservation goes.
        reservation: bool,
    },
    /// Take our protection from these members.
    Unprotect(Vec<InstanceId>),
    /// TerminateInstanceInAutoScalingGroup of a dead member in Standby, where no health check reaches it: its group forgets it.
    ForgetDead,
    /// Wait so many seconds; why.
    Wait(u32, String),
    /// The node is what it was. The text says what is not, if anything.
    Done(Option<String>),
    /// There is no legal way back; why.
    LeaveInStandby(Stuck),
    /// The node is lost, somebody else's, or cannot be seen: nothing more is done to it. The text says what is not as it was in its group,
    /// if anything.
    Report(Option<String>),
}

/// Why an instance stays in Standby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// The group is at its maximum.
    AtMaximum,
    /// The process Launch is suspended.
    LaunchSuspended,
    /// The instance does not run; its state.
    NotRunning(String),
    /// The way back did not open in time.
    TooLong,
}

impl Stuck {
    /// In words.
    #[must_use]
    pub fn describe(&self, group: &Group) -> String {
        let Group {
            name,
            min,
            desired,
            max,
            ..
        } = group;
        match self {
            Self::AtMaximum => format!(
                "group {name} has minimum {min}, desired capacity {desired} and maximum {max}, which allow no way back"
            ),
            Self::LaunchSuspended => {
                format!(
                    "the process Launch of group {name} is suspended, without which AWS lets nobody out of Standby"
                )
            }
            Self::NotRunning(state) => format!("the instance is {state}"),
            Self::TooLong => format!("the way back was not open within {} minutes", PATIENCE / 60),
        }
    }
}

enum Place {
    /// The instance or its Node is gone, or it is on its way out.
    Lost,
    /// In Standby, but not by us; or stopped as asked, to stay there.
    Foreign,
    OnTheWay(String),
    Standby,
    InService,
}

/// Decides the next step.
#[must_use]
pub fn next_put_back_step(situation: &Situation<'_>) -> PutBackStep {
    let Some(group) = situation.group else {
        return situation.clean_up(PutBackStep::Report(None));
    };
    let place = situation.place(group);
    if matches!(place, Place::Lost) {
        let is_listed = situation.is_dead_in_standby(group) && situation.has_time();
        return if is_listed {
            PutBackStep::ForgetDead
        } else {
            situation.clean_up(PutBackStep::Report(None))
        };
    }
    match situation.kubernetes {
        KubernetesHalf::Undo => return PutBackStep::UndoKubernetes,
        KubernetesHalf::Unseen if situation.waited < i64::from(CLUSTER_PATIENCE) => {
            return wait_for_cluster();
        }
        KubernetesHalf::Unseen | KubernetesHalf::Vanished | KubernetesHalf::Clean => {}
    }
    let step = match place {
        Place::Lost | Place::Foreign => situation.clean_up(PutBackStep::Report(None)),
        Place::OnTheWay(state) if situation.has_time() => {
            PutBackStep::Wait(LONG_WAIT, format!("the instance is {state}"))
        }
        Place::OnTheWay(_) => situation.end(PutBackStep::LeaveInStandby(Stuck::TooLong), None),
        Place::Standby => situation.leave_standby(group),
        Place::InService => situation.settle(group),
    };
    if step.changes_group() {
        situation.wait_in_line().unwrap_or(step)
    } else {
        step
    }
}

impl PutBackStep {
    /// It changes the group's size, or prepares that. Two put-backs of one group would take each other's changes for their own.
    fn changes_group(&self) -> bool {
        match self {
            Self::Protect(_)
            | Self::CordonReplacement(_)
            | Self::TerminateReplacement(_)
            | Self::Lower { .. }
            | Self::Raise { .. }
            | Self::ExitStandby { .. } => true,
            Self::UndoKubernetes
            | Self::Queue
            | Self::ReleaseReplacements { .. }
            | Self::Unprotect(_)
            | Self::ForgetDead
            | Self::Wait(..)
            | Self::Done(_)
            | Self::LeaveInStandby(_)
            | Self::Report(_) => false,
        }
    }
}

impl Situation<'_> {
    /// First the Node says that it is being put back, then the others' Nodes are read again: of two each sees the other.
    fn wait_in_line(&self) -> Option<PutBackStep> {
        match (self.kubernetes, self.queued_since, self.ahead) {
            (KubernetesHalf::Clean, None, _) => Some(PutBackStep::Queue),
            (KubernetesHalf::Clean, Some(_), Some(node)) if self.waited < i64::from(LINE_PATIENCE) => Some(
                PutBackStep::Wait(STEP_WAIT, format!("node {node} of its group is put back first")),
            ),
            (
                KubernetesHalf::Clean
                | KubernetesHalf::Undo
                | KubernetesHalf::Unseen
                | KubernetesHalf::Vanished,
                _,
                _,
            ) => None,
        }
    }

    /// Whether there is patience left for a way back that is not open yet.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.waited < i64::from(PATIENCE) && self.steps < MOST_STEPS
    }

    fn is_dead_in_standby(&self, group: &Group) -> bool {
        let is_dead = self.instance.is_none_or(Instance::is_gone);
        is_dead
            && group
                .member(self.id)
                .is_some_and(|member| member.lifecycle_state == "Standby")
    }

    fn place(&self, group: &Group) -> Place {
        let Some(instance) = self.instance.filter(|instance| !instance.is_gone()) else {
            return Place::Lost;
        };
        let Some(member) = group.member(self.id) else {
            return Place::Lost;
        };
        let ours = instance.tags.contains_key(STANDBY_TAG);
        match member.lifecycle_state.as_str() {
            "Standby" if instance.was_stopped() => Place::Foreign,
            _ if self.kubernetes == KubernetesHalf::Vanished || self.is_lost => Place::Lost,
            "InService" => Place::InService,
            "Standby" if ours => Place::Standby,
            "EnteringStandby" if ours => Place::OnTheWay(member.lifecycle_state.clone()),
            state if state.starts_with("Pending") => Place::OnTheWay(state.to_owned()),
            "Standby" | "EnteringStandby" => Place::Foreign,
            _ => Place::Lost,
        }
    }

    fn leave_standby(&self, group: &Group) -> PutBackStep {
        let stay = |why| self.end(PutBackStep::LeaveInStandby(why), None);
        if let Some(instance) = self.instance.filter(|instance| instance.state != "running") {
            return stay(Stuck::NotRunning(instance.state.clone()));
        }
        if !self.has_time() {
            return stay(Stuck::TooLong);
        }
        let (row, replacement) = (find_row(group), self.find_replacement(group));
        let way = look_up(row, self.column(group, replacement));
        if way == Way::Stay {
            return stay(match row {
                Row::LaunchSuspended => Stuck::LaunchSuspended,
                Row::Free | Row::AtMaximum | Row::AtMinimum | Row::Fixed => Stuck::AtMaximum,
            });
        }
        // The replacement is kept empty until it goes, and it is the one whom a trim of the group may take.
        let dropped = match way {
            Way::DropThenExit | Way::ExitThenDrop => replacement,
            Way::LowerThenExit | Way::ExitThenLower | Way::Exit | Way::Stay => None,
        };
        if let Some(step) = self.prepare(group, dropped) {
            return step;
        }
        match (way, dropped) {
            (Way::LowerThenExit, _) => PutBackStep::Lower { from: group.desired },
            (Way::DropThenExit, Some(newcomer)) => {
                PutBackStep::TerminateReplacement(newcomer.instance.clone())
            }
            (Way::DropThenExit | Way::ExitThenLower | Way::ExitThenDrop | Way::Exit | Way::Stay, _) => {
                PutBackStep::ExitStandby { from: group.desired }
            }
        }
    }

    /// Back in service: the group gets the size that it had, if that costs no pod, and our marks go.
    fn settle(&self, group: &Group) -> PutBackStep {
        let replacement = self.find_replacement(group);
        let column = self.column(group, replacement);
        let exited_from = self.deeds.exited_from();
        let is_larger = exited_from.is_some_and(|from| group.desired > from) && !self.deeds.has_paid(group);
        if is_larger && group.min < group.desired && self.has_time() {
            let step = match (column, replacement) {
                (Column::NotLaunched, _) if self.awaits_launch(group) => Some(PutBackStep::Wait(
                    LONG_WAIT,
                    "a replacement is still being launched".to_owned(),
                )),
                (Column::NotLaunched, _) => Some(
                    self.prepare(group, None)
                        .unwrap_or(PutBackStep::Lower { from: group.desired }),
                ),
                (Column::Empty, Some(newcomer)) => Some(
                    self.prepare(group, replacement)
                        .unwrap_or_else(|| PutBackStep::TerminateReplacement(newcomer.instance.clone())),
                ),
                (Column::Empty | Column::Stays, _) => None,
            };
            if let Some(step) = step {
                return step;
            }
        }
        // The group took the capacity back that ExitStandby had added. Who goes would be its choice.
        let has_trimmed = exited_from == Some(group.desired) && count(group) > group.desired;
        if has_trimmed && self.has_time() {
            let dropped = replacement.filter(|_| column == Column::Empty);
            if let Some(step) = self.prepare(group, dropped) {
                return step;
            }
            if dropped.is_none() && group.desired < group.max {
                return PutBackStep::Raise {
                    to: group.desired + 1,
                };
            }
        }
        if !self.protected.is_empty() && count(group) > group.desired && self.has_time() {
            return PutBackStep::Wait(LONG_WAIT, "the group has one member too many".to_owned());
        }
        let note = is_larger.then(|| {
            let why = match (column, self.newcomers) {
                (Column::Stays, None) => "nobody can tell whether its replacement has pods",
                (Column::Stays, Some(_)) => "its replacement has pods",
                (Column::NotLaunched | Column::Empty, _) => "its replacement did not go in time",
            };
            format!(
                "group {} is one larger than before, desired capacity {}: {why}",
                group.name, group.desired
            )
        });
        self.end(PutBackStep::Done(note.clone()), note)
    }

    /// What has to be done before the group's size changes: the replacement that is to go keeps empty, everybody else is protected.
    fn prepare(&self, group: &Group, dropped: Option<&Newcomer>) -> Option<PutBackStep> {
        if let Some(newcomer) = dropped.filter(|newcomer| !newcomer.is_cordoned()) {
            return Some(PutBackStep::CordonReplacement(newcomer.instance.clone()));
        }
        let exposed: Vec<InstanceId> = group
            .members
            .iter()
            .filter(|member| {
                (member.lifecycle_state == "InService" || member.instance == *self.id)
                    && member.can_be_protected()
                    && !member.protected_from_scale_in
                    && dropped.is_none_or(|newcomer| newcomer.instance != member.instance)
            })
            .map(|member| member.instance.clone())
            .collect();
        (!exposed.is_empty()).then_some(PutBackStep::Protect(exposed))
    }

    /// Ends, unless the Node is still to be looked at; `note` says what is not as it was in the group.
    fn end(&self, end: PutBackStep, note: Option<String>) -> PutBackStep {
        self.clean_up(match (self.kubernetes, self.has_time()) {
            (KubernetesHalf::Unseen, true) => wait_for_cluster(),
            (KubernetesHalf::Unseen, false) => PutBackStep::Report(note),
            (KubernetesHalf::Vanished | KubernetesHalf::Undo | KubernetesHalf::Clean, _) => end,
        })
    }

    /// Marks first, protection last: every end of a put-back comes through here.
    fn clean_up(&self, end: PutBackStep) -> PutBackStep {
        let id = self.id.as_str();
        let is_left = matches!(end, PutBackStep::LeaveInStandby(_));
        let marked: Vec<InstanceId> = self
            .newcomers
            .unwrap_or_default()
            .iter()
            .chain(self.marked)
            .filter(|newcomer| !is_leaving(&newcomer.lifecycle_state))
            .filter(|newcomer| {
                let is_cordoned = newcomer.annotation(CORDONED_FOR_ANNOTATION) == Some(id);
                let is_reserved = newcomer.annotation(REPLACEMENT_FOR_ANNOTATION) == Some(id);
                // Another execution can go on from Standby, with the replacement that is reserved.
                let is_kept = newcomer
                    .node
                    .as_ref()
                    .is_some_and(|node| is_kept_for(node, self.id));
                is_cordoned || is_kept || (is_reserved && !is_left)
            })
            .map(|newcomer| newcomer.instance.clone())
            .collect();
        if !marked.is_empty() {
            return PutBackStep::ReleaseReplacements {
                newcomers: marked,
                reservation: !is_left,
            };
        }
        let protected = self.group.map_or_else(
            || self.protected.to_vec(),
            |group| group.find_unprotectable(self.protected),
        );
        if protected.is_empty() {
            end
        } else {
            PutBackStep::Unprotect(protected)
        }
    }

    /// The newcomer that stands in for the node: the reserved one, else one that is in service and nobody else's, an empty one first.
    fn find_replacement(&self, group: &Group) -> Option<&Newcomer> {
        let reserved_for = |newcomer: &Newcomer| {
            newcomer
                .annotation(REPLACEMENT_FOR_ANNOTATION)
                .map(|owner| owner == self.id.as_str())
        };
        let in_service = || {
            self.newcomers.unwrap_or_default().iter().filter(|newcomer| {
                newcomer.lifecycle_state == "InService" && group.member(&newcomer.instance).is_some()
            })
        };
        in_service()
            .find(|newcomer| reserved_for(newcomer) == Some(true))
            .or_else(|| {
                in_service()
                    .filter(|newcomer| reserved_for(newcomer).is_none())
                    .min_by_key(|newcomer| newcomer.has_pods)
            })
    }

    fn column(&self, group: &Group, replacement: Option<&Newcomer>) -> Column {
        let is_short = group.in_service() < group.desired;
        match (self.newcomers, replacement) {
            (None, _) => Column::Stays,
            (Some(_), Some(newcomer)) if newcomer.has_pods => Column::Stays,
            (Some(_), _) if self.deeds.has_paid(group) => Column::Stays,
            (Some(_), Some(_)) => Column::Empty,
            // One that is not in service yet may have pods already, and would go first if the group were made smaller.
            (Some(newcomers), None)
                if newcomers
                    .iter()
                    .any(|newcomer| self.may_have_come_for_us(newcomer)) =>
            {
                Column::Stays
            }
            (Some(_), None) if is_short => Column::NotLaunched,
            (Some(_), None) => Column::Stays,
        }
    }

    fn may_have_come_for_us(&self, newcomer: &Newcomer) -> bool {
        let owner = newcomer.annotation(REPLACEMENT_FOR_ANNOTATION);
        newcomer.has_pods
            && !is_leaving(&newcomer.lifecycle_state)
            && owner.is_none_or(|owner| owner == self.id.as_str())
    }

    fn awaits_launch(&self, group: &Group) -> bool {
        group
            .members
            .iter()
            .any(|member| member.instance != *self.id && member.lifecycle_state.starts_with("Pending"))
    }
}

fn wait_for_cluster() -> PutBackStep {
    PutBackStep::Wait(LONG_WAIT, "the cluster cannot be asked".to_owned())
}

/// Members that count towards the desired capacity.
fn count(group: &Group) -> u32 {
    group.in_service() + group.pending()
}

/// What is to be taken from a Node: only values that are still ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// The taints that stay, if ours is among those that are there.
    pub taints: Option<Vec<Taint>>,
    /// Uncordon.
    pub uncordon: bool,
    /// Annotations to remove.
    pub annotations: Vec<&'static str>,
    /// Remove the label that keeps the node out of load balancers.
    pub remove_label: bool,
    /// What the annotation for Cluster Autoscaler becomes, or that it goes; the outer none: it stays as it is.
    pub scale_down: Option<Option<String>>,
    /// What the record says after that; none if the record cannot be read.
    pub record: Option<Record>,
}

/// Decides what to take from a Node; none if nothing is left there but claim, record and group label, which go last. `taint` is the
/// one that we set.
///
/// A cordon is ours if the record says that we came and that it was not there before, and if nobody has written the field since.
/// Cluster Autoscaler lists members in Standby, too: the annotation that keeps it away stays until the node is out of Standby.
#[must_use]
pub fn undo_kubernetes(node: &NodeFacts, taint: &Taint, in_standby: bool) -> Option<Undo> {
    let record = node.record();
    let known = record.as_ref().ok();
    let has_drained = known.is_some_and(|record| record.tainted_at.is_some());
    let others: Vec<Taint> = node
        .taints
        .iter()
        .filter(|other| *other != taint && !is_out_of_service_taint(other) && !is_request_taint(other))
        .cloned()
        .collect();
    let was_cordoned = known.is_some_and(|record| record.was_unschedulable);
    let was_excluded = known.is_some_and(|record| record.excluded_at.is_some());
    let had_label = known.is_none_or(|record| record.excluded_before.is_some());
    let is_labelled = node
        .labels
        .get(EXCLUDE_FROM_BALANCERS_LABEL)
        .is_some_and(|value| value == EXCLUDED);
    let scale_down = known
        .filter(|_| !in_standby)
        .and_then(|record| let_go_of_old_node(node, record));
    let annotations = [PROGRESS_ANNOTATION, DRAIN_UNTIL_ANNOTATION]
        .into_iter()
        .filter(|key| node.annotations.contains_key(*key))
        .collect();
    let undo = Undo {
        taints: (others.len() < node.taints.len()).then_some(others),
        uncordon: node.is_cordoned_by_us() && has_drained && !was_cordoned,
        annotations,
        remove_label: was_excluded && is_labelled && !had_label,
        scale_down,
        record: known.map(|record| Record {
            tainted_at: None,
            was_unschedulable: false,
            excluded_at: None,
            excluded_before: None,
            kept: record.kept && in_standby,
            kept_before: record.kept_before.clone().filter(|_| in_standby),
            ..record.clone()
        }),
    };
    let is_clean = undo.taints.is_none()
        && !undo.uncordon
        && undo.annotations.is_empty()
        && !undo.remove_label
        && undo.scale_down.is_none()
        && undo.record.as_ref() == known;
    (!is_clean).then_some(undo)
}

#[cfg(test)]
mod tests;
