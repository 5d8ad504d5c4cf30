# recycle-eks: one state machine that retires one node of an EKS cluster, its functions, and what they may do.
#
#   functions.tf      the functions and their logs
#   iam.tf            what each function and the state machine may do
#   state-machine.tf  the machine, its versions and the alias to start
#   hooks.tf          the lifecycle hooks, and what their events start
#   sweep.tf          the sweep: its machine, and when it runs
#   triggers.tf       what starts it: alarms, Spot, other events, schedules, terraform apply
#   access.tf         who the functions are for Kubernetes
#   notifications.tf  what people are told, and what could not be delivered
#   observability.tf  dashboard and alarms
#   vpc.tf            what the functions need in a VPC

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

data "aws_eks_cluster" "this" {
  name = var.cluster_name

  lifecycle {
    postcondition {
      condition     = !var.create_access_entries || try(self.access_config[0].authentication_mode, "CONFIG_MAP") != "CONFIG_MAP"
      error_message = "Cluster ${var.cluster_name} has authentication mode CONFIG_MAP, which cannot have access entries: switch it with `aws eks update-cluster-config --name ${var.cluster_name} --access-config authenticationMode=API_AND_CONFIG_MAP`."
    }
  }
}

locals {
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.id
  account   = data.aws_caller_identity.current.account_id

  # The machine's definition is kept beside the module, where the tests of the whole project read it too. A module source that
  # ends in //terraform brings the whole repository along; the folder alone is not enough.
  definitions = "${path.module}/../state-machine"

  machine_name = "${var.name}-recycle-node"
  sweep_name   = "${var.name}-sweep"
  rotate_name  = "${var.name}-rotate-nodes"

  # By name: the sweep's definition needs the one before the alias is there, a function the other before its machine is.
  live   = "arn:${local.partition}:states:${local.region}:${local.account}:stateMachine:${local.machine_name}:live"
  rotate = "arn:${local.partition}:states:${local.region}:${local.account}:stateMachine:${local.rotate_name}"

  # The fields of an execution's input that may have a default, and the kind of their values.
  input_fields = {
    label_selector              = "string"
    namespaces                  = "list"
    evict                       = "string"
    replacement                 = "string"
    dispose                     = "string"
    replacement_timeout = "number"
    drain_timeout       = "number"
    on_drain_timeout            = "string"
    node_lost_after     = "number"
    load_balancer_grace = "number"
    grace_period        = "number"
    dry_run                     = "boolean"
    force                       = "list"
  }

  # The terms of a rotation (docs/rotations.md), and how the value of each looks as JSON.
  rotation_terms = {
    at_once                    = "^([1-9][0-9]*|\"([1-9][0-9]?|100)%\")$"
    wait_between_nodes = "^[0-9]+$"
    start_no_new_node_after    = "^\""
    on_failure                 = "^\"(stop|continue)\"$"
    failure_budget             = "^[0-9]+$"
    retries                    = "^([0-9]|10)$"
    wait_for_pending_pods      = "^(true|false)$"
    mark                       = "^\"(soft|hard|none)\"$"
    dry_run                    = "^(true|false)$"
  }

  # How a value of each kind looks as JSON.
  input_kinds = {
    string  = "^\""
    list    = "^\\["
    number  = "^[0-9]"
    boolean = "^(true|false)$"
    any     = ""
  }
}
