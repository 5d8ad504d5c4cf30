# The roles of all functions that call Kubernetes are in its group recycle-eks. The permissions of the group are in rbac/recycle-eks.yaml, which
# an administrator of the cluster applies. The module has no Kubernetes provider, because it could not be configured before the cluster exists.

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

# EKS keeps a role's unique id in its access entry. If a role is created again under the same ARN, its entry "won't work" (EKS user guide,
# "Create access entries"). A change that Terraform only detects and does not plan triggers no replacement, so the id is also kept here.
resource "terraform_data" "role_of_access_entry" {
  for_each = { for function in local.in_cluster : function => function if var.create_access_entries }

  input = aws_iam_role.function[each.key].unique_id
}
