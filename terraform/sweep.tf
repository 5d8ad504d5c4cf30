# Events may be lost, so the sweep runs regularly. If an execution ended without restoring its node, one of the next two sweeps restores it.

resource "aws_sfn_state_machine" "sweep" {
  name       = local.sweep_name
  role_arn   = aws_iam_role.state_machine["sweep"].arn
  definition = local.definition["sweep"]
  tags       = var.tags

  logging_configuration {
    log_destination        = "${aws_cloudwatch_log_group.state_machine["sweep"].arn}:*"
    level                  = "ERROR"
    include_execution_data = true
  }

  # AWS ends the executions of a deleted machine at their next transition. The longest wait of a drain is an hour.
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
  # The sweep runs every 15 minutes, and soon after an execution that ended badly. The event only makes the sweep faster.
  sweep_rules = {
    clock = {
      description         = "Every 15 minutes"
      schedule_expression = "rate(15 minutes)"
      event_pattern       = null
    }
    ended-badly = {
      description         = "Executions of ${local.machine_name} that failed, timed out or were aborted"
      schedule_expression = null
      event_pattern = jsonencode({
        source      = ["aws.states"]
        detail-type = ["Step Functions Execution Status Change"]
        detail = {
          status          = ["FAILED", "TIMED_OUT", "ABORTED"]
          stateMachineArn = [aws_sfn_state_machine.recycle_node.arn]
        }
      })
    }
  }
}

resource "aws_cloudwatch_event_rule" "sweep" {
  for_each = local.sweep_rules

  name                = "${local.sweep_name}-${each.key}"
  description         = each.value.description
  schedule_expression = each.value.schedule_expression
  event_pattern       = each.value.event_pattern
  tags                = var.tags
}

resource "aws_cloudwatch_event_target" "sweep" {
  for_each = local.sweep_rules

  rule      = aws_cloudwatch_event_rule.sweep[each.key].name
  target_id = "sweep"
  arn       = aws_sfn_state_machine.sweep.arn
  role_arn  = aws_iam_role.events.arn
  input     = jsonencode({ started_by = each.key })

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}

resource "aws_iam_role" "events" {
  name                 = "${var.name}-events-${local.region}"
  path                 = var.iam_role_path
  description          = "recycle-eks: EventBridge starts the state machines"
  permissions_boundary = var.iam_role_permissions_boundary
  tags                 = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "EventBridgeStartsStateMachines"
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "events.amazonaws.com" }
      # The source is the rule (EventBridge user guide, "Cross-service confused deputy prevention").
      Condition = {
        StringEquals = { "aws:SourceAccount" = local.account }
        ArnLike      = { "aws:SourceArn" = local.own_rules }
      }
    }]
  })
}

resource "aws_iam_role_policy" "events" {
  name = "start"
  role = aws_iam_role.events.name

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        Sid      = "StartTheSweep"
        Effect   = "Allow"
        Action   = "states:StartExecution"
        Resource = aws_sfn_state_machine.sweep.arn
        }, {
        Sid      = "StartRotations"
        Effect   = "Allow"
        Action   = "states:StartExecution"
        Resource = aws_sfn_state_machine.rotate_nodes.arn
      }],
      [for statement in [local.start_recycling] : statement if length(var.lifecycle_hooks) > 0],
    )
  })
}
