# A dashboard of what the functions count in their logs (crates/recycle/src/notify/metrics.rs), and the alarms that are worth waking somebody for.

locals {
  # How many seconds a value of each metric is about: the sweep counts claims every 15 minutes.
  alarm_period = 900

  alarms = {
    overdue-claims = {
      description = "A node has been claimed for longer than its drain may take: its execution does not end it, and the sweep has not put it back. The claim and its execution are on the Node: kubectl get nodes -l recycle-eks/group"
      namespace   = "recycle-eks"
      metric_name = "OverdueClaims"
      dimensions  = { cluster = var.cluster_name }
      statistic   = "Maximum"
    }
    put-backs = {
      description = "A node could not be recycled and was put back. The notification says why."
      namespace   = "recycle-eks"
      metric_name = "Restores"
      dimensions  = { cluster = var.cluster_name }
      statistic   = "Sum"
    }
    left-behind = {
      description = "A node could not be put back, or not be seen, and is a person's from now on. The notification has the commands."
      namespace   = "recycle-eks"
      metric_name = "LeftBehind"
      dimensions  = { cluster = var.cluster_name }
      statistic   = "Sum"
    }
    dead-letters = {
      description = "An event could not be delivered. The queue has it: what it would have started did not start."
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
  # Nothing counted is nothing wrong.
  treat_missing_data = "notBreaching"

  alarm_actions = [local.notification_topic_arn]
  ok_actions    = [local.notification_topic_arn]
  tags          = var.tags
}

resource "aws_cloudwatch_dashboard" "this" {
  for_each = var.dashboard ? { this = "${var.name}-${var.cluster_name}" } : {}

  dashboard_name = each.value
  dashboard_body = local.dashboard
}

locals {
  dashboard = templatefile("${path.module}/dashboard.json", {
    cluster      = var.cluster_name
    dead_letters = aws_sqs_queue.dead_letters.name
    region       = local.region
    sweep        = aws_sfn_state_machine.sweep.arn
  })
}
