locals {
  # Errors that may pass with the same input: the functions' own ServiceUnavailable, and errors of Lambda itself (Step Functions developer
  # guide, "Handle transient Lambda service exceptions"). The last eight pass by themselves (Lambda API reference, Invoke). For example, when
  # a function in a VPC was idle for weeks, Lambda creates its network interface again at the next call, and that call fails.
  # The retries wait at most ten minutes in total. The jitter keeps many executions from retrying at the same moment.
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

  # For Tasks that publish. The waits are short: if a notification cannot be sent, the execution continues without it.
  # SnsException stands for the errors that SNS's model does not name, such as Throttling of a publish.
  publish_retry = [{
    ErrorEquals     = ["States.Timeout", "Sns.SdkClientException", "Sns.InternalErrorException", "Sns.ThrottledException", "Sns.SnsException"]
    IntervalSeconds = 2
    BackoffRate     = 2
    MaxDelaySeconds = 10
    MaxAttempts     = 3
    JitterStrategy  = "FULL"
  }]

  # For Tasks that send an event. They are tried once more, and then the execution continues without the event.
  event_retry = [{
    ErrorEquals     = ["States.Timeout", "States.TaskFailed"]
    IntervalSeconds = 2
    MaxAttempts     = 1
  }]

  # The ARN of each function's newest version, by the name of its placeholder, such as claim_node.
  function_versions = { for function, resource in aws_lambda_function.this : replace(function, "-", "_") => resource.qualified_arn }

  # Each file is valid JSON before rendering: "Retry": "${retry}" is a string there and becomes a list here.
  # It has no secret. But any change of a function changes its version, which a plan does not know yet, and would print as a thousand lines.
  definition = {
    for machine in keys(local.machines) : machine => sensitive(replace(
      replace(
        replace(
          templatefile("${local.definitions}/${machine}.asl.json", merge(local.function_versions, {
            cluster_name       = var.cluster_name
            event_retry        = "@event_retry"
            live               = local.live
            message            = local.notification_message
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
      ),
      "\"@event_retry\"",
      jsonencode(local.event_retry),
    ))
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

  # AWS ends the executions of a deleted machine at their next transition. The longest wait of a drain is an hour.
  timeouts {
    delete = "70m"
  }

  tracing_configuration {
    enabled = var.tracing
  }

  # Step Functions checks that the role may deliver logs when it creates the machine.
  depends_on = [aws_iam_role_policy.state_machine, aws_iam_role_policy_attachment.keep_lifecycle_hooks_alive]
}

resource "aws_sfn_alias" "live" {
  name        = "live"
  description = "The version for new executions. Running executions stay on their own version."

  routing_configuration {
    state_machine_version_arn = aws_sfn_state_machine.recycle_node.state_machine_version_arn
    weight                    = 100
  }
}

resource "aws_cloudwatch_log_group" "state_machine" {
  for_each = local.machines

  # Under /aws/vendedlogs/ all state machines of an account share one entry of the resource policy for log delivery. The policy's size is limited.
  name              = "/aws/vendedlogs/states/${each.value.name}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.kms_key_arn
  tags              = var.tags
}

# A destroy shows this text in its plan and again when it begins: nodes that are still claimed would not be restored.
resource "terraform_data" "destroy_only_while_no_node_is_claimed" {
  input = "Executions that still run stop here, and their nodes are not restored: they stay tainted, cordoned and in Standby. When the lifecycle hook is deleted, members in Terminating:Wait are terminated with their pods, with or without retain. First check kubectl get leases --namespace recycle-eks, instances with tags recycle-eks:*, and members in Terminating:Wait. The order of the steps is in docs/install.md, Remove it."

  provisioner "local-exec" {
    when       = destroy
    on_failure = continue
    command    = "echo ${self.input}"
  }

  # Terraform destroys this resource before those it depends on.
  depends_on = [aws_sfn_alias.live, aws_sfn_state_machine.sweep, aws_cloudwatch_event_target.sweep, aws_sfn_state_machine.rotate_nodes, aws_lambda_function.this]
}
