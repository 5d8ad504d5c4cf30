# The notifications and the dead-letter queue.

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

run "rules_publish_the_end_of_executions_that_send_no_notification" {
  assert {
    condition = {
      for name, rule in aws_cloudwatch_event_rule.unreported : name => jsondecode(rule.event_pattern).detail
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
    error_message = "the rules leave out executions that send their own notification"
  }

  assert {
    condition     = alltrue([for target in aws_cloudwatch_event_target.unreported : target.arn == aws_sns_topic.notifications["this"].arn])
    error_message = "the rules publish to the module's topic"
  }

  assert {
    condition = alltrue([
      for target in aws_cloudwatch_event_target.unreported : toset(keys(jsondecode(target.input_transformer[0].input_template))) == toset([
        "schema", "event", "severity", "outcome", "subject", "reason", "blocks", "what_to_do", "since", "until", "cluster", "group", "node",
        "instance_id", "execution",
      ])
    ])
    error_message = "the rules use the schema of all notifications"
  }

  assert {
    condition = alltrue([
      for target in aws_cloudwatch_event_target.unreported :
      toset(flatten(regexall("<([a-z]+)>", target.input_transformer[0].input_template))) == toset(keys(target.input_transformer[0].input_paths))
    ])
    error_message = "the text uses exactly the values that are taken from the event"
  }

  assert {
    condition = [
      for statement in jsondecode(aws_sns_topic_policy.notifications["this"].policy).Statement :
      [statement.Principal.Service, statement.Action] if statement.Effect == "Allow"
    ] == [["events.amazonaws.com", "sns:Publish"], ["cloudwatch.amazonaws.com", "sns:Publish"]]
    error_message = "besides the state machines, only EventBridge and CloudWatch may publish to the topic"
  }

  assert {
    condition = {
      for statement in jsondecode(aws_sns_topic_policy.notifications["this"].policy).Statement :
      statement.Principal.Service => try(statement.Condition, null) if statement.Effect == "Allow"
      } == {
      "events.amazonaws.com"     = null
      "cloudwatch.amazonaws.com" = { ArnLike = { "aws:SourceArn" = "arn:aws-us-gov:cloudwatch:us-gov-west-1:123456789012:alarm:recycle-eks-*" } }
    }
    error_message = "only alarms of the module may publish, and EventBridge supports no condition"
  }

  assert {
    condition = {
      for statement in jsondecode(aws_sns_topic_policy.notifications["this"].policy).Statement :
      statement.Sid => [statement.Principal, statement.Condition] if statement.Effect == "Deny"
      } == {
      OtherRulesDoNotPublish = [
        { Service = "events.amazonaws.com" },
        {
          ArnNotLike = { "aws:SourceArn" = "arn:aws-us-gov:events:us-gov-west-1:123456789012:rule/recycle-eks-*" }
          Null       = { "aws:SourceArn" = "false" }
        },
      ]
      PlainHttpIsRefused = ["*", { Bool = { "aws:SecureTransport" = "false" } }]
    }
    error_message = "a rule that EventBridge names is of the module, and every message is encrypted on its way"
  }

  assert {
    condition     = output.notification_topic_arn == aws_sns_topic.notifications["this"].arn
    error_message = "the topic is an output"
  }
}

run "undelivered_events_are_kept" {
  assert {
    condition = alltrue([
      for target in concat(values(aws_cloudwatch_event_target.unreported), values(aws_cloudwatch_event_target.sweep)) :
      target.dead_letter_config[0].arn == aws_sqs_queue.dead_letters.arn
    ])
    error_message = "every target has the dead-letter queue"
  }

  assert {
    condition     = aws_sqs_queue.dead_letters.message_retention_seconds == 1209600 && aws_sqs_queue.dead_letters.sqs_managed_sse_enabled
    error_message = "the queue keeps messages for two weeks and is encrypted"
  }

  assert {
    condition = [for statement in jsondecode(aws_sqs_queue_policy.dead_letters.policy).Statement : [statement.Effect, statement.Condition]] == [
      ["Allow", { ArnLike = { "aws:SourceArn" = "arn:aws-us-gov:events:us-gov-west-1:123456789012:rule/recycle-eks-*" } }],
      ["Deny", { Bool = { "aws:SecureTransport" = "false" } }],
    ]
    error_message = "only rules of the module may send to the queue, and only encrypted"
  }

  assert {
    condition     = output.dead_letter_queue_url == aws_sqs_queue.dead_letters.url
    error_message = "the queue is an output"
  }
}

run "an_existing_topic_is_used_as_it_is" {
  variables {
    notification_topic = { arn = "arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops" }
  }

  assert {
    condition     = length(aws_sns_topic.notifications) == 0 && length(aws_sns_topic_policy.notifications) == 0
    error_message = "the module creates no topic and replaces no policy"
  }

  assert {
    condition = alltrue(concat(
      [for target in aws_cloudwatch_event_target.unreported : target.arn == "arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops"],
      [for alarm in aws_cloudwatch_metric_alarm.this : alarm.alarm_actions == toset(["arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops"])],
    ))
    error_message = "every target and alarm publishes to the given topic"
  }
}

run "notifications_can_have_the_format_of_chat_applications" {
  variables {
    notification_format = "chat"
  }

  assert {
    condition = alltrue([
      for definition in [aws_sfn_state_machine.recycle_node.definition, aws_sfn_state_machine.rotate_nodes.definition, aws_sfn_state_machine.sweep.definition] :
      length(regexall("aws-sdk:sns:publish", definition)) == length(regexall("'default': \\$string\\(\\{ 'version': '1.0', 'source': 'custom'", definition))
    ])
    error_message = "every message of the state machines has the format"
  }

  assert {
    condition = alltrue([
      for target in aws_cloudwatch_event_target.unreported : jsondecode(target.input_transformer[0].input_template).metadata.threadId == "<execution>"
      && jsondecode(target.input_transformer[0].input_template).version == "1.0" && jsondecode(target.input_transformer[0].input_template).source == "custom"
      && length(jsondecode(target.input_transformer[0].input_template).content.nextSteps) == 2
    ])
    error_message = "every message of the rules has the format, in the thread of its execution"
  }
}
