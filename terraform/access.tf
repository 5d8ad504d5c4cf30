# The roles of all functions that ask Kubernetes are in its group recycle-eks. What the group may do is in rbac/recycle-eks.yaml, which whoever
# looks after the cluster applies: the module has no Kubernetes provider, which could not be configured before the cluster is there.

resource "aws_eks_access_entry" "function" {
  for_each = { for function in local.in_cluster : function => function if var.create_access_entries }

  cluster_name      = var.cluster_name
  principal_arn     = aws_iam_role.function[each.key].arn
  kubernetes_groups = ["recycle-eks"]
  type              = "STANDARD"
  tags              = var.tags

  lifecycle {
    replace_triggered_by = [terraform_data.role_of_access_entry[each.key]]
  }
}

# EKS keeps a role's unique id in its access entry: that of a role which was created again under the same ARN "won't work" (EKS user guide,
# "Create access entries"). A change that is only found, not planned, does not trigger a replacement, so the id stands here, too.
resource "terraform_data" "role_of_access_entry" {
  for_each = { for function in local.in_cluster : function => function if var.create_access_entries }

  input = aws_iam_role.function[each.key].unique_id
}
