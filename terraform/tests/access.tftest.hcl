# The identity of the functions in Kubernetes.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "every_role_that_calls_kubernetes_is_in_the_group_recycle_eks" {
  command = plan

  assert {
    condition     = keys(aws_eks_access_entry.function) == [for function in keys(aws_iam_role.function) : function if function != "start-rotation"]
    error_message = "each function that calls Kubernetes has an access entry for its role"
  }

  assert {
    condition = alltrue([
      for entry in aws_eks_access_entry.function :
      entry.cluster_name == "prod" && entry.type == "STANDARD" && entry.kubernetes_groups == toset(["recycle-eks"])
    ])
    error_message = "every entry is in this cluster, in the group recycle-eks and in no other group"
  }

  assert {
    condition = alltrue([
      for document in split("\n---\n", output.rbac_manifest) : contains(["ClusterRole", "ClusterRoleBinding"], yamldecode(document).kind)
    ])
    error_message = "the manifest has only the group's role and its binding"
  }

  assert {
    condition = one([
      for document in split("\n---\n", output.rbac_manifest) : yamldecode(document).subjects if yamldecode(document).kind == "ClusterRoleBinding"
    ])[0].name == "recycle-eks"
    error_message = "the binding is for the group of the access entries"
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
