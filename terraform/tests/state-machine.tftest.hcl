# The definition as Step Functions receives it.

mock_provider "aws" {
  source = "./tests/mocks"

  override_resource {
    target = aws_lambda_function.this["claim-node"]
    values = { qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-claim-node:1" }
  }

  override_resource {
    target = aws_lambda_function.this["standby-node"]
    values = { qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-standby-node:2" }
  }

  override_resource {
    target = aws_lambda_function.this["taint-node"]
    values = { qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-taint-node:3" }
  }

  override_resource {
    target = aws_lambda_function.this["check-pods"]
    values = { qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-check-pods:4" }
  }

  override_resource {
    target = aws_lambda_function.this["evict-pods"]
    values = { qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-evict-pods:5" }
  }

  override_resource {
    target = aws_lambda_function.this["detach-terminate"]
    values = { qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-detach-terminate:6" }
  }

  override_resource {
    target = aws_lambda_function.this["restore-node"]
    values = { qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-restore-node:7" }
  }

  override_resource {
    target = aws_lambda_function.this["select-nodes"]
    values = { qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-select-nodes:8" }
  }
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "the_definition_contains_versions" {
  assert {
    condition     = aws_sfn_state_machine.recycle_node.name == "recycle-eks-recycle-node"
    error_message = "the machine is named <name>-recycle-node"
  }

  # A Task is named after its function: ClaimNode calls claim-node.
  assert {
    condition = {
      for name, state in merge(
        jsondecode(aws_sfn_state_machine.recycle_node.definition).States,
        jsondecode(aws_sfn_state_machine.recycle_node.definition).States.Recycle.Branches[0].States,
      ) : name => state.Arguments.FunctionName if can(state.Arguments.FunctionName)
      } == {
      ClaimNode       = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-claim-node:1"
      StandbyNode     = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-standby-node:2"
      TaintNode       = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-taint-node:3"
      CheckPods       = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-check-pods:4"
      EvictPods       = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-evict-pods:5"
      DetachTerminate = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-detach-terminate:6"
      RestoreNode     = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-restore-node:7"
    }
    error_message = "every Task calls the newest version of its own function"
  }

  assert {
    condition = [
      jsondecode(aws_sfn_state_machine.sweep.definition).States.SelectNodes.Arguments.FunctionName,
      jsondecode(aws_sfn_state_machine.sweep.definition).States.EachNode.ItemProcessor.States.RestoreNode.Arguments.FunctionName,
      ] == [
      "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-select-nodes:8",
      "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:recycle-eks-restore-node:7",
    ]
    error_message = "the sweep also calls the newest versions"
  }

  assert {
    condition     = alltrue([for arn in regexall("arn:[^\"]*:function:[^\"]*", aws_sfn_state_machine.recycle_node.definition) : can(regex(":[0-9]+$", arn))])
    error_message = "no function is named without a version"
  }

  assert {
    condition     = alltrue([for machine in [aws_sfn_state_machine.recycle_node, aws_sfn_state_machine.sweep] : length(regexall("\\$\\{|@retry", machine.definition)) == 0])
    error_message = "no placeholder remains"
  }

  assert {
    condition     = alltrue([for machine in [aws_sfn_state_machine.recycle_node, aws_sfn_state_machine.sweep] : length(regexall("arn:aws:", machine.definition)) == 0])
    error_message = "every ARN has the partition of the account"
  }
}

run "every_task_is_retried_and_has_a_longer_timeout_than_its_function" {
  assert {
    condition = alltrue([
      for name, state in merge(
        jsondecode(aws_sfn_state_machine.recycle_node.definition).States,
        jsondecode(aws_sfn_state_machine.recycle_node.definition).States.Recycle.Branches[0].States,
      ) : jsonencode(state.Retry) == jsonencode(local.retry) if can(state.Arguments.FunctionName)
    ])
    error_message = "every Task has the same retry list, as a list"
  }

  assert {
    condition = alltrue([
      for name, state in merge(
        jsondecode(aws_sfn_state_machine.recycle_node.definition).States,
        jsondecode(aws_sfn_state_machine.recycle_node.definition).States.Recycle.Branches[0].States,
      ) : state.TimeoutSeconds > one([for function in aws_lambda_function.this : function.timeout if function.qualified_arn == state.Arguments.FunctionName])
      if can(state.Arguments.FunctionName)
    ])
    error_message = "the timeout of a function is shorter than that of its Task, so that the error of the function is visible"
  }

  assert {
    condition     = local.retry[0].JitterStrategy == "FULL" && local.retry[0].MaxDelaySeconds <= 120 && local.retry[0].MaxAttempts <= 10
    error_message = "retries are jittered and capped"
  }
}

run "the_alias_sends_everything_to_the_newest_version" {
  assert {
    condition     = aws_sfn_state_machine.recycle_node.publish
    error_message = "the machine is published"
  }

  assert {
    condition     = aws_sfn_alias.live.name == "live" && length(aws_sfn_alias.live.routing_configuration) == 1
    error_message = "one alias, live, with one route"
  }

  assert {
    condition = (
      aws_sfn_alias.live.routing_configuration[0].state_machine_version_arn == aws_sfn_state_machine.recycle_node.state_machine_version_arn
      && aws_sfn_alias.live.routing_configuration[0].weight == 100
    )
    error_message = "the route leads to the newest version, with all its weight"
  }

  assert {
    condition     = output.state_machine_alias_arn == aws_sfn_alias.live.arn && strcontains(output.start_execution_command, aws_sfn_alias.live.arn)
    error_message = "the outputs contain the alias"
  }
}

run "the_machine_logs_its_errors" {
  assert {
    condition     = aws_sfn_state_machine.recycle_node.logging_configuration[0].level == "ERROR"
    error_message = "errors are logged"
  }

  assert {
    condition     = aws_cloudwatch_log_group.state_machine["recycle-node"].name == "/aws/vendedlogs/states/recycle-eks-recycle-node"
    error_message = "the log group is under /aws/vendedlogs/, which avoids the size limit of the resource policy"
  }

  assert {
    condition     = !aws_sfn_state_machine.recycle_node.tracing_configuration[0].enabled
    error_message = "tracing is off by default"
  }
}

run "the_sweep_runs_every_15_minutes_and_after_every_bad_end" {
  assert {
    condition     = aws_sfn_state_machine.sweep.name == "recycle-eks-sweep" && output.sweep_state_machine_arn == aws_sfn_state_machine.sweep.arn
    error_message = "the sweep's machine is named <name>-sweep"
  }

  assert {
    condition     = aws_cloudwatch_event_rule.sweep["clock"].schedule_expression == "rate(15 minutes)"
    error_message = "the sweep runs every 15 minutes"
  }

  assert {
    condition     = jsondecode(aws_cloudwatch_event_rule.sweep["ended-badly"].event_pattern).detail.status == ["FAILED", "TIMED_OUT", "ABORTED"]
    error_message = "the sweep runs after every bad end"
  }

  assert {
    condition     = alltrue([for target in aws_cloudwatch_event_target.sweep : target.arn == aws_sfn_state_machine.sweep.arn && target.role_arn == aws_iam_role.events.arn])
    error_message = "both rules start the sweep"
  }
}
