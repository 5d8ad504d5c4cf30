terraform {
  # Since 1.9 the validation of a variable can refer to locals, as that of input_defaults does.
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source = "hashicorp/aws"
      # The module uses no attribute that differs between 5 and 6 (tests/contract/test_provider.py). For the region it uses the id of
      # data.aws_region, not name or region.
      version = ">= 5.80, < 7"
    }
  }
}
