# The dashboard of the metrics and the decisions that the functions write to their logs (crates/recycle/src/notify/metrics.rs), and the alarms for an operator.

locals {
  # The period of each metric in seconds. The sweep counts claims every 15 minutes.
  alarm_period = 900

  alarms = {
    overdue-claims = {
      description = "A node has been claimed for longer than its drain may take: its execution has not finished it, and the sweep has not restored it. The Lease of its instance names the execution. Run kubectl get leases --namespace recycle-eks"
      namespace   = "recycle-eks"
      metric_name = "OverdueClaims"
      dimensions  = { cluster = var.cluster_name }
      statistic   = "Maximum"
    }
    restores = {
      description = "A node could not be recycled and was restored. The notification gives the reason."
      namespace   = "recycle-eks"
      metric_name = "Restores"
      dimensions  = { cluster = var.cluster_name }
      statistic   = "Sum"
    }
    manual-commands = {
      description = "A node could not be restored, or its state could not be read. An operator has to act. The notification has the commands."
      namespace   = "recycle-eks"
      metric_name = "ManualCommands"
      dimensions  = { cluster = var.cluster_name }
      statistic   = "Sum"
    }
    dead-letters = {
      description = "An event could not be delivered and started nothing. It is in the dead-letter queue."
      namespace   = "AWS/SQS"
      metric_name = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = aws_sqs_queue.dead_letters.name }
      statistic   = "Maximum"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = var.alarms ? local.alarms : {}

  alarm_name        = "${var.name}-${each.key}"
  alarm_description = each.value.description

  namespace           = each.value.namespace
  metric_name         = each.value.metric_name
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  period              = local.alarm_period
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  # No data means that nothing went wrong.
  treat_missing_data = "notBreaching"

  alarm_actions = [local.notification_topic_arn]
  ok_actions    = [local.notification_topic_arn]
  tags          = var.tags
}

resource "aws_cloudwatch_dashboard" "this" {
  for_each = var.dashboard ? { this = "${var.name}-${var.cluster_name}-${local.region}" } : {}

  dashboard_name = each.value
  dashboard_body = local.dashboard
}

locals {
  dashboard = templatefile("${path.module}/dashboard.json", {
    cluster      = var.cluster_name
    dead_letters = aws_sqs_queue.dead_letters.name
    # The functions of recycle-node and of the sweep. serve-operator, select-nodes and start-rotation end no execution of a node.
    logs = join(" | ", [
      for name in ["check-pods", "claim-node", "detach-terminate", "evict-pods", "restore-node", "standby-node", "taint-node"] :
      "SOURCE '${aws_cloudwatch_log_group.function[name].name}'"
    ])
    region = local.region
    sweep  = aws_sfn_state_machine.sweep.arn
  })
}
