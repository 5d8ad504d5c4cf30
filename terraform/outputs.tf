output "state_machine_alias_arn" {
  description = "The alias `live` of the state machine. Start executions with it."
  value       = aws_sfn_alias.live.arn
}

output "state_machine_arn" {
  description = "The state machine without a version, as policies and events name it."
  value       = aws_sfn_state_machine.recycle_node.arn
}

output "start_execution_command" {
  description = "A command that recycles one node. Replace the instance id."
  value       = "aws stepfunctions start-execution --region ${local.region} --state-machine-arn ${aws_sfn_alias.live.arn} --input '${jsonencode({ instance_id = "i-0123456789abcdef0", cluster_name = var.cluster_name })}'"
}

output "function_names" {
  description = "The function names by step."
  value       = { for function, resource in aws_lambda_function.this : function => resource.function_name }
}

output "function_version_arns" {
  description = "The ARN of each function's newest version by step."
  value       = { for function, resource in aws_lambda_function.this : function => resource.qualified_arn }
}

output "role_arns" {
  description = "The roles of the functions that need access to the cluster, by step. Use access entries for them. With `iam_role_path` an ARN contains the path, and the ConfigMap `aws-auth` grants nothing to a role by an ARN with a path."
  value       = { for function in local.in_cluster : function => aws_iam_role.function[function].arn }
}

output "kubernetes_groups" {
  description = "The Kubernetes groups that each of these functions needs, for access entries that you create yourself."
  value       = local.kubernetes_groups
}

output "state_machine_role_arn" {
  description = "The role of the state machine."
  value       = aws_iam_role.state_machine["recycle-node"].arn
}

output "sweep_state_machine_arn" {
  description = "The state machine of the sweep, which runs every 15 minutes. You can also start it by hand."
  value       = aws_sfn_state_machine.sweep.arn
}

output "rotate_state_machine_arn" {
  description = "The state machine `rotate-nodes`, which every trigger starts. You can also start it by hand."
  value       = aws_sfn_state_machine.rotate_nodes.arn
}

output "rotate_role_arn" {
  description = "The role of the state machine `rotate-nodes`, which publishes to the topic."
  value       = aws_iam_role.state_machine["rotate-nodes"].arn
}

output "sweep_role_arn" {
  description = "The role of the sweep, which publishes to the topic."
  value       = aws_iam_role.state_machine["sweep"].arn
}

output "notification_topic_arn" {
  description = "The SNS topic of the notifications. Subscribe operators and tools to it."
  value       = local.notification_topic_arn
}

output "dead_letter_queue_url" {
  description = "The queue of events that could not be delivered."
  value       = aws_sqs_queue.dead_letters.url
}

output "dashboard_name" {
  description = "The CloudWatch dashboard, if there is one."
  value       = one(values(aws_cloudwatch_dashboard.this)[*].dashboard_name)
}

output "security_group_id" {
  description = "The security group of the functions, if the module created one."
  value       = one(values(aws_security_group.functions)[*].id)
}

output "rbac_manifest" {
  description = "The permissions of the functions in the cluster. Write them with `terraform output -raw rbac_manifest`, and apply them with `kubectl apply -f -`."
  value       = file("${path.module}/rbac/recycle-eks.yaml")
}

output "operator_policy_json" {
  description = "The IAM policy that the command line `recycle-eks` needs, as JSON. Attach it to the operators of the cluster's nodes."
  value       = jsonencode({ Version = "2012-10-17", Statement = local.operator_statements })
}
