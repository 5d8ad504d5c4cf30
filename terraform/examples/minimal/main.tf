# recycle-eks with only the two required inputs: the cluster's name and the functions' code.

provider "aws" {}

module "recycle_eks" {
  # Outside this repository: the repository's address, with //terraform at the end.
  source = "../../"

  cluster_name = var.cluster_name
  artifacts    = { directory = var.artifacts_directory }
  architecture = var.architecture
}

output "start_execution_command" {
  description = "A command that recycles one node. Replace the instance id."
  value       = module.recycle_eks.start_execution_command
}
