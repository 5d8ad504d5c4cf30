//! Checks the functions and the state machines.

use crate::base::shell::quote;
use crate::doctor::facts::{Function, Installation, Machine};
use crate::doctor::finding::{APPLY, Check, Finding};

/// The remedy where versions differ.
pub(crate) const SAME_RELEASE: &str =
    "Use the module, the packages and the command line of the same release.";

pub(crate) fn examine_functions(seen: &Installation) -> Vec<Finding> {
    let functions = seen.functions.iter().map(|(step, function)| {
        let check = Check::new("function", step);
        let name = format!("{}-{step}", seen.name);
        check.judge(function, |function| match function {
            Some(function) => examine_function(seen, check, &name, function),
            None => check.problem(format!("there is no function {name}"), APPLY),
        })
    });
    functions.collect()
}

fn examine_function(seen: &Installation, check: Check<'_>, name: &str, function: &Function) -> Finding {
    let (state, last_update) = (&function.state, &function.last_update);
    let version = function.version.as_deref().unwrap_or("unknown");
    if !matches!(state.as_str(), "Active" | "Inactive") || last_update == "Failed" {
        let found = format!("its state is {state}, its last update {last_update}");
        return check.problem(found, APPLY);
    }
    if version != seen.version {
        let own = &seen.version;
        let found = format!("its version is {version}, and this command line has version {own}");
        return check.warning(found, SAME_RELEASE);
    }
    // Metrics are lines of the log, of level INFO.
    match function.log_level.as_deref() {
        None | Some("INFO" | "DEBUG" | "TRACE") => {
            check.ok(format!("version {version}, {}", state.to_lowercase()))
        }
        Some(level) => check.warning(
            format!(
                "its log level is {level}: decisions are not logged, and the dashboard and the alarms have no data"
            ),
            format!(
                "aws lambda update-function-configuration --function-name {} --logging-config LogFormat=JSON,ApplicationLogLevel=INFO",
                quote(name)
            ),
        ),
    }
}

pub(crate) fn examine_machines(seen: &Installation) -> Vec<Finding> {
    let machines = seen.machines.iter().map(|(name, machine)| {
        let check = Check::new("state machine", name);
        check.judge(machine, |machine| match machine {
            Some(machine) => examine_machine(check, machine),
            None => check.problem(format!("there is no state machine {}-{name}", seen.name), APPLY),
        })
    });
    machines.collect()
}

/// Checks a state machine. Only `recycle-node` has versions and an alias, because its executions outlast applies.
fn examine_machine(check: Check<'_>, machine: &Machine) -> Finding {
    if machine.status != "ACTIVE" {
        return check.problem(format!("its status is {}", machine.status), APPLY);
    }
    let last_part = |arn: &str| arn.rsplit(':').next().unwrap_or(arn).to_owned();
    let live = machine.live.as_deref().map(last_part);
    let newest = machine.newest.as_deref().map(last_part);
    match (live, newest) {
        (None, Some(_)) => check.problem(
            "it has no alias live, through which executions are started",
            APPLY,
        ),
        (Some(live), Some(newest)) if machine.live != machine.newest => check.warning(
            format!("the alias live starts version {live}, but the newest version is {newest}"),
            APPLY,
        ),
        (Some(live), _) => check.ok(format!("active, and its alias live starts version {live}")),
        (None, None) => check.ok("active"),
    }
}
