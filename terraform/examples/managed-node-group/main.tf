# recycle-eks for an existing EKS managed node group. The hook holds the instances of a scale-in, but EKS may evict their pods. So never
# scale the group to 0 while pods that must not be lost run on it. README.md in this folder has the reason, and the setting that the group needs.

provider "aws" {}

data "aws_eks_node_group" "this" {
  cluster_name    = var.cluster_name
  node_group_name = var.node_group_name
}

locals {
  # A managed node group has one Auto Scaling group, which EKS creates and names.
  auto_scaling_group_name = data.aws_eks_node_group.this.resources[0].autoscaling_groups[0].name
}

module "recycle_eks" {
  # Outside this repository: the repository's address, with //terraform at the end.
  source = "../../"

  cluster_name = var.cluster_name
  artifacts    = { directory = var.artifacts_directory }
  architecture = var.architecture

  lifecycle_hooks = {
    nodes = { auto_scaling_group_name = local.auto_scaling_group_name, retain = true }
  }
}

output "retain_command" {
  description = "Run this command once, because the provider cannot set the policy. See README.md."
  value       = "aws autoscaling update-auto-scaling-group --auto-scaling-group-name ${local.auto_scaling_group_name} --instance-lifecycle-policy '{\"RetentionTriggers\": {\"TerminateHookAbandon\": \"retain\"}}'"
}
