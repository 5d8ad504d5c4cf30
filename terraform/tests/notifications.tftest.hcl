# Who hears of executions that end badly.

mock_provider "aws" {
  source = "./tests/mocks"

  override_resource {
    target = aws_sfn_state_machine.sweep
    values = { arn = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-sweep" }
  }
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "executions_that_end_badly_are_told_to_a_topic" {
  assert {
    condition = jsondecode(aws_cloudwatch_event_rule.ended_badly.event_pattern) == {
      source      = ["aws.states"]
      detail-type = ["Step Functions Execution Status Change"]
      detail = {
        status = ["FAILED", "TIMED_OUT", "ABORTED"]
        stateMachineArn = [
          "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-recycle-node",
          "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-sweep",
        ]
      }
    }
    error_message = "failed, timed-out and aborted executions of our machines match, and nothing else"
  }

  assert {
    condition     = aws_cloudwatch_event_target.notifications.arn == aws_sns_topic.notifications["this"].arn
    error_message = "the module's topic hears of them"
  }

  assert {
    condition = alltrue([
      for line in split("\n", aws_cloudwatch_event_target.notifications.input_transformer[0].input_template) : can(tostring(jsondecode(line)))
    ])
    error_message = "the text is one quoted string a line, as EventBridge wants it"
  }

  assert {
    condition = toset(flatten(regexall("<([a-z]+)>", aws_cloudwatch_event_target.notifications.input_transformer[0].input_template))) == toset(keys(
      aws_cloudwatch_event_target.notifications.input_transformer[0].input_paths
    ))
    error_message = "the text uses exactly the values that are picked"
  }

  assert {
    condition = [
      for statement in jsondecode(aws_sns_topic_policy.notifications["this"].policy).Statement :
      [statement.Principal.Service, statement.Action, statement.Condition.ArnEquals["aws:SourceArn"]]
    ] == [["events.amazonaws.com", "sns:Publish", aws_cloudwatch_event_rule.ended_badly.arn]]
    error_message = "only our rule may publish to the topic"
  }

  assert {
    condition     = output.notification_topic_arn == aws_sns_topic.notifications["this"].arn
    error_message = "the topic is an output"
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
    condition     = aws_cloudwatch_event_target.notifications.arn == "arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops"
    error_message = "the given topic hears of them"
  }
}
