# The permissions of each role: exactly the calls that its function makes, on resources of this cluster.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "every_function_has_a_role_with_exactly_the_actions_it_uses" {
  assert {
    condition     = { for step, role in aws_iam_role.function : step => role.name } == { for step, function in aws_lambda_function.this : step => "${function.function_name}-us-gov-west-1" }
    error_message = "the role of each function has its name and the region"
  }

  assert {
    condition = {
      for step, policy in aws_iam_role_policy.function : step => sort(flatten([for statement in jsondecode(policy.policy).Statement : statement.Action]))
      } == {
      claim-node = tolist([
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeInstanceRefreshes",
        "autoscaling:DescribeLifecycleHooks",
        "ec2:CreateTags",
        "ec2:DescribeInstances",
        "eks:DescribeCluster",
        "eks:DescribeNodegroup",
        "elasticloadbalancing:DescribeTargetHealth",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "states:DescribeExecution",
      ])
      standby-node = tolist([
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:EnterStandby",
        "autoscaling:SetDesiredCapacity",
        "autoscaling:SetInstanceProtection",
        "ec2:CreateTags",
        "ec2:DescribeInstances",
        "eks:DescribeCluster",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
      ])
      taint-node = tolist(["eks:DescribeCluster", "logs:CreateLogStream", "logs:PutLogEvents"])
      check-pods = tolist([
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeInstanceRefreshes",
        "autoscaling:DescribeLifecycleHooks",
        "eks:DescribeCluster",
        "eks:DescribeNodegroup",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
      ])
      evict-pods = tolist(["eks:DescribeCluster", "logs:CreateLogStream", "logs:PutLogEvents"])
      detach-terminate = tolist([
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeLifecycleHooks",
        "autoscaling:DetachInstances",
        "autoscaling:SetInstanceProtection",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        "ec2:CreateTags",
        "ec2:DeleteTags",
        "ec2:DescribeInstances",
        "ec2:StopInstances",
        "eks:DescribeCluster",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
      ])
      start-rotation = tolist(["logs:CreateLogStream", "logs:PutLogEvents", "sqs:SendMessage", "states:StartExecution"])
      serve-operator = tolist([
        "autoscaling:DescribeAutoScalingGroups",
        "ec2:DescribeInstances",
        "eks:DescribeCluster",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "states:DescribeExecution",
      ])
      select-nodes = tolist([
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeLifecycleHooks",
        "ec2:DescribeImages",
        "ec2:DescribeInstances",
        "ec2:DescribeLaunchTemplateVersions",
        "eks:DescribeCluster",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "states:DescribeExecution",
        "states:ListExecutions",
      ])
      restore-node = tolist([
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeLifecycleHooks",
        "autoscaling:ExitStandby",
        "autoscaling:SetDesiredCapacity",
        "autoscaling:SetInstanceProtection",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        "ec2:CreateTags",
        "ec2:DeleteTags",
        "ec2:DescribeInstances",
        "eks:DescribeCluster",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "states:DescribeExecution",
      ])
    }
    error_message = "each function has exactly the listed actions"
  }

  assert {
    condition     = { for machine, role in aws_iam_role.state_machine : machine => role.name } == { recycle-node = "recycle-eks-recycle-node-us-gov-west-1", rotate-nodes = "recycle-eks-rotate-nodes-us-gov-west-1", sweep = "recycle-eks-sweep-us-gov-west-1" }
    error_message = "each state machine has its own role"
  }
}

run "every_sid_describes_its_statement" {
  variables {
    tracing = true
    vpc     = { subnet_ids = ["subnet-1"], security_group_ids = ["sg-1"] }
  }

  assert {
    condition = alltrue(flatten([
      for document in concat(
        values(aws_iam_role_policy.function)[*].policy,
        values(aws_iam_role.function)[*].assume_role_policy,
        values(aws_sns_topic_policy.notifications)[*].policy,
        values(aws_iam_role_policy.state_machine)[*].policy,
        values(aws_iam_role.state_machine)[*].assume_role_policy,
        [aws_iam_role_policy.events.policy, aws_iam_role.events.assume_role_policy, aws_sqs_queue_policy.dead_letters.policy],
        ) : [
        for statement in jsondecode(document).Statement : can(regex("^([A-Z][a-z]*){2,}$", statement.Sid))
      ]
    ]))
    error_message = "a sid must be words in CamelCase, because AWS allows letters and digits only"
  }

  assert {
    condition = alltrue([
      for document in concat(values(aws_iam_role_policy.function)[*].policy, values(aws_iam_role_policy.state_machine)[*].policy) :
      length(distinct(jsondecode(document).Statement[*].Sid)) == length(jsondecode(document).Statement)
    ])
    error_message = "no sid is used twice in a policy"
  }
}

run "every_change_is_confined_to_this_clusters_groups_and_instances" {
  # Every statement except those for reading, for the Kubernetes endpoint and for logs.
  assert {
    condition = alltrue(flatten([
      for step, policy in aws_iam_role_policy.function : [
        for statement in jsondecode(policy.policy).Statement :
        statement.Condition.StringEquals == { "aws:ResourceTag/kubernetes.io/cluster/prod" = ["owned", "shared"] }
        if !can(regex("^(ec2:Describe|autoscaling:Describe|elasticloadbalancing:Describe|eks:Describe|states:Describe|states:List|logs:)", flatten([statement.Action])[0]))
      ] if step != "start-rotation"
    ]))
    error_message = "a statement that allows a change must require the cluster's tag"
  }

  assert {
    condition = alltrue(flatten([
      for policy in aws_iam_role_policy.function : [
        for statement in jsondecode(policy.policy).Statement : can(regex(":Describe", flatten([statement.Action])[0])) if statement.Resource == "*"
      ]
    ]))
    error_message = "only Describe calls, which have no resource-level permissions, are allowed on every resource"
  }

  assert {
    condition = alltrue(flatten([
      for policy in aws_iam_role_policy.function : [
        for statement in jsondecode(policy.policy).Statement : (
          statement.Resource == "arn:aws-us-gov:ec2:us-gov-west-1:123456789012:instance/*"
          && alltrue([for key in statement.Condition["ForAllValues:StringEquals"]["aws:TagKeys"] : startswith(key, "recycle-eks:")])
          && statement.Condition.Null == { "aws:TagKeys" = "false" }
        ) if can(regex("Tags$", flatten([statement.Action])[0]))
      ]
    ]))
    error_message = "only tags of recycle-eks may be written and removed, only on instances, and never all tags at once"
  }

  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.function["detach-terminate"].policy).Statement : statement.Condition.Null
      if statement.Action == "ec2:StopInstances"
    ][0] == { "aws:ResourceTag/recycle-eks:claim" = "false" }
    error_message = "only a claimed instance may be stopped"
  }

  assert {
    condition = alltrue(flatten([
      for policy in aws_iam_role_policy.function : [
        for statement in jsondecode(policy.policy).Statement : statement.Resource == "arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/prod"
        if statement.Action == "eks:DescribeCluster"
      ]
    ]))
    error_message = "only this cluster may be described"
  }
}

run "serve_operator_changes_nothing_and_no_machine_calls_it" {
  assert {
    condition = alltrue(flatten([
      for statement in jsondecode(aws_iam_role_policy.function["serve-operator"].policy).Statement : [
        for action in flatten([statement.Action]) : can(regex("^([a-z0-9]+:Describe|logs:)", action))
      ]
    ]))
    error_message = "serve-operator may change nothing in AWS"
  }

  assert {
    condition = alltrue(flatten([
      for policy in aws_iam_role_policy.state_machine : [
        for statement in jsondecode(policy.policy).Statement : [
          for resource in flatten([statement.Resource]) : !strcontains(resource, "serve-operator")
        ]
      ]
    ]))
    error_message = "no state machine invokes serve-operator"
  }
}

run "start_rotation_may_only_start_rotations_and_send_dead_letters" {
  variables {
    kms_key_arn = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234"
  }

  assert {
    condition = {
      for statement in jsondecode(aws_iam_role_policy.function["start-rotation"].policy).Statement : statement.Sid => statement.Resource if statement.Sid != "WriteItsOwnLog"
      } == {
      StartRotations     = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-rotate-nodes"
      SendDeadLetters    = "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:recycle-eks-dead-letters"
      EncryptDeadLetters = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234"
    }
    error_message = "start-rotation is limited to its state machine, the dead-letter queue and the key"
  }
}

run "a_vpc_needs_network_interfaces_which_the_functions_code_cannot_use" {
  variables {
    vpc = { subnet_ids = ["subnet-1"], security_group_ids = ["sg-1"] }
  }

  assert {
    condition = alltrue([
      for step, policy in aws_iam_role_policy.function : length([
        for statement in jsondecode(policy.policy).Statement : statement if statement.Effect == "Allow" && can(index(statement.Action, "ec2:CreateNetworkInterface"))
      ]) == 1
    ])
    error_message = "Lambda may create network interfaces for every function"
  }

  assert {
    condition = alltrue([
      for step, policy in aws_iam_role_policy.function : [
        for statement in jsondecode(policy.policy).Statement : statement.Condition.ArnEquals["lambda:SourceFunctionArn"] if statement.Effect == "Deny"
      ] == ["arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-${step}"]
    ])
    error_message = "the code of the function may not create network interfaces"
  }
}

run "the_roles_trust_executions_and_map_runs_of_their_own_machine" {
  assert {
    condition = alltrue([
      for machine, role in aws_iam_role.state_machine : toset([
        for arn in jsondecode(role.assume_role_policy).Statement[0].Condition.ArnLike["aws:SourceArn"] : split(":", arn)[5]
      ]) == toset(["stateMachine", "execution", "mapRun"])
    ])
    error_message = "AWS does not document which of the three ARNs a child execution of a Distributed Map uses"
  }
}

run "eventbridge_assumes_its_role_only_for_rules_of_the_module" {
  assert {
    condition = jsondecode(aws_iam_role.events.assume_role_policy).Statement[0].Condition == {
      StringEquals = { "aws:SourceAccount" = "123456789012" }
      ArnLike      = { "aws:SourceArn" = "arn:aws-us-gov:events:us-gov-west-1:123456789012:rule/recycle-eks-*" }
    }
    error_message = "the trust policy names the account and the rules"
  }

  assert {
    condition = alltrue([
      for rule in concat(values(aws_cloudwatch_event_rule.sweep), values(aws_cloudwatch_event_rule.unreported)) : startswith(rule.name, "recycle-eks-")
    ])
    error_message = "the names of the rules begin with the name of the installation"
  }
}

run "the_machines_may_call_every_version_of_their_functions" {
  assert {
    condition = {
      for machine, policy in aws_iam_role_policy.state_machine : machine => toset([
        for statement in jsondecode(policy.policy).Statement : statement.Resource if statement.Action == "lambda:InvokeFunction"
      ][0])
      } == {
      recycle-node = toset([
        for step, function in aws_lambda_function.this : "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:${function.function_name}:*" if !contains(["select-nodes", "serve-operator", "start-rotation"], step)
      ])
      rotate-nodes = toset([
        for step in ["restore-node", "select-nodes", "taint-node"] : "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:${aws_lambda_function.this[step].function_name}:*"
      ])
      sweep = toset([
        for step in ["restore-node", "select-nodes"] : "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:${aws_lambda_function.this[step].function_name}:*"
      ])
    }
    error_message = "each machine may call every version of its functions, so that executions that started before an apply can end"
  }

  assert {
    condition = alltrue([
      for function in ["claim-node", "restore-node"] : [
        for statement in jsondecode(aws_iam_role_policy.function[function].policy).Statement : statement.Resource if statement.Action == "states:DescribeExecution"
        ] == [[
          "arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:recycle-eks-recycle-node:*",
          "arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:recycle-eks-sweep:*",
      ]]
    ])
    error_message = "only executions that can hold a claim may be described"
  }

  assert {
    condition = {
      for statement in jsondecode(aws_iam_role_policy.state_machine["rotate-nodes"].policy).Statement : statement.Sid => statement.Resource
      if contains(["StartAnExecutionForEachGroup", "FollowAndStopTheExecutionsOfGroupsAndNodes", "RedriveTheExecutionsOfGroups", "WatchForTheEndOfExecutions"], statement.Sid)
      } == {
      StartAnExecutionForEachGroup = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-rotate-nodes"
      FollowAndStopTheExecutionsOfGroupsAndNodes = [
        "arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:recycle-eks-recycle-node:*",
        "arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:recycle-eks-rotate-nodes:*",
        "arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:recycle-eks-rotate-nodes/*:*",
      ]
      RedriveTheExecutionsOfGroups = "arn:aws-us-gov:states:us-gov-west-1:123456789012:execution:recycle-eks-rotate-nodes/*:*"
      WatchForTheEndOfExecutions   = "arn:aws-us-gov:events:us-gov-west-1:123456789012:rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"
    }
    error_message = "rotate-nodes may start its own executions for groups, and follow those of their nodes"
  }
}

run "the_machines_may_publish_and_eventbridge_may_start_the_sweep" {
  variables {
    kms_key_arn = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234"
  }

  assert {
    condition = {
      for machine, policy in aws_iam_role_policy.state_machine : machine => [
        for statement in jsondecode(policy.policy).Statement : statement.Resource if contains(["NotifyOperators", "EncryptNotifications"], statement.Sid)
      ]
      } == {
      for machine in ["recycle-node", "rotate-nodes", "sweep"] : machine => [aws_sns_topic.notifications["this"].arn, "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234"]
    }
    error_message = "each machine may use the topic and its key"
  }

  assert {
    condition     = jsondecode(aws_iam_role_policy.events.policy).Statement[*].Resource == [aws_sfn_state_machine.sweep.arn, aws_sfn_state_machine.rotate_nodes.arn]
    error_message = "EventBridge may start only the sweep and rotations"
  }
}

run "an_existing_topic_has_its_own_key" {
  variables {
    kms_key_arn        = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234"
    notification_topic = { arn = "arn:aws-us-gov:sns:us-gov-west-1:210987654321:ops", kms_key_arn = "arn:aws-us-gov:kms:us-gov-west-1:210987654321:key/5678" }
  }

  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.state_machine["sweep"].policy).Statement : statement.Resource if statement.Sid == "EncryptNotifications"
    ] == ["arn:aws-us-gov:kms:us-gov-west-1:210987654321:key/5678"]
    error_message = "the machine may use the key of that topic, not the key of the logs"
  }
}

run "the_roles_have_the_boundary_and_the_path" {
  variables {
    iam_role_permissions_boundary = "arn:aws-us-gov:iam::123456789012:policy/boundary"
    iam_role_path                 = "/platform/"
  }

  assert {
    condition = alltrue([
      for role in concat(values(aws_iam_role.function), values(aws_iam_role.state_machine), [aws_iam_role.events]) :
      role.permissions_boundary == "arn:aws-us-gov:iam::123456789012:policy/boundary" && role.path == "/platform/"
    ])
    error_message = "every role has the boundary and the path"
  }
}

run "check_pods_may_cancel_instance_refreshes_of_this_cluster_if_the_module_says_so" {
  command = plan

  variables {
    cancel_instance_refresh = true
  }

  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.function["check-pods"].policy).Statement :
      statement.Condition.StringEquals if statement.Action == "autoscaling:CancelInstanceRefresh"
    ] == [{ "aws:ResourceTag/kubernetes.io/cluster/prod" = ["owned", "shared"] }]
    error_message = "check-pods may cancel refreshes of groups with the tag of this cluster"
  }

  assert {
    condition     = aws_lambda_function.this["check-pods"].environment[0].variables["CANCEL_INSTANCE_REFRESH"] == "true"
    error_message = "CANCEL_INSTANCE_REFRESH is cancel_instance_refresh"
  }
}
