# The triggers that recycle nodes automatically. Every trigger starts the state machine rotate-nodes, which selects the nodes and starts
# recycle-node for each. Events name instances of the whole region, so rotate-nodes drops those of other clusters.

resource "aws_sfn_state_machine" "rotate_nodes" {
  name       = local.rotate_name
  role_arn   = aws_iam_role.state_machine["rotate-nodes"].arn
  definition = local.definition["rotate-nodes"]
  tags       = var.tags

  logging_configuration {
    log_destination        = "${aws_cloudwatch_log_group.state_machine["rotate-nodes"].arn}:*"
    level                  = "ERROR"
    include_execution_data = true
  }

  # AWS ends the executions of a deleted machine at their next transition. A rotation may wait for a day: end it before a destroy.
  timeouts {
    delete = "70m"
  }

  tracing_configuration {
    enabled = var.tracing
  }

  # Step Functions checks that the role may deliver logs when it creates the machine.
  depends_on = [aws_iam_role_policy.state_machine]
}

locals {
  # Each trigger has the pattern of its events, the path of the instance id in them, and the input of rotate-nodes. Alarms have no path, because
  # select-nodes reads the whole event.
  triggers = merge(
    {
      for key, trigger in var.alarm_triggers : "alarm-${key}" => {
        # EventBridge allows 512 characters.
        description = substr("CloudWatch alarms that enter ALARM: ${join(", ", trigger.alarm_names)}", 0, 512)
        # A bus may also get events of other accounts and regions. Alarms of those have the same names.
        pattern = {
          account     = [local.account]
          region      = [local.region]
          source      = ["aws.cloudwatch"]
          detail-type = ["CloudWatch Alarm State Change"]
          detail = {
            alarmName     = trigger.alarm_names
            state         = { value = ["ALARM"] }
            previousState = { value = [{ anything-but = ["ALARM"] }] }
          }
        }
        paths = {}
        input = {
          trigger   = "alarm"
          selection = { alarm = { for term in ["group", "pick", "cooldown_minutes"] : term => trigger[term] if try(trigger[term], null) != null } }
          recycle   = try(trigger.recycle, {})
        }
      }
    },
    {
      for key, trigger in var.event_triggers : "event-${key}" => {
        description = substr("Events that name an instance at ${trigger.instance_id_path}", 0, 512)
        pattern     = trigger.event_pattern
        paths       = { instance = trigger.instance_id_path }
        input       = { trigger = "event", selection = { instance_ids = "@instance" }, recycle = try(trigger.recycle, {}) }
      }
    },
    {
      for key, detail_type in local.spot_events : key => {
        description = detail_type
        pattern     = { account = [local.account], source = ["aws.ec2"], detail-type = [detail_type] }
        paths       = { instance = "$.detail.instance-id" }
        input       = { trigger = key, selection = { instance_ids = "@instance" }, recycle = {} }
      }
    },
  )

  spot_events = { for key, detail_type in {
    spot      = "EC2 Spot Instance Interruption Warning"
    rebalance = "EC2 Instance Rebalance Recommendation"
  } : key => detail_type if var.spot }
}

resource "aws_cloudwatch_event_rule" "trigger" {
  for_each = local.triggers

  name          = "${local.rotate_name}-${each.key}"
  description   = each.value.description
  event_pattern = jsonencode(each.value.pattern)
  tags          = var.tags

  lifecycle {
    precondition {
      condition     = length(jsonencode(each.value.pattern)) <= 2048
      error_message = "The event pattern of the trigger ${each.key} has ${length(jsonencode(each.value.pattern))} characters, and EventBridge accepts 2048 by default: divide its names or values over several triggers."
    }
  }
}

resource "aws_cloudwatch_event_target" "trigger" {
  for_each = local.triggers

  rule      = aws_cloudwatch_event_rule.trigger[each.key].name
  target_id = "rotate-nodes"
  arn       = aws_sfn_state_machine.rotate_nodes.arn
  role_arn  = aws_iam_role.events.arn

  input_transformer {
    input_paths = each.value.paths

    # If an event has no instance id, the list is empty and select-nodes refuses it with a clear error. In quotes it would be an empty string.
    input_template = replace(
      replace(
        jsonencode(merge(each.value.input, { event = "@event" })),
        "\"@instance\"", "[<instance>]",
      ),
      "\"@event\"", "<aws.events.event.json>",
    )
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}

################################################################################
# Alarms through a topic, and terraform apply: through a function, which may be invoked twice
################################################################################

resource "aws_sns_topic_subscription" "alarms" {
  for_each = var.alarm_topics

  topic_arn      = each.value
  protocol       = "lambda"
  endpoint       = aws_lambda_function.this["start-rotation"].arn
  redrive_policy = jsonencode({ deadLetterTargetArn = aws_sqs_queue.dead_letters.arn })

  depends_on = [aws_lambda_permission.alarms]
}

resource "aws_lambda_permission" "alarms" {
  for_each = var.alarm_topics

  statement_id  = "TheAlarmTopicInvokesTheFunction-${each.key}"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.this["start-rotation"].function_name
  principal     = "sns.amazonaws.com"
  source_arn    = each.value
}

# Lambda retries a failed invocation twice within three minutes.
resource "aws_lambda_function_event_invoke_config" "start_rotation" {
  function_name = aws_lambda_function.this["start-rotation"].function_name

  destination_config {
    on_failure {
      destination = aws_sqs_queue.dead_letters.arn
    }
  }
}

# Terraform also invokes the function when the resource is created or destroyed. The function starts nothing then.
resource "aws_lambda_invocation" "rotate_on_change" {
  for_each = var.rotate_on_change

  function_name   = aws_lambda_function.this["start-rotation"].function_name
  lifecycle_scope = "CRUD"

  input = jsonencode({
    value = each.value.value
    rotation = merge(
      { trigger = "apply", selection = each.value.selection, recycle = try(each.value.recycle, {}) },
      { for term in keys(local.rotation_terms) : term => each.value[term] if try(each.value[term], null) != null },
    )
  })

  depends_on = [aws_sfn_state_machine.rotate_nodes, aws_sfn_alias.live]
}

################################################################################
# Schedules
################################################################################

resource "aws_scheduler_schedule" "rotation" {
  for_each = var.schedules

  name                         = "${local.rotate_name}-${each.key}"
  group_name                   = "default"
  description                  = "Starts ${local.rotate_name}"
  schedule_expression          = each.value.schedule_expression
  schedule_expression_timezone = try(each.value.timezone, "UTC")
  kms_key_arn                  = var.kms_key_arn

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = aws_sfn_state_machine.rotate_nodes.arn
    role_arn = aws_iam_role.scheduler["this"].arn

    # The id of the event stays the same if the Scheduler delivers one time more than once. jsonencode writes < and > as escapes, which the
    # Scheduler does not accept as its context attributes.
    input = replace(replace(jsonencode(merge(
      {
        trigger   = "schedule"
        selection = each.value.selection
        recycle   = try(each.value.recycle, {})
        event     = { id = "<aws.scheduler.schedule-arn> <aws.scheduler.scheduled-time>" }
      },
      { for term in keys(local.rotation_terms) : term => each.value[term] if try(each.value[term], null) != null },
    )), "\\u003c", "<"), "\\u003e", ">")

    # After an hour the next scheduled time starts the rotation instead.
    retry_policy {
      maximum_event_age_in_seconds = 3600
      maximum_retry_attempts       = 185
    }

    dead_letter_config {
      arn = aws_sqs_queue.dead_letters.arn
    }
  }
}

locals {
  schedulers = { for name in ["this"] : name => "${var.name}-scheduler-${local.region}" if length(var.schedules) > 0 }
}

resource "aws_iam_role" "scheduler" {
  for_each = local.schedulers

  name                 = each.value
  path                 = var.iam_role_path
  description          = "recycle-eks: EventBridge Scheduler starts rotations"
  permissions_boundary = var.iam_role_permissions_boundary
  tags                 = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "TheSchedulerStartsRotations"
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "scheduler.amazonaws.com" }
      # The source is the schedule's group, never a schedule (EventBridge Scheduler user guide, "Confused deputy prevention").
      Condition = {
        StringEquals = { "aws:SourceAccount" = local.account }
        ArnEquals    = { "aws:SourceArn" = "arn:${local.partition}:scheduler:${local.region}:${local.account}:schedule-group/default" }
      }
    }]
  })
}

resource "aws_iam_role_policy" "scheduler" {
  for_each = local.schedulers

  name = "start"
  role = aws_iam_role.scheduler[each.key].name

  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = concat([local.start_rotations], local.leave_dead_letters)
  })
}
