# recycle-eks for an EKS managed node group that is there already: whatever ends a node of it (an update of the group, a scale-in, an
# instance refresh) waits until its pods are done. README.md beside this says what has to be set on the group itself.

provider "aws" {}

data "aws_eks_node_group" "this" {
  cluster_name    = var.cluster_name
  node_group_name = var.node_group_name
}

locals {
  # A managed node group has one Auto Scaling group, which EKS has made and named.
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
  description = "Run it once, as long as the provider cannot set the policy: see README.md."
  value       = "aws autoscaling update-auto-scaling-group --auto-scaling-group-name ${local.auto_scaling_group_name} --instance-lifecycle-policy '{\"RetentionTriggers\": {\"TerminateHookAbandon\": \"retain\"}}'"
}
