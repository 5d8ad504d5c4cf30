//! Commands that the output prints. They have the flags that chose the installation, so that a pasted one works on the same one.

use std::fmt::Display;
use std::sync::OnceLock;

use recycle::base::shell::quote;

/// The flags of this run: for commands of recycle-eks, and for those of the AWS CLI.
static FLAGS: OnceLock<(String, String)> = OnceLock::new();

/// The flags that recycle-eks and the AWS CLI share.
const SHARED: [&str; 2] = ["--profile", "--region"];

/// Keeps the flags that were given, with their values. Only the first call counts.
pub(crate) fn keep_flags(given: &[(&str, Option<&str>)]) {
    let _kept = FLAGS.set((
        write_flags(given, |_| true),
        write_flags(given, |flag| SHARED.contains(&flag)),
    ));
}

fn write_flags(given: &[(&str, Option<&str>)], is_meant: fn(&str) -> bool) -> String {
    let meant = given.iter().filter(|(flag, _)| is_meant(flag));
    let written = meant.filter_map(|(flag, value)| Some(format!(" {flag} {}", quote((*value)?))));
    written.collect()
}

/// Returns a command of recycle-eks. `words` are the subcommand and its arguments.
pub(crate) fn recycle_eks(words: impl Display) -> String {
    let flags = FLAGS.get().map_or("", |(own, _)| own);
    format!("recycle-eks {words}{flags}")
}

/// Adds the flags to a command if it is one of the AWS CLI.
pub(crate) fn with_flags(command: &str) -> String {
    let flags = FLAGS.get().filter(|_| command.starts_with("aws "));
    format!("{command}{}", flags.map_or("", |(_, aws)| aws))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_command_has_the_flags_that_were_given() {
        let given = [
            ("--profile", Some("night shift")),
            ("--region", None),
            ("--cluster", Some("staging")),
        ];
        assert_eq!(
            write_flags(&given, |_| true),
            " --profile 'night shift' --cluster staging"
        );
        assert_eq!(
            write_flags(&given, |flag| SHARED.contains(&flag)),
            " --profile 'night shift'"
        );
        // No test of this process keeps flags.
        assert_eq!(recycle_eks("pause --all"), "recycle-eks pause --all");
        assert_eq!(
            with_flags("aws ec2 describe-instances"),
            "aws ec2 describe-instances"
        );
        assert_eq!(with_flags("wait for the hook"), "wait for the hook");
    }
}
