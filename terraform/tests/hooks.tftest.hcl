# The lifecycle hooks: they are on the given groups only, and so are the permissions for them.

mock_provider "aws" {
  source = "./tests/mocks"

  override_resource {
    target = aws_sfn_alias.live
    values = { arn = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-recycle-node:live" }
  }
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "without_groups_there_is_no_hook_and_no_permission_to_complete_one" {
  assert {
    condition     = length(aws_autoscaling_lifecycle_hook.this) == 0 && length(aws_cloudwatch_event_rule.lifecycle_hook) == 0
    error_message = "no hook and no rule is created"
  }

  assert {
    condition = alltrue([
      for policy in concat(values(aws_iam_role_policy.function), values(aws_iam_role_policy.state_machine), values(aws_iam_policy.lifecycle_hooks)) :
      !strcontains(policy.policy, "LifecycleAction")
    ])
    error_message = "no role may complete a lifecycle action or keep it alive"
  }
}

run "each_group_gets_the_hook_and_a_rule_for_its_events_only" {
  variables {
    lifecycle_hooks = {
      batch = { auto_scaling_group_name = "eks batch/1", retain = true }
      web   = { auto_scaling_group_name = "web", heartbeat_timeout_seconds = 900 }
    }
  }

  assert {
    condition = { for key, hook in aws_autoscaling_lifecycle_hook.this : key => [hook.name, hook.autoscaling_group_name, hook.heartbeat_timeout, hook.default_result, hook.lifecycle_transition] } == {
      batch = ["recycle-eks", "eks batch/1", 3600, "ABANDON", "autoscaling:EC2_INSTANCE_TERMINATING"]
      web   = ["recycle-eks", "web", 900, "ABANDON", "autoscaling:EC2_INSTANCE_TERMINATING"]
    }
    error_message = "both groups have the hook of recycle-eks, with ABANDON"
  }

  assert {
    condition = jsondecode(aws_cloudwatch_event_rule.lifecycle_hook["batch"].event_pattern) == {
      source      = ["aws.autoscaling"]
      detail-type = ["EC2 Instance-terminate Lifecycle Action"]
      detail = {
        AutoScalingGroupName = ["eks batch/1"]
        LifecycleHookName    = ["recycle-eks"]
        LifecycleTransition  = ["autoscaling:EC2_INSTANCE_TERMINATING"]
      }
    }
    error_message = "the rule matches only terminations of this group that wait for the hook of recycle-eks"
  }

  assert {
    condition = {
      for key, target in aws_cloudwatch_event_target.lifecycle_hook : key => jsondecode(replace(target.input_transformer[0].input_template, "/<([a-z]+)>/", "\"$1\""))
      } == {
      for key, retain in { batch = true, web = false } : key => {
        instance_id              = "instance"
        cluster_name             = "prod"
        urgency                  = "hook"
        hook                     = { name = "hook", auto_scaling_group_name = "group", destination = "destination", fired_at = "time", retain = retain }
      }
    }
    error_message = "the input of an execution contains the values of the event"
  }

  assert {
    condition = alltrue([
      for target in aws_cloudwatch_event_target.lifecycle_hook : target.arn == aws_sfn_alias.live.arn
      && toset(flatten(regexall("<([a-z]+)>", target.input_transformer[0].input_template))) == toset(keys(target.input_transformer[0].input_paths))
    ])
    error_message = "the target starts the alias live and uses every value that it takes from the event"
  }

  assert {
    condition = alltrue([
      for policy in aws_iam_policy.lifecycle_hooks : toset(jsondecode(policy.policy).Statement[0].Resource) == toset([
        "arn:aws-us-gov:autoscaling:us-gov-west-1:123456789012:autoScalingGroup:*:autoScalingGroupName/eks batch/1",
        "arn:aws-us-gov:autoscaling:us-gov-west-1:123456789012:autoScalingGroup:*:autoScalingGroupName/web",
      ])
    ])
    error_message = "the policies allow lifecycle actions of these groups only"
  }

  assert {
    condition = { for key, policy in aws_iam_policy.lifecycle_hooks : key => jsondecode(policy.policy).Statement[*].Action } == {
      complete-1   = ["autoscaling:CompleteLifecycleAction"]
      keep-alive-1 = ["autoscaling:RecordLifecycleActionHeartbeat"]
    }
    error_message = "one policy allows to complete lifecycle actions, one to keep them alive"
  }

  assert {
    condition = {
      for key, attachment in aws_iam_role_policy_attachment.complete_lifecycle_hooks : key => [attachment.role, attachment.policy_arn == aws_iam_policy.lifecycle_hooks["complete-1"].arn]
      } == {
      for step in ["claim-node", "detach-terminate", "restore-node"] : "${step}-1" => ["recycle-eks-${step}-us-gov-west-1", true]
    }
    error_message = "three functions may complete lifecycle actions"
  }

  assert {
    condition     = [for attachment in aws_iam_role_policy_attachment.keep_lifecycle_hooks_alive : attachment.role] == ["recycle-eks-recycle-node-us-gov-west-1"]
    error_message = "recycle-node may keep lifecycle actions alive"
  }

  assert {
    condition = {
      for machine, policy in aws_iam_role_policy.state_machine : machine => [
        for statement in jsondecode(policy.policy).Statement : statement.Action if try(tostring(statement.Action), "") == "states:StartExecution"
      ]
    } == { recycle-node = [], rotate-nodes = ["states:StartExecution", "states:StartExecution"], sweep = ["states:StartExecution"] }
    error_message = "the other machines may start recycle-node, and rotate-nodes may start itself for each group"
  }

  assert {
    condition     = toset(flatten(jsondecode(aws_iam_role_policy.events.policy).Statement[*].Resource)) == toset([aws_sfn_state_machine.sweep.arn, aws_sfn_state_machine.rotate_nodes.arn, "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-recycle-node", aws_sfn_alias.live.arn])
    error_message = "EventBridge may start all state machines"
  }
}

run "the_policies_of_160_groups_with_the_longest_names_stay_within_the_quotas_of_iam" {
  variables {
    tracing         = true
    vpc             = { subnet_ids = ["subnet-1"], security_group_ids = ["sg-1"] }
    lifecycle_hooks = { for number in range(160) : "group-${number}" => { auto_scaling_group_name = format("%0255d", number) } }
  }

  assert {
    condition     = alltrue([for policy in aws_iam_policy.lifecycle_hooks : length(policy.policy) <= 6144])
    error_message = "a managed policy has at most 6,144 characters"
  }

  assert {
    condition     = alltrue([for policy in concat(values(aws_iam_role_policy.function), values(aws_iam_role_policy.state_machine)) : length(policy.policy) <= 10240])
    error_message = "the inline policies of a role have at most 10,240 characters"
  }

  assert {
    condition     = length(aws_iam_role_policy_attachment.keep_lifecycle_hooks_alive) == 10 && length(aws_iam_role_policy_attachment.complete_lifecycle_hooks) == 30
    error_message = "at most ten managed policies are attached to a role"
  }

  assert {
    condition     = length(distinct(flatten([for key, policy in aws_iam_policy.lifecycle_hooks : jsondecode(policy.policy).Statement[0].Resource if startswith(key, "complete")]))) == 160
    error_message = "every group is in one of the policies"
  }
}

run "more_than_160_groups_are_refused" {
  command = plan

  variables {
    lifecycle_hooks = { for number in range(161) : "group-${number}" => { auto_scaling_group_name = "group-${number}" } }
  }

  expect_failures = [var.lifecycle_hooks]
}

run "a_heartbeat_shorter_than_the_checks_allow_is_refused" {
  command = plan

  variables {
    lifecycle_hooks = { batch = { auto_scaling_group_name = "batch", heartbeat_timeout_seconds = 899 } }
  }

  expect_failures = [var.lifecycle_hooks]
}

run "a_group_that_is_named_twice_is_refused" {
  command = plan

  variables {
    lifecycle_hooks = { one = { auto_scaling_group_name = "batch" }, two = { auto_scaling_group_name = "batch" } }
  }

  expect_failures = [var.lifecycle_hooks]
}

run "a_name_that_does_not_fit_into_a_rules_name_is_refused" {
  command = plan

  variables {
    lifecycle_hooks = { "a b" = { auto_scaling_group_name = "batch" } }
  }

  expect_failures = [var.lifecycle_hooks]
}
