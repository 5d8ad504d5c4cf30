//! Chooses the installation: by its name, by its cluster, or by the cluster of the kube context.

use crate::args::flags::Global;
use crate::aws::kube_context::KubeContext;
use crate::base::error::{Error, Result, misuse};

/// The variables that stand for `--name` and `--cluster`.
const NAME: &str = "RECYCLE_EKS_NAME";
const CLUSTER: &str = "RECYCLE_EKS_CLUSTER";

/// The installation that the operator wants.
#[derive(Debug)]
pub(crate) struct Choice {
    pub name: Option<String>,
    wanted: Option<Wanted>,
}

#[derive(Debug)]
pub(crate) struct Wanted {
    cluster: String,
    /// The kube context that names the cluster. None if the operator named it.
    context: Option<KubeContext>,
}

impl Choice {
    /// A flag counts more than a variable. The kube context counts if there is neither a name nor a cluster.
    pub(crate) fn of(
        global: &Global,
        variable: impl Fn(&str) -> Option<String>,
        context: impl FnOnce() -> Option<KubeContext>,
    ) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let name = global.name.clone().or_else(|| set(NAME));
        let cluster = global.cluster.clone().or_else(|| set(CLUSTER));
        let wanted = match cluster {
            Some(cluster) => Some(Wanted {
                cluster,
                context: None,
            }),
            None if name.is_some() => None,
            None => context().map(|context| Wanted {
                cluster: context.cluster.clone(),
                context: Some(context),
            }),
        };
        Self { name, wanted }
    }

    /// Refuses a kube context whose cluster is in another account or region: there may be a cluster of the same name.
    pub(crate) fn check_context(&self, account: &str, region: &str) -> Result<()> {
        let wanted = self.wanted.as_ref().filter(|_| self.name.is_none());
        let Some(context) = wanted.and_then(|wanted| wanted.context.as_ref()) else {
            return Ok(());
        };
        for (what, of, here) in [
            ("account", &context.account, account),
            ("region", &context.region, region),
        ] {
            if let Some(of) = of
                && of != here
            {
                misuse!(
                    "the cluster {:?} of your kube context {:?} is in {what} {of}, but the AWS configuration is for {what} {here}: use \
                     --profile or --region for that one, or name the installation with --cluster or --name",
                    context.cluster,
                    context.name
                );
            }
        }
        Ok(())
    }

    /// Returns the cluster whose installation has to be searched, given the cluster of the installation with the default name.
    pub(crate) fn needs_search(&self, named: &Result<Option<String>>) -> Option<&Wanted> {
        let wanted = self.wanted.as_ref().filter(|_| self.name.is_none())?;
        let is_other = match named {
            Ok(Some(cluster)) => *cluster != wanted.cluster,
            Ok(None) => false,
            Err(error) => matches!(error, Error::Usage(_)),
        };
        is_other.then_some(wanted)
    }

    /// Returns the cluster of the installation with this name. Refuses it if the operator named another one.
    pub(crate) fn check(&self, name: &str, named: Option<String>) -> Result<String> {
        match (named, &self.wanted) {
            (Some(named), Some(wanted)) if named != wanted.cluster => misuse!(
                "--cluster must be {named:?}, the cluster of the installation {name:?}, but is {:?}: leave --name out, and the cluster \
                 chooses the installation",
                wanted.cluster
            ),
            (Some(cluster), _) => Ok(cluster),
            (None, Some(wanted)) => Ok(wanted.cluster.clone()),
            (None, None) => misuse!("the definition of rotate-nodes names no cluster: use --cluster"),
        }
    }
}

/// Returns the name and the cluster of the only installation of the wanted cluster. `known` has the installations with their clusters.
pub(crate) fn choose(wanted: &Wanted, known: &[(String, String)], place: &str) -> Result<(String, String)> {
    let meant: Vec<&(String, String)> = known
        .iter()
        .filter(|(_, cluster)| *cluster == wanted.cluster)
        .collect();
    match meant.as_slice() {
        [one] => return Ok((*one).clone()),
        [] => {}
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            misuse!(
                "the cluster {:?} has {} installations in {place}: use --name with one of {}",
                wanted.cluster,
                names.len(),
                names.join(", ")
            );
        }
    }
    let known: Vec<String> = known
        .iter()
        .map(|(name, cluster)| format!("{name} of cluster {cluster}"))
        .collect();
    let known = if known.is_empty() {
        "none that you may read".to_owned()
    } else {
        known.join(", ")
    };
    let cluster = &wanted.cluster;
    match &wanted.context {
        None => misuse!(
            "there is no installation for the cluster {cluster:?} in {place} (there: {known}): check --cluster, --region and --profile"
        ),
        Some(context) => misuse!(
            "your kube context {:?} is of the cluster {cluster:?}, which has no installation in {place} (there: {known}). Name another \
             cluster with --cluster, or choose another context with kubectl config use-context.",
            context.name
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::flags::CommandLine;

    fn choice(flags: &[&str], variables: &[(&str, &str)], context: Option<&str>) -> Choice {
        let line = ["recycle-eks", "doctor"].iter().chain(flags);
        let global = CommandLine::try_parse_from(line).unwrap().global;
        let variable = |name: &str| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Choice::of(&global, variable, || context.map(context_of))
    }

    fn context_of(cluster: &str) -> KubeContext {
        KubeContext {
            name: "mine".to_owned(),
            cluster: cluster.to_owned(),
            region: Some("eu-north-1".to_owned()),
            account: Some("123456789012".to_owned()),
        }
    }

    #[test]
    fn a_context_of_another_account_or_region_is_refused_unless_an_installation_is_named() {
        for (flags, account, region, words) in [
            (&[][..], "123456789012", "eu-north-1", None),
            (
                &[],
                "123456789012",
                "us-east-1",
                Some("is in region eu-north-1, but"),
            ),
            (
                &[],
                "210987654321",
                "eu-north-1",
                Some("is in account 123456789012, but"),
            ),
            (&["--name", "n"], "210987654321", "us-east-1", None),
            (&["--cluster", "c"], "210987654321", "us-east-1", None),
        ] {
            let checked = choice(flags, &[], Some("c")).check_context(account, region);
            let refusal = checked.err().map(|error| error.to_string());
            assert_eq!(
                refusal.is_some(),
                words.is_some(),
                "{flags:?} {region}: {refusal:?}"
            );
            assert!(refusal.unwrap_or_default().contains(words.unwrap_or_default()));
        }
    }

    #[test]
    fn flags_count_more_than_variables_and_those_more_than_the_context() {
        let variables = [(NAME, "of-variable"), (CLUSTER, "of-variable")];
        for (flags, variables, name, cluster) in [
            (
                &["--name", "n", "--cluster", "c"][..],
                &variables[..],
                Some("n"),
                Some("c"),
            ),
            (&[], &variables, Some("of-variable"), Some("of-variable")),
            (&[], &[(NAME, ""), (CLUSTER, "")], None, Some("of-context")),
            (&["--name", "n"], &[], Some("n"), None),
            (&["--cluster", "c"], &[], None, Some("c")),
            (&[], &[], None, Some("of-context")),
        ] {
            let found = choice(flags, variables, Some("of-context"));
            let wanted = found.wanted.as_ref().map(|wanted| wanted.cluster.as_str());
            assert_eq!(
                (found.name.as_deref(), wanted),
                (name, cluster),
                "{flags:?} {variables:?}"
            );
        }
    }

    #[test]
    fn another_installation_is_searched_only_if_the_default_one_is_of_another_cluster() {
        let named = |cluster: &str| Ok(Some(cluster.to_owned()));
        let missing = || Err(Error::Usage("none".to_owned()));
        let denied = || Err(Error::NoAccess("no".to_owned()));
        for (flags, context, found, is_searched) in [
            (&[][..], None, named("a"), false),
            (&[], Some("a"), named("a"), false),
            (&[], Some("b"), named("a"), true),
            (&[], Some("b"), missing(), true),
            (&[], Some("b"), denied(), false),
            (&[], Some("b"), Ok(None), false),
            (&["--cluster", "b"], None, named("a"), true),
            (&["--cluster", "b", "--name", "n"], None, named("a"), false),
            (&["--name", "n"], Some("b"), named("a"), false),
        ] {
            let choice = choice(flags, &[], context);
            assert_eq!(
                choice.needs_search(&found).is_some(),
                is_searched,
                "{flags:?} {context:?}"
            );
        }
    }

    #[test]
    fn a_cluster_of_another_installation_is_refused() {
        let named = || Some("production".to_owned());
        let check = |flags: &[&str], named| choice(flags, &[], None).check("n", named);
        assert_eq!(check(&[], named()).unwrap(), "production");
        assert_eq!(check(&["--cluster", "a"], None).unwrap(), "a");
        let refusal = check(&["--name", "n", "--cluster", "a"], named()).unwrap_err();
        assert!(
            refusal.to_string().contains("must be \"production\""),
            "{refusal}"
        );
        assert!(check(&[], None).is_err());
    }

    #[test]
    fn the_installation_of_the_cluster_is_chosen_or_the_error_names_the_others() {
        let known = [("one", "a"), ("two", "b"), ("three", "b")];
        let known = known.map(|(name, cluster)| (name.to_owned(), cluster.to_owned()));
        let of = |flags: &[&str], context: Option<&str>| {
            let choice = choice(flags, &[], context);
            choose(&choice.wanted.unwrap(), &known, "region x").map_err(|error| error.to_string())
        };
        assert_eq!(
            of(&["--cluster", "a"], None),
            Ok(("one".to_owned(), "a".to_owned()))
        );
        assert_eq!(
            of(&["--cluster", "b"], None).unwrap_err(),
            "the cluster \"b\" has 2 installations in region x: use --name with one of two, three"
        );
        assert_eq!(
            of(&["--cluster", "c"], None).unwrap_err(),
            "there is no installation for the cluster \"c\" in region x (there: one of cluster a, two of cluster b, three of cluster b): \
             check --cluster, --region and --profile"
        );
        let refusal = of(&[], Some("c")).unwrap_err();
        assert!(
            refusal.starts_with("your kube context \"mine\" is of the cluster \"c\""),
            "{refusal}"
        );
    }
}
