# The role of each function that calls Kubernetes is in the groups that the function needs. The permissions of the groups are in
# rbac/recycle-eks.yaml, which an administrator of the cluster applies. The module has no Kubernetes provider, because it could not be
# configured before the cluster exists.

locals {
  # A test compares these groups with the table of permissions in crates/recycle/src/base/permissions.rs.
  kubernetes_groups = {
    claim-node       = ["recycle-eks-read", "recycle-eks-write", "recycle-eks-lease", "recycle-eks-review"]
    standby-node     = ["recycle-eks-read", "recycle-eks-write", "recycle-eks-lease"]
    taint-node       = ["recycle-eks-read", "recycle-eks-write", "recycle-eks-lease"]
    check-pods       = ["recycle-eks-read", "recycle-eks-write", "recycle-eks-lease"]
    evict-pods       = ["recycle-eks-read", "recycle-eks-write", "recycle-eks-evict"]
    detach-terminate = ["recycle-eks-read", "recycle-eks-write", "recycle-eks-lease"]
    restore-node     = ["recycle-eks-read", "recycle-eks-write", "recycle-eks-lease"]
    select-nodes     = ["recycle-eks-read"]
    serve-operator   = ["recycle-eks-read", "recycle-eks-lease", "recycle-eks-review"]
  }
}

resource "aws_eks_access_entry" "function" {
  for_each = { for function in local.in_cluster : function => function if var.create_access_entries }

  cluster_name      = var.cluster_name
  principal_arn     = aws_iam_role.function[each.key].arn
  kubernetes_groups = local.kubernetes_groups[each.key]
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
