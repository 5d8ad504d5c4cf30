# recycle-eks that starts by itself: when a group's CPU is busy at night, when AWS announces the end of a machine, and on Spot.
# docs/triggers.md says what each of them recycles, and when it does not.

provider "aws" {}

module "recycle_eks" {
  # Outside this repository: the repository's address, with //terraform at the end.
  source = "../../"

  cluster_name = var.cluster_name
  artifacts    = { directory = var.artifacts_directory }
  architecture = var.architecture

  # A new node takes the new work, the oldest one finishes its own, and stays for the investigation.
  alarm_triggers = {
    busy = {
      alarm_names = [aws_cloudwatch_metric_alarm.busy.alarm_name]
      pick        = "oldest"
      recycle     = { evict = "none", dispose = "detach" }
    }
  }

  # AWS Health names the instances of which EC2 has scheduled the retirement, days ahead.
  event_triggers = {
    retirement = {
      instance_id_path = "$.resources[0]"
      event_pattern = {
        source      = ["aws.health"]
        detail-type = ["AWS Health Event"]
        detail      = { service = ["EC2"], eventTypeCode = ["AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"] }
      }
    }
  }

  spot = true
}

resource "aws_cloudwatch_metric_alarm" "busy" {
  alarm_name          = "${var.auto_scaling_group_name}-busy"
  alarm_description   = "The group has been busy for a quarter of an hour"
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
  description = "What every trigger starts, to be started by hand, too."
  value       = module.recycle_eks.rotate_state_machine_arn
}
