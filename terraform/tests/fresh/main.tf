# A configuration that creates the cluster and every other resource that can be passed to the module. At the first plan, none of their
# attributes is known.

terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

resource "aws_eks_cluster" "this" {
  name     = "prod"
  role_arn = "arn:aws-us-gov:iam::123456789012:role/cluster"

  vpc_config {
    subnet_ids = [aws_subnet.this.id]
  }
}

resource "aws_vpc" "this" {
  cidr_block = "10.0.0.0/16"
}

resource "aws_subnet" "this" {
  vpc_id     = aws_vpc.this.id
  cidr_block = "10.0.0.0/24"
}

resource "aws_security_group" "this" {
  vpc_id = aws_vpc.this.id
}

resource "aws_sns_topic" "this" {
  name = "ops"
}

resource "aws_kms_key" "this" {
  description = "logs"
}

resource "aws_iam_policy" "this" {
  name   = "boundary"
  policy = jsonencode({ Version = "2012-10-17", Statement = [] })
}

module "recycle_eks" {
  source = "../../"

  cluster_name                  = aws_eks_cluster.this.name
  artifacts                     = { directory = "./tests/artifacts" }
  vpc                           = { subnet_ids = [aws_subnet.this.id], security_group_ids = [aws_security_group.this.id] }
  notification_topic            = { arn = aws_sns_topic.this.arn }
  kms_key_arn                   = aws_kms_key.this.arn
  iam_role_permissions_boundary = aws_iam_policy.this.arn

  depends_on = [aws_eks_cluster.this]
}

output "role_steps" {
  description = "The steps for which roles are planned."
  value       = keys(module.recycle_eks.role_arns)
}
