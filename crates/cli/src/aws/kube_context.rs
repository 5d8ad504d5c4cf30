//! Finds the EKS cluster of the current context in the kubeconfig. Nothing else in the file is used.

use std::path::PathBuf;

use serde_json::Value;

/// The current context, if its cluster is one of EKS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KubeContext {
    pub name: String,
    pub cluster: String,
    /// The region of the cluster, if the kubeconfig names it.
    pub region: Option<String>,
    /// The account of the cluster, if the kubeconfig names it.
    pub account: Option<String>,
}

impl KubeContext {
    /// Reads the files that kubectl reads. A file that cannot be read or parsed counts as empty.
    pub(crate) fn read() -> Option<Self> {
        let files: Vec<PathBuf> = match std::env::var_os("KUBECONFIG").filter(|files| !files.is_empty()) {
            Some(files) => std::env::split_paths(&files).collect(),
            None => vec![std::env::home_dir()?.join(".kube/config")],
        };
        let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        Self::find(&texts.collect::<Vec<_>>())
    }

    /// The first file that has a current context, a context of this name, or a user counts, as for kubectl.
    fn find(texts: &[String]) -> Option<Self> {
        let files = texts.iter().filter_map(|text| serde_yaml_ng::from_str(text).ok());
        let files: Vec<Value> = files.collect();
        let mut names = files.iter().filter_map(|file| file["current-context"].as_str());
        let name = names.find(|name| !name.is_empty())?;
        let named = |list: &str, name: &str| {
            let mut entries = files.iter().filter_map(|file| file[list].as_array()).flatten();
            entries.find(|entry| entry["name"] == name).cloned()
        };
        let context = named("contexts", name)?;
        let cluster = context["context"]["cluster"].as_str()?;
        let user = context["context"]["user"].as_str();
        let user = user.and_then(|user| named("users", user)).unwrap_or_default();
        let account = read_arn(cluster).map(|(_, _, account)| account);
        let (cluster, region) = read_arn(cluster)
            .map(|(cluster, region, _)| (cluster, Some(region)))
            .or_else(|| read_program(&user["user"]["exec"]))
            .or_else(|| read_eksctl(cluster))?;
        Some(Self {
            name: name.to_owned(),
            cluster,
            region,
            account,
        })
    }
}

/// The name that `aws eks update-kubeconfig` gives to a cluster: its ARN.
fn read_arn(cluster: &str) -> Option<(String, String, String)> {
    let parts: Vec<&str> = cluster.split(':').collect();
    let ["arn", _, "eks", region, account, resource] = parts.as_slice() else {
        return None;
    };
    let name = resource.strip_prefix("cluster/")?;
    Some((name.to_owned(), (*region).to_owned(), (*account).to_owned()))
}

/// The program that writes a user's token: the AWS CLI, or aws-iam-authenticator.
fn read_program(program: &Value) -> Option<(String, Option<String>)> {
    let words = program["args"].as_array()?.iter().filter_map(Value::as_str);
    let words: Vec<&str> = words.collect();
    let value = |flags: &[&str]| {
        let at = words.iter().position(|word| flags.contains(word))?;
        Some((*words.get(at + 1)?).to_owned())
    };
    let is_of_eks = words.contains(&"get-token") || words.contains(&"token");
    let cluster = value(&["--cluster-name", "--cluster-id", "-i"]).filter(|_| is_of_eks)?;
    Some((cluster, value(&["--region"])))
}

/// The name that eksctl gives to a cluster: `name.region.eksctl.io`.
fn read_eksctl(cluster: &str) -> Option<(String, Option<String>)> {
    let (name, region) = cluster.strip_suffix(".eksctl.io")?.rsplit_once('.')?;
    Some((name.to_owned(), Some(region.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, arguments: &str) -> String {
        format!(
            "apiVersion: v1\ncurrent-context: mine\nclusters:\n- cluster: {{server: https://x}}\n  name: {cluster}\ncontexts:\n\
             - context:\n    cluster: other\n    user: me\n  name: theirs\n\
             - context:\n    cluster: {cluster}\n    user: me\n  name: mine\n\
             users:\n- name: me\n  user:\n    exec:\n      command: aws\n      args: [{arguments}]\n"
        )
    }

    fn find(texts: &[&str]) -> Option<(String, Option<String>)> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let found = KubeContext::find(&texts)?;
        assert_eq!(found.name, "mine");
        let has_arn = texts.iter().any(|text| text.contains("arn:aws:eks"));
        assert_eq!(found.account.as_deref(), has_arn.then_some("123456789012"));
        Some((found.cluster, found.region))
    }

    #[test]
    fn the_cluster_of_the_current_context_is_found() {
        let arn = config("arn:aws:eks:eu-west-1:123456789012:cluster/prod", "");
        let aws = config("any", "--region, eu-west-1, eks, get-token, --cluster-name, prod");
        let authenticator = config("any", "token, -i, prod");
        let eksctl = config("prod.eu-west-1.eksctl.io", "");
        let region = Some("eu-west-1".to_owned());
        for (text, region) in [
            (&arn, region.clone()),
            (&aws, region.clone()),
            (&authenticator, None),
            (&eksctl, region),
        ] {
            assert_eq!(find(&[text]), Some(("prod".to_owned(), region)), "{text}");
        }
        let (context, cluster) = (
            "current-context: mine\n",
            arn.replace("current-context: mine", "current-context: ''"),
        );
        assert_eq!(
            find(&[context, &cluster]).map(|(name, _)| name).as_deref(),
            Some("prod")
        );
    }

    #[test]
    fn a_context_of_another_kind_of_cluster_does_not_count() {
        let kind = config("kind-test", "");
        let other = config("any", "login, -i, prod");
        for texts in [
            &[kind.as_str()][..],
            &[&other],
            &["current-context: mine"],
            &["{"],
            &["- 1"],
            &[""],
            &[],
        ] {
            assert_eq!(find(texts), None, "{texts:?}");
        }
    }
}
