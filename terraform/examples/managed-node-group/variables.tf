variable "cluster_name" {
  description = "The EKS cluster."
  type        = string
}

variable "artifacts_directory" {
  description = "The folder that `make package` filled."
  type        = string
}

variable "architecture" {
  description = "Processor that the functions run on: arm64 or x86_64."
  type        = string
  default     = "arm64"
}

variable "node_group_name" {
  description = "The managed node group, which exists."
  type        = string
}
