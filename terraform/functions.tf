locals {
  # A function's timeout is shorter than its Task's TimeoutSeconds, so that the function's own error is seen first.
  functions = {
    claim-node = {
      timeout = 60
      environment = {
        CLUSTER_NAME   = var.cluster_name
        INPUT_DEFAULTS = jsonencode(var.input_defaults)
      }
    }
    standby-node = { timeout = 60, environment = {} }
    taint-node   = { timeout = 60, environment = {} }
    check-pods   = { timeout = 60, environment = {} }
    # One eviction takes the API server about 100 ms, more when it is busy, and a node has up to 110 pods (some have 250).
    evict-pods       = { timeout = 240, environment = {} }
    detach-terminate = { timeout = 60, environment = {} }
    restore-node     = { timeout = 60, environment = {} }
  }
}

resource "aws_lambda_function" "this" {
  for_each = local.functions

  function_name = "${var.name}-${each.key}"
  description   = "recycle-eks: the step ${each.key}"
  role          = aws_iam_role.function[each.key].arn

  filename         = "${var.artifacts.directory}/${each.key}.zip"
  source_code_hash = filebase64sha256("${var.artifacts.directory}/${each.key}.zip")
  runtime          = "provided.al2023"
  handler          = "bootstrap"
  architectures    = [var.architecture]

  # The smallest that Lambda has; a function needs about 30 MB.
  memory_size = 128
  timeout     = each.value.timeout

  # Executions run for days: each ends on the versions it started with.
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
      security_group_ids = vpc_config.value.security_group_ids
    }
  }

  tags = var.tags

  lifecycle {
    precondition {
      condition     = fileexists("${var.artifacts.directory}/${each.key}.zip")
      error_message = "${var.artifacts.directory}/${each.key}.zip does not exist: build the functions for ${var.architecture} as the README says under \"On a real cluster\"."
    }
  }

  # Lambda asks for the permissions of a VPC when it creates the function, and needs them until the function is gone.
  depends_on = [aws_iam_role_policy.function]
}

resource "aws_cloudwatch_log_group" "function" {
  for_each = local.functions

  name              = "/aws/lambda/${var.name}-${each.key}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
  tags              = var.tags
}
