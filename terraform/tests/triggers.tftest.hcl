# The triggers of rotations: alarms, events, Spot, topics, schedules, terraform apply.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "by_default_there_is_no_trigger" {
  assert {
    condition = (
      length(aws_cloudwatch_event_rule.trigger) + length(aws_sns_topic_subscription.alarms) + length(aws_scheduler_schedule.rotation)
      + length(aws_lambda_invocation.rotate_on_change) + length(aws_iam_role.scheduler)
    ) == 0
    error_message = "the module creates no rule, subscription, schedule or invocation"
  }
}

run "alarms_events_and_spot_are_rules_that_start_rotations" {
  variables {
    alarm_triggers = {
      cpu  = { alarm_names = ["node-cpu"] }
      busy = { alarm_names = ["busy", "hot"], group = "workers", pick = "oldest", cooldown_minutes = 30, recycle = { dispose = "stop" } }
    }
    event_triggers = {
      sick = { event_pattern = { source = ["my.monitoring"], detail = { severe = [true] } }, instance_id_path = "$.detail.machine" }
      old  = { event_pattern = { source = ["mine"] }, instance_id_path = "$.resources", recycle = { override = ["last_target"] } }
    }
    spot = true
  }

  assert {
    condition = { for key, rule in aws_cloudwatch_event_rule.trigger : key => rule.name } == {
      for key in ["alarm-busy", "alarm-cpu", "event-old", "event-sick", "rebalance", "spot"] : key => "recycle-eks-rotate-nodes-${key}"
    }
    error_message = "each trigger has a rule that is named after it"
  }

  assert {
    condition = jsondecode(aws_cloudwatch_event_rule.trigger["alarm-busy"].event_pattern) == {
      account     = ["123456789012"]
      region      = ["us-gov-west-1"]
      source      = ["aws.cloudwatch"]
      detail-type = ["CloudWatch Alarm State Change"]
      detail      = { alarmName = ["busy", "hot"], state = { value = ["ALARM"] }, previousState = { value = [{ anything-but = ["ALARM"] }] } }
    }
    error_message = "the rule matches only alarms of this account and region that enter ALARM"
  }

  assert {
    condition     = alltrue([for key in ["spot", "rebalance"] : jsondecode(aws_cloudwatch_event_rule.trigger[key].event_pattern).account == ["123456789012"]])
    error_message = "the rules match only events of this account"
  }

  assert {
    condition = (
      aws_cloudwatch_event_target.trigger["alarm-busy"].input_transformer[0].input_template
      == "{\"event\":<aws.events.event.json>,\"recycle\":{\"dispose\":\"stop\"},\"selection\":{\"alarm\":{\"cooldown_minutes\":30,\"group\":\"workers\",\"pick\":\"oldest\"}},\"trigger\":\"alarm\"}"
    )
    error_message = "the input contains the whole event, the selection, and the fields of an execution"
  }

  assert {
    condition     = strcontains(aws_cloudwatch_event_target.trigger["spot"].input_transformer[0].input_template, "\"instance_ids\":[<instance>]")
    error_message = "the instance of a warning is outside of quotes"
  }

  assert {
    condition = alltrue([
      for target in aws_cloudwatch_event_target.trigger :
      target.arn == aws_sfn_state_machine.rotate_nodes.arn && target.dead_letter_config[0].arn == aws_sqs_queue.dead_letters.arn
    ])
    error_message = "every target starts rotate-nodes and has the dead-letter queue"
  }

  assert {
    condition     = aws_lambda_function.this["start-rotation"].environment[0].variables["ALARM_TRIGGERS"] == "{}"
    error_message = "without a topic start-rotation gets no alarms"
  }
}

run "refuses_a_pattern_that_eventbridge_does_not_take" {
  command = plan

  variables {
    alarm_triggers = { many = { alarm_names = [for number in range(60) : "an-alarm-with-a-rather-long-name-${number}"] } }
  }

  expect_failures = [aws_cloudwatch_event_rule.trigger]
}

run "an_alarm_topic_invokes_start_rotation" {
  variables {
    alarm_triggers = { busy = { alarm_names = ["busy"], pick = "oldest", recycle = { dispose = "stop" } } }
    alarm_topics   = { ops = "arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops" }
  }

  assert {
    condition = (
      aws_sns_topic_subscription.alarms["ops"].topic_arn == "arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops"
      && aws_sns_topic_subscription.alarms["ops"].protocol == "lambda"
      && aws_sns_topic_subscription.alarms["ops"].endpoint == aws_lambda_function.this["start-rotation"].arn
      && jsondecode(aws_sns_topic_subscription.alarms["ops"].redrive_policy) == { deadLetterTargetArn = aws_sqs_queue.dead_letters.arn }
    )
    error_message = "the function subscribes, and undelivered messages are kept"
  }

  assert {
    condition = (
      aws_lambda_permission.alarms["ops"].principal == "sns.amazonaws.com"
      && aws_lambda_permission.alarms["ops"].source_arn == "arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops"
      && aws_lambda_permission.alarms["ops"].function_name == "recycle-eks-start-rotation"
    )
    error_message = "only this topic may invoke the function"
  }

  assert {
    condition     = aws_lambda_function_event_invoke_config.start_rotation.destination_config[0].on_failure[0].destination == aws_sqs_queue.dead_letters.arn
    error_message = "requests that fail are kept"
  }

  assert {
    condition = jsondecode(aws_lambda_function.this["start-rotation"].environment[0].variables["ALARM_TRIGGERS"]) == {
      busy = {
        alarm_names = ["busy"]
        rotation    = { trigger = "alarm", selection = { alarm = { pick = "oldest" } }, recycle = { dispose = "stop" } }
      }
    }
    error_message = "the function has the rotation of each alarm"
  }

  assert {
    condition     = aws_lambda_function.this["start-rotation"].environment[0].variables["ROTATE_STATE_MACHINE_ARN"] == "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:${aws_sfn_state_machine.rotate_nodes.name}"
    error_message = "the function has the ARN of rotate-nodes"
  }

  assert {
    condition = [
      for statement in jsondecode(aws_sqs_queue_policy.dead_letters.policy).Statement :
      [statement.Principal.Service, values(values(statement.Condition)[0])[0]] if statement.Effect == "Allow"
      ] == [
      ["events.amazonaws.com", "arn:aws-us-gov:events:us-gov-west-1:123456789012:rule/recycle-eks-*"],
      ["sns.amazonaws.com", ["arn:aws-us-gov:sns:us-gov-west-1:123456789012:ops"]],
    ]
    error_message = "the topic may send undelivered messages to the queue"
  }
}

run "a_schedule_starts_rotations_with_its_own_role" {
  variables {
    schedules = {
      weekly = {
        schedule_expression = "cron(0 3 ? * SUN *)"
        timezone            = "Europe/Berlin"
        selection           = { outdated = { launch_template = true } }
        recycle             = { evict = "none" }
      }
      old = {
        schedule_expression     = "rate(1 day)"
        selection               = { outdated = { groups = ["a", "b"], older_than = "14d" } }
        at_once                 = "25%"
        wait_between_nodes      = "23h60m"
        wait_after_first_node   = "1d"
        alarms                  = ["errors"]
        on_alarm                = "stop"
        start_no_new_node_after = "4h"
      }
    }
    iam_role_permissions_boundary = "arn:aws-us-gov:iam::123456789012:policy/boundary"
    iam_role_path                 = "/platform/"
  }

  assert {
    condition = { for key, schedule in aws_scheduler_schedule.rotation : key => [schedule.name, schedule.schedule_expression, schedule.schedule_expression_timezone] } == {
      weekly = ["recycle-eks-rotate-nodes-weekly", "cron(0 3 ? * SUN *)", "Europe/Berlin"]
      old    = ["recycle-eks-rotate-nodes-old", "rate(1 day)", "UTC"]
    }
    error_message = "a schedule uses the given time zone, or UTC"
  }

  assert {
    condition = (
      aws_scheduler_schedule.rotation["weekly"].target[0].input
      == "{\"event\":{\"id\":\"<aws.scheduler.schedule-arn> <aws.scheduler.scheduled-time>\"},\"recycle\":{\"evict\":\"none\"},\"selection\":{\"outdated\":{\"launch_template\":true}},\"trigger\":\"schedule\"}"
    )
    error_message = "the input contains the selection, and an event id that does not change when the event is delivered again"
  }

  assert {
    condition = (
      jsondecode(aws_scheduler_schedule.rotation["old"].target[0].input).at_once == "25%"
      && jsondecode(aws_scheduler_schedule.rotation["old"].target[0].input).start_no_new_node_after == "4h"
    )
    error_message = "the input contains the given terms"
  }

  assert {
    condition = alltrue([
      for schedule in aws_scheduler_schedule.rotation :
      schedule.target[0].arn == aws_sfn_state_machine.rotate_nodes.arn && schedule.target[0].role_arn == aws_iam_role.scheduler["this"].arn
      && schedule.target[0].dead_letter_config[0].arn == aws_sqs_queue.dead_letters.arn && schedule.flexible_time_window[0].mode == "OFF"
    ])
    error_message = "every target starts rotate-nodes and has the dead-letter queue"
  }

  assert {
    condition = (
      aws_iam_role.scheduler["this"].path == "/platform/" && aws_iam_role.scheduler["this"].permissions_boundary == "arn:aws-us-gov:iam::123456789012:policy/boundary"
      && jsondecode(aws_iam_role.scheduler["this"].assume_role_policy).Statement[0].Principal.Service == "scheduler.amazonaws.com"
    )
    error_message = "the role has the boundary and the path, and only the Scheduler can assume it"
  }

  assert {
    condition = jsondecode(aws_iam_role.scheduler["this"].assume_role_policy).Statement[0].Condition == {
      StringEquals = { "aws:SourceAccount" = "123456789012" }
      ArnEquals    = { "aws:SourceArn" = "arn:aws-us-gov:scheduler:us-gov-west-1:123456789012:schedule-group/default" }
    }
    error_message = "the Scheduler assumes the role only for schedules of the group that all schedules of the module are in"
  }

  assert {
    condition     = alltrue([for schedule in aws_scheduler_schedule.rotation : schedule.group_name == "default"])
    error_message = "every schedule is in the default group"
  }

  assert {
    condition = [for statement in jsondecode(aws_iam_role_policy.scheduler["this"].policy).Statement : [statement.Sid, statement.Action, statement.Resource]] == [
      ["StartRotations", "states:StartExecution", "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-rotate-nodes"],
      ["SendDeadLetters", "sqs:SendMessage", "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:recycle-eks-dead-letters"],
    ]
    error_message = "the Scheduler may only start rotations and send dead letters"
  }
}

run "a_value_that_changes_invokes_start_rotation" {
  variables {
    rotate_on_change = {
      workers = { value = 7, selection = { outdated = { groups = ["workers"], launch_template = true } } }
      image   = { value = "ami-1", selection = { outdated = { ami = true } }, recycle = { evict = "none" }, at_once = 2, on_failure = "continue" }
    }
  }

  assert {
    condition = alltrue([
      for invocation in aws_lambda_invocation.rotate_on_change :
      invocation.function_name == "recycle-eks-start-rotation" && invocation.lifecycle_scope == "CRUD"
    ])
    error_message = "the function is invoked on create, update and delete"
  }

  assert {
    condition = { for key, invocation in aws_lambda_invocation.rotate_on_change : key => jsondecode(invocation.input) } == {
      workers = { value = 7, rotation = { trigger = "apply", selection = { outdated = { groups = ["workers"], launch_template = true } }, recycle = {} } }
      image   = { value = "ami-1", rotation = { trigger = "apply", selection = { outdated = { ami = true } }, recycle = { evict = "none" }, at_once = 2, on_failure = "continue" } }
    }
    error_message = "the input contains the value and the rotation that it starts"
  }
}

# A run takes seconds, so each of the following has one bad value for each of several variables, and must refuse all of them. (A validation that
# reads another variable refuses only if that one has a good value.)

run "refuses_the_first_bad_value_of_each" {
  command = plan

  variables {
    # No alarm, no path to an instance id, no expression, no value.
    alarm_triggers   = { cpu = { alarm_names = [] } }
    event_triggers   = { sick = { event_pattern = { source = ["mine"] } } }
    schedules        = { weekly = { schedule_expression = "weekly", selection = { outdated = { ami = true } } } }
    rotate_on_change = { workers = { selection = { outdated = { ami = true } } } }
  }

  expect_failures = [var.alarm_triggers, var.event_triggers, var.schedules, var.rotate_on_change]
}

run "refuses_the_second_bad_value_of_each" {
  command = plan

  variables {
    # A misspelt term, a name that is too long, no selection, two selections.
    alarm_triggers   = { cpu = { alarm_names = ["cpu"] }, busy = { alarm_names = ["busy"], pik = "oldest" } }
    event_triggers   = { thirty-four-characters-are-too-many = { event_pattern = { source = ["mine"] }, instance_id_path = "$.detail.id" } }
    schedules        = { weekly = { schedule_expression = "rate(7 days)" } }
    rotate_on_change = { workers = { value = "1", selection = { outdated = { ami = true }, instance_ids = [] } } }
  }

  expect_failures = [var.alarm_triggers, var.event_triggers, var.schedules, var.rotate_on_change]
}

run "refuses_the_third_bad_value_of_each" {
  command = plan

  variables {
    # A field that executions do not have, an alarm as the selection of a schedule, a share of 0%.
    alarm_triggers   = { cpu = { alarm_names = ["cpu"], recycle = { evikt = "none" } } }
    schedules        = { weekly = { schedule_expression = "rate(7 days)", selection = { alarm = {} } } }
    rotate_on_change = { workers = { value = 1, selection = { outdated = { ami = true } }, at_once = "0%" } }
  }

  expect_failures = [var.alarm_triggers, var.schedules, var.rotate_on_change]
}

run "refuses_the_fourth_bad_value_of_each" {
  command = plan

  variables {
    # A name that is too long for its rule, a misspelt term.
    alarm_triggers = { thirty-four-characters-are-too-many = { alarm_names = ["cpu"] } }
    schedules      = { weekly = { schedule_expression = "rate(7 days)", selection = { outdated = { ami = true } }, time_zone = "UTC" } }
  }

  expect_failures = [var.alarm_triggers, var.schedules]
}

run "refuses_an_arn_of_another_service_and_a_schedule_with_too_long_a_name" {
  command = plan

  variables {
    alarm_topics = { ops = "arn:aws:sqs:eu-west-1:123456789012:ops" }
    schedules    = { forty-one-characters-are-more-than-allowed = { schedule_expression = "rate(7 days)", selection = { outdated = { ami = true } } } }
  }

  expect_failures = [var.alarm_topics, var.schedules]
}

run "refuses_a_topic_twice_and_more_nodes_at_once_than_the_module_allows" {
  command = plan

  variables {
    alarm_topics = { one = "arn:aws:sns:eu-west-1:123456789012:ops", two = "arn:aws:sns:eu-west-1:123456789012:ops" }
    schedules    = { weekly = { schedule_expression = "rate(7 days)", selection = { outdated = { ami = true } }, at_once = 6 } }
  }

  expect_failures = [var.alarm_topics, var.schedules]
}

run "refuses_a_pause_of_more_than_a_day_and_an_end_after_no_time" {
  command = plan

  variables {
    schedules        = { weekly = { schedule_expression = "rate(7 days)", selection = { outdated = { ami = true } }, wait_between_nodes = "1d1s" } }
    rotate_on_change = { workers = { value = 1, selection = { outdated = { ami = true } }, start_no_new_node_after = 0 } }
  }

  expect_failures = [var.schedules, var.rotate_on_change]
}

run "refuses_an_end_after_no_time_and_a_pause_of_more_than_a_day" {
  command = plan

  variables {
    schedules        = { weekly = { schedule_expression = "rate(7 days)", selection = { outdated = { ami = true } }, start_no_new_node_after = "0h0m" } }
    rotate_on_change = { workers = { value = 1, selection = { outdated = { ami = true } }, wait_between_nodes = 86401 } }
  }

  expect_failures = [var.schedules, var.rotate_on_change]
}

run "refuses_on_alarm_without_alarms_and_a_pause_of_more_than_a_day_after_the_first_node" {
  command = plan

  variables {
    schedules        = { weekly = { schedule_expression = "rate(7 days)", selection = { outdated = { ami = true } }, on_alarm = "wait" } }
    rotate_on_change = { workers = { value = 1, selection = { outdated = { ami = true } }, wait_after_first_node = "25h" } }
  }

  expect_failures = [var.schedules, var.rotate_on_change]
}

run "refuses_a_term_with_an_invalid_value" {
  command = plan

  variables {
    schedules        = { weekly = { schedule_expression = "rate(7 days)", selection = { outdated = { ami = true } }, mark = "dark" } }
    rotate_on_change = { workers = { value = 1, selection = { outdated = { ami = true } }, wait_between_nodes = "10 minutes" } }
  }

  expect_failures = [var.schedules, var.rotate_on_change]
}

run "refuses_alarm_triggers_that_do_not_fit_into_an_environment" {
  command = plan

  variables {
    alarm_topics   = { ops = "arn:aws:sns:eu-west-1:123456789012:ops" }
    alarm_triggers = { for key in ["a", "b", "c"] : key => { alarm_names = [for number in range(120) : "alarm-${key}-${number}"] } }
  }

  expect_failures = [var.alarm_topics]
}
