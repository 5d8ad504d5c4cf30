terraform {
  # 1.9: validations of variables may refer to locals (input_defaults does).
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source = "hashicorp/aws"
      # Nothing here uses an attribute that differs between 5 and 6: the region is data.aws_region's id, not name or region.
      version = ">= 5.80, < 7"
    }
  }
}
