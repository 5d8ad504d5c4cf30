locals {
  # Each timeout is shorter than the TimeoutSeconds of the function's Task, so that the error of the function comes first.
  functions = {
    claim-node = {
      timeout = 60
      environment = {
        CLUSTER_NAME           = var.cluster_name
        INPUT_DEFAULTS         = jsonencode(var.input_defaults)
        MAX_PARALLEL_PER_GROUP = var.max_parallel_per_group
        MAX_SURGE_PER_GROUP    = var.max_surge_per_group
      }
    }
    standby-node = { timeout = 60, environment = { CLUSTER_NAME = var.cluster_name } }
    taint-node   = { timeout = 60, environment = { CLUSTER_NAME = var.cluster_name } }
    check-pods = {
      timeout     = 60
      environment = { CLUSTER_NAME = var.cluster_name, CANCEL_INSTANCE_REFRESH = var.cancel_instance_refresh }
    }
    # An eviction takes about 100 ms, more when the API server is busy. A node has up to 110 pods, some nodes have 250.
    evict-pods       = { timeout = 240, environment = { CLUSTER_NAME = var.cluster_name } }
    detach-terminate = { timeout = 60, environment = { CLUSTER_NAME = var.cluster_name } }
    restore-node     = { timeout = 60, environment = { CLUSTER_NAME = var.cluster_name } }
    select-nodes = {
      timeout = 60
      environment = {
        CLUSTER_NAME        = var.cluster_name
        INPUT_DEFAULTS      = jsonencode(var.input_defaults)
        MAX_SURGE_PER_GROUP = var.max_surge_per_group
      }
    }
    serve-operator = { timeout = 60, environment = { CLUSTER_NAME = var.cluster_name } }
    start-rotation = {
      timeout = 60
      environment = {
        ROTATE_STATE_MACHINE_ARN = local.rotate
        # The function gets alarms only from topics, so without a topic the list is empty. The environment of a function has 4 KB.
        ALARM_TRIGGERS = jsonencode({
          for key, trigger in var.alarm_triggers : key => {
            alarm_names = trigger.alarm_names
            rotation    = local.triggers["alarm-${key}"].input
          } if length(var.alarm_topics) > 0
        })
      }
    }
  }

  # The functions that call Kubernetes: all except start-rotation, which only starts executions.
  in_cluster = setsubtract(keys(local.functions), ["start-rotation"])
}

################################################################################
# Packages
################################################################################

locals {
  version  = trimspace(file("${path.module}/version.txt"))
  from_s3  = var.artifacts.s3 != null
  packages = local.from_s3 ? join("/", compact([var.artifacts.s3.prefix, var.architecture])) : "${var.artifacts.directory}/${var.architecture}"
  # The body is null if the object is not text.
  packages_version = try(
    trimspace(local.from_s3 ? data.aws_s3_object.version["this"].body : file("${local.packages}/version.txt")), "unknown"
  )
}

data "aws_s3_object" "version" {
  for_each = local.from_s3 ? { this = "version.txt" } : {}

  bucket = var.artifacts.s3.bucket
  key    = "${local.packages}/${each.value}"
}

# In a bucket with versioning, the version id shows that a package was uploaded again.
data "aws_s3_object" "package" {
  for_each = local.from_s3 ? local.functions : {}

  bucket = var.artifacts.s3.bucket
  key    = "${local.packages}/${each.key}.zip"
}

resource "aws_lambda_function" "this" {
  for_each = local.functions

  function_name = "${var.name}-${each.key}"
  # `recycle-eks doctor` reads the version here.
  description = "recycle-eks ${local.version}: the step ${each.key}"
  role        = aws_iam_role.function[each.key].arn

  filename          = local.from_s3 ? null : "${local.packages}/${each.key}.zip"
  source_code_hash  = local.from_s3 ? null : filebase64sha256("${local.packages}/${each.key}.zip")
  s3_bucket         = local.from_s3 ? var.artifacts.s3.bucket : null
  s3_key            = local.from_s3 ? data.aws_s3_object.package[each.key].key : null
  s3_object_version = local.from_s3 ? data.aws_s3_object.package[each.key].version_id : null
  runtime           = "provided.al2023"
  handler           = "bootstrap"
  architectures     = [var.architecture]

  # The smallest size in Lambda. A function needs about 30 MB.
  memory_size = 128
  timeout     = each.value.timeout

  # Executions run for days, and each one keeps the versions it started with.
  publish = true

  dynamic "environment" {
    for_each = length(each.value.environment) > 0 ? { this = each.value.environment } : {}

    content {
      variables = environment.value
    }
  }

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.function[each.key].name
  }

  tracing_config {
    mode = var.tracing ? "Active" : "PassThrough"
  }

  dynamic "vpc_config" {
    for_each = var.vpc == null ? {} : { this = var.vpc }

    content {
      subnet_ids         = vpc_config.value.subnet_ids
      security_group_ids = local.vpc_security_group_ids
    }
  }

  tags = var.tags

  lifecycle {
    precondition {
      condition     = local.from_s3 || fileexists("${local.packages}/${each.key}.zip")
      error_message = "${local.packages}/${each.key}.zip does not exist. Fetch the packages with install.sh of this module's release, or build them with `make package`."
    }

    precondition {
      condition     = local.packages_version == local.version
      error_message = "The packages in ${local.packages} have version ${local.packages_version}, but this module has version ${local.version}. Use packages and module of the same release."
    }
  }

  # Lambda needs the VPC permissions from the creation of the function until the function is deleted.
  depends_on = [aws_iam_role_policy.function, aws_iam_role_policy_attachment.complete_lifecycle_hooks]
}

resource "aws_cloudwatch_log_group" "function" {
  for_each = local.functions

  name              = "/aws/lambda/${var.name}-${each.key}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
  tags              = var.tags
}
