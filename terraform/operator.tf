# The permissions that an operator needs for the command line. It calls only these services. For the state of Kubernetes and EC2 it invokes
# serve-operator. The functions of the state machines are not here: each believes what its state machine sends, and some of them evict pods or
# terminate instances.

locals {
  machine_arns = {
    for machine, fields in local.machines : machine => "arn:${local.partition}:states:${local.region}:${local.account}:stateMachine:${fields.name}"
  }
  # The names of a Distributed Map's child executions contain the name of the Map Run.
  execution_arns = {
    for machine, fields in local.machines : machine => [
      "arn:${local.partition}:states:${local.region}:${local.account}:execution:${fields.name}:*",
      "arn:${local.partition}:states:${local.region}:${local.account}:execution:${fields.name}/*:*",
    ]
  }

  operator_statements = [
    {
      Sid      = "FindTheInstallationAndItsExecutions"
      Effect   = "Allow"
      Action   = ["states:DescribeStateMachine", "states:ListExecutions"]
      Resource = values(local.machine_arns)
    },
    {
      Sid      = "ReadTheHistoryOfExecutions"
      Effect   = "Allow"
      Action   = ["states:DescribeExecution", "states:GetExecutionHistory"]
      Resource = flatten(values(local.execution_arns))
    },
    {
      Sid      = "StartRecyclingRotationsAndTheSweep"
      Effect   = "Allow"
      Action   = "states:StartExecution"
      Resource = concat(values(local.machine_arns), [local.live])
    },
    {
      Sid      = "StopRecyclingAndRotations"
      Effect   = "Allow"
      Action   = "states:StopExecution"
      Resource = flatten([local.execution_arns["recycle-node"], local.execution_arns["rotate-nodes"]])
    },
    {
      Sid      = "ReadNodesAndMoveTheEndOfADrain"
      Effect   = "Allow"
      Action   = "lambda:InvokeFunction"
      Resource = aws_lambda_function.this["serve-operator"].arn
    },
    {
      # None of these actions supports resource-level permissions (service authorization reference).
      Sid    = "FindTheGroupsOfTheClusterAndTheModulesRulesAndLogs"
      Effect = "Allow"
      Action = [
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeInstanceRefreshes",
        "autoscaling:DescribeLifecycleHooks",
        "events:ListRules",
        "logs:DescribeLogGroups",
      ]
      Resource = "*"
    },
    {
      Sid      = "FindTheExecutionsOfARotation"
      Effect   = "Allow"
      Action   = "states:ListExecutions"
      Resource = "arn:${local.partition}:states:${local.region}:${local.account}:mapRun:${local.rotate_name}/*:*"
    },
    {
      Sid    = "ReadTheLogsOfFunctionsAndMachines"
      Effect = "Allow"
      Action = "logs:FilterLogEvents"
      Resource = [
        "arn:${local.partition}:logs:${local.region}:${local.account}:log-group:/aws/lambda/${var.name}-*",
        "arn:${local.partition}:logs:${local.region}:${local.account}:log-group:/aws/vendedlogs/states/${var.name}-*",
      ]
    },
    {
      Sid    = "DiagnoseTheInstallation"
      Effect = "Allow"
      Action = [
        "eks:DescribeAccessEntry",
        "eks:DescribeCluster",
        "events:ListTargetsByRule",
        "lambda:GetFunctionConfiguration",
        "sns:ListSubscriptionsByTopic",
        "sqs:GetQueueAttributes",
        "sqs:GetQueueUrl",
        "states:DescribeStateMachineAlias",
        "states:ListStateMachineVersions",
      ]
      Resource = [
        data.aws_eks_cluster.this.arn,
        "arn:${local.partition}:eks:${local.region}:${local.account}:access-entry/${var.cluster_name}/*",
        "arn:${local.partition}:events:${local.region}:${local.account}:rule/${var.name}-*",
        "arn:${local.partition}:lambda:${local.region}:${local.account}:function:${var.name}-*",
        local.notification_topic_arn,
        aws_sqs_queue.dead_letters.arn,
        local.live,
        local.machine_arns["recycle-node"],
      ]
    },
    {
      Sid      = "PauseAndResumeGroupsOfThisCluster"
      Effect   = "Allow"
      Action   = ["autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags"]
      Resource = local.groups
      Condition = {
        StringEquals                = local.of_this_cluster
        "ForAllValues:StringEquals" = { "aws:TagKeys" = ["recycle-eks:paused"] }
        # ForAllValues also holds for a call that names no tag.
        Null = { "aws:TagKeys" = "false" }
      }
    },
  ]
}
