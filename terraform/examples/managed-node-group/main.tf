# recycle-eks for an existing EKS managed node group. A scale-in, also to 0, waits until the pods are done. An update of the group does not
# wait. README.md in this folder gives the reason, and the setting that the group itself needs.

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
