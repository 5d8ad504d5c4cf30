# The account of the tests: the answers of AWS that the module reads.

mock_data "aws_partition" {
  defaults = {
    partition = "aws-us-gov"
  }
}

mock_data "aws_region" {
  defaults = {
    id = "us-gov-west-1"
  }
}

mock_data "aws_caller_identity" {
  defaults = {
    account_id = "123456789012"
  }
}

mock_data "aws_eks_cluster" {
  defaults = {
    arn           = "arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/prod"
    access_config = [{ authentication_mode = "API_AND_CONFIG_MAP" }]
    vpc_config    = [{ vpc_id = "vpc-1", cluster_security_group_id = "sg-cluster" }]
  }
}

mock_resource "aws_iam_role" {
  defaults = {
    arn = "arn:aws-us-gov:iam::123456789012:role/mocked"
  }
}

mock_resource "aws_iam_policy" {
  defaults = {
    arn = "arn:aws-us-gov:iam::123456789012:policy/mocked"
  }
}

mock_resource "aws_cloudwatch_log_group" {
  defaults = {
    arn = "arn:aws-us-gov:logs:us-gov-west-1:123456789012:log-group:mocked"
  }
}

mock_resource "aws_lambda_function" {
  defaults = {
    arn           = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:mocked"
    qualified_arn = "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:mocked:7"
  }
}

mock_resource "aws_sfn_state_machine" {
  defaults = {
    arn                       = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-recycle-node"
    state_machine_version_arn = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-recycle-node:3"
  }
}

mock_resource "aws_sfn_alias" {
  defaults = {
    arn = "arn:aws-us-gov:states:us-gov-west-1:123456789012:stateMachine:recycle-eks-recycle-node:live"
  }
}

mock_resource "aws_sns_topic" {
  defaults = {
    arn = "arn:aws-us-gov:sns:us-gov-west-1:123456789012:recycle-eks-notifications"
  }
}

mock_resource "aws_sqs_queue" {
  defaults = {
    arn = "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:recycle-eks-dead-letters"
    url = "https://sqs.us-gov-west-1.amazonaws.com/123456789012/recycle-eks-dead-letters"
  }
}

mock_resource "aws_security_group" {
  defaults = {
    id = "sg-functions"
  }
}

mock_resource "aws_cloudwatch_event_rule" {
  defaults = {
    arn = "arn:aws-us-gov:events:us-gov-west-1:123456789012:rule/recycle-eks-recycle-node-unreported"
  }
}
