# The roles of all functions that ask Kubernetes are in its group recycle-eks. What the group may do is in rbac/recycle-eks.yaml, which whoever
# looks after the cluster applies: the module has no Kubernetes provider, which could not be configured before the cluster is there.

resource "aws_eks_access_entry" "function" {
  for_each = { for function in local.in_cluster : function => function if var.create_access_entries }

  cluster_name      = var.cluster_name
  principal_arn     = aws_iam_role.function[each.key].arn
  kubernetes_groups = ["recycle-eks"]
  type              = "STANDARD"
  tags              = var.tags
}
