# recycle-eks with triggers: an alarm on the CPU of a group, the announced retirement of an instance, and Spot events. docs/triggers.md
# describes what each trigger recycles, and when it recycles nothing.

provider "aws" {}

module "recycle_eks" {
  # Outside this repository: the repository's address, with //terraform at the end.
  source = "../../"

  cluster_name = var.cluster_name
  artifacts    = { directory = var.artifacts_directory }
  architecture = var.architecture

  # A new node takes the new work. The oldest node finishes its own work and is then kept for the investigation.
  alarm_triggers = {
    busy = {
      alarm_names = [aws_cloudwatch_metric_alarm.busy.alarm_name]
      pick        = "oldest"
      recycle     = { evict = "none", dispose = "detach" }
    }
  }

  # AWS Health names the instances that EC2 will retire, days ahead. One event may name several.
  event_triggers = {
    retirement = {
      instance_id_path = "$.resources"
      event_pattern = {
        source      = ["aws.health"]
        detail-type = ["AWS Health Event"]
        detail      = { service = ["EC2"], eventTypeCode = ["AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"] }
      }
    }
  }

  spot = true
}

resource "aws_cloudwatch_metric_alarm" "busy" {
  alarm_name          = "${var.auto_scaling_group_name}-busy"
  alarm_description   = "The group has been busy for 15 minutes"
  namespace           = "AWS/EC2"
  metric_name         = "CPUUtilization"
  dimensions          = { AutoScalingGroupName = var.auto_scaling_group_name }
  statistic           = "Average"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 90
  period              = 300
  evaluation_periods  = 3
}

output "rotate_state_machine_arn" {
  description = "The state machine that every trigger starts. You can also start it by hand."
  value       = module.recycle_eks.rotate_state_machine_arn
}
