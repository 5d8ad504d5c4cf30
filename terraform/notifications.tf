# Notifications: one topic and one schema (docs/notifications.md). The state machines publish to the topic. If an execution ends without
# publishing, an EventBridge rule publishes for it. Events that cannot be delivered go to the dead-letter queue.

locals {
  notification_topic_arn = var.notification_topic == null ? aws_sns_topic.notifications["this"].arn : var.notification_topic.arn
  notification_key_arn   = var.notification_topic == null ? var.kms_key_arn : var.notification_topic.kms_key_arn
  created_topics         = var.notification_topic == null ? { this = "${var.name}-notifications" } : {}

  # The JSONata expression of a message, within a string of JSON: the notification itself, or the format of chat applications.
  notification_message = var.notification_format == "json" ? "$" : trim(
    jsonencode(join(" ", [for line in split("\n", file("${local.definitions}/chat-message.jsonata")) : trimspace(line)])), "\""
  )

  # AWS does not document whether an event without an error has null or no such field.
  no_error = [null, { exists = false }]

  # Executions that end without publishing a notification. An event has an error only if the execution failed.
  unreported = {
    recycle-node = {
      machine     = aws_sfn_state_machine.recycle_node.arn
      description = "Executions of ${local.machine_name} that were aborted, timed out, or failed without a notification"
      severity    = "warning"
      what_next   = "The sweep restores the node, or starts a new execution if a lifecycle hook holds the node, and sends a notification. To see why the execution ended, run:"
      ends = {
        "$or" = [
          { status = ["TIMED_OUT", "ABORTED"] },
          # Mainly the limit of the history. An execution that has lost its claim cannot describe the node.
          { status = ["FAILED"], error = concat([{ prefix = "States." }, "ClaimLost"], local.no_error) },
        ]
      }
    }
    sweep = {
      machine     = aws_sfn_state_machine.sweep.arn
      description = "Executions of ${local.sweep_name} that failed, timed out or were aborted"
      severity    = "critical"
      what_next   = "Nodes whose execution has ended may stay unrestored until a sweep succeeds. To see why the sweep ended, run:"
      ends        = { status = ["FAILED", "TIMED_OUT", "ABORTED"] }
    }
    rotate-nodes = {
      machine     = aws_sfn_state_machine.rotate_nodes.arn
      description = "Executions of ${local.rotate_name} that were aborted, timed out, or failed without a notification"
      severity    = "warning"
      what_next   = "Nodes that a trigger selected may not be recycled. To see why the rotation ended, run:"
      ends = {
        "$or" = [
          { status = ["TIMED_OUT", "ABORTED"] },
          { status = ["FAILED"], error = concat([{ "anything-but" = "RotationFailed" }], local.no_error) },
        ]
      }
    }
  }

  # The notifications of these rules: with the fields of every other one, or in the format of chat applications.
  unreported_notifications = {
    for machine, rule in local.unreported : machine => {
      schema      = 1
      event       = "failed"
      severity    = rule.severity
      outcome     = "<status>"
      subject     = "recycle-eks: an execution of ${var.name}-${machine} ended <status>, cluster ${var.cluster_name}"
      reason      = "The execution ended <status> and could not give the reason."
      blocks      = []
      what_to_do  = [rule.what_next, "aws stepfunctions describe-execution --region ${local.region} --execution-arn <execution>"]
      since       = "<time>"
      until       = null
      cluster     = var.cluster_name
      group       = "unknown"
      node        = null
      instance_id = null
      execution   = "<execution>"
    }
  }

  unreported_messages = {
    for machine, message in local.unreported_notifications : machine => var.notification_format == "json" ? jsonencode(message) : jsonencode({
      version = "1.0"
      source  = "custom"
      content = {
        textType    = "client-markdown"
        title       = message.subject
        description = message.reason
        nextSteps   = [message.what_to_do[0], "`${message.what_to_do[1]}`"]
        keywords    = [message.severity, message.event, message.group]
      }
      metadata = {
        threadId         = message.execution
        summary          = message.subject
        eventType        = message.event
        relatedResources = [message.execution]
        additionalContext = {
          severity    = message.severity
          group       = message.group
          cluster     = message.cluster
          instance_id = "unknown"
          outcome     = message.outcome
        }
      }
    })
  }
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
    Statement = [
      {
        Sid       = "RulesPublishTheEndOfExecutions"
        Effect    = "Allow"
        Action    = "sns:Publish"
        Principal = { Service = "events.amazonaws.com" }
        Resource  = aws_sns_topic.notifications[each.key].arn
        # EventBridge supports no condition here: a message that needs one is lost (EventBridge user guide, "Troubleshooting").
      },
      {
        # A key that EventBridge does not send must not stop a message, so only a rule that it names as the source is refused.
        Sid       = "OtherRulesDoNotPublish"
        Effect    = "Deny"
        Action    = "sns:Publish"
        Principal = { Service = "events.amazonaws.com" }
        Resource  = aws_sns_topic.notifications[each.key].arn
        Condition = {
          ArnNotLike = { "aws:SourceArn" = local.own_rules }
          Null       = { "aws:SourceArn" = "false" }
        }
      },
      {
        Sid       = "AlarmsPublishTheirState"
        Effect    = "Allow"
        Action    = "sns:Publish"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Resource  = aws_sns_topic.notifications[each.key].arn
        Condition = { ArnLike = { "aws:SourceArn" = "arn:${local.partition}:cloudwatch:${local.region}:${local.account}:alarm:${var.name}-*" } }
      },
      {
        Sid       = "PlainHttpIsRefused"
        Effect    = "Deny"
        Action    = "sns:Publish"
        Principal = "*"
        Resource  = aws_sns_topic.notifications[each.key].arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

resource "aws_cloudwatch_event_rule" "unreported" {
  for_each = local.unreported

  name        = "${var.name}-${each.key}-unreported"
  description = each.value.description
  tags        = var.tags

  event_pattern = jsonencode({
    source      = ["aws.states"]
    detail-type = ["Step Functions Execution Status Change"]
    detail      = merge({ stateMachineArn = [each.value.machine] }, each.value.ends)
  })
}

resource "aws_cloudwatch_event_target" "unreported" {
  for_each = local.unreported

  rule      = aws_cloudwatch_event_rule.unreported[each.key].name
  target_id = "notifications"
  arn       = local.notification_topic_arn

  input_transformer {
    input_paths = {
      status    = "$.detail.status"
      execution = "$.detail.executionArn"
      time      = "$.time"
    }

    # Follows the schema in crates/recycle/src/notify/notification.rs. The template uses only values of the event that contain no quotation
    # mark and that AWS always sets. jsonencode writes < and > as escapes, which EventBridge does not accept as its variables.
    input_template = replace(replace(local.unreported_messages[each.key], "\\u003c", "<"), "\\u003e", ">")
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}

################################################################################
# Dead letters
################################################################################

resource "aws_sqs_queue" "dead_letters" {
  name = local.queue_name
  # The longest retention of SQS.
  message_retention_seconds = 1209600
  kms_master_key_id         = var.kms_key_arn
  sqs_managed_sse_enabled   = var.kms_key_arn == null ? true : null
  tags                      = var.tags
}

resource "aws_sqs_queue_policy" "dead_letters" {
  queue_url = aws_sqs_queue.dead_letters.url

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        Sid       = "RulesSendUndeliveredEvents"
        Effect    = "Allow"
        Action    = "sqs:SendMessage"
        Principal = { Service = "events.amazonaws.com" }
        Resource  = aws_sqs_queue.dead_letters.arn
        # The ARN names the account, too. EventBridge's examples have no aws:SourceAccount (EventBridge user guide, "Using dead-letter queues").
        Condition = { ArnLike = { "aws:SourceArn" = local.own_rules } }
      }],
      [
        for topics in [values(var.alarm_topics)] : {
          Sid       = "AlarmTopicsSendUndeliveredMessages"
          Effect    = "Allow"
          Action    = "sqs:SendMessage"
          Principal = { Service = "sns.amazonaws.com" }
          Resource  = aws_sqs_queue.dead_letters.arn
          Condition = { ArnEquals = { "aws:SourceArn" = topics } }
        } if length(topics) > 0
      ],
      [{
        Sid       = "PlainHttpIsRefused"
        Effect    = "Deny"
        Action    = "sqs:*"
        Principal = "*"
        Resource  = aws_sqs_queue.dead_letters.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      }],
    )
  })
}
