output "start_execution_command" {
  description = "A command that recycles one node. Replace the instance id."
  value       = module.recycle_eks.start_execution_command
}

output "state_machine_alias_arn" {
  description = "The alias of the state machine. Start executions with it."
  value       = module.recycle_eks.state_machine_alias_arn
}

output "sweep_state_machine_arn" {
  description = "The state machine of the sweep, which runs every 15 minutes. You can also start it by hand."
  value       = module.recycle_eks.sweep_state_machine_arn
}

output "rotate_state_machine_arn" {
  description = "The state machine that every trigger starts. You can also start it by hand."
  value       = module.recycle_eks.rotate_state_machine_arn
}

output "notification_topic_arn" {
  description = "The topic of the notifications. Subscribe to it to follow every node: started, blocked, recycled, restored, or left in Standby."
  value       = module.recycle_eks.notification_topic_arn
}

output "rbac_manifest" {
  description = "The permissions of the functions in the cluster. Apply them once: `terraform output -raw rbac_manifest | kubectl apply -f -`."
  value       = module.recycle_eks.rbac_manifest
}

output "operator_policy_json" {
  description = "The IAM policy that the command line `recycle-eks` needs."
  value       = module.recycle_eks.operator_policy_json
}
