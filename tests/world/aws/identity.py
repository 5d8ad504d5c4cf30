"""The identity of the account: its number, its region, its root."""

ACCOUNT = "123456789012"
REGION = "eu-west-1"
PARTITION = "aws"
ROOT = f"arn:{PARTITION}:iam::{ACCOUNT}:root"

# The key of all callers other than functions: tests, Terraform, the world itself.
ROOT_ACCESS_KEY = "AKIAWORLDROOT0000000"
