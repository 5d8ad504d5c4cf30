################################################################################
# What it works on
################################################################################

variable "name" {
  description = "Start of every name that the module gives: `<name>-recycle-node`, `<name>-claim-node`, … Changing it replaces everything, so not while executions run."
  type        = string
  default     = "recycle-eks"
  nullable    = false

  validation {
    condition     = can(regex("^[a-zA-Z0-9][a-zA-Z0-9_-]*$", var.name))
    error_message = "name may hold letters, digits, - and _, and starts with a letter or digit."
  }

  validation {
    # An execution's ARN goes into the claim tag, and a tag's value has at most 256 characters.
    condition     = length("${var.name}-recycle-node") <= 40
    error_message = "name may have at most 27 characters, so that <name>-recycle-node has at most 40."
  }
}

variable "cluster_name" {
  description = "The EKS cluster whose nodes are recycled. One module instance serves one cluster: use `for_each` on the module for several. If the same configuration creates the cluster, the module needs `depends_on` for it. Its Auto Scaling groups and instances must carry the tag `kubernetes.io/cluster/<cluster_name>` = `owned` or `shared`, as EKS asks of its nodes anyway: groups and instances without it cannot be changed."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("^[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}$", var.cluster_name))
    error_message = "cluster_name is not a name that EKS allows: at most 100 letters, digits, - and _, starting with a letter or digit."
  }
}

variable "input_defaults" {
  description = "Defaults for fields of an execution's input, such as `{ label_selector = \"app=batch\", drain_timeout = 259200 }`. An execution that gives a field overrides its default. What the values mean and which are allowed is the input's own table; `claim-node` refuses a wrong one before anything is touched."
  # Not an object type: Terraform drops an object's unknown attributes without a word, and with a misspelt label_selector the
  # pods that were to be waited for would be evicted.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = length(setsubtract(keys(var.input_defaults), keys(local.input_fields))) == 0
    error_message = "input_defaults has no field ${join(", ", setsubtract(keys(var.input_defaults), keys(local.input_fields)))}; there are ${join(", ", keys(local.input_fields))}."
  }

  validation {
    condition = alltrue([
      for field, value in var.input_defaults : can(regex(local.input_kinds[lookup(local.input_fields, field, "any")], jsonencode(value)))
    ])
    error_message = "input_defaults: ${join(", ", [
      for field, value in var.input_defaults : "${field} must be a ${local.input_fields[field]}"
      if !can(regex(local.input_kinds[lookup(local.input_fields, field, "any")], jsonencode(value)))
    ])}."
  }
}

variable "lifecycle_hooks" {
  description = "Auto Scaling groups that get our lifecycle hook, by a name of your choice: whatever terminates a member of theirs (a scale-in, an instance refresh, a rebalance) waits until its pods are done; only the update of a managed node group does not, because EKS drains the nodes itself before. `retain` says that the group's instance lifecycle policy has `TerminateHookAbandon = retain`, so that a drain may take longer than the hook can be kept alive (48 hours, or 100 times `heartbeat_timeout_seconds`); it is checked against the group, and told where it does not hold. Deleting the hook (the group leaves this map, its key changes without `moved`, destroy) makes Auto Scaling terminate every member that waits for it, with its pods, `retain` or not. See docs/hooks.md."
  type = map(object({
    auto_scaling_group_name   = string
    heartbeat_timeout_seconds = optional(number, 3600)
    retain                    = optional(bool, false)
  }))
  default  = {}
  nullable = false

  validation {
    # The poll law needs room: a third of it is the longest wait. The most is what Auto Scaling allows.
    condition     = alltrue([for hook in values(var.lifecycle_hooks) : hook.heartbeat_timeout_seconds >= 900 && hook.heartbeat_timeout_seconds <= 7200])
    error_message = "lifecycle_hooks: heartbeat_timeout_seconds must be from 900 to 7200."
  }

  validation {
    condition     = length(distinct([for hook in values(var.lifecycle_hooks) : hook.auto_scaling_group_name])) == length(var.lifecycle_hooks)
    error_message = "lifecycle_hooks: each group once."
  }

  validation {
    # Ten managed policies of a role, with 16 groups each (iam.tf).
    condition     = length(var.lifecycle_hooks) <= 160
    error_message = "lifecycle_hooks: at most 160 groups, and there are ${length(var.lifecycle_hooks)}: a role has room for no more. Give the others an installation of their own, by `name`."
  }

  validation {
    # Its executions would do nothing, and the hook end with nobody having seen to the pods.
    condition     = length(var.lifecycle_hooks) == 0 || try(var.input_defaults.dry_run, false) != true
    error_message = "lifecycle_hooks must be empty as long as input_defaults has dry_run = true: nobody would keep a hook alive, and members would go with their pods."
  }

  validation {
    condition     = alltrue([for key in keys(var.lifecycle_hooks) : can(regex("^[a-zA-Z0-9_.-]{1,30}$", key))])
    error_message = "lifecycle_hooks: a name may hold letters, digits, -, _ and ., at most 30 of them: it becomes part of a rule's name."
  }
}

variable "max_parallel_per_group" {
  description = "How many nodes of one Auto Scaling group are replaced, or have pods moved from them, at the same time. Others wait for their turn, up to a day. Executions for a lifecycle hook or a Spot interruption do not wait."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = var.max_parallel_per_group >= 1 && floor(var.max_parallel_per_group) == var.max_parallel_per_group
    error_message = "max_parallel_per_group must be a whole number from 1 on."
  }
}

variable "max_surge_per_group" {
  description = "How many nodes of one Auto Scaling group are underway at the same time, those included that only wait for pods to end: each of them has its replacement already, so this bounds the extra instances. The default lets a rotation of a group of 50 nodes with pods of 20 hours be through in about nine days (docs/rotations.md)."
  type        = number
  default     = 5
  nullable    = false

  validation {
    condition     = var.max_surge_per_group >= 1 && var.max_surge_per_group <= 40 && floor(var.max_surge_per_group) == var.max_surge_per_group
    error_message = "max_surge_per_group must be a whole number from 1 to 40: Step Functions works on at most 40 nodes of a group at once."
  }

  validation {
    condition     = var.max_surge_per_group >= var.max_parallel_per_group
    error_message = "max_surge_per_group must be at least max_parallel_per_group: those that are replaced at the same time are underway, too."
  }
}

################################################################################
# What starts it
################################################################################

variable "alarm_triggers" {
  description = "CloudWatch alarms that recycle a node when they enter ALARM, by a name of yours: `alarm_names` (required). An alarm with the dimension InstanceId means that instance; one with AutoScalingGroupName, or with `group` set here, means the group's oldest node if `pick = \"oldest\"`, and is refused otherwise. Nothing is recycled of a group whose last node was claimed or replaced less than `cooldown_minutes` (60) ago. `recycle` has fields of an execution's input that go over `input_defaults`."
  # Not an object type: Terraform drops an object's unknown attributes without a word, as in input_defaults.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for trigger in values(var.alarm_triggers) : try(length(trigger.alarm_names) > 0, false)])
    error_message = "alarm_triggers: each needs alarm_names, a list with at least one name."
  }

  validation {
    condition     = alltrue(flatten([for trigger in values(var.alarm_triggers) : [for term in keys(trigger) : contains(["alarm_names", "group", "pick", "cooldown_minutes", "recycle"], term)]]))
    error_message = "alarm_triggers: there are alarm_names, group, pick, cooldown_minutes and recycle."
  }

  validation {
    condition     = alltrue([for trigger in values(var.alarm_triggers) : contains(["oldest", "absent"], try(coalesce(trigger.pick, "absent"), "absent"))])
    error_message = "alarm_triggers: pick must be oldest, or absent."
  }

  validation {
    condition     = alltrue(flatten([for trigger in values(var.alarm_triggers) : [for field in keys(try(trigger.recycle, {})) : contains(keys(local.input_fields), field)]]))
    error_message = "alarm_triggers: recycle has a field that is none of ${join(", ", keys(local.input_fields))}."
  }

  validation {
    condition     = alltrue([for key in keys(var.alarm_triggers) : can(regex("^[a-zA-Z0-9_.-]+$", key)) && length("${var.name}-rotate-nodes-alarm-${key}") <= 64])
    error_message = "alarm_triggers: a name may hold letters, digits, -, _ and ., and <name>-rotate-nodes-alarm-<it>, which is a rule's name, at most 64 characters."
  }
}

variable "alarm_topics" {
  description = "SNS topics, by a name of yours, that alarms of `alarm_triggers` notify: what they tell is heard, too. For alarms whose events do not come to this account's and region's EventBridge, and as a second way for the others; an alarm that comes both ways begins one rotation."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for arn in values(var.alarm_topics) : can(regex("^arn:[^:]+:sns:[^:]+:[0-9]{12}:[^:]+$", arn))])
    error_message = "alarm_topics: each must be the ARN of an SNS topic."
  }

  validation {
    condition     = length(distinct(values(var.alarm_topics))) == length(var.alarm_topics)
    error_message = "alarm_topics: each topic once."
  }

  validation {
    condition     = alltrue([for key in keys(var.alarm_topics) : can(regex("^[a-zA-Z0-9_-]{1,60}$", key))])
    error_message = "alarm_topics: a name may hold letters, digits, - and _, at most 60 of them."
  }

  validation {
    condition     = length(var.alarm_topics) == 0 || length(jsonencode(var.alarm_triggers)) <= 2500
    error_message = "alarm_topics: alarm_triggers has more than 2500 characters as JSON, which do not fit into a function's environment of 4 KB."
  }
}

variable "event_triggers" {
  description = "EventBridge events that recycle the instance that they name: `event_pattern` as an object, and in `instance_id_path` where its id stands, such as `$.detail.instance-id`; an ARN that ends in the id is as good. Instances of other clusters are left alone. `recycle` has fields of an execution's input that go over `input_defaults`."
  # Not an object type: patterns are of many shapes, and a map has one.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for trigger in values(var.event_triggers) : can(trigger.event_pattern) && can(regex("^\\$\\.", trigger.instance_id_path))])
    error_message = "event_triggers: each needs event_pattern, and instance_id_path that begins with $."
  }

  validation {
    condition     = alltrue(flatten([for trigger in values(var.event_triggers) : [for term in keys(trigger) : contains(["event_pattern", "instance_id_path", "recycle"], term)]]))
    error_message = "event_triggers: there are event_pattern, instance_id_path and recycle."
  }

  validation {
    condition     = alltrue(flatten([for trigger in values(var.event_triggers) : [for field in keys(try(trigger.recycle, {})) : contains(keys(local.input_fields), field)]]))
    error_message = "event_triggers: recycle has a field that is none of ${join(", ", keys(local.input_fields))}."
  }

  validation {
    condition     = alltrue([for key in keys(var.event_triggers) : can(regex("^[a-zA-Z0-9_.-]+$", key)) && length("${var.name}-rotate-nodes-event-${key}") <= 64])
    error_message = "event_triggers: a name may hold letters, digits, -, _ and ., and <name>-rotate-nodes-event-<it>, which is a rule's name, at most 64 characters."
  }
}

variable "schedules" {
  description = "Rotations by the clock, by a name of yours: `schedule_expression` (`rate(7 days)`, `cron(0 3 ? * SUN *)` or `at(2027-01-31T03:00:00)`), `timezone` (UTC) and `selection`, such as `{ outdated = { older_than = 336 } }`. `recycle` has fields of an execution's input that go over `input_defaults`; beside it stand the rotation's terms, such as `at_once`. See docs/triggers.md and docs/rotations.md."
  # Not an object type: Terraform drops an object's unknown attributes without a word, as in input_defaults.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for schedule in values(var.schedules) : can(regex("^(rate|cron|at)\\(.+\\)$", schedule.schedule_expression)) && can(keys(schedule.selection))])
    error_message = "schedules: each needs schedule_expression, which is rate(…), cron(…) or at(…), and selection."
  }

  validation {
    condition     = alltrue(flatten([for schedule in values(var.schedules) : [for term in keys(schedule) : contains(concat(["schedule_expression", "timezone", "selection", "recycle"], keys(local.rotation_terms)), term)]]))
    error_message = "schedules: there are schedule_expression, timezone, selection, recycle and the terms ${join(", ", keys(local.rotation_terms))}."
  }

  validation {
    condition = alltrue(flatten([for schedule in values(var.schedules) : [
      for term, looks in local.rotation_terms : try(schedule[term], null) == null ? true : can(regex(looks, jsonencode(schedule[term])))
    ]]))
    error_message = "schedules: a term has a value that it cannot have; docs/rotations.md has the table."
  }

  validation {
    condition     = alltrue([for schedule in values(var.schedules) : try(tonumber(schedule.at_once), 1) <= var.max_surge_per_group])
    error_message = "schedules: at_once must not be more than max_surge_per_group, which is ${var.max_surge_per_group}."
  }

  validation {
    condition     = alltrue([for schedule in values(var.schedules) : try(contains(["outdated", "instance_ids"], one(keys(schedule.selection))), false)])
    error_message = "schedules: selection has either outdated or instance_ids."
  }

  validation {
    condition     = alltrue(flatten([for schedule in values(var.schedules) : [for field in keys(try(schedule.recycle, {})) : contains(keys(local.input_fields), field)]]))
    error_message = "schedules: recycle has a field that is none of ${join(", ", keys(local.input_fields))}."
  }

  validation {
    condition     = alltrue([for key in keys(var.schedules) : can(regex("^[a-zA-Z0-9_.-]+$", key)) && length("${var.name}-rotate-nodes-${key}") <= 64])
    error_message = "schedules: a name may hold letters, digits, -, _ and ., and <name>-rotate-nodes-<it>, which is the schedule's name, at most 64 characters."
  }
}

variable "rotate_on_change" {
  description = "Values whose change by `terraform apply` begins a rotation, by a name of yours: `value`, such as a group's launch template version, and `selection`, such as `{ outdated = { groups = [\"workers\"], launch_template = true } }`. The apply does not wait for it. `recycle` has fields of an execution's input that go over `input_defaults`; beside it stand the rotation's terms, such as `at_once`. See docs/triggers.md and docs/rotations.md."
  # Not an object type: Terraform drops an object's unknown attributes without a word, as in input_defaults.
  type     = any
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for change in values(var.rotate_on_change) : can(change.value) && can(keys(change.selection))])
    error_message = "rotate_on_change: each needs value and selection."
  }

  validation {
    condition     = alltrue(flatten([for change in values(var.rotate_on_change) : [for term in keys(change) : contains(concat(["value", "selection", "recycle"], keys(local.rotation_terms)), term)]]))
    error_message = "rotate_on_change: there are value, selection, recycle and the terms ${join(", ", keys(local.rotation_terms))}."
  }

  validation {
    condition = alltrue(flatten([for change in values(var.rotate_on_change) : [
      for term, looks in local.rotation_terms : try(change[term], null) == null ? true : can(regex(looks, jsonencode(change[term])))
    ]]))
    error_message = "rotate_on_change: a term has a value that it cannot have; docs/rotations.md has the table."
  }

  validation {
    condition     = alltrue([for change in values(var.rotate_on_change) : try(tonumber(change.at_once), 1) <= var.max_surge_per_group])
    error_message = "rotate_on_change: at_once must not be more than max_surge_per_group, which is ${var.max_surge_per_group}."
  }

  validation {
    condition     = alltrue([for change in values(var.rotate_on_change) : try(contains(["outdated", "instance_ids"], one(keys(change.selection))), false)])
    error_message = "rotate_on_change: selection has either outdated or instance_ids."
  }

  validation {
    condition     = alltrue(flatten([for change in values(var.rotate_on_change) : [for field in keys(try(change.recycle, {})) : contains(keys(local.input_fields), field)]]))
    error_message = "rotate_on_change: recycle has a field that is none of ${join(", ", keys(local.input_fields))}."
  }
}

variable "spot" {
  description = "Recycle nodes of the cluster of which EC2 says that it takes them away (Spot interruption warning) or may soon (rebalance recommendation)."
  type        = bool
  default     = false
  nullable    = false
}

################################################################################
# The functions
################################################################################

variable "artifacts" {
  description = "Where the packages are that `make package` built: in a `directory`, or below a `prefix` in an `s3` bucket of this region. Either holds `<architecture>/<function>.zip` and `<architecture>/version.txt`, which must be this module's version."
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
    error_message = "artifacts needs either directory or s3."
  }

  validation {
    condition     = var.artifacts.s3 == null ? true : can(regex("^([^/].*[^/]|[^/]|)$", var.artifacts.s3.prefix))
    error_message = "artifacts.s3.prefix must not start or end with /."
  }
}

variable "architecture" {
  description = "Processor that the functions were built for: `arm64` (cheaper) or `x86_64`."
  type        = string
  default     = "arm64"
  nullable    = false

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "architecture must be arm64 or x86_64."
  }
}

variable "vpc" {
  description = "Subnets for the functions, if the cluster's endpoint is private. From there they must reach the endpoint at port 443 and the APIs of EKS, EC2, Auto Scaling and Elastic Load Balancing, by NAT or by interface endpoints. `security_group_ids` are yours; without them the module creates one in the cluster's VPC, which may call anything at port 443, and lets it in at the cluster's security group."
  type = object({
    subnet_ids         = list(string)
    security_group_ids = optional(list(string))
  })
  default = null

  validation {
    condition     = var.vpc == null ? true : length(var.vpc.subnet_ids) > 0 && (var.vpc.security_group_ids == null ? true : length(var.vpc.security_group_ids) > 0)
    error_message = "vpc needs at least one subnet, and security_group_ids, if given, at least one group."
  }
}

################################################################################
# Access and notification
################################################################################

variable "create_access_entries" {
  description = "Create the EKS access entries that put every function's role into the Kubernetes group `recycle-eks`. Without them somebody else must, for every role of the output `role_arns`."
  type        = bool
  default     = true
  nullable    = false
}

variable "notification_topic" {
  description = "An existing SNS topic for what people have to hear of: `{ arn = … }`, with `kms_key_arn` if it is encrypted by a key of yours. Its policy must let `events.amazonaws.com` and `cloudwatch.amazonaws.com` publish, and in another account the state machines' roles, too (outputs `state_machine_role_arn` and `sweep_role_arn`); so must the key's. Default: the module creates a topic."
  # An object, because whether a topic is given must be known when planning, and the ARN of a topic that is yet to be created is not.
  type = object({
    arn         = string
    kms_key_arn = optional(string)
  })
  default = null

  validation {
    condition     = var.notification_topic == null ? true : can(regex("^arn:[^:]+:sns:[^:]+:[0-9]{12}:[^:]+$", var.notification_topic.arn))
    error_message = "notification_topic.arn must be the ARN of an SNS topic."
  }
}

variable "alarms" {
  description = "Create the alarms that are worth waking somebody for: claims that outlast their drain, put-backs, nodes that are left to a person, events that could not be delivered. They tell the topic."
  type        = bool
  default     = true
  nullable    = false
}

variable "dashboard" {
  description = "Create a CloudWatch dashboard, `<name>-<cluster_name>`."
  type        = bool
  default     = true
  nullable    = false
}

################################################################################
# The rules of the account
################################################################################

variable "permissions_boundary" {
  description = "ARN of a policy that bounds every role of the module."
  type        = string
  default     = null

  validation {
    condition     = var.permissions_boundary == null ? true : can(regex("^arn:[^:]+:iam::([0-9]{12}|aws):policy/.+$", var.permissions_boundary))
    error_message = "permissions_boundary must be the ARN of an IAM policy."
  }
}

variable "role_path" {
  description = "IAM path of every role of the module."
  type        = string
  default     = "/"
  nullable    = false

  validation {
    condition     = can(regex("^/([!-~]+/)?$", var.role_path))
    error_message = "role_path must start and end with /."
  }
}

variable "kms_key_arn" {
  description = "KMS key for the log groups, the module's topic, its queue and its schedules. The key's policy must let `logs.<region>.amazonaws.com`, `events.amazonaws.com` and `cloudwatch.amazonaws.com` use it, and `sns.amazonaws.com` if there are `alarm_topics`."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null ? true : can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/.+$", var.kms_key_arn))
    error_message = "kms_key_arn must be the ARN of a KMS key."
  }
}

variable "log_retention_days" {
  description = "Days that logs are kept, one of the values that CloudWatch Logs allows. The default is as long as Step Functions keeps an execution's history."
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
  description = "Tags for every resource of the module that can have them."
  type        = map(string)
  default     = {}
  nullable    = false
}
