# The lifecycle hook on the groups that are given: whatever terminates a member of theirs waits until its pods are done. Groups themselves are
# not managed here; whether a group keeps instances whose hook was abandoned is its own setting.

resource "aws_autoscaling_lifecycle_hook" "this" {
  for_each = var.lifecycle_hooks

  # The name by which the functions know it as ours.
  name                   = "recycle-eks"
  autoscaling_group_name = each.value.auto_scaling_group_name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  heartbeat_timeout      = each.value.heartbeat_timeout_seconds
  # Where the group retains instances, one that nobody has seen to is kept; anywhere else it goes, as it does without the hook.
  default_result = "ABANDON"

  # Whom the hook holds, somebody has to see to.
  depends_on = [aws_cloudwatch_event_target.lifecycle_hook, aws_cloudwatch_event_target.sweep]
}

# The event is the fast path; the sweep finds whom it did not reach.
resource "aws_cloudwatch_event_rule" "lifecycle_hook" {
  for_each = var.lifecycle_hooks

  name        = "${var.name}-hook-${each.key}"
  description = "A member of ${each.value.auto_scaling_group_name} is being terminated and waits for our lifecycle hook"
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

    # Outside quotes EventBridge writes a value as JSON, whatever is in it.
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
