//! `doctor`: checks an installation, and shows a remedy for each problem. `recycle::doctor::checks` judges the facts.

mod answers;
pub(crate) mod facts;

use recycle::base::shell::quote;
use recycle::doctor::checks::examine;
use recycle::doctor::facts::Inside;
use recycle::doctor::finding::{Finding, Level, worst};
use serde::Serialize;
use serde_json::json;

use crate::aws::groups::list_paused;
use crate::aws::installation::Installation;
use crate::base::error::Result;
use crate::base::exit::Exit;
use crate::base::printed::recycle_eks;
use crate::views::output::Output;

/// The findings, and the level of the worst.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    level: Level,
    findings: Vec<Finding>,
}

pub(crate) async fn run(installation: &Installation, output: &Output, shows_all: bool) -> Result<Exit> {
    let diagnosis = diagnose(installation).await;
    output.document(&json!(diagnosis))?;
    show(&diagnosis.findings, output, shows_all)?;
    Ok(exit(diagnosis.level))
}

/// Gathers the facts from AWS and from `serve-operator`, and judges them.
pub(crate) async fn diagnose(installation: &Installation) -> Diagnosis {
    // The execution need not exist. The answer that it does not exist shows that the function reaches Step Functions.
    let execution = installation.execution("recycle-node", "doctor");
    let question = json!({"ask": "doctor", "cluster_name": installation.cluster, "execution": execution});
    let (seen, inside, paused) = tokio::join!(
        facts::gather(installation),
        installation.ask::<Inside>(&question),
        list_paused(installation),
    );
    let mut findings = examine(&seen, &answers::seen(inside));
    // If the groups cannot be read, the check of the groups says so.
    findings.extend(paused.unwrap_or_default().into_iter().map(find_pause));
    Diagnosis {
        level: worst(&findings),
        findings,
    }
}

/// Returns the finding about a paused group. A pause that was forgotten stops rotations without a message.
fn find_pause(group: String) -> Finding {
    Finding {
        check: "pause",
        level: Level::Warning,
        found: "the group is paused: rotations start no node of it".to_owned(),
        remedy: Some(format!(
            "To let rotations go on: {}",
            recycle_eks(format_args!("resume {}", quote(&group)))
        )),
        of: group,
    }
}

/// Prints the findings. The worst come last, next to the prompt, where readers start.
/// Nothing is wrapped, and a remedy has a line of its own, so that its command can be copied.
fn show(findings: &[Finding], output: &Output, shows_all: bool) -> Result<()> {
    let shown = findings.iter();
    let shown = shown.filter(|finding| shows_all || finding.level != Level::Ok);
    let mut shown: Vec<&Finding> = shown.collect();
    shown.sort_by_key(|finding| finding.level);
    for finding in &shown {
        output.say(describe(finding))?;
        if let Some(remedy) = &finding.remedy {
            output.say(format!("         {remedy}"))?;
        }
    }
    if !shown.is_empty() {
        output.say("")?;
    }
    output.say(sum_up(findings))
}

fn describe(finding: &Finding) -> String {
    let of = match finding.of.as_str() {
        "" => String::new(),
        of => format!(" {of}"),
    };
    let (level, check, found) = (word(finding.level), finding.check, &finding.found);
    format!("{level:<7}  {check}{of}: {found}")
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Unknown => "unknown",
        Level::Warning => "warning",
        Level::Problem => "problem",
    }
}

fn sum_up(findings: &[Finding]) -> String {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let levels = [Level::Problem, Level::Warning, Level::Unknown, Level::Ok];
    let counts = levels.map(|level| format!("{} {}", count(level), word(level)));
    format!("{} findings: {}", findings.len(), counts.join(", "))
}

fn exit(level: Level) -> Exit {
    match level {
        Level::Ok => Exit::Done,
        Level::Unknown | Level::Warning => Exit::Warnings,
        Level::Problem => Exit::Findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(level: Level, remedy: Option<&str>) -> Finding {
        Finding {
            check: "sizes",
            of: "workers".to_owned(),
            level,
            found: "all are 3".to_owned(),
            remedy: remedy.map(str::to_owned),
        }
    }

    #[test]
    fn findings_are_counted_by_level() {
        let findings = [
            finding(Level::Problem, Some("raise it")),
            finding(Level::Ok, None),
            finding(Level::Ok, None),
        ];
        assert_eq!(
            sum_up(&findings),
            "3 findings: 1 problem, 0 warning, 0 unknown, 2 ok"
        );
        assert_eq!(describe(&findings[0]), "problem  sizes workers: all are 3");
    }

    #[test]
    fn a_problem_and_a_warning_have_different_exit_codes() {
        let codes =
            [Level::Ok, Level::Unknown, Level::Warning, Level::Problem].map(|level| exit(level).code());
        assert_eq!(codes, [0, 7, 7, 6]);
    }
}
