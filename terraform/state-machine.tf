locals {
  # What is worth another try with the same input: our own ServiceUnavailable, and what Lambda itself does wrong (Step Functions' developer
  # guide, "Handle transient Lambda service exceptions"). The last eight pass by themselves (Lambda API reference, Invoke): Lambda gives a
  # function in a VPC that was idle for weeks its network interface again at the next call, which fails.
  # At most ten minutes of waiting, with jitter, so that a storm of executions does not come back in step.
  retry = [{
    ErrorEquals = [
      "ServiceUnavailable",
      "States.Timeout",
      "Sandbox.Timedout",
      "Runtime.ExitError",
      "Lambda.Unknown",
      "Lambda.TooManyRequestsException",
      "Lambda.ServiceException",
      "Lambda.AWSLambdaException",
      "Lambda.SdkClientException",
      "Lambda.ClientExecutionTimeoutException",
      "Lambda.CodeArtifactUserPendingException",
      "Lambda.EC2ThrottledException",
      "Lambda.EC2UnexpectedException",
      "Lambda.ENILimitReachedException",
      "Lambda.ENINotReadyException",
      "Lambda.ResourceConflictException",
      "Lambda.ResourceNotReadyException",
      "Lambda.SubnetIPAddressLimitReachedException",
    ]
    IntervalSeconds = 2
    BackoffRate     = 2
    MaxDelaySeconds = 120
    MaxAttempts     = 10
    JitterStrategy  = "FULL"
  }]

  # For Tasks that publish. Nobody waits for long: what cannot be told is left untold, and the node is recycled all the same.
  publish_retry = [{
    ErrorEquals     = ["States.Timeout", "Sns.SdkClientException", "Sns.InternalErrorException", "Sns.ThrottledException"]
    IntervalSeconds = 2
    BackoffRate     = 2
    MaxDelaySeconds = 10
    MaxAttempts     = 3
    JitterStrategy  = "FULL"
  }]

  # Every function by the name of its placeholder: claim_node = the ARN of its newest version, …
  function_versions = { for function, resource in aws_lambda_function.this : replace(function, "-", "_") => resource.qualified_arn }

  # A file is valid JSON before rendering: "Retry": "${retry}" is a string there, and becomes the list here.
  definition = {
    for machine in keys(local.machines) : machine => replace(
      replace(
        templatefile("${local.definitions}/${machine}.asl.json", merge(local.function_versions, {
          cluster_name       = var.cluster_name
          live               = local.live
          notification_topic = local.notification_topic_arn
          partition          = local.partition
          publish_retry      = "@publish_retry"
          retry              = "@retry"
        })),
        "\"@retry\"",
        jsonencode(local.retry),
      ),
      "\"@publish_retry\"",
      jsonencode(local.publish_retry),
    )
  }
}

resource "aws_sfn_state_machine" "recycle_node" {
  name       = local.machine_name
  role_arn   = aws_iam_role.state_machine["recycle-node"].arn
  definition = local.definition["recycle-node"]
  publish    = true
  tags       = var.tags

  logging_configuration {
    log_destination        = "${aws_cloudwatch_log_group.state_machine["recycle-node"].arn}:*"
    level                  = "ERROR"
    include_execution_data = true
  }

  tracing_configuration {
    enabled = var.tracing
  }

  # Step Functions checks that the role may deliver logs when it creates the machine.
  depends_on = [aws_iam_role_policy.state_machine, aws_iam_role_policy_attachment.keep_lifecycle_hooks_alive]
}

resource "aws_sfn_alias" "live" {
  name        = "live"
  description = "The version to start. Running executions stay on theirs."

  routing_configuration {
    state_machine_version_arn = aws_sfn_state_machine.recycle_node.state_machine_version_arn
    weight                    = 100
  }
}

resource "aws_cloudwatch_log_group" "state_machine" {
  for_each = local.machines

  # Under /aws/vendedlogs/ all machines of an account share one entry of the resource policy for log delivery, whose size is limited.
  name              = "/aws/vendedlogs/states/${each.value.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
  tags              = var.tags
}

# Shown in the plan of a destroy, and again when it begins: nothing that is still claimed would be put back.
resource "terraform_data" "destroy_only_while_no_node_is_claimed" {
  input = "Executions that still run stop here, and nobody puts their nodes back: they stay tainted, cordoned and in Standby. Members that are Terminating:Wait for our lifecycle hook are terminated with their pods as it is deleted, retain or not. Look with kubectl get nodes -l recycle-eks/group, for instances with tags recycle-eks:* and for members that are Terminating:Wait first. The order is in docs/install.md, Remove it."

  provisioner "local-exec" {
    when       = destroy
    on_failure = continue
    command    = "echo ${self.input}"
  }

  # So that it goes first.
  depends_on = [aws_sfn_alias.live, aws_sfn_state_machine.sweep, aws_cloudwatch_event_target.sweep, aws_sfn_state_machine.rotate_nodes, aws_lambda_function.this]
}
