# For functions in a VPC: their own security group, unless one is given, and access to the cluster's private endpoint.

locals {
  created_security_groups = var.vpc == null ? {} : (var.vpc.security_group_ids == null ? { this = "${var.name}-functions" } : {})
  vpc_security_group_ids  = var.vpc == null ? [] : (var.vpc.security_group_ids == null ? values(aws_security_group.functions)[*].id : var.vpc.security_group_ids)
}

resource "aws_security_group" "functions" {
  for_each = local.created_security_groups

  name        = each.value
  description = "recycle-eks: the functions"
  vpc_id      = data.aws_eks_cluster.this.vpc_config[0].vpc_id
  tags        = merge(var.tags, { Name = each.value })
}

resource "aws_vpc_security_group_egress_rule" "functions" {
  for_each = local.created_security_groups

  security_group_id = aws_security_group.functions[each.key].id
  description       = "The cluster and the APIs of AWS"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "cluster" {
  for_each = local.created_security_groups

  security_group_id            = data.aws_eks_cluster.this.vpc_config[0].cluster_security_group_id
  referenced_security_group_id = aws_security_group.functions[each.key].id
  description                  = "The functions of ${var.name}"
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  tags                         = var.tags
}
