# The lifecycle hook on the given groups: every termination of a member waits until its pods are done. The module does not manage the groups
# themselves. A setting of the group decides whether it keeps instances whose hook was abandoned.

resource "aws_autoscaling_lifecycle_hook" "this" {
  for_each = var.lifecycle_hooks

  # The functions recognize the hook of recycle-eks by this name.
  name                   = "recycle-eks"
  autoscaling_group_name = each.value.auto_scaling_group_name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  heartbeat_timeout      = each.value.heartbeat_timeout_seconds
  # If no execution completes the hook, a group that retains instances keeps the instance. Other groups terminate it, as they do without the hook.
  default_result = "ABANDON"

  # The targets exist first, so that an execution starts for every instance that the hook holds.
  depends_on = [aws_cloudwatch_event_target.lifecycle_hook, aws_cloudwatch_event_target.sweep]
}

# The event starts an execution at once. If it is lost, the sweep finds the instance.
resource "aws_cloudwatch_event_rule" "lifecycle_hook" {
  for_each = var.lifecycle_hooks

  name        = "${var.name}-hook-${each.key}"
  description = "A member of ${each.value.auto_scaling_group_name} is being terminated and waits for the lifecycle hook of recycle-eks"
  tags        = var.tags

  event_pattern = jsonencode({
    source      = ["aws.autoscaling"]
    detail-type = ["EC2 Instance-terminate Lifecycle Action"]
    detail = {
      AutoScalingGroupName = [each.value.auto_scaling_group_name]
      LifecycleHookName    = ["recycle-eks"]
      LifecycleTransition  = ["autoscaling:EC2_INSTANCE_TERMINATING"]
    }
  })
}

resource "aws_cloudwatch_event_target" "lifecycle_hook" {
  for_each = var.lifecycle_hooks

  rule      = aws_cloudwatch_event_rule.lifecycle_hook[each.key].name
  target_id = "recycle-node"
  arn       = aws_sfn_alias.live.arn
  role_arn  = aws_iam_role.events.arn

  input_transformer {
    input_paths = {
      instance    = "$.detail.EC2InstanceId"
      group       = "$.detail.AutoScalingGroupName"
      hook        = "$.detail.LifecycleHookName"
      destination = "$.detail.Destination"
      time        = "$.time"
    }

    # Outside quotes EventBridge writes every value as JSON.
    input_template = <<-JSON
      {
        "instance_id": <instance>,
        "cluster_name": ${jsonencode(var.cluster_name)},
        "urgency": "hook",
        "hook": {"name": <hook>, "auto_scaling_group_name": <group>, "destination": <destination>, "fired_at": <time>, "retain": ${each.value.retain}}
      }
    JSON
  }

  dead_letter_config {
    arn = aws_sqs_queue.dead_letters.arn
  }
}
