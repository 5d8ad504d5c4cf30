# recycle-eks: the state machine that retires one node of an EKS cluster, its functions, and their permissions.
#
#   functions.tf      The functions and their logs.
#   iam.tf            The permissions of each function and of the state machines.
#   state-machine.tf  The state machine recycle-node, its versions, and the alias to start.
#   hooks.tf          The lifecycle hooks, and the executions that their events start.
#   sweep.tf          The state machine of the sweep, and when it runs.
#   triggers.tf       Alarms, Spot and other events, schedules and terraform apply, which start executions.
#   access.tf         The EKS access entries of the functions.
#   notifications.tf  The topic for notifications, and the queue for events that could not be delivered.
#   observability.tf  The dashboard and the alarms.
#   vpc.tf            The security group of the functions in a VPC.

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

data "aws_eks_cluster" "this" {
  name = var.cluster_name

  lifecycle {
    postcondition {
      condition     = !var.create_access_entries || try(self.access_config[0].authentication_mode, "CONFIG_MAP") != "CONFIG_MAP"
      error_message = "Cluster ${var.cluster_name} has authentication mode CONFIG_MAP, which cannot have access entries: change the mode with `aws eks update-cluster-config --name ${var.cluster_name} --access-config authenticationMode=API_AND_CONFIG_MAP`."
    }
  }
}

locals {
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.id
  account   = data.aws_caller_identity.current.account_id

  # A release's archive has the definitions of the state machines inside the module. In the repository they are next to it, because
  # the tests of the whole project read them too. A module source that ends in //terraform contains the whole repository.
  definitions = fileexists("${path.module}/state-machine/recycle-node.asl.json") ? "${path.module}/state-machine" : "${path.module}/../state-machine"

  # Roles, policies and dashboards have the region in their names, because their names are unique in the account. All other names are
  # unique in a region.
  machine_name = "${var.name}-recycle-node"
  sweep_name   = "${var.name}-sweep"
  rotate_name  = "${var.name}-rotate-nodes"
  queue_name   = "${var.name}-dead-letters"

  # These ARNs are built from names. The sweep's definition needs the first before the alias exists, and a function needs the second
  # before its state machine exists. With the third, the functions do not wait half a minute for the queue.
  live         = "arn:${local.partition}:states:${local.region}:${local.account}:stateMachine:${local.machine_name}:live"
  rotate       = "arn:${local.partition}:states:${local.region}:${local.account}:stateMachine:${local.rotate_name}"
  dead_letters = "arn:${local.partition}:sqs:${local.region}:${local.account}:${local.queue_name}"

  # The rules of EventBridge that this module creates.
  own_rules = "arn:${local.partition}:events:${local.region}:${local.account}:rule/${var.name}-*"

  # The fields of an execution's input that may have a default, and the kind of their values.
  input_fields = {
    label_selector      = "string"
    namespaces          = "list"
    evict               = "string"
    replacement         = "string"
    dispose             = "string"
    replacement_timeout = "duration"
    drain_timeout       = "duration"
    on_drain_timeout    = "string"
    node_lost_after     = "duration"
    skip_stuck_after    = "duration"
    load_balancer_grace = "duration"
    grace_period        = "duration"
    dry_run             = "boolean"
    override            = "list"
  }

  # The kinds of values: the form of the value as JSON, and the words for it in an error message.
  input_kinds = {
    string   = { form = "^\"", words = "a string" }
    list     = { form = "^\\[", words = "a list" }
    duration = { form = "^${local.duration}$", words = "a duration such as 20h, 10d or a number of seconds" }
    boolean  = { form = "^(true|false)$", words = "true or false" }
    any      = { form = "", words = "" }
  }

  # The form of a duration as JSON: a whole number of seconds, as a number or a string, or a string of days, hours, minutes and
  # seconds in this order, such as "1d12h". The functions read the same grammar, and also check the range.
  duration = "([0-9]+|\"[0-9]+(d([0-9]+h)?([0-9]+m)?([0-9]+s)?|h([0-9]+m)?([0-9]+s)?|m([0-9]+s)?|s)?\")"

  # The units of a duration, in seconds. Without a unit it is a number of seconds.
  unit_seconds = { d = 86400, h = 3600, m = 60, s = 1 }

  # The terms of a rotation (docs/rotations.md): the form of the value as JSON, and the words for it in an error message.
  rotation_terms = {
    at_once                 = { form = "^([1-9][0-9]*|\"([1-9][0-9]?|100)%\")$", words = "a whole number from 1, or a percentage such as \"25%\"" }
    wait_between_nodes      = local.input_kinds.duration
    wait_after_first_node   = local.input_kinds.duration
    alarms                  = { form = "^\\[\"", words = "a list of names of CloudWatch alarms" }
    on_alarm                = { form = "^\"(wait|stop)\"$", words = "wait or stop" }
    start_no_new_node_after = { form = "^(${local.duration}|\"[0-9]{4}-[^\"]+\")$", words = "a time such as 2027-01-31T05:00:00Z, or a duration such as 4h or a number of seconds" }
    on_failure              = { form = "^\"(stop|continue)\"$", words = "stop or continue" }
    failure_budget          = { form = "^[0-9]+$", words = "a whole number" }
    retries                 = { form = "^([0-9]|10)$", words = "a whole number from 0 to 10" }
    wait_for_pending_pods   = { form = "^(true|false)$", words = "true or false" }
    mark                    = { form = "^\"(soft|hard|none)\"$", words = "soft, hard or none" }
    dry_run                 = { form = "^(true|false)$", words = "true or false" }
  }
}
