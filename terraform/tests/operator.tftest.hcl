# The permissions of an operator who uses the command line.

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
      "logs:FilterLogEvents",
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
    error_message = "the policy has exactly the actions that the command line uses"
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(output.operator_policy_json).Statement :
      statement.Resource != "*" || statement.Sid == "FindTheGroupsOfTheClusterAndTheModulesRulesAndLogs"
    ])
    error_message = "the other actions are limited to the module's machines and functions, and to the groups of this cluster"
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
    error_message = "only actions without resource-level permissions (service authorization reference) are allowed on every resource"
  }

  assert {
    condition     = length(output.operator_policy_json) < 6144
    error_message = "a managed policy has at most 6,144 characters (IAM quotas)"
  }
}

run "an_operator_invokes_only_the_function_for_operators" {
  assert {
    condition = flatten([
      for statement in jsondecode(output.operator_policy_json).Statement : statement.Resource if contains(flatten([statement.Action]), "lambda:InvokeFunction")
    ]) == [aws_lambda_function.this["serve-operator"].arn]
    error_message = "the functions of the state machines evict pods and terminate instances, so an operator must not invoke them"
  }
}

run "an_operator_cannot_stop_the_sweep_and_can_tag_only_a_pause" {
  assert {
    condition = alltrue([
      for statement in jsondecode(output.operator_policy_json).Statement : alltrue([
        for resource in flatten([statement.Resource]) : !strcontains(resource, "sweep")
      ]) if contains(flatten([statement.Action]), "states:StopExecution")
    ])
    error_message = "an operator must not stop a sweep, because a stopped sweep restores no nodes"
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(output.operator_policy_json).Statement :
      statement.Condition["ForAllValues:StringEquals"]["aws:TagKeys"] == ["recycle-eks:paused"]
      && statement.Condition.StringEquals == { "aws:ResourceTag/kubernetes.io/cluster/prod" = ["owned", "shared"] }
      if contains(flatten([statement.Action]), "autoscaling:DeleteTags")
    ])
    error_message = "an operator may set only the pause tag, on groups of this cluster only"
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(output.operator_policy_json).Statement : can(regex("^[A-Z][A-Za-z]{9,}$", statement.Sid))
    ])
    error_message = "every sid is a sentence"
  }
}
