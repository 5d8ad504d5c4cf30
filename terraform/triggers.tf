# What recycles nodes by itself. Every trigger starts one machine, rotate-nodes, which finds out which nodes are meant and starts
# recycle-node for each: events name instances of the whole region, and those of others are dropped there.

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

  tracing_configuration {
    enabled = var.tracing
  }

  # Step Functions checks that the role may deliver logs when it creates the machine.
  depends_on = [aws_iam_role_policy.state_machine]
}

locals {
  # Each with the pattern of its events, where an instance id stands in them (none: select-nodes reads the event), and the machine's input.
  triggers = merge(
    {
      for key, trigger in var.alarm_triggers : "alarm-${key}" => {
        description = "CloudWatch alarms ${join(", ", trigger.alarm_names)} that enter ALARM"
        pattern = {
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
          selection = { alarm = { for term in ["group", "pick", "cooldown_minutes"] : term => trigger[term] if can(trigger[term]) } }
          recycle   = try(trigger.recycle, {})
        }
      }
    },
    {
      for key, trigger in var.event_triggers : "event-${key}" => {
        description = "Events that name an instance at ${trigger.instance_id_path}"
        pattern     = trigger.event_pattern
        paths       = { instance = trigger.instance_id_path }
        input       = { trigger = "event", selection = { instance_ids = "@instance" }, recycle = try(trigger.recycle, {}) }
      }
    },
    {
      for key, detail_type in local.spot_events : key => {
        description = detail_type
        pattern     = { source = ["aws.ec2"], detail-type = [detail_type] }
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
}

resource "aws_cloudwatch_event_target" "trigger" {
  for_each = local.triggers

  rule      = aws_cloudwatch_event_rule.trigger[each.key].name
  target_id = "rotate-nodes"
  arn       = aws_sfn_state_machine.rotate_nodes.arn
  role_arn  = aws_iam_role.events.arn

  input_transformer {
    input_paths = each.value.paths

    # Where an event has no instance id there is an empty list, which is refused by name; in quotes it would be an empty text.
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
