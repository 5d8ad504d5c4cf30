# recycle-eks for a cluster whose endpoint is private: the functions are in the cluster's VPC, in a security group that the module
# creates and the cluster lets in. docs/install.md says which APIs they call from there.

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
  description = "The functions' security group: interface endpoints must let it in at port 443."
  value       = module.recycle_eks.security_group_id
}
