# recycle-eks on one cluster, with every variable for triggers. The module requires only the cluster's name and the functions' code.

provider "aws" {
  region = var.region
}

module "recycle_eks" {
  # Outside this repository: the repository's address, with //terraform at the end.
  source = "../../"

  name           = var.name
  cluster_name   = var.cluster_name
  input_defaults = var.input_defaults

  lifecycle_hooks         = var.lifecycle_hooks
  alarm_triggers          = var.alarm_triggers
  alarm_topics            = var.alarm_topics
  event_triggers          = var.event_triggers
  spot                    = var.spot
  cancel_instance_refresh = var.cancel_instance_refresh
  schedules               = var.schedules
  rotate_on_change        = var.rotate_on_change
  notification_format     = var.notification_format

  artifacts    = { directory = var.artifacts_directory }
  architecture = var.architecture

  tags = { managed-by = "terraform" }
}
