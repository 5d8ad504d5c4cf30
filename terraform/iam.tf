# One role for each function, with exactly the calls that its code makes, and one for each state machine.
# The presigned GetCallerIdentity inside a Kubernetes token needs no permission.

locals {
  instances = "arn:${local.partition}:ec2:${local.region}:${local.account}:instance/*"
  groups    = "arn:${local.partition}:autoscaling:${local.region}:${local.account}:autoScalingGroup:*:autoScalingGroupName/*"

  # This tag marks the groups and instances of this cluster. EKS sets it on managed groups and requires it on all others.
  of_this_cluster = {
    "aws:ResourceTag/kubernetes.io/cluster/${var.cluster_name}" = ["owned", "shared"]
  }

  # The tags that each function writes and removes. All of them belong to recycle-eks.
  tags_written = {
    claim-node       = ["recycle-eks:claim", "recycle-eks:group"]
    standby-node     = ["recycle-eks:claim", "recycle-eks:group", "recycle-eks:standby", "recycle-eks:restore-log", "recycle-eks:protected-for"]
    detach-terminate = ["recycle-eks:claim", "recycle-eks:group", "recycle-eks:stopped", "recycle-eks:detached", "recycle-eks:protected-for"]
    restore-node     = ["recycle-eks:claim", "recycle-eks:group", "recycle-eks:restore-log", "recycle-eks:protected-for", "recycle-eks:gave-up"]
  }
  tags_removed = {
    detach-terminate = [
      "recycle-eks:claim", "recycle-eks:group", "recycle-eks:standby", "recycle-eks:restore-log", "recycle-eks:gave-up", "recycle-eks:protected-for",
    ]
    restore-node = [
      "recycle-eks:claim", "recycle-eks:group", "recycle-eks:standby", "recycle-eks:restore-log", "recycle-eks:protected-for", "recycle-eks:gave-up",
    ]
  }

  find_instances = {
    Sid      = "FindInstances"
    Effect   = "Allow"
    Action   = "ec2:DescribeInstances"
    Resource = "*"
  }
  find_the_group_of_an_instance = {
    Sid      = "FindTheGroupOfAnInstance"
    Effect   = "Allow"
    Action   = "autoscaling:DescribeAutoScalingInstances"
    Resource = "*"
  }
  read_groups = {
    Sid      = "ReadGroups"
    Effect   = "Allow"
    Action   = "autoscaling:DescribeAutoScalingGroups"
    Resource = "*"
  }
  watch_instance_refreshes = {
    Sid      = "WatchInstanceRefreshes"
    Effect   = "Allow"
    Action   = "autoscaling:DescribeInstanceRefreshes"
    Resource = "*"
  }
  watch_managed_node_groups_of_this_cluster = {
    Sid      = "WatchManagedNodeGroupsOfThisCluster"
    Effect   = "Allow"
    Action   = "eks:DescribeNodegroup"
    Resource = "arn:${local.partition}:eks:${local.region}:${local.account}:nodegroup/${var.cluster_name}/*"
  }
  # Every group is checked for the hook of recycle-eks: a hook that was removed from the variable may leave members that wait for it.
  find_our_hook = {
    Sid      = "FindLifecycleHooks"
    Effect   = "Allow"
    Action   = "autoscaling:DescribeLifecycleHooks"
    Resource = "*"
  }
  hooked_groups = [
    for hook in values(var.lifecycle_hooks) :
    "arn:${local.partition}:autoscaling:${local.region}:${local.account}:autoScalingGroup:*:autoScalingGroupName/${hook.auto_scaling_group_name}"
  ]
  # The groups are given by name, not by tag: if the hook holds a member of another cluster by mistake, that hook must be completed too. The
  # names are in managed policies, which have 6,144 characters each. All inline policies of a role have 10,240 characters together (IAM user
  # guide, "IAM and AWS STS quotas"). 16 names of the maximum length, 255 characters, take 5,900 characters.
  groups_of_policy = { for number, groups in chunklist(local.hooked_groups, 16) : tostring(number + 1) => groups }
  hook_policies = merge(flatten([
    for number, groups in local.groups_of_policy : [
      for kind, statement in {
        complete   = { Sid = "CompleteLifecycleActions", Action = "autoscaling:CompleteLifecycleAction" }
        keep-alive = { Sid = "KeepLifecycleHooksAlive", Action = "autoscaling:RecordLifecycleActionHeartbeat" }
      } : { "${kind}-${number}" = merge(statement, { Effect = "Allow", Resource = groups }) }
    ]
  ])...)
  complete_hooks_by_function = {
    for pair in setproduct(["claim-node", "detach-terminate", "restore-node"], keys(local.groups_of_policy)) :
    "${pair[0]}-${pair[1]}" => { function = pair[0], policy = "complete-${pair[1]}" }
  }
  # Both functions write claims. They ask whether the execution that holds a claim still runs, and whether their own does.
  ask_for_executions_with_claims = {
    Sid      = "ReadWhetherExecutionsThatHoldClaimsRun"
    Effect   = "Allow"
    Action   = "states:DescribeExecution"
    Resource = [for name in [local.machine_name, local.sweep_name] : "arn:${local.partition}:states:${local.region}:${local.account}:execution:${name}:*"]
  }
  start_recycling = {
    Sid      = "StartRecyclingNodes"
    Effect   = "Allow"
    Action   = "states:StartExecution"
    Resource = [trimsuffix(local.live, ":live"), local.live]
  }
  tag_instances_of_this_cluster = {
    for function, keys in local.tags_written : function => {
      Sid      = "TagInstancesOfThisCluster"
      Effect   = "Allow"
      Action   = "ec2:CreateTags"
      Resource = local.instances
      Condition = {
        StringEquals                = local.of_this_cluster
        "ForAllValues:StringEquals" = { "aws:TagKeys" = keys }
        # ForAllValues also holds for a call that names no tag.
        Null = { "aws:TagKeys" = "false" }
      }
    }
  }
  untag_instances_of_this_cluster = {
    for function, keys in local.tags_removed : function => {
      Sid      = "UntagInstancesOfThisCluster"
      Effect   = "Allow"
      Action   = "ec2:DeleteTags"
      Resource = local.instances
      Condition = {
        StringEquals                = local.of_this_cluster
        "ForAllValues:StringEquals" = { "aws:TagKeys" = keys }
        # DeleteTags without a tag's name removes every tag.
        Null = { "aws:TagKeys" = "false" }
      }
    }
  }

  # The permissions of each function, beyond those that all functions have.
  statements = {
    claim-node = [
      local.find_instances,
      local.find_our_hook,
      local.find_the_group_of_an_instance,
      local.read_groups,
      local.watch_instance_refreshes,
      local.watch_managed_node_groups_of_this_cluster,
      {
        Sid      = "ReadTheTargetsOfLoadBalancers"
        Effect   = "Allow"
        Action   = "elasticloadbalancing:DescribeTargetHealth"
        Resource = "*"
      },
      local.tag_instances_of_this_cluster["claim-node"],
      local.ask_for_executions_with_claims,
    ]
    standby-node = [
      local.find_instances,
      local.read_groups,
      local.tag_instances_of_this_cluster["standby-node"],
      {
        Sid       = "LaunchReplacementsInThisCluster"
        Effect    = "Allow"
        Action    = ["autoscaling:EnterStandby", "autoscaling:SetDesiredCapacity", "autoscaling:SetInstanceProtection"]
        Resource  = local.groups
        Condition = { StringEquals = local.of_this_cluster }
      },
    ]
    taint-node = []
    check-pods = concat(
      [
        local.read_groups,
        local.find_our_hook,
        local.watch_instance_refreshes,
        local.watch_managed_node_groups_of_this_cluster,
      ],
      [
        for statement in [{
          Sid       = "CancelInstanceRefreshesInThisCluster"
          Effect    = "Allow"
          Action    = "autoscaling:CancelInstanceRefresh"
          Resource  = local.groups
          Condition = { StringEquals = local.of_this_cluster }
        }] : statement if var.cancel_instance_refresh
      ],
    )
    evict-pods = []
    detach-terminate = [
      local.find_instances,
      local.find_our_hook,
      local.read_groups,
      local.tag_instances_of_this_cluster["detach-terminate"],
      local.untag_instances_of_this_cluster["detach-terminate"],
      {
        Sid       = "TerminateInstancesOfThisCluster"
        Effect    = "Allow"
        Action    = "autoscaling:TerminateInstanceInAutoScalingGroup"
        Resource  = local.groups
        Condition = { StringEquals = local.of_this_cluster }
      },
      {
        Sid       = "DetachInstancesOfThisClusterAndProtectTheOthers"
        Effect    = "Allow"
        Action    = ["autoscaling:DetachInstances", "autoscaling:SetInstanceProtection"]
        Resource  = local.groups
        Condition = { StringEquals = local.of_this_cluster }
      },
      {
        Sid      = "StopClaimedInstancesOfThisCluster"
        Effect   = "Allow"
        Action   = "ec2:StopInstances"
        Resource = local.instances
        Condition = {
          StringEquals = local.of_this_cluster
          Null         = { "aws:ResourceTag/recycle-eks:claim" = "false" }
        }
      },
    ]
    restore-node = [
      local.ask_for_executions_with_claims,
      local.find_instances,
      local.find_our_hook,
      local.find_the_group_of_an_instance,
      local.read_groups,
      local.tag_instances_of_this_cluster["restore-node"],
      local.untag_instances_of_this_cluster["restore-node"],
      {
        Sid    = "RestoreInstancesOfThisCluster"
        Effect = "Allow"
        Action = [
          "autoscaling:ExitStandby",
          "autoscaling:SetDesiredCapacity",
          "autoscaling:SetInstanceProtection",
          "autoscaling:TerminateInstanceInAutoScalingGroup",
        ]
        Resource  = local.groups
        Condition = { StringEquals = local.of_this_cluster }
      },
    ]
    select-nodes = [
      local.find_instances,
      local.read_groups,
      local.find_our_hook,
      {
        Sid      = "ReadImagesAndLaunchTemplates"
        Effect   = "Allow"
        Action   = ["ec2:DescribeImages", "ec2:DescribeLaunchTemplateVersions"]
        Resource = "*"
      },
      {
        Sid      = "ReadTheStateOfRotationsAndTheirNodes"
        Effect   = "Allow"
        Action   = "states:DescribeExecution"
        Resource = [for name in [local.machine_name, local.rotate_name] : "arn:${local.partition}:states:${local.region}:${local.account}:execution:${name}:*"]
      },
      {
        Sid      = "FindNodesOfRotationsThatFailedAndAreGone"
        Effect   = "Allow"
        Action   = "states:ListExecutions"
        Resource = "arn:${local.partition}:states:${local.region}:${local.account}:stateMachine:${local.machine_name}"
      },
    ]
    # It changes nothing in AWS. Operators may invoke it, so it must not have permissions that operators do not have.
    serve-operator = [
      local.find_instances,
      local.read_groups,
      {
        # `doctor` asks about an execution that does not exist. Any answer shows that Step Functions can be reached.
        Sid      = "LearnWhetherStepFunctionsAnswers"
        Effect   = "Allow"
        Action   = "states:DescribeExecution"
        Resource = "arn:${local.partition}:states:${local.region}:${local.account}:execution:${local.machine_name}:doctor"
      },
    ]
    start-rotation = concat([local.start_rotations], local.leave_dead_letters)
  }

  start_rotations = {
    Sid      = "StartRotations"
    Effect   = "Allow"
    Action   = "states:StartExecution"
    Resource = local.rotate
  }
  leave_dead_letters = concat(
    [{
      Sid      = "SendDeadLetters"
      Effect   = "Allow"
      Action   = "sqs:SendMessage"
      Resource = local.dead_letters
    }],
    [
      for key in compact([var.kms_key_arn]) : {
        Sid      = "EncryptDeadLetters"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource = key
      }
    ],
  )

  # The permissions of all functions, and of all functions that call Kubernetes.
  common_statements = {
    for function in keys(local.functions) : function => concat(
      [
        for statement in [{
          Sid      = "FindTheEndpointOfThisCluster"
          Effect   = "Allow"
          Action   = "eks:DescribeCluster"
          Resource = data.aws_eks_cluster.this.arn
        }] : statement if contains(local.in_cluster, function)
      ],
      [{
        Sid      = "WriteItsOwnLog"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = "${aws_cloudwatch_log_group.function[function].arn}:*"
      }],
    )
  }

  tracing_statements = [
    for statement in [{
      Sid      = "SendTraces"
      Effect   = "Allow"
      Action   = ["xray:PutTraceSegments", "xray:PutTelemetryRecords"]
      Resource = "*"
    }] : statement if var.tracing
  ]

  # Lambda makes these calls with the function's role when it connects a function to a VPC.
  vpc_actions = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
  ]
  vpc_statements = {
    for function in keys(local.functions) : function => [
      for statement in [
        {
          Sid      = "LetLambdaJoinTheVpc"
          Effect   = "Allow"
          Action   = local.vpc_actions
          Resource = "*"
        },
        {
          Sid       = "KeepTheFunctionsOwnCodeFromUsingThat"
          Effect    = "Deny"
          Action    = local.vpc_actions
          Resource  = "*"
          Condition = { ArnEquals = { "lambda:SourceFunctionArn" = "arn:${local.partition}:lambda:${local.region}:${local.account}:function:${var.name}-${function}" } }
        },
      ] : statement if var.vpc != null
    ]
  }
}

################################################################################
# Functions
################################################################################

resource "aws_iam_role" "function" {
  for_each = local.functions

  name                 = "${var.name}-${each.key}-${local.region}"
  path                 = var.iam_role_path
  description          = "recycle-eks: the function ${each.key}"
  permissions_boundary = var.iam_role_permissions_boundary
  tags                 = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "LambdaRunsTheFunction"
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "lambda.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "function" {
  for_each = local.functions

  name = each.key
  role = aws_iam_role.function[each.key].name

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      local.common_statements[each.key],
      local.statements[each.key],
      local.tracing_statements,
      local.vpc_statements[each.key],
    )
  })
}

################################################################################
# Lifecycle hooks
################################################################################

resource "aws_iam_policy" "lifecycle_hooks" {
  for_each = local.hook_policies

  name        = "${var.name}-hooks-${each.key}-${local.region}"
  path        = var.iam_role_path
  description = "recycle-eks: lifecycle hooks of Auto Scaling groups"
  policy      = jsonencode({ Version = "2012-10-17", Statement = [each.value] })
  tags        = var.tags
}

resource "aws_iam_role_policy_attachment" "complete_lifecycle_hooks" {
  for_each = local.complete_hooks_by_function

  role       = aws_iam_role.function[each.value.function].name
  policy_arn = aws_iam_policy.lifecycle_hooks[each.value.policy].arn
}

resource "aws_iam_role_policy_attachment" "keep_lifecycle_hooks_alive" {
  for_each = local.groups_of_policy

  role       = aws_iam_role.state_machine["recycle-node"].name
  policy_arn = aws_iam_policy.lifecycle_hooks["keep-alive-${each.key}"].arn
}

################################################################################
# State machines
################################################################################

locals {
  every_version = { for function in keys(local.functions) : function => "arn:${local.partition}:lambda:${local.region}:${local.account}:function:${var.name}-${function}:*" }

  # The permissions of each state machine, beyond those that all have.
  machines = {
    recycle-node = {
      name       = local.machine_name
      statements = [local.send_events]
      functions  = setsubtract(local.in_cluster, ["select-nodes", "serve-operator"])
    }
    rotate-nodes = {
      name       = local.rotate_name
      functions  = ["restore-node", "select-nodes", "taint-node"]
      statements = concat([local.start_recycling], local.go_through_groups)
    }
    sweep = {
      name       = local.sweep_name
      statements = [local.start_recycling]
      functions  = ["restore-node", "select-nodes"]
    }
  }

  # Each group of a rotation has its own child execution (Distributed Map), which waits for the executions of its nodes (.sync:2). Step Functions
  # makes these calls with the machine's role (developer guide, "IAM policies for using Distributed Map states" and "for StepFunctions").
  go_through_groups = [
    {
      # CloudWatch shows composite alarms only to callers that may describe all alarms (API reference of DescribeAlarms).
      Sid      = "ReadTheAlarmsThatHoldARotation"
      Effect   = "Allow"
      Action   = "cloudwatch:DescribeAlarms"
      Resource = "*"
    },
    {
      Sid      = "StartAnExecutionForEachGroup"
      Effect   = "Allow"
      Action   = "states:StartExecution"
      Resource = local.rotate
    },
    {
      Sid      = "FollowAndStopTheExecutionsOfGroupsAndNodes"
      Effect   = "Allow"
      Action   = ["states:DescribeExecution", "states:StopExecution"]
      Resource = [for name in [local.machine_name, local.rotate_name, "${local.rotate_name}/*"] : "arn:${local.partition}:states:${local.region}:${local.account}:execution:${name}:*"]
    },
    {
      Sid      = "RedriveTheExecutionsOfGroups"
      Effect   = "Allow"
      Action   = "states:RedriveExecution"
      Resource = "arn:${local.partition}:states:${local.region}:${local.account}:execution:${local.rotate_name}/*:*"
    },
    {
      Sid      = "WatchForTheEndOfExecutions"
      Effect   = "Allow"
      Action   = ["events:DescribeRule", "events:PutRule", "events:PutTargets"]
      Resource = "arn:${local.partition}:events:${local.region}:${local.account}:rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"
    },
  ]

  # The events before and after a drain, and after the disposal of the instance.
  send_events = {
    Sid       = "SendItsEvents"
    Effect    = "Allow"
    Action    = "events:PutEvents"
    Resource  = "arn:${local.partition}:events:${local.region}:${local.account}:event-bus/default"
    Condition = { "ForAllValues:StringEquals" = { "events:source" = "recycle-eks" }, Null = { "events:source" = "false" } }
  }

  # The permissions of all state machines.
  machine_statements = concat(
    [
      {
        Sid      = "NotifyOperators"
        Effect   = "Allow"
        Action   = "sns:Publish"
        Resource = local.notification_topic_arn
      },
      {
        Sid    = "DeliverItsLog"
        Effect = "Allow"
        Action = [
          "logs:CreateLogDelivery",
          "logs:DeleteLogDelivery",
          "logs:DescribeLogGroups",
          "logs:DescribeResourcePolicies",
          "logs:GetLogDelivery",
          "logs:ListLogDeliveries",
          "logs:PutResourcePolicy",
          "logs:UpdateLogDelivery",
        ]
        Resource = "*"
      },
    ],
    [
      for key in compact([local.notification_key_arn]) : {
        Sid      = "EncryptNotifications"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource = key
      }
    ],
    [
      for statement in [{
        Sid    = "SendTraces"
        Effect = "Allow"
        Action = [
          "xray:GetSamplingRules",
          "xray:GetSamplingTargets",
          "xray:PutTelemetryRecords",
          "xray:PutTraceSegments",
        ]
        Resource = "*"
      }] : statement if var.tracing
    ],
  )
}

resource "aws_iam_role" "state_machine" {
  for_each = local.machines

  name                 = "${each.value.name}-${local.region}"
  path                 = var.iam_role_path
  description          = "recycle-eks: the state machine ${each.key}"
  permissions_boundary = var.iam_role_permissions_boundary
  tags                 = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "StepFunctionsRunsTheMachine"
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "states.amazonaws.com" }
      Condition = {
        StringEquals = { "aws:SourceAccount" = local.account }
        # AWS does not document which of these a child execution of a Distributed Map uses.
        ArnLike = { "aws:SourceArn" = [
          for source in ["stateMachine:${each.value.name}*", "execution:${each.value.name}*", "mapRun:${each.value.name}/*"] :
          "arn:${local.partition}:states:${local.region}:${local.account}:${source}"
        ] }
      }
    }]
  })
}

resource "aws_iam_role_policy" "state_machine" {
  for_each = local.machines

  name = each.key
  role = aws_iam_role.state_machine[each.key].name

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        # An execution that started before an apply still calls the older versions.
        Sid      = "InvokeEveryVersionOfItsFunctions"
        Effect   = "Allow"
        Action   = "lambda:InvokeFunction"
        Resource = [for function in each.value.functions : local.every_version[function]]
      }],
      local.machine_statements,
      each.value.statements,
    )
  })
}
