# What a person may do who works with the command line.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "an_operator_has_exactly_the_actions_that_the_command_line_uses" {
  assert {
    condition = toset(flatten([for statement in jsondecode(output.operator_policy_json).Statement : statement.Action])) == toset([
      "autoscaling:CreateOrUpdateTags",
      "autoscaling:DeleteTags",
      "autoscaling:DescribeAutoScalingGroups",
      "autoscaling:DescribeInstanceRefreshes",
      "autoscaling:DescribeLifecycleHooks",
      "eks:DescribeAccessEntry",
      "eks:DescribeCluster",
      "events:ListRules",
      "events:ListTargetsByRule",
      "lambda:GetFunctionConfiguration",
      "lambda:InvokeFunction",
      "logs:DescribeLogGroups",
      "sns:ListSubscriptionsByTopic",
      "sqs:GetQueueAttributes",
      "sqs:GetQueueUrl",
      "states:DescribeExecution",
      "states:DescribeStateMachine",
      "states:DescribeStateMachineAlias",
      "states:GetExecutionHistory",
      "states:ListExecutions",
      "states:ListStateMachineVersions",
      "states:StartExecution",
      "states:StopExecution",
    ])
    error_message = "these actions and no others"
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(output.operator_policy_json).Statement :
      statement.Resource != "*" || statement.Sid == "FindTheGroupsOfTheClusterAndTheModulesRulesAndLogs"
    ])
    error_message = "on our own machines and functions, and the groups of this cluster"
  }

  assert {
    condition = toset(flatten([
      for statement in jsondecode(output.operator_policy_json).Statement : statement.Action if statement.Resource == "*"
      ])) == toset([
      "autoscaling:DescribeAutoScalingGroups",
      "autoscaling:DescribeInstanceRefreshes",
      "autoscaling:DescribeLifecycleHooks",
      "events:ListRules",
      "logs:DescribeLogGroups",
    ])
    error_message = "exactly what knows no resources (service authorization reference) is allowed on everything: on a resource it would be refused"
  }

  assert {
    condition     = length(output.operator_policy_json) < 6144
    error_message = "a managed policy has at most 6,144 characters (IAM quotas)"
  }
}

run "an_operator_stops_no_sweep_and_tags_nothing_but_a_pause" {
  assert {
    condition = alltrue([
      for statement in jsondecode(output.operator_policy_json).Statement : alltrue([
        for resource in flatten([statement.Resource]) : !strcontains(resource, "sweep")
      ]) if contains(flatten([statement.Action]), "states:StopExecution")
    ])
    error_message = "a sweep that is stopped would leave nodes as they are"
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(output.operator_policy_json).Statement :
      statement.Condition["ForAllValues:StringEquals"]["aws:TagKeys"] == ["recycle-eks:paused"]
      && statement.Condition.StringEquals == { "aws:ResourceTag/kubernetes.io/cluster/prod" = ["owned", "shared"] }
      if contains(flatten([statement.Action]), "autoscaling:DeleteTags")
    ])
    error_message = "only the pause, only on groups of this cluster"
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(output.operator_policy_json).Statement : can(regex("^[A-Z][A-Za-z]{9,}$", statement.Sid))
    ])
    error_message = "every sid is a sentence"
  }
}
