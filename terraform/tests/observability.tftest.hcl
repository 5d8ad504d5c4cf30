# The dashboard, the alarms, and the functions in a VPC.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "there_is_an_alarm_for_each_failure_that_needs_an_operator" {
  assert {
    condition = { for name, alarm in aws_cloudwatch_metric_alarm.this : name => [alarm.metric_name, alarm.statistic] } == {
      overdue-claims  = ["OverdueClaims", "Maximum"]
      restores        = ["Restores", "Sum"]
      manual-commands = ["ManualCommands", "Sum"]
      dead-letters    = ["ApproximateNumberOfMessagesVisible", "Maximum"]
    }
    error_message = "each failure that needs an operator has one alarm"
  }

  assert {
    condition = alltrue([
      for alarm in aws_cloudwatch_metric_alarm.this :
      alarm.alarm_actions == toset([aws_sns_topic.notifications["this"].arn]) && alarm.ok_actions == alarm.alarm_actions && alarm.treat_missing_data == "notBreaching"
    ])
    error_message = "every alarm notifies the topic when it begins and when it ends"
  }

  assert {
    condition     = alltrue([for name, alarm in aws_cloudwatch_metric_alarm.this : alarm.dimensions == tomap({ cluster = "prod" }) if name != "dead-letters"])
    error_message = "the alarms count this cluster only"
  }
}

run "the_dashboard_shows_this_cluster" {
  assert {
    condition     = aws_cloudwatch_dashboard.this["this"].dashboard_name == "recycle-eks-prod-us-gov-west-1" && output.dashboard_name == "recycle-eks-prod-us-gov-west-1"
    error_message = "the name of the dashboard contains the cluster"
  }

  assert {
    condition     = length(jsondecode(local.dashboard).widgets) == 8 && length(regexall("\\$\\{", local.dashboard)) == 0
    error_message = "the dashboard is JSON without placeholders"
  }

  assert {
    condition = alltrue([
      for widget in jsondecode(local.dashboard).widgets : length(regexall("SOURCE '/aws/lambda/recycle-eks-[a-z-]+'", widget.properties.query)) == 7
      if widget.type == "log"
    ])
    error_message = "the queries read the logs of the functions that end executions"
  }
}

run "alarms_and_dashboard_can_be_left_out" {
  variables {
    alarms    = false
    dashboard = false
  }

  assert {
    condition     = length(aws_cloudwatch_metric_alarm.this) == 0 && length(aws_cloudwatch_dashboard.this) == 0 && output.dashboard_name == null
    error_message = "alarms and dashboard can be left out"
  }
}

run "in_a_vpc_the_functions_have_a_security_group_that_the_cluster_lets_in" {
  variables {
    vpc = { subnet_ids = ["subnet-1"] }
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.vpc_config[0].security_group_ids == toset([output.security_group_id])])
    error_message = "every function is in the security group"
  }

  assert {
    condition     = aws_security_group.functions["this"].vpc_id == "vpc-1"
    error_message = "the security group is in the cluster's VPC"
  }

  assert {
    condition = [
      for rule in [aws_vpc_security_group_ingress_rule.cluster["this"]] : [rule.security_group_id, rule.referenced_security_group_id, rule.from_port, rule.to_port]
    ] == [["sg-cluster", "sg-functions", 443, 443]]
    error_message = "the cluster's endpoint allows the security group"
  }

  assert {
    condition     = aws_vpc_security_group_egress_rule.functions["this"].from_port == 443 && aws_vpc_security_group_egress_rule.functions["this"].to_port == 443
    error_message = "the security group allows calls to port 443 only"
  }
}

run "a_given_security_group_is_the_only_one" {
  variables {
    vpc = { subnet_ids = ["subnet-1"], security_group_ids = ["sg-mine"] }
  }

  assert {
    condition = alltrue([for function in aws_lambda_function.this : function.vpc_config[0].security_group_ids == toset(["sg-mine"])]) && (
      length(aws_security_group.functions) + length(aws_vpc_security_group_ingress_rule.cluster) == 0
    )
    error_message = "the module creates no security group in addition to the given one"
  }
}
