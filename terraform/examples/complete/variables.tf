variable "region" {
  description = "The cluster's region. Default: the one of the AWS settings in the environment."
  type        = string
  default     = null
}

variable "name" {
  description = "Start of every name."
  type        = string
  default     = "recycle-eks"
}

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

variable "lifecycle_hooks" {
  description = "Groups that get our lifecycle hook, such as { batch = { auto_scaling_group_name = \"batch\", retain = true } }."
  type        = any
  default     = {}
}

variable "input_defaults" {
  description = "Defaults for every execution, such as { label_selector = \"app=batch\" }: what to wait for beside Jobs."
  type        = any
  default     = {}
}

variable "alarm_triggers" {
  description = "CloudWatch alarms that recycle a node, such as { cpu = { alarm_names = [\"cpu\"], group = \"workers\", pick = \"oldest\" } }."
  type        = any
  default     = {}
}

variable "event_triggers" {
  description = "EventBridge events that recycle the instance that they name."
  type        = any
  default     = {}
}

variable "spot" {
  description = "Recycle Spot instances that EC2 is about to take away."
  type        = bool
  default     = false
}

variable "alarm_topics" {
  description = "SNS topics that those alarms notify."
  type        = map(string)
  default     = {}
}

variable "schedules" {
  description = "Rotations by the clock, such as { weekly = { schedule_expression = \"cron(0 3 ? * SUN *)\", selection = { outdated = { ami = true } } } }."
  type        = any
  default     = {}
}

variable "rotate_on_change" {
  description = "Values whose change by terraform apply begins a rotation."
  type        = any
  default     = {}
}
