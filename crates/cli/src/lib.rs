//! The command line. It starts, shows, changes and stops executions of the state machines.
//!
//! It calls only AWS. The function `serve-operator` reads the cluster and EC2 for it, and writes the end of a drain.
//! Therefore it needs no access to the cluster, and works with a private API endpoint.

mod args;
mod aws;
mod base;
mod commands;
mod doctor;
mod history;
mod report;
mod views;

use std::ffi::OsString;

use clap::Parser as _;

use args::flags::{Command, CommandLine};
use aws::installation::Installation;
use base::error::Result;
pub use base::exit::Exit;
use base::printed::keep_flags;
use commands::{abort, abort_all, drain, pause, plan, recycle, restore, rotate, status};
use views::output::Output;

pub async fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let line = match CommandLine::try_parse_from(arguments) {
        Ok(line) => line,
        Err(refusal) => return views::output::show_refusal(&refusal),
    };
    let global = &line.global;
    keep_flags(&[
        ("--profile", global.profile.as_deref()),
        ("--region", global.region.as_deref()),
        ("--name", global.name.as_deref()),
        ("--cluster", global.cluster.as_deref()),
    ]);
    let output = Output::new(global.output);
    match run_command(&line, &output).await {
        Ok(exit) => exit,
        // The reader has closed the output, so nothing more is printed.
        Err(error) if error.is_broken_pipe() => line.command.exit_unread(),
        Err(error) => output.show_error(&error),
    }
}

async fn run_command(line: &CommandLine, output: &Output) -> Result<Exit> {
    let found = || Installation::find(&line.global);
    match &line.command {
        Command::Recycle(wanted) => recycle::run(&found().await?, output, wanted).await,
        Command::Rotate(wanted) => rotate::run(&found().await?, output, wanted).await,
        Command::Plan(wanted) => plan::run(&found().await?, output, wanted).await,
        Command::Status(wanted) => status::run(&found().await?, output, wanted).await,
        Command::Extend(wanted) => drain::extend(&found().await?, output, wanted).await,
        Command::Finish(wanted) => drain::finish(&found().await?, output, wanted).await,
        Command::Abort(wanted) if wanted.all => abort_all::abort_all(&found().await?, output, wanted).await,
        Command::Abort(wanted) => abort::abort(&found().await?, output, wanted).await,
        Command::Restore(wanted) => restore::restore(&found().await?, output, wanted).await,
        Command::Pause(wanted) => pause::run(&found().await?, output, wanted, pause::Change::Pause).await,
        Command::Resume(wanted) => pause::run(&found().await?, output, wanted, pause::Change::Resume).await,
        Command::Doctor { all } => doctor::run(&found().await?, output, *all).await,
        Command::Report(wanted) => report::run(&found().await?, output, wanted).await,
        Command::Completions { shell } => output.show_completions(*shell),
        Command::Reference => output.show_reference(),
    }
}
