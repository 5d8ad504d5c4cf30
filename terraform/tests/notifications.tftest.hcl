# What people are told, and what could not be delivered.

mock_provider "aws" {
  source = "./tests/mocks"

  override_resource {
    target = aws_sfn_state_machine.sweep
    values = { arn = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-sweep" }
  }

  override_resource {
    target = aws_sfn_state_machine.rotate_nodes
    values = { arn = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-rotate-nodes" }
  }
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "executions_that_cannot_tell_themselves_are_told_to_a_topic" {
  assert {
    condition = {
      for name, rule in aws_cloudwatch_event_rule.untold : name => jsondecode(rule.event_pattern).detail
      } == {
      recycle-node = {
        stateMachineArn = ["arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-recycle-node"]
        "$or" = [
          { status = ["TIMED_OUT", "ABORTED"] },
          { status = ["FAILED"], error = [{ prefix = "States." }, "ClaimLost", null, { exists = false }] },
        ]
      }
      sweep = {
        stateMachineArn = ["arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-sweep"]
        status          = ["FAILED", "TIMED_OUT", "ABORTED"]
      }
      rotate-nodes = {
        stateMachineArn = ["arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-rotate-nodes"]
        "$or" = [
          { status = ["TIMED_OUT", "ABORTED"] },
          { status = ["FAILED"], error = [{ "anything-but" = "RotationFailed" }, null, { exists = false }] },
        ]
      }
    }
    error_message = "an execution of recycle-node that fails under a name of ours, and a rotation that has failed, have told that themselves"
  }

  assert {
    condition     = alltrue([for target in aws_cloudwatch_event_target.untold : target.arn == aws_sns_topic.notifications["this"].arn])
    error_message = "the module's topic hears of them"
  }

  assert {
    condition = alltrue([
      for target in aws_cloudwatch_event_target.untold : toset(keys(jsondecode(target.input_transformer[0].input_template))) == toset([
        "schema", "event", "severity", "outcome", "subject", "reason", "blocks", "what_to_do", "since", "until", "cluster", "group", "node",
        "instance_id", "execution",
      ])
    ])
    error_message = "the schema is that of all notifications"
  }

  assert {
    condition = alltrue([
      for target in aws_cloudwatch_event_target.untold :
      toset(flatten(regexall("<([a-z]+)>", target.input_transformer[0].input_template))) == toset(keys(target.input_transformer[0].input_paths))
    ])
    error_message = "the text uses exactly the values that are picked"
  }

  assert {
    condition = [
      for statement in jsondecode(aws_sns_topic_policy.notifications["this"].policy).Statement : [statement.Principal.Service, statement.Action]
    ] == [["events.amazonaws.com", "sns:Publish"], ["cloudwatch.amazonaws.com", "sns:Publish"]]
    error_message = "only our rules and our alarms may publish to the topic, beside the machines"
  }

  assert {
    condition = {
      for statement in jsondecode(aws_sns_topic_policy.notifications["this"].policy).Statement : statement.Principal.Service => try(statement.Condition, null)
      } == {
      "events.amazonaws.com"     = null
      "cloudwatch.amazonaws.com" = { ArnLike = { "aws:SourceArn" = "arn:aws-us-gov:cloudwatch:us-gov-west-1:123456789012:alarm:recycle-eks-*" } }
    }
    error_message = "nobody else's alarms; EventBridge allows no condition"
  }

  assert {
    condition     = output.notification_topic_arn == aws_sns_topic.notifications["this"].arn
    error_message = "the topic is an output"
  }
}

run "what_could_not_be_delivered_is_kept" {
  assert {
    condition = alltrue([
      for target in concat(values(aws_cloudwatch_event_target.untold), values(aws_cloudwatch_event_target.sweep)) :
      target.dead_letter_config[0].arn == aws_sqs_queue.dead_letters.arn
    ])
    error_message = "every target has the queue"
  }

  assert {
    condition     = aws_sqs_queue.dead_letters.message_retention_seconds == 1209600 && aws_sqs_queue.dead_letters.sqs_managed_sse_enabled
    error_message = "for two weeks, encrypted"
  }

  assert {
    condition     = one(jsondecode(aws_sqs_queue_policy.dead_letters.policy).Statement).Condition.ArnLike["aws:SourceArn"] == "arn:aws-us-gov:events:us-gov-west-1:123456789012:rule/recycle-eks-*"
    error_message = "only our rules may send"
  }

  assert {
    condition     = output.dead_letter_queue_url == aws_sqs_queue.dead_letters.url
    error_message = "the queue is an output"
  }
}

run "a_topic_that_exists_is_used_as_it_is" {
  variables {
    notification_topic = { arn = "arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops" }
  }

  assert {
    condition     = length(aws_sns_topic.notifications) == 0 && length(aws_sns_topic_policy.notifications) == 0
    error_message = "no topic is created, no policy replaced"
  }

  assert {
    condition = alltrue(concat(
      [for target in aws_cloudwatch_event_target.untold : target.arn == "arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops"],
      [for alarm in aws_cloudwatch_metric_alarm.this : alarm.alarm_actions == toset(["arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops"])],
    ))
    error_message = "the given topic hears of everything"
  }
}
