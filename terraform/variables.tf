################################################################################
# The cluster and the executions
################################################################################

variable "name" {
  description = "Prefix of every name in the module: `<name>-recycle-node`, `<name>-claim-node`, … Roles and the dashboard also have the region in their names, so installations in two regions may have the same name. A change replaces every resource, so change it only while no execution runs."
  type        = string
  default     = "recycle-eks"
  nullable    = false

  validation {
    condition     = can(regex("^[a-zA-Z0-9][a-zA-Z0-9_-]*$", var.name))
    error_message = "name must start with a letter or digit, and may contain only letters, digits, - and _."
  }

  validation {
    # The claim tag contains an execution's ARN, and the value of a tag has at most 256 characters.
    condition     = length("${var.name}-recycle-node") <= 40
    error_message = "name may have at most 27 characters, so that <name>-recycle-node has at most 40."
  }
}

variable "cluster_name" {
  description = "The EKS cluster whose nodes are recycled. One module instance serves one cluster. For several clusters, use `for_each` on the module. If the same configuration creates the cluster, the module needs `depends_on` for it. The cluster's Auto Scaling groups and instances must have the tag `kubernetes.io/cluster/<cluster_name>` = `owned` or `shared`, which EKS also requires of its nodes. The functions cannot change groups and instances without this tag."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}$", var.cluster_name))
    error_message = "cluster_name must be a name that EKS allows: at most 100 letters, digits, - and _, the first a letter or digit."
  }
}

variable "input_defaults" {
  description = "Defaults for fields of an execution's input, such as `{ label_selector = \"app=batch\", drain_timeout = \"3d\" }`. A field in the input of an execution overrides its default. docs/inputs-and-outcomes.md lists the fields and their values. Durations are strings such as `20h` or `1d12h`, or numbers of seconds. `claim-node` refuses a wrong value before it touches anything."
  # This is no object type, because Terraform drops unknown attributes of an object without an error. With a misspelt
  # label_selector, the pods that you want to wait for would be evicted.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = length(setsubtract(keys(var.input_defaults), keys(local.input_fields))) == 0
    error_message = "input_defaults has no field ${join(", ", setsubtract(keys(var.input_defaults), keys(local.input_fields)))}; allowed are ${join(", ", keys(local.input_fields))}."
  }

  validation {
    condition = alltrue([
      for field, value in var.input_defaults : can(regex(local.input_kinds[lookup(local.input_fields, field, "any")].form, jsonencode(value)))
    ])
    error_message = "input_defaults: ${join("; ", [
      for field, value in var.input_defaults : "${field} must be ${local.input_kinds[lookup(local.input_fields, field, "any")].words}, but is ${jsonencode(value)}"
      if !can(regex(local.input_kinds[lookup(local.input_fields, field, "any")].form, jsonencode(value)))
    ])}."
  }
}

variable "lifecycle_hooks" {
  description = "Auto Scaling groups that get the lifecycle hook of recycle-eks. The keys are names of your choice. If a scale-in, an instance refresh, a rebalance or anything else terminates a member of such a group, the hook keeps the instance until its pods are done. The update of a managed node group does not wait, because EKS drains the nodes itself before. `retain` says that the group's instance lifecycle policy has `TerminateHookAbandon = retain`. A drain may then take longer than the hook can be kept alive, which is 48 hours or 100 times `heartbeat_timeout_seconds`. Each execution checks `retain` against the group, and reports if it does not hold. If the hook is deleted, Auto Scaling terminates every member that waits for it, with its pods and regardless of `retain`. A hook is deleted if its group leaves this map, if its key changes without `moved`, and by `terraform destroy`. See docs/hooks.md."
  type = map(object({
    auto_scaling_group_name   = string
    heartbeat_timeout_seconds = optional(number, 3600)
    retain                    = optional(bool, false)
  }))
  default  = {}
  nullable = false

  validation {
    # The longest wait between two checks of the pods is a third of the time-out, so it must not be too short. Auto Scaling allows at most 7200.
    condition     = alltrue([for hook in values(var.lifecycle_hooks) : hook.heartbeat_timeout_seconds >= 900 && hook.heartbeat_timeout_seconds <= 7200])
    error_message = "lifecycle_hooks: heartbeat_timeout_seconds must be from 900 to 7200."
  }

  validation {
    condition     = length(distinct([for hook in values(var.lifecycle_hooks) : hook.auto_scaling_group_name])) == length(var.lifecycle_hooks)
    error_message = "lifecycle_hooks must name each group once."
  }

  validation {
    # A role has at most ten managed policies, each of which has room for 16 groups (iam.tf).
    condition     = length(var.lifecycle_hooks) <= 160
    error_message = "lifecycle_hooks must have at most 160 groups, because a role has room for no more, but has ${length(var.lifecycle_hooks)}. Create another installation with another `name` for the others."
  }

  validation {
    # The executions for hooks would change nothing, so the hooks would end while pods still run.
    condition     = length(var.lifecycle_hooks) == 0 || try(var.input_defaults.dry_run, false) != true
    error_message = "lifecycle_hooks must be empty as long as input_defaults has dry_run = true: no execution would keep a hook alive, and Auto Scaling would terminate members with their pods."
  }

  validation {
    condition     = alltrue([for key in keys(var.lifecycle_hooks) : can(regex("^[a-zA-Z0-9_.-]{1,30}$", key))])
    error_message = "lifecycle_hooks: a key must have 1 to 30 letters, digits, -, _ and ., because it becomes part of the name of an EventBridge rule."
  }
}

variable "cancel_instance_refresh" {
  description = "Cancel an instance refresh that would terminate a node in Standby with its pods (`StandbyInstances: Terminate`), at the next check of the pods. Instances that it has replaced stay replaced. If this is false, a notification has the command that cancels it."
  type        = bool
  default     = false
  nullable    = false
}

variable "max_parallel_per_group" {
  description = "How many nodes of one Auto Scaling group are replaced, or have pods moved from them, at the same time. Other executions wait in the queue of the group for up to a day. Executions for a lifecycle hook or for a Spot instance at risk do not wait."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.max_parallel_per_group >= 1 && floor(var.max_parallel_per_group) == var.max_parallel_per_group
    error_message = "max_parallel_per_group must be a whole number of at least 1."
  }
}

variable "max_surge_per_group" {
  description = "How many nodes of one Auto Scaling group are underway at the same time, including nodes that only wait for their pods. Each of these already has its replacement, so this variable limits the number of extra instances. With the default, a rotation of a group of 50 nodes with pods of 20 hours takes about nine days (docs/rotations.md)."
  type        = number
  default     = 5
  nullable    = false

  validation {
    condition     = var.max_surge_per_group >= 1 && var.max_surge_per_group <= 40 && floor(var.max_surge_per_group) == var.max_surge_per_group
    error_message = "max_surge_per_group must be a whole number from 1 to 40: Step Functions works on at most 40 nodes of a group at once."
  }

  validation {
    condition     = var.max_surge_per_group >= var.max_parallel_per_group
    error_message = "max_surge_per_group must be at least max_parallel_per_group, because nodes that are being replaced are also underway."
  }
}

################################################################################
# Triggers
################################################################################

variable "alarm_triggers" {
  description = "CloudWatch alarms that recycle a node when they enter ALARM. The keys are names of your choice. `alarm_names` is required. If an alarm has the dimension InstanceId, this instance is recycled. If it has AutoScalingGroupName, or if you set `group` here, the oldest node of the group is recycled with `pick = \"oldest\"`, and the alarm is refused without it. No node of a group is recycled within `cooldown_minutes` (60) after the last claim or replacement in the group. `recycle` has fields of an execution's input, which override `input_defaults`."
  # This is no object type, because Terraform drops unknown attributes of an object without an error, as in input_defaults.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for trigger in values(var.alarm_triggers) : try(length(trigger.alarm_names) > 0, false)])
    error_message = "alarm_triggers: each trigger needs alarm_names, a list with at least one name."
  }

  validation {
    condition     = alltrue(flatten([for trigger in values(var.alarm_triggers) : [for term in keys(trigger) : contains(["alarm_names", "group", "pick", "cooldown_minutes", "recycle"], term)]]))
    error_message = "alarm_triggers: a trigger may have only alarm_names, group, pick, cooldown_minutes and recycle."
  }

  validation {
    condition     = alltrue([for trigger in values(var.alarm_triggers) : contains(["oldest", "absent"], try(coalesce(trigger.pick, "absent"), "absent"))])
    error_message = "alarm_triggers: pick must be oldest or absent."
  }

  validation {
    condition     = alltrue(flatten([for trigger in values(var.alarm_triggers) : [for field in keys(try(trigger.recycle, {})) : contains(keys(local.input_fields), field)]]))
    error_message = "alarm_triggers: recycle may have only the fields ${join(", ", keys(local.input_fields))}."
  }

  validation {
    condition     = alltrue([for key in keys(var.alarm_triggers) : can(regex("^[a-zA-Z0-9_.-]+$", key)) && length("${var.name}-rotate-nodes-alarm-${key}") <= 64])
    error_message = "alarm_triggers: a key may contain only letters, digits, -, _ and ., and <name>-rotate-nodes-alarm-<key>, the name of an EventBridge rule, may have at most 64 characters."
  }
}

variable "alarm_topics" {
  description = "SNS topics to which alarms of `alarm_triggers` publish. The keys are names of your choice. Use them for alarms whose events do not reach EventBridge in this account and region, or as a second path for other alarms. An alarm must be of the topic's account and region. An alarm that arrives on both paths starts one rotation."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for arn in values(var.alarm_topics) : can(regex("^arn:[^:]+:sns:[^:]+:[0-9]{12}:[^:]+$", arn))])
    error_message = "alarm_topics: each value must be the ARN of an SNS topic."
  }

  validation {
    condition     = length(distinct(values(var.alarm_topics))) == length(var.alarm_topics)
    error_message = "alarm_topics must name each topic once."
  }

  validation {
    condition     = alltrue([for key in keys(var.alarm_topics) : can(regex("^[a-zA-Z0-9_-]{1,60}$", key))])
    error_message = "alarm_topics: a key must have 1 to 60 letters, digits, - and _."
  }

  validation {
    condition     = length(var.alarm_topics) == 0 || length(jsonencode(var.alarm_triggers)) <= 2500
    error_message = "alarm_topics: alarm_triggers must have at most 2500 characters as JSON, because the environment of a function has 4 KB."
  }
}

variable "event_triggers" {
  description = "EventBridge events that recycle the instances that they name. The keys are names of your choice. `event_pattern` is an object. `instance_id_path` is the path to the instance id, such as `$.detail.instance-id`, to an ARN that ends in the id, or to a list of these, such as `$.resources`. Events about instances of other clusters are ignored. `recycle` has fields of an execution's input, which override `input_defaults`."
  # This is no map type, because all values of a map have the same type, and event patterns differ.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for trigger in values(var.event_triggers) : can(trigger.event_pattern) && can(regex("^\\$\\.", trigger.instance_id_path))])
    error_message = "event_triggers: each trigger needs event_pattern, and instance_id_path that begins with $."
  }

  validation {
    condition     = alltrue(flatten([for trigger in values(var.event_triggers) : [for term in keys(trigger) : contains(["event_pattern", "instance_id_path", "recycle"], term)]]))
    error_message = "event_triggers: a trigger may have only event_pattern, instance_id_path and recycle."
  }

  validation {
    condition     = alltrue(flatten([for trigger in values(var.event_triggers) : [for field in keys(try(trigger.recycle, {})) : contains(keys(local.input_fields), field)]]))
    error_message = "event_triggers: recycle may have only the fields ${join(", ", keys(local.input_fields))}."
  }

  validation {
    condition     = alltrue([for key in keys(var.event_triggers) : can(regex("^[a-zA-Z0-9_.-]+$", key)) && length("${var.name}-rotate-nodes-event-${key}") <= 64])
    error_message = "event_triggers: a key may contain only letters, digits, -, _ and ., and <name>-rotate-nodes-event-<key>, the name of an EventBridge rule, may have at most 64 characters."
  }
}

variable "schedules" {
  description = "Rotations that start on a schedule. The keys are names of your choice. Each has `schedule_expression` (`rate(7 days)`, `cron(0 3 ? * SUN *)` or `at(2027-01-31T03:00:00)`), `timezone` (UTC) and `selection`, such as `{ outdated = { older_than = \"14d\" } }`. The terms of the rotation, such as `at_once`, are optional. `recycle` has fields of an execution's input, which override `input_defaults`. See docs/triggers.md and docs/rotations.md."
  # This is no object type, because Terraform drops unknown attributes of an object without an error, as in input_defaults.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for schedule in values(var.schedules) : can(regex("^(rate|cron|at)\\(.+\\)$", schedule.schedule_expression)) && can(keys(schedule.selection))])
    error_message = "schedules: each schedule needs selection, and schedule_expression, which is rate(…), cron(…) or at(…)."
  }

  validation {
    condition     = alltrue(flatten([for schedule in values(var.schedules) : [for term in keys(schedule) : contains(concat(["schedule_expression", "timezone", "selection", "recycle"], keys(local.rotation_terms)), term)]]))
    error_message = "schedules: a schedule may have only schedule_expression, timezone, selection, recycle and the terms ${join(", ", keys(local.rotation_terms))}."
  }

  validation {
    condition = alltrue(flatten([for schedule in values(var.schedules) : [
      for term, kind in local.rotation_terms : try(schedule[term], null) == null ? true : can(regex(kind.form, jsonencode(schedule[term])))
    ]]))
    error_message = "schedules: ${join("; ", flatten([for schedule in values(var.schedules) : [
      for term, kind in local.rotation_terms : "${term} must be ${kind.words}, but is ${jsonencode(try(schedule[term], null))}"
      if try(schedule[term], null) == null ? false : !can(regex(kind.form, jsonencode(schedule[term])))
    ]]))}."
  }

  validation {
    condition     = alltrue([for schedule in values(var.schedules) : try(tonumber(schedule.at_once), 1) <= var.max_surge_per_group])
    error_message = "schedules: at_once must not be more than max_surge_per_group, which is ${var.max_surge_per_group}."
  }

  validation {
    condition = alltrue(flatten([for schedule in values(var.schedules) : [for term in ["wait_between_nodes", "wait_after_first_node"] :
      try(sum([for part in regexall("([0-9]+)([dhms]?)", tostring(schedule[term])) : tonumber(part[0]) * lookup(local.unit_seconds, part[1], 1)]) <= 86400, true)
    ]]))
    error_message = "schedules: wait_between_nodes and wait_after_first_node must be at most a day."
  }

  validation {
    condition     = alltrue([for schedule in values(var.schedules) : try(schedule.on_alarm, null) == null || try(schedule.alarms, null) != null])
    error_message = "schedules: on_alarm is allowed only with alarms."
  }

  validation {
    condition     = alltrue([for schedule in values(var.schedules) : !can(regex("^(0+[dhms]?)+$", tostring(schedule.start_no_new_node_after)))])
    error_message = "schedules: start_no_new_node_after must be at least 1s; leave it out if the rotation has no end."
  }

  validation {
    condition     = alltrue([for schedule in values(var.schedules) : try(contains(["outdated", "instance_ids"], one(keys(schedule.selection))), false)])
    error_message = "schedules: selection must have either outdated or instance_ids."
  }

  validation {
    condition     = alltrue(flatten([for schedule in values(var.schedules) : [for field in keys(try(schedule.recycle, {})) : contains(keys(local.input_fields), field)]]))
    error_message = "schedules: recycle may have only the fields ${join(", ", keys(local.input_fields))}."
  }

  validation {
    condition     = alltrue([for key in keys(var.schedules) : can(regex("^[a-zA-Z0-9_.-]+$", key)) && length("${var.name}-rotate-nodes-${key}") <= 64])
    error_message = "schedules: a key may contain only letters, digits, -, _ and ., and <name>-rotate-nodes-<key>, the name of the schedule, may have at most 64 characters."
  }
}

variable "rotate_on_change" {
  description = "Values whose change by `terraform apply` starts a rotation. The keys are names of your choice. Each has `value`, such as a group's launch template version, and `selection`, such as `{ outdated = { groups = [\"workers\"], launch_template = true } }`. The apply does not wait for the rotation. The terms of the rotation, such as `at_once`, are optional. `recycle` has fields of an execution's input, which override `input_defaults`. See docs/triggers.md and docs/rotations.md."
  # This is no object type, because Terraform drops unknown attributes of an object without an error, as in input_defaults.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for change in values(var.rotate_on_change) : can(change.value) && can(keys(change.selection))])
    error_message = "rotate_on_change: each entry needs value and selection."
  }

  validation {
    condition     = alltrue(flatten([for change in values(var.rotate_on_change) : [for term in keys(change) : contains(concat(["value", "selection", "recycle"], keys(local.rotation_terms)), term)]]))
    error_message = "rotate_on_change: an entry may have only value, selection, recycle and the terms ${join(", ", keys(local.rotation_terms))}."
  }

  validation {
    condition = alltrue(flatten([for change in values(var.rotate_on_change) : [
      for term, kind in local.rotation_terms : try(change[term], null) == null ? true : can(regex(kind.form, jsonencode(change[term])))
    ]]))
    error_message = "rotate_on_change: ${join("; ", flatten([for change in values(var.rotate_on_change) : [
      for term, kind in local.rotation_terms : "${term} must be ${kind.words}, but is ${jsonencode(try(change[term], null))}"
      if try(change[term], null) == null ? false : !can(regex(kind.form, jsonencode(change[term])))
    ]]))}."
  }

  validation {
    condition     = alltrue([for change in values(var.rotate_on_change) : try(tonumber(change.at_once), 1) <= var.max_surge_per_group])
    error_message = "rotate_on_change: at_once must not be more than max_surge_per_group, which is ${var.max_surge_per_group}."
  }

  validation {
    condition = alltrue(flatten([for change in values(var.rotate_on_change) : [for term in ["wait_between_nodes", "wait_after_first_node"] :
      try(sum([for part in regexall("([0-9]+)([dhms]?)", tostring(change[term])) : tonumber(part[0]) * lookup(local.unit_seconds, part[1], 1)]) <= 86400, true)
    ]]))
    error_message = "rotate_on_change: wait_between_nodes and wait_after_first_node must be at most a day."
  }

  validation {
    condition     = alltrue([for change in values(var.rotate_on_change) : try(change.on_alarm, null) == null || try(change.alarms, null) != null])
    error_message = "rotate_on_change: on_alarm is allowed only with alarms."
  }

  validation {
    condition     = alltrue([for change in values(var.rotate_on_change) : !can(regex("^(0+[dhms]?)+$", tostring(change.start_no_new_node_after)))])
    error_message = "rotate_on_change: start_no_new_node_after must be at least 1s; leave it out if the rotation has no end."
  }

  validation {
    condition     = alltrue([for change in values(var.rotate_on_change) : try(contains(["outdated", "instance_ids"], one(keys(change.selection))), false)])
    error_message = "rotate_on_change: selection must have either outdated or instance_ids."
  }

  validation {
    condition     = alltrue(flatten([for change in values(var.rotate_on_change) : [for field in keys(try(change.recycle, {})) : contains(keys(local.input_fields), field)]]))
    error_message = "rotate_on_change: recycle may have only the fields ${join(", ", keys(local.input_fields))}."
  }
}

variable "spot" {
  description = "Recycle Spot nodes of the cluster that EC2 interrupts (interruption warning), or is likely to interrupt soon (rebalance recommendation)."
  type        = bool
  default     = false
  nullable    = false
}

################################################################################
# The functions
################################################################################

variable "artifacts" {
  description = "The packages of a release, as install.sh or `make package` leave them: in a `directory`, or below a `prefix` in an `s3` bucket of this region. Both contain `<architecture>/<function>.zip` and `<architecture>/version.txt`, which must have this module's version."
  type = object({
    directory = optional(string)
    s3 = optional(object({
      bucket = string
      prefix = optional(string, "")
    }))
  })
  nullable = false

  validation {
    condition     = (var.artifacts.directory == null) != (var.artifacts.s3 == null)
    error_message = "artifacts must have either directory or s3."
  }

  validation {
    condition     = var.artifacts.s3 == null ? true : can(regex("^([^/].*[^/]|[^/]|)$", var.artifacts.s3.prefix))
    error_message = "artifacts.s3.prefix must not start or end with /."
  }
}

variable "architecture" {
  description = "Processor architecture of the packages: `arm64` (cheaper) or `x86_64`."
  type        = string
  default     = "arm64"
  nullable    = false

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "architecture must be arm64 or x86_64."
  }
}

variable "vpc" {
  description = "Subnets for the functions, if the cluster's endpoint is private. From these subnets the functions must reach the endpoint at port 443, and the APIs of EKS, EC2, Auto Scaling, Elastic Load Balancing and Step Functions through NAT or interface endpoints. `security_group_ids` are your own security groups. Without them the module creates a security group in the cluster's VPC, which allows outgoing traffic to port 443, and adds an ingress rule for it to the cluster's security group. Change or remove `vpc` only while no execution runs (docs/install.md)."
  type = object({
    subnet_ids         = list(string)
    security_group_ids = optional(list(string))
  })
  default = null

  validation {
    condition     = var.vpc == null ? true : length(var.vpc.subnet_ids) > 0 && (var.vpc.security_group_ids == null ? true : length(var.vpc.security_group_ids) > 0)
    error_message = "vpc needs at least one subnet. If security_group_ids is given, it needs at least one group."
  }
}

################################################################################
# Access and notifications
################################################################################

variable "create_access_entries" {
  description = "Create the EKS access entries that put each function's role into its Kubernetes groups (output `kubernetes_groups`). If this is false, create an access entry for every role of the output `role_arns` yourself."
  type        = bool
  default     = true
  nullable    = false
}

variable "notification_topic" {
  description = "An existing SNS topic of this region for notifications: `{ arn = … }`, with `kms_key_arn` if it is encrypted with your own key. The policy of the topic must allow `events.amazonaws.com` and `cloudwatch.amazonaws.com` to publish. If the topic is in another account, it must also allow the roles of the state machines (outputs `state_machine_role_arn`, `rotate_role_arn` and `sweep_role_arn`). The policy of the key must allow the same. By default the module creates a topic."
  # This is an object, because the plan must know whether a topic is given. The ARN of a topic that is still to be created is unknown.
  type = object({
    arn         = string
    kms_key_arn = optional(string)
  })
  default = null

  validation {
    condition     = var.notification_topic == null ? true : can(regex("^arn:[^:]+:sns:[^:]+:[0-9]{12}:[^:]+$", var.notification_topic.arn))
    error_message = "notification_topic.arn must be the ARN of an SNS topic."
  }

  validation {
    condition     = var.notification_topic == null ? true : try(split(":", var.notification_topic.arn)[3] == local.region, true)
    error_message = "notification_topic.arn must be a topic in ${local.region}, the region of the provider: EventBridge and CloudWatch alarms publish to no topic of another region."
  }

  validation {
    condition     = try(split(":", var.notification_topic.kms_key_arn)[3] == local.region, true)
    error_message = "notification_topic.kms_key_arn must be a key in ${local.region}, the region of the provider and of the topic."
  }
}

variable "notification_format" {
  description = "Format of the notifications on the topic: `json` for queues, functions and HTTP endpoints, or `chat` for Amazon Q Developer in chat applications, which shows them in Slack, Microsoft Teams or Amazon Chime (docs/notifications.md). An email is text in both."
  type        = string
  default     = "json"
  nullable    = false

  validation {
    condition     = contains(["json", "chat"], var.notification_format)
    error_message = "notification_format must be json or chat."
  }
}

variable "alarms" {
  description = "Create alarms for claims that last longer than their drain, restores, nodes that need manual commands, and events that could not be delivered. The alarms notify the topic."
  type        = bool
  default     = true
  nullable    = false
}

variable "dashboard" {
  description = "Create a CloudWatch dashboard, `<name>-<cluster_name>-<region>`."
  type        = bool
  default     = true
  nullable    = false
}

################################################################################
# Requirements of the account
################################################################################

variable "iam_role_permissions_boundary" {
  description = "ARN of the IAM policy that is the permissions boundary of every role of the module."
  type        = string
  default     = null

  validation {
    condition     = var.iam_role_permissions_boundary == null ? true : can(regex("^arn:[^:]+:iam::([0-9]{12}|aws):policy/.+$", var.iam_role_permissions_boundary))
    error_message = "iam_role_permissions_boundary must be the ARN of an IAM policy."
  }
}

variable "iam_role_path" {
  description = "IAM path of every role of the module. The ConfigMap `aws-auth` grants nothing to a role by an ARN with a path, so such roles need access entries."
  type        = string
  default     = "/"
  nullable    = false

  validation {
    condition     = can(regex("^/([!-~]+/)?$", var.iam_role_path))
    error_message = "iam_role_path must start and end with /."
  }
}

variable "kms_key_arn" {
  description = "KMS key of this region for the log groups, topic, queue and schedules of the module. The policy of the key must allow `logs.<region>.amazonaws.com`, `events.amazonaws.com` and `cloudwatch.amazonaws.com` to use it, and also `sns.amazonaws.com` if there are `alarm_topics`."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null ? true : can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/.+$", var.kms_key_arn))
    error_message = "kms_key_arn must be the ARN of a KMS key."
  }

  validation {
    condition     = var.kms_key_arn == null ? true : try(split(":", var.kms_key_arn)[3] == local.region, true)
    error_message = "kms_key_arn must be a key in ${local.region}, the region of the provider. A multi-Region key has a replica in each of its regions."
  }
}

variable "log_retention_days" {
  description = "Number of days for which logs are kept, one of the values that CloudWatch Logs allows. With the default, logs are kept as long as Step Functions keeps the history of an execution."
  type        = number
  default     = 90
  nullable    = false
}

variable "tracing" {
  description = "Trace executions and functions with AWS X-Ray."
  type        = bool
  default     = false
  nullable    = false
}

variable "tags" {
  description = "Tags for every resource of the module that can have tags."
  type        = map(string)
  default     = {}
  nullable    = false
}
