# recycle-eks for a cluster with a private endpoint. The functions are in the cluster's VPC, in a security group that the module creates and
# the cluster allows. docs/install.md lists the APIs that they call from there.

provider "aws" {}

module "recycle_eks" {
  # Outside this repository: the repository's address, with //terraform at the end.
  source = "../../"

  cluster_name = var.cluster_name
  artifacts    = { directory = var.artifacts_directory }
  architecture = var.architecture

  vpc = { subnet_ids = var.subnet_ids }
}

output "security_group_id" {
  description = "The security group of the functions. Interface endpoints must allow it at port 443."
  value       = module.recycle_eks.security_group_id
}
