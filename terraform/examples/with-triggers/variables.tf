variable "cluster_name" {
  description = "The EKS cluster."
  type        = string
}

variable "artifacts_directory" {
  description = "The folder that `make package` filled."
  type        = string
}

variable "architecture" {
  description = "The processor of the functions: arm64 or x86_64."
  type        = string
  default     = "arm64"
}

variable "auto_scaling_group_name" {
  description = "The Auto Scaling group whose CPU the alarm watches."
  type        = string
}
