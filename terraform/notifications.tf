# Executions that end badly are told to an SNS topic. Events of Step Functions are best effort: this is for people, nothing depends on it.

locals {
  notification_topic_arn = var.notification_topic == null ? aws_sns_topic.notifications["this"].arn : var.notification_topic.arn
  created_topics         = var.notification_topic == null ? { this = "${var.name}-notifications" } : {}
}

resource "aws_sns_topic" "notifications" {
  for_each = local.created_topics

  name              = each.value
  kms_master_key_id = var.kms_key_arn
  tags              = var.tags
}

resource "aws_sns_topic_policy" "notifications" {
  for_each = local.created_topics

  arn = aws_sns_topic.notifications[each.key].arn

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OurRuleTellsOfExecutionsThatEndedBadly"
      Effect    = "Allow"
      Action    = "sns:Publish"
      Principal = { Service = "events.amazonaws.com" }
      Resource  = aws_sns_topic.notifications[each.key].arn
      Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.ended_badly.arn } }
    }]
  })
}

resource "aws_cloudwatch_event_rule" "ended_badly" {
  name        = "${local.machine_name}-ended-badly"
  description = "Executions of ${local.machine_name} and ${local.sweep_name} that failed, timed out or were aborted"
  tags        = var.tags

  event_pattern = jsonencode({
    source      = ["aws.states"]
    detail-type = ["Step Functions Execution Status Change"]
    detail = {
      status          = ["FAILED", "TIMED_OUT", "ABORTED"]
      stateMachineArn = [aws_sfn_state_machine.recycle_node.arn, aws_sfn_state_machine.sweep.arn]
    }
  })
}

resource "aws_cloudwatch_event_target" "notifications" {
  rule      = aws_cloudwatch_event_rule.ended_badly.name
  target_id = "notifications"
  arn       = local.notification_topic_arn

  input_transformer {
    input_paths = {
      status    = "$.detail.status"
      error     = "$.detail.error"
      cause     = "$.detail.cause"
      input     = "$.detail.input"
      execution = "$.detail.executionArn"
    }

    # Lines of text: EventBridge takes each as a string of its own.
    input_template = join("\n", [
      "\"${var.cluster_name}: an execution of recycle-eks ended <status>.\"",
      "\"Error: <error>\"",
      "\"Cause: <cause>\"",
      "\"Input: <input>\"",
      "\"Execution: <execution>\"",
    ])
  }
}
