//! Converts answers of AWS to the facts of `recycle::doctor`.

use aws_sdk_autoscaling::types::{AutoScalingGroup, LifecycleHook, RetentionAction, StandbyInstances};
use aws_sdk_eventbridge::types::{Rule as EventRule, RuleState};
use aws_sdk_lambda::operation::get_function_configuration::GetFunctionConfigurationOutput;
use recycle::base::duration::Duration;
use recycle::base::names::TERMINATION_HANDLER_TAG;
use recycle::cluster::node_group::NODE_GROUP_TAG;
use recycle::cluster::refresh::Refresh;
use recycle::doctor::facts::{Function, Group, Hook, Rule, Seen};
use recycle::input::fields::FIELDS;
use serde_json::Value;

use crate::base::error::{Error, Result};

pub(crate) fn seen<T>(answer: Result<T>) -> Seen<T> {
    match answer {
        Ok(found) => Seen::Found(found),
        Err(Error::Aws { call, code, .. }) if code.as_deref().is_some_and(|code| DENIED.contains(&code)) => {
            Seen::Denied(call.to_owned())
        }
        // The failure of a function is a finding. A throttle, or an AWS call without an answer, is none.
        Err(error @ Error::Aws { .. }) if error.is_outage() => Seen::Unanswered(error.to_string()),
        Err(error) => Seen::Failed(error.to_string()),
    }
}

/// Turns the error that something does not exist into None.
pub(crate) fn if_there<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.code().is_some_and(|code| NOT_THERE.contains(&code)) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Converts the configuration of a function. Its description begins with the version: `recycle-eks 1.2.3: the step claim-node`.
pub(crate) fn to_function(found: &GetFunctionConfigurationOutput) -> Function {
    let described = found.description();
    let version = described.and_then(|text| text.strip_prefix("recycle-eks ")?.split(':').next());
    let environment = found.environment();
    let defaults = environment.and_then(|each| each.variables()?.get("INPUT_DEFAULTS"));
    let defaults: Option<Value> = defaults.and_then(|text| serde_json::from_str(text).ok());
    let drain = defaults.and_then(|defaults| Duration::read(defaults.get("drain_timeout")?));
    let logs = found.logging_config();
    let last_update = found.last_update_status();
    Function {
        state: found.state().map_or("", |state| state.as_str()).to_owned(),
        last_update: last_update.map_or("", |status| status.as_str()).to_owned(),
        version: version.map(str::to_owned),
        log_level: logs.and_then(|config| Some(config.application_log_level()?.as_str().to_owned())),
        drain_timeout: drain.unwrap_or_else(default_drain).as_seconds(),
    }
}

/// Returns the default of `drain_timeout`, for executions whose module sets nothing else.
fn default_drain() -> Duration {
    let field = FIELDS.iter().find(|field| field.name == "drain_timeout");
    let default = field.and_then(|field| serde_json::from_str(field.default).ok());
    default.unwrap_or_default()
}

pub(crate) async fn find_group(scaling: &aws_sdk_autoscaling::Client, group: &AutoScalingGroup) -> Group {
    let name = group.auto_scaling_group_name().unwrap_or_default();
    let hooks = scaling.describe_lifecycle_hooks().auto_scaling_group_name(name);
    let refreshes = scaling.describe_instance_refreshes();
    let refreshes = refreshes.auto_scaling_group_name(name);
    let (hooks, refreshes) = tokio::join!(hooks.send(), refreshes.send());
    let hooks = seen(hooks.map_err(Error::of("autoscaling:DescribeLifecycleHooks")));
    let refreshes = seen(refreshes.map_err(Error::of("autoscaling:DescribeInstanceRefreshes")));
    let policy = group.instance_lifecycle_policy();
    let triggers = policy.and_then(|policy| policy.retention_triggers());
    let suspended = group.suspended_processes().iter();
    let suspended = suspended.filter_map(|process| process.process_name.clone());
    let size = |given| number(given).unwrap_or_default();
    Group {
        name: name.to_owned(),
        sizes: (
            size(group.min_size()),
            size(group.desired_capacity()),
            size(group.max_size()),
        ),
        suspended: suspended.collect(),
        zones: group.availability_zones().len(),
        rebalances_capacity: group.capacity_rebalance() == Some(true),
        node_group: group
            .tags()
            .iter()
            .find(|tag| tag.key() == Some(NODE_GROUP_TAG))
            .and_then(|tag| tag.value.clone()),
        is_of_termination_handler: group
            .tags()
            .iter()
            .any(|tag| tag.key() == Some(TERMINATION_HANDLER_TAG)),
        max_lifetime: number(group.max_instance_lifetime()).filter(|seconds| *seconds > 0),
        retains: triggers.and_then(|each| each.terminate_hook_abandon()) == Some(&RetentionAction::Retain),
        refresh: refreshes.map(|answer| {
            answer.instance_refreshes().iter().find_map(|refresh| {
                let preferences = refresh
                    .preferences()
                    .and_then(|preferences| preferences.standby_instances());
                Refresh::under_way(
                    refresh.status()?.as_str(),
                    preferences.map(StandbyInstances::as_str),
                )
            })
        }),
        hooks: hooks.map(|answer| answer.lifecycle_hooks().iter().map(to_hook).collect()),
    }
}

fn to_hook(hook: &LifecycleHook) -> Hook {
    Hook {
        name: hook.lifecycle_hook_name().unwrap_or_default().to_owned(),
        on_termination: hook.lifecycle_transition() == Some("autoscaling:EC2_INSTANCE_TERMINATING"),
        default_result: hook.default_result().unwrap_or_default().to_owned(),
        heartbeat: number(hook.heartbeat_timeout()).unwrap_or_default(),
    }
}

fn number(given: Option<i32>) -> Option<u32> {
    given.and_then(|number| u32::try_from(number).ok())
}

pub(crate) async fn find_rule(events: &aws_sdk_eventbridge::Client, rule: &EventRule) -> Rule {
    let name = rule.name().unwrap_or_default();
    let answer = events.list_targets_by_rule().rule(name).send().await;
    Rule {
        name: name.to_owned(),
        is_enabled: rule.state() == Some(&RuleState::Enabled),
        targets: seen(answer.map_err(Error::of("events:ListTargetsByRule")))
            .map(|answer| answer.targets().len()),
        pattern: rule.event_pattern().map(str::to_owned),
    }
}

pub(crate) fn is_of_module(rule: &str, name: &str) -> bool {
    let rest = rule.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    let kinds = ["sweep-", "hook-", "rotate-nodes-"];
    rest.is_some_and(|rest| rest.ends_with("-unreported") || kinds.iter().any(|kind| rest.starts_with(kind)))
}

/// Error codes with which services say that something does not exist.
const NOT_THERE: [&str; 5] = [
    "ResourceNotFoundException",
    "ResourceNotFound",
    "StateMachineDoesNotExist",
    "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
];

/// Error codes with which services deny access.
const DENIED: [&str; 4] = [
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "UnauthorizedOperation",
];
