output "start_execution_command" {
  description = "Recycles one node; put the instance's id in."
  value       = module.recycle_eks.start_execution_command
}

output "state_machine_alias_arn" {
  description = "What to start."
  value       = module.recycle_eks.state_machine_alias_arn
}

output "sweep_state_machine_arn" {
  description = "The sweep, to start by hand what runs every 15 minutes."
  value       = module.recycle_eks.sweep_state_machine_arn
}

output "rotate_state_machine_arn" {
  description = "The machine that every trigger starts, to start by hand."
  value       = module.recycle_eks.rotate_state_machine_arn
}

output "notification_topic_arn" {
  description = "Subscribe to it to hear of every node: started, blocked, recycled, put back, or left to a person."
  value       = module.recycle_eks.notification_topic_arn
}

output "rbac_manifest" {
  description = "Apply it to the cluster once: `terraform output -raw rbac_manifest | kubectl apply -f -`."
  value       = module.recycle_eks.rbac_manifest
}

output "operator_policy_json" {
  description = "What a person needs for the command line `recycle-eks`."
  value       = module.recycle_eks.operator_policy_json
}
