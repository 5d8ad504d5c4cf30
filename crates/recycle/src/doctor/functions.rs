//! Checks the functions and the state machines.

use crate::base::shell::quote;
use crate::doctor::facts::{Function, Installation, Machine};
use crate::doctor::finding::Finding;
use crate::doctor::finding::{APPLY, judge};

pub(crate) fn examine_functions(seen: &Installation) -> Vec<Finding> {
    let each = seen.functions.iter().flat_map(|(step, function)| {
        judge("function", step, function, |function| {
            vec![examine_function(seen, step, function.as_ref())]
        })
    });
    each.collect()
}

fn examine_function(seen: &Installation, step: &str, function: Option<&Function>) -> Finding {
    let Some(function) = function else {
        return Finding::problem(
            "function",
            step,
            format!("there is no function {}-{step}", seen.name),
            APPLY,
        );
    };
    let version = function.version.as_deref().unwrap_or("unknown");
    if !matches!(function.state.as_str(), "Active" | "Inactive") || function.last_update == "Failed" {
        let found = format!(
            "its state is {}, its last update {}",
            function.state, function.last_update
        );
        return Finding::problem("function", step, found, APPLY);
    }
    if version != seen.version {
        let found = format!(
            "it is of version {version}, this command line of {}",
            seen.version
        );
        return Finding::warning(
            "function",
            step,
            found,
            "Take module, packages and command line from the same release.",
        );
    }
    // What is counted is lines of the log, of level INFO.
    match function.log_level.as_deref() {
        None | Some("INFO" | "DEBUG" | "TRACE") => Finding::ok(
            "function",
            step,
            format!("version {version}, {}", function.state.to_lowercase()),
        ),
        Some(level) => Finding::warning(
            "function",
            step,
            format!(
                "its log level is {level}: decisions are not logged, and the dashboard and the alarms see nothing"
            ),
            format!(
                "aws lambda update-function-configuration --function-name {} --logging-config LogFormat=JSON,ApplicationLogLevel=INFO",
                quote(&format!("{}-{step}", seen.name))
            ),
        ),
    }
}

pub(crate) fn examine_machines(seen: &Installation) -> Vec<Finding> {
    let each = seen.machines.iter().flat_map(|(machine, facts)| {
        judge("state machine", machine, facts, |facts| {
            vec![examine_machine(seen, machine, facts.as_ref())]
        })
    });
    each.collect()
}

/// Only `recycle-node` has versions and an alias: it outlives applies.
fn examine_machine(seen: &Installation, name: &str, machine: Option<&Machine>) -> Finding {
    let check = "state machine";
    let Some(machine) = machine else {
        return Finding::problem(
            check,
            name,
            format!("there is no state machine {}-{name}", seen.name),
            APPLY,
        );
    };
    if machine.status != "ACTIVE" {
        return Finding::problem(check, name, format!("its status is {}", machine.status), APPLY);
    }
    match (&machine.live, &machine.newest) {
        (None, Some(_)) => Finding::problem(
            check,
            name,
            "it has no alias live, which is what is started",
            APPLY,
        ),
        (Some(live), Some(newest)) if live != newest => Finding::warning(
            check,
            name,
            format!(
                "the alias live starts {}, the newest version is {}",
                last_part(live),
                last_part(newest)
            ),
            APPLY,
        ),
        (Some(live), _) => Finding::ok(
            check,
            name,
            format!("active, live starts version {}", last_part(live)),
        ),
        (None, None) => Finding::ok(check, name, "active"),
    }
}

fn last_part(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}
