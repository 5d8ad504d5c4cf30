# The identity of the functions in Kubernetes.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "every_role_that_calls_kubernetes_is_in_the_groups_that_it_needs" {
  command = plan

  assert {
    condition     = keys(aws_eks_access_entry.function) == [for function in keys(aws_iam_role.function) : function if function != "start-rotation"]
    error_message = "each function that calls Kubernetes has an access entry for its role"
  }

  assert {
    condition = alltrue([
      for entry in aws_eks_access_entry.function :
      entry.cluster_name == "prod" && entry.type == "STANDARD" && contains(entry.kubernetes_groups, "recycle-eks-read")
    ])
    error_message = "every entry is in this cluster, and may read"
  }

  assert {
    condition     = [for function, entry in aws_eks_access_entry.function : function if contains(entry.kubernetes_groups, "recycle-eks-evict")] == ["evict-pods"]
    error_message = "only evict-pods may evict pods"
  }

  assert {
    condition     = [for function, entry in aws_eks_access_entry.function : function if !contains(entry.kubernetes_groups, "recycle-eks-write")] == ["select-nodes", "serve-operator"]
    error_message = "select-nodes, which only reads, may change nothing"
  }

  assert {
    condition     = { for function, groups in output.kubernetes_groups : function => toset(groups) } == { for function, entry in aws_eks_access_entry.function : function => entry.kubernetes_groups }
    error_message = "an output lists the groups of each function"
  }

  assert {
    condition = alltrue([
      for document in split("\n---\n", output.rbac_manifest) : contains(["Namespace", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"], yamldecode(document).kind)
    ])
    error_message = "the manifest has only a namespace, the roles of the groups and their bindings"
  }

  assert {
    condition = toset([
      for document in split("\n---\n", output.rbac_manifest) : yamldecode(document).subjects[0].name if endswith(yamldecode(document).kind, "RoleBinding")
    ]) == toset(flatten([for entry in aws_eks_access_entry.function : tolist(entry.kubernetes_groups)]))
    error_message = "the bindings are for the groups of the access entries"
  }
}

run "the_entries_can_be_created_outside_the_module" {
  command = plan

  variables {
    create_access_entries = false
  }

  assert {
    condition     = length(aws_eks_access_entry.function) == 0
    error_message = "the module creates no access entry"
  }

  assert {
    condition     = keys(output.role_arns) == [for function in keys(aws_lambda_function.this) : function if function != "start-rotation"]
    error_message = "an output lists the roles that need an entry"
  }
}

run "a_cluster_that_cannot_have_entries_is_refused" {
  command = plan

  override_data {
    target = data.aws_eks_cluster.this
    values = { access_config = [{ authentication_mode = "CONFIG_MAP" }] }
  }

  expect_failures = [data.aws_eks_cluster.this]
}

run "a_cluster_with_config_map_is_accepted_without_entries" {
  command = plan

  override_data {
    target = data.aws_eks_cluster.this
    values = { access_config = [{ authentication_mode = "CONFIG_MAP" }] }
  }

  variables {
    create_access_entries = false
  }
}
