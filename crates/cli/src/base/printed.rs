//! Commands that the output prints. They have the flags that chose the installation, so that a pasted one works on the same one.

use std::fmt::Display;
use std::sync::OnceLock;

use recycle::base::shell::quote;

/// The flags of this run.
static FLAGS: OnceLock<Flags> = OnceLock::new();

/// The same choice in three forms.
#[derive(Debug)]
struct Flags {
    /// For commands of recycle-eks.
    own: String,
    /// For commands of the AWS CLI.
    aws: String,
    /// For a shell.
    environment: String,
}

/// The flags that the AWS CLI has, too, and its environment variables for them.
const SHARED: [(&str, &str); 2] = [("--profile", "AWS_PROFILE"), ("--region", "AWS_REGION")];

/// Keeps the flags that were given, with their values. Only the first call counts.
pub(crate) fn keep_flags(given: &[(&str, Option<&str>)]) {
    let _kept = FLAGS.set(Flags::write(given));
}

impl Flags {
    fn write(given: &[(&str, Option<&str>)]) -> Self {
        let (mut own, mut aws, mut environment) = (String::new(), String::new(), String::new());
        for (flag, value) in given {
            let Some(value) = value.map(quote) else { continue };
            own += &format!(" {flag} {value}");
            if let Some((_, variable)) = SHARED.iter().find(|(shared, _)| shared == flag) {
                aws += &format!(" {flag} {value}");
                environment += &format!(" {variable}={value}");
            }
        }
        if !environment.is_empty() {
            environment = format!("export{environment}");
        }
        Self {
            own,
            aws,
            environment,
        }
    }
}

/// Returns a command of recycle-eks. `words` are the subcommand and its arguments.
pub(crate) fn recycle_eks(words: impl Display) -> String {
    let flags = FLAGS.get().map_or("", |kept| &kept.own);
    format!("recycle-eks {words}{flags}")
}

/// Returns one command of the AWS CLI. `words` are the service, the operation and its arguments.
pub(crate) fn aws(words: impl Display) -> String {
    let flags = FLAGS.get().map_or("", |kept| &kept.aws);
    format!("aws {words}{flags}")
}

/// Returns a line that makes the same choice for commands that follow, such as those of a script. None if there is nothing to choose.
pub(crate) fn environment() -> Option<&'static str> {
    let kept = FLAGS.get()?;
    Some(kept.environment.as_str()).filter(|line| !line.is_empty())
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
        let flags = Flags::write(&given);
        assert_eq!(flags.own, " --profile 'night shift' --cluster staging");
        assert_eq!(flags.aws, " --profile 'night shift'");
        assert_eq!(flags.environment, "export AWS_PROFILE='night shift'");
        let none = Flags::write(&[("--profile", None)]);
        assert_eq!(format!("{}{}{}", none.own, none.aws, none.environment), "");
        // No test of this process keeps flags.
        assert_eq!(recycle_eks("pause --all"), "recycle-eks pause --all");
        assert_eq!(aws("ec2 describe-instances"), "aws ec2 describe-instances");
        assert_eq!(environment(), None);
    }
}
