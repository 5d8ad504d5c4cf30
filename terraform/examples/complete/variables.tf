variable "region" {
  description = "The cluster's region. The default is the region of the AWS settings in the environment."
  type        = string
  default     = null
}

variable "name" {
  description = "The start of every name."
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
  description = "The processor of the functions: arm64 or x86_64."
  type        = string
  default     = "arm64"
}

variable "lifecycle_hooks" {
  description = "Groups that get the lifecycle hook of recycle-eks, such as { batch = { auto_scaling_group_name = \"batch\", retain = true } }."
  type        = any
  default     = {}
}

variable "input_defaults" {
  description = "Defaults for every execution, such as { label_selector = \"app=batch\" }: executions also wait for these pods, not only for Jobs."
  type        = any
  default     = {}
}

variable "alarm_triggers" {
  description = "CloudWatch alarms that recycle a node, such as { cpu = { alarm_names = [\"cpu\"], group = \"workers\", pick = \"oldest\" } }."
  type        = any
  default     = {}
}

variable "event_triggers" {
  description = "EventBridge events that recycle the instance they name."
  type        = any
  default     = {}
}

variable "cancel_instance_refresh" {
  description = "Cancel instance refreshes that would terminate nodes in Standby."
  type        = bool
  default     = false
}

variable "spot" {
  description = "Recycle Spot instances before EC2 reclaims them."
  type        = bool
  default     = false
}

variable "alarm_topics" {
  description = "SNS topics that the alarms of alarm_triggers notify."
  type        = map(string)
  default     = {}
}

variable "schedules" {
  description = "Scheduled rotations, such as { weekly = { schedule_expression = \"cron(0 3 ? * SUN *)\", selection = { outdated = { ami = true } } } }."
  type        = any
  default     = {}
}

variable "rotate_on_change" {
  description = "Values that start a rotation when terraform apply changes them."
  type        = any
  default     = {}
}

variable "notification_format" {
  description = "Format of the notifications: json, or chat for Amazon Q Developer in chat applications."
  type        = string
  default     = "json"
}
